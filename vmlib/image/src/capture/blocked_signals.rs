//! Threads that block all signals, and with them the one that stops threads.
//!
//! The C library starts some of these: for timers that start threads, for asynchronous files and
//! look-ups of names. It blocks signals in them by bare calls, so that
//! [`pthread_sigmask`](crate::frozen::interpose) does not see it. What a thread blocks only it or
//! a tracer can change, so a process with such a thread is refused before anything stops.
//!
//! The C library also blocks all signals for a moment, while it makes a thread for instance, and
//! then puts back the mask from before. Such a thread is waited for.
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

/// A thread that blocks the signal for so long does not do it for a moment. Nanoseconds.
const LONG_NS: u64 = 300_000_000;
/// How long a wait lasts before threads are looked at again. Nanoseconds.
const LOOK_NS: u64 = 2_000_000;

/// Makes sure that no thread but this one, and one that is none of the program's, blocks the signal
/// for long.
///
/// # Errors
/// One does.
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

/// Whether a thread that is there blocks the signal.
fn blocks_signal(tid: i32) -> bool {
    let mark = arena::mark();
    // One that has ended has no file.
    let blocked = status(tid).ok().and_then(|status| {
        let blocked = proc::field(status, "SigBlk");
        blocked.and_then(proc::hexadecimal)
    });
    // SAFETY: the file's bytes are not used any more.
    unsafe { arena::release(mark) };
    blocked.is_some_and(|set| set & signal::bit(signal::SIGNAL) != 0)
}

/// What the kernel tells of a thread.
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
