//! Threads that block all signals, and with them the one that stops threads.
//!
//! The C library starts some of these: for timers that start threads, for asynchronous files and
//! look-ups of names. It blocks signals in them by bare calls, so that
//! [`pthread_sigmask`](crate::interpose) does not see it. What a thread blocks only a tracer can
//! change, and no process can trace itself: a copy of it, which shares its memory, does it, before
//! anything is stopped. The signal stays open in them from then on.
//!
//! A thread that blocks all signals for a moment - each does while it is made - is left alone.
//!
//! **Runs in signal handlers**: everything here allocates nothing and locks nothing.

use crate::{
    arena::List,
    fault::{Outcome, Shown, Step as _, refuse},
    out,
    proc::{self, NumberPath},
    raw::{
        clone::{self, Given},
        sys::{self, Errno, nr},
    },
    scratch, signal,
    stop::THREADS_MAX,
};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

/// A thread that blocks the signal for so long does not do it for a moment. Nanoseconds.
const MOMENT_NS: u64 = 20_000_000;
/// How long a wait lasts before threads are looked at again. Nanoseconds.
const LOOK_NS: u64 = 1_000_000;
/// Bytes of `/proc/self/task/N/status` that are looked at.
const STATUS: usize = 4096;

/// Makes sure that no thread but this one blocks the signal for long.
///
/// # Errors
/// One does, and this process may not be traced, or the thread does not answer within `limit_ns`.
pub fn open(limit_ns: u64) -> Outcome<()> {
    let me = sys::gettid();
    // SAFETY: numbers.
    let mut deaf = unsafe { List::<i32>::new(THREADS_MAX)? };
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        match tid != me && is_deaf(tid) {
            true => deaf.push(tid, "threads"),
            false => Ok(()),
        }
    })?;
    let began = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let still = || deaf.all().iter().copied().filter(|tid| is_deaf(*tid));
    while still().next().is_some() {
        if sys::clock_ns(libc::CLOCK_MONOTONIC) - began > MOMENT_NS {
            return still().try_for_each(|tid| open_one(tid, limit_ns));
        }
        sys::pause_ns(LOOK_NS);
    }
    Ok(())
}

/// Whether a thread that is there blocks the signal.
fn is_deaf(tid: i32) -> bool {
    let mut room = [0u8; STATUS];
    let blocked = proc::field(status(tid, &mut room), "SigBlk").and_then(proc::hexadecimal);
    blocked.is_some_and(|set| set & signal::bit(signal::SIGNAL) != 0)
}

/// What there is to be known of a thread; nothing if it has ended.
fn status(tid: i32, room: &mut [u8; STATUS]) -> &[u8] {
    let path = NumberPath::new("/proc/self/task/", tid, "/status");
    let Ok(fd) = sys::open(path.bytes(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return &[];
    };
    let len = sys::read(fd, room).unwrap_or(0);
    sys::close(fd);
    &room[..len]
}

/// What the tracer needs to know, and what it has to tell.
struct Job {
    tid: i32,
    limit_ns: u64,
    /// 1: it may begin.
    begin: AtomicU32,
    error: AtomicI32,
}

fn open_one(tid: i32, limit_ns: u64) -> Outcome<()> {
    let job = Job {
        tid,
        limit_ns,
        begin: AtomicU32::new(0),
        error: AtomicI32::new(0),
    };
    let given = Given {
        flags: (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES) as usize,
        ..Given::default()
    };
    // The tracer inherits the mask: a signal's handler would run there in the program's memory.
    let mask = signal::mask(libc::SIG_SETMASK, !0);
    // SAFETY: the stack is its own; it touches only the job, which outlives it.
    let made = unsafe {
        let (top, job) = (scratch::helper_stack(), &raw const job as usize);
        sys::check(clone::spawn(given, top, trace, job))
    };
    if let Ok(tracer) = made {
        // Where only ancestors may trace, another has to be named. Elsewhere the call is not known.
        set_tracer(tracer);
        job.begin.store(1, SeqCst);
        futex_wake_shared(&job.begin);
        out::wait(tracer as i32);
        set_tracer(0);
    }
    signal::mask(libc::SIG_SETMASK, mask);
    made.step("starting a tracer")?;
    let mut room = [0; STATUS];
    let status = status(tid, &mut room);
    let name = Shown(proc::field(status, "Name").unwrap_or(b"?"));
    let state = Shown(proc::field(status, "State").unwrap_or(b"?"));
    match job.error.load(SeqCst) {
        // It has ended, or does not block it any more.
        _ if !is_deaf(tid) => Ok(()),
        0 => refuse!("the thread {tid} ({name}, state {state}) blocks the signal in its wait"),
        libc::ETIMEDOUT => refuse!("the thread {tid} ({name}, state {state}) does not stop"),
        error => refuse!(
            "the thread {tid} ({name}, state {state}) blocks the signal, and it may not be \
             opened: tracing is not allowed here (error {error})"
        ),
    }
}

fn set_tracer(pid: usize) {
    // SAFETY: it concerns only who may trace this process.
    unsafe { sys::call2(nr::PRCTL, libc::PR_SET_PTRACER as usize, pid) };
}

/// Wakes another process, which has the same memory.
fn futex_wake_shared(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE touches no memory.
    unsafe { sys::call3(nr::FUTEX, word.as_ptr() as usize, 1, 1) };
}

/// The tracer.
extern "C" fn trace(job: usize) {
    // SAFETY: `open_one` waits for the end of this.
    let job = unsafe { &*(job as *const Job) };
    while job.begin.load(SeqCst) == 0 {
        // SAFETY: FUTEX_WAIT only reads the word.
        unsafe { sys::call4(nr::FUTEX, job.begin.as_ptr() as usize, 0, 0, 0) };
    }
    if let Err(Errno(error)) = unblock(job.tid, job.limit_ns) {
        job.error.store(error, SeqCst);
    }
}

/// A request of `ptrace`.
fn request(request: u32, tid: i32, address: usize, data: usize) -> sys::Result<usize> {
    const PTRACE: usize = 101;
    // SAFETY: only requests that stop the thread, change its mask, and let it go on are made.
    sys::check(unsafe { sys::call4(PTRACE, request as usize, tid as usize, address, data) })
}

/// Takes the signal out of a thread's mask. When the tracer ends, it lets go of the thread.
fn unblock(tid: i32, limit_ns: u64) -> sys::Result<()> {
    const SEIZE: u32 = 0x4206;
    const INTERRUPT: u32 = 0x4207;
    const GET_MASK: u32 = 0x420a;
    const SET_MASK: u32 = 0x420b;
    const DETACH: u32 = 17;
    request(SEIZE, tid, 0, 0)?;
    request(INTERRUPT, tid, 0, 0)?;
    let until = sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_add(limit_ns);
    let status = loop {
        let mut status = 0i32;
        let options = (libc::__WALL | libc::WNOHANG) as usize;
        let to = &raw mut status as usize;
        // SAFETY: the kernel writes the status.
        match sys::check(unsafe { sys::call4(nr::WAIT4, tid as usize, to, options, 0) })? {
            0 if sys::clock_ns(libc::CLOCK_MONOTONIC) < until => sys::pause_ns(LOOK_NS / 20),
            0 => return Err(Errno(libc::ETIMEDOUT)),
            _ => break status,
        }
    };
    if !libc::WIFSTOPPED(status) {
        return Ok(());
    }
    let mut mask = 0u64;
    request(GET_MASK, tid, 8, &raw mut mask as usize)?;
    mask &= !signal::bit(signal::SIGNAL);
    request(SET_MASK, tid, 8, &raw mut mask as usize)?;
    // It may have stopped because of a signal for it, which it is to get.
    let is_own = status >> 16 == 0;
    let signal = if is_own { libc::WSTOPSIG(status) } else { 0 };
    request(DETACH, tid, 0, signal as usize).map(|_| ())
}
