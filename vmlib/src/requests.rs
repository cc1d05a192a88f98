//! The requests of one task: their numbers, and the reply to the last.

use std::mem;
use vm_wire::Frame;

/// The requests of one task.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Number of the last one.
    last: u64,
    /// Whether it is under way.
    open: bool,
    /// The reply, once it has come.
    answer: Option<Frame>,
    /// It is to be asked again at once.
    again: bool,
}

impl Requests {
    /// Keeps an answer, if it is one to the request under way: others are repetitions.
    pub(crate) fn answer(&mut self, frame: Frame) {
        if self.open && frame.header.request == self.last {
            self.answer = Some(frame);
        }
    }

    /// The request under way may be lost: it is asked again at once.
    pub(crate) fn ask_again(&mut self) {
        self.again = self.open;
    }

    /// Gives up what is under way: the task leaves, or whoever asked wants no answer any more.
    pub(crate) fn clear(&mut self) {
        self.open = false;
        self.answer = None;
    }

    /// As of a task whose last request had that number.
    pub(crate) fn after(last: u64) -> Self {
        Requests {
            last,
            ..Requests::default()
        }
    }

    /// Number of the last one.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Whether one is under way.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.open = true;
        self.last
    }

    pub(crate) fn take_answer(&mut self) -> Option<Frame> {
        let answer = self.answer.take()?;
        self.open = false;
        Some(answer)
    }

    /// Whether the request under way is to be asked again at once. Asked once.
    pub(crate) fn take_again(&mut self) -> bool {
        mem::take(&mut self.again)
    }
}
