//! Checkpoints in the store that all hosts share, and requests of consoles for them.

use crate::sim::{ledger, network::Slot, program::Program};
use std::collections::BTreeMap;
use vm_machine::{ConnId, Time};
use vm_wire::{Tid, checkpoint::Checkpoint};

/// Which cut: the application and the epoch.
pub type CutKey = (Tid, u32);

/// A console's wish for a checkpoint.
pub struct CheckpointWish {
    pub slot: Slot,
    pub tid: Tid,
    pub answered: bool,
}

/// Wishes, and what is in the store.
#[derive(Default)]
pub struct Store {
    pub wishes: BTreeMap<ConnId, CheckpointWish>,
    /// Ways into it that were opened: where, whose, for which cut, and whether a copy is to write.
    pub opened: BTreeMap<(Slot, Tid), (CutKey, bool)>,
    /// The programs as they were saved.
    pub images: BTreeMap<CutKey, BTreeMap<Tid, Saved>>,
    /// In-transit messages of the application at each cut.
    pub ledgers: BTreeMap<CutKey, ledger::Saved>,
    /// Committed checkpoints, oldest first.
    pub committed: Vec<Checkpoint>,
    /// In which generation applications run.
    pub lives: BTreeMap<Tid, u32>,
}

/// A program as it was saved, and what its clock showed.
#[derive(Clone)]
pub struct Saved {
    pub program: Program,
    pub at: Time,
}
