//! A query of the store inventories of all hosts, for one application.

use crate::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{CheckpointId, HostId, Tid, stores::StockRow, task::Failed};

/// The hosts that have the image of each task.
pub type Holders = BTreeMap<Tid, Vec<HostId>>;

/// A restart request, or the request of a console, that waits for the store inventories of hosts.
#[derive(Debug)]
pub struct InventoryQuery {
    pub(super) requester: QueriedFor,
    pub(super) app: Tid,
    pub(super) from: Option<CheckpointId>,
    /// Whether the chosen checkpoint is read and verified as a whole.
    pub(super) verify: bool,
    /// The checkpoints that may be chosen, the newest last, while they are read one after the
    /// other.
    pub(super) candidates: Vec<CheckpointId>,
    /// The hosts that have not replied.
    pub(super) awaited: BTreeSet<HostId>,
    /// The checkpoints of each host that has replied, or why its store cannot be read.
    pub(super) said: BTreeMap<HostId, Result<Vec<StockRow>, Failed>>,
    /// Newer checkpoints that are not whole, and why.
    pub(super) passed_over: Vec<String>,
}

/// The receiver of the result.
#[derive(Debug, Clone, Copy)]
pub(super) enum QueriedFor {
    /// The restart request of that number.
    Restart(u64),
    /// A console, and the number of its request.
    Console(ConnId, u64),
}

impl InventoryQuery {
    /// The hosts that have each image of a checkpoint, or why it cannot be restarted.
    pub(super) fn whole(&self, id: CheckpointId) -> Result<Holders, String> {
        let mut holders = Holders::new();
        let (mut tasks, mut flaws) = (0, Vec::new());
        for (host, row) in self.rows_of(id) {
            tasks = tasks.max(row.tasks as usize);
            flaws.extend(&row.flaws);
            for tid in &row.here {
                holders.entry(*tid).or_default().push(host);
            }
        }
        if tasks > 0 && holders.len() >= tasks {
            return Ok(holders);
        }
        Err(match flaws.first() {
            Some(flaw) => (*flaw).clone(),
            None => format!(
                "{} of its {tasks} images are in the store of no host that is here",
                tasks - holders.len()
            ),
        })
    }

    pub(super) fn rows_of(&self, id: CheckpointId) -> impl Iterator<Item = (HostId, &StockRow)> {
        self.rows()
            .filter(move |(_, row)| CheckpointId::new(row.generation, row.epoch) == id)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (HostId, &StockRow)> {
        let said = self.said.iter();
        let rows = said.map(|(host, said)| (host, said.iter().flatten()));
        rows.flat_map(|(host, rows)| rows.map(|row| (*host, row)))
    }

    /// A host whose store has the manifest of the checkpoint; this host, if its store has it.
    pub(super) fn manifest_of(&self, id: CheckpointId, me: HostId) -> Option<HostId> {
        let readable = self.rows_of(id).filter(|(_, row)| row.tasks > 0);
        readable
            .map(|(host, _)| host)
            .min_by_key(|host| *host != me)
    }
}
