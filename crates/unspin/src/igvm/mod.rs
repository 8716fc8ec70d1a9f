//! `unspin igvm`.

mod build;
mod check;
mod diff;
pub mod help;
mod measure;
mod show;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use unspin_cvm::image::Image;
use unspin_cvm::platform::Platform;

/// Maximum size of a file, in bytes. Files with more data are refused, and headers are far smaller
/// than data.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Show, build, measure, compare and check launch files of confidential VMs (IGVM)
///
/// An IGVM file holds everything that a confidential VM starts with: memory, registers, policy.
/// The processor measures it at launch, and an attestation report has the digest.
#[derive(Subcommand)]
pub enum Verb {
    Show(show::Args),
    Build(build::Args),
    Measure(measure::Args),
    Diff(diff::Args),
    Check(check::Args),
}

pub fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Show(args) => show::run(&args),
        Verb::Build(args) => build::run(&args),
        Verb::Measure(args) => measure::run(&args),
        Verb::Diff(args) => diff::run(&args),
        Verb::Check(args) => check::run(&args),
    }
}

/// Reads a file or standard input.
fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("open {}", path.display()))?)
    };
    let mut bytes = Vec::new();
    input
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("read {}", path.display()))?;
    anyhow::ensure!(
        bytes.len() as u64 <= FILE_BYTES_MAX,
        "{}: has more than 2 GiB; unspin reads IGVM files of up to 1 GiB of data",
        path.display()
    );
    Ok(bytes)
}

fn image(path: &Path) -> anyhow::Result<Image> {
    Image::read(&bytes(path)?).with_context(|| path.display().to_string())
}

/// Parses the name of a platform.
fn platforms() -> impl TypedValueParser<Value = Platform> {
    let names = Platform::ALL.map(Platform::name);
    let known = |name: String| Platform::named(&name).ok_or("no such platform");
    PossibleValuesParser::new(names).try_map(known)
}
