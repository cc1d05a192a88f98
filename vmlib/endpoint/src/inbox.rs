//! What a task's library has taken and its program has not yet received.
//!
//! Chunks come in here one pair after the other in order; a message becomes visible when it is
//! whole, never before. A message of one chunk is the frame's body as it is; a longer one is
//! copied together once.
//!
//! A receive selects by context, source and tag. Messages that it does not select stay, in order:
//! among those that a receive selects, it gets the one that became whole first, so a receive from
//! anybody keeps the order of each pair.
//!
//! The inbox is *open* while whole unread messages are below its limit. When it is not, its
//! endpoint acknowledges nothing, so every sender stops within its window. Messages that are still
//! being put together do not count: they could never become whole, nor room, if they closed the
//! inbox. So it holds at most its limit, and for each sender one message and one window.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use vm_wire::{Body, Frame, Header, Tid, limits::CHUNK_OVERHEAD};

/// A long message begins with a buffer of this size at most, so that a claimed length alone takes
/// no memory. Bytes.
const FIRST_BUFFER_MAX: usize = 4 * 1024 * 1024;

/// Which messages a receive selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// The conversation: 0 is the user's own.
    pub context: u32,
    /// From whom; `None`: from anybody.
    pub from: Option<Tid>,
    /// With which tag; `None`: with any.
    pub tag: Option<i32>,
}

/// A whole message, received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: Tid,
    /// The conversation.
    pub context: u32,
    /// The tag that the sender gave it.
    pub tag: i32,
    /// The payload.
    pub body: Bytes,
}

/// A message, to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedState {
    from: Tid,
    context: u32,
    tag: i32,
    body: Body,
}

impl From<ReceivedState> for Received {
    fn from(state: ReceivedState) -> Self {
        Received {
            from: state.from,
            context: state.context,
            tag: state.tag,
            body: state.body.into_vec().into(),
        }
    }
}

/// What has to be kept of an [`Inbox`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct InboxState {
    messages: Vec<ReceivedState>,
    parts: Vec<PartState>,
}

/// A message of which some chunks have come, to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PartState {
    from: Tid,
    context: u32,
    tag: i32,
    total: u64,
    bytes: Body,
}

impl Received {
    /// As it is kept.
    pub fn state(&self) -> ReceivedState {
        ReceivedState {
            from: self.from,
            context: self.context,
            tag: self.tag,
            body: Body::from(self.body.to_vec()),
        }
    }

    fn cost(&self) -> u64 {
        self.body.len() as u64 + CHUNK_OVERHEAD
    }
}

/// All of a waiting message but its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it.
    pub from: Tid,
    /// The conversation.
    pub context: u32,
    /// The tag that the sender gave it.
    pub tag: i32,
    /// Length of the payload in bytes.
    pub len: usize,
}

/// Unread messages of one task.
#[derive(Debug, Clone)]
pub struct Inbox {
    limit_bytes: u64,
    /// Cost of the whole messages.
    unread_bytes: u64,
    conversations: BTreeMap<u32, Conversation>,
    /// At most one message of each sender is being put together.
    parts: BTreeMap<Tid, Part>,
    /// Counts messages as they become whole.
    arrivals: u64,
}

/// The whole messages of one context.
#[derive(Debug, Clone, Default)]
struct Conversation {
    /// By arrival.
    messages: BTreeMap<u64, Received>,
    /// The arrivals of each source and tag: a receive looks here, not through all messages.
    arrivals: BTreeMap<(Tid, i32), VecDeque<u64>>,
}

/// A message of which some chunks have come.
#[derive(Debug, Clone)]
struct Part {
    context: u32,
    tag: i32,
    total: u64,
    bytes: Vec<u8>,
}

impl Inbox {
    /// An empty inbox that is open below `limit_bytes` of unread messages.
    pub fn new(limit_bytes: u64) -> Self {
        Inbox {
            limit_bytes,
            unread_bytes: 0,
            conversations: BTreeMap::new(),
            parts: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// What has to be kept of it: whole messages by arrival, and those of which some chunks have come.
    pub(crate) fn state(&self) -> InboxState {
        let conversations = self.conversations.values();
        let mut messages: Vec<_> = conversations.flat_map(|it| &it.messages).collect();
        messages.sort_by_key(|(arrival, _)| **arrival);
        let messages = messages.into_iter().map(|(_, message)| message.state());
        let parts = self.parts.iter().map(|(from, part)| PartState {
            from: *from,
            context: part.context,
            tag: part.tag,
            total: part.total,
            bytes: Body::from(part.bytes.clone()),
        });
        InboxState {
            messages: messages.collect(),
            parts: parts.collect(),
        }
    }

    /// An inbox that goes on with that.
    pub(crate) fn of(state: InboxState, limit_bytes: u64) -> Self {
        let mut inbox = Inbox::new(limit_bytes);
        for message in state.messages {
            inbox.push(message.into());
        }
        for part in state.parts {
            let PartState {
                from,
                context,
                tag,
                total,
                bytes,
            } = part;
            let bytes = bytes.into_vec();
            let part = Part {
                context,
                tag,
                total,
                bytes,
            };
            inbox.parts.insert(from, part);
        }
        inbox
    }

    /// Whether senders may go on.
    pub fn is_open(&self) -> bool {
        self.unread_bytes < self.limit_bytes
    }

    /// Payload and overhead of all whole messages.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    /// Who has most bytes among the whole messages, and how many.
    pub fn fullest(&self) -> Option<(Tid, u64)> {
        let mut by_sender: BTreeMap<Tid, u64> = BTreeMap::new();
        for conversation in self.conversations.values() {
            for message in conversation.messages.values() {
                *by_sender.entry(message.from).or_default() += message.cost();
            }
        }
        by_sender.into_iter().max_by_key(|(_, bytes)| *bytes)
    }

    /// The next chunk of its pair. One at offset 0 begins a message; if the one before it is not
    /// whole, its sender gave it up. A chunk that does not continue its message ends it unseen.
    pub fn accept(&mut self, chunk: Frame) {
        let Header {
            from,
            context,
            tag,
            offset,
            total,
            ..
        } = chunk.header;
        if offset == 0 {
            self.discard_part(from);
            if chunk.body.len() as u64 == total {
                return self.push(Received {
                    from,
                    context,
                    tag,
                    body: chunk.body,
                });
            }
            let bytes = Vec::with_capacity(FIRST_BUFFER_MAX.min(total as usize));
            self.parts.insert(
                from,
                Part {
                    context,
                    tag,
                    total,
                    bytes,
                },
            );
        }
        let Some(part) = self.parts.get_mut(&from) else {
            return;
        };
        let after = part.bytes.len() + chunk.body.len();
        let continues = (part.context, part.tag, part.total, part.bytes.len() as u64)
            == (context, tag, total, offset);
        if !continues || after as u64 > total {
            self.discard_part(from);
            return;
        }
        part.bytes.extend_from_slice(&chunk.body);
        if after as u64 == total {
            let part = self.parts.remove(&from).expect("it was found above");
            self.push(Received {
                from,
                context,
                tag,
                body: part.bytes.into(),
            });
        }
    }

    /// Adds a whole message.
    pub fn push(&mut self, message: Received) {
        self.arrivals += 1;
        self.unread_bytes += message.cost();
        let conversation = self.conversations.entry(message.context).or_default();
        conversation
            .arrivals
            .entry((message.from, message.tag))
            .or_default()
            .push_back(self.arrivals);
        conversation.messages.insert(self.arrivals, message);
    }

    /// The rest of a message that is not whole will not come.
    pub fn discard_part(&mut self, from: Tid) {
        self.parts.remove(&from);
    }

    /// The first message that the filter selects.
    pub fn take(&mut self, filter: &Filter) -> Option<Received> {
        let conversation = self.conversations.get_mut(&filter.context)?;
        let arrival = conversation.find(filter)?;
        let message = conversation.remove(arrival);
        // Other contexts than the user's come and go with what is done in them.
        if filter.context != 0 && conversation.messages.is_empty() {
            self.conversations.remove(&filter.context);
        }
        self.unread_bytes -= message.cost();
        Some(message)
    }

    /// The message that [`Inbox::take`] would give.
    pub fn peek(&self, filter: &Filter) -> Option<Envelope> {
        let conversation = self.conversations.get(&filter.context)?;
        let message = &conversation.messages[&conversation.find(filter)?];
        Some(Envelope {
            from: message.from,
            context: message.context,
            tag: message.tag,
            len: message.body.len(),
        })
    }
}

impl Conversation {
    /// The arrival of the first message that the filter selects.
    fn find(&self, filter: &Filter) -> Option<u64> {
        let first = |arrivals: &VecDeque<u64>| arrivals.front().copied();
        match (filter.from, filter.tag) {
            (Some(from), Some(tag)) => self.arrivals.get(&(from, tag)).and_then(first),
            (Some(from), None) => {
                let tags = self.arrivals.range((from, i32::MIN)..=(from, i32::MAX));
                tags.filter_map(|(_, arrivals)| first(arrivals)).min()
            }
            (None, Some(tag)) => {
                let all = self.arrivals.iter();
                all.filter(|((_, of), _)| *of == tag)
                    .filter_map(|(_, arrivals)| first(arrivals))
                    .min()
            }
            (None, None) => self.messages.keys().next().copied(),
        }
    }

    /// Removes a message that is the first of its source and tag.
    fn remove(&mut self, arrival: u64) -> Received {
        let message = self
            .messages
            .remove(&arrival)
            .expect("an arrival names a message");
        let key = (message.from, message.tag);
        let arrivals = self.arrivals.get_mut(&key).expect("each message has one");
        debug_assert_eq!(arrivals.front(), Some(&arrival));
        arrivals.pop_front();
        if arrivals.is_empty() {
            self.arrivals.remove(&key);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::Op;

    fn chunk(tag: i32, offset: u64, len: usize, total: u64) -> Frame {
        let mut header = Header::new(Op::Data);
        header.from = Tid(1);
        (header.tag, header.offset, header.total) = (tag, offset, total);
        Frame::new(header, Bytes::from(vec![0; len]))
    }

    fn tags(inbox: &mut Inbox) -> Vec<i32> {
        let any = Filter {
            context: 0,
            from: None,
            tag: None,
        };
        std::iter::from_fn(|| inbox.take(&any))
            .map(|message| message.tag)
            .collect()
    }

    #[test]
    fn chunks_that_do_not_fit_together_make_no_message() {
        for second in [
            chunk(1, 5, 5, 10),  // a gap
            chunk(1, 4, 7, 10),  // too much
            chunk(1, 4, 16, 20), // another length
            chunk(2, 4, 6, 10),  // another tag
        ] {
            let mut inbox = Inbox::new(1000);
            inbox.accept(chunk(1, 0, 4, 10));
            inbox.accept(second);
            inbox.accept(chunk(1, 4, 6, 10));
            inbox.accept(chunk(3, 0, 8, 8));
            assert_eq!(tags(&mut inbox), [3]);
        }
    }

    #[test]
    fn only_whole_messages_close_the_inbox_and_receiving_them_opens_it() {
        let mut inbox = Inbox::new(1000);
        inbox.accept(chunk(1, 0, 900, 1800));
        assert!(inbox.is_open());
        inbox.accept(chunk(1, 900, 900, 1800));
        assert_eq!(
            (inbox.is_open(), inbox.unread_bytes()),
            (false, 1800 + CHUNK_OVERHEAD)
        );
        assert_eq!(inbox.fullest(), Some((Tid(1), 1800 + CHUNK_OVERHEAD)));
        assert_eq!(tags(&mut inbox), [1]);
        assert_eq!((inbox.is_open(), inbox.unread_bytes()), (true, 0));
    }
}
