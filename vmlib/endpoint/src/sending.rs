//! One message that is being sent: the receiver, the bytes and how many of them the channel has;
//! the progress of a poll; the reasons why a poll fails.

use bytes::Bytes;
use vm_wire::{
    Tid,
    limits::{self, CHUNK_OVERHEAD},
};

/// A message that is being sent; see [`Endpoint::start_send`](crate::Endpoint::start_send).
#[derive(Debug, Clone)]
pub struct Sending {
    pub(crate) to: Tid,
    pub(crate) context: u32,
    pub(crate) tag: i32,
    pub(crate) body: Bytes,
    /// Bytes of the body that were given to the channel.
    pub(crate) offset: usize,
    /// Number of the message in its pair, once its first chunk was sent.
    pub(crate) number: Option<u64>,
    pub(crate) done: bool,
}

impl Sending {
    pub(crate) fn new(to: Tid, context: u32, tag: i32, body: Bytes) -> Self {
        Sending {
            to,
            context,
            tag,
            body,
            offset: 0,
            number: None,
            done: false,
        }
    }

    /// Task id of the receiver.
    pub fn to(&self) -> Tid {
        self.to
    }

    pub(crate) fn cost(&self) -> u64 {
        self.body.len() as u64 + CHUNK_OVERHEAD
    }
}

/// The state of a message that is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendProgress {
    /// The whole message was given to the channel; the caller may drop it.
    Done,
    /// The channel has no credit for the rest: poll again when frames have arrived.
    NeedsCredit,
    /// The ring to the receiver is full: poll again when the receiver has read some of it, or let
    /// the rest go by the daemon.
    NeedsRoom,
}

/// Reasons why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The message is longer than [`limits::MESSAGE_MAX`].
    #[error(
        "a message of {len} bytes; at most {} are possible",
        limits::MESSAGE_MAX
    )]
    TooLong {
        /// Length of the message. Bytes.
        len: u64,
    },
    /// The sender needs credit, and its own inbox is full: the peer may wait in the same way. The
    /// message can be polled again after messages were received.
    #[error(
        "the inbox is full ({unread} bytes unread, {bytes} of them from {from}): receive before sending more"
    )]
    InboxFull {
        /// The sender of most of the unread bytes.
        from: Tid,
        /// Unread bytes of that sender.
        bytes: u64,
        /// Unread bytes of all senders.
        unread: u64,
    },
    /// Another message to the same peer was begun before this one was complete. The receiver will
    /// see only the other message.
    #[error("the message to {to} was given up for another one")]
    Superseded {
        /// Receiver of the message.
        to: Tid,
    },
    /// The backlog for the receiver is full.
    #[error("more than {} bytes wait to be sent to {to}", limits::QUEUE_BYTES)]
    Backlog {
        /// Receiver of the message.
        to: Tid,
    },
}
