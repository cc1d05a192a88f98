//! Requests of consoles for moves and drains.

use crate::sim::network::Slot;
use vm_wire::{HostId, Tid};

/// A console's wish for a move.
pub struct Wish {
    pub slot: Slot,
    pub tid: Tid,
    pub answered: bool,
    /// It went away before it was answered.
    pub gone: bool,
    /// It wants the task back where it was.
    pub back: bool,
}

/// A console's wish for a drain.
pub struct DrainWish {
    /// The daemon that received the request.
    pub slot: Slot,
    /// The host that is to drain.
    pub host: HostId,
    pub answered: bool,
}
