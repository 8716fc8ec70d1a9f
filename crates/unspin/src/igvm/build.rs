//! `unspin igvm build`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use unspin_cvm::acpi::Acpi;
use unspin_cvm::build::{Options, build};
use unspin_cvm::image::Image;
use unspin_cvm::measure::Measurement;
use unspin_cvm::platform::Platform;
use unspin_cvm::show::digests;
use unspin_model::class::Class;
use unspin_report::igvm;

use super::{bytes, platforms};
use crate::failure::of_class;
use crate::{new_file, out};

/// Number of the C-bit of EPYC processors since Milan.
const C_BIT: u8 = 51;

/// Build an IGVM file that starts Linux at its 64-bit entry, without firmware
///
/// The same inputs make the same bytes. Every page is measured, and every loader measures the same.
#[derive(clap::Args)]
pub struct Args {
    /// The kernel, a bzImage
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// The initramfs
    #[arg(long, value_name = "FILE")]
    initramfs: Option<PathBuf>,
    /// The kernel's command line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    append: String,
    /// The platform: sev-es, snp, sev or native
    #[arg(long, value_parser = platforms(), default_value = "sev-es", hide_possible_values = true)]
    platform: Platform,
    /// Number of the page tables' C-bit [default: 51; native has none]
    #[arg(long, value_name = "BIT")]
    cbit: Option<u8>,
    /// Memory of the guest, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Number of vCPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    vcpus: u32,
    /// The ACPI tables
    #[arg(long, value_enum, default_value_t = AcpiName::Pc)]
    acpi: AcpiName,
    /// Output file; - is standard output
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Print what was built as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AcpiName {
    /// None
    None,
    /// A PC with its timer, and power-management registers at port 0x600, as QEMU's q35 has
    Pc,
    /// Hardware-reduced: Linux uses no PC timer, so the hypervisor must state the TSC's frequency
    Reduced,
}

/// The result of a build, as `--json` prints it.
#[derive(serde::Serialize)]
struct Built<'a> {
    out: &'a Path,
    bytes: usize,
    digests: Vec<Measurement>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.out == Path::new("-");
    if to_stdout && args.json {
        let text = "--json and --out - both write to standard output: leave one out";
        return Err(of_class(Class::Usage, text));
    }
    let kernel = bytes(&args.kernel)?;
    let initramfs = args.initramfs.as_deref().map(bytes).transpose()?;
    let c_bit = args.cbit.or(args.platform.has_c_bit().then_some(C_BIT));
    let file = build(&Options {
        platform: args.platform,
        kernel: &kernel,
        initramfs: initramfs.as_deref(),
        append: &args.append,
        memory_bytes: u64::from(args.memory) << 20,
        vcpus: args.vcpus,
        c_bit,
        acpi: match args.acpi {
            AcpiName::None => Acpi::None,
            AcpiName::Reduced => Acpi::Reduced,
            AcpiName::Pc => Acpi::Pc,
        },
    })
    .with_context(|| format!("build {}", args.out.display()))?;
    if to_stdout {
        out::bytes(&file)?;
        return Ok(ExitCode::SUCCESS);
    }
    new_file::write(&args.out, &file)?;
    let digests = digests(&Image::read(&file).context("read the file that was built")?);
    if args.json {
        out::json(1, None, &Built { out: &args.out, bytes: file.len(), digests })?;
    } else {
        out::line(format_args!("{}: {} bytes", args.out.display(), file.len()))?;
        if !digests.is_empty() {
            out::text(igvm::digests(&digests))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
