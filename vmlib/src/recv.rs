//! Receiving: the first message in the inbox that source and tag select.
//!
//! Messages of one sender are received in the order in which it sent them, those that a receive
//! does not select stay where they are. [`ANY`](crate::ANY) selects every source or every tag.
//!
//! A receive may select by lists of sources and tags, and by a condition of the program
//! ([`Task::recv_if`]).
//!
//! A receive from tasks that have all ended fails once their messages were received or do not
//! fit ([`RecvError::Ended`]); one from any source waits on. The library asks its daemon for the end only
//! if it waits for long ([`crate::awaited`]).

use crate::{
    Task, callbacks,
    clock::now,
    error::RecvError,
    functions,
    message::{Envelope, Message, Source, Sources, Tag, Tags},
    notify::Event,
    primitive::{Attempt, Core, Shared, none_or_wait},
    ring::Until,
};
use std::time::Duration;
use vm_endpoint::{EndpointError, Filter, OneOf, Received, Selection, Time};
use vm_wire::Tid;

/// The first message or event that [`Task::next`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// Something that the task watches has happened.
    Event(Event),
}

impl Task {
    /// Receives the first message from `from` with `tag`, and waits for it. Both may be lists: the first
    /// message that has one of the sources and one of the tags is received.
    ///
    /// # Errors
    /// [`RecvError`], see there.
    pub fn recv<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
    ) -> Result<Message, RecvError> {
        let selection = self.selection(from, tag);
        let Some(filter) = selection.filter() else {
            let received = self.shared.take_selected(&selection, None)?;
            return Ok(received
                .expect("a wait without an end ends with a message")
                .into());
        };
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
    pub fn try_recv<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
    ) -> Result<Option<Message>, RecvError> {
        self.recv_timeout(from, tag, Duration::ZERO)
    }

    /// Receives a message, and waits for it no longer than `time`.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn recv_timeout<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
        time: Duration,
    ) -> Result<Option<Message>, RecvError> {
        let selection = self.selection(from, tag);
        let until = Some(now() + time);
        let received = match selection.filter() {
            Some(filter) => self.shared.take_until(&filter, until)?,
            None => self.shared.take_selected(&selection, until)?,
        };
        Ok(received.map(Into::into))
    }

    /// Receives the first message from `from` with `tag` of which `accepts` returns true, and waits
    /// no longer than `time`; without end if that is `None`, and then the result is a message. Others stay
    /// in the inbox.
    ///
    /// `accepts` may be called several times with one envelope. A call of this library within it fails
    /// with [`TaskError::InCallback`](crate::TaskError::InCallback).
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn recv_if<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
        time: Option<Duration>,
        accepts: impl Fn(&Envelope) -> bool,
    ) -> Result<Option<Message>, RecvError> {
        let accepts =
            |found: &vm_endpoint::Envelope| callbacks::ask(|| accepts(&Envelope::from(*found)));
        let selection = Selection {
            accepts: Some(&accepts),
            ..self.selection(from, tag)
        };
        let until = time.map(|time| now() + time);
        let received = self.shared.take_selected(&selection, until)?;
        Ok(received.map(Into::into))
    }

    /// Looks whether a message is there, and leaves it there.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn probe<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
    ) -> Result<Option<Envelope>, RecvError> {
        let selection = self.selection(from, tag);
        let mut looked = false;
        self.shared.run(|core, now| {
            core.read_rings(Until::Empty);
            let Some(found) = core.endpoint.peek_selected(&selection) else {
                core.can_come_from(&selection.from, now)?;
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
        let filter = self.filter(from, tag);
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

impl Task {
    /// The messages of this handle's context from `from` with `tag`.
    pub(crate) fn filter(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Filter {
        Filter {
            context: self.context.number(),
            from: from.into().0,
            tag: tag.into().0,
            handled: functions::is_within(),
        }
    }

    /// The messages of this handle's context from `from` with `tag`, which may be lists.
    fn selection<'a>(
        &self,
        from: impl Into<Sources<'a>>,
        tag: impl Into<Tags<'a>>,
    ) -> Selection<'a> {
        Selection {
            context: self.context.number(),
            from: from.into().0,
            tag: tag.into().0,
            handled: functions::is_within(),
            accepts: None,
        }
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

    /// The first message that `selection` selects; `None` if it does not come in time.
    fn take_selected(
        &self,
        selection: &Selection<'_>,
        until: Option<Time>,
    ) -> Result<Option<Received>, RecvError> {
        let mut looked = false;
        self.run(|core, now| {
            core.read_rings(Until::Empty);
            let (endpoint, out) = (&mut core.endpoint, &mut core.out);
            if let Some(received) = endpoint.take_selected(now, selection, out) {
                core.awaited.received(received.from);
                return Ok(Attempt::Done(Some(received)));
            }
            core.room()?;
            core.can_come_from(&selection.from, now)?;
            Ok(none_or_wait(until, now, &mut looked))
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
        let from = filter.from.map_or(OneOf::Any, OneOf::Only);
        self.can_come_from(&from, now)
    }

    /// Nothing is there that a receive from these tasks selects: an error if all of them have ended.
    fn can_come_from(&mut self, from: &OneOf<'_, Tid>, now: Time) -> Result<(), RecvError> {
        let from = match from {
            OneOf::Any => return Ok(()),
            OneOf::Only(only) => std::slice::from_ref(only),
            OneOf::These(these) => these,
        };
        let mut ended = None;
        let mut can_come = false;
        for &from in from {
            match self.endpoint.over(from) {
                Some(status) => {
                    self.awaited.received(from);
                    ended = ended.or(Some(RecvError::Ended { from, status }));
                }
                None => {
                    self.awaited.note(from, now);
                    can_come = true;
                }
            }
        }
        match ended {
            Some(error) if !can_come => Err(error),
            _ => Ok(()),
        }
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
