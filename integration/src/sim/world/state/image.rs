//! Images of tasks on their way between two hosts.

use crate::sim::{network::Slot, program::Program, queue::Moment};
use vm_machine::Time;
use vm_wire::Tid;

/// An image on its way.
pub struct Image {
    pub from: Slot,
    pub to: Slot,
    pub ticket: u64,
    pub tid: Tid,
    /// The process that it is of.
    pub of: usize,
    pub freeze: usize,
    pub program: Program,
    /// The reading of the library's clock at the freeze.
    pub saved_at: Time,
    /// When its connection is given up.
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
    /// It arrives, and cannot be brought back.
    Unrestorable,
}
