//! `unspin lab qemu`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use unspin_sources::qemu::{self, Build, Source};

use super::watched::watched;
use crate::out;

/// Build and show the QEMU that runs the lab's guests in virtual time
#[derive(Subcommand)]
pub enum Verb {
    /// Build the lab's QEMU: Debian's source with the lab's patches and pinned firmware
    Build {
        /// Version of Debian's source package qemu [default: the pinned one]
        #[arg(long, value_name = "VERSION")]
        source_version: Option<String>,
        /// Compilers at once [default: one per CPU]
        #[arg(short, long)]
        jobs: Option<NonZeroUsize>,
        /// Build in FOLDER, a new one, and keep it: its script `build` builds your changes
        #[arg(long, value_name = "FOLDER")]
        keep: Option<PathBuf>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// The QEMUs in the cache: versions, patches, options and paths
    Show {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A QEMU in the cache.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    build: Build,
    /// Whether this program boots guests with this QEMU. Its source and patches are then the pinned
    /// ones.
    current: bool,
}

pub fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Build { source_version, jobs, keep, json } => {
            let source = source_version.map_or(Source::Pinned, Source::Version);
            let made =
                watched("qemu", |progress| qemu::build(&source, jobs, keep.as_deref(), progress))?;
            let builds = shown()?.into_iter().filter(|one| one.build.qemu.id == made.id);
            print_all(&builds.collect::<Vec<_>>(), json)?;
        }
        Verb::Show { json } => print_all(&shown()?, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn shown() -> anyhow::Result<Vec<Shown>> {
    let current = qemu::resolve(&Source::Pinned)?.map(|qemu| qemu.id);
    let show = |build: Build| Shown { current: Some(&build.qemu.id) == current.as_ref(), build };
    Ok(qemu::builds()?.into_iter().map(show).collect())
}

fn print_all(all: &[Shown], json: bool) -> anyhow::Result<()> {
    if json {
        return out::json_list(1, "builds", &all);
    }
    if all.is_empty() {
        out::line("no QEMU in the cache: `unspin lab qemu build` makes one")?;
    }
    all.iter().try_for_each(print)
}

fn print(shown: &Shown) -> anyhow::Result<()> {
    let Build { qemu, patches, options, compiler, .. } = &shown.build;
    let current = if shown.current { " (current)" } else { "" };
    out::line(format_args!("{}{current}", qemu.id))?;
    let rows = [
        ("source", qemu.source.clone()),
        ("behaviour", qemu.behaviour.clone()),
        ("compiler", compiler.clone()),
        ("program", qemu.program.display().to_string()),
        ("firmware", qemu.firmware.display().to_string()),
        ("patches", listed(patches)),
        ("options", listed(options)),
    ];
    for (name, value) in rows {
        out::line(format_args!("    {name:9} {value}"))?;
    }
    Ok(())
}

/// Lists one item per line, with the lines below the first one indented.
fn listed(items: &[String]) -> String {
    if items.is_empty() { "none".into() } else { items.join(&format!("\n{:14}", "")) }
}
