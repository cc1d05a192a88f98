//! Disks of hosts with stores of their own.

use super::store::CutKey;
use crate::sim::network::Slot;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{Tid, checkpoint::Checkpoint};

/// The parts and manifests on one disk.
#[derive(Default)]
pub struct Disk {
    pub parts: BTreeSet<(CutKey, Tid)>,
    pub manifests: BTreeMap<CutKey, Checkpoint>,
}

/// All disks, and copies that are awaited.
#[derive(Default)]
pub struct Disks {
    pub by_name: BTreeMap<String, Disk>,
    /// By who awaits them, and the ticket.
    pub copies: BTreeMap<(Slot, u64), (CutKey, Tid)>,
}

/// A part that one host sends to another.
pub struct PartSent {
    pub from: Slot,
    pub to: Slot,
    pub ticket: u64,
    pub key: CutKey,
    /// For a copy of it; else a task is made of it.
    pub file: bool,
}
