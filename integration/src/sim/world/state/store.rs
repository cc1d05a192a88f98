//! Checkpoints in the store that all hosts share, and requests of consoles for them.

use crate::sim::{ledger, network::Slot, program::Program};
use std::collections::BTreeMap;
use vm_machine::{ConnId, Time};
use vm_wire::{Tid, checkpoint::Checkpoint};

/// The name of a cut: the application and the epoch.
pub type CutKey = (Tid, u32);

/// A console's request for a checkpoint.
pub struct CheckpointRequest {
    pub slot: Slot,
    pub tid: Tid,
    pub answered: bool,
}

/// The requests of consoles, and the content of the store.
#[derive(Default)]
pub struct Store {
    pub requests: BTreeMap<ConnId, CheckpointRequest>,
    /// Images that tasks are to write into the store, by slot and task: the cut, and whether a copy
    /// writes the image.
    pub opened: BTreeMap<(Slot, Tid), (CutKey, bool)>,
    /// The programs as they were saved.
    pub images: BTreeMap<CutKey, BTreeMap<Tid, Saved>>,
    /// In-transit messages of the application at each cut.
    pub ledgers: BTreeMap<CutKey, ledger::Saved>,
    /// Committed checkpoints, oldest first.
    pub committed: Vec<Checkpoint>,
    /// The generation in which each application runs.
    pub lives: BTreeMap<Tid, u32>,
}

/// A program at its save, and the reading of its clock.
#[derive(Clone)]
pub struct Saved {
    pub program: Program,
    pub at: Time,
}
