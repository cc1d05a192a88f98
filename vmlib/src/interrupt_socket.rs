//! The interrupt socket of this process, for signal handlers: its number, and the packets in it.
//!
//! **Used in signal handlers**: nothing here allocates or locks. The `unsafe` parts here are the
//! descriptors that are known by number, those that a process is handed over, and an option of the socket.

use crate::{daemon_lost::end_process, resend};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    io::{Errno, FdFlags},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg},
};
use std::{
    ffi::c_int,
    io::IoSliceMut,
    mem::MaybeUninit,
    sync::atomic::{AtomicI32, Ordering::SeqCst},
};
use vm_wire::interrupt::{ORDER_LEN, ORDER_MAX};

/// The sockets of this process, for the handler.
static SOCKET: AtomicI32 = AtomicI32::new(-1);

static DATA: AtomicI32 = AtomicI32::new(-1);

/// Makes these the sockets of this process. The task keeps both open until its process ends.
pub(crate) fn set(data: BorrowedFd<'_>, interrupt: BorrowedFd<'_>) {
    DATA.store(data.as_raw_fd(), SeqCst);
    SOCKET.store(interrupt.as_raw_fd(), SeqCst);
}

/// The number of the interrupt socket, or -1.
pub(crate) fn interrupt_socket() -> RawFd {
    SOCKET.load(SeqCst)
}

/// The number of the data socket, or -1.
#[cfg(target_arch = "x86_64")]
pub(crate) fn data_socket() -> RawFd {
    DATA.load(SeqCst)
}

/// One of them.
pub(crate) fn borrowed(socket: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the task keeps both open until its process ends.
    unsafe { BorrowedFd::borrow_raw(socket) }
}

/// Takes the descriptor that this process was handed under that number when it was started. Called once
/// for each number.
pub(crate) fn handed_over(number: RawFd) -> Result<OwnedFd, Errno> {
    // Not for programs that this one starts.
    // SAFETY: it is borrowed for this call alone, which finds out whether it is open.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: whoever started this process has put it there for `init`, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Looks at the next order, which stays there, without its folders. Its bytes; 0 if the daemon has died.
pub(crate) fn peek(socket: BorrowedFd<'_>, packet: &mut [u8; ORDER_LEN]) -> Result<usize, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    recv(socket, packet, flags).map(|(len, _)| len)
}

/// Carries out the orders to send again, behind orders that wait for a call of the task: those orders
/// and these stay in the socket, and these are carried out once more with them, which sends nothing
/// twice. The caller is the only thread that looks at orders. A kernel that cannot show what is behind
/// the first packet leaves these orders to that call, too.
pub(crate) fn heed_resends(socket: BorrowedFd<'_>, packet: &mut [u8; ORDER_MAX]) {
    // From now on each look goes past the packets of the looks before, which it gets whole.
    if set_peek_offset(socket, 0) {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        while let Ok((len @ 1.., _)) = recv(socket, &mut packet[..], flags) {
            resend::heed_order(&packet[..len]);
        }
        set_peek_offset(socket, -1);
    }
}

/// Sets how many bytes a look passes over; -1: none, in every look. `false` if that is impossible.
fn set_peek_offset(socket: BorrowedFd<'_>, offset: c_int) -> bool {
    let len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the option has an int, which is there during the call.
    let result = unsafe {
        let value: *const c_int = &offset;
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            value.cast(),
            len,
        )
    };
    result == 0
}

/// The last order that came, of a task at a safe point or in a call: those before it were taken back. Does not
/// return if the daemon has died.
pub(crate) fn last_order(packet: &mut [u8; ORDER_MAX]) -> Option<(usize, Option<OwnedFd>)> {
    let mut last = None;
    let mut room = [0; ORDER_MAX];
    loop {
        match receive(borrowed(interrupt_socket()), &mut room) {
            Ok((0, _)) | Err(Errno::CONNRESET) => end_process(),
            Ok((len, _)) if resend::heed_order(&room[..len]) => {}
            Ok((len, descriptor)) => {
                *packet = room;
                last = Some((len, descriptor));
            }
            Err(Errno::INTR) => {}
            // Nothing there; another error is found by the next wait.
            Err(_) => return last,
        }
    }
}

/// The order that follows, of a task that stands where it was told to. Does not return
/// if the daemon has died.
pub(crate) fn next_order(packet: &mut [u8; ORDER_MAX]) -> (usize, Option<OwnedFd>) {
    loop {
        if let Some(order) = last_order(packet) {
            return order;
        }
        let socket = borrowed(interrupt_socket());
        // An error is found by the next look.
        let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], None);
    }
}

/// Receives a packet, and a descriptor that comes along.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(packet)], &mut control, flags)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptor = descriptors.last();
        }
    }
    Ok((received.bytes, descriptor))
}
