//! Shared parts of the tests: a folder with an experiment, and the command.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The reason why a test cannot run here; `None` if it can.
pub type Missing = Option<String>;

/// The check of a test's requirements, if it has any.
pub type Needs = Option<fn() -> Missing>;

/// The program under test: this build's, or the one that `UNSPIN_UNDER_TEST` names. An optimized
/// program is faster in an emulated guest.
pub static UNSPIN: LazyLock<PathBuf> = LazyLock::new(|| {
    let named = std::env::var_os("UNSPIN_UNDER_TEST").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_unspin").into())
});

/// Checks for the guests' init, QEMU and a Debian cloud kernel.
pub fn guest() -> Missing {
    if !UNSPIN.with_file_name("unspin-init").is_file() {
        return Some("needs unspin-init beside unspin: cargo build --workspace".into());
    }
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        return Some("needs QEMU: apt install qemu-system-x86".into());
    }
    has_kernel("debian-cloud", "unspin lab kernel fetch debian-cloud")
}

/// Checks for a guest whose kernel can hibernate.
pub fn suspending_guest() -> Missing {
    let hibernates = || {
        let mut show = Command::new(&*UNSPIN);
        show.args(["lab", "kernel", "show", "debian-cloud", "--json"]);
        let kernels: Value = serde_json::from_slice(&show.output().ok()?.stdout).ok()?;
        let config = fs::read_to_string(kernels["kernels"][0]["config"].as_str()?).ok()?;
        config.lines().find(|line| *line == "CONFIG_HIBERNATION=y").map(drop)
    };
    guest().or_else(|| hibernates().is_none().then(|| "needs a kernel that can hibernate".into()))
}

/// Checks for the lab kernel, which nested machines need.
pub fn lab_kernel() -> Missing {
    guest().or_else(|| has_kernel("lab", "unspin lab kernel build (minutes)"))
}

/// Checks for the kernel of guests that answer reflected pause loops.
pub fn cvm_kernel() -> Missing {
    has_kernel("lab-cvm", "unspin lab kernel build --source lab-cvm (minutes)")
}

/// Checks for root.
pub fn root() -> Missing {
    (!nix::unistd::geteuid().is_root()).then(|| "needs root".into())
}

/// Checks for a guest, and for root, which its cgroup needs.
pub fn guest_and_root() -> Missing {
    guest().or_else(root)
}

/// Checks for a guest and tracefs.
pub fn guest_and_tracing() -> Missing {
    let tracefs = fs::read_to_string("/proc/filesystems").is_ok_and(|f| f.contains("tracefs"));
    guest_and_root().or_else(|| (!tracefs).then(|| "needs a kernel with tracefs".into()))
}

/// Returns why timing is unreliable now: other processes use more than a fifth of this machine.
pub fn busy_machine() -> Missing {
    let ticks = || -> Option<(u64, u64)> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let cpu = stat.lines().next()?.split_whitespace().skip(1);
        let ticks: Vec<u64> = cpu.filter_map(|field| field.parse().ok()).collect();
        // Fields for idle time and for waiting for input and output.
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some((idle, ticks.iter().take(8).sum()))
    };
    let before = ticks()?;
    std::thread::sleep(Duration::from_secs(1));
    let after = ticks()?;
    let share = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
    (share < 0.8).then(|| format!("this machine is busy ({:.0} % idle)", 100.0 * share))
}

/// Checks for a kernel in the cache. The message has `how`, the command that obtains it.
pub fn has_kernel(spec: &str, how: &str) -> Missing {
    let found = Command::new(&*UNSPIN).args(["lab", "kernel", "show", spec]).output();
    let found = found.is_ok_and(|output| output.status.success());
    (!found).then(|| format!("needs the {spec} kernel: {how}"))
}

/// A folder with an experiment. Dropping this value removes it.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// Makes a folder with the experiment `x.toml`.
    pub fn new(experiment: &str) -> Bench {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bench = Bench { folder };
        bench.write("x.toml", experiment);
        bench
    }

    /// Adds a workload `NAME.toml` that runs a shell line and prints `result N`.
    pub fn workload(self, name: &str, line: &str, more: &str) -> Bench {
        let text = format!(
            "name = \"{name}\"\ntitle = \"{name}\"\nstresses = \"nothing\"\nprograms = []\n\
             command = [\"sh\", \"-c\", '''{line}''']\ntime_limit_s = 60\n\
             metric = {{ name = \"figure\", unit = \"1/s\", better = \"higher\" }}\n\
             read = {{ regex = 'result (\\S+)' }}\n{more}\n"
        );
        self.write(&format!("{name}.toml"), &text);
        self
    }

    /// Adds programs to the guests of one of this folder's workloads.
    pub fn with_programs(self, name: &str, programs: &[&str]) -> Bench {
        let file = format!("{name}.toml");
        let text = fs::read_to_string(self.path(&file)).expect("a workload");
        self.write(&file, &text.replace("programs = []", &format!("programs = {programs:?}")));
        self
    }

    /// Writes a file into the folder.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write a test's file");
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command `unspin lab run x.toml --out out --accel vt`.
    pub fn lab_run(&self) -> Command {
        self.lab_run_with(&["--accel", "vt"])
    }

    /// Returns the same command with other arguments.
    pub fn lab_run_with(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&*UNSPIN);
        command.args(["lab", "run"]).arg(self.path("x.toml"));
        command.arg("--out").arg(self.path("out")).args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Runs the experiment to its end, in virtual time.
    pub fn run(&self) -> Output {
        self.lab_run().output().expect("start unspin")
    }

    /// Runs the experiment to its end, in real time.
    pub fn run_in_real_time(&self) -> Output {
        self.lab_run_with(&["--accel", "tcg"]).output().expect("start unspin")
    }

    /// Returns the records in `out/runs.jsonl`.
    pub fn records(&self) -> Vec<Value> {
        records(&self.path("out/runs.jsonl"))
    }

    /// Returns the records of runs with a result. It skips failed attempts, which the lab may
    /// repeat for emulated guests.
    pub fn results(&self) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["outcome"] != "failed").collect()
    }
}

/// A command in the background. If a test fails earlier, dropping this value ends the command.
pub struct Background(Option<Child>);

/// Time limit for a background command to end its guests.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

impl Background {
    /// Starts a command. Errors are those of starting a process.
    pub fn start(command: &mut Command) -> io::Result<Background> {
        command.spawn().map(|child| Background(Some(child)))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Returns the command's exit status if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Waits for the command's end and returns its output.
    pub fn output(mut self) -> io::Result<Output> {
        self.0.take().expect("it is there until now").wait_with_output()
    }

    fn is_over(&mut self) -> bool {
        !matches!(self.ended(), Ok(None))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.0.is_none() || self.is_over() {
            return;
        }
        let _ = kill(Pid::from_raw(self.id() as i32), Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < ENDS_WITHIN {
            if self.is_over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the records of a runs file, whose lines must all be whole.
pub fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "{}: the last line is cut", path.display());
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Returns the folder with the scripts that guests run, copied to a path that is the same for every
/// checkout. Guests see that path, and in virtual time another one makes other runs.
pub fn guest_scripts() -> PathBuf {
    static COPY: LazyLock<PathBuf> = LazyLock::new(|| {
        let copy = format!("/var/tmp/unspin-guest-scripts-{}", nix::unistd::geteuid());
        copy_scripts(Path::new(&copy)).expect("copy the guest's scripts");
        copy.into()
    });
    COPY.clone()
}

/// Copies the scripts that differ. Another test process may read them meanwhile.
fn copy_scripts(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lab/guest"))? {
        let from = entry?.path();
        let name = from.file_name().expect("an entry's name").to_owned();
        let text = fs::read(&from)?;
        if fs::read(to.join(&name)).is_ok_and(|there| there == text) {
            continue;
        }
        let mut new = tempfile::NamedTempFile::new_in(to)?;
        io::Write::write_all(&mut new, &text)?;
        new.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        new.persist(to.join(&name))?;
    }
    Ok(())
}

/// Returns the head of an experiment with debian-cloud guests.
pub fn experiment(workloads: &[&str], more: &str, topology: &str) -> String {
    format!(
        "name = \"x\"\ntitle = \"A test\"\nabout = \"Does it work?\"\nrepeats = 1\n\
         kernels = [\"debian-cloud\"]\nschedulers = [\"stock\"]\nworkloads = {workloads:?}\n{more}\n\
         [[topology]]\nname = \"t\"\nvcpus = 2\npcpus = 2\nmemory_mib = 512\n{topology}\n"
    )
}

/// Fails a test with the command's output unless `holds` is true.
pub fn check(holds: bool, what: &str, output: &Output) -> Result<(), Failed> {
    if holds {
        return Ok(());
    }
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{what}\n{}\nstdout:\n{stdout}\nstderr:\n{stderr}", output.status).into())
}
