//! The interrupt socket: orders to the library itself, and the daemon's end.
//!
//! A task has a second socket to its daemon, on which nothing travels but orders that concern the
//! task as a process and what it reports of them ([`vm_wire::interrupt`]); answers and messages
//! never do, so the socket is silent while a task merely works. It is received with the Welcome.
//! Every wait of the library watches it together with the data socket
//! ([`crate::link::Sockets::wait`]); a task that computes is interrupted by a signal, the *nudge*,
//! which the daemon sends after an order. An order stays in the socket until it is carried out
//! ([`crate::freeze`]), so none is lost: a thread that is within the library then heeds it when it
//! has let go of the library's state. The orders of a portable task stay there until its program has
//! come to a safe point, and only that they are there is noted ([`crate::portable`]); likewise those to
//! stop a task with callbacks, until its next call of the library ([`crate::callbacks`]).
//!
//! The socket's end of file means that the daemon has died. The task dies with it, all threads at
//! once and without cleaning up: the machine may declare it dead and start what it did again
//! elsewhere, so it must not act any more.
//!
//! A task that computes waits in no call. One that its daemon started is ended by the kernel, as a
//! child whose parent died. A master that was started from a shell is not the daemon's child: for
//! it, the socket itself raises the nudge when something happens to it, and the handler ends the
//! process if that was the end. The handler may run at any instruction: it allocates nothing and
//! locks nothing.
//!
//! The `unsafe` parts here are that handler, its installation, the descriptors that it knows by
//! number, and those that a process is handed over.

use crate::{
    callbacks,
    checkpointer::checkpointer,
    daemon_lost::{end_process, end_process_in_handler},
    error::InitError,
    freeze,
    image::{in_section, prepare},
    portable,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    io::{Errno, FdFlags},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg},
    thread::sched_yield,
};
use std::{
    ffi::c_int,
    io::{self, IoSliceMut},
    mem::{self, MaybeUninit},
    sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst},
};
use vm_wire::interrupt::{ORDER_LEN, ORDER_MAX, Order};

/// The nudge: a standard signal, of which one is enough, and which does nothing to a program that
/// takes the handler away.
const NUDGE: c_int = libc::SIGURG;

/// `fcntl` command of Linux: which signal the socket raises. (Not in the libc crate.)
const F_SETSIG: c_int = 10;

/// The sockets of this process, for the handler.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static DATA: AtomicI32 = AtomicI32::new(-1);
/// The nudge came while this process was within the library.
static LATE: AtomicBool = AtomicBool::new(false);
/// A thread carries out orders.
static CARRIES_OUT: AtomicBool = AtomicBool::new(false);

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

/// What this process was handed under that number when it was started; taken once.
pub(crate) fn handed_over(number: RawFd) -> Result<OwnedFd, Errno> {
    // Not for programs that this one starts.
    // SAFETY: it is borrowed for this call alone, which finds out whether it is open.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: whoever started this process has put it there for `init`, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// From now on the nudge makes this process heed orders. If it is not a child of its daemon, the
/// socket itself raises it (`at_end`). The sockets are not closed before the process ends.
pub(crate) fn watch(
    data: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    at_end: bool,
) -> Result<(), InitError> {
    let check = |step, result: c_int| match result {
        -1 => Err(InitError::System {
            step,
            cause: io::Error::last_os_error(),
        }),
        _ => Ok(()),
    };
    prepare();
    // A process that was forked meanwhile, and enrols by itself, has no other thread.
    CARRIES_OUT.store(false, SeqCst);
    DATA.store(data.as_raw_fd(), SeqCst);
    SOCKET.store(socket.as_raw_fd(), SeqCst);
    // SAFETY: an all-zero sigset_t and sigaction are valid values, which the calls overwrite or
    // read; the handler only makes system calls that are allowed in one.
    unsafe {
        let mut blocked: libc::sigset_t = mem::zeroed();
        let none = std::ptr::null();
        check(
            "looking which signals are blocked",
            libc::pthread_sigmask(libc::SIG_BLOCK, none, &mut blocked),
        )?;
        if at_end && libc::sigismember(&blocked, NUDGE) == 1 {
            return Err(InitError::NudgeBlocked);
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = nudged as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        check(
            "installing the signal handler",
            libc::sigaction(NUDGE, &action, std::ptr::null_mut()),
        )?;
    }
    if !at_end {
        return Ok(());
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

/// An order came, the daemon has died, or the user raised the signal.
extern "C" fn nudged(_: c_int) {
    if in_section() {
        LATE.store(true, SeqCst);
        return;
    }
    let socket = interrupt_socket();
    if socket >= 0 && !read_orders(borrowed(socket)) {
        end_process_in_handler()
    }
}

/// Heeds what came while this thread was within the library.
pub(crate) fn heed_late() {
    if LATE.load(SeqCst) && !in_section() {
        LATE.store(false, SeqCst);
        heed(borrowed(interrupt_socket()));
    }
}

/// Heeds what is in the interrupt socket. Does not return if the daemon has died.
pub(crate) fn heed(socket: BorrowedFd<'_>) {
    if !as_in_handler(|| read_orders(socket)) {
        end_process()
    }
}

/// Carries out an order that was read ([`last_order`]) of a task that is in a call of the library.
pub(crate) fn carry_out(packet: &[u8], image: Option<OwnedFd>) {
    as_in_handler(|| freeze::heed(checkpointer(), packet, image));
}

/// As in the handler: nothing comes in between.
fn as_in_handler<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written before they are read.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let done = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

/// Carries out the orders that have come; `false` if the daemon has died. One thread does it at a
/// time, for what it begins has to be over before the next order: another one leaves its share to it.
fn read_orders(socket: BorrowedFd<'_>) -> bool {
    if !checkpointer().stop() {
        return note_orders(socket);
    }
    while !CARRIES_OUT.swap(true, SeqCst) {
        let read = read_orders_alone(socket);
        CARRIES_OUT.store(false, SeqCst);
        match read {
            Read::All => {}
            Read::Left => return true,
            Read::Ended => return false,
        }
        // Whoever left something to this thread may have seen it too late.
        match peek(socket, &mut [0; ORDER_LEN]) {
            Ok(_) | Err(Errno::CONNRESET | Errno::INTR) => {}
            Err(_) => return true,
        }
    }
    true
}

/// Waits until no other thread carries out orders. Those that come to it later find something that keeps
/// them from that.
pub(crate) fn await_carried_out() {
    while CARRIES_OUT.load(SeqCst) {
        sched_yield();
    }
}

/// Looks at the next order, which stays there, without its folders. Its bytes; 0 if the daemon has died.
fn peek(socket: BorrowedFd<'_>, packet: &mut [u8; ORDER_LEN]) -> Result<usize, Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    recv(socket, packet, flags).map(|(len, _)| len)
}

/// Notes that there are orders, for the next safe point or the next call; `false` if the daemon has died.
fn note_orders(socket: BorrowedFd<'_>) -> bool {
    match peek(socket, &mut [0; ORDER_LEN]) {
        Ok(0) | Err(Errno::CONNRESET) => return false,
        Ok(_) | Err(Errno::INTR) => portable::note_order(),
        Err(_) => {}
    }
    true
}

/// The last order that came, of a task at a safe point or in a call: those before it were taken back. Does not
/// return if the daemon has died.
pub(crate) fn last_order(packet: &mut [u8; ORDER_MAX]) -> Option<(usize, Option<OwnedFd>)> {
    let mut last = None;
    let mut room = [0; ORDER_MAX];
    loop {
        match receive(borrowed(interrupt_socket()), &mut room) {
            Ok((0, _)) | Err(Errno::CONNRESET) => end_process(),
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

/// How far orders were read.
enum Read {
    /// No order is left.
    All,
    /// The next one is left for a call of the library, and noted.
    Left,
    /// The daemon has died.
    Ended,
}

fn read_orders_alone(socket: BorrowedFd<'_>) -> Read {
    let mut packet = [0; ORDER_MAX];
    loop {
        if is_for_call(socket) {
            portable::note_order();
            return Read::Left;
        }
        match receive(socket, &mut packet) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Read::Ended,
            Ok((len, descriptor)) => freeze::heed(checkpointer(), &packet[..len], descriptor),
            Err(Errno::INTR) => {}
            // Nothing there; another error is found by the next wait.
            Err(_) => return Read::All,
        }
    }
}

/// Whether the next order is one for which callbacks are called, or all are their caller's.
fn is_for_call(socket: BorrowedFd<'_>) -> bool {
    if callbacks::are_called() {
        return true;
    }
    let mut packet = [0; ORDER_LEN];
    callbacks::stop_in_calls()
        && peek(socket, &mut packet).is_ok_and(|len| {
            let order = portable::order_in(&packet[..len]);
            matches!(order, Some(Order::Hold | Order::Freeze { .. }))
        })
}

/// Receives a packet, and a descriptor that comes along.
fn receive(socket: BorrowedFd<'_>, packet: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
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
