//! Images of tasks in transfer between two hosts.

use crate::sim::{network::Slot, program::Program, queue::Moment};
use vm_machine::Time;
use vm_wire::Tid;

/// An image in transfer.
pub struct Image {
    pub from: Slot,
    pub to: Slot,
    pub ticket: u64,
    pub tid: Tid,
    /// The process that wrote the image.
    pub of: usize,
    pub freeze: usize,
    pub program: Program,
    /// The reading of the library's clock at the freeze.
    pub saved_at: Time,
    /// The moment at which its connection is given up.
    pub give_up: Moment,
    /// The fate of the image, decided when its transfer begins.
    pub fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The image arrives, and the task is restored.
    Arrives,
    /// The task finds that it cannot be saved.
    Unsavable,
    /// The connection breaks while the image is written.
    BreaksEarly,
    /// The image is written, and its last part is lost.
    BreaksLate,
    /// The image arrives, and cannot be restored.
    Unrestorable,
}
