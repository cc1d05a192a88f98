//! Restarts of applications from their checkpoints, by request or after a loss.
//!
//! ```text
//! asked daemon   chooses a checkpoint, reads its manifest, places the tasks (`request`)
//! log            Revive: the tasks live again, under a higher generation
//! each owner     reads the manifest, restores its tasks; they stand (`owner`)
//! log            Standing, of each owner
//! each owner     lets them go on
//! ```
//!
//! Until the last `Standing` no task has run. Whatever goes wrong before it (a damaged image, a
//! process that ends, a host that dies) ends all of it (`Abandon`, or the end of a task), and the
//! checkpoint is in the store as before.
//!
//! An image is verified while its task is restored, and a damaged image restores no task. So the last
//! checkpoint is chosen by a look at its lengths alone. If that checkpoint fails, the next choice is
//! made by reading all of it: either it is whole, and the failure is reported; or it is passed over,
//! and the checkpoint before it is chosen.
//!
//! The knowledge of the daemon about a task at the cut is in the manifest and belongs to the task again. A process
//! of the earlier generation may still be here: the new process is made when that has ended.

mod inventory;
mod owner;
mod recovery;
mod request;

pub(super) use inventory::Holders;
pub(super) use request::Restart;

use crate::Time;
use inventory::InventoryQuery;
use owner::Restoring;
use recovery::LastRestart;
use request::RestartRequest;
use std::collections::BTreeMap;
use vm_wire::{HostId, Tid};

/// The restarts in which this daemon has a part.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Restarts that were requested here, by the number that this daemon gave them.
    requests: BTreeMap<u64, RestartRequest>,
    /// Applications that are being restarted with tasks here.
    restoring: BTreeMap<Tid, Restoring>,
    /// Requests that wait for what hosts have in their stores, by question.
    queries: BTreeMap<u64, InventoryQuery>,
    /// Manifests that other hosts were asked for, by question.
    manifests: BTreeMap<u64, HostId>,
    /// Applications that recover from a loss, since when.
    recoveries: BTreeMap<Tid, Time>,
    /// The last restart of each application.
    last: BTreeMap<Tid, LastRestart>,
}

impl Restarts {
    /// An application is forgotten by the log.
    pub fn forget(&mut self, app: Tid) {
        self.last.remove(&app);
    }
}
