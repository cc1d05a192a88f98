//! Long bodies, which the receiver reads from the sender's memory: one copy.
//!
//! A slot then has the body's address. The sender keeps the body until the receiver has acknowledged
//! it, and its send does not return before: if the receiver does not read for a moment, the chunk goes
//! by the daemon as well. So a body that is lent is never needed after its process has gone on.
//!
//! The process that has the sender's id may be another one by now, or another program. So the same
//! call reads a *cookie* behind the body: a number that the sender has in its own memory.
//!
//! Some systems let only ancestors read a process's memory (the setting `ptrace_scope` 1 of Yama). There
//! the owner names its daemon: the daemon's descendants, which the other tasks are, may read, too. Where
//! the system refuses nevertheless, long bodies go through the lane.
//!
//! The `unsafe` part here is the system call that reads.

use super::room;
use rustix::{
    fd::AsFd,
    io::Errno,
    process::{PTracer, set_ptracer},
};
use std::mem::size_of;
use vm_endpoint::Room;
use vm_local::Peer;

/// Lets the tasks of this host read the memory of this process: those that the daemon at the other end
/// of its data socket has started. A restored process calls this anew.
pub(crate) fn admit_tasks(data: &impl AsFd) {
    if let Ok(Peer {
        process: Some(daemon),
        ..
    }) = vm_local::peer(data)
    {
        // A system without Yama has no such setting, and refuses the call.
        let _ = set_ptracer(PTracer::ProcessID(daemon));
    }
}

/// Bytes of a body from which on it is lent: a system call costs as much as a copy of about so much.
pub(super) const LEND_MIN: usize = 32 * 1024;
/// Bytes of a message from which on its bodies are lent. A shorter one fits into the lane, and its
/// sender does not wait.
pub(super) const LENT_MESSAGE_MIN: u64 = 128 * 1024;

/// Reads `len` bytes from the memory of a process into their room, if the cookie at `at` has that value.
///
/// # Errors
/// The error of the system call; [`Errno::SRCH`] if it is another process.
pub(super) fn read(
    pid: u32,
    address: u64,
    len: usize,
    (at, value): (u64, u64),
    room: Room<'_>,
) -> Result<(), Errno> {
    let mut cookie = 0u64;
    let part = |address: u64, len: usize| libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: len,
    };
    let theirs = [part(address, len), part(at, size_of::<u64>())];
    let write = |to: *mut u8| {
        let ours = [
            part(to as u64, len),
            part(&raw mut cookie as u64, size_of::<u64>()),
        ];
        // SAFETY: there is room for `len` bytes, and for the cookie. The kernel checks the addresses of
        // the other process.
        let count = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, ours.as_ptr(), 2, theirs.as_ptr(), 2, 0)
        };
        let Ok(count) = usize::try_from(count) else {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        };
        match count == len + size_of::<u64>() && cookie == value {
            true => Ok(()),
            false => Err(Errno::SRCH),
        }
    };
    // SAFETY: the call has written all bytes if it has written the cookie, which is behind them.
    unsafe { room::fill(room, len, write) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_only_beside_its_cookie() {
        let body = vec![7u8; LEND_MIN];
        let cookie = 5u64;
        let read = |address: u64, value| {
            let mut into = vec![1];
            let at = (&raw const cookie as u64, value);
            let result = read(
                std::process::id(),
                address,
                body.len(),
                at,
                Room::End(&mut into),
            );
            (result, into.len())
        };
        let address = body.as_ptr() as u64;
        assert_eq!(read(address, 5), (Ok(()), 1 + body.len()));
        assert_eq!(read(address, 6), (Err(Errno::SRCH), 1));
        assert_eq!(read(8, 5), (Err(Errno::FAULT), 1));
    }
}
