//! Records of applications that do not run: those that recover (a restart has to be begun), those
//! that are being restarted (hosts restore the tasks), and those that are suspended (a later
//! request restarts them).

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use vm_wire::{CheckpointId, HostId, RequestKey, Tid, checkpoint::Suspend};

/// The loss that made an application recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lost {
    /// A host with tasks of the application was lost or left.
    Host(HostId),
    /// A task of the application was killed.
    Task(Tid),
}

/// The kind of failure of a restart that belongs to a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another host was lost; such a failure is not counted.
    HostLost,
    /// Any other failure. The restart is tried again, [`vm_wire::limits::RECOVERIES_MAX`] times.
    Failed,
    /// A user ended the recovery.
    ForGood,
}

/// Record of an application that recovers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovering {
    /// The loss that made the application recover.
    pub lost: Lost,
    /// Number of failed restarts.
    pub failures: u32,
    /// Hosts on which processes of the previous generation may still run.
    pub lingering: BTreeSet<HostId>,
}

/// Record of an application that is being restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviving {
    /// The request for the restart.
    pub requester: RequestKey,
    /// Generation and epoch of the checkpoint.
    pub from: CheckpointId,
    /// Use the files that the tasks write as they are, without a rollback.
    pub keep_files: bool,
    /// Age of the checkpoint when it was read. Milliseconds.
    pub age_ms: u64,
    /// The loss that made the application recover; `None` if a user requested the restart.
    pub lost: Option<Lost>,
    /// Hosts that have not reported all their tasks as restored, or where processes of the previous
    /// generation may run.
    pub awaited: BTreeSet<HostId>,
    /// Tasks whose image is in the store of another host than their new owner, with that host.
    pub sources: BTreeMap<Tid, HostId>,
}

/// Record of an application that is suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// Generation and epoch of the checkpoint.
    pub from: CheckpointId,
    /// Options of the request for the suspension.
    pub how: Suspend,
    /// Number of tasks.
    pub tasks: u32,
    /// Program of the master, as text for users.
    pub program: Arc<str>,
    /// Host of the console that waits for the application, or [`HostId::NONE`].
    pub console: HostId,
    /// Number of this attempt to resume. Changes for another attempt are void.
    pub generation: u32,
    /// Number of failed resumptions.
    pub failures: u32,
}

impl Suspension {
    /// Time at which the suspension ends, unless the application is resumed before. Milliseconds
    /// since 1970; `None`: never.
    pub fn until_ms(&self) -> Option<u64> {
        let Suspend {
            asked_ms, for_ms, ..
        } = self.how;
        (for_ms != 0).then(|| asked_ms.saturating_add(for_ms))
    }
}

/// Reasons for the end of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsuspended {
    /// The application was resumed.
    Resumed,
    /// The time of the suspension is over.
    Over,
    /// A user ended the suspension.
    Ended,
}
