//! The process that coordinates an application: a master forks it while it becomes a task, before
//! code of its user runs ([`vm_coordinator`]).
//!
//! A daemon hands a master one end of a socket together with its Welcome; whoever holds it when it is
//! first heard is the coordinator. It is a copy of the master only in its memory: it is forked twice,
//! so it is no child, and the process in between ends without a signal to the master, so that is not
//! disturbed. It has no descriptors but its socket, no signal handlers, no destructors; it runs the
//! coordinator and ends by `_exit`. The calls of the C library that would run code of the user in the
//! copy (`pthread_atfork`, `atexit`) are not used.
//!
//! A process of several threads is not forked: another might hold the allocator's lock for ever in
//! the copy. Then the socket is closed, and the daemon starts a process of its own.
//!
//! The `unsafe` parts here are the forks and what the copies do before the coordinator runs.

use rustix::{
    fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    process::{Pid, WaitOptions},
};
use std::{fs, mem, panic, ptr};

/// The number of the coordinator's socket in its process.
const SOCKET: RawFd = 3;
/// Where `close_range` is refused, numbers of descriptors below this one are closed.
const NUMBERS_MAX: i32 = 1 << 16;
/// Signals are numbered up to here.
const SIGNALS: i32 = 64;

/// Forks the coordinator of this process's application, if it can be; the socket is its.
pub(crate) fn fork(socket: OwnedFd) {
    if !is_alone() {
        return;
    }
    // SAFETY: both sets are written before they are read.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    // No handler of the user's runs in a copy: signals are blocked until it has none.
    match clone() {
        0 => {
            if clone() == 0 {
                become_coordinator(&socket);
            }
            // SAFETY: it takes a number, runs no code of this process and does not return.
            unsafe { libc::_exit(0) }
        }
        between => wait_for(between),
    }
    // SAFETY: the set was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
}

/// Whether this process has one thread.
fn is_alone() -> bool {
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    matches!(threads, Ok(1))
}

/// Forks this process. The end of the copy sends no signal. Returns 0 in the copy, and a negative
/// number on failure.
fn clone() -> i64 {
    // SAFETY: without flags it is a fork: the copy has a memory of its own. This process has one
    // thread, so no lock is held by a thread that the copy lacks.
    unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) }
}

/// Waits for the process in between, which ends at once.
fn wait_for(process: i64) {
    let number = i32::try_from(process).ok().filter(|number| *number > 0);
    let Some(pid) = number.and_then(Pid::from_raw) else {
        return;
    };
    // It sends no signal when it ends, so it is waited for as a clone.
    let clones = WaitOptions::from_bits_retain(libc::__WALL as u32);
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitpid(Some(pid), clones) {}
}

/// In the copy: all that was the master's is let go.
fn become_coordinator(socket: &OwnedFd) -> ! {
    let served = panic::catch_unwind(|| {
        // SAFETY: these calls take numbers and a text that ends; the descriptors are the copy's own,
        // and nothing that knows them runs on here.
        let socket = unsafe {
            for signal in 1..=SIGNALS {
                libc::signal(signal, libc::SIG_DFL);
            }
            let aside = libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, SOCKET + 1);
            let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            for stream in 0..SOCKET {
                libc::dup2(nothing, stream);
            }
            if aside < 0 || libc::dup2(aside, SOCKET) < 0 {
                libc::_exit(1);
            }
            if libc::close_range(SOCKET as u32 + 1, u32::MAX, 0) != 0 {
                // A sandbox, or an old kernel, refuses it.
                for fd in SOCKET + 1..NUMBERS_MAX {
                    libc::close(fd);
                }
            }
            libc::chdir(c"/".as_ptr());
            let mut none: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
            OwnedFd::from_raw_fd(SOCKET)
        };
        let served = vm_coordinator::run(&socket);
        // The end of the process closes it.
        mem::forget(socket);
        served.is_ok()
    });
    let well = matches!(served, Ok(true));
    // SAFETY: it takes a number, runs no code of this process and does not return.
    unsafe { libc::_exit(i32::from(!well)) }
}
