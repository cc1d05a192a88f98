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

use crate::error::LinkError;
use rustix::{
    fd::BorrowedFd,
    io::Errno,
    net::{RecvFlags, recv},
};
use std::io::Write;

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
