//! Spawns that are not complete: requested here, ordered here, or by processes from a shell.

use crate::{ConnId, daemon::requester::RunAsked};
use std::collections::BTreeMap;
use vm_wire::{HostId, Tid, peer::SpawnOrder, task::Failed, version::Offer};

/// The spawns that are not complete.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Births {
    /// Tokens of tasks that have not enrolled yet.
    pub tokens: BTreeMap<u64, Tid>,
    /// Spawns requested here, by the requesting task and its request.
    pub spawnings: BTreeMap<(Tid, u64), Spawning>,
    /// Spawns ordered here, by the requesting task and its request.
    pub ordered: BTreeMap<(Tid, u64), Ordered>,
    /// Processes from a shell that become masters, by the number of this daemon's request to the
    /// log.
    pub enrolling: BTreeMap<u64, Enrolling>,
}

/// The receiver of the reply to a spawn.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum SpawnRequester {
    /// The requesting task, which the key of the spawn names.
    Task,
    /// A console, the number of its request, and, if the one master is run on the console, the run.
    Console(ConnId, u64, Option<RunAsked>),
}

/// A spawn that was requested here.
#[derive(Debug)]
pub(in crate::daemon) struct Spawning {
    pub(super) who: SpawnRequester,
    /// Generation of the application at the time of the request.
    pub(super) generation: u32,
    /// The hosts that have not reported, with the number of tasks ordered there.
    pub(super) awaited: BTreeMap<HostId, u64>,
    /// The born tasks, with their indices in the request.
    pub(super) tids: Vec<(u32, Tid)>,
    /// The hosts that failed, by name.
    pub(super) failures: Vec<(String, Failed)>,
}

/// A spawn that was ordered here.
#[derive(Debug)]
pub(in crate::daemon) struct Ordered {
    /// The host whose daemon gets the report.
    pub(super) from: HostId,
    pub(super) order: SpawnOrder,
    /// The path of the program; `None` while the shell looks the program up.
    pub(super) program: Option<String>,
    /// Number of tasks whose birth the log has neither applied nor voided yet.
    pub(super) left: u64,
    pub(super) tids: Vec<(u32, Tid)>,
    pub(super) failed: Option<Failed>,
}

impl Ordered {
    /// Number of its tasks that are not in the agreed state yet.
    pub fn left(&self) -> u64 {
        self.left
    }
}

/// A process from a shell whose birth as a master is on its way into the log.
#[derive(Debug)]
pub(in crate::daemon) struct Enrolling {
    /// Its connection; `None` once the connection is closed.
    pub conn: Option<ConnId>,
    pub pid: u32,
    pub offer: Offer,
}
