//! `unspin igvm measure`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use unspin_cvm::image::Image;
use unspin_cvm::measure::{self, Loader, Measurement};
use unspin_cvm::platform::Platform;
use unspin_cvm::show::digests;
use unspin_report::igvm;

use super::{image, platforms};
use crate::out;

/// Compute the digest that the processor measures when the file is launched
///
/// For SNP the launch digest, for TDX the MRTD. For SEV and SEV-ES, the digest from which the
/// firmware makes the launch measurement.
///
/// Loaders add pages in different ways, so one file can have several correct SNP digests. Without
/// --loader, that of each loader is printed.
#[derive(clap::Args)]
pub struct Args {
    /// The file; - is standard input
    file: PathBuf,
    /// The platform [default: all that the file is for]
    #[arg(long, value_parser = platforms())]
    platform: Option<Platform>,
    /// Who loads the file on SNP
    #[arg(long, value_enum)]
    loader: Option<LoaderName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LoaderName {
    /// As the igvm crate measures: empty pages are normal pages of zeros
    IgvmCrate,
    /// As QEMU and cloud-hypervisor load on KVM: empty pages are zero pages, VMSAs come last
    Kvm,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let image = image(&args.file)?;
    let found = chosen(args, &image).with_context(|| args.file.display().to_string())?;
    anyhow::ensure!(
        !found.is_empty(),
        "{}: unspin computes no digest of its platforms; see unspin igvm show",
        args.file.display()
    );
    if args.json {
        out::json_list(1, "digests", &found)?;
    } else {
        out::text(igvm::digests(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen(args: &Args, image: &Image) -> anyhow::Result<Vec<Measurement>> {
    let loader = args.loader.map(|name| match name {
        LoaderName::IgvmCrate => Loader::IgvmCrate,
        LoaderName::Kvm => Loader::Kvm,
    });
    let mut found = digests(image);
    if let Some(platform) = args.platform {
        // This call's error says why no digest exists.
        measure::measure(image, platform, loader.unwrap_or(Loader::Kvm))?;
        found.retain(|digest| digest.platform == platform);
    }
    found.retain(|digest| digest.loader.is_none() || loader.is_none() || digest.loader == loader);
    Ok(found)
}
