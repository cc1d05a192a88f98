//! Memory that several mappings show: shared memory of the process, and files.
//!
//! Maps memory by system calls, so it has unsafe code.

use crate::{
    memory::{PAGE, get, put},
    point::{folder, refused, refused_to_carry, save_point},
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
    ("shared_by_a_child_that_ended", shared_by_a_child_that_ended),
    (
        "shared_and_written_by_descriptor",
        shared_and_written_by_descriptor,
    ),
    ("shared_shown_privately", shared_shown_privately),
    ("deleted_file_shown_read_only", deleted_file_shown_read_only),
    (
        "refused_private_view_of_what_is_written",
        refused_private_view_of_what_is_written,
    ),
];

const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn shown(file: impl AsFd, pages: usize, from: usize, prot: ProtFlags) -> *mut u8 {
    let (len, offset) = (pages * PAGE, (from * PAGE) as u64);
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    unsafe { mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file, offset) }
        .expect("a file can be mapped")
        .cast()
}

/// Some pages are touched, some are not. The memory is still shared with a forked child.
fn shared_anonymous() {
    // SAFETY: the kernel chooses the address, so nothing is replaced.
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
    // SAFETY: the child makes bare system calls only, and ends.
    match unsafe { libc::fork() } {
        0 => {
            put(memory, 1, 99);
            // SAFETY: the call ends the child.
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

/// A write through one mapping shows in the other.
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

/// A write to a mapped file by the restored process reaches the file.
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

fn anonymous(pages: usize) -> *mut u8 {
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    unsafe { mm::mmap_anonymous(ptr::null_mut(), pages * PAGE, BOTH, MapFlags::SHARED) }
        .expect("memory can be had")
        .cast()
}

fn shown_privately(file: impl AsFd, pages: usize, from: usize) -> *mut u8 {
    let (len, offset) = (pages * PAGE, (from * PAGE) as u64);
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    unsafe { mm::mmap(ptr::null_mut(), len, BOTH, MapFlags::PRIVATE, file, offset) }
        .expect("a file can be mapped")
        .cast()
}

/// A child has written pages that this process has not touched.
fn shared_by_a_child_that_ended() {
    let memory = anonymous(40_000);
    // SAFETY: the child writes memory, and ends.
    match unsafe { libc::fork() } {
        0 => {
            (0..40_000)
                .step_by(7)
                .for_each(|page| put(memory, page, page as u64 + 5));
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(0) }
        }
        child => {
            let pid = rustix::process::Pid::from_raw(child);
            rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())
                .expect("the copy ends");
        }
    }
    save_point();
    for page in 0..40_000 {
        let wanted = if page % 7 == 0 { page as u64 + 5 } else { 0 };
        assert_eq!(get(memory, page), wanted, "page {page}");
    }
}

/// The memory was written through a descriptor before it was mapped. Addresses behind its end
/// cannot be accessed.
fn shared_and_written_by_descriptor() {
    let file = system::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory can be had");
    rustix::io::write(&file, &[7; 3 * PAGE]).expect("it can be written");
    let memory = shown(&file, 5, 0, BOTH);
    drop(file);
    save_point();
    (0..3).for_each(|page| assert_eq!(get(memory, page), 0x0707_0707_0707_0707, "{page}"));
}

/// Shared memory that is left with a private mapping only.
fn shared_shown_privately() {
    let memory = anonymous(5);
    (0..5).for_each(|page| put(memory, page, page as u64 + 11));
    let (at, end) = (memory as usize, memory as usize + 5 * PAGE);
    let name = format!("/proc/self/map_files/{at:x}-{end:x}");
    // Opening the file requires a privilege that few users have.
    let view = match fs::File::open(name) {
        Ok(file) => shown_privately(&file, 4, 1),
        Err(_) => {
            save_point();
            return;
        }
    };
    put(view, 1, 99);
    // SAFETY: no code uses the memory any more.
    unsafe { mm::munmap(memory.cast(), 5 * PAGE) }.expect("it was mapped");
    save_point();
    assert_eq!([0, 1, 2, 3].map(|page| get(view, page)), [12, 99, 14, 15]);
}

/// A restored private mapping would not show later writes.
fn refused_private_view_of_what_is_written() {
    let file = system::memfd_create("zoo", MemfdFlags::CLOEXEC).expect("memory can be had");
    system::ftruncate(&file, 4 * PAGE as u64).expect("it can grow");
    let view = shown_privately(&file, 4, 0);
    refused_to_carry("is mapped privately at 0x");
    refused_to_carry("can be written by descriptor");
    let memory = shown(&file, 4, 0, BOTH);
    drop(file);
    refused("can be written by way of its shared mapping at 0x");
    // SAFETY: no code uses the memory any more.
    unsafe { mm::munmap(memory.cast(), 4 * PAGE) }.expect("it was mapped");
    put(view, 1, 5);
    // No descriptor or mapping can write the memory any more.
    save_point();
    assert_eq!([0, 1].map(|page| get(view, page)), [0, 5]);
}

/// A library or a cache was replaced by another file, and the old file is still read.
fn deleted_file_shown_read_only() {
    let path = format!("{}/read only", folder());
    let content: Vec<u8> = (0..3 * PAGE + 100).map(|at| (at / 7) as u8).collect();
    fs::write(&path, &content).expect("a file can be written");
    let file = fs::File::open(&path).expect("it is there");
    let whole = shown(&file, 5, 0, ProtFlags::READ);
    let part = shown(&file, 1, 2, ProtFlags::READ);
    fs::remove_file(&path).expect("it is there");
    drop(file);
    save_point();
    // SAFETY: so many bytes are mapped, up to the file's end.
    let found = unsafe { std::slice::from_raw_parts(whole, content.len()) };
    assert_eq!(found, content);
    // SAFETY: one page.
    let found = unsafe { std::slice::from_raw_parts(part, PAGE) };
    assert_eq!(found, &content[2 * PAGE..3 * PAGE]);
}
