//! The checker of the delivery contract: messages that were sent, and messages that must still
//! arrive.
//!
//! For each ordered pair of tasks the ledger holds the messages that the sender's program has begun
//! to send and the receiver's program has not received yet, oldest first. A receive selects by
//! source and tag. The received message must be the *first* message of its pair that the filter
//! selects, with the same tag, length and bytes. A message that is repeated, out of order,
//! incomplete or changed is not that message. [`Ledger::missing`] finds, at the end, a message that
//! must arrive and has not.
//!
//! Payloads are slices of one fixed pattern, so that neither making nor keeping a payload copies
//! bytes.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::OnceLock,
};
use vm_endpoint::{Filter, Received};
use vm_wire::Tid;

/// The longest message that a simulated program sends. Bytes.
pub const MESSAGE_LEN_MAX: usize = 256 * 1024;

/// Bound on the offset of a payload in the pattern.
const OFFSETS: usize = 256 * 1024;

fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = super::random::Random::new(0x7061_7474_6572_6e00);
        let words = (OFFSETS + MESSAGE_LEN_MAX) / 8;
        (0..words)
            .flat_map(|_| random.bits().to_le_bytes())
            .collect::<Vec<u8>>()
            .into()
    })
}

/// A message whose sending was begun.
#[derive(Debug, Clone)]
struct Expected {
    /// The number of the message in its pair, from 1.
    number: u64,
    tag: i32,
    body: Bytes,
    /// Whether the channel has accepted the whole message.
    complete: bool,
}

/// The messages that were sent and not received.
#[derive(Debug, Default)]
pub struct Ledger {
    pairs: BTreeMap<(Tid, Tid), Pair>,
    /// Messages that programs received.
    pub received: u64,
}

/// The in-transit messages of an application at its cut.
#[derive(Debug, Default, Clone)]
pub struct Saved {
    pairs: BTreeMap<(Tid, Tid), Pair>,
}

#[derive(Debug, Default, Clone)]
struct Pair {
    begun: u64,
    waiting: VecDeque<Expected>,
    /// Whether the receiver got the report of the sender's end: no message may come any more.
    closed: bool,
}

impl Ledger {
    /// The payload of the next message from `from` to `to`, noted as begun.
    pub fn begin(&mut self, from: Tid, to: Tid, tag: i32, len: usize) -> Bytes {
        let pair = self.pairs.entry((from, to)).or_default();
        pair.begun += 1;
        let mix = (from.0 ^ to.0.rotate_left(17) ^ pair.begun.rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let offset = (mix >> 32) as usize % OFFSETS;
        let body = pattern().slice(offset..offset + len);
        pair.waiting.push_back(Expected {
            number: pair.begun,
            tag,
            body: body.clone(),
            complete: false,
        });
        body
    }

    /// Marks the message that `from` began last as wholly accepted by the channel.
    pub fn complete(&mut self, from: Tid, to: Tid) {
        if let Some(pair) = self.pairs.get_mut(&(from, to))
            && let Some(last) = pair.waiting.back_mut()
        {
            last.complete = true;
        }
    }

    /// Checks a message that a program received.
    ///
    /// # Errors
    /// The difference from the expected message.
    pub fn receive(&mut self, to: Tid, filter: &Filter, message: &Received) -> Result<(), String> {
        let from = message.from;
        let pair = self.pairs.entry((from, to)).or_default();
        if pair.closed {
            return Err(format!(
                "{to} received from {from} after it was told of its end"
            ));
        }
        let selects = |expected: &Expected| filter.tag.is_none_or(|tag| tag == expected.tag);
        let place = pair.waiting.iter().position(selects);
        let Some(expected) = place.and_then(|place| pair.waiting.remove(place)) else {
            return Err(format!(
                "{to} received {} bytes from {from} with tag {}, but all {} messages of that pair that it selects were received before",
                message.body.len(),
                message.tag,
                pair.begun
            ));
        };
        if (message.tag, &message.body) != (expected.tag, &expected.body) {
            return Err(format!(
                "{to} received {} bytes from {from} with tag {} instead of message {} with {} bytes and tag {}",
                message.body.len(),
                message.tag,
                expected.number,
                expected.body.len(),
                expected.tag
            ));
        }
        self.received += 1;
        Ok(())
    }

    /// Checks, when `to` got the report that `from` left in order and has received all messages of
    /// its inbox, that no message is missing.
    ///
    /// # Errors
    /// The message that is missing.
    pub fn close(&mut self, from: Tid, to: Tid, left_in_order: bool) -> Result<(), String> {
        let pair = self.pairs.entry((from, to)).or_default();
        pair.closed = true;
        let lost = pair.waiting.iter().find(|expected| expected.complete);
        match lost {
            Some(lost) if left_in_order => Err(format!(
                "{to} was told of the end of {from} before its message {}",
                lost.number
            )),
            _ => {
                pair.waiting.clear();
                Ok(())
            }
        }
    }

    /// Records the messages between a task that is frozen for a save and its peers. Once both tasks
    /// of a pair are frozen, neither sends or receives any more.
    pub fn save(&self, tid: Tid, saved: &mut Saved) {
        for (key, pair) in &self.pairs {
            if key.0 == tid || key.1 == tid {
                saved.pairs.insert(*key, pair.clone());
            }
        }
    }

    /// All tasks that have ever sent or were sent a message.
    pub fn tasks(&self) -> BTreeSet<Tid> {
        self.pairs
            .keys()
            .flat_map(|(from, to)| [*from, *to])
            .collect()
    }

    /// Rolls an application back to the recorded state. `of_app` tells which tasks belong to it.
    pub fn roll_back(&mut self, saved: &Saved, of_app: impl Fn(Tid) -> bool) {
        self.pairs
            .retain(|(from, to), _| !of_app(*from) && !of_app(*to));
        self.pairs
            .extend(saved.pairs.iter().map(|(key, pair)| (*key, pair.clone())));
    }

    /// A message that must have arrived and has not: a complete message of a pair for which `owed`
    /// is true.
    pub fn missing(&self, mut owed: impl FnMut(Tid, Tid) -> bool) -> Option<String> {
        self.pairs.iter().find_map(|(&(from, to), pair)| {
            let lost = pair.waiting.iter().find(|expected| expected.complete)?;
            owed(from, to).then(|| {
                format!(
                    "message {} from {from} to {to} ({} bytes) has not arrived; {} wait",
                    lost.number,
                    lost.body.len(),
                    pair.waiting.len()
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{HostId, MachineId};

    fn tid(sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(1), HostId(1), sequence)
    }

    fn message(tag: i32, body: Bytes) -> Received {
        Received {
            from: tid(1),
            context: 0,
            tag,
            body,
        }
    }

    #[test]
    fn a_message_in_order_is_accepted_once() {
        let mut ledger = Ledger::default();
        let first = message(5, ledger.begin(tid(1), tid(2), 5, 100));
        assert_eq!(ledger.receive(tid(2), &Filter::ANY, &first), Ok(()));
        assert!(ledger.receive(tid(2), &Filter::ANY, &first).is_err());
    }

    #[test]
    fn order_is_kept_among_the_messages_that_a_filter_selects() {
        let mut ledger = Ledger::default();
        let first = message(5, ledger.begin(tid(1), tid(2), 5, 100));
        let second = message(6, ledger.begin(tid(1), tid(2), 6, 200));
        let third = message(6, ledger.begin(tid(1), tid(2), 6, 300));
        let six = Filter {
            tag: Some(6),
            ..Filter::ANY
        };
        assert!(ledger.receive(tid(2), &six, &third).is_err());
        let mut ledger = Ledger::default();
        ledger.begin(tid(1), tid(2), 5, 100);
        ledger.begin(tid(1), tid(2), 6, 200);
        assert_eq!(ledger.receive(tid(2), &six, &second), Ok(()));
        assert_eq!(ledger.receive(tid(2), &Filter::ANY, &first), Ok(()));
    }

    #[test]
    fn a_partial_message_is_an_error() {
        let mut ledger = Ledger::default();
        let body = ledger.begin(tid(1), tid(2), 5, 100);
        let part = message(5, body.slice(..99));
        assert!(ledger.receive(tid(2), &Filter::ANY, &part).is_err());
    }

    #[test]
    fn a_complete_message_that_never_arrived_is_missing() {
        let mut ledger = Ledger::default();
        ledger.begin(tid(1), tid(2), 5, 100);
        assert_eq!(ledger.missing(|_, _| true), None);
        ledger.complete(tid(1), tid(2));
        assert!(ledger.missing(|_, _| true).is_some());
        assert_eq!(ledger.missing(|_, _| false), None);
        assert!(ledger.close(tid(1), tid(2), true).is_err());
    }
}
