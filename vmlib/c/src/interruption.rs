//! The question by which a program leaves a call that waits. Each thread has its own.

use std::{cell::Cell, ffi::c_int};

/// A function of the program (`vm_question`).
pub type Question = Option<extern "C" fn() -> c_int>;

thread_local! {
    static QUESTION: Cell<Question> = const { Cell::new(None) };
}

/// Makes a call, which asks the question of this thread while it waits.
pub fn within<T>(call: impl FnOnce() -> T) -> T {
    match question() {
        Some(_) => vmlib::interruptible(is_interrupted, call),
        None => call(),
    }
}

/// The question; none in a thread that is ending.
fn question() -> Question {
    QUESTION.try_with(Cell::get).unwrap_or(None)
}

fn is_interrupted() -> bool {
    question().is_some_and(|question| question() != 0)
}

/// Has the calls of this thread ask a question while they wait; NULL ends that.
#[unsafe(no_mangle)]
pub extern "C" fn vm_interrupt_when(question: Question) -> c_int {
    // Not there any more in a thread that is ending, which is not asked either.
    let _ = QUESTION.try_with(|place| place.set(question));
    0
}
