//! Opens all files of a process that is being restored: files by their paths or from carried
//! content, pipes, devices, and duplicates of descriptors.
//!
//! **Nothing here allocates or locks.**

use crate::{
    capture::{files::stream_for, proc::NumberPath},
    frozen::{
        fault::{Outcome, Shown, Step as _, Text},
        file_calls::{control, set_position},
    },
    raw::{
        records::{FD_DEVICE, FD_INHERITED, FD_KERNEL, FD_PIPE, FILES_MAX, FileRecord},
        sys::{self, nr},
    },
    restore::{
        descriptors::{duplicate, open_again, place},
        reopen::Files,
    },
};

/// Opens all descriptors of a process that has only 0, 1, 2 and the file with the carried content
/// open.
pub fn restore(files: &Files<'_>) -> Outcome<()> {
    let (records, names) = (files.records, files.names);
    files.open()?;
    if files.contents >= 0 {
        sys::close(files.contents);
    }
    for record in records.iter().filter(|record| record.original == record.fd) {
        match record.kind {
            FD_DEVICE | FD_KERNEL => reopen(record, names)?,
            FD_PIPE => remake_pipe(record, records)?,
            _ => {}
        }
    }
    for record in records.iter().filter(|record| record.original != record.fd) {
        duplicate(record.original as i32, record)?;
    }
    for record in records.iter().filter(|record| record.kind == FD_INHERITED) {
        if record.original == record.fd && record.fd > 2 {
            // A terminal that the process had opened once more is replaced by a stream.
            duplicate(stream_for(record, records).unwrap_or(0) as i32, record)?;
        }
    }
    Ok(())
}

/// Opens a device, or a file of the kernel's (`/proc`, `/sys`).
fn reopen(record: &FileRecord, names: &[u8]) -> Outcome<()> {
    let at = record.name.at as usize;
    let path = &names[at..at + record.name.len as usize + 1];
    let shown = Shown(&path[..path.len() - 1]);
    let opened = open_again(path, record);
    let text = Text::of(format_args!(
        "opening {shown} again, descriptor {}",
        record.fd
    ));
    let fd = opened.step(text.as_str())?;
    if record.kind == FD_KERNEL {
        set_position(fd, record.offset);
    }
    place(fd, record)
}

/// Makes the pipe that a record belongs to. The record of the pipe's reading end does that, for
/// both ends.
fn remake_pipe(record: &FileRecord, all: &[FileRecord]) -> Outcome<()> {
    let is_reader = |record: &FileRecord| record.flags & libc::O_ACCMODE as u32 == 0;
    if !is_reader(record) {
        return Ok(());
    }
    let is_first = |other: &&FileRecord| {
        other.original == other.fd && other.kind == FD_PIPE && other.inode == record.inode
    };
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    let made = unsafe {
        sys::call2(
            nr::PIPE2,
            ends.as_mut_ptr() as usize,
            libc::O_CLOEXEC as usize,
        )
    };
    sys::check(made).step("making a pipe")?;
    // The new ends are moved above the numbers that the records need.
    for end in &mut ends {
        let high = control(*end, libc::F_DUPFD_CLOEXEC, FILES_MAX).or_else(|_| {
            let highest = all
                .iter()
                .map(|record| record.fd as usize)
                .max()
                .unwrap_or(0);
            control(*end, libc::F_DUPFD_CLOEXEC, highest + 1)
        });
        let high = high.step("making a pipe")?;
        sys::close(*end);
        *end = high as i32;
    }
    if record.content_len > 0 {
        let len = record.content_len as usize;
        let _ = control(ends[1], libc::F_SETPIPE_SZ, len.max(1 << 16));
        // SAFETY: the content is in the image's memory, which the plan keeps.
        let content = unsafe { std::slice::from_raw_parts(record.content as *const u8, len) };
        sys::write(ends[1], content).step("filling a pipe")?;
    }
    for other in all.iter().filter(is_first) {
        // Each descriptor has its own flags, also where one end was opened more than once.
        let path = NumberPath::new("/proc/self/fd/", ends[usize::from(!is_reader(other))], "");
        let way = other.flags as i32 & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_CLOEXEC;
        let text = Text::of(format_args!(
            "opening a pipe again, descriptor {}",
            other.fd
        ));
        let fd = sys::open(path.bytes(), way, 0).step(text.as_str())?;
        let set = control(fd, libc::F_SETFL, other.flags as usize);
        set.step(text.as_str())?;
        place(fd, other)?;
    }
    sys::close(ends[0]);
    sys::close(ends[1]);
    Ok(())
}
