//! The interrupt socket: orders to the library itself, and the daemon's end.
//!
//! A task has a second socket to its daemon, on which nothing travels but orders that concern the
//! task as a process; answers and messages never do, so the socket is silent while a task merely
//! works. It is received with the Welcome. Every wait of the library watches it together with the
//! data socket ([`crate::link::Sockets::wait`]), so an order ends every wait; the primitive that
//! waited then tries again from its state, as if it had just been called.
//!
//! An order is one packet and begins with its number, 64 bits little-endian, which goes up. A
//! number that was seen before is stale: the order was repeated, and is dropped. This release
//! knows no order; one that comes is noted, ends the wait, and changes nothing.
//!
//! The socket's end of file means that the daemon has died. The task dies with it, all threads at
//! once and without cleaning up: the machine may declare it dead and start what it did again
//! elsewhere, so it must not act any more.
//!
//! A task that computes waits in no call. One that its daemon started is ended by the kernel, as a
//! child whose parent died. A master that was started from a shell is not the daemon's child: for
//! it, the socket itself raises a signal, the *nudge*, when something happens to it, and the
//! handler ends the process if that was the end. The handler may run at any instruction: it
//! allocates nothing and locks nothing.
//!
//! The `unsafe` parts here are that handler, its installation, and the end of the process.

use crate::error::{InitError, LinkError};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsRawFd, BorrowedFd, RawFd},
    io::Errno,
    net::{RecvFlags, recv},
};
use std::{
    ffi::c_int,
    io::{self, Write},
    mem,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

/// What the process of a task exits with when its daemon has died: `EX_TEMPFAIL`, try again later.
pub const STATUS_DAEMON_LOST: i32 = 75;

/// Longest packet that is read whole; the rest of a longer one is cut off, its number is not.
const ORDER_MAX: usize = 256;

/// What the task has done about orders so far.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// Number of the last order.
    heeded: u64,
}

impl Interrupt {
    /// Reads what is there; the socket does not block. Does not return if the daemon has died.
    pub(crate) fn heed(&mut self, socket: BorrowedFd<'_>) -> Result<(), LinkError> {
        let mut packet = [0; ORDER_MAX];
        loop {
            match recv(socket, &mut packet, RecvFlags::DONTWAIT) {
                Ok((0, _)) => daemon_lost(),
                Ok((len, _)) => self.order(&packet[..len]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => daemon_lost(),
                Err(cause) => {
                    let step = "reading the interrupt socket";
                    return Err(LinkError::System { step, cause });
                }
            }
        }
    }

    /// Notes an order, unless it is stale.
    fn order(&mut self, packet: &[u8]) {
        let Some(number) = packet.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            log::warn!("an order of {} bytes has no number: dropped", packet.len());
            return;
        };
        if number <= self.heeded {
            log::debug!("order {number} is stale: dropped");
            return;
        }
        self.heeded = number;
        log::debug!("order {number} is none that this release knows");
    }
}

/// Ends the process, because its daemon has died.
pub(crate) fn daemon_lost() -> ! {
    // Nobody may be there to read it.
    let _ = writeln!(
        std::io::stderr(),
        "vmlib: the daemon of this host has ended, and so does this task"
    );
    // SAFETY: _exit takes no pointers, runs no code of this process and does not return.
    unsafe { libc::_exit(STATUS_DAEMON_LOST) }
}

/// The nudge: a standard signal, of which one is enough, and which does nothing to a program that
/// takes the handler away.
const NUDGE: c_int = libc::SIGURG;

/// `fcntl` command of Linux: which signal the socket raises. (Not in the libc crate.)
const F_SETSIG: c_int = 10;

/// The interrupt socket of this process, for the handler.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// Lets the socket nudge this process, which is not a child of its daemon. The socket is not closed
/// before the process ends.
pub(crate) fn nudge_at_end(socket: BorrowedFd<'_>) -> Result<(), InitError> {
    let check = |step, result: c_int| match result {
        -1 => Err(InitError::System {
            step,
            cause: io::Error::last_os_error(),
        }),
        _ => Ok(()),
    };
    SOCKET.store(socket.as_raw_fd(), Relaxed);
    // SAFETY: an all-zero sigset_t and sigaction are valid values, which the calls overwrite or
    // read; the handler only makes system calls that are allowed in one.
    unsafe {
        let mut blocked: libc::sigset_t = mem::zeroed();
        let none = std::ptr::null();
        check(
            "looking which signals are blocked",
            libc::pthread_sigmask(libc::SIG_BLOCK, none, &mut blocked),
        )?;
        if libc::sigismember(&blocked, NUDGE) == 1 {
            return Err(InitError::NudgeBlocked);
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = nudged as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        check(
            "installing the signal handler",
            libc::sigaction(NUDGE, &action, std::ptr::null_mut()),
        )?;
    }
    let set = |command, value: c_int| {
        // SAFETY: these commands take a number and no pointer.
        let result = unsafe { libc::fcntl(socket.as_raw_fd(), command, value) };
        check("asking for a signal at the daemon's end", result)
    };
    set(F_SETSIG, NUDGE)?;
    set(libc::F_SETOWN, std::process::id() as c_int)?;
    set(libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK)
}

/// Something happened to the interrupt socket, or the user raised the signal.
extern "C" fn nudged(_: c_int) {
    let socket: RawFd = SOCKET.load(Relaxed);
    // SAFETY: the task keeps the socket open until its process ends.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let mut fds = [PollFd::new(&socket, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::HUP) {
        // SAFETY: _exit takes no pointers, runs no code of this process and does not return.
        unsafe { libc::_exit(STATUS_DAEMON_LOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn an_order_is_heeded_once_and_a_stale_one_never() {
        let (daemon, task) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut interrupt = Interrupt::default();
        interrupt.heed(task.as_fd()).unwrap();
        assert_eq!(interrupt.heeded, 0);

        for number in [3u64, 2] {
            send(&daemon, &number.to_le_bytes(), SendFlags::empty()).unwrap();
        }
        send(&daemon, b"short", SendFlags::empty()).unwrap();
        interrupt.heed(task.as_fd()).unwrap();
        assert_eq!(interrupt.heeded, 3);
    }
}
