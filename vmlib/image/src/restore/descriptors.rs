//! Opens files again and gives them the descriptors that they had.
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

/// Gives an open file the number that it had.
pub fn place(fd: i32, record: &FileRecord) -> Outcome<()> {
    if fd == record.fd as i32 {
        control(fd, libc::F_SETFD, record.close_on_exec as usize).step("setting a flag")?;
        return Ok(());
    }
    let placed = duplicate(fd, record);
    sys::close(fd);
    placed
}

/// Opens a file or device as it was open; what made or emptied it then does not do so again.
pub fn open_again(path: &[u8], record: &FileRecord) -> sys::Result<i32> {
    let mut once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    if record.is_regular() {
        once |= libc::O_TMPFILE;
    }
    let flags = record.flags as i32 & !once | libc::O_CLOEXEC;
    match sys::open(path, flags, 0) {
        // The file system here knows nothing of it: without, reads and writes do the same.
        Err(Errno(libc::EINVAL)) if flags & libc::O_DIRECT != 0 => {
            sys::open(path, flags & !libc::O_DIRECT, 0)
        }
        opened => opened,
    }
}
