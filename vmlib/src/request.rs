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

    /// What is under way may be lost: asks again.
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

    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.open = true;
        self.last
    }

    fn take_answer(&mut self) -> Option<Frame> {
        let answer = self.answer.take()?;
        self.open = false;
        Some(answer)
    }
}

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
                if now < again && !std::mem::take(&mut self.requests.again) {
                    return Attempt::Wait(Some(again));
                }
                number
            }
            // Another thread's is under way.
            None if self.requests.open => return Attempt::Wait(None),
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
        let answer =
            self.run(|core, now| Ok::<_, TaskError>(core.ask(&question, &mut asked, now)))?;
        read_answer(&answer)
    }
}

/// What a request came to.
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
