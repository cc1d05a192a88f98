//! Sends that the program has started: they go on in every call of the library.
//!
//! Started messages to one receiver are sent in the order of their starts. A send that begins later, of
//! whatever kind, waits for them. A message that is in its channel stays listed here until the program
//! has completed its request, or has dropped it.
//!
//! Only the list is here; [`crate::send`] sends.

use crate::error::SendError;
use std::collections::{BTreeMap, BTreeSet};
use vm_endpoint::{Sending, SendingState, Time};
use vm_wire::Tid;

/// One receiver's copy of a message on its way into the channel.
#[derive(Debug)]
pub(crate) struct Copy {
    pub sending: Sending,
    /// The channel was given a part of it, or will be before other messages to that receiver.
    pub is_begun: bool,
    /// When the rest goes by the daemon if the ring is still full.
    pub overflows_at: Option<Time>,
    /// Bodies of the message were lent to the receiver.
    pub lends: bool,
}

impl Copy {
    pub fn new(sending: Sending) -> Self {
        Copy {
            sending,
            is_begun: false,
            overflows_at: None,
            lends: false,
        }
    }

    pub fn to(&self) -> Tid {
        self.sending.to()
    }
}

/// Number of a started send. A later send has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SendId(u64);

/// A send that was started.
#[derive(Debug)]
struct Started {
    /// `None`: the channel has the whole message.
    unsent: Option<Copy>,
    /// The program has dropped the request.
    is_dropped: bool,
    /// This task's own inbox was full at the last step. The next step may succeed.
    held_up: Option<SendError>,
}

/// The sends of a task that were started and not completed.
#[derive(Debug, Default)]
pub(crate) struct StartedSends {
    all: BTreeMap<SendId, Started>,
    /// Number of the last send.
    last: u64,
    /// Messages that are not in their channels.
    unsent: usize,
}

impl StartedSends {
    /// Number of the sends.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether all messages are in their channels.
    pub fn are_sent(&self) -> bool {
        self.unsent == 0
    }

    /// Number of the messages that are not in their channels, and the receiver of the first one.
    pub fn unsent(&self) -> Option<(usize, Tid)> {
        let first = self.copies().next()?;
        Some((self.unsent, first.to()))
    }

    /// Adds a send.
    pub fn start(&mut self, sending: Sending) -> SendId {
        self.add(Copy::new(sending), false)
    }

    /// Whether a message to a receiver waits here.
    ///
    /// # Errors
    /// [`SendError::InboxFull`] if the message cannot be sent before this task receives.
    pub fn holds(&self, to: Tid) -> Result<bool, SendError> {
        if self.are_sent() {
            return Ok(false);
        }
        let is_to = |it: &&Started| it.unsent.as_ref().is_some_and(|copy| copy.to() == to);
        match self.all.values().find(is_to) {
            Some(started) => started.held_up.clone().map_or(Ok(true), Err),
            None => Ok(false),
        }
    }

    /// Whether a message to a receiver is half sent.
    pub fn is_half_sent(&self, to: Tid) -> bool {
        self.copies().any(|copy| copy.is_begun && copy.to() == to)
    }

    /// Whether the channel has the whole message.
    ///
    /// # Errors
    /// [`SendError::InboxFull`] if the message cannot be sent before this task receives.
    pub fn is_sent(&self, id: SendId) -> Result<bool, SendError> {
        let Some(started) = self.all.get(&id) else {
            return Ok(true);
        };
        match &started.held_up {
            Some(error) => Err(error.clone()),
            None => Ok(started.unsent.is_none()),
        }
    }

    /// The program wants to know no more of a send. Its message is sent all the same.
    pub fn forget(&mut self, id: SendId) {
        if let Some(started) = self.all.get_mut(&id) {
            started.is_dropped = true;
            if started.unsent.is_none() {
                self.all.remove(&id);
            }
        }
    }

    /// The time at which a message takes another route.
    pub fn due(&self) -> Option<Time> {
        match self.are_sent() {
            true => None,
            false => self.copies().filter_map(|copy| copy.overflows_at).min(),
        }
    }

    /// Sends on: `push` gives the channel what it takes, and returns whether that was the rest. Of the
    /// messages to one receiver only the first is pushed.
    pub fn advance(&mut self, mut push: impl FnMut(&mut Copy) -> Result<bool, SendError>) {
        let mut waiting = BTreeSet::new();
        let unsent = &mut self.unsent;
        self.all.retain(|_, started| {
            let Some(copy) = &mut started.unsent else {
                return true;
            };
            let to = copy.to();
            if waiting.contains(&to) {
                return true;
            }
            let pushed = push(copy);
            let is_sent = matches!(pushed, Ok(true));
            started.held_up = pushed.err();
            if is_sent {
                started.unsent = None;
                *unsent -= 1;
                return !started.is_dropped;
            }
            waiting.insert(to);
            true
        });
    }

    /// The task goes on in another process, with another clock and without rings.
    pub fn renew(&mut self) {
        let copies = self.all.values_mut().filter_map(|it| it.unsent.as_mut());
        copies.for_each(|copy| copy.overflows_at = None);
    }

    /// The messages that are not in their channels, for a process that goes on without the requests.
    pub fn state(&self) -> Vec<SendingState> {
        self.copies().map(|copy| copy.sending.state()).collect()
    }

    /// The messages of such a process: it has no requests for them.
    pub fn of(states: Vec<SendingState>) -> Self {
        let mut sends = StartedSends::default();
        for state in states {
            sends.add(Copy::new(state.into()), true);
        }
        sends
    }

    fn add(&mut self, copy: Copy, is_dropped: bool) -> SendId {
        self.last += 1;
        self.unsent += 1;
        let id = SendId(self.last);
        let started = Started {
            unsent: Some(copy),
            is_dropped,
            held_up: None,
        };
        self.all.insert(id, started);
        id
    }

    /// The messages that are not in their channels.
    fn copies(&self) -> impl Iterator<Item = &Copy> {
        self.all.values().filter_map(|it| it.unsent.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(to: Tid, tag: i32) -> Sending {
        Sending::new(to, 0, tag, vec![0; 10].into())
    }

    #[test]
    fn messages_to_one_receiver_are_pushed_in_the_order_of_their_starts() {
        let mut sends = StartedSends::default();
        let [first, second, other] =
            [(1, 1), (1, 2), (2, 3)].map(|(to, tag)| sends.start(sending(Tid(to), tag)));
        let mut pushed = Vec::new();
        sends.advance(|copy| {
            pushed.push(copy.to());
            Ok(copy.to() == Tid(2))
        });
        assert_eq!(pushed, [Tid(1), Tid(2)]);
        assert!(sends.holds(Tid(1)).unwrap() && !sends.holds(Tid(2)).unwrap());
        assert!(sends.is_sent(other).unwrap() && !sends.is_sent(second).unwrap());
        sends.advance(|_| Ok(true));
        assert!(sends.is_sent(first).unwrap() && sends.are_sent());
        assert_eq!(sends.len(), 3);
    }

    #[test]
    fn a_message_whose_request_was_dropped_is_sent_and_then_forgotten() {
        let mut sends = StartedSends::default();
        let id = sends.start(sending(Tid(1), 1));
        sends.forget(id);
        assert_eq!(sends.unsent(), Some((1, Tid(1))));
        let mut restored = StartedSends::of(sends.state());
        for sends in [&mut sends, &mut restored] {
            sends.advance(|_| Ok(true));
            assert_eq!(sends.len(), 0);
        }
    }

    #[test]
    fn a_message_that_is_held_up_says_so_until_it_is_sent() {
        let mut sends = StartedSends::default();
        let id = sends.start(sending(Tid(1), 1));
        sends.advance(|copy| Err(SendError::NoTask { to: copy.to() }));
        assert!(sends.is_sent(id).is_err() && sends.holds(Tid(1)).is_err());
        sends.advance(|_| Ok(true));
        assert!(sends.is_sent(id).unwrap());
    }
}
