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
}

impl Filter {
    /// All messages of the program's context.
    pub const ANY: Filter = Filter {
        context: 0,
        from: None,
        tag: None,
    };

    /// Whether the filter selects a message.
    pub(crate) fn selects(&self, message: &Received) -> bool {
        self.admits(message.from, message.context, message.tag)
    }

    /// Whether the filter selects a message with that sender, context and tag.
    pub(crate) fn admits(&self, from: Tid, context: u32, tag: i32) -> bool {
        self.context == context
            && self.from.is_none_or(|wanted| wanted == from)
            && self.tag.is_none_or(|wanted| wanted == tag)
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
