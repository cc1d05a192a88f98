//! Refuses a process with threads that block the signal which stops threads.
//!
//! The C library starts some threads that block all signals: for timers that start threads, for
//! asynchronous file access, and for look-ups of names. The C library blocks the signals by bare
//! system calls, which [`pthread_sigmask`](crate::frozen::interpose) does not see. Only the thread
//! itself or a tracer can change the thread's mask, so a process with such a thread is refused
//! before anything stops.
//!
//! The C library also blocks all signals for a moment, while it makes a thread for instance, and
//! then restores the mask. This module waits for such a thread.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::proc::{self, NumberPath},
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, refuse},
        signal,
    },
    raw::{records::THREADS_MAX, sys},
};

/// A thread that blocks the signal longer than this is refused. Nanoseconds.
const LONG_NS: u64 = 300_000_000;
/// The interval of the checks while a thread blocks the signal. Nanoseconds.
const LOOK_NS: u64 = 2_000_000;

/// Waits until no thread blocks the signal, except the calling thread and `left_out`, which is not
/// the program's.
///
/// # Errors
/// A thread blocks the signal for long.
pub fn refuse_any(limit_ns: u64, left_out: i32) -> Outcome<()> {
    let me = sys::gettid();
    // SAFETY: numbers.
    let mut all = unsafe { List::<i32>::new(THREADS_MAX)? };
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        match tid != me && tid != left_out && blocks_signal(tid) {
            true => all.push(tid, "threads"),
            false => Ok(()),
        }
    })?;
    let began = sys::clock_ns(libc::CLOCK_MONOTONIC);
    for &tid in all.all() {
        while blocks_signal(tid) {
            if sys::clock_ns(libc::CLOCK_MONOTONIC) - began > LONG_NS.min(limit_ns) {
                return refused(tid);
            }
            sys::pause_ns(LOOK_NS);
        }
    }
    Ok(())
}

/// Whether a thread exists and blocks the signal.
fn blocks_signal(tid: i32) -> bool {
    let mark = arena::mark();
    // A thread that has ended has no file.
    let blocked = status(tid).ok().and_then(|status| {
        let blocked = proc::field(status, "SigBlk");
        blocked.and_then(proc::hexadecimal)
    });
    // SAFETY: the file's bytes are not used any more.
    unsafe { arena::release(mark) };
    blocked.is_some_and(|set| set & signal::bit(signal::SIGNAL) != 0)
}

/// The kernel's status of a thread, as text.
fn status(tid: i32) -> Outcome<&'static [u8]> {
    let path = NumberPath::new("/proc/self/task/", tid, "/status");
    proc::read_file(path.bytes(), "looking at a thread")
}

fn refused(tid: i32) -> Outcome<()> {
    let status = status(tid)?;
    let field = |name| Shown(proc::field(status, name).unwrap_or(b"?"));
    refuse!(
        "the thread {tid} ({}, state {}) blocks signal {}, which stops threads",
        field("Name"),
        field("State"),
        signal::SIGNAL
    )
}
