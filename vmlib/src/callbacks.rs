//! The callbacks of a program around saves of its task ([`crate::Task::around_saves`]), and what the
//! library's calls may do within them. When they are called says [`crate::save_in_call`].

use crate::error::TaskError;
use std::cell::Cell;

thread_local! {
    static WITHIN: Cell<Within> = const { Cell::new(Within::Nothing) };
}

/// Which callbacks this thread is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    Before,
    After,
    /// The condition of a receive, with the core locked.
    Condition,
}

/// The calls of a program around each save of its task: for a checkpoint, a move, or `vm suspend`. A socket of
/// its own, say, is closed before, and opened again afterwards. See [`Task::around_saves`](crate::Task::around_saves).
pub trait Callbacks: Send {
    /// The task is about to be saved: lets go of what cannot be. It may make any system call, but no call of
    /// this library, which fails with [`TaskError::InCallback`]. Other tasks of the application may stand
    /// until it returns.
    ///
    /// The value of a portable task has to hold all that is to be saved already.
    ///
    /// # Errors
    /// Why there must be no save now: then there is no checkpoint, or no move, and the requester is told this
    /// text.
    fn before_save(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The task goes on in the same process, whether it was saved or not.
    fn after_save(&mut self) {}

    /// The task goes on in a new process, perhaps on another host: it was moved, resumed, or brought back
    /// from a checkpoint. Of a portable task called before [`Task::portable`](crate::Task::portable) returns there.
    fn after_resume(&mut self) {}
}

/// An error in `before_save`, which may make no call.
pub(crate) fn may_call() -> Result<(), TaskError> {
    match WITHIN.get() {
        Within::Before | Within::Condition => Err(TaskError::InCallback),
        Within::Nothing | Within::After => Ok(()),
    }
}

/// An error in the condition of a receive: the call would wait for the receive.
pub(crate) fn may_wait() -> Result<(), TaskError> {
    match WITHIN.get() {
        Within::Condition => Err(TaskError::InCallback),
        Within::Nothing | Within::Before | Within::After => Ok(()),
    }
}

/// The result of a condition of a receive.
pub(crate) fn ask<T>(condition: impl FnOnce() -> T) -> T {
    let _entered = Entered::new(Within::Condition);
    condition()
}

/// An error in any of them: none may come to a safe point.
pub(crate) fn may_be_saved() -> Result<(), TaskError> {
    match WITHIN.get() {
        Within::Before | Within::After | Within::Condition => Err(TaskError::InCallback),
        Within::Nothing => Ok(()),
    }
}

/// This thread is in callbacks while it exists.
struct Entered {
    before: Within,
}

impl Entered {
    fn new(within: Within) -> Self {
        let before = WITHIN.replace(within);
        Entered { before }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        WITHIN.set(self.before);
    }
}

/// Calls `before_save` of each. If one refuses, those before it hear that there was no save.
pub(crate) fn before(all: &mut [Box<dyn Callbacks>]) -> Result<(), String> {
    let entered = Entered::new(Within::Before);
    let refused = all
        .iter_mut()
        .enumerate()
        .find_map(|(index, each)| Some((index, each.before_save().err()?)));
    drop(entered);
    match refused {
        Some((index, why)) => {
            after(&mut all[..index], false);
            Err(why)
        }
        None => Ok(()),
    }
}

/// The task goes on; `elsewhere`: in a new process.
pub(crate) fn after(all: &mut [Box<dyn Callbacks>], elsewhere: bool) {
    let _entered = Entered::new(Within::After);
    for each in all.iter_mut().rev() {
        match elsewhere {
            true => each.after_resume(),
            false => each.after_save(),
        }
    }
}
