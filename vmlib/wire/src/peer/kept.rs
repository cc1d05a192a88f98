//! Messages of ended tasks, handed over to another keeper.

use crate::{codec::Body, id::Tid};
use serde::{Deserialize, Serialize};

/// The sender's host leaves: the receiver's daemon becomes the keeper of the messages from an ended
/// task to a task of the receiver. The chunks follow, each in a [`Kept`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepOrder {
    /// The ended task.
    pub from: Tid,
    /// The receiving task.
    pub to: Tid,
    /// Number of the last chunk.
    pub last: u64,
}

/// One retained chunk of an ended task, handed over after its [`KeepOrder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The whole data frame, header and payload, as on a socket.
    pub frame: Body,
}
