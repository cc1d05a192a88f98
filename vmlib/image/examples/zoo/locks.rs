//! Locks on files: of the process, of an open file, of a whole file. Another process tests which
//! locks are held.

use crate::point::{folder, save_point};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    process::Command,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("locks_on_files", locks_on_files),
    ("locks_are_not_lost_by_a_save", locks_are_not_lost_by_a_save),
];

fn file(name: &str) -> File {
    let path = format!("{}/{name}", folder());
    fs::write(&path, [7; 100]).expect("a file can be written");
    let options = File::options().read(true).write(true).open(&path);
    options.expect("it is there")
}

/// Sets or tests (`F_GETLK`, `F_OFD_GETLK`) a lock on some bytes of a file. Returns the kind of
/// lock that the kernel reports.
fn range(file: &File, command: i32, kind: i32, start: i64, len: i64) -> i32 {
    // SAFETY: zeros are a value.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as i16;
    (range.l_start, range.l_len) = (start, len);
    // SAFETY: the kernel reads the range, or writes it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) };
    assert_eq!(result, 0, "command {command} from {start}");
    range.l_type.into()
}

/// Whether another process may lock the whole file, for writing or for reading. Tested with the
/// program `flock`, which every system has.
fn may_others(way: &str, name: &str) -> bool {
    let mut command = Command::new("flock");
    command.args(["--nonblock", way, &format!("{}/{name}", folder()), "true"]);
    command.status().expect("there is flock").success()
}

fn locks_on_files() {
    let (whole, shared) = (file("whole"), file("shared"));
    flock(&whole, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    flock(&shared, FlockOperation::NonBlockingLockShared).expect("it is free");
    let duplicate = whole.try_clone().expect("a duplicate");
    let (ranges, same) = (file("ranges"), File::open(format!("{}/ranges", folder())));
    let same = same.expect("it is there");
    range(&ranges, libc::F_SETLK, libc::F_WRLCK, 10, 5);
    range(&same, libc::F_SETLK, libc::F_RDLCK, 60, 0);
    range(&ranges, libc::F_OFD_SETLK, libc::F_WRLCK, 30, 7);
    save_point();
    assert!(!may_others("--shared", "whole"));
    assert!(may_others("--shared", "shared") && !may_others("--exclusive", "shared"));
    // A second opening of the file finds the locks of the process, and those of the first opening.
    let asks = |start, len| range(&same, libc::F_OFD_GETLK, libc::F_RDLCK, start, len);
    assert_eq!(asks(0, 10), libc::F_UNLCK);
    assert_eq!(asks(14, 1), libc::F_WRLCK);
    assert_eq!(asks(15, 15), libc::F_UNLCK);
    assert_eq!(asks(36, 1), libc::F_WRLCK);
    let to_write = |start| range(&ranges, libc::F_OFD_GETLK, libc::F_WRLCK, start, 1);
    assert_eq!(to_write(37), libc::F_UNLCK);
    assert_eq!(to_write(1_000_000), libc::F_RDLCK);
    // The duplicate keeps the lock.
    drop(whole);
    assert!(!may_others("--shared", "whole"));
    drop(duplicate);
    assert!(may_others("--exclusive", "whole"));
}

/// A save reads files, and a process that closes a file loses its locks on it.
fn locks_are_not_lost_by_a_save() {
    let readable = file("readable");
    let writable = |name| {
        File::options()
            .append(true)
            .open(format!("{}/{name}", folder()))
    };
    let (other, alone) = (writable("readable"), file("alone"));
    let (other, alone_too) = (other.expect("it is there"), writable("alone"));
    range(&readable, libc::F_SETLK, libc::F_WRLCK, 1, 1);
    range(&other, libc::F_SETLK, libc::F_WRLCK, 3, 1);
    range(&alone, libc::F_SETLK, libc::F_WRLCK, 5, 1);
    save_point();
    let asks = |file: &File, start| range(file, libc::F_OFD_GETLK, libc::F_WRLCK, start, 1);
    assert_eq!(asks(&readable, 1), libc::F_WRLCK);
    assert_eq!(asks(&readable, 3), libc::F_WRLCK);
    assert_eq!(asks(&alone, 5), libc::F_WRLCK);
    drop(alone_too);
    assert_eq!(asks(&alone, 5), libc::F_UNLCK);
}
