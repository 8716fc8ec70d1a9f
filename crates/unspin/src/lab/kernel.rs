//! `unspin lab kernel`.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use unspin_sources::kernel::{self, Cloud, Kernel, Source};

use super::watched::watched;
use crate::out;

/// List, fetch and build kernels for the lab's guests
#[derive(Subcommand)]
pub enum Verb {
    /// The kernels in the cache
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// Get one of Debian's cloud kernels
    Fetch {
        /// Which one: the newest that has sched_ext, or that of a Debian release
        #[arg(value_parser = Cloud::ALL.map(Cloud::spec), default_value = Cloud::Newest.spec())]
        what: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Build the lab kernel, or another source with the lab's options
    Build {
        /// lab-cvm, lab-es, or an unpatched linux-source package or folder [default: the lab's own]
        #[arg(long)]
        source: Option<String>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// One kernel of the cache
    Show {
        /// lab, lab-cvm, lab-es, debian-cloud, debian-cloud:trixie, an id of `list`, or a bzImage
        kernel: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::List { json } => print_all(&kernel::list()?, json)?,
        Verb::Fetch { what, json } => {
            let cloud = Cloud::parse(&what).unwrap_or(Cloud::Newest);
            let kernel = watched(&format!("kernel {what}"), |progress| {
                kernel::fetch_debian_cloud(cloud, progress)
            })?;
            print_all(&[kernel], json)?;
        }
        Verb::Build { source, json } => {
            let source = source.map_or(Ok(Source::Lab), |source| Source::parse(&source))?;
            let kernel = watched("kernel lab", |progress| kernel::build(&source, progress))?;
            print_all(&[kernel], json)?;
        }
        Verb::Show { kernel, json } => print_all(&[find(&kernel)?], json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn find(name: &str) -> anyhow::Result<Kernel> {
    if let Some(kernel) = kernel::list()?.into_iter().find(|kernel| kernel.id == name) {
        return Ok(kernel);
    }
    match kernel::resolve(name)? {
        Some(kernel) => Ok(kernel),
        None => {
            bail!("no kernel `{name}` in the cache: `unspin lab kernel list` names those that are")
        }
    }
}

fn print_all(kernels: &[Kernel], json: bool) -> anyhow::Result<()> {
    if json {
        return out::json_list(1, "kernels", &kernels);
    }
    if kernels.is_empty() {
        out::line("no kernels yet: `unspin lab kernel build` or `unspin lab kernel fetch`")?;
    }
    for kernel in kernels {
        out::line(&kernel.id)?;
        out::line(format_args!("    release {}\n    source  {}", kernel.release, kernel.source))?;
        out::line(format_args!("    image   {}", kernel.image.display()))?;
    }
    Ok(())
}
