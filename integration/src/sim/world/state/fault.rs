//! The ends of faults, and the events that faults wait for.

use crate::sim::network::Slot;
use vm_wire::{Op, peer::MovePhase};

/// The end of a fault.
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
    /// A coordinator is continued.
    Wakes(usize),
}

/// An event that a fault waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambush {
    /// A task sends a request of this kind.
    Asked(Op),
    /// A daemon requests to join.
    Joining,
    /// A host begins to leave.
    Leaving,
    /// The leader has ended.
    Leaderless,
    /// A task is frozen, or was restored.
    Moving,
    /// A coordinator reports that a move has come to that phase.
    Driven(MovePhase),
}
