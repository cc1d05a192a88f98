//! Stops all threads but one, and has them wait until they may resume.
//!
//! Each thread gets [`SIGNAL`](crate::frozen::signal::SIGNAL) and parks in the handler, where it
//! stores the state that only the thread itself can read. The saving thread signals itself last, so
//! that its own registers are in a signal frame like those of all others: the restored threads
//! resume by returning from these frames.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        affinity,
        proc::{self, NumberPath},
        process::{self, Waiting},
        rseq,
        thread::{self, Thread},
        thread_signals, vdso,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, refuse},
        signal,
    },
    raw::{
        records::THREADS_MAX,
        sys::{self, futex_wait, futex_wait_for, futex_wake, nr},
    },
};
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

/// The bit of [`STATE`] that is set while threads that get the signal park.
const PARK: u32 = 1;
/// A wait for the other threads is interrupted at this interval to count them again. Nanoseconds.
const LOOK_NS: u64 = 20_000;

/// Counts up when threads are to stop, and when they may resume. So a thread that is slow to resume
/// is not counted as parked in the next stop.
static STATE: AtomicU32 = AtomicU32::new(0);
static PARKED: AtomicU32 = AtomicU32::new(0);
/// Set if a thread could not park at its instruction and must be signalled again.
static AGAIN: AtomicU32 = AtomicU32::new(0);
static SAVER: AtomicI32 = AtomicI32::new(0);
static THREADS: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static WORK: AtomicUsize = AtomicUsize::new(0);
/// The signals that the first thread sends to the process when it resumes: their address and
/// number.
static SIGNALS: (AtomicPtr<Waiting>, AtomicU32) =
    (AtomicPtr::new(std::ptr::null_mut()), AtomicU32::new(0));

/// Resets the state of this module, in a process that was just restored.
pub fn forget() {
    thread::count_restore();
    STATE.fetch_add(1, Relaxed);
    PARKED.store(0, Relaxed);
    SAVER.store(0, Relaxed);
}

/// Has the first thread send the signals again that were taken out for the save, when all threads
/// resume.
pub fn put_back_at_end(signals: &List<Waiting>) {
    let signals = signals.all();
    SIGNALS.0.store(signals.as_ptr().cast_mut(), SeqCst);
    SIGNALS.1.store(signals.len() as u32, SeqCst);
}

/// In the first thread: sends the signals.
fn put_back_signals() {
    let (start, count) = (SIGNALS.0.load(SeqCst), SIGNALS.1.load(SeqCst));
    if count != 0 {
        // SAFETY: the signals stay there until the count is 0. The signals were pending before, so
        // there is room for them.
        let _ = process::put_back(unsafe { std::slice::from_raw_parts(start, count as usize) });
        SIGNALS.1.store(0, SeqCst);
        futex_wake(&SIGNALS.1);
    }
}

/// The handler of the signal.
pub extern "C" fn on_signal(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let me = sys::gettid();
    if SAVER.load(Relaxed) == me {
        let own = claim(context, me);
        let work = WORK.load(Relaxed);
        if own && work != 0 {
            // SAFETY: `with_stopped` stored a function of this type.
            let work: extern "C" fn() = unsafe { std::mem::transmute::<usize, _>(work) };
            work();
        }
        if me == sys::getpid() {
            put_back_signals();
        }
        thread_signals::put_back(me);
        return;
    }
    let stop = STATE.load(Acquire);
    if stop & PARK == 0 || signal::put_off() {
        return;
    }
    // SAFETY: the kernel's context.
    let at = unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize };
    if vdso::contains(at) {
        // The thread is reading a clock in the vdso: values that it has read are valid on this host
        // only.
        AGAIN.store(1, Relaxed);
        return;
    }
    if !claim(context, me) {
        return;
    }
    // The kernel writes into the registered memory whenever the thread changes its processor.
    let was_registered = rseq::leave();
    PARKED.fetch_add(1, SeqCst);
    futex_wake(&PARKED);
    while STATE.load(Acquire) == stop {
        futex_wait(&STATE, stop);
    }
    if me == sys::getpid() {
        put_back_signals();
    }
    if was_registered {
        rseq::enter();
    }
    thread_signals::put_back(me);
}

/// Stores the state of this thread in a record of its own. `false` if there are too many threads.
fn claim(context: *mut libc::ucontext_t, me: i32) -> bool {
    let index = TAKEN.fetch_add(1, Relaxed);
    if index >= THREADS_MAX {
        return false;
    }
    // SAFETY: there are THREADS_MAX records, and no other thread has this one.
    let thread = unsafe { &mut *THREADS.load(Acquire).add(index) };
    thread.frame = context as usize;
    // SAFETY: each call writes the requested value into the record.
    unsafe {
        const ARCH_GET_FS: usize = 0x1003;
        const ARCH_GET_GS: usize = 0x1004;
        sys::call2(nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut thread.fs as usize);
        sys::call2(nr::ARCH_PRCTL, ARCH_GET_GS, &raw mut thread.gs as usize);
        let address = &raw mut thread.tid_address as usize;
        sys::call2(nr::PRCTL, libc::PR_GET_TID_ADDRESS as usize, address);
        let (head, len) = (&raw mut thread.robust, &raw mut thread.robust_len);
        sys::call3(nr::GET_ROBUST_LIST, 0, head as usize, len as usize);
        let (get_death, death) = (libc::PR_GET_PDEATHSIG, &raw mut thread.death_signal);
        sys::call2(nr::PRCTL, get_death as usize, death as usize);
        let name = thread.name.as_mut_ptr() as usize;
        sys::call2(nr::PRCTL, libc::PR_GET_NAME as usize, name);
        // The kernel returns 20 minus the nice value, so that the result is no error.
        thread.nice = 20 - sys::call2(nr::GETPRIORITY, libc::PRIO_PROCESS as usize, 0) as i32;
    }
    (thread.processors, thread.processors_len) = affinity::chosen();
    thread.rseq = rseq::is_registered(thread.fs);
    let mut waiting = 0u64;
    // SAFETY: the kernel writes a set. All signals are blocked here, so the set has all pending
    // ones.
    unsafe { sys::call2(nr::RT_SIGPENDING, &raw mut waiting as usize, 8) };
    if waiting & !signal::bit(signal::SIGNAL) != 0 {
        thread_signals::take_out(me);
    }
    thread.tid = me;
    true
}

/// The records of all stopped threads, including the saving thread.
pub fn threads() -> &'static [Thread] {
    let count = TAKEN.load(Relaxed).min(THREADS_MAX);
    let start = THREADS.load(Relaxed);
    if start.is_null() {
        return &[];
    }
    // SAFETY: so many records were written, and none changes while all threads are stopped.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// Stops all other threads but `left_out`, which is not the program's (0: none), runs `work` in the
/// handler of this thread, and lets all threads resume.
///
/// # Errors
/// A thread did not stop within `limit_ns`; all threads have resumed.
pub fn with_stopped(work: extern "C" fn(), limit_ns: u64, left_out: i32) -> Outcome<()> {
    signal::install(on_signal)?;
    // SAFETY: zeros are values of all fields.
    let records = unsafe { arena::take::<Thread>(THREADS_MAX)? };
    THREADS.store(records.as_mut_ptr(), Release);
    TAKEN.store(0, Relaxed);
    PARKED.store(0, Relaxed);
    WORK.store(work as usize, Relaxed);
    let (pid, me) = (sys::getpid(), sys::gettid());
    thread_signals::begin();
    affinity::look_at_parent();
    let restores = thread::restores();
    STATE.fetch_add(1, SeqCst);
    let stopped = stop_others(pid, [me, left_out], limit_ns);
    if stopped.is_ok() {
        let blocked = signal::mask(libc::SIG_UNBLOCK, signal::bit(signal::SIGNAL));
        SAVER.store(me, SeqCst);
        signal::stop_thread(pid, me);
        if blocked & signal::bit(signal::SIGNAL) != 0 {
            signal::mask(libc::SIG_BLOCK, signal::bit(signal::SIGNAL));
        }
        if thread::restores() != restores {
            return stopped;
        }
        SAVER.store(0, SeqCst);
    }
    STATE.fetch_add(1, SeqCst);
    futex_wake(&STATE);
    loop {
        match SIGNALS.1.load(SeqCst) {
            0 => return stopped,
            count => futex_wait(&SIGNALS.1, count),
        }
    }
}

fn stop_others(pid: i32, not: [i32; 2], limit_ns: u64) -> Outcome<()> {
    let until = sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_add(limit_ns);
    let mut asked = unsafe {
        // SAFETY: any numbers are values.
        List::<i32>::new(THREADS_MAX)?
    };
    loop {
        // Read before the directory is listed: a thread that parks in between only costs another
        // turn of the loop.
        let parked = PARKED.load(SeqCst);
        let again = AGAIN.swap(0, SeqCst) != 0;
        let (mut others, mut news) = (0, false);
        proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
            if not.contains(&tid) {
                return Ok(());
            }
            others += 1;
            let known = asked.all().contains(&tid);
            if !known {
                news = true;
                asked.push(tid, "threads")?;
            }
            let parked = || threads().iter().any(|thread| thread.tid == tid);
            if !known || again && !parked() {
                signal::stop_thread(pid, tid);
            }
            Ok(())
        })?;
        // A thread that has parked may still be before its wait, and write on its stack.
        let still = || sys::futex_waiters(&STATE, STATE.load(SeqCst)) == parked;
        if !news && !again && others == parked && still() {
            return Ok(());
        }
        if sys::clock_ns(libc::CLOCK_MONOTONIC) >= until {
            return silent(not);
        }
        if again || others == parked {
            sys::pause_ns(LOOK_NS);
        } else if PARKED.load(SeqCst) == parked {
            futex_wait_for(&PARKED, parked, 50 * LOOK_NS);
        }
    }
}

/// The refusal that names a thread which did not stop.
fn silent(not: [i32; 2]) -> Outcome<()> {
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        if not.contains(&tid) || threads().iter().any(|thread| thread.tid == tid) {
            return Ok(());
        }
        let path = NumberPath::new("/proc/self/task/", tid, "/status");
        let status = proc::read_file(path.bytes(), "looking at a thread")?;
        let field = |name| Shown(proc::field(status, name).unwrap_or(b"?"));
        let blocked = proc::field(status, "SigBlk").and_then(proc::hexadecimal);
        let why = match blocked.map(|set| set & signal::bit(signal::SIGNAL) != 0) {
            Some(true) => ": it blocks the signal",
            _ => "",
        };
        refuse!(
            "the thread {tid} ({}, state {}) does not stop{why}",
            field("Name"),
            field("State")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen::scratch;
    use std::sync::atomic::AtomicBool;

    /// How many threads were not asleep although they had stopped, over all checks.
    static AWAKE: AtomicU32 = AtomicU32::new(0);
    static SEEN: AtomicU32 = AtomicU32::new(0);

    extern "C" fn look() {
        let me = sys::gettid();
        for thread in threads().iter().filter(|thread| thread.tid != me) {
            let path = NumberPath::new("/proc/self/task/", thread.tid, "/status");
            let status = proc::read_file(path.bytes(), "looking at a thread");
            let state = status.map(|status| proc::field(status, "State"));
            let is_asleep = state.is_ok_and(|state| state.is_some_and(|it| it.starts_with(b"S")));
            SEEN.fetch_add(1, SeqCst);
            AWAKE.fetch_add(u32::from(!is_asleep), SeqCst);
        }
    }

    #[test]
    fn a_stopped_thread_writes_nothing_any_more() {
        let _alone = arena::ONE_TEST.lock();
        let ended = AtomicBool::new(false);
        // With one processor for all threads, a thread that stops wakes the saving thread before it
        // sleeps itself.
        let mut before = [0u64; 16];
        let use_only = |set: &[u64]| {
            let at = set.as_ptr() as usize;
            // SAFETY: the kernel reads the set.
            unsafe { sys::call3(nr::SCHED_SETAFFINITY, 0, size_of_val(set), at) };
        };
        let at = before.as_mut_ptr() as usize;
        // SAFETY: the kernel writes the set.
        unsafe { sys::call3(nr::SCHED_GETAFFINITY, 0, size_of_val(&before), at) };
        std::thread::scope(|scope| {
            use_only(&[1]);
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ended.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                });
            }
            for _ in 0..100 {
                arena::reset().expect("tables");
                scratch::reserve().expect("stacks");
                with_stopped(look, 60_000_000_000, 0).expect("all stop");
            }
            ended.store(true, SeqCst);
        });
        use_only(&before);
        assert!(SEEN.load(SeqCst) >= 400, "{SEEN:?}");
        assert_eq!(AWAKE.load(SeqCst), 0, "of {SEEN:?}");
    }
}
