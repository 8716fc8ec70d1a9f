//! Files of the repository that the program contains, so that an installed `unspin` builds without
//! a checkout.

use include_dir::{Dir, include_dir};

/// Fragments and patches of the lab kernel.
static KERNEL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../kernel");
/// The policy, as freestanding C headers.
static POLICY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policy");
/// Patches, devices and options of the lab's QEMU.
static QEMU: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../qemu");

/// A shipped file: its path below its folder, and its text.
pub(crate) type Part = (&'static str, &'static str);

/// Returns the fragments of `kernel/config/`, in the order in which they are merged.
pub(crate) fn kernel_fragments() -> Vec<Part> {
    parts(&KERNEL, "config", ".config")
}

/// Returns the patches of `kernel/patches/`, in the order in which they apply.
pub(crate) fn kernel_patches() -> Vec<Part> {
    parts(&KERNEL, "patches", ".patch")
}

/// Returns the fragments and patches that a confidential guest's kernel adds to the lab kernel's.
pub(crate) fn cvm_kernel_parts() -> [Vec<Part>; 2] {
    [".config", ".patch"].map(|suffix| parts(&KERNEL, "cvm", suffix))
}

/// Returns the fragments and patches that the kernel of a host that emulates SEV-ES adds.
pub(crate) fn es_emu_kernel_parts() -> [Vec<Part>; 2] {
    [".config", ".patch"].map(|suffix| parts(&KERNEL, "es-emu", suffix))
}

/// Returns the patches of `qemu/patches/`, in the order in which they apply.
pub(crate) fn qemu_patches() -> Vec<Part> {
    parts(&QEMU, "patches", ".patch")
}

/// Returns the text of a file in `qemu/`, which is empty if the file is absent.
pub(crate) fn qemu_file(name: &str) -> &'static str {
    QEMU.get_file(name).and_then(|file| file.contents_utf8()).unwrap_or_default()
}

/// Returns `policy/base.h` and the headers of `policy/host/`, by their paths below `policy/`.
pub(crate) fn host_headers() -> Vec<(String, &'static str)> {
    let base = parts(&POLICY, "", ".h").into_iter().filter(|(name, _)| *name == "base.h");
    let host = parts(&POLICY, "host", ".h").into_iter();
    let base = base.map(|(name, text)| (name.to_owned(), text));
    base.chain(host.map(|(name, text)| (format!("host/{name}"), text))).collect()
}

/// Returns the files of `folder` whose names end in `suffix`, by name. An absent folder yields
/// none.
fn parts(dir: &'static Dir<'_>, folder: &str, suffix: &str) -> Vec<Part> {
    let inner = if folder.is_empty() { Some(dir) } else { dir.get_dir(folder) };
    let files = inner.into_iter().flat_map(|dir| dir.files());
    let part = |file: &'static include_dir::File<'_>| {
        let name = file.path().file_name()?.to_str()?;
        Some((name, file.contents_utf8()?)).filter(|_| name.ends_with(suffix))
    };
    let mut parts: Vec<Part> = files.filter_map(part).collect();
    parts.sort_unstable();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_folder_has_no_parts() {
        assert!(parts(&QEMU, "nothing", ".patch").is_empty());
    }

    #[test]
    fn parts_are_ordered_by_name_and_have_text() {
        let fragments = kernel_fragments();
        assert!(fragments.is_sorted() && fragments.len() > 1);
        let all = [fragments, kernel_patches(), qemu_patches()].concat();
        assert!(all.iter().all(|(_, text)| !text.is_empty()));
    }

    #[test]
    fn the_overlay_is_base_and_the_host_folder() {
        let headers = host_headers();
        assert_eq!(headers[0].0, "base.h");
        assert!(headers[1..].iter().all(|(path, _)| path.starts_with("host/")));
    }
}
