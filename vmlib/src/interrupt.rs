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
//! stop a task with callbacks, until its next call of the library ([`crate::save_in_call`]). An order to send
//! messages again does not wait behind those ([`crate::resend`]).
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
//! The `unsafe` parts here are that handler and its installation.

use crate::{
    checkpointer::Checkpointer,
    daemon_lost::{end_process, end_process_in_handler},
    error::InitError,
    freeze,
    image::{Image, in_section, prepare},
    interrupt_socket::{self, borrowed, heed_resends, interrupt_socket, peek, receive},
    orders::{are_called, is_portable, note_order, order_in, stop_in_calls},
    portable_checkpointer::RUNNING,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    thread::sched_yield,
};
use std::{
    ffi::c_int,
    io, mem,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use vm_wire::interrupt::{ORDER_LEN, ORDER_MAX, Order};

/// The nudge: a standard signal, of which one is enough, and which does nothing to a program that
/// takes the handler away.
const NUDGE: c_int = libc::SIGURG;

/// `fcntl` command of Linux: which signal the socket raises. (Not in the libc crate.)
const F_SETSIG: c_int = 10;

/// The nudge came while this process was within the library.
static LATE: AtomicBool = AtomicBool::new(false);
/// A thread carries out orders.
static CARRIES_OUT: AtomicBool = AtomicBool::new(false);

/// From now on SIGURG makes this process carry out the daemon's orders. If it is not a child of its daemon, the
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
    interrupt_socket::set(data, socket);
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

/// Carries out an order that was read ([`crate::interrupt_socket::last_order`]) of a task that is in a call of the library.
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
        if !is_readable(socket) {
            return true;
        }
    }
    true
}

/// Whether an order is there, or the daemon has died. Another thread may carry out orders.
fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(count) => count > 0,
        Err(error) => error == Errno::INTR,
    }
}

/// Waits until no other thread carries out orders. Those that come to it later find something that keeps
/// them from that.
pub(crate) fn await_carried_out() {
    while CARRIES_OUT.load(SeqCst) {
        sched_yield();
    }
}

/// Notes that there are orders, for the next safe point or the next call; `false` if the daemon has died.
fn note_orders(socket: BorrowedFd<'_>) -> bool {
    match peek(socket, &mut [0; ORDER_LEN]) {
        Ok(0) | Err(Errno::CONNRESET) => return false,
        Ok(_) | Err(Errno::INTR) => note_order(),
        Err(_) => {}
    }
    true
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
            note_order();
            if !are_called() {
                // The program may never make that call.
                heed_resends(socket, &mut packet);
            }
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
    if are_called() {
        return true;
    }
    let mut packet = [0; ORDER_LEN];
    stop_in_calls()
        && peek(socket, &mut packet).is_ok_and(|len| {
            let order = order_in(&packet[..len]);
            matches!(order, Some(Order::Hold | Order::Freeze { .. }))
        })
}

/// The saver of this task while it runs; of a portable task, between its safe points.
fn checkpointer() -> &'static dyn Checkpointer {
    match is_portable() {
        true => &RUNNING,
        false => &Image,
    }
}
