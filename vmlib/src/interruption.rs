//! Leaving a call that waits: for a program whose user interrupts it, such as an interpreter.
//!
//! A call of the library goes on after a signal. A thread that makes its calls within [`interruptible`]
//! gives a question with them: a call that waits asks it again and again, and is left when the answer is
//! yes. The question is asked between two attempts, without the library's lock, so it may make calls
//! itself. What a call has reached is never given up: a call that has its result returns it.

use crate::clock::now;
use std::{cell::Cell, time::Duration};
use vm_endpoint::Time;

/// A call that waits asks this often. A user notices no delay.
const EVERY: Duration = Duration::from_millis(50);

thread_local! {
    static ASKED: Cell<Option<Asked>> = const { Cell::new(None) };
}

/// The question of a thread.
#[derive(Clone, Copy)]
struct Asked {
    leave: fn() -> bool,
    /// When to ask next. `None`: no call has waited yet.
    next: Option<Time>,
}

/// Makes `calls`. A call of the library among them that waits asks `leave` about 20 times a second, and
/// fails with [`TaskError::Interrupted`](crate::TaskError::Interrupted) if it says so.
///
/// A receive that was left has taken no message. The message of a send that was left is sent as a whole
/// or not at all. What a request to the machine asked for, such as a spawn or a move, may still be done.
/// [`Task::exit`](crate::Task::exit) is not left.
pub fn interruptible<T>(leave: fn() -> bool, calls: impl FnOnce() -> T) -> T {
    let _before = Before::set(Some(Asked { leave, next: None }));
    calls()
}

/// Makes calls that are not left.
pub(crate) fn uninterrupted<T>(calls: impl FnOnce() -> T) -> T {
    let _before = Before::set(None);
    calls()
}

/// The end of a wait that is to end at `until` at the latest: also when the question is to be asked.
pub(crate) fn until(until: Option<Time>) -> Option<Time> {
    let Some(asked) = ASKED.get() else {
        return until;
    };
    let next = asked.next.unwrap_or_else(|| now() + EVERY);
    ASKED.set(Some(Asked {
        next: Some(next),
        ..asked
    }));
    until.into_iter().chain([next]).min()
}

/// Whether it is time to ask.
pub(crate) fn is_due() -> bool {
    let next = ASKED.get().and_then(|asked| asked.next);
    next.is_some_and(|next| next <= now())
}

/// Asks. The library's lock is not held.
pub(crate) fn is_to_leave() -> bool {
    let Some(asked) = ASKED.get() else {
        return false;
    };
    let answer = uninterrupted(asked.leave);
    ASKED.set(Some(Asked {
        next: Some(now() + EVERY),
        ..asked
    }));
    answer
}

/// The question that holds again afterwards.
struct Before(Option<Asked>);

impl Before {
    fn set(asked: Option<Asked>) -> Self {
        Before(ASKED.replace(asked))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        ASKED.set(self.0);
    }
}
