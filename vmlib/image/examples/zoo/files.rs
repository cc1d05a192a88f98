//! Open files: kinds, positions, and descriptors that share a position.

use crate::point::{folder, save_point};
use std::{
    fs::{self, File, OpenOptions},
    io::{Read as _, Seek as _, Write as _},
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("files_of_the_kernel", files_of_the_kernel),
    ("file_read", file_read),
    ("file_written", file_written),
    ("file_appended", file_appended),
    ("file_that_grows", file_that_grows),
    ("output_that_grows", output_that_grows),
    ("file_shared_by_dup", file_shared_by_dup),
    ("directory", directory),
    ("file_unreadable", file_unreadable),
];

fn made(name: &str, content: &[u8]) -> String {
    let path = format!("{}/{name}", folder());
    fs::write(&path, content).expect("a file can be written");
    path
}

/// Reading continues at the position.
fn file_read() {
    let path = made("read", b"0123456789");
    let mut file = File::open(path).expect("it is there");
    file.read_exact(&mut [0; 4]).expect("it can be read");
    save_point();
    let mut rest = String::new();
    file.read_to_string(&mut rest).expect("it can be read");
    assert_eq!(rest, "456789");
    assert!(file.write(b"x").is_err(), "it was open for reading");
}

/// Writing continues at the position; nothing is truncated.
fn file_written() {
    let path = made("written", b"");
    let options = OpenOptions::new().read(true).write(true).open(&path);
    let mut file = options.expect("it is there");
    file.write_all(b"before, and more")
        .expect("it can be written");
    file.seek(std::io::SeekFrom::Start(7))
        .expect("it can be moved");
    save_point();
    file.write_all(b" after").expect("it can be written");
    assert_eq!(fs::read(&path).expect("it is there"), b"before, afterore");
}

/// Appending continues at the end.
fn file_appended() {
    let path = made("appended", b"one,");
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .expect("it is there");
    file.write_all(b"two,").expect("it can be written");
    save_point();
    file.rewind().expect("it can be moved");
    file.write_all(b"three").expect("it can be written");
    assert_eq!(fs::read(&path).expect("it is there"), b"one,two,three");
}

/// A log to which each process appends. Each restored process finds the content of its save.
fn file_that_grows() {
    let path = made("log", b"begin\n");
    let options = OpenOptions::new().append(true).open(&path);
    let mut file = options.expect("it is there");
    file.write_all(b"more\n").expect("it can be written");
    let life = save_point();
    let line = format!("life {life}\n");
    file.write_all(line.as_bytes()).expect("it can be written");
    let log = fs::read_to_string(&path).expect("it is there");
    assert!(
        log.starts_with("begin\nmore\n") && log.ends_with(&line),
        "{log}"
    );
}

/// Output as a shell redirects it: each process writes at its position.
fn output_that_grows() {
    let path = made("output", b"");
    let mut file = OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("it is there");
    file.write_all(b"begin,").expect("it can be written");
    save_point();
    file.write_all(b"end").expect("it can be written");
    assert_eq!(fs::read(&path).expect("it is there"), b"begin,end");
}

/// Duplicates share one position; a second opening has its own. Each descriptor has its own flags.
fn file_shared_by_dup() {
    let path = made("shared", b"0123456789abcdef");
    let mut one = File::open(&path).expect("it is there");
    let mut same = one.try_clone().expect("it can be duplicated");
    let mut apart = File::open(&path).expect("it is there");
    rustix::io::fcntl_setfd(&same, rustix::io::FdFlags::empty()).expect("a flag");
    let mut byte = [0];
    one.read_exact(&mut byte).expect("it can be read");
    apart
        .seek(std::io::SeekFrom::Start(10))
        .expect("it can be moved");
    save_point();
    same.read_exact(&mut byte).expect("it can be read");
    assert_eq!(byte, *b"1");
    one.read_exact(&mut byte).expect("it can be read");
    assert_eq!(byte, *b"2");
    apart.read_exact(&mut byte).expect("it can be read");
    assert_eq!(byte, *b"a");
    let flags = |file: &File| rustix::io::fcntl_getfd(file).expect("flags");
    assert_eq!(flags(&one), rustix::io::FdFlags::CLOEXEC);
    assert_eq!(flags(&same), rustix::io::FdFlags::empty());
}

fn directory() {
    let path = format!("{}/folder", folder());
    fs::create_dir_all(&path).expect("a folder can be made");
    fs::write(format!("{path}/inside"), "x").expect("a file can be written");
    let open = File::open(&path).expect("it is there");
    save_point();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let inside = rustix::fs::openat(&open, "inside", flags, rustix::fs::Mode::empty());
    let mut text = String::new();
    File::from(inside.expect("it is there"))
        .read_to_string(&mut text)
        .expect("it can be read");
    assert_eq!(text, "x");
}

/// A file that can be written but not read.
fn file_unreadable() {
    let path = made("unreadable", b"abc");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o200);
    fs::set_permissions(&path, mode).expect("it is this user's own");
    let mut file = OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("it may be written");
    file.write_all(b"x").expect("it can be written");
    save_point();
    assert_eq!(file.stream_position().expect("a position"), 1);
    file.write_all(b"yz").expect("it can be written");
}

/// Files of `/proc` show the restored process.
fn files_of_the_kernel() {
    let open = |path: &str| File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let read = |mut file: &File| {
        let mut text = String::new();
        file.rewind().expect("it can be moved");
        file.read_to_string(&mut text).expect("it can be read");
        text
    };
    let own = ["stat", "task/self/stat"].map(|name| match name {
        "stat" => open("/proc/self/stat"),
        _ => open(&format!("/proc/self/task/{}/stat", std::process::id())),
    });
    let (folder, memory) = (open("/proc/self/fd"), open("/proc/meminfo"));
    let version = open("/proc/sys/kernel/osrelease");
    let page = File::open("/sys/kernel/mm/transparent_hugepage/enabled").ok();
    let mut maps = open("/proc/self/maps");
    maps.seek(std::io::SeekFrom::Start(10))
        .expect("it can be moved");
    save_point();
    for file in &own {
        let id = format!("{} (", std::process::id());
        let found = read(file);
        assert!(found.starts_with(&id), "{id}: {found}");
    }
    let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
    let names = fs::read_dir(format!("/proc/self/fd/{number}")).expect("a folder");
    let names: Vec<_> = names
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    assert!(names.contains(&number.to_string().into()), "{names:?}");
    assert!(read(&memory).contains("MemTotal:"));
    assert!(!read(&version).is_empty());
    assert!(page.is_none_or(|page| read(&page).contains("always")));
    assert_eq!(maps.stream_position().expect("a position"), 10);
}
