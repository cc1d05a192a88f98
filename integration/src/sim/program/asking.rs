//! A request of a simulated program, from its first sending to its reply.

use std::collections::VecDeque;
use vm_machine::Time;
use vm_wire::{Frame, Op, limits};

/// A request that waits for its reply.
#[derive(Clone)]
pub struct Asking {
    frame: Frame,
    /// The time at which the request is repeated; `None` before it was sent.
    retry: Option<Time>,
    pub answered: bool,
    pub what: What,
}

#[derive(Clone)]
pub enum What {
    Spawn(u32),
    Join,
    Leave,
    Exit(i32),
    Move,
    Other,
}

impl Asking {
    pub fn new(what: What, frame: Frame) -> Self {
        Asking {
            frame,
            retry: None,
            answered: false,
            what,
        }
    }

    /// The opcode of the request.
    pub fn op(&self) -> Op {
        self.frame.header.op
    }

    /// Whether the reply has come.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// The status with which the task ends, once its exit request has its reply.
    pub fn left(&self) -> Option<i32> {
        match self.what {
            What::Exit(status) if self.answered => Some(status),
            _ => None,
        }
    }

    /// Has the request repeated at once.
    pub fn ask_again(&mut self) {
        self.retry = None;
    }

    /// Sends the request if it is due. Returns the time of the next repetition.
    pub fn ask(&mut self, now: Time, out: &mut VecDeque<Frame>) -> Time {
        match self.retry {
            Some(retry) if now < retry => retry,
            _ => {
                out.push_back(self.frame.clone());
                *self.retry.insert(now + limits::REQUEST_RETRY)
            }
        }
    }
}
