//! Signals that wait for one thread alone, blocked, with all that comes with them.
//!
//! No thread can look at the pending signals of another thread, and the kernel tells what comes
//! with a signal only to the thread that takes it. So each thread takes its own when it is
//! stopped, writes them into a common table, and sends them to itself again before it resumes:
//! here, or where the process is restored, for the table is in the image like all memory.
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

/// Signals in the table, at most.
const MAX: usize = 512;
/// Bytes of `/proc/thread-self/status` that are looked at; the signals come long before its end.
const STATUS: usize = 4096;

/// A slot in the table.
struct Slot {
    /// The id that its thread had when it was stopped; 0: free.
    tid: AtomicI32,
    /// `siginfo_t`.
    info: UnsafeCell<[u64; 16]>,
}

// SAFETY: only the thread whose id stands there touches the information.
unsafe impl Sync for Slot {}

static TABLE: [Slot; MAX] = [const {
    Slot {
        tid: AtomicI32::new(0),
        info: UnsafeCell::new([0; 16]),
    }
}; MAX];
/// Some thread found no slot.
static FULL: AtomicBool = AtomicBool::new(false);

/// Before threads are stopped.
pub fn begin() {
    FULL.store(false, SeqCst);
}

/// Whether all that waits was taken out. While all threads are stopped.
///
/// # Errors
/// There was more than can be kept.
pub fn check() -> Outcome<()> {
    match FULL.load(SeqCst) {
        true => refuse!("more than {MAX} signals wait for single threads"),
        false => Ok(()),
    }
}

/// Takes what waits for this thread, which blocks all signals, out and into the table.
pub fn take_out(me: i32) {
    // Places are taken upwards, so that they are in order.
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
        // SAFETY: the kernel reads the set and the time and writes the information. A thread's own
        // signals come before those of the process.
        let taken =
            unsafe { sys::call4(nr::RT_SIGTIMEDWAIT, set, info, time.as_ptr() as usize, 8) };
        if taken < 0 {
            return slot.tid.store(0, SeqCst);
        }
    }
}

/// The signals that wait for this thread alone.
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

/// Sends this thread again what was taken out, when its id was `tid`.
pub fn put_back(tid: i32) {
    const RT_TGSIGQUEUEINFO: usize = 297;
    for slot in TABLE.iter().filter(|slot| slot.tid.load(SeqCst) == tid) {
        // SAFETY: it is this thread's, as the kernel gave it. To oneself any may be sent.
        unsafe {
            let info = slot.info.get();
            let signal = (*info)[0] as u32 as usize;
            let (pid, me) = (sys::getpid() as usize, sys::gettid() as usize);
            sys::call4(RT_TGSIGQUEUEINFO, pid, me, signal, info as usize);
        }
        slot.tid.store(0, SeqCst);
    }
}
