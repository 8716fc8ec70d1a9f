//! Builds the lab kernel.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use super::entry::{Entry, kernels, kernels_dir};
use super::recipe::Recipe;
use super::spec::Source;
use super::tree::{self, Tree};
use super::{Kernel, KernelError, bzimage, config};
use crate::cache::{Staging, cache_dir};
use crate::command::{Runner, Tool, missing, need};
use crate::key::build_key;
use crate::progress::{Progress, Steps};
use crate::{SourcesError, space};

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
/// Source tree and objects at their peak.
const SPACE: u64 = 5 << 30;
/// Steps of a build as make prints them, for the first one's estimate.
const STEPS: u64 = 2124;
/// Holds the number of steps of the last build.
const STEPS_FILE: &str = "kernel-steps";

/// Builds `source` with the lab's fragments, or returns what was built of the same
/// source package, fragments, patches and compiler before.
///
/// # Errors
/// When tools, source, space or options are missing, or the compiler fails; the
/// error has the log's path and its last lines.
pub fn build(source: &Source, progress: &mut dyn FnMut(Progress)) -> Result<Kernel, KernelError> {
    need("build a kernel", TOOLS)?;
    let absent = HEADERS.iter().copied().filter(|(file, _)| !Path::new(file).is_file());
    missing("build a kernel", absent.collect())?;
    let home = kernels_dir();
    let staging = Staging::begin(&home, &mut || {
        progress(Progress::stage("wait", "another build or fetch is under way"));
    })?;
    space::check(&home, SPACE)?;
    let runner = Runner::new(cache_dir().join("kernel-build.log"))?;
    let recipe = Recipe::of(source);
    let tree = tree::prepare(source, &recipe, &staging, &runner, progress)?;
    let compiler = runner.output("gcc --version", Command::new("gcc").arg("--version"))?;
    let compiler = compiler.lines().next().unwrap_or_default();
    let key = build_key(&tree.identity, &recipe.digest(), compiler);
    if let Some(cached) = with_key(&home, &key)? {
        return Ok(cached);
    }
    let objects = staging.work().join("objects");
    configure(source, &recipe, &tree, &objects, &runner, progress)?;
    compile(&tree, &objects, &runner, progress)?;
    let entry = collect(source, &recipe, &tree, &key, &objects, &staging)?;
    Ok(staging.publish(&entry)?.kernel)
}

/// The cached kernel whose id ends in `key`.
fn with_key(home: &Path, key: &str) -> Result<Option<Kernel>, KernelError> {
    Ok(kernels(home)?.into_iter().find(|kernel| kernel.id.ends_with(&format!("-{key}"))))
}

/// make in the source tree, with objects elsewhere and nothing of this machine's
/// names in the result.
fn make(tree: &Tree, objects: &Path) -> Command {
    let mut command = Command::new("make");
    command.arg("-C").arg(&tree.path).arg(format!("O={}", objects.display()));
    let settings = [("LC_ALL", "C"), ("KBUILD_BUILD_USER", "unspin"), ("KBUILD_BUILD_HOST", "lab")];
    command.envs(settings).env_remove("MAKEFLAGS").env_remove("KCONFIG_CONFIG");
    command
}

fn configure(
    source: &Source,
    recipe: &Recipe,
    tree: &Tree,
    objects: &Path,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), KernelError> {
    progress(Progress::stage("configure", &tree.source));
    fs::create_dir_all(objects).map_err(|e| SourcesError::io("create", objects, e))?;
    let wanted = objects.join("wanted.config");
    fs::write(&wanted, recipe.config()).map_err(|e| SourcesError::io("write", &wanted, e))?;
    let mut command = make(tree, objects);
    command.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &wanted);
    runner.run("configuring the kernel", &mut command, &mut |_| ())?;
    let got = objects.join(".config");
    let text = fs::read_to_string(&got).map_err(|e| SourcesError::io("read", &got, e))?;
    let lost = config::missing(&recipe.config(), &text);
    // The fragments are made for the pinned source. Other releases rename options.
    if source.is_pinned() && !lost.is_empty() {
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
    source: &Source,
    recipe: &Recipe,
    tree: &Tree,
    key: &str,
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
    let name = source.name();
    let kernel = Kernel {
        spec: source.spec(),
        id: format!("{name}-{number}-{key}"),
        release: release.clone(),
        image: "bzImage".into(),
        config: Some("config".into()),
        modules: None,
        source: tree.source.clone(),
    };
    Ok(Entry { kernel, recipe: Some(recipe.digest()) })
}
