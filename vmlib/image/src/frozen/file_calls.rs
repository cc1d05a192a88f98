//! System calls on open files and paths.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    frozen::fault::{Outcome, Step as _},
    raw::sys::{self, Errno, nr},
};

/// The state of an open file, with a step for the error.
pub fn status(fd: i32) -> Outcome<libc::stat> {
    stat(fd).step("looking at an open file")
}

/// The state of an open file.
pub fn stat(fd: i32) -> sys::Result<libc::stat> {
    // SAFETY: zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes it.
    let value = unsafe { sys::call2(nr::FSTAT, fd as usize, &raw mut stat as usize) };
    sys::check(value).map(|_| stat)
}

/// The state of the file at a path, which is not ended by NUL.
pub fn stat_path(path: &[u8]) -> sys::Result<libc::stat> {
    const STAT: usize = 4;
    let mut ended = [0u8; libc::PATH_MAX as usize + 1];
    let Some(place) = ended[..libc::PATH_MAX as usize].get_mut(..path.len()) else {
        return Err(Errno(libc::ENAMETOOLONG));
    };
    place.copy_from_slice(path);
    // SAFETY: zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is ended by NUL, and the kernel writes the state.
    let value = unsafe { sys::call2(STAT, ended.as_ptr() as usize, &raw mut stat as usize) };
    sys::check(value).map(|_| stat)
}

pub fn seek(fd: i32, at: u64, whence: i32) -> sys::Result<u64> {
    // SAFETY: the call moves the position of a file that no other code reads.
    let value = unsafe { sys::call3(nr::LSEEK, fd as usize, at as usize, whence as usize) };
    sys::check(value).map(|at| at as u64)
}

/// Reads until the buffer is full or the file ends.
pub fn read_at(fd: i32, at: u64, buffer: &mut [u8]) -> sys::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        let (to, from) = (buffer[len..].as_mut_ptr() as usize, at as usize + len);
        let want = buffer.len() - len;
        // SAFETY: the kernel writes into the buffer.
        match sys::check(unsafe { sys::call4(nr::PREAD64, fd as usize, to, want, from) }) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(sys::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Truncates a file, or extends it by a hole.
pub fn set_len(fd: i32, size: u64) -> sys::Result<()> {
    // SAFETY: the call changes the length of a file.
    sys::check(unsafe { sys::call2(nr::FTRUNCATE, fd as usize, size as usize) }).map(|_| ())
}

pub fn write_at(fd: i32, at: u64, bytes: &[u8]) -> sys::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let (from, len) = (bytes[done..].as_ptr() as usize, bytes.len() - done);
        // SAFETY: the bytes are only read.
        let value = unsafe { sys::call4(nr::PWRITE64, fd as usize, from, len, at as usize + done) };
        match sys::check(value) {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(count) => done += count,
            Err(sys::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads or sets flags of a descriptor.
pub fn control(fd: i32, command: i32, argument: usize) -> sys::Result<usize> {
    // SAFETY: only commands that read or set flags are used.
    sys::check(unsafe { sys::call3(nr::FCNTL, fd as usize, command as usize, argument) })
}

pub fn position(fd: i32) -> u64 {
    // SAFETY: the call moves nothing.
    let at = unsafe { sys::call3(nr::LSEEK, fd as usize, 0, libc::SEEK_CUR as usize) };
    u64::try_from(at).unwrap_or(0)
}

/// Sets the position of a file, if it has one.
pub fn set_position(fd: i32, offset: u64) {
    // SAFETY: the call sets the position.
    unsafe { sys::call3(nr::LSEEK, fd as usize, offset as usize, 0) };
}

/// The process and user at the other end of a UNIX socket. Process 0: it is outside of this pid
/// namespace.
pub fn peer(socket: i32) -> sys::Result<libc::ucred> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as u32;
    let (level, option) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
    let (to, len) = (&raw mut peer as usize, &raw mut len as usize);
    // SAFETY: the kernel writes the credentials and their length.
    let told = unsafe { sys::call5(nr::GETSOCKOPT, socket as usize, level, option, to, len) };
    sys::check(told).map(|_| peer)
}
