//! Receives that the program has started and not completed: the matching order.
//!
//! A receive that is started takes the first unread message that it selects. If there is none, the
//! receive is *pending*: it takes the first message that becomes whole later, that it selects, and that
//! no receive started before it takes. So no unread message is one that a pending receive selects, and
//! a later receive never overtakes an earlier one.
//!
//! A message that a receive has taken is *held* until the program claims it. It does not count for the
//! limit of the inbox, because the program has asked for it.
//!
//! A cancelled receive is as if it had never been started: its message goes back to its place in the
//! inbox, and the receives that were started after it choose again (`Receives::cancel`). A receive that
//! chooses again has the same messages as before to choose from and one more, so a receive that holds a
//! message holds one afterwards.

use crate::{
    message::{Filter, Received},
    posted::Incomplete,
};
use std::collections::BTreeMap;

/// Number of a started receive. A later receive has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceiveId(u64);

/// A message and its arrival number.
pub(crate) type Arrived = (u64, Received);

/// A receive that was started.
#[derive(Debug, Clone)]
struct Receive {
    filter: Filter,
    held: Option<Arrived>,
}

/// The receives that were started and neither claimed nor cancelled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receives {
    all: BTreeMap<ReceiveId, Receive>,
    /// Number of the last receive.
    last: u64,
    /// Receives that hold no message.
    pending: usize,
}

impl Receives {
    /// Number of the receives.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a receive, with the message that it has taken.
    pub fn start(&mut self, filter: Filter, held: Option<Arrived>) -> ReceiveId {
        self.last += 1;
        self.pending += usize::from(held.is_none());
        let id = ReceiveId(self.last);
        self.all.insert(id, Receive { filter, held });
        id
    }

    /// Whether a receive holds a message.
    pub fn holds(&self, id: ReceiveId) -> bool {
        self.all.get(&id).is_some_and(|it| it.held.is_some())
    }

    /// Whether a pending receive selects a message that is not whole yet.
    pub fn awaits(&self, message: &Incomplete) -> bool {
        let key = message.key();
        let mut pending = self.all.values().filter(|it| it.held.is_none());
        self.pending > 0 && pending.any(|it| it.filter.admits(&key))
    }

    /// Gives a new message to the first pending receive that selects it.
    ///
    /// # Errors
    /// The message, if no receive takes it.
    pub fn offer(&mut self, arrival: u64, message: Received) -> Result<(), Received> {
        if self.pending == 0 {
            return Err(message);
        }
        let mut receives = self.all.values_mut();
        let taker = receives.find(|it| it.held.is_none() && it.filter.selects(&message));
        match taker {
            Some(receive) => {
                receive.held = Some((arrival, message));
                self.pending -= 1;
                Ok(())
            }
            None => Err(message),
        }
    }

    /// Removes a receive that holds a message, and returns the message.
    pub fn claim(&mut self, id: ReceiveId) -> Option<Received> {
        let (_, message) = self.all.get_mut(&id)?.held.take()?;
        self.all.remove(&id);
        Some(message)
    }

    /// Removes a receive. Returns the messages that it and all later receives held, for the inbox; the
    /// caller then has the later receives choose again ([`Receives::choose`]).
    pub fn cancel(&mut self, id: ReceiveId) -> Vec<Arrived> {
        let Some(cancelled) = self.all.remove(&id) else {
            return Vec::new();
        };
        let Some(message) = cancelled.held else {
            self.pending -= 1;
            return Vec::new();
        };
        let mut messages = vec![message];
        for receive in self.all.range_mut(id..).map(|(_, receive)| receive) {
            if let Some(message) = receive.held.take() {
                self.pending += 1;
                messages.push(message);
            }
        }
        messages
    }

    /// Lets each pending receive choose a message, in the order of their starts.
    pub fn choose(&mut self, mut choice: impl FnMut(&Filter) -> Option<Arrived>) {
        for receive in self.all.values_mut().filter(|it| it.held.is_none()) {
            receive.held = choice(&receive.filter);
            self.pending -= usize::from(receive.held.is_some());
        }
    }

    /// The messages that receives hold.
    pub fn held(&self) -> impl Iterator<Item = (u64, &Received)> {
        let held = self.all.values().filter_map(|it| it.held.as_ref());
        held.map(|(arrival, message)| (*arrival, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use bytes::Bytes;
    use vm_wire::{Tid, limits::CHUNK_OVERHEAD};

    const ANY: Option<i32> = None;

    fn filter(tag: Option<i32>) -> Filter {
        Filter {
            context: 0,
            from: None,
            tag,
            handled: false,
        }
    }

    /// A message with a tag and a number.
    fn message(tag: i32, number: u8) -> Received {
        Received {
            from: Tid(1),
            context: 0,
            tag,
            body: Bytes::from(vec![number]),
        }
    }

    fn inbox() -> Inbox {
        Inbox::new(10_000)
    }

    fn number(received: Option<Received>) -> Option<u8> {
        received.map(|message| message.body[0])
    }

    #[test]
    fn receives_take_messages_in_the_order_in_which_they_were_started() {
        let mut inbox = inbox();
        inbox.push(message(1, 1));
        let first = inbox.start_receive(filter(Some(1)));
        let second = inbox.start_receive(filter(Some(1)));
        let any = inbox.start_receive(filter(ANY));
        inbox.push(message(2, 2));
        inbox.push(message(1, 3));
        inbox.push(message(1, 4));
        assert_eq!(number(inbox.claim(second)), Some(3));
        assert_eq!(number(inbox.claim(any)), Some(2));
        assert_eq!(number(inbox.claim(first)), Some(1));
        assert_eq!(inbox.claim(first), None);
        assert_eq!(number(inbox.take(&filter(ANY))), Some(4));
    }

    #[test]
    fn a_receive_call_gets_no_message_that_a_started_receive_selects() {
        let mut inbox = inbox();
        let started = inbox.start_receive(filter(Some(1)));
        inbox.push(message(1, 1));
        assert_eq!(inbox.peek(&filter(ANY)), None);
        assert_eq!(inbox.take(&filter(ANY)), None);
        inbox.push(message(1, 2));
        assert_eq!(number(inbox.take(&filter(ANY))), Some(2));
        assert_eq!(number(inbox.claim(started)), Some(1));
    }

    #[test]
    fn a_cancelled_receive_leaves_its_message_in_its_place() {
        let mut inbox = inbox();
        inbox.push(message(1, 1));
        let cancelled = inbox.start_receive(filter(Some(2)));
        inbox.push(message(2, 2));
        inbox.push(message(2, 3));
        inbox.push(message(1, 4));
        assert!(inbox.has_received(cancelled));
        inbox.cancel_receive(cancelled);
        assert!(!inbox.has_received(cancelled));
        let order: Vec<u8> = std::iter::from_fn(|| number(inbox.take(&filter(ANY)))).collect();
        assert_eq!(order, [1, 2, 3, 4]);
        // A pending receive that was cancelled takes nothing.
        let pending = inbox.start_receive(filter(ANY));
        inbox.cancel_receive(pending);
        inbox.push(message(1, 5));
        assert_eq!(number(inbox.take(&filter(Some(1)))), Some(5));
        assert_eq!(inbox.receives(), 0);
    }

    #[test]
    fn later_receives_choose_as_if_a_cancelled_one_had_never_been() {
        let mut inbox = inbox();
        let first = inbox.start_receive(filter(Some(1)));
        let second = inbox.start_receive(filter(ANY));
        let third = inbox.start_receive(filter(Some(1)));
        inbox.push(message(1, 1));
        inbox.push(message(2, 2));
        assert!(!inbox.has_received(third));
        inbox.cancel_receive(first);
        assert_eq!(number(inbox.claim(second)), Some(1));
        // The message with tag 2 is nobody's, the next one with tag 1 is that of the third.
        assert_eq!(number(inbox.take(&filter(ANY))), Some(2));
        inbox.push(message(1, 3));
        assert_eq!(number(inbox.claim(third)), Some(3));
    }

    #[test]
    fn held_messages_leave_the_inbox_open_and_are_part_of_its_state() {
        let mut inbox = Inbox::new(2 * CHUNK_OVERHEAD);
        let receives = [1, 2, 3].map(|_| inbox.start_receive(filter(Some(1))));
        inbox.push(message(2, 0));
        for number in 1..=3 {
            inbox.push(message(1, number));
        }
        assert!(inbox.is_open());
        assert_eq!(inbox.unread_bytes(), CHUNK_OVERHEAD + 1);
        // A process that goes on from the state has no receives: all messages are unread.
        let mut restored = Inbox::of(inbox.state(), 2 * CHUNK_OVERHEAD);
        assert!(!restored.is_open());
        let order: Vec<u8> = std::iter::from_fn(|| number(restored.take(&filter(ANY)))).collect();
        assert_eq!(order, [0, 1, 2, 3]);
        for id in receives {
            inbox.cancel_receive(id);
        }
        assert_eq!(inbox.unread_bytes(), 4 * (CHUNK_OVERHEAD + 1));
    }
}
