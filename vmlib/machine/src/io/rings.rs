//! Rings between tasks of this host: events and orders.

use vm_wire::{Frame, Tid};

/// An order about rings.
#[derive(Debug)]
pub enum RingOutput {
    /// Make the memory of a ring, and send these frames to its two tasks, each with the descriptors
    /// of the memory, of the eventfd that wakes that task, and of the one that wakes the peer.
    /// `Input::RingFailed` follows if that fails.
    Open {
        /// The number of the ring.
        id: u64,
        /// The two tasks, and the frame for each.
        ends: Box<[(Tid, Frame); 2]>,
    },
    /// The task has no ring any more: drop its eventfd.
    Forget(Tid),
}
