//! Builds the lab's QEMU.

use std::fs::{self, Permissions};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use super::entry::{Build, qemu_dir};
use super::fetch::{self, Fetched};
use super::inputs::{FIRMWARE, Inputs, file_name};
use super::meson::{self, PYTHON};
use super::recipe::Recipe;
use super::{Qemu, QemuError, Source, tree};
use crate::cache::{Staging, cache_dir, entries};
use crate::command::{Runner, Tool, buildable, compiler, missing, need};
use crate::key::build_key;
use crate::progress::{NINJA_STATUS, Progress, ninja};
use crate::{SourcesError, space};

/// What a build needs, with Debian's packages.
const TOOLS: &[Tool] = &[
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("ninja", "ninja-build"),
    ("patch", "patch"),
    ("pkg-config", "pkg-config"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];
/// What is not looked for in `PATH`: libraries that QEMU cannot do without, by a file of
/// each, and the Python that Debian's packages are for.
const FILES: &[Tool] = &[
    (PYTHON, "python3"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/usr/include/glib-2.0/glib.h", "libglib2.0-dev"),
    ("/usr/include/zlib.h", "zlib1g-dev"),
];
/// QEMU's configure makes itself a Python environment with pip.
const VENV: Tool = ("ensurepip of /usr/bin/python3", "python3-venv");
/// Downloads, source tree and objects at their peak.
const SPACE: u64 = 1 << 30;
/// The only program that is built.
const PROGRAM: &str = "qemu-system-x86_64";
/// Where an entry has its firmware: a QEMU in `bin` looks there by itself, too.
const SHARE: &str = "share/qemu";
/// Settings of the caller that would change what is compiled.
const FLAGS: &[&str] =
    &["CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG_PATH", "PYTHONPATH"];

/// Builds `source` with the shipped patches, headers, devices and options, or returns what
/// was built of the same with the same compiler before. `jobs` is the number of compilers
/// at once, all CPUs by default. With `keep` it builds in any case, and leaves that folder:
/// the program in `bin`, `source`, and a script `build` for changes of it.
///
/// # Errors
/// When tools, source, firmware or space are missing, `keep` exists, a pinned file differs, a
/// patch does not apply, or the compiler fails; the error has the log's path and its last lines.
pub fn build(
    source: &Source,
    jobs: Option<NonZeroUsize>,
    keep: Option<&Path>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Qemu, QemuError> {
    let keep = keep.map(new_folder).transpose()?;
    let (home, recipe) = (qemu_dir(), Recipe::shipped());
    let compiler = compiler().or_else(|error| need_all().and(Err(error)))?;
    // What is cached takes neither the lock nor free space.
    let cached = || pinned_in(&home, source, &recipe, &compiler);
    if let (Some(cached), None) = (cached()?, &keep) {
        return Ok(cached);
    }
    need_all()?;
    let staging = Staging::begin(&home, &mut || {
        progress(Progress::stage("wait", "another build is under way"));
    })?;
    let runner = Runner::new(cache_dir().join("qemu-build.log"))?;
    // Another process may have built it meanwhile.
    if let (Some(cached), None) = (cached()?, &keep) {
        return Ok(cached);
    }
    buildable(keep.as_deref().unwrap_or(&home))?;
    space::check(keep.as_deref().and_then(Path::parent).unwrap_or(&home), SPACE)?;
    let fetched = fetch::fetch(source, &staging, &runner, progress)?;
    let entry = describe(&recipe, &fetched.inputs, &compiler);
    let cached = with_id(&home, &entry.qemu.id)?;
    if let (Some(cached), None) = (&cached, &keep) {
        return Ok(cached.clone());
    }
    let modules = meson::modules(&staging, &runner, progress)?;
    progress(Progress::stage("unpack", &entry.qemu.source));
    let work = keep.clone().unwrap_or_else(|| staging.work());
    let workshop = Workshop { work, modules, runner: &runner };
    in_folder(keep.as_deref(), || tree::prepare(&fetched, &recipe, &workshop.source(), &runner))?;
    workshop.configure(&recipe, progress)?;
    workshop.compile(jobs, progress)?;
    if keep.is_some() {
        collect(&workshop, &fetched, &workshop.work)?;
        workshop.leave_script()?;
    }
    if let Some(cached) = cached {
        return Ok(cached);
    }
    collect(&workshop, &fetched, &staging.entry())?;
    Ok(staging.publish(&entry)?.qemu)
}

/// A folder that is yet to be made, by its absolute path: commands run in another one.
fn new_folder(folder: &Path) -> Result<PathBuf, SourcesError> {
    let path = match folder.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::path::absolute(folder),
    };
    path.map_err(|e| SourcesError::io("create", folder, e))
}

/// Makes the folder, if one is given, and fills it. A failure leaves none that is empty: the next
/// call takes a new one only.
fn in_folder(
    folder: Option<&Path>,
    fill: impl FnOnce() -> Result<(), SourcesError>,
) -> Result<(), SourcesError> {
    let Some(folder) = folder else { return fill() };
    fs::create_dir(folder).map_err(|e| SourcesError::io("create", folder, e))?;
    fill().inspect_err(|_| {
        // This fails where something is in it.
        let _ = fs::remove_dir(folder);
    })
}

fn need_all() -> Result<(), SourcesError> {
    const PURPOSE: &str = "build QEMU";
    need(PURPOSE, TOOLS)?;
    let mut absent: Vec<Tool> =
        FILES.iter().copied().filter(|(file, _)| !Path::new(file).is_file()).collect();
    let mut python = Command::new(PYTHON);
    let found = python.args(["-c", "import ensurepip, venv"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        absent.push(VENV);
    }
    missing(PURPOSE, absent)
}

/// The cached QEMU of the pinned source, whose digests are known before it is fetched.
fn pinned_in(
    home: &Path,
    source: &Source,
    recipe: &Recipe,
    compiler: &str,
) -> Result<Option<Qemu>, QemuError> {
    match source {
        Source::Pinned => with_id(home, &describe(recipe, &Inputs::pinned(), compiler).qemu.id),
        Source::Version(_) => Ok(None),
    }
}

fn with_id(home: &Path, id: &str) -> Result<Option<Qemu>, QemuError> {
    let builds: Vec<Build> = entries(home)?;
    Ok(builds.into_iter().map(|build| build.qemu).find(|qemu| qemu.id == id))
}

/// The entry, with paths relative to its folder.
fn describe(recipe: &Recipe, inputs: &Inputs, compiler: &str) -> Build {
    let behaviour = recipe.behaviour(inputs);
    let version = &inputs.version;
    let upstream = version.split_once(':').map_or(version.as_str(), |(_, rest)| rest);
    let number = upstream.split(['+', '-', '~']).next().unwrap_or_default();
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let qemu = Qemu {
        id: format!("qemu-{number}-{}", build_key(version, &behaviour, compiler)),
        behaviour,
        version: version.clone(),
        program: Path::new("bin").join(PROGRAM),
        firmware: SHARE.into(),
        source: format!("qemu {version}"),
    };
    Build {
        qemu,
        patches: recipe.patches.iter().map(|(name, _)| name.to_string()).collect(),
        headers: recipe.headers.iter().map(|(path, _)| path.clone()).collect(),
        options: names(&recipe.options),
        compiler: compiler.into(),
        recipe: recipe.digest(),
    }
}

/// Where a build takes place.
struct Workshop<'a> {
    /// Holds the folders `source` and `objects`.
    work: PathBuf,
    /// Meson's modules, unless they are the system's.
    modules: Option<PathBuf>,
    runner: &'a Runner,
}

impl Workshop<'_> {
    fn source(&self) -> PathBuf {
        self.work.join("source")
    }

    fn objects(&self) -> PathBuf {
        self.work.join("objects")
    }

    /// A command in the folder of the objects, with nothing of the caller's settings.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.objects()).env("LC_ALL", "C").env("NINJA_STATUS", NINJA_STATUS);
        FLAGS.iter().for_each(|flag| {
            command.env_remove(flag);
        });
        command.envs(self.modules.iter().map(|modules| ("PYTHONPATH", modules)));
        command
    }

    /// Writes a script that builds again after a change of the source. QEMU's build runs Meson.
    fn leave_script(&self) -> Result<(), SourcesError> {
        let path = self.work.join("build");
        let mut text =
            "#!/bin/sh\n# Builds QEMU again after a change in `source`.\nset -e\n".to_owned();
        if let Some(modules) = &self.modules {
            text += &format!("export PYTHONPATH='{}'\n", modules.display());
        }
        text += &format!("cd '{}'\nninja -C objects {PROGRAM}\n", self.work.display());
        text += &format!("cp objects/{PROGRAM} bin\n");
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
            .map_err(|e| SourcesError::io("write", &path, e))
    }

    fn configure(
        &self,
        recipe: &Recipe,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SourcesError> {
        progress(Progress::stage("configure", ""));
        let objects = self.objects();
        fs::create_dir_all(&objects).map_err(|e| SourcesError::io("create", &objects, e))?;
        // Keeps the names of this machine's folders out of the program.
        let map = format!("--extra-cflags=-ffile-prefix-map={}/=", self.work.display());
        let mut command = self.command("../source/configure");
        command.args(&recipe.options).args(["--cc=gcc", "--host-cc=gcc"]);
        command.args([format!("--python={PYTHON}"), map]);
        self.runner.run("configuring QEMU", &mut command, &mut |_| ())
    }

    fn compile(
        &self,
        jobs: Option<NonZeroUsize>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SourcesError> {
        let jobs = jobs.or(available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut command = self.command("ninja");
        command.arg(format!("-j{jobs}")).arg(PROGRAM);
        self.runner.run("building QEMU", &mut command, &mut |line| {
            if let Some(step) = ninja(line) {
                progress(step);
            }
        })
    }
}

/// Puts program and firmware into `entry` and tries them.
fn collect(workshop: &Workshop<'_>, fetched: &Fetched, entry: &Path) -> Result<(), SourcesError> {
    let (bin, share) = (entry.join("bin"), entry.join(SHARE));
    for folder in [&bin, &share] {
        fs::create_dir_all(folder).map_err(|e| SourcesError::io("create", folder, e))?;
    }
    let program = (workshop.objects().join(PROGRAM), bin.join(PROGRAM));
    let firmware = FIRMWARE.iter().map(|(_, path)| {
        let name = file_name(path);
        (fetched.folder.join(name), share.join(name))
    });
    for (from, to) in firmware.chain([program]) {
        fs::copy(&from, &to).map_err(|e| SourcesError::io("copy", &from, e))?;
    }
    let mut version = Command::new(bin.join(PROGRAM));
    workshop.runner.output("starting the built QEMU", version.arg("--version"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_changes_the_id_and_not_the_behaviour() {
        let (recipe, inputs) = (Recipe::shipped(), Inputs::pinned());
        let (a, b) = (describe(&recipe, &inputs, "gcc 12"), describe(&recipe, &inputs, "gcc 14"));
        assert!(a.qemu.id.starts_with("qemu-10.0.13-"), "{}", a.qemu.id);
        assert_ne!(a.qemu.id, b.qemu.id);
        assert_eq!(a.qemu.behaviour, b.qemu.behaviour);
        assert_eq!(a.qemu.behaviour.len(), 32);
    }

    #[test]
    fn a_failure_leaves_no_empty_folder_to_keep() {
        let home = tempfile::tempdir().unwrap();
        let keep = home.path().join("keep");
        let failed = || Err(SourcesError::io("unpack", "x", io::ErrorKind::Other.into()));
        assert_eq!(new_folder(&keep).unwrap(), keep);
        in_folder(Some(&keep), failed).unwrap_err();
        assert!(!keep.exists());
        let begun = || {
            fs::write(keep.join("file"), "").unwrap();
            failed()
        };
        in_folder(Some(&keep), begun).unwrap_err();
        assert!(keep.join("file").exists() && new_folder(&keep).is_err());
    }

    #[test]
    fn another_version_is_another_id() {
        let recipe = Recipe::shipped();
        let other = Inputs { version: "1:10.0.13+ds-0+deb13u2".into(), ..Inputs::pinned() };
        let id = |inputs| describe(&recipe, inputs, "gcc 12").qemu.id;
        assert_ne!(id(&other), id(&Inputs::pinned()));
    }
}
