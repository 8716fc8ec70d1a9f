//! Builds the lab kernel.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use super::entry::Entry;
use super::obtain::{Found, Origin, Wanted};
use super::spec::Source;
use super::tree::{self, Tree};
use super::{Kernel, KernelError, bzimage, config};
use crate::SourcesError;
use crate::cache::{Staging, cache_dir};
use crate::command::{Runner, Tool, buildable, missing, need};
use crate::progress::{Progress, Steps};

/// What a build needs, with Debian's packages.
const TOOLS: &[Tool] = &[
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("pahole", "dwarves"),
    ("patch", "patch"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];
/// objtool is built with libelf.
const HEADERS: &[Tool] = &[("/usr/include/gelf.h", "libelf-dev")];
/// Instead of this machine's names and the hour, so that two builds give the same bytes. Where a
/// time is given, the kernel's build also keeps pahole from ordering BTF by its threads. Not part
/// of the recipe's digest: kernels that were cached before these constants must stay valid.
const CONSTANTS: &[(&str, &str)] = &[
    ("KBUILD_BUILD_USER", "unspin"),
    ("KBUILD_BUILD_HOST", "lab"),
    ("KBUILD_BUILD_TIMESTAMP", "Sat Jan  1 00:00:00 UTC 2000"),
    ("KBUILD_BUILD_VERSION", "1"),
];
/// Settings of the caller that would change what is compiled.
const SETTINGS: &[&str] = &[
    "MAKEFLAGS",
    "KCONFIG_CONFIG",
    "LLVM",
    "LLVM_IAS",
    "ARCH",
    "CROSS_COMPILE",
    "KCFLAGS",
    "KAFLAGS",
    "KCPPFLAGS",
    "LOCALVERSION",
];
/// Steps of a build as make prints them, for the first one's estimate.
const STEPS: u64 = 2124;
/// Holds the number of steps of the last build.
const STEPS_FILE: &str = "kernel-steps";

/// Builds `source` with the lab's fragments, or returns what was built of the same
/// source package, fragments, patches and compiler before. Where the package cannot be looked for,
/// what was built of another version of it is returned, with a warning.
///
/// # Errors
/// When tools, source, space or options are missing, or the compiler fails; the
/// error has the log's path and its last lines.
pub fn build(source: &Source, progress: &mut dyn FnMut(Progress)) -> Result<Kernel, KernelError> {
    let wanted = Wanted::of(source).or_else(|error| need_all().and(Err(error)))?;
    let origin = wanted.origin()?;
    if let Some(kernel) = wanted.cached(&origin)? {
        return Ok(kernel);
    }
    need_all()?;
    buildable(&wanted.home)?;
    if let Origin::Folder(tree) = &origin {
        buildable(&tree.path)?;
    }
    let (staging, runner, found) = match find(&wanted, origin, progress) {
        Ok(found) => found,
        Err(error) => return wanted.instead(error),
    };
    let (tree, tarball) = match found {
        Found::Kernel(kernel) => return Ok(kernel),
        Found::Tree(tree, tarball) => (tree, tarball),
    };
    if let Some(tarball) = tarball {
        progress(Progress::stage("unpack", &tree.source));
        tree::keep(&tree, &tarball, &wanted.recipe, &staging, &runner)?;
    }
    let objects = staging.work().join("objects");
    configure(&wanted, &tree, &objects, &runner, progress)?;
    compile(&tree, &objects, &runner, progress)?;
    let entry = collect(&wanted, &tree, &objects, &staging)?;
    Ok(staging.publish(&entry)?.kernel)
}

/// The kernel that was built of `source` as it is now, if it is in the cache.
pub(super) fn cached(source: &Source) -> Result<Option<Kernel>, KernelError> {
    // The compiler is part of the key: without one, nothing is found.
    let Ok(wanted) = Wanted::of(source) else { return Ok(None) };
    wanted.cached(&wanted.origin()?)
}

fn need_all() -> Result<(), SourcesError> {
    need("build a kernel", TOOLS)?;
    let absent = HEADERS.iter().copied().filter(|(file, _)| !Path::new(file).is_file());
    missing("build a kernel", absent.collect())
}

/// Takes the cache's lock, begins the log and gets the source.
fn find(
    wanted: &Wanted,
    origin: Origin,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Staging, Runner, Found), KernelError> {
    let staging = Staging::begin(&wanted.home, &mut || {
        progress(Progress::stage("wait", "another build or fetch is under way"));
    })?;
    let runner = Runner::new(cache_dir().join("kernel-build.log"))?;
    progress(Progress::stage("source", wanted.source.spec()));
    let found = wanted.find(origin, &staging, &runner, progress)?;
    Ok((staging, runner, found))
}

/// make in the source tree, with objects elsewhere and nothing of this machine's
/// names in the result.
fn make(tree: &Tree, objects: &Path) -> Command {
    let mut command = Command::new("make");
    command.arg("-C").arg(&tree.path).arg(format!("O={}", objects.display()));
    SETTINGS.iter().for_each(|setting| {
        command.env_remove(setting);
    });
    // The image has no debug information, but its build ID is a digest of that, too. The folders
    // would be part of it, and that of the objects has another name each time.
    let map = |folder: &Path, name: &str| format!("-fdebug-prefix-map={}={name}", folder.display());
    let flags = [map(objects, "/objects"), map(&tree.path, "/source")].join(" ");
    command.env("LC_ALL", "C").env("KCFLAGS", &flags).env("KAFLAGS", &flags);
    command.envs(CONSTANTS.iter().copied());
    command
}

fn configure(
    wanted: &Wanted,
    tree: &Tree,
    objects: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), KernelError> {
    progress(Progress::stage("configure", &tree.source));
    fs::create_dir_all(objects).map_err(|e| SourcesError::io("create", objects, e))?;
    let (fragments, file) = (wanted.recipe.config(), objects.join("wanted.config"));
    fs::write(&file, &fragments).map_err(|e| SourcesError::io("write", &file, e))?;
    let mut command = make(tree, objects);
    command.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &file);
    runner.run("configuring the kernel", &mut command, &mut |_| ())?;
    let got = objects.join(".config");
    let text = fs::read_to_string(&got).map_err(|e| SourcesError::io("read", &got, e))?;
    let lost = config::missing(&fragments, &text);
    // The fragments are made for the pinned source. Other releases rename options.
    if wanted.source.is_pinned() && !lost.is_empty() {
        return Err(KernelError::Options(lost));
    }
    for option in lost {
        progress(Progress::stage("configure", format!("{} has no {option}", tree.source)));
    }
    Ok(())
}

fn compile(
    tree: &Tree,
    objects: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), KernelError> {
    let file = cache_dir().join(STEPS_FILE);
    let last = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    let mut steps = Steps::new(last.unwrap_or(STEPS));
    let jobs = available_parallelism().map_or(1, |n| n.get());
    let mut command = make(tree, objects);
    command.arg(format!("-j{jobs}")).arg("bzImage");
    runner.run("building the kernel", &mut command, &mut |line| {
        if let Some(step) = steps.line(line) {
            progress(step);
        }
    })?;
    // Only an estimate is lost if this fails.
    let _ = fs::write(&file, format!("{}\n", steps.done()));
    Ok(())
}

/// Puts image and configuration into the staging entry.
fn collect(
    wanted: &Wanted,
    tree: &Tree,
    objects: &Path,
    staging: &Staging,
) -> Result<Entry, KernelError> {
    let home = staging.entry();
    fs::create_dir_all(&home).map_err(|e| SourcesError::io("create", &home, e))?;
    for (from, to) in [("arch/x86/boot/bzImage", "bzImage"), (".config", "config")] {
        let from = objects.join(from);
        fs::copy(&from, home.join(to)).map_err(|e| SourcesError::io("copy", &from, e))?;
    }
    let release = bzimage::release(&home.join("bzImage"))?;
    let number = release.split(['+', '-']).next().unwrap_or_default();
    let (name, key) = (wanted.source.name(), wanted.key(&tree.identity));
    let kernel = Kernel {
        spec: wanted.source.spec(),
        id: format!("{name}-{number}-{key}"),
        release: release.clone(),
        image: "bzImage".into(),
        config: Some("config".into()),
        modules: None,
        source: tree.source.clone(),
    };
    Ok(Entry { kernel, recipe: Some(wanted.recipe.digest()) })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn neither_the_callers_settings_nor_the_time_reach_the_build() {
        let tree = Tree { path: "/s".into(), source: String::new(), identity: String::new() };
        let command = make(&tree, Path::new("/o"));
        let environment: std::collections::BTreeMap<_, _> = command.get_envs().collect();
        let value = |name: &str| environment.get(OsStr::new(name)).copied().flatten();
        assert!(SETTINGS.iter().all(|name| environment.contains_key(OsStr::new(name))));
        assert_eq!(value("LLVM"), None);
        for &(name, expected) in CONSTANTS {
            assert_eq!(value(name), Some(OsStr::new(expected)), "{name}");
        }
        let flags = "-fdebug-prefix-map=/o=/objects -fdebug-prefix-map=/s=/source";
        assert_eq!(value("KCFLAGS"), Some(OsStr::new(flags)));
        assert_eq!(value("KAFLAGS"), Some(OsStr::new(flags)));
    }
}
