//! Open files whose content the image carries: missing, deleted, with holes.

use crate::point::{carrying_save_point, folder};
use rustix::fs::MemfdFlags;
use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    },
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("file_carried", file_carried),
    ("file_deleted_and_carried", file_deleted_and_carried),
    ("file_with_holes", file_with_holes),
    ("memory_file_carried", memory_file_carried),
    (
        "memory_file_that_is_a_program",
        memory_file_that_is_a_program,
    ),
    (
        "file_that_links_do_not_lead_to",
        file_that_links_do_not_lead_to,
    ),
    ("file_with_owner_and_rights", file_with_owner_and_rights),
    ("file_with_holes_and_a_lock", file_with_holes_and_a_lock),
];

fn read_and_write(path: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(path).expect("a file can be opened")
}

/// Each restored process removes the file, so that the next one gets it from the image alone.
fn file_carried() {
    let path = format!("{}/carried", folder());
    let content: Vec<u8> = (0..3_000_000u32).map(|at| (at >> 3) as u8).collect();
    fs::write(&path, &content).expect("a file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is our own");
    let (mut one, other) = (
        File::open(&path).expect("it is there"),
        read_and_write(&path),
    );
    let empty = read_and_write(&format!("{path}.empty"));
    one.seek(std::io::SeekFrom::Start(2_999_990))
        .expect("it can be moved");
    carrying_save_point();
    assert_eq!(fs::read(&path).expect("it is there"), content);
    let mode = other.metadata().expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o666, "not what the umask makes of it");
    let mut rest = Vec::new();
    one.read_to_end(&mut rest).expect("it can be read");
    assert_eq!(rest, content[2_999_990..]);
    other.write_all_at(b"x", 0).expect("it can be written");
    let mut byte = [0];
    one.read_exact_at(&mut byte, 0).expect("it can be read");
    assert_eq!(byte, *b"x", "both are one file");
    assert_eq!(empty.metadata().expect("it is there").len(), 0);
    fs::remove_file(&path).expect("it is there");
    fs::remove_file(format!("{path}.empty")).expect("it is there");
}

/// The file has no name any more, and is open three times; two of the descriptors share a position.
fn file_deleted_and_carried() {
    let path = format!("{}/deleted", folder());
    let mut one = read_and_write(&path);
    let apart = File::open(&path).expect("it is there");
    let mut same = one.try_clone().expect("it can be duplicated");
    fs::remove_file(&path).expect("it is there");
    one.write_all(b"0123456789").expect("it can be written");
    one.seek(std::io::SeekFrom::Start(4))
        .expect("it can be moved");
    carrying_save_point();
    assert!(!fs::exists(&path).expect("a folder"), "it has no name");
    let numbers = |file: &File| {
        let found = file.metadata().expect("it is open");
        (found.dev(), found.ino(), found.nlink(), found.len())
    };
    assert_eq!(numbers(&one), numbers(&apart));
    assert_eq!((numbers(&one).2, numbers(&one).3), (0, 10));
    let mut text = String::new();
    same.read_to_string(&mut text).expect("it can be read");
    assert_eq!(text, "456789");
    one.write_all(b"more").expect("it can be written");
    let mut all = [0; 14];
    apart.read_exact_at(&mut all, 0).expect("it can be read");
    assert_eq!(&all, b"0123456789more");
    assert!((&apart).write(b"x").is_err(), "it was open for reading");
}

/// A file of a gigabyte with two written bytes: neither the image nor the new file is long.
fn file_with_holes() {
    const LEN: u64 = 1 << 30;
    const AT: u64 = 700 << 20;
    let path = format!("{}/holes", folder());
    let file = read_and_write(&path);
    file.set_len(LEN).expect("it can grow");
    file.write_all_at(b"a", 1).expect("it can be written");
    file.write_all_at(b"b", AT).expect("it can be written");
    let is_sparse = |file: &File| file.metadata().expect("it is open").blocks() < 1 << 15;
    if !is_sparse(&file) {
        return println!("note: files have no holes here");
    }
    let life = carrying_save_point();
    let image = env::var("ZOO_IMAGE").expect("the environment says where images go");
    let image = fs::metadata(format!("{image}.{}", life.max(1))).expect("the image");
    assert!(image.len() < 64 << 20, "{} bytes", image.len());
    assert_eq!(file.metadata().expect("it is open").len(), LEN);
    assert!(is_sparse(&file));
    let mut bytes = [9; 3];
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    assert_eq!(bytes, *b"\0a\0");
    file.read_exact_at(&mut bytes, AT - 1)
        .expect("it can be read");
    assert_eq!(bytes, *b"\0b\0");
    fs::remove_file(&path).expect("it is there");
}

/// A memory file, which never had a name.
fn memory_file_carried() {
    let memory = rustix::fs::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory");
    let mut memory = File::from(memory);
    memory
        .write_all(b"kept in memory")
        .expect("it can be written");
    let number = memory.as_raw_fd();
    carrying_save_point();
    let mut bytes = [0; 14];
    memory.read_exact_at(&mut bytes, 0).expect("it can be read");
    assert_eq!(&bytes, b"kept in memory");
    assert_eq!(memory.stream_position().expect("a position"), 14);
    let name = fs::read_link(format!("/proc/self/fd/{number}")).expect("a name");
    assert!(name.to_string_lossy().starts_with("/memfd:"), "{name:?}");
}

/// The program is executed through its descriptor, which requires that no process has the file open
/// for writing.
fn memory_file_that_is_a_program() {
    let memory = rustix::fs::memfd_create("a program", MemfdFlags::CLOEXEC).expect("memory");
    let mut memory = File::from(memory);
    let program = fs::read("/bin/true").expect("there is one");
    memory.write_all(&program).expect("it can be written");
    let number = memory.as_raw_fd();
    carrying_save_point();
    let path = format!("/proc/self/fd/{number}");
    let name = fs::read_link(&path).expect("a name");
    assert_eq!(name.to_string_lossy(), "/memfd:a program (deleted)");
    assert_eq!(
        memory.metadata().expect("it is open").mode() & 0o7777,
        0o777
    );
    let status = std::process::Command::new(path).status();
    assert!(status.expect("it can be started").success());
}

/// Temporary files: made without a name, or removed at once.
fn file_that_links_do_not_lead_to() {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_TMPFILE | libc::O_EXCL | libc::O_NOFOLLOW);
    let mut files = vec![options.open(folder()).expect("a file without a name")];
    let path = format!("{}/not followed", folder());
    options.create(true).custom_flags(libc::O_NOFOLLOW);
    files.push(options.open(&path).expect("a file can be opened"));
    fs::remove_file(&path).expect("it is there");
    for file in &mut files {
        file.write_all(b"temporary").expect("it can be written");
    }
    carrying_save_point();
    for file in &mut files {
        let mut bytes = [0; 9];
        file.read_exact_at(&mut bytes, 0).expect("it can be read");
        assert_eq!(&bytes, b"temporary");
        assert_eq!(file.stream_position().expect("a position"), 9);
        file.write_all(b"!").expect("it can be written");
    }
}

/// Root gives the file back to its owner.
fn file_with_owner_and_rights() {
    let path = format!("{}/owned", folder());
    let file = read_and_write(&path);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::fchown(&file, Some(7), Some(8)).expect("root may give it away");
    }
    file.set_permissions(fs::Permissions::from_mode(0o4642))
        .expect("it is our own");
    fs::remove_file(&path).expect("it is there");
    let of = |file: &File| {
        let found = file.metadata().expect("it is open");
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    let before = of(&file);
    assert!(!is_root || before == (0o4642, 7, 8));
    carrying_save_point();
    assert_eq!(of(&file), before);
}

/// A second descriptor, opened to find the holes, would end the lock when it is closed.
fn file_with_holes_and_a_lock() {
    const LEN: u64 = 64 << 20;
    let path = format!("{}/locked holes", folder());
    let file = read_and_write(&path);
    file.set_len(LEN).expect("it can grow");
    file.write_all_at(b"b", LEN / 2).expect("it can be written");
    let life = {
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockShared)
            .expect("it is free");
        carrying_save_point()
    };
    let image = env::var("ZOO_IMAGE").expect("the environment says where images go");
    let image = fs::metadata(format!("{image}.{}", life.max(1))).expect("the image");
    assert!(image.len() < 40 << 20, "{} bytes", image.len());
    let mut byte = [0];
    file.read_exact_at(&mut byte, LEN / 2)
        .expect("it can be read");
    assert_eq!(byte, *b"b");
    assert!(file.metadata().expect("it is open").blocks() < 1 << 12);
    if life > 0 {
        // The next process has to make the file from the image.
        fs::remove_file(&path).expect("it is there");
    }
}
