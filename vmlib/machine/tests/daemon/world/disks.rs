//! The disks of hosts with stores of their own, and their faults.

use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::Checkpoint,
    stores::StockRow,
    task::{FailKind, Failed},
};

/// The disks of all hosts.
#[derive(Debug, Default)]
pub struct Disks {
    pub disks: BTreeMap<HostId, Disk>,
    /// Whether second copies arrive only when the test says so.
    pub slow: bool,
    /// Waiting second copies: the host that takes the copy, and the ticket.
    pub waiting: Vec<(HostId, u64)>,
    /// Hosts without room for second copies.
    pub full: BTreeSet<HostId>,
    /// Hosts that commit when the test says so.
    pub late: BTreeSet<HostId>,
    /// Parts that are damaged in the middle.
    pub damaged: BTreeSet<(HostId, Tid, CheckpointId)>,
    /// The epoch for which each task is saved, and the name of the host with its second copy.
    pub ways: BTreeMap<Tid, (u32, Option<String>)>,
    /// Expected parts, by ticket: the host that takes the part, its task and checkpoint.
    pub copies: BTreeMap<u64, (HostId, Tid, CheckpointId)>,
    /// Images that were read: the host with the image, the task, and the host of the restored task.
    pub read: Vec<(HostId, Tid, HostId)>,
    /// Requests for store inventories: the host, and whether it read all data.
    pub asked: Vec<(HostId, bool)>,
}

#[derive(Debug, Default)]
pub struct Disk {
    pub parts: BTreeSet<(Tid, CheckpointId)>,
    pub manifests: BTreeMap<CheckpointId, Checkpoint>,
}

pub fn damaged() -> Failed {
    Failed::new(FailKind::System, "the part is damaged")
}

impl Disks {
    pub fn of(&mut self, host: u16) -> &mut Disk {
        self.disks.entry(HostId(host)).or_default()
    }

    /// The hosts that have the image of a task.
    pub fn holders(&self, tid: Tid, id: CheckpointId) -> Vec<u16> {
        let has = |(_, disk): &(&HostId, &Disk)| disk.parts.contains(&(tid, id));
        self.disks
            .iter()
            .filter(has)
            .map(|(host, _)| host.0)
            .collect()
    }

    pub fn is_whole(&self, host: HostId, tid: Tid, id: CheckpointId) -> bool {
        !self.damaged.contains(&(host, tid, id))
    }

    pub fn rows(&self, host: HostId, from: Option<CheckpointId>, verify: bool) -> Vec<StockRow> {
        let disk = self.disks.get(&host);
        let manifests = disk
            .into_iter()
            .flat_map(|disk| disk.manifests.iter().rev());
        let wanted = manifests.filter(|(id, _)| from.is_none_or(|from| from == **id));
        let row = |(id, checkpoint): (&CheckpointId, &Checkpoint)| {
            let tids = checkpoint.agreed.tasks.iter().map(|task| task.tid);
            let there = tids.filter(|tid| disk.is_some_and(|it| it.parts.contains(&(*tid, *id))));
            let (here, bad): (Vec<Tid>, Vec<Tid>) =
                there.partition(|tid| !verify || self.is_whole(host, *tid, *id));
            StockRow {
                generation: id.generation,
                epoch: id.epoch,
                tasks: checkpoint.agreed.tasks.len() as u32,
                here,
                flaws: bad.iter().map(|tid| format!("{tid} is damaged")).collect(),
            }
        };
        wanted.map(row).collect()
    }
}
