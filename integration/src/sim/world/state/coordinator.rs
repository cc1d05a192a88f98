//! The process of a coordinator.

use crate::sim::{network::Slot, queue::Moment};
use std::collections::VecDeque;
use vm_coordinator::Coordinator;
use vm_wire::{Frame, coordinator::Serve};

/// The process of a coordinator.
pub struct Process {
    pub slot: Slot,
    /// The number by which the daemon knows the coordinator.
    pub number: u64,
    pub machine: Coordinator,
    pub alive: bool,
    /// Stopped by SIGSTOP: frames wait in its socket.
    pub stopped: bool,
    pub unread: VecDeque<Frame>,
    pub serves: Option<Serve>,
    pub arrival_in: Moment,
    pub arrival_out: Moment,
    pub tick_at: Option<Moment>,
}
