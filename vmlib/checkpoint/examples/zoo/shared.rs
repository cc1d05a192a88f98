//! Memory that several mappings show, of the process's own and of files.
//!
//! Maps memory by hand, so it has unsafe code.

use crate::{
    memory::{PAGE, get, put},
    point::{folder, save_point},
};
use rustix::{
    fs::{self as system, MemfdFlags},
    mm::{self, MapFlags, ProtFlags},
};
use std::{fs, os::fd::AsFd, ptr};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("shared_anonymous", shared_anonymous),
    ("shared_twice", shared_twice),
    ("shared_file", shared_file),
];

const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn shown(file: impl AsFd, pages: usize, from: usize, prot: ProtFlags) -> *mut u8 {
    let (len, offset) = (pages * PAGE, (from * PAGE) as u64);
    // SAFETY: the kernel chooses where, so nothing is replaced.
    unsafe { mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file, offset) }
        .expect("a file can be mapped")
        .cast()
}

/// Some pages touched, some not; it is still shared when the process is copied.
fn shared_anonymous() {
    // SAFETY: the kernel chooses where, so nothing is replaced.
    let memory: *mut u8 =
        unsafe { mm::mmap_anonymous(ptr::null_mut(), 500 * PAGE, BOTH, MapFlags::SHARED) }
            .expect("memory can be had")
            .cast();
    (0..500)
        .step_by(3)
        .for_each(|page| put(memory, page, page as u64 + 1));
    save_point();
    for page in 0..500 {
        let wanted = if page % 3 == 0 { page as u64 + 1 } else { 0 };
        assert_eq!(get(memory, page), wanted, "page {page}");
    }
    // SAFETY: the copy makes bare system calls only, and ends.
    match unsafe { libc::fork() } {
        0 => {
            put(memory, 1, 99);
            // SAFETY: it ends the copy.
            unsafe { libc::_exit(0) }
        }
        child => {
            let pid = rustix::process::Pid::from_raw(child);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())
                .expect("the copy ends");
        }
    }
    assert_eq!(get(memory, 1), 99, "what the copy wrote is not seen");
}

/// What is written by way of one mapping is seen by way of the other, as before.
fn shared_twice() {
    let file = system::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory can be had");
    system::ftruncate(&file, 20 * PAGE as u64).expect("it can grow");
    let whole = shown(&file, 20, 0, BOTH);
    let part = shown(&file, 5, 10, BOTH);
    let reader = shown(&file, 20, 0, ProtFlags::READ);
    drop(file);
    (0..20).for_each(|page| put(whole, page, page as u64 + 40));
    save_point();
    (0..20).for_each(|page| assert_eq!(get(reader, page), page as u64 + 40));
    put(part, 2, 1234);
    assert_eq!((get(whole, 12), get(reader, 12)), (1234, 1234));
    put(whole, 14, 4321);
    assert_eq!(get(part, 4), 4321);
}

/// What is written to a mapped file after it was brought back arrives in the file.
fn shared_file() {
    let path = format!("{}/shared", folder());
    fs::write(&path, vec![1u8; 8 * PAGE]).expect("a file can be written");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path);
    let file = file.expect("it is there");
    let memory = shown(&file, 6, 2, BOTH);
    drop(file);
    put(memory, 0, 55);
    save_point();
    assert_eq!(get(memory, 0), 55);
    put(memory, 5, 66);
    let content = fs::read(&path).expect("it is there");
    assert_eq!(content[2 * PAGE..2 * PAGE + 8], 55u64.to_ne_bytes());
    assert_eq!(content[7 * PAGE..7 * PAGE + 8], 66u64.to_ne_bytes());
}
