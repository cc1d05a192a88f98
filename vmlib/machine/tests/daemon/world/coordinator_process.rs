//! The process of a coordinator.

use std::collections::VecDeque;
use vm_coordinator::Coordinator;
use vm_wire::{Frame, peer::Order};

/// The process of a coordinator.
pub struct CoordinatorProcess {
    pub coordinator: Coordinator,
    /// Whether it reads nothing.
    pub hangs: bool,
    pub unread: VecDeque<Frame>,
    /// The orders that it gave.
    pub orders: Vec<Order>,
}
