//! What a receiver has taken and its program has not yet received.

use bytes::Bytes;
use vm_wire::Tid;

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
