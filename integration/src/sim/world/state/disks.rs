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

/// All disks, and the copies that daemons expect.
#[derive(Default)]
pub struct Disks {
    pub by_name: BTreeMap<String, Disk>,
    /// Expected copies, by the slot that expects them and the ticket.
    pub copies: BTreeMap<(Slot, u64), (CutKey, Tid)>,
}

/// A part that one host sends to another.
pub struct PartSent {
    pub from: Slot,
    pub to: Slot,
    pub ticket: u64,
    pub key: CutKey,
    /// Whether the part is stored as a copy; else a task is restored from it.
    pub file: bool,
}
