//! The thread that sends a process's memory while all of the program's own threads run.
//!
//! It is made by the bare system call, so neither the program nor its C library knows of it: it is
//! not stopped with the others, is in no image, blocks all signals, and shares nothing with the
//! program but the memory. Its table of descriptors is its own, with the image in it and nothing
//! else: so no number of the program's is taken, a number that the program closes or uses for
//! something else does no harm, and a child has no part in the watch. Being a thread of the process
//! it ends with it, whether the process exits, is killed or runs another program.
//!
//! When its rounds are over it waits, so that the watch stays, until the last round has been
//! written by a thread of the program. If the kernel cannot watch memory, there are no rounds, and
//! the last one holds everything.
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

/// Rounds, at most.
pub const ROUNDS_MAX: usize = 64;
/// How long a wait lasts before it is looked whether the thread is still there. Nanoseconds.
const LOOK_NS: u64 = 50_000_000;
/// How often, and how many times, it is looked whether one that was cancelled has ended: a second.
const CANCEL_LOOK_NS: u64 = 1_000_000;
const CANCEL_LOOKS: u32 = 1_000;

/// What is to be sent, and how.
#[derive(Debug, Clone, Copy)]
pub struct SendJob {
    /// The image goes there.
    pub image: i32,
    /// Memory is compressed.
    pub compress: bool,
    /// Memory need not be copied into a pipe.
    pub lend: bool,
    /// When the rounds are over.
    pub until: Until,
    /// How their end is told.
    pub tell: EndNotice,
}

/// How the end of the rounds is told.
#[derive(Debug, Clone, Copy)]
pub enum EndNotice {
    /// Nobody: a thread waits for it, or polls.
    Nobody,
    /// The process, by this signal.
    Signal(i32),
    /// This function, with that descriptor of the program's, that mark, the bytes and the number
    /// of the rounds. There is no further round then. It is called in the thread that sends, and
    /// may make bare system calls only.
    Call(i32, u64, fn(i32, u64, u64, u32)),
}

/// The thread is being made.
const BEGINNING: u32 = 0;
/// The thread sends memory.
const SENDING: u32 = 1;
/// The rounds are over.
const READY: u32 = 2;
/// One more round is wanted.
const ONE_MORE: u32 = 3;
/// The image is written, or the thread that waited has given up.
const OVER: u32 = 4;
/// The save was cancelled.
const CANCELLED: u32 = 5;

/// What it shares with the program's threads.
#[repr(C)]
struct Shared {
    /// The id of the thread, until the kernel clears the word when the thread ends.
    tid: AtomicU32,
    /// The process that the thread belongs to: a child has a copy of this memory, but no such
    /// thread.
    pid: i32,
    phase: AtomicU32,
    task: SendJob,
    /// Of the thread while it sends; of the one that saves, from then on.
    work: UnsafeCell<Work>,
}

struct Work {
    /// None where the kernel cannot watch memory.
    rounds: Outcome<Option<Rounds>>,
    sent: [u64; ROUNDS_MAX],
    count: usize,
}

const _: () = assert!(size_of::<Shared>() <= scratch::PLACE);
// See `scratch::sender_tid`.
const _: () = assert!(std::mem::offset_of!(Shared, tid) == 0);

fn shared() -> &'static Shared {
    // SAFETY: `begin` wrote it; it changes in atomics and in what belongs to one at a time.
    unsafe { &*scratch::place().cast::<Shared>() }
}

/// Begins. The caller has the turn and has prepared the save. If there can be no such thread, the
/// rounds are over at once.
pub fn begin(task: SendJob) {
    let place = scratch::place().cast::<Shared>();
    // SAFETY: reserved, and zeros or what the last save wrote.
    unsafe {
        if (*place).pid == sys::getpid() {
            // One that was cancelled may be about to end.
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
    // Not CLONE_FILES: its descriptors are its own.
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
    // SAFETY: the stack is nobody else's, and what it is given stays until it has ended.
    let made = unsafe { clone::spawn(given, scratch::sender_stack(), run, place as usize) };
    signal::mask(libc::SIG_SETMASK, before);
    if made < 0 {
        shared.phase.store(READY, Release);
        shared.tell();
    }
}

/// Whether its rounds are over, or it is not there any more.
pub fn is_ready() -> bool {
    let shared = shared();
    let gone = shared.tid.load(SeqCst) == 0;
    gone || shared.phase.load(SeqCst) == READY
}

/// Waits until the rounds are over; if they have been for some time, for one more. What it gives is
/// of this thread alone until [`end`].
///
/// # Errors
/// What a round failed of.
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
    // SAFETY: the thread waits, and does not touch it before it is told to.
    let work = unsafe { &mut *shared.work.get() };
    match &mut work.rounds {
        Ok(rounds) => Ok(rounds.as_mut()),
        Err(fault) => Err(*fault),
    }
}

/// The bytes of each round so far. After [`await_rounds`].
pub fn sent() -> &'static [u64] {
    // SAFETY: as there.
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

/// Gives up the save: the thread ends when it can, and lets others save then.
pub fn cancel() {
    let shared = shared();
    let is_there = shared.tid.load(SeqCst) != 0;
    shared.phase.store(CANCELLED, SeqCst);
    futex_wake(&shared.phase);
    if !is_there {
        turn::SAVE.give_back();
    }
}

/// A save that was given up ends when its thread does: waits for that, but not for long, should
/// nobody read what the thread writes.
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

/// Whether the thread was ended, alone, while it sent. Told once.
pub fn was_ended() -> bool {
    if !scratch::is_reserved() {
        return false;
    }
    let shared = shared();
    let given_up = || shared.phase.compare_exchange(SENDING, OVER, SeqCst, SeqCst);
    let is_own = shared.pid == sys::getpid();
    is_own && shared.tid.load(SeqCst) == 0 && given_up().is_ok()
}

/// Waits until the kernel has cleared the id. The kernel wakes waiters as if the memory were
/// shared.
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
    // SAFETY: `begin` wrote it.
    let shared = unsafe { &*(place as *const Shared) };
    // SAFETY: ended by NUL.
    unsafe {
        let name = c"vm-image".as_ptr() as usize;
        sys::call2(nr::PRCTL, libc::PR_SET_NAME as usize, name)
    };
    // Unless it was cancelled already.
    let _ = shared
        .phase
        .compare_exchange(BEGINNING, SENDING, SeqCst, SeqCst);
    // SAFETY: this thread's until the phase changes.
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
        // The thread that writes the rest has a descriptor of its own. The image is to end for its
        // reader with that descriptor, and not only with this thread.
        sys::close(shared.task.image);
    }
    let mut from = SENDING;
    loop {
        let ready = shared.phase.compare_exchange(from, READY, SeqCst, SeqCst);
        futex_wake(&shared.phase);
        let mut told = ready.is_err() || from != SENDING;
        while shared.phase.load(SeqCst) == READY {
            // Too many signals may be waiting in this moment.
            told = told || shared.tell();
            match told {
                true => futex_wait(&shared.phase, READY),
                false => futex_wait_for(&shared.phase, READY, LOOK_NS),
            }
        }
        if shared.phase.load(SeqCst) != ONE_MORE {
            break;
        }
        // SAFETY: the thread that wants the round waits.
        unsafe { &mut *shared.work.get() }.send(1, shared.task.until, &is_wanted);
        from = ONE_MORE;
    }
    // The watch ends, and nobody needs the rounds any more.
    // SAFETY: nobody else does.
    unsafe { (*shared.work.get()).rounds = Ok(None) };
    if shared.phase.load(SeqCst) == CANCELLED {
        turn::SAVE.give_back();
    }
}

/// Closes all descriptors of this thread that it does not need.
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
    /// Sends up to so many rounds, until there is little to send.
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

/// What a signal that tells the end of the rounds comes with.
fn value() -> usize {
    run as *const () as usize
}

impl Shared {
    /// Tells the end of the rounds; whether it was told.
    fn tell(&self) -> bool {
        match self.task.tell {
            EndNotice::Nobody => true,
            EndNotice::Signal(signal) => raise(signal),
            EndNotice::Call(fd, mark, call) => {
                // SAFETY: the thread that owns it calls this; others only read it meanwhile.
                let work = unsafe { &*self.work.get() };
                let bytes = work.sent[..work.count].iter().sum();
                call(fd, mark, bytes, work.count as u32);
                true
            }
        }
    }
}

/// Some thread of the process is to write the last round. Whether it will know.
fn raise(signal: i32) -> bool {
    let told = queued_signal::queued(signal, value());
    let (pid, info) = (told.sender() as usize, &raw const told as usize);
    // SAFETY: the kernel reads the information. To oneself any may be sent.
    unsafe { sys::call3(nr::RT_SIGQUEUEINFO, pid, signal as usize, info) >= 0 }
}

/// Whether a signal tells the end of the rounds.
pub fn is_told(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel's information.
    unsafe { QueuedInfo::of(info) }.is_own(value())
}
