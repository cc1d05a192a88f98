//! How faults end, and what they wait for.

use crate::sim::network::Slot;
use vm_wire::{Op, peer::MovePhase};

/// How a fault ends.
pub enum Heal {
    /// Packets cross again between these hosts: from, to.
    Unblock(Vec<(Slot, Slot)>),
    /// SIGCONT resumes the stopped daemon.
    Continue(Slot),
    /// A queue has room again: from, to.
    Room(Slot, Slot),
    /// A task reads again.
    TaskRoom(usize),
    /// A link is fast again.
    Fast(Slot, Slot),
    /// A coordinator goes on.
    Wakes(usize),
}

/// An event that a fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambush {
    /// A task asks for this.
    Asked(Op),
    /// A daemon asks to be let in.
    Joining,
    /// A host begins to leave.
    Leaving,
    /// The leader is gone.
    Leaderless,
    /// A task is frozen, or was brought back.
    Moving,
    /// A coordinator sees a move come to that phase.
    Driven(MovePhase),
}
