//! Opens files with the flags that they had, under the descriptors that they had.
//!
//! **Nothing here allocates or locks.**

use crate::{
    frozen::{
        fault::{Outcome, Step as _},
        file_calls::control,
    },
    raw::{
        records::FileRecord,
        sys::{self, Errno, nr},
    },
};

pub fn duplicate(from: i32, record: &FileRecord) -> Outcome<()> {
    let flags = match record.close_on_exec {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: the number is free or to be replaced.
    let value = unsafe { sys::call3(nr::DUP3, from as usize, record.fd as usize, flags as usize) };
    sys::check(value).step("duplicating a descriptor")?;
    Ok(())
}

/// Moves an open file to the descriptor of its record.
pub fn place(fd: i32, record: &FileRecord) -> Outcome<()> {
    if fd == record.fd as i32 {
        control(fd, libc::F_SETFD, record.close_on_exec as usize).step("setting a flag")?;
        return Ok(());
    }
    let placed = duplicate(fd, record);
    sys::close(fd);
    placed
}

/// Opens a file or device with the flags of its record, except those that would create or truncate
/// it.
pub fn open_again(path: &[u8], record: &FileRecord) -> sys::Result<i32> {
    let mut once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    if record.is_regular() {
        once |= libc::O_TMPFILE;
    }
    let flags = record.flags as i32 & !once | libc::O_CLOEXEC;
    match sys::open(path, flags, 0) {
        // The file system here does not know the flag; reads and writes work without it.
        Err(Errno(libc::EINVAL)) if flags & libc::O_DIRECT != 0 => {
            sys::open(path, flags & !libc::O_DIRECT, 0)
        }
        opened => opened,
    }
}
