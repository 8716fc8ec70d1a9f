//! Fetches Debian's cloud kernels: the newest that has sched_ext, or that of a release.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cloud::{CloudKernel, cloud_kernels, default_of, parts};
use super::entry::{Entry, by_id, instead, kernels_dir, newest};
use super::{Cloud, Kernel, KernelError, config};
use crate::apt::PrivateApt;
use crate::cache::{Staging, cache_dir};
use crate::command::{Runner, Tool, need, program};
use crate::{Progress, SourcesError, deb, space};

/// What the newest kernel needs to be worth fetching.
const WANTED: &str = "SCHED_CLASS_EXT";
/// How many kernels are tried, the newest first.
const TRIES: usize = 3;
/// Downloads and unpacked files at their peak.
const SPACE: u64 = 1 << 30;
const TOOLS: &[Tool] = &[("depmod", "kmod")];

/// Fetches one of Debian's cloud kernels, or returns the one in the cache if that is the newest.
/// Without network, returns the one in the cache with a warning.
///
/// # Errors
/// When tools, keyring, network or space are missing, or no kernel fits.
pub fn fetch_debian_cloud(
    cloud: Cloud,
    progress: &mut dyn FnMut(Progress),
) -> Result<Kernel, KernelError> {
    need("fetch a kernel", TOOLS)?;
    let home = kernels_dir();
    let staging = Staging::begin(&home, &mut || {
        progress(Progress::stage("wait", "another build or fetch is under way"));
    })?;
    let runner = Runner::new(cache_dir().join("kernel-fetch.log"))?;
    let suites = suites(cloud);
    let apt = PrivateApt::new(&cache_dir().join("apt"), suites)?;
    progress(Progress::stage("index", format!("what {} has", suites.join(", "))));
    let packages = match apt.packages(&runner) {
        Ok(packages) => packages,
        Err(error) => return instead(newest(&home, cloud.spec(), None)?, error.into()),
    };
    let mut kernels = cloud_kernels(&packages);
    if cloud != Cloud::Newest {
        kernels = default_of(kernels, &packages);
    }
    if kernels.is_empty() {
        return Err(apt.lacks("linux-image-VERSION-cloud-amd64", &runner).into());
    }
    for kernel in kernels.iter().take(TRIES) {
        let entry = entry(cloud, kernel);
        let cached = by_id(&home, &entry.kernel.id)?;
        let is_it = |cached: &Kernel| {
            (&cached.source, &cached.spec) == (&entry.kernel.source, &entry.kernel.spec)
        };
        if let Some(cached) = cached.filter(is_it) {
            return Ok(cached);
        }
        space::check(&home, SPACE)?;
        unpack(kernel, &apt, &staging, &runner, progress)?;
        let has = || config::config_has(&staging.entry().join("config"), WANTED);
        if cloud != Cloud::Newest || has()? {
            return Ok(staging.publish(&entry)?.kernel);
        }
    }
    let tried: Vec<_> = kernels.iter().take(TRIES).map(|kernel| kernel.release.as_str()).collect();
    Err(KernelError::NoSchedExt(tried.join(", ")))
}

/// Where it is: kernels newer than its release's are in a suite of their own.
fn suites(cloud: Cloud) -> &'static [&'static str] {
    match cloud {
        Cloud::Newest => &["trixie-backports"],
        Cloud::Bookworm => &["bookworm", "bookworm-security"],
        Cloud::Trixie => &["trixie", "trixie-security"],
    }
}

/// A later revision of the same release takes the place of the earlier one.
fn entry(cloud: Cloud, kernel: &CloudKernel) -> Entry {
    let image = &kernel.packages[0];
    let number = kernel.release.split(['+', '-']).next().unwrap_or_default();
    let kernel = Kernel {
        spec: cloud.spec().into(),
        id: format!("debian-cloud-{number}"),
        release: kernel.release.clone(),
        image: "vmlinuz".into(),
        config: Some("config".into()),
        modules: Some(Path::new("lib/modules").join(&kernel.release)),
        source: format!("{} {}", image.name, image.version),
    };
    Entry { kernel, recipe: None }
}

/// Fills the staging entry.
fn unpack(
    kernel: &CloudKernel,
    apt: &PrivateApt,
    staging: &Staging,
    runner: &Runner,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), KernelError> {
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
    Ok(runner.run("depmod", &mut depmod, &mut |_| ())?)
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
        let kernel = CloudKernel { release, packages: vec![image] };
        let kernel = entry(Cloud::Newest, &kernel).kernel;
        assert_eq!(kernel.spec, "debian-cloud");
        assert_eq!(kernel.id, "debian-cloud-7.3.4");
        assert_eq!(kernel.source, "linux-image-7.3.4+deb13-cloud-amd64 7.3.4-1~bpo13+1");
        assert_eq!(kernel.modules, Some("lib/modules/7.3.4+deb13-cloud-amd64".into()));
    }
}
