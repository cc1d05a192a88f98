//! The thread that sends memory in pre-copy rounds while the program's threads run.
//!
//! The thread is made by the bare system call, so neither the program nor its C library knows of
//! it. The thread is not stopped with the other threads, is in no image, blocks all signals, and
//! shares only the memory with the program. Its table of descriptors is its own and holds the image
//! only. So the thread takes no descriptor number of the program, a number that the program closes
//! or reuses does no harm, and a child of the program cannot keep the write watch alive. As a
//! thread of the process it ends when the process exits, is killed or executes another program.
//!
//! After its rounds the thread waits, because the write watch ends with it: a thread of the program
//! writes the last round first. If the kernel cannot watch memory, there are no early rounds, and
//! the last round holds all memory.
//!
//! **Runs in signal handlers, and in that thread**: everything here allocates nothing, locks
//! nothing and uses no thread-locals.

use crate::{
    capture::proc,
    frozen::{
        fault::{Outcome, refuse},
        queued_signal::{self, QueuedInfo},
        scratch, signal, turn,
    },
    options::Until,
    raw::{
        clone::{self, CloneArguments},
        sys::{self, futex_wait, futex_wait_for, futex_wake, nr},
    },
    save::rounds::Rounds,
};
use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Release, SeqCst},
    },
};

/// The limit of rounds before the last one.
pub const ROUNDS_MAX: usize = 64;
/// A wait for the thread is interrupted at this interval to check that the thread still exists.
/// Nanoseconds.
const LOOK_NS: u64 = 50_000_000;
/// The interval and the number of the checks whether a cancelled thread has ended. Nanoseconds; one
/// second in total.
const CANCEL_LOOK_NS: u64 = 1_000_000;
const CANCEL_LOOKS: u32 = 1_000;

/// The task of the thread.
#[derive(Debug, Clone, Copy)]
pub struct SendJob {
    /// The descriptor that the image is written to.
    pub image: i32,
    /// Whether memory is compressed.
    pub compress: bool,
    /// Whether memory may be lent to a pipe instead of copied into it.
    pub lend: bool,
    /// The conditions that end the rounds.
    pub until: Until,
    /// How the end of the rounds is reported.
    pub tell: EndNotice,
}

/// How the end of the rounds is reported.
#[derive(Debug, Clone, Copy)]
pub enum EndNotice {
    /// Not at all: a thread waits for the end of the rounds, or polls.
    Nobody,
    /// By this signal to the process.
    Signal(i32),
    /// By this function, with that descriptor of the program, that mark, the bytes and the number
    /// of the rounds. There is no further round then. The thread that sends memory calls the
    /// function, which may make bare system calls only.
    Call(i32, u64, fn(i32, u64, u64, u32)),
}

/// The thread is being made.
const BEGINNING: u32 = 0;
/// The thread sends memory.
const SENDING: u32 = 1;
/// The rounds are over.
const READY: u32 = 2;
/// A thread of the program requests one more round.
const ONE_MORE: u32 = 3;
/// The image is written, or the thread that waited for the rounds has given up.
const OVER: u32 = 4;
/// The save was cancelled.
const CANCELLED: u32 = 5;

/// The state that the thread shares with the program's threads.
#[repr(C)]
struct Shared {
    /// The id of the thread. The kernel clears the word when the thread ends.
    tid: AtomicU32,
    /// The process that the thread belongs to. A child has a copy of this memory, but no such
    /// thread.
    pid: i32,
    phase: AtomicU32,
    task: SendJob,
    /// Owned by the sending thread while it sends, then by the thread that saves.
    work: UnsafeCell<Work>,
}

struct Work {
    /// `Ok(None)` where the kernel cannot watch memory.
    rounds: Outcome<Option<Rounds>>,
    sent: [u64; ROUNDS_MAX],
    count: usize,
}

const _: () = assert!(size_of::<Shared>() <= scratch::PLACE);
// See `scratch::sender_tid`.
const _: () = assert!(std::mem::offset_of!(Shared, tid) == 0);

fn shared() -> &'static Shared {
    // SAFETY: `begin` wrote the value. The value changes in its atomics, and in `work`, which one
    // thread at a time owns.
    unsafe { &*scratch::place().cast::<Shared>() }
}

/// Starts the thread. The caller has the right to save and has prepared the save. If no thread can
/// be made, the rounds are over at once.
pub fn begin(task: SendJob) {
    let place = scratch::place().cast::<Shared>();
    // SAFETY: the place is reserved, and holds zeros or the value of the last save.
    unsafe {
        if (*place).pid == sys::getpid() {
            // A thread that was cancelled may be about to end.
            await_end(&(*place).tid);
        }
        place.write(Shared {
            pid: sys::getpid(),
            tid: AtomicU32::new(0),
            phase: AtomicU32::new(BEGINNING),
            task,
            work: UnsafeCell::new(Work {
                rounds: Ok(None),
                sent: [0; ROUNDS_MAX],
                count: 0,
            }),
        });
    }
    let shared = shared();
    // Without CLONE_FILES: the thread has a table of descriptors of its own.
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let given = CloneArguments {
        flags: flags as usize,
        tid_address: shared.tid.as_ptr() as usize,
        tls: 0,
    };
    let before = signal::mask(libc::SIG_SETMASK, !0);
    // SAFETY: no other thread uses the stack, and the argument stays until the thread has ended.
    let made = unsafe { clone::spawn(given, scratch::sender_stack(), run, place as usize) };
    signal::mask(libc::SIG_SETMASK, before);
    if made < 0 {
        shared.phase.store(READY, Release);
        shared.tell();
    }
}

/// Whether the rounds are over, or the thread has ended.
pub fn is_ready() -> bool {
    let shared = shared();
    let gone = shared.tid.load(SeqCst) == 0;
    gone || shared.phase.load(SeqCst) == READY
}

/// Waits until the rounds are over. With `one_more`, and if the rounds were over already, waits for
/// one more round. The returned value belongs to the calling thread until [`end`].
///
/// # Errors
/// The step of a round that failed, or the thread was ended.
pub fn await_rounds(one_more: bool) -> Outcome<Option<&'static mut Rounds>> {
    let shared = shared();
    let is_there = shared.tid.load(SeqCst) != 0;
    let asked = |from| {
        shared
            .phase
            .compare_exchange(from, ONE_MORE, SeqCst, SeqCst)
    };
    if one_more && is_there && asked(READY).is_ok() {
        futex_wake(&shared.phase);
    }
    loop {
        let is_there = shared.tid.load(SeqCst) != 0;
        match shared.phase.load(Acquire) {
            READY => break,
            phase if is_there => futex_wait_for(&shared.phase, phase, LOOK_NS),
            _ => return refuse!("the thread that sent memory was ended"),
        }
    }
    // SAFETY: the thread waits, and does not touch the value before the phase changes.
    let work = unsafe { &mut *shared.work.get() };
    match &mut work.rounds {
        Ok(rounds) => Ok(rounds.as_mut()),
        Err(fault) => Err(*fault),
    }
}

/// The bytes of each round so far. To be called after [`await_rounds`].
pub fn sent() -> &'static [u64] {
    // SAFETY: as in `await_rounds`.
    let work = unsafe { &*shared().work.get() };
    &work.sent[..work.count]
}

/// Ends the thread, and waits until it has ended.
pub fn end() {
    let shared = shared();
    shared.phase.store(OVER, SeqCst);
    futex_wake(&shared.phase);
    await_end(&shared.tid);
}

/// Gives up the save. The thread ends when its current write returns, and gives back the right to
/// save.
pub fn cancel() {
    let shared = shared();
    let is_there = shared.tid.load(SeqCst) != 0;
    shared.phase.store(CANCELLED, SeqCst);
    futex_wake(&shared.phase);
    if !is_there {
        turn::SAVE.give_back();
    }
}

/// Waits until the thread of a save that was given up has ended. Waits for a second at most,
/// because the reader of the image may not be reading.
pub fn await_cancelled() {
    if !scratch::is_reserved() {
        return;
    }
    let shared = shared();
    for _ in 0..CANCEL_LOOKS {
        let tid = shared.tid.load(SeqCst);
        let is_own = shared.pid == sys::getpid();
        if !is_own || tid == 0 || shared.phase.load(SeqCst) != CANCELLED {
            return;
        }
        futex_wait_for(&shared.tid, tid, CANCEL_LOOK_NS);
    }
}

/// Whether the thread alone was ended while it sent memory. True for one call only.
pub fn was_ended() -> bool {
    if !scratch::is_reserved() {
        return false;
    }
    let shared = shared();
    let given_up = || shared.phase.compare_exchange(SENDING, OVER, SeqCst, SeqCst);
    let is_own = shared.pid == sys::getpid();
    is_own && shared.tid.load(SeqCst) == 0 && given_up().is_ok()
}

/// Waits until the kernel has cleared the thread's id. The kernel wakes the waiters of shared
/// futexes, so this wait is not private.
fn await_end(tid: &AtomicU32) {
    loop {
        match tid.load(SeqCst) {
            0 => return,
            // SAFETY: FUTEX_WAIT reads the word.
            now => unsafe { sys::call4(nr::FUTEX, tid.as_ptr() as usize, 0, now as usize, 0) },
        };
    }
}

extern "C" fn run(place: usize) {
    // SAFETY: `begin` wrote the value.
    let shared = unsafe { &*(place as *const Shared) };
    // SAFETY: the name is ended by NUL.
    unsafe {
        let name = c"vm-image".as_ptr() as usize;
        sys::call2(nr::PRCTL, libc::PR_SET_NAME as usize, name)
    };
    // The exchange fails if the save was cancelled already.
    let _ = shared
        .phase
        .compare_exchange(BEGINNING, SENDING, SeqCst, SeqCst);
    // SAFETY: the value belongs to this thread until the phase changes.
    let work = unsafe { &mut *shared.work.get() };
    let is_wanted = || shared.phase.load(SeqCst) != CANCELLED;
    work.rounds = match keep_only(shared.task) {
        true => {
            let SendJob {
                image,
                compress,
                lend,
                ..
            } = shared.task;
            Rounds::begin(image, compress, lend)
        }
        false => Ok(None),
    };
    work.send(
        ROUNDS_MAX.min(shared.task.until.rounds as usize),
        shared.task.until,
        &is_wanted,
    );
    if let EndNotice::Call(..) = shared.task.tell {
        // The thread that writes the rest has a descriptor of its own. The reader of the image must
        // see the end of the stream when that descriptor is closed, also while this thread exists.
        sys::close(shared.task.image);
    }
    let mut from = SENDING;
    loop {
        let ready = shared.phase.compare_exchange(from, READY, SeqCst, SeqCst);
        futex_wake(&shared.phase);
        let mut told = ready.is_err() || from != SENDING;
        while shared.phase.load(SeqCst) == READY {
            // The signal may be refused at first, because too many signals are pending; then it is
            // sent again.
            told = told || shared.tell();
            match told {
                true => futex_wait(&shared.phase, READY),
                false => futex_wait_for(&shared.phase, READY, LOOK_NS),
            }
        }
        if shared.phase.load(SeqCst) != ONE_MORE {
            break;
        }
        // SAFETY: the thread that requested the round waits.
        unsafe { &mut *shared.work.get() }.send(1, shared.task.until, &is_wanted);
        from = ONE_MORE;
    }
    // The write watch ends here; no thread needs the rounds any more.
    // SAFETY: no other thread uses the value.
    unsafe { (*shared.work.get()).rounds = Ok(None) };
    if shared.phase.load(SeqCst) == CANCELLED {
        turn::SAVE.give_back();
    }
}

/// Closes all descriptors of this thread but those of its task. Returns whether that succeeded.
fn keep_only(task: SendJob) -> bool {
    let told_over = match task.tell {
        EndNotice::Call(fd, ..) => fd,
        _ => task.image,
    };
    let path = b"/proc/thread-self/fd\0";
    let closed = proc::for_each_number(path, "closing descriptors", |fd| {
        if fd != task.image && fd != told_over {
            sys::close(fd);
        }
        Ok(())
    });
    closed.is_ok()
}

impl Work {
    /// Sends up to `rounds` rounds, until a condition of `until` is met or the image is not wanted
    /// any more.
    fn send(&mut self, rounds: usize, until: Until, is_wanted: &dyn Fn() -> bool) {
        for _ in 0..rounds.min(ROUNDS_MAX - self.count) {
            let Ok(Some(sender)) = &mut self.rounds else {
                return;
            };
            let bytes = match sender.round(is_wanted) {
                Ok(bytes) => bytes,
                Err(fault) => {
                    self.rounds = Err(fault);
                    return;
                }
            };
            let last = self.count.checked_sub(1).map(|index| self.sent[index]);
            self.sent[self.count] = bytes;
            self.count += 1;
            let shrinks = last.is_none_or(|last| (bytes as f64) < until.shrinks * last as f64);
            if bytes <= until.small || !shrinks || !is_wanted() {
                return;
            }
        }
    }
}

/// The value by which a signal is recognised as the report of the end of the rounds.
fn value() -> usize {
    run as *const () as usize
}

impl Shared {
    /// Reports the end of the rounds. Returns whether the report was delivered.
    fn tell(&self) -> bool {
        match self.task.tell {
            EndNotice::Nobody => true,
            EndNotice::Signal(signal) => raise(signal),
            EndNotice::Call(fd, mark, call) => {
                // SAFETY: the thread that owns the value calls this; other threads only read it
                // meanwhile.
                let work = unsafe { &*self.work.get() };
                let bytes = work.sent[..work.count].iter().sum();
                call(fd, mark, bytes, work.count as u32);
                true
            }
        }
    }
}

/// Sends the signal that has some thread of the process write the last round. Returns whether it is
/// pending now.
fn raise(signal: i32) -> bool {
    let told = queued_signal::queued(signal, value());
    let (pid, info) = (told.sender() as usize, &raw const told as usize);
    // SAFETY: the kernel reads the information. A process may send itself any information.
    unsafe { sys::call3(nr::RT_SIGQUEUEINFO, pid, signal as usize, info) >= 0 }
}

/// Whether a signal is the report of the end of the rounds.
pub fn is_told(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the information is the kernel's.
    unsafe { QueuedInfo::of(info) }.is_own(value())
}
