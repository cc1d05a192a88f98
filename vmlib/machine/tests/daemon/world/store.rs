//! The store that all hosts share, and its faults.

use std::collections::{BTreeMap, BTreeSet};
use vm_endpoint::Endpoint;
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Checkpoint, Part},
};

/// The store of the tests.
#[derive(Debug, Default)]
pub struct Store {
    /// Whether images are whole in the store only when the test says so.
    pub slow: bool,
    /// Whether the store is full.
    pub full: bool,
    /// Tasks that freeze when the test says so.
    pub late: BTreeSet<Tid>,
    /// Late tasks that were ordered to stop at a safe point, and the hosts of their daemons.
    pub told_to_hold: BTreeMap<Tid, HostId>,
    /// Open pipes into the store whose images were not read or cancelled, with their hosts.
    pub ways: BTreeMap<Tid, HostId>,
    /// Late tasks that were ordered to freeze: host and epoch.
    pub told: BTreeMap<Tid, (HostId, u32)>,
    /// Late tasks that were ordered to freeze for a move.
    pub told_to_move: BTreeMap<Tid, HostId>,
    /// Tasks whose images are damaged at their beginning.
    pub broken: BTreeSet<Tid>,
    /// Checkpoints with an image that is damaged in the middle.
    pub damaged: BTreeSet<CheckpointId>,
    /// For each search for the last whole checkpoint: whether all data was read.
    pub verified: Vec<bool>,
    /// Tasks whose restored processes are ready when the test says so.
    pub held: BTreeSet<Tid>,
    /// Images that are not whole in the store yet: host, epoch and part.
    pub waiting: BTreeMap<Tid, (HostId, u32, Part)>,
    /// The images of the last checkpoint.
    pub images: BTreeMap<Tid, Endpoint>,
    /// Restored tasks, and whether their files are used as they are.
    pub keep_files: BTreeMap<Tid, bool>,
    /// Age of checkpoints when they are read, beyond three seconds.
    pub older_ms: u64,
    /// Whether commits wait until the test says so.
    pub holds: bool,
    /// The waiting commit, with its host.
    pub held_commit: Option<(HostId, Checkpoint)>,
    /// Committed checkpoints.
    pub committed: Vec<Checkpoint>,
}

impl Store {
    /// The image of a task is cancelled.
    pub fn cancel(&mut self, tid: Tid) {
        self.waiting.remove(&tid);
        self.ways.remove(&tid);
    }
}
