//! The kernels of an experiment's guests.

use std::collections::BTreeMap;

use unspin_sources::InUse;
use unspin_sources::kernel::{self, Kernel};

use super::{Event, LabError, Progress};

/// Each of an experiment's kernels, built or fetched if it is not here, in their order; and the
/// right to use them.
pub fn all(
    specs: &[String],
    progress: &mut dyn Progress,
) -> Result<(Vec<Kernel>, Vec<InUse>), LabError> {
    let (mut kernels, mut in_use) = (Vec::new(), Vec::new());
    for spec in specs {
        let (kernel, right) = get(spec, progress)?;
        kernels.push(kernel);
        in_use.extend(right);
    }
    each_has_its_id(&kernels)?;
    Ok((kernels, in_use))
}

/// The kernel that a spec means, built or fetched if it is not here; and the right to use it, if
/// it is in the cache.
pub fn get(spec: &str, progress: &mut dyn Progress) -> Result<(Kernel, Option<InUse>), LabError> {
    let mut report = |step: unspin_sources::Progress| {
        progress.event(Event::Stage(&format!("kernel {spec}: {}", step.stage), step.fraction));
    };
    Ok(kernel::ensure(spec, &mut report)?)
}

/// Checks that no two kernels share an id. The id names a guest's files and, in an L1, the kernel's
/// files. For an image at a path the id is its release, which another build can share. One build
/// would then boot under the name of the other.
fn each_has_its_id(kernels: &[Kernel]) -> Result<(), LabError> {
    let mut known: BTreeMap<&str, &Kernel> = BTreeMap::new();
    for kernel in kernels {
        let first = known.entry(&kernel.id).or_insert(kernel);
        if first.image != kernel.image {
            return Err(LabError::OneId {
                id: kernel.id.clone(),
                images: [first.image.clone(), kernel.image.clone()],
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::Bench;
    use super::*;

    #[test]
    fn two_images_of_one_release_are_refused_and_both_are_named() {
        let bench = Bench::new();
        let at = |id: &str, image: &str| Kernel { image: image.into(), ..bench.kernel(id) };
        let ours = at("6.12.0", "/ours/bzImage");
        let theirs = at("6.12.0", "/theirs/bzImage");
        each_has_its_id(&[ours.clone(), at("6.18.0", "/newer/bzImage"), ours.clone()]).unwrap();
        let refused = each_has_its_id(&[ours, theirs]).unwrap_err().to_string();
        for part in ["6.12.0", "/ours/bzImage", "/theirs/bzImage", "CONFIG_LOCALVERSION"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
