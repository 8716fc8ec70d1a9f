//! Fetches Debian's newest cloud kernel that has sched_ext.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cloud::{CloudKernel, cloud_kernels, parts};
use super::entry::{Entry, by_id, kernels_dir};
use super::{Kernel, KernelError, config};
use crate::apt::PrivateApt;
use crate::cache::{Staging, cache_dir};
use crate::command::{Runner, Tool, need, program};
use crate::{Progress, SourcesError, deb, space};

/// Where Debian puts kernels that are newer than its release's.
const SUITES: &[&str] = &["trixie-backports"];
/// What a VM needs of the kernel to be worth fetching.
const WANTED: &str = "SCHED_CLASS_EXT";
/// How many kernels are tried, the newest first.
const TRIES: usize = 3;
/// Downloads and unpacked files at their peak.
const SPACE: u64 = 1 << 30;
const TOOLS: &[Tool] = &[("depmod", "kmod")];

/// Fetches the newest Debian cloud kernel whose configuration has sched_ext, or
/// returns the one in the cache if that is the newest.
///
/// # Errors
/// When tools, keyring, network or space are missing, or no kernel fits.
pub fn fetch_debian_cloud(progress: &mut dyn FnMut(Progress)) -> Result<Kernel, KernelError> {
    need("fetch a kernel", TOOLS)?;
    let home = kernels_dir();
    let staging = Staging::begin(&home, &mut || {
        progress(Progress::stage("wait", "another build or fetch is under way"));
    })?;
    space::check(&home, SPACE)?;
    let runner = Runner::new(cache_dir().join("kernel-fetch.log"))?;
    let apt = PrivateApt::new(&cache_dir().join("apt"), SUITES)?;
    progress(Progress::stage("index", format!("what {} has", SUITES.join(", "))));
    let kernels = cloud_kernels(&apt.packages(&runner)?);
    if kernels.is_empty() {
        return Err(apt.lacks("linux-image-VERSION-cloud-amd64 from 6.12 on", &runner).into());
    }
    for kernel in kernels.iter().take(TRIES) {
        let entry = entry(kernel);
        let cached = by_id(&home, &entry.kernel.id)?;
        if let Some(cached) = cached.filter(|cached| cached.source == entry.kernel.source) {
            return Ok(cached);
        }
        if unpack(kernel, &apt, &staging, &runner, progress)? {
            return Ok(staging.publish(&entry)?.kernel);
        }
    }
    let tried: Vec<_> = kernels.iter().take(TRIES).map(|kernel| kernel.release.as_str()).collect();
    Err(KernelError::NoSchedExt(tried.join(", ")))
}

/// A later revision of the same release takes the place of the earlier one.
fn entry(kernel: &CloudKernel) -> Entry {
    let image = &kernel.packages[0];
    let number = kernel.release.split(['+', '-']).next().unwrap_or_default();
    let kernel = Kernel {
        spec: "debian-cloud".into(),
        id: format!("debian-cloud-{number}"),
        release: kernel.release.clone(),
        image: "vmlinuz".into(),
        config: Some("config".into()),
        modules: Some(Path::new("lib/modules").join(&kernel.release)),
        source: format!("{} {}", image.name, image.version),
    };
    Entry { kernel, recipe: None }
}

/// Fills the staging entry; says whether the kernel has what is wanted.
fn unpack(
    kernel: &CloudKernel,
    apt: &PrivateApt,
    staging: &Staging,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool, KernelError> {
    let (work, entry) = (staging.work(), staging.entry());
    let downloads = work.join("debs");
    for folder in [&work, &entry] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir_all(&downloads).map_err(|e| SourcesError::io("create", &downloads, e))?;
    apt.download(&kernel.packages, &downloads, runner, progress)?;
    progress(Progress::stage("unpack", &kernel.release));
    let root = work.join("root");
    deb::unpack_all(&downloads, &root, runner)?;
    let parts =
        parts(&root, &kernel.release).map_err(|what| apt.lacks(&format!("with {what}"), runner))?;
    if !config::config_has(&parts.config, WANTED)? {
        return Ok(false);
    }
    let modules = entry.join("lib/modules");
    fs::create_dir_all(&modules).map_err(|e| SourcesError::io("create", &modules, e))?;
    // Image and config may lie in the modules' folder, so they move first.
    let moves = [
        (parts.image, entry.join("vmlinuz")),
        (parts.config, entry.join("config")),
        (parts.modules, modules.join(&kernel.release)),
    ];
    for (from, to) in moves {
        fs::rename(&from, &to).map_err(|e| SourcesError::io("move", &from, e))?;
    }
    // Debian leaves modules.dep to the installation.
    let mut depmod = Command::new(program("depmod"));
    depmod.arg("-b").arg(&entry).arg(&kernel.release);
    runner.run("depmod", &mut depmod, &mut |_| ())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apt::Package;

    #[test]
    fn the_entry_names_package_and_version() {
        let image = Package {
            name: "linux-image-7.3.4+deb13-cloud-amd64".into(),
            version: "7.3.4-1~bpo13+1".into(),
            ..Package::default()
        };
        let release = "7.3.4+deb13-cloud-amd64".to_owned();
        let kernel = entry(&CloudKernel { release, packages: vec![image] }).kernel;
        assert_eq!(kernel.id, "debian-cloud-7.3.4");
        assert_eq!(kernel.source, "linux-image-7.3.4+deb13-cloud-amd64 7.3.4-1~bpo13+1");
        assert_eq!(kernel.modules, Some("lib/modules/7.3.4+deb13-cloud-amd64".into()));
    }
}
