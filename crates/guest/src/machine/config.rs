//! Settings of the kernel's build.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

/// Those that decide about spinning.
const SETTINGS: &[&str] = &[
    "CONFIG_HZ",
    "CONFIG_PARAVIRT_SPINLOCKS",
    "CONFIG_PARAVIRT_TIME_ACCOUNTING",
    "CONFIG_SCHED_CLASS_EXT",
    "CONFIG_DEBUG_INFO_BTF",
];
/// Ten times what distributions have. A longer file is something else.
const BYTES_MAX: u64 = 4 << 20;

/// What is known of the kernel of that release, from the first file that has it: Debian, Ubuntu and
/// RHEL install it in /boot, Fedora and openSUSE next to the modules, and the kernels of Arch and
/// others contain it. `root` is the root folder.
pub(super) fn settings(root: &Path, release: &str) -> BTreeMap<String, String> {
    let files = [
        (format!("boot/config-{release}"), false),
        (format!("lib/modules/{release}/config"), false),
        ("proc/config.gz".to_owned(), true),
    ];
    let found = files.iter().find_map(|(path, is_gzip)| read(&root.join(path), *is_gzip));
    found.unwrap_or_default()
}

/// The settings in a file; `None` where there is none in it.
fn read(path: &Path, is_gzip: bool) -> Option<BTreeMap<String, String>> {
    let file = File::open(path).ok()?.take(BYTES_MAX);
    let text = if is_gzip { whole(GzDecoder::new(file)) } else { whole(file) }?;
    let settings = text.lines().filter_map(|line| line.split_once('='));
    let wanted = settings.filter(|(name, _)| SETTINGS.contains(name));
    let found: BTreeMap<_, _> =
        wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    (!found.is_empty()).then_some(found)
}

/// A whole text. One that is cut off would say that the kernel was built without the rest.
fn whole(text: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    text.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let is_whole = (bytes.len() as u64) < BYTES_MAX && bytes.ends_with(b"\n");
    is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn put(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("create it");
        fs::write(path, bytes).expect("write it");
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(text).expect("in memory");
        gzip.finish().expect("in memory")
    }

    fn hz(root: &Path) -> Option<String> {
        settings(root, "6.12.1").remove("CONFIG_HZ")
    }

    #[test]
    fn the_first_file_that_has_it_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        assert_eq!(hz(root), None);
        put(root, "proc/config.gz", &gzip(b"CONFIG_HZ=100\n"));
        assert_eq!(hz(root).as_deref(), Some("100"));
        let text = b"# CONFIG_HZ_100 is not set\nCONFIG_HZ=250\n";
        put(root, "lib/modules/6.12.1/config", text);
        assert_eq!(hz(root).as_deref(), Some("250"));
        put(root, "boot/config-6.12.1", b"");
        assert_eq!(hz(root).as_deref(), Some("250"));
        put(root, "boot/config-6.12.1", b"CONFIG_HZ=1000\n");
        assert_eq!(hz(root).as_deref(), Some("1000"));
    }

    #[test]
    fn what_is_cut_off_or_too_long_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        put(root, "boot/config-6.12.1", b"CONFIG_HZ=1000\nCONFIG_PARAVIRT_SP");
        let text = b"CONFIG_HZ=100\n";
        let packed = gzip(text);
        for cut in 0..packed.len() {
            put(root, "proc/config.gz", &packed[..cut]);
            assert_eq!(hz(root), None, "{cut} bytes");
        }
        let mut long = text.to_vec();
        long.resize(BYTES_MAX as usize, b'\n');
        for bytes in [gzip(&long), text.to_vec()] {
            put(root, "proc/config.gz", &bytes);
            assert_eq!(hz(root), None);
        }
        put(root, "proc/config.gz", &packed);
        assert_eq!(hz(root).as_deref(), Some("100"));
    }
}
