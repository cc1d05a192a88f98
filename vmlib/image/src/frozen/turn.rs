//! The right of one caller at a time: to save this process, or to handle a trigger.
//!
//! **Used in signal handlers**: nothing here allocates or locks.

use crate::raw::sys;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Held by the caller that saves this process.
pub static SAVE: Turn = Turn::new();
/// Held by the handler of the trigger until the image has its name.
pub static TRIGGER: Turn = Turn::new();

/// Frees both turns in a process that was just restored, in which the callers that held them do not
/// continue.
pub fn forget() {
    SAVE.give_back();
    TRIGGER.give_back();
}

/// Holds the id of the process whose caller has the turn, or 0. A forked child has a copy of this
/// memory, but another id: so the turn is free in the child.
pub struct Turn(AtomicI32);

impl Turn {
    const fn new() -> Self {
        Turn(AtomicI32::new(0))
    }

    /// Takes the turn if it is free. Returns whether the caller has it now.
    pub fn take(&self) -> bool {
        let (me, before) = (sys::getpid(), self.0.load(SeqCst));
        before != me && self.0.compare_exchange(before, me, SeqCst, SeqCst).is_ok()
    }

    /// Frees the turn.
    pub fn give_back(&self) {
        self.0.store(0, SeqCst);
    }
}
