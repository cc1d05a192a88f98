//! Threads that block all signals, and with them the one that stops threads.
//!
//! The C library starts some of these: for timers that start threads, for asynchronous files and
//! look-ups of names. It blocks signals in them by bare calls, so that
//! [`pthread_sigmask`](crate::interpose) does not see it. What a thread blocks only a tracer can
//! change, and no process can trace itself: a copy of it, which shares its memory, does it, before
//! anything is stopped. The signal stays open in them from then on.
//!
//! The C library also blocks all signals for a moment, while it makes a thread for instance, and
//! then puts back the mask from before. Such a thread is left alone: only one that sleeps where it
//! slept before is opened, or one that has blocked the signal for long.
//!
//! **Runs in signal handlers**: everything here allocates nothing and locks nothing.

use crate::{
    arena::List,
    fault::{Outcome, Shown, Step as _, refuse},
    out,
    proc::{self, NumberPath},
    raw::{
        checksum::checksum,
        clone::{self, Given},
        sys::{self, Errno, nr},
    },
    scratch, signal,
    stop::THREADS_MAX,
};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

/// A thread that blocks the signal for so long does not do it for a moment. Nanoseconds.
const LONG_NS: u64 = 300_000_000;
/// How long a wait lasts before threads are looked at again. Nanoseconds.
const LOOK_NS: u64 = 2_000_000;
/// Bytes of a file of `/proc/self/task/N` that are looked at.
const STATUS: usize = 4096;

/// A thread that blocks the signal.
#[derive(Clone, Copy)]
struct Deaf {
    tid: i32,
    /// Where it slept when it was looked at; 0: nowhere.
    spot: u64,
}

/// Makes sure that no thread but this one blocks the signal for long.
///
/// # Errors
/// One does, and this process may not be traced, or the thread does not answer within `limit_ns`.
pub fn open(limit_ns: u64) -> Outcome<()> {
    let me = sys::gettid();
    // SAFETY: numbers.
    let mut all = unsafe { List::<Deaf>::new(THREADS_MAX)? };
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        match tid != me && is_deaf(tid) {
            true => all.push(Deaf { tid, spot: 0 }, "threads"),
            false => Ok(()),
        }
    })?;
    let began = sys::clock_ns(libc::CLOCK_MONOTONIC);
    loop {
        let passed = sys::clock_ns(libc::CLOCK_MONOTONIC) - began;
        let mut is_over = true;
        for deaf in all.all_mut().iter_mut().filter(|deaf| is_deaf(deaf.tid)) {
            let spot = spot(deaf.tid);
            let sleeps = spot != 0 && spot == deaf.spot;
            deaf.spot = spot;
            if sleeps || passed > LONG_NS.min(limit_ns) {
                open_one(deaf.tid, limit_ns)?;
            }
            if is_deaf(deaf.tid) {
                is_over = false;
                if passed > limit_ns {
                    return refused(deaf.tid, Why::Again);
                }
            }
        }
        if is_over {
            return Ok(());
        }
        sys::pause_ns(LOOK_NS);
    }
}

/// Where a thread sleeps: a number for the system call that it is in, with all arguments, its stack
/// and its place in the program. 0 if it runs.
fn spot(tid: i32) -> u64 {
    let mut room = [0; STATUS];
    match file(tid, "/syscall", &mut room) {
        b"" | b"running\n" => 0,
        line => checksum(line) | 1,
    }
}

/// Whether a thread that is there blocks the signal.
fn is_deaf(tid: i32) -> bool {
    let mut room = [0u8; STATUS];
    let blocked = proc::field(file(tid, "/status", &mut room), "SigBlk");
    let set = blocked.and_then(proc::hexadecimal);
    set.is_some_and(|set| set & signal::bit(signal::SIGNAL) != 0)
}

/// A file of a thread; nothing if it has ended.
fn file<'a>(tid: i32, name: &str, room: &'a mut [u8; STATUS]) -> &'a [u8] {
    let path = NumberPath::new("/proc/self/task/", tid, name);
    let Ok(fd) = sys::open(path.bytes(), libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return &[];
    };
    let len = sys::read(fd, room).unwrap_or(0);
    sys::close(fd);
    &room[..len]
}

/// Why a thread stays deaf.
enum Why {
    Again,
    Silent,
    Forbidden(i32),
}

/// A refusal that names a thread.
fn refused(tid: i32, why: Why) -> Outcome<()> {
    let mut room = [0; STATUS];
    let status = file(tid, "/status", &mut room);
    let field = |name| Shown(proc::field(status, name).unwrap_or(b"?"));
    let (name, state) = (field("Name"), field("State"));
    match why {
        Why::Again => {
            refuse!("the thread {tid} ({name}, state {state}) blocks the signal each time")
        }
        Why::Silent => refuse!("the thread {tid} ({name}, state {state}) does not stop"),
        Why::Forbidden(error) => refuse!(
            "the thread {tid} ({name}, state {state}) blocks the signal, and it may not be \
             opened: tracing is not allowed here (error {error})"
        ),
    }
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
    match job.error.load(SeqCst) {
        0 | libc::ESRCH => Ok(()),
        // It has ended, or does not block it any more.
        _ if !is_deaf(tid) => Ok(()),
        libc::ETIMEDOUT => refused(tid, Why::Silent),
        error => refused(tid, Why::Forbidden(error)),
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
