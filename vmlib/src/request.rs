//! Requests to the machine: numbered, one at a time, asked again until answered.
//!
//! A request is carried out once however often it is asked, because the daemon knows it by the
//! task and its number. It keeps the answer to a task's last request only, so a task has one under
//! way at a time, and its threads take turns.

use crate::{
    error::{LinkError, RequestError, TaskError},
    primitive::{Attempt, Core, Shared},
};
use vm_endpoint::Time;
use vm_wire::{Frame, Message, Op, limits::REQUEST_RETRY, task::Failed};

/// How far one thread's request is: its number, and when to ask again.
pub(crate) type Asked = Option<(u64, Time)>;

impl Core {
    /// One attempt at a request.
    pub(crate) fn ask(&mut self, question: &Frame, asked: &mut Asked, now: Time) -> Attempt<Frame> {
        let number = match *asked {
            Some((number, again)) => {
                if let Some(answer) = self.requests.take_answer() {
                    return Attempt::Done(answer);
                }
                if now < again && !self.requests.take_again() {
                    return Attempt::Wait(Some(again));
                }
                number
            }
            // Another thread's is under way.
            None if self.requests.is_open() => return Attempt::Wait(None),
            None => self.requests.begin(),
        };
        self.say(question.clone().asked(number));
        let again = now + REQUEST_RETRY;
        *asked = Some((number, again));
        Attempt::Wait(Some(again))
    }
}

impl Shared {
    /// Asks the machine and waits for its answer.
    pub(crate) fn request<A: Message>(&self, question: &impl Message) -> Result<A, RequestError> {
        let question = question.frame();
        let mut asked = None;
        let answer = self.run(|core, now| Ok(core.ask(&question, &mut asked, now)));
        if let Err(TaskError::Interrupted) = answer {
            self.give_up(&asked);
        }
        read_answer(&answer?)
    }

    /// Gives up a request whose call was left: it may still be carried out, and its answer is dropped.
    pub(crate) fn give_up(&self, asked: &Asked) {
        if asked.is_some() {
            let mut core = self.lock();
            core.requests.clear();
            self.wake(&core);
        }
    }
}

/// The result in the reply to a request.
pub(crate) fn read_answer<A: Message>(answer: &Frame) -> Result<A, RequestError> {
    let broken = |error| RequestError::Task(TaskError::Link(error));
    match answer.header.op {
        op if op == A::OP => A::read(answer).map_err(|error| broken(error.into())),
        Op::Failed => {
            let failed = Failed::read(answer).map_err(|error| broken(error.into()))?;
            Err(RequestError::Refused(failed))
        }
        op => Err(broken(LinkError::Unexpected(op))),
    }
}
