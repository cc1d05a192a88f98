//! Sending: a message into the channel to each of its receivers.
//!
//! A send returns when the channel has the whole message, not when it was received. It waits while
//! the receiver does not take what came before, beyond the window; and while it waits it takes
//! into the inbox what others send, so that two tasks that send to each other do not stop for ever.
//! A multicast gives each receiver what that one's window allows, so a slow receiver delays the
//! call's return, not the others' messages.

use crate::{
    Task, clock,
    error::{SendError, TaskError},
    message::{Number, encode_slice, encode_value},
    primitive::{Attempt, Core, Shared},
    started::Copy,
};
use bytes::Bytes;
use serde::Serialize;
use std::time::Duration;
use vm_endpoint::{EndpointError, NoRing, SendProgress, Sending, Time};
use vm_wire::{Tid, limits};

impl Task {
    /// Sends a serde value to `to`, to be read by [`crate::Message::value`].
    ///
    /// To a task that has ended or never was, nothing is sent, and that is no error:
    /// [`Task::watch_task`] tells.
    ///
    /// # Errors
    /// [`SendError`], see there. Waits as long as the receiver takes nothing.
    pub fn send<T: Serialize + ?Sized>(
        &self,
        to: Tid,
        tag: i32,
        value: &T,
    ) -> Result<(), SendError> {
        let body = encode_value(value).map_err(SendError::Value)?;
        self.send_bytes(to, tag, body)
    }

    /// Sends bytes to `to`; without a copy if they come as [`Bytes`] or `Vec<u8>`. At most
    /// [`limits::MESSAGE_MAX`] (1 GiB).
    ///
    /// # Errors
    /// As [`Task::send`].
    pub fn send_bytes(&self, to: Tid, tag: i32, body: impl Into<Bytes>) -> Result<(), SendError> {
        self.shared
            .send_to(&[to], self.context.number(), tag, body.into())
    }

    /// Sends a slice of numbers to `to`, to be read by [`crate::Message::slice`].
    ///
    /// # Errors
    /// As [`Task::send`].
    pub fn send_slice<T: Number>(&self, to: Tid, tag: i32, numbers: &[T]) -> Result<(), SendError> {
        self.send_bytes(to, tag, encode_slice(numbers))
    }

    /// Sends a serde value to each of `to`.
    ///
    /// # Errors
    /// As [`Task::send`]; then some of the receivers may have the message.
    pub fn multicast<T: Serialize + ?Sized>(
        &self,
        to: &[Tid],
        tag: i32,
        value: &T,
    ) -> Result<(), SendError> {
        let body = encode_value(value).map_err(SendError::Value)?;
        self.multicast_bytes(to, tag, body)
    }

    /// Sends bytes to each of `to`; they are kept once for all.
    ///
    /// # Errors
    /// As [`Task::multicast`].
    pub fn multicast_bytes(
        &self,
        to: &[Tid],
        tag: i32,
        body: impl Into<Bytes>,
    ) -> Result<(), SendError> {
        self.shared
            .send_to(to, self.context.number(), tag, body.into())
    }

    /// Sends a slice of numbers to each of `to`.
    ///
    /// # Errors
    /// As [`Task::multicast`].
    pub fn multicast_slice<T: Number>(
        &self,
        to: &[Tid],
        tag: i32,
        numbers: &[T],
    ) -> Result<(), SendError> {
        self.multicast_bytes(to, tag, encode_slice(numbers))
    }
}

/// A send waits so long for a receiver to read a long message from its memory; then the message goes by
/// the daemon. On a busy host a receiver that waits gets the processor within that time. Several receivers
/// read one after the other: the time of the others begins again when one of them has read.
const LOAN_TIME: Duration = Duration::from_millis(1);

/// A send waits so long for a receiver to make room in a ring; then the rest goes by the daemon. A
/// receiver that computes costs this once for each ring that is full.
const FULL_TIME: Duration = Duration::from_millis(2);

/// A send waits so long for a direct connection to have room, or to take the rest of a chunk: a network
/// takes longer to make room than a receiver that reads.
const FULL_TIME_DIRECT: Duration = Duration::from_millis(10);

impl Shared {
    /// Sends `body` to each of `to`.
    pub(crate) fn send_to(
        &self,
        to: &[Tid],
        context: u32,
        tag: i32,
        body: Bytes,
    ) -> Result<(), SendError> {
        check(to, &body)?;
        if let [to] = *to {
            let mut copy = Copy::new(Sending::new(to, context, tag, body));
            let sent = self.run(|core, now| {
                Ok(match copy.push(core, now)? {
                    true => Attempt::Done(()),
                    false => Attempt::Wait(copy.overflows_at),
                })
            });
            return match sent {
                Err(SendError::Task(TaskError::Interrupted)) => self.leave_copies(vec![copy]),
                sent => sent,
            };
        }
        let copy = |to: &Tid| Copy::new(Sending::new(*to, context, tag, body.clone()));
        let mut copies: Vec<Copy> = to.iter().map(copy).collect();
        let sent = self.run(|core, now| {
            let mut first_error = None;
            let waiting = copies.len();
            copies.retain_mut(|copy| match copy.push(core, now) {
                Ok(done) => !done,
                Err(error) => {
                    first_error.get_or_insert(error);
                    false
                }
            });
            match first_error {
                Some(error) => {
                    copies.drain(..).for_each(|copy| copy.give_up(core));
                    Err(error)
                }
                None if copies.is_empty() => Ok(Attempt::Done(())),
                None => {
                    if copies.len() < waiting {
                        // The other receivers had to wait for a processor meanwhile.
                        copies.iter_mut().for_each(Copy::begin_loan_again);
                    }
                    let overflow = copies.iter().filter_map(|copy| copy.overflows_at);
                    Ok(Attempt::Wait(overflow.min()))
                }
            }
        });
        match sent {
            Err(SendError::Task(TaskError::Interrupted)) => self.leave_copies(copies),
            sent => sent,
        }
    }

    /// The end of a call that was left. A message that is whole in its channel, and only waits to be read
    /// from this task's memory, goes by the daemon; any other one is given up.
    fn leave_copies(&self, copies: Vec<Copy>) -> Result<(), SendError> {
        let mut core = self.lock();
        for mut copy in copies {
            copy.overflows_at = Some(Time::default());
            if !matches!(copy.push(&mut core, clock::now()), Ok(true)) {
                copy.give_up(&mut core);
            }
        }
        self.wake(&core);
        Err(TaskError::Interrupted.into())
    }
}

/// Whether a message may be sent to these receivers.
pub(crate) fn check(to: &[Tid], body: &Bytes) -> Result<(), SendError> {
    let len = body.len() as u64;
    if len > limits::MESSAGE_MAX {
        return Err(SendError::TooLong { len });
    }
    match to.iter().copied().find(|to| to.sequence() == 0) {
        Some(to) => Err(SendError::NoTask { to }),
        None => Ok(()),
    }
}

/// How long a send waits for its route past the daemon, if it waits `on_ring` for a ring.
fn patience(core: &mut Core, to: Tid, on_ring: Duration) -> Duration {
    match core.rings.is_direct(to) {
        true => FULL_TIME_DIRECT,
        false => on_ring,
    }
}

impl Copy {
    /// Pushes as much as the channel takes; whether that was the rest. After an error the message is
    /// given up, unless it is pushed again.
    fn push(&mut self, core: &mut Core, now: Time) -> Result<bool, SendError> {
        let to = self.to();
        if !self.is_begun {
            let is_busy = !core.busy.is_empty() && core.busy.contains(&to);
            if is_busy || core.started.holds(to)? {
                return Ok(false);
            }
            self.is_begun = true;
        }
        let sending = &mut self.sending;
        let overflows = self.overflows_at.is_some_and(|at| now >= at);
        let mut progress = core.poll_send(now, sending, overflows);
        let lent = core.rings.is_lent(to);
        self.lends |= lent;
        if lent || !matches!(progress, Ok(SendProgress::Done)) {
            // The ring states the chunks that the receiver has taken meanwhile.
            core.rings.look(&mut core.endpoint, now);
            progress = core.poll_send(now, sending, overflows);
        }
        if self.lends && core.rings.is_loan_lost(to) {
            core.endpoint.resend_by_daemon(now, to, 1, &mut core.out);
            core.rings.end_loan(to);
            self.lends = false;
        }
        match progress {
            Ok(SendProgress::Done) if lent && core.rings.is_lent(to) && !overflows => {
                let time = patience(core, to, LOAN_TIME);
                self.overflows_at.get_or_insert(clock::now() + time);
                core.busy.insert(to);
                Ok(false)
            }
            Ok(SendProgress::Done) => {
                // The receiver has not read the bodies in time.
                if self.lends && core.rings.is_lent(to) {
                    let first = core.rings.first_lent(to);
                    core.endpoint
                        .resend_by_daemon(now, to, first, &mut core.out);
                    core.rings.end_loan(to);
                }
                if !core.busy.is_empty() {
                    core.busy.remove(&to);
                }
                Ok(true)
            }
            Ok(SendProgress::NeedsRoom) => {
                let time = patience(core, to, FULL_TIME);
                self.overflows_at.get_or_insert(clock::now() + time);
                core.busy.insert(to);
                Ok(false)
            }
            Ok(SendProgress::NeedsCredit) => {
                self.overflows_at = None;
                core.busy.insert(to);
                Ok(false)
            }
            Err(error) => {
                core.busy.remove(&to);
                Err(refused(to, error))
            }
        }
    }

    /// The time in which the receiver is to read what was lent to it begins now.
    fn begin_loan_again(&mut self) {
        if self.lends && self.overflows_at.is_some() {
            self.overflows_at = Some(clock::now() + LOAN_TIME);
        }
    }

    /// Leaves the receiver to the next message; the channel drops the half that it has.
    fn give_up(self, core: &mut Core) {
        if self.is_begun {
            core.busy.remove(&self.to());
        }
    }
}

impl Core {
    /// Sends as much of the started messages as their channels take.
    pub(crate) fn push_started(&mut self, now: Time) {
        if self.started.are_sent() || self.phase.running().is_err() {
            return;
        }
        // A started message must not wait for itself.
        let mut started = std::mem::take(&mut self.started);
        started.advance(|copy| copy.push(self, now));
        self.started = started;
    }

    /// Sends as much of a message as its ring, or else the daemon, takes.
    fn poll_send(
        &mut self,
        now: Time,
        sending: &mut Sending,
        overflows: bool,
    ) -> Result<SendProgress, EndpointError> {
        let (endpoint, out) = (&mut self.endpoint, &mut self.out);
        match self.rings.way_out(endpoint, sending.to(), now) {
            Some(mut way) => endpoint.poll_send_by(now, sending, (&mut way, overflows), out),
            None => endpoint.poll_send_by(now, sending, (&mut NoRing, true), out),
        }
    }
}

/// The error of a channel as an error of the call.
fn refused(to: Tid, error: EndpointError) -> SendError {
    match error {
        EndpointError::TooLong { len } => SendError::TooLong { len },
        EndpointError::InboxFull {
            from,
            bytes,
            unread,
        } => SendError::InboxFull {
            to,
            from,
            bytes,
            unread,
        },
        EndpointError::Superseded { .. } => unreachable!("`busy` keeps messages to {to} apart"),
        EndpointError::Backlog { .. } => unreachable!("only daemons have a backlog"),
    }
}
