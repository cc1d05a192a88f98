//! On which processors threads may run.
//!
//! A process gets the processors of the process that starts it. A thread that may use exactly
//! those of its process's parent has chosen none: in the restored process it gets the processors
//! of the new process. So a task that had one processor of its host, because the daemon there has
//! one, has all that the daemon has on the next host. One that the program has put on other
//! processors keeps those that are there; where none of them is, it may use what the new process
//! was given, and [`is_elsewhere`] says so.
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

/// What the parent of this process had when threads were to stop; nothing if that is not known.
static GIVEN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
/// A thread of this process, which was restored, is not where its program wants it.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Notes what this process was given, before threads look at it.
pub fn look_at_parent() {
    // SAFETY: it asks for a number.
    let parent = unsafe { sys::call0(nr::GETPPID) };
    // A parent in another namespace of processes has the number 0, which would be this thread's.
    let set = if parent > 0 {
        of(parent as i32).0
    } else {
        [0; 16]
    };
    for (place, word) in GIVEN.iter().zip(set) {
        place.store(word, Relaxed);
    }
}

/// The processors of this thread, and how many bytes of them the kernel knows: none if it has
/// chosen no others than its process was given.
pub fn chosen() -> (ProcessorSet, usize) {
    let (set, len) = of(0);
    let is_given = GIVEN
        .iter()
        .zip(set)
        .all(|(given, word)| given.load(Relaxed) == word);
    (set, if is_given { 0 } else { len })
}

/// Those of a thread; of this one, if it is 0.
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

/// Has this thread use what it had chosen, as far as that is here; whether all of it is.
pub fn restore((set, len): (&ProcessorSet, usize)) -> bool {
    if len == 0 {
        return true;
    }
    // SAFETY: the kernel reads the set.
    unsafe { sys::call3(nr::SCHED_SETAFFINITY, 0, len, set.as_ptr() as usize) };
    of(0).0 == *set
}

/// Finds out whether all threads of a process that is restored can be where they want to be. This
/// one is where it was before.
pub fn try_all(threads: &[Thread]) {
    let (own, len) = of(0);
    let is_there = |thread: &Thread| restore((&thread.processors, thread.processors_len));
    let elsewhere = threads.iter().filter(|thread| !is_there(thread)).count() > 0;
    ELSEWHERE.store(elsewhere, SeqCst);
    restore((&own, len));
}

/// Whether this process was restored where a thread of it may not use all processors that its
/// program had chosen for it.
pub fn is_elsewhere() -> bool {
    ELSEWHERE.load(SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen::arena;

    #[test]
    fn processors_that_are_missing_are_told_and_change_nothing() {
        let _alone = arena::ONE_TEST.lock();
        // In a thread of its own, which ends.
        let tested = std::thread::spawn(|| {
            let (own, len) = of(0);
            assert!(restore((&own, len)));
            // A processor that no computer has that runs these tests.
            let mut missing = [0; 16];
            missing[15] = 1 << 63;
            assert!(!restore((&missing, size_of::<ProcessorSet>())));
            assert_eq!(of(0).0, own);
            // What was not chosen is not sought.
            assert!(restore((&missing, 0)));
        });
        tested.join().expect("all is so");
    }
}
