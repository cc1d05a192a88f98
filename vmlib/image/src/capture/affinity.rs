//! The processors that threads may use.
//!
//! A process inherits its processors from its parent. A thread that may use exactly the processors
//! of its process's parent has not chosen any: in the restored process it gets the processors of
//! the new process. So a task whose daemon had one processor on the source can use all processors
//! of the daemon on the target. A thread that the program has bound to other processors stays bound
//! to those that exist on the new host. If none of them exists, the thread may use the processors
//! of the new process, and [`is_elsewhere`] reports that.
//!
//! **Runs while all threads are stopped**: nothing here allocates or locks.

use crate::{
    capture::thread::{ProcessorSet, Thread},
    raw::sys::{self, nr},
};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The processors that the parent of this process had when threads were about to be stopped; all
/// zero if not known.
static GIVEN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
/// Whether a thread of this restored process is not on the processors that its program has chosen.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Notes the processors of this process's parent. To be called before threads are stopped.
pub fn look_at_parent() {
    // SAFETY: the call only reads.
    let parent = unsafe { sys::call0(nr::GETPPID) };
    // A parent in another pid namespace has the number 0, which would mean this thread.
    let set = if parent > 0 {
        of(parent as i32).0
    } else {
        [0; 16]
    };
    for (place, word) in GIVEN.iter().zip(set) {
        place.store(word, Relaxed);
    }
}

/// The processors of this thread, and the bytes of the set that the kernel uses: 0 if the thread
/// has the processors that its process was given.
pub fn chosen() -> (ProcessorSet, usize) {
    let (set, len) = of(0);
    let is_given = GIVEN
        .iter()
        .zip(set)
        .all(|(given, word)| given.load(Relaxed) == word);
    (set, if is_given { 0 } else { len })
}

/// The processors of a thread; `0` means this thread.
fn of(thread: i32) -> (ProcessorSet, usize) {
    let mut set = [0; 16];
    let at = set.as_mut_ptr() as usize;
    // SAFETY: the kernel writes the set.
    let len = unsafe {
        sys::call3(
            nr::SCHED_GETAFFINITY,
            thread as usize,
            size_of::<ProcessorSet>(),
            at,
        )
    };
    (set, usize::try_from(len).unwrap_or(0))
}

/// Binds this thread to chosen processors, as far as they exist here. Returns whether all of them
/// exist.
pub fn restore((set, len): (&ProcessorSet, usize)) -> bool {
    if len == 0 {
        return true;
    }
    // SAFETY: the kernel reads the set.
    unsafe { sys::call3(nr::SCHED_SETAFFINITY, 0, len, set.as_ptr() as usize) };
    of(0).0 == *set
}

/// Determines whether all threads of a restored process can use the processors that the program has
/// chosen. The calling thread gets its own processors back.
pub fn try_all(threads: &[Thread]) {
    let (own, len) = of(0);
    let is_there = |thread: &Thread| restore((&thread.processors, thread.processors_len));
    let elsewhere = threads.iter().filter(|thread| !is_there(thread)).count() > 0;
    ELSEWHERE.store(elsewhere, SeqCst);
    restore((&own, len));
}

/// Whether a thread of this restored process may not use all processors that its program has chosen
/// for it.
pub fn is_elsewhere() -> bool {
    ELSEWHERE.load(SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen::arena;

    #[test]
    fn missing_processors_are_reported_and_change_nothing() {
        let _alone = arena::ONE_TEST.lock();
        // In a thread of its own, so that the test changes no other thread.
        let tested = std::thread::spawn(|| {
            let (own, len) = of(0);
            assert!(restore((&own, len)));
            // A processor that no host of these tests has.
            let mut missing = [0; 16];
            missing[15] = 1 << 63;
            assert!(!restore((&missing, size_of::<ProcessorSet>())));
            assert_eq!(of(0).0, own);
            // An empty choice changes nothing.
            assert!(restore((&missing, 0)));
        });
        tested.join().expect("all is so");
    }
}
