//! Messages, and the messages that a receive selects.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use vm_wire::{Body, Header, Tid, limits::CHUNK_OVERHEAD};

/// The messages that a receive selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Context of the message; 0 is the context of the program.
    pub context: u32,
    /// Sender of the message; `None`: any sender.
    pub from: Option<Tid>,
    /// Tag of the message; `None`: any tag.
    pub tag: Option<i32>,
    /// Whether messages that a handler selects are selected, too ([`crate::handlers`]).
    pub handled: bool,
}

/// The part of a message by which it is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub context: u32,
    pub from: Tid,
    pub tag: i32,
}

impl Key {
    pub fn new(context: u32, from: Tid, tag: i32) -> Self {
        Key { context, from, tag }
    }
}

impl Filter {
    /// All messages of the program's context.
    pub const ANY: Filter = Filter {
        context: 0,
        from: None,
        tag: None,
        handled: false,
    };

    /// Whether the filter selects a message, apart from handlers.
    pub(crate) fn selects(&self, message: &Received) -> bool {
        self.admits(&message.key())
    }

    /// Whether the filter selects messages like that, apart from handlers.
    pub(crate) fn admits(&self, key: &Key) -> bool {
        self.context == key.context
            && self.from.is_none_or(|wanted| wanted == key.from)
            && self.tag.is_none_or(|wanted| wanted == key.tag)
    }
}

/// Sources or tags that a receive selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneOf<'a, T> {
    /// All of them.
    Any,
    /// This one.
    Only(T),
    /// Each of these.
    These(&'a [T]),
}

impl<T: Copy + PartialEq> OneOf<'_, T> {
    /// Whether it contains a source or tag.
    pub fn contains(&self, value: T) -> bool {
        match self {
            OneOf::Any => true,
            OneOf::Only(only) => *only == value,
            OneOf::These(these) => these.contains(&value),
        }
    }

    /// The only one, or `None` for all; fails for a list.
    fn simple(&self) -> Option<Option<T>> {
        match *self {
            OneOf::Any => Some(None),
            OneOf::Only(only) => Some(Some(only)),
            OneOf::These(_) => None,
        }
    }
}

/// The messages that a receive selects by lists of sources and tags, and by their envelopes.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// Context of the message.
    pub context: u32,
    /// Senders of the message.
    pub from: OneOf<'a, Tid>,
    /// Tags of the message.
    pub tag: OneOf<'a, i32>,
    /// Whether messages that a handler selects are selected, too.
    pub handled: bool,
    /// The program's own condition, for messages whose sender and tag are selected.
    pub accepts: Option<&'a dyn Fn(&Envelope) -> bool>,
}

impl Selection<'_> {
    /// The filter that selects the same messages, if there is one.
    pub fn filter(&self) -> Option<Filter> {
        let (from, tag) = (self.from.simple()?, self.tag.simple()?);
        self.accepts.is_none().then_some(Filter {
            context: self.context,
            from,
            tag,
            handled: self.handled,
        })
    }
}

/// A whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Task id of the sender.
    pub from: Tid,
    /// Context of the message; 0 is the context of the program.
    pub context: u32,
    /// The tag that the sender gave it.
    pub tag: i32,
    /// Payload of the message.
    pub body: Bytes,
}

/// A whole message, as an image records it.
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

impl Received {
    /// The message of a chunk with this header: the whole of it, or its last chunk.
    pub(crate) fn of(header: &Header, body: Bytes) -> Self {
        Received {
            from: header.from,
            context: header.context,
            tag: header.tag,
            body,
        }
    }

    /// The message as an image records it.
    pub fn state(&self) -> ReceivedState {
        ReceivedState {
            from: self.from,
            context: self.context,
            tag: self.tag,
            body: Body::from(self.body.to_vec()),
        }
    }

    /// The part by which the message is selected.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.context, self.from, self.tag)
    }

    /// The message without its payload.
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope {
            from: self.from,
            context: self.context,
            tag: self.tag,
            len: self.body.len(),
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.body.len() as u64 + CHUNK_OVERHEAD
    }
}

/// A whole unread message without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Task id of the sender.
    pub from: Tid,
    /// Context of the message; 0 is the context of the program.
    pub context: u32,
    /// The tag that the sender gave it.
    pub tag: i32,
    /// Length of the payload. Bytes.
    pub len: usize,
}
