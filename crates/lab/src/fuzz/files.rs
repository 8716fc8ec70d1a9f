//! Writes plans as an experiment that `unspin lab run` can carry out, too.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::Fuzz;
use super::plan::{LENGTH_MS, Plan, TOPOLOGIES};
use crate::image::path_in_guest;
use crate::run::LabError;

/// Shell functions that every script uses.
const GUEST: &str = include_str!("guest.sh");
/// Virtual seconds that a guest may take. Every wait in its script ends long before.
const LIMIT_S: u32 = 120;

/// Writes the experiment's file and one workload file per plan, under the given names. Returns the
/// path of the experiment's file.
pub fn write(
    folder: &Path,
    experiment: &str,
    fuzz: &Fuzz,
    plans: &[(String, Plan)],
    repeats: u32,
) -> Result<PathBuf, LabError> {
    for (name, plan) in plans {
        put(&folder.join(format!("{name}.toml")), &workload(name, &fuzz.scheduler, plan))?;
    }
    let text = experiment_text(experiment, fuzz, plans, repeats);
    let file = folder.join("experiment.toml");
    put(&file, &text)?;
    Ok(file)
}

fn put(path: &Path, text: &str) -> Result<(), LabError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let put = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    put.map_err(|source| LabError::Write { path: path.to_owned(), source })
}

/// Returns the script that the guest's shell runs.
fn script(scheduler: &[String], plan: &Plan) -> String {
    let under = in_guest(scheduler).replace('\'', r"'\''");
    let mut text = format!("{GUEST}\nunder='{under}'\nbegin {LENGTH_MS}\n");
    for step in &plan.steps {
        let _ = writeln!(text, "at {}\n{}", step.at_ms, step.command);
    }
    let _ = writeln!(text, "finish {LENGTH_MS}");
    text
}

/// Returns a scheduler's command for use in the guest, where a program that is given by its path
/// has another path.
fn in_guest(scheduler: &[String]) -> String {
    let Some((program, args)) = scheduler.split_first() else { return String::new() };
    let program = match program.contains('/') {
        true => path_in_guest(Path::new(program)).display().to_string(),
        false => program.clone(),
    };
    [std::slice::from_ref(&program), args].concat().join(" ")
}

fn workload(name: &str, scheduler: &[String], plan: &Plan) -> String {
    let program = scheduler.first().map_or("unspin", String::as_str);
    let programs = toml::Value::from(vec![program, "stress-ng", "taskset", "chrt", "nice"]);
    let command = toml::Value::from(vec!["sh", "-c", &script(scheduler, plan)]);
    format!(
        "name = \"{name}\"\ntitle = \"random steps, {name}\"\n\
         stresses = \"a guest scheduler, by what guests do\"\npackages = [\"stress-ng\"]\n\
         programs = {programs}\ncommand = {command}\ntime_limit_s = {LIMIT_S}\n\
         metric = {{ name = \"longest wait\", unit = \"s\", better = \"lower\" }}\n\
         read = {{ regex = 'result (\\S+)' }}\n"
    )
}

fn experiment_text(
    name: &str,
    Fuzz { scheduler, kernel, .. }: &Fuzz,
    plans: &[(String, Plan)],
    repeats: u32,
) -> String {
    let files = |plans: &mut dyn Iterator<Item = &(String, Plan)>, ending: &str| {
        let names: Vec<String> = plans.map(|(name, _)| format!("{name}{ending}")).collect();
        toml::Value::from(names)
    };
    let title = match scheduler.as_slice() {
        [] => "the kernel's scheduler".to_owned(),
        _ => format!("`{}`", scheduler.join(" ")),
    };
    let title = toml::Value::from(format!("Random steps under {title}"));
    let mut text = format!(
        "name = \"{name}\"\ntitle = {title}\n\
         about = \"Does it last, does each task run, and does the kernel get its own back?\"\n\
         repeats = {repeats}\naccel = \"vt\"\nkernels = [{}]\nschedulers = [\"stock\"]\n\
         workloads = {}\nvt = {{ regime = \"abandoned\", instructions = 1 }}\n",
        toml::Value::from(kernel.as_str()),
        files(&mut plans.iter(), ".toml"),
    );
    for topology in TOPOLOGIES {
        let mut here = plans.iter().filter(|(_, plan)| plan.topology == topology).peekable();
        if here.peek().is_none() {
            continue;
        }
        let _ = write!(
            text,
            "\n[[topology]]\nname = \"{}\"\nvcpus = {}\npcpus = {}\nmemory_mib = 1280\n\
             workloads = {}\n",
            topology.name,
            topology.vcpus,
            topology.pcpus,
            files(&mut here, ""),
        );
        if topology.neighbour > 0 {
            let neighbour = topology.neighbour;
            let _ =
                write!(text, "\n[[topology.neighbour]]\nvcpus = {neighbour}\nmodel = \"greedy\"\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, plan};

    #[test]
    fn a_schedulers_command_is_the_one_of_its_guest() {
        let under = |command: [&str; 2]| {
            let script = script(&command.map(str::to_owned), &Plan::of(0));
            script.lines().find(|line| line.starts_with("under=")).unwrap().to_owned()
        };
        assert_eq!(under(["unspin", "run"]), "under='unspin run'");
        assert_eq!(under(["./build/scx_x", "-v"]), "under='/usr/local/bin/scx_x -v'");
        assert_eq!(under(["/usr/sbin/scx_x", "it's"]), r"under='/usr/sbin/scx_x it'\''s'");
    }

    #[test]
    fn each_plan_is_one_run_in_its_machine() {
        let folder = tempfile::tempdir().unwrap();
        let plans: Vec<(String, Plan)> =
            (0..9).map(|seed| (format!("seed-{seed}"), Plan::of(seed))).collect();
        let fuzz = Fuzz {
            seeds: 0..=8,
            scheduler: vec!["unspin".into(), "run".into()],
            kernel: "debian-cloud".into(),
            controls: 10,
            shrink: 0,
        };
        // The control runs of a failing seed use an experiment that is named like the seed.
        let path = write(folder.path(), "seed-3", &fuzz, &plans, 2).unwrap();
        let experiment = Experiment::load(path.to_str().unwrap()).unwrap();
        let boots = plan(&experiment);
        assert_eq!(boots.len(), 2 * 9);
        for boot in boots {
            let cell = &boot.runs[0].cell;
            let (_, plan) = plans.iter().find(|(name, _)| *name == cell.workload).unwrap();
            assert_eq!(plan.topology.name, cell.topology);
        }
        let script = experiment.workloads[3].command.last().unwrap();
        assert!(script.contains("under='unspin run'\nbegin 2000\nat 0\nstress plain "), "{script}");
        assert!(script.ends_with("finish 2000\n"), "{script}");
    }
}
