//! Sends and receives that are started, and completed later: the program computes meanwhile.
//!
//! A [`Request`] owns its message. All open requests go on in every call of the library, of whatever
//! kind, and in no other place: a program that computes for long between two calls calls
//! [`Request::test`] now and then.
//!
//! Requests are part of a task's image: a task with open requests is moved, saved and restored like any
//! other. A portable task is saved without its requests: messages of started sends are sent all the
//! same, messages that started receives hold are in the inbox again, each in its place, and the program
//! starts its receives again.

use crate::{
    Message, Source, Tag, Task,
    clock::now,
    error::{StartError, WaitError},
    message::{Number, encode_slice, encode_value},
    primitive::{Attempt, Core, Shared, none_or_wait},
    ring::Until,
    send::check,
    started::SendId,
};
use bytes::Bytes;
use serde::Serialize;
use std::sync::Arc;
use vm_endpoint::{Filter, ReceiveId, Sending, Time};
use vm_wire::{Tid, limits};

/// A send or receive that was started, from [`Task::start_send`] and [`Task::start_recv`].
///
/// It is *open* until its result was returned. To drop an open request forgets a send, whose message is
/// delivered all the same, and cancels a receive ([`Request::cancel`]).
#[derive(Debug)]
pub struct Request {
    shared: Arc<Shared>,
    /// `None`: the result was returned.
    operation: Option<Operation>,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Send(SendId),
    Receive(ReceiveId, Filter),
}

/// The result of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    /// The message has been sent, as far as [`Task::send`] sends it before it returns.
    Sent,
    /// The message that was received.
    Received(Message),
}

impl Completed {
    /// The message that was received; `None` for a send.
    pub fn message(self) -> Option<Message> {
        match self {
            Completed::Received(message) => Some(message),
            Completed::Sent => None,
        }
    }
}

impl Task {
    /// Starts to send a serde value to `to`, and returns at once. Messages to one receiver, of started
    /// sends and of other ones, arrive in the order of the calls.
    ///
    /// # Errors
    /// [`StartError`], see there.
    pub fn start_send<T: Serialize + ?Sized>(
        &self,
        to: Tid,
        tag: i32,
        value: &T,
    ) -> Result<Request, StartError> {
        let body = encode_value(value).map_err(crate::SendError::Value)?;
        self.start_send_bytes(to, tag, body)
    }

    /// Starts to send a slice of numbers; see [`Task::start_send`].
    ///
    /// # Errors
    /// [`StartError`], see there.
    pub fn start_send_slice<T: Number>(
        &self,
        to: Tid,
        tag: i32,
        numbers: &[T],
    ) -> Result<Request, StartError> {
        self.start_send_bytes(to, tag, encode_slice(numbers))
    }

    /// Starts to send bytes, without a copy if they come as [`Bytes`] or `Vec<u8>`; see
    /// [`Task::start_send`].
    ///
    /// # Errors
    /// [`StartError`], see there.
    pub fn start_send_bytes(
        &self,
        to: Tid,
        tag: i32,
        body: impl Into<Bytes>,
    ) -> Result<Request, StartError> {
        let body = body.into();
        check(&[to], &body)?;
        let mut sending = Some(Sending::new(to, self.context.number(), tag, body));
        self.start(|core, now| {
            let sending = sending.take().expect("a request is started once");
            let id = core.started.start(sending);
            core.push_started(now);
            Operation::Send(id)
        })
    }

    /// Starts to receive the first message from `from` with `tag`, and returns at once. The receive has
    /// its place in the order of matching: a message that it selects goes to no later receive, started or
    /// not, and is found by no [`Task::probe`].
    ///
    /// # Errors
    /// [`StartError`], see there.
    pub fn start_recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request, StartError> {
        let filter = self.filter(from, tag);
        self.start(|core, now| {
            // The messages in rings go to receives that were started before, or are unread.
            core.read_rings(Until::Empty);
            let id = core.endpoint.start_receive(now, filter, &mut core.out);
            Operation::Receive(id, filter)
        })
    }

    fn start(
        &self,
        mut operation: impl FnMut(&mut Core, Time) -> Operation,
    ) -> Result<Request, StartError> {
        let operation = self.shared.run(|core, now| {
            if core.started.len() + core.endpoint.receives() >= limits::OPEN_REQUESTS_MAX {
                return Err(StartError::TooMany);
            }
            Ok(Attempt::Done(operation(core, now)))
        })?;
        self.shared.share();
        Ok(Request {
            shared: Arc::clone(&self.shared),
            operation: Some(operation),
        })
    }

    /// Waits until one of the open requests is complete, and returns its index and result; `None` if
    /// none is open.
    ///
    /// # Errors
    /// Those of [`Request::wait`], if no request is complete and one of them cannot be completed.
    pub fn wait_any(
        &self,
        requests: &mut [Request],
    ) -> Result<Option<(usize, Completed)>, WaitError> {
        self.shared.run(|core, now| {
            core.read_rings(Until::Empty);
            let mut first_error = None;
            let mut is_open = false;
            for (index, request) in requests.iter_mut().enumerate() {
                let Some(operation) = request.operation else {
                    continue;
                };
                is_open = true;
                match operation.is_complete(core, now) {
                    Ok(true) => {
                        request.operation = None;
                        let result = operation.complete(core);
                        return Ok(Attempt::Done(Some((index, result))));
                    }
                    Ok(false) => {}
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            match first_error {
                Some(error) => Err(error),
                None if is_open => Ok(Attempt::Wait(None)),
                None => Ok(Attempt::Done(None)),
            }
        })
    }

    /// Waits until all open requests are complete, and returns the results of those that were open, in
    /// their order.
    ///
    /// # Errors
    /// Those of [`Request::wait`], if a request cannot be completed: all requests stay open, also those
    /// that are complete.
    pub fn wait_all(&self, requests: &mut [Request]) -> Result<Vec<Completed>, WaitError> {
        self.shared.run(|core, now| {
            core.read_rings(Until::Empty);
            let mut all = true;
            for operation in requests.iter().filter_map(|it| it.operation) {
                all &= operation.is_complete(core, now)?;
            }
            if !all {
                return Ok(Attempt::Wait(None));
            }
            let open = requests.iter_mut().filter_map(|it| it.operation.take());
            let results = open.map(|operation| operation.complete(core));
            Ok(Attempt::Done(results.collect()))
        })
    }
}

impl Request {
    /// Whether the result was not returned yet.
    pub fn is_open(&self) -> bool {
        self.operation.is_some()
    }

    /// The result, if the request is complete. Does not wait.
    ///
    /// # Errors
    /// Those of [`Request::wait`].
    pub fn test(&mut self) -> Result<Option<Completed>, WaitError> {
        self.poll(Some(now()))
    }

    /// Waits until the request is complete. A send is complete when [`Task::send`] would return: it waits
    /// for the receiver only if the receiver is more than the window behind.
    ///
    /// # Errors
    /// [`WaitError`], see there. The request stays open, and nothing is lost: the call can be repeated.
    pub fn wait(&mut self) -> Result<Completed, WaitError> {
        let completed = self.poll(None)?;
        completed.ok_or(WaitError::NotOpen)
    }

    /// Cancels a receive: its message, or the part of it that has come, stays in the inbox, as if the
    /// receive had not been started. The message of a send is delivered all the same.
    pub fn cancel(self) {
        drop(self);
    }

    fn poll(&mut self, until: Option<Time>) -> Result<Option<Completed>, WaitError> {
        let operation = self.operation.ok_or(WaitError::NotOpen)?;
        let mut looked = false;
        let result = self.shared.run(|core, now| {
            core.read_rings(Until::Empty);
            Ok::<_, WaitError>(match operation.is_complete(core, now)? {
                true => Attempt::Done(Some(operation.complete(core))),
                false => none_or_wait(until, now, &mut looked),
            })
        })?;
        if result.is_some() {
            self.operation = None;
        }
        Ok(result)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(operation) = self.operation.take() else {
            return;
        };
        let mut core = self.shared.lock();
        match operation {
            Operation::Send(id) => core.started.forget(id),
            Operation::Receive(id, _) => core.endpoint.cancel_receive(id),
        }
        // Another thread may wait for the message of a receive.
        self.shared.wake(&core);
    }
}

impl Operation {
    /// An error if it is not complete, and cannot be before the program does something else.
    fn is_complete(&self, core: &mut Core, now: Time) -> Result<bool, WaitError> {
        match self {
            Operation::Send(id) => Ok(core.started.is_sent(*id)?),
            Operation::Receive(id, _) if core.endpoint.has_received(*id) => Ok(true),
            Operation::Receive(_, filter) => {
                core.room()?;
                core.can_come(filter, now)?;
                Ok(false)
            }
        }
    }

    /// The result of an operation that is complete.
    fn complete(&self, core: &mut Core) -> Completed {
        match self {
            Operation::Send(id) => {
                core.started.forget(*id);
                Completed::Sent
            }
            Operation::Receive(id, _) => {
                let received = core.endpoint.claim(*id).expect("the receive is complete");
                core.awaited.received(received.from);
                Completed::Received(received.into())
            }
        }
    }
}
