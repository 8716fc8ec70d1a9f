//! The content of the archives that an image writes.

use unspin_wire::guest::ERRAND_FILE;

use super::*;

#[test]
fn archive_holds_folders_before_files_and_ends_with_a_trailer() {
    let mut image = Image::default();
    image.put("/usr/share/a", Content::Bytes(b"hello".to_vec()));
    image.put("/bin", Content::Symlink("usr/bin".into()));
    let file = tempfile::NamedTempFile::new().unwrap();
    image.write(file.path()).unwrap();
    let mut names = Vec::new();
    let mut archive = fs::File::open(file.path()).unwrap();
    loop {
        let reader = newc::Reader::new(archive).unwrap();
        if reader.entry().is_trailer() {
            break;
        }
        names.push(reader.entry().name().to_owned());
        archive = reader.finish().unwrap();
    }
    assert_eq!(names, ["bin", "usr", "usr/share", "usr/share/a"]);
}

#[test]
fn an_extended_image_holds_both_archives() {
    let folder = tempfile::tempdir().unwrap();
    let (base, out) = (folder.path().join("base"), folder.path().join("out"));
    let mut image = Image::default();
    image.put("/a", Content::Bytes(b"x".to_vec()));
    image.write(&base).unwrap();
    fs::OpenOptions::new().append(true).open(&base).unwrap().write_all(b"\0").unwrap();
    Image::write_extended(&base, &out, ERRAND_FILE, b"{}".to_vec()).unwrap();
    let bytes = fs::read(&out).unwrap();
    let at = fs::read(&base).unwrap().len().next_multiple_of(4);
    let reader = newc::Reader::new(&bytes[at..]).unwrap();
    assert_eq!(reader.entry().name(), "etc/unspin-jobs.json");
    assert_eq!(reader.entry().file_size(), 2);
}

#[test]
fn a_missing_program_names_its_package() {
    let error = Image::default().add_program("no-such-program", "some-package").unwrap_err();
    assert!(error.to_string().contains("apt install some-package"));
}

#[test]
fn own_programs_are_on_the_path_of_a_guest_wherever_they_are_installed() {
    for (host, guest) in [
        ("/usr/bin/stress-ng", "/usr/bin/stress-ng"),
        ("/bin/busybox", "/usr/bin/busybox"),
        ("/usr/bin/../lib/unspin/spinbench", "/usr/local/bin/spinbench"),
        ("/usr/local/lib/unspin/spinbench", "/usr/local/bin/spinbench"),
        ("/home/me/unspin/target/release/spinbench", "/usr/local/bin/spinbench"),
    ] {
        assert_eq!(path_in_guest(Path::new(host)), Path::new(guest), "{host}");
    }
}
