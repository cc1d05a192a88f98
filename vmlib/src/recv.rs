//! Receiving: the first message in the inbox that source and tag select.
//!
//! Messages of one sender are received in the order in which it sent them, those that a receive
//! does not select stay where they are. [`ANY`](crate::ANY) selects every source or every tag.
//!
//! A receive from one task that has ended fails once all messages of that task were received or do not
//! fit ([`RecvError::Ended`]); one from any source waits on. The library asks its daemon for the end only
//! if it waits for long ([`crate::awaited`]).

use crate::{
    Task,
    clock::now,
    error::RecvError,
    message::{Envelope, Message, Source, Tag},
    notify::Event,
    primitive::{Attempt, Core, Shared, none_or_wait},
    ring::Until,
};
use std::time::Duration;
use vm_endpoint::{EndpointError, Filter, Received, Time};

/// The first message or event that [`Task::next`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// Something that the task watches has happened.
    Event(Event),
}

impl Task {
    /// Receives the first message from `from` with `tag`, and waits for it.
    ///
    /// # Errors
    /// [`RecvError`], see there.
    pub fn recv(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message, RecvError> {
        let filter = user_filter(from, tag);
        self.shared.run(|core, now| match core.take(&filter, now)? {
            Some(received) => Ok(Attempt::Done(received.into())),
            None => {
                core.only = filter.from;
                Ok(Attempt::Wait(None))
            }
        })
    }

    /// Receives a message if one is there.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn try_recv(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Message>, RecvError> {
        self.recv_timeout(from, tag, Duration::ZERO)
    }

    /// Receives a message, and waits for it no longer than `time`.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn recv_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        time: Duration,
    ) -> Result<Option<Message>, RecvError> {
        let filter = user_filter(from, tag);
        let received = self.shared.take_until(&filter, Some(now() + time))?;
        Ok(received.map(Into::into))
    }

    /// Looks whether a message is there, and leaves it there.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Envelope>, RecvError> {
        let filter = user_filter(from, tag);
        let mut looked = false;
        self.shared.run(|core, now| {
            core.read_rings(Until::Empty);
            let Some(found) = core.endpoint.peek(&filter) else {
                core.can_come(&filter, now)?;
                return Ok(none_or_wait(Some(now), now, &mut looked));
            };
            Ok(Attempt::Done(Some(found.into())))
        })
    }

    /// Waits for a message that `from` and `tag` select or an event that was asked for (see
    /// [`Task::watch_task`]), whichever is there first; for ever if `time` is `None`. Messages go
    /// before events, so that what a task sent before its end is received before its end is known; and
    /// events before the error that `from` has ended.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn next(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        time: Option<Duration>,
    ) -> Result<Option<Incoming>, RecvError> {
        let filter = user_filter(from, tag);
        let until = time.map(|time| now() + time);
        let mut looked = false;
        self.shared.run(|core, now| {
            Ok(match core.next(&filter, now)? {
                Some(incoming) => Attempt::Done(Some(incoming)),
                None => none_or_wait(until, now, &mut looked),
            })
        })
    }
}

/// The user's own conversation.
pub(crate) fn user_filter(from: impl Into<Source>, tag: impl Into<Tag>) -> Filter {
    Filter {
        context: 0,
        from: from.into().0,
        tag: tag.into().0,
    }
}

impl Shared {
    /// The first message that `filter` selects; `None` if it does not come in time.
    pub(crate) fn take_until(
        &self,
        filter: &Filter,
        until: Option<Time>,
    ) -> Result<Option<Received>, RecvError> {
        let mut looked = false;
        self.run(|core, now| match core.take(filter, now)? {
            Some(received) => Ok(Attempt::Done(Some(received))),
            None => Ok(none_or_wait(until, now, &mut looked)),
        })
    }
}

impl Core {
    /// Takes the message out of the inbox; an error if it is not there and cannot come.
    pub(crate) fn take(
        &mut self,
        filter: &Filter,
        now: Time,
    ) -> Result<Option<Received>, RecvError> {
        let received = self.first(filter, now);
        match &received {
            Some(received) => self.awaited.received(received.from),
            None => {
                self.room()?;
                self.can_come(filter, now)?;
            }
        }
        Ok(received)
    }

    /// The first message that the filter selects, of those that have come.
    fn first(&mut self, filter: &Filter, now: Time) -> Option<Received> {
        let received = self.endpoint.take(now, filter, &mut self.out);
        if received.is_some() || self.rings.is_empty() {
            return received;
        }
        let received = self.read_rings(Until::Message(filter));
        // A message of several chunks, or one behind an earlier chunk, is in the inbox now.
        received.or_else(|| self.endpoint.take(now, filter, &mut self.out))
    }

    /// A message, else an event; an error if there is neither and no message can come.
    pub(crate) fn next(
        &mut self,
        filter: &Filter,
        now: Time,
    ) -> Result<Option<Incoming>, RecvError> {
        if let Some(received) = self.first(filter, now) {
            self.awaited.received(received.from);
            return Ok(Some(Incoming::Message(received.into())));
        }
        if let Some(notice) = self.endpoint.take_notice() {
            return Ok(Some(Incoming::Event(notice.into())));
        }
        self.room()?;
        self.can_come(filter, now)?;
        Ok(None)
    }

    /// Nothing is there that the filter selects: an error if it selects the messages of one task alone,
    /// and that has ended.
    pub(crate) fn can_come(&mut self, filter: &Filter, now: Time) -> Result<(), RecvError> {
        let Some(from) = filter.from else {
            return Ok(());
        };
        if let Some(status) = self.endpoint.over(from) {
            self.awaited.received(from);
            return Err(RecvError::Ended { from, status });
        }
        self.awaited.note(from, now);
        Ok(())
    }

    /// An error if the inbox is so full that no message can come.
    pub(crate) fn room(&self) -> Result<(), RecvError> {
        match self.endpoint.inbox_full() {
            Some(EndpointError::InboxFull {
                from,
                bytes,
                unread,
            }) => Err(RecvError::InboxFull {
                from,
                bytes,
                unread,
            }),
            _ => Ok(()),
        }
    }
}
