//! Requests of consoles for moves and drains.

use crate::sim::network::Slot;
use vm_wire::{HostId, Tid};

/// A console's request for a move.
pub struct MoveRequest {
    pub slot: Slot,
    pub tid: Tid,
    pub answered: bool,
    /// Whether the console closed before the reply.
    pub gone: bool,
    /// Whether the move returns the task to its former host.
    pub back: bool,
}

/// A console's request for a drain.
pub struct DrainRequest {
    /// The daemon that received the request.
    pub slot: Slot,
    /// The host that is to drain.
    pub host: HostId,
    pub answered: bool,
}
