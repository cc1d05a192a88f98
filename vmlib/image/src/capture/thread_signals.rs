//! Pending signals of single threads, which are blocked, with their information.
//!
//! No thread can read the pending signals of another thread, and the kernel gives the information
//! of a signal only to the thread that takes the signal. So each thread takes its own signals when
//! it is stopped, stores them in a common table, and sends them to itself again before it resumes.
//! The restored threads do the same, because the table is in the image.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::proc,
    frozen::{
        fault::{Outcome, refuse},
        signal,
    },
    raw::sys::{self, nr},
};
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst},
};

/// The limit of signals in the table.
const MAX: usize = 512;
/// Bytes of `/proc/thread-self/status` that are read. The lines on signals are in these bytes.
const STATUS: usize = 4096;

/// A place in the table.
struct Slot {
    /// The id that the thread had when it was stopped; 0: the slot is free.
    tid: AtomicI32,
    /// `siginfo_t`.
    info: UnsafeCell<[u64; 16]>,
}

// SAFETY: only the thread whose id is in the slot accesses the information.
unsafe impl Sync for Slot {}

static TABLE: [Slot; MAX] = [const {
    Slot {
        tid: AtomicI32::new(0),
        info: UnsafeCell::new([0; 16]),
    }
}; MAX];
/// Whether a thread found no free slot.
static FULL: AtomicBool = AtomicBool::new(false);

/// Prepares the table. To be called before threads are stopped.
pub fn begin() {
    FULL.store(false, SeqCst);
}

/// Refuses if a thread found no slot. To be called while all threads are stopped.
///
/// # Errors
/// More signals are pending than the table has slots.
pub fn check() -> Outcome<()> {
    match FULL.load(SeqCst) {
        true => refuse!("more than {MAX} signals are pending for single threads"),
        false => Ok(()),
    }
}

/// Takes the pending signals of this thread, which blocks all signals, into the table.
pub fn take_out(me: i32) {
    // The slots are taken in ascending order, so that the signals stay in order.
    let mut slots = TABLE.iter();
    loop {
        let set = own();
        if set == 0 {
            return;
        }
        let is_mine = |slot: &&Slot| slot.tid.compare_exchange(0, me, SeqCst, SeqCst).is_ok();
        let Some(slot) = slots.find(is_mine) else {
            return FULL.store(true, SeqCst);
        };
        let (set, info) = (&raw const set as usize, slot.info.get() as usize);
        let time = [0u64; 2];
        // SAFETY: the kernel reads the set and the time and writes the information. The kernel
        // returns a thread's own signals before those of the process.
        let taken =
            unsafe { sys::call4(nr::RT_SIGTIMEDWAIT, set, info, time.as_ptr() as usize, 8) };
        if taken < 0 {
            return slot.tid.store(0, SeqCst);
        }
    }
}

/// The set of signals that are pending for this thread alone.
fn own() -> u64 {
    let path = b"/proc/thread-self/status\0";
    let Ok(fd) = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return 0;
    };
    let mut room = [0u8; STATUS];
    let len = sys::read(fd, &mut room).unwrap_or(0);
    sys::close(fd);
    let set = proc::field(&room[..len], "SigPnd").and_then(proc::hexadecimal);
    set.unwrap_or(0) & !signal::bit(signal::SIGNAL)
}

/// Sends this thread its signals of the table again. `tid` is the id that the thread had when it
/// was stopped.
pub fn put_back(tid: i32) {
    const RT_TGSIGQUEUEINFO: usize = 297;
    for slot in TABLE.iter().filter(|slot| slot.tid.load(SeqCst) == tid) {
        // SAFETY: the information belongs to this thread, as the kernel gave it. A process may send
        // itself any information.
        unsafe {
            let info = slot.info.get();
            let signal = (*info)[0] as u32 as usize;
            let (pid, me) = (sys::getpid() as usize, sys::gettid() as usize);
            sys::call4(RT_TGSIGQUEUEINFO, pid, me, signal, info as usize);
        }
        slot.tid.store(0, SeqCst);
    }
}
