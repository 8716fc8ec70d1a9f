//! The initramfs of a guest: unspin's own init, and only the files that the run needs.

mod closure;
mod digest;
mod modules;
mod own;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cpio::NewcBuilder;
use cpio::newc::{self, ModeFileType};
use thiserror::Error;
use unspin_sources::kernel::Kernel;
use unspin_wire::guest::{MARKER, MODULE_LIST};

pub use digest::FileDigests;
pub use own::{COMMIT_MARK, OWN_NAME, OWN_PATH, Own};

/// Alignment in bytes at which the kernel looks for the next archive of an initramfs.
const ARCHIVE_ALIGN: u64 = 4;

/// Why an initramfs could not be made.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A program that a workload needs is not installed.
    #[error("{program} is not installed: {}", cure(package))]
    Missing {
        /// Name of the program.
        program: String,
        /// The Debian package that provides the program; empty if no package does.
        package: String,
    },
    /// The init that belongs to the running program is not installed.
    #[error(
        "unspin-init, which boots every guest, is not in {folder}, nor in ../lib/unspin from \
         there: run `cargo build --workspace`, with `--release` as for unspin"
    )]
    NoInit {
        /// The folder of the running program.
        folder: String,
    },
    /// A program's libraries could not be listed.
    #[error("the libraries of {program} could not be found: {detail}")]
    Libraries {
        /// The program.
        program: String,
        /// ldd's output, or the reason why ldd failed.
        detail: String,
    },
    /// A kernel module could not be read.
    #[error("kernel module {path}: {detail}")]
    Module {
        /// Path of the module.
        path: String,
        /// What went wrong.
        detail: String,
    },
    /// A file could not be read or written.
    #[error("{path}")]
    Io {
        /// The file.
        path: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// The files of an initramfs.
#[derive(Debug, Default)]
pub struct Image {
    /// The content of each guest path.
    files: BTreeMap<PathBuf, Content>,
}

#[derive(Debug)]
enum Content {
    Copy(PathBuf),
    Bytes(Vec<u8>),
    Program(Vec<u8>),
    Symlink(PathBuf),
    Directory,
}

impl Image {
    /// Adds all entries of another image.
    pub fn extend(&mut self, other: Image) {
        self.files.extend(other.files);
    }

    /// Makes the image that every guest of a kernel shares, without its init: busybox, the kernel's
    /// config and the modules that the control channel needs.
    pub fn base(kernel: &Kernel) -> Result<Image, ImageError> {
        let mut image = Image::default();
        for (link, target) in [
            ("/bin", "usr/bin"),
            ("/sbin", "usr/sbin"),
            ("/lib", "usr/lib"),
            ("/lib64", "usr/lib64"),
        ] {
            image.put(link, Content::Symlink(target.into()));
        }
        for folder in [
            "/proc",
            "/sys",
            "/dev",
            "/tmp",
            "/run/unspin",
            "/root",
            "/usr/bin",
            "/usr/sbin",
            "/etc",
        ] {
            image.put(folder, Content::Directory);
        }
        image.put(MARKER, Content::Bytes(kernel.id.clone().into_bytes()));
        image.put("/etc/passwd", Content::Bytes(b"root:x:0:0:root:/root:/bin/sh\n".to_vec()));
        image.put("/etc/group", Content::Bytes(b"root:x:0:\n".to_vec()));
        image.put("/etc/hosts", Content::Bytes(b"127.0.0.1 localhost\n".to_vec()));
        image.add_busybox()?;
        image.add_kernel_files(kernel)?;
        Ok(image)
    }

    /// Makes an image of one program and its libraries.
    pub fn of_program(name: &str, package: &str) -> Result<Image, ImageError> {
        let mut image = Image::default();
        image.add_program(name, package)?;
        Ok(image)
    }

    /// Makes an image of one host file or folder.
    pub fn of_path(path: &Path, package: &str) -> Result<Image, ImageError> {
        let mut image = Image::default();
        image.add_path(path, package)?;
        Ok(image)
    }

    /// Adds a program by name or path, with its libraries.
    pub fn add_program(&mut self, program: &str, package: &str) -> Result<(), ImageError> {
        let path = find_program(program).ok_or_else(|| ImageError::Missing {
            program: program.to_owned(),
            package: package.to_owned(),
        })?;
        let guest = path_in_guest(&path);
        self.add_program_as(&path, &guest)
    }

    fn add_program_as(&mut self, host: &Path, guest: &Path) -> Result<(), ImageError> {
        let real = fs::canonicalize(host).map_err(|e| io_error(host, e))?;
        for library in closure::libraries(&real)? {
            self.add_shared(&library)?;
        }
        self.put(guest, Content::Copy(real));
        Ok(())
    }

    /// Adds a library under the name that the loader looks for.
    fn add_shared(&mut self, library: &Path) -> Result<(), ImageError> {
        let real = fs::canonicalize(library).map_err(|e| io_error(library, e))?;
        self.put(usr_merged(library), Content::Copy(real));
        Ok(())
    }

    /// Adds a host file, or a folder and its contents, under its own path.
    pub fn add_path(&mut self, host: &Path, package: &str) -> Result<(), ImageError> {
        if !host.exists() {
            return Err(ImageError::Missing {
                program: host.display().to_string(),
                package: package.to_owned(),
            });
        }
        if !host.is_dir() {
            return self.add_shared(host);
        }
        for entry in fs::read_dir(host).map_err(|e| io_error(host, e))?.flatten() {
            self.add_path(&entry.path(), package)?;
        }
        Ok(())
    }

    /// Adds a host file under a different guest path.
    pub fn add_file_as(&mut self, host: &Path, guest: &str) {
        self.put(guest, Content::Copy(host.to_owned()));
    }

    /// Returns whether the image has an entry for the guest path.
    pub fn contains(&self, guest: &str) -> bool {
        self.files.contains_key(Path::new(guest))
    }

    fn add_busybox(&mut self) -> Result<(), ImageError> {
        self.add_program("busybox", "busybox-static")?;
        let list = std::process::Command::new("busybox").arg("--list").output();
        let list = list.map_err(|e| io_error("busybox", e))?;
        let busybox =
            find_program("busybox").map_or_else(|| "/usr/bin/busybox".into(), |p| usr_merged(&p));
        self.put("/usr/bin/busybox", Content::Copy(find_program("busybox").unwrap_or_default()));
        for applet in String::from_utf8_lossy(&list.stdout).lines().filter(|a| *a != "busybox") {
            self.put(format!("/usr/bin/{applet}"), Content::Symlink(busybox.clone()));
        }
        Ok(())
    }

    fn add_kernel_files(&mut self, kernel: &Kernel) -> Result<(), ImageError> {
        if let Some(config) = &kernel.config {
            // libbpf reads the values of kconfig externs from this file.
            self.add_file_as(config, &format!("/boot/config-{}", kernel.release));
        }
        let Some(folder) = &kernel.modules else { return Ok(()) };
        let mut list = String::new();
        for (name, bytes) in modules::needed(folder)? {
            let guest = format!("/usr/lib/unspin-modules/{name}");
            list.push_str(&guest);
            list.push('\n');
            self.put(guest, Content::Bytes(bytes));
        }
        self.put(MODULE_LIST, Content::Bytes(list.into_bytes()));
        Ok(())
    }

    fn put(&mut self, guest: impl Into<PathBuf>, content: Content) {
        self.files.insert(guest.into(), content);
    }

    /// Writes the image as an uncompressed newc archive, the format that an emulated kernel unpacks
    /// fastest.
    pub fn write(&self, path: &Path) -> Result<(), ImageError> {
        let file = fs::File::create(path).map_err(|e| io_error(path, e))?;
        let mut out = io::BufWriter::with_capacity(1 << 20, file);
        let mut inode = 1;
        for (guest, content) in self.with_parents() {
            inode += 1;
            write_entry(&mut out, guest, content, inode)?;
        }
        newc::trailer(out).and_then(|mut out| out.flush()).map_err(|e| io_error(path, e))
    }

    /// Copies `base` to `out` and appends an archive with one more file. The kernel unpacks both
    /// archives, so a large image is written once, and only the file that differs between runs is
    /// added.
    pub fn write_extended(
        base: &Path,
        out: &Path,
        guest: &str,
        bytes: Vec<u8>,
    ) -> Result<(), ImageError> {
        let error = |e| io_error(out, e);
        let length = fs::copy(base, out).map_err(error)?;
        let mut file = fs::OpenOptions::new().append(true).open(out).map_err(error)?;
        let padding = length.next_multiple_of(ARCHIVE_ALIGN) - length;
        file.write_all(&[0; ARCHIVE_ALIGN as usize][..padding as usize]).map_err(error)?;
        write_entry(&mut file, Path::new(guest), &Content::Bytes(bytes), 1)?;
        newc::trailer(file).map(drop).map_err(error)
    }

    /// Returns every entry, with each folder before its contents.
    fn with_parents(&self) -> BTreeMap<&Path, &Content> {
        let mut all: BTreeMap<&Path, &Content> = BTreeMap::new();
        for (path, content) in &self.files {
            for parent in path.ancestors().skip(1).filter(|p| p.parent().is_some()) {
                all.entry(parent).or_insert(&Content::Directory);
            }
            all.insert(path, content);
        }
        all
    }
}

fn write_entry(
    out: &mut impl Write,
    guest: &Path,
    content: &Content,
    inode: u32,
) -> Result<(), ImageError> {
    let name = guest.to_string_lossy();
    let entry = NewcBuilder::new(name.trim_start_matches('/')).ino(inode).nlink(1);
    let error = |e| io_error(guest, e);
    let (entry, bytes) = match content {
        Content::Directory => {
            (entry.mode(0o755).set_mode_file_type(ModeFileType::Directory), vec![])
        }
        Content::Symlink(target) => (
            entry.mode(0o777).set_mode_file_type(ModeFileType::Symlink),
            target.to_string_lossy().into_owned().into_bytes(),
        ),
        Content::Bytes(bytes) => {
            (entry.mode(0o644).set_mode_file_type(ModeFileType::Regular), bytes.clone())
        }
        Content::Program(bytes) => {
            (entry.mode(0o755).set_mode_file_type(ModeFileType::Regular), bytes.clone())
        }
        Content::Copy(host) => {
            let bytes = fs::read(host).map_err(|e| io_error(host, e))?;
            let mode = fs::metadata(host).map_err(|e| io_error(host, e))?.permissions().mode();
            (entry.mode(mode & 0o777).set_mode_file_type(ModeFileType::Regular), bytes)
        }
    };
    let size = u32::try_from(bytes.len()).map_err(|_| {
        io_error(guest, io::Error::other("larger than a cpio entry can be (4 GiB)"))
    })?;
    let mut writer = entry.write(out, size);
    writer.write_all(&bytes).map_err(error)?;
    writer.finish().map(drop).map_err(error)
}

/// Finds a program on this host. The search covers the folder of the running binary, ../lib/unspin
/// next to it (where an installation keeps unspin's own workloads), PATH, and the folders where
/// Debian installs programs for root.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.into());
    }
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent);
    let own = own.into_iter().flat_map(|bin| [bin.to_owned(), bin.join("../lib/unspin")]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    let folders = own.chain(std::env::split_paths(&path)).chain(extra);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Returns what the user can do if a program of this package is missing.
fn cure(package: &str) -> String {
    match package {
        "" => "put it into PATH; unspin's own are built by `cargo build --workspace`".into(),
        _ => format!("run `apt install {package}`"),
    }
}

/// Returns a host program's path in the image. System programs keep their own path; unspin's own
/// programs and those of a checkout or a home folder go to /usr/local/bin.
pub fn path_in_guest(program: &Path) -> PathBuf {
    let path = usr_merged(program);
    let name = program.file_name().unwrap_or_default();
    let own = path.parent().is_some_and(|folder| folder.ends_with("lib/unspin"));
    if path.starts_with("/usr") && !own { path } else { Path::new("/usr/local/bin").join(name) }
}

/// Returns the path with /bin, /sbin and /lib* replaced by the folders in /usr that they link to in
/// the image.
fn usr_merged(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let split = ["/bin/", "/sbin/", "/lib/", "/lib64/"].iter().any(|p| text.starts_with(p));
    if split { PathBuf::from(format!("/usr{text}")) } else { path.to_owned() }
}

fn io_error(path: impl AsRef<Path>, source: io::Error) -> ImageError {
    ImageError::Io { path: path.as_ref().display().to_string(), source }
}

#[cfg(test)]
mod tests;
