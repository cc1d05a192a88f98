//! Births of tasks that are under way: requested here, ordered here, or by processes from a shell.

use crate::{ConnId, daemon::requester::RunAsked};
use std::collections::BTreeMap;
use vm_wire::{HostId, Tid, peer::SpawnOrder, task::Failed, version::Offer};

/// The births of tasks that are under way.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Births {
    /// Tokens of tasks that have not enrolled yet.
    pub tokens: BTreeMap<u64, Tid>,
    /// Spawns requested here, by the requesting task and its request.
    pub spawnings: BTreeMap<(Tid, u64), Spawning>,
    /// Spawns ordered here, by the requesting task and its request.
    pub ordered: BTreeMap<(Tid, u64), Ordered>,
    /// Processes from a shell that become masters, by the request of this daemon.
    pub enrolling: BTreeMap<u64, Enrolling>,
}

/// Who is to be answered.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) enum Asker {
    /// The task that is named as the asker.
    Task,
    /// A console, with its request; whether the one master is to be run on it.
    Console(ConnId, u64, Option<RunAsked>),
}

/// A spawn that was asked for here.
#[derive(Debug)]
pub(in crate::daemon) struct Spawning {
    pub(super) who: Asker,
    /// Of the application when it was asked.
    pub(super) generation: u32,
    /// The hosts that have not reported, with what was ordered there.
    pub(super) awaited: BTreeMap<HostId, u64>,
    pub(super) tids: Vec<(u32, Tid)>,
    pub(super) failures: Vec<(String, Failed)>,
}

/// A spawn that was ordered here.
#[derive(Debug)]
pub(in crate::daemon) struct Ordered {
    /// Whom to report to.
    pub(super) from: HostId,
    pub(super) order: SpawnOrder,
    /// Where the program is; `None` while it is looked up.
    pub(super) program: Option<String>,
    /// Tasks of which the log has not said yet whether they are born.
    pub(super) left: u64,
    pub(super) tids: Vec<(u32, Tid)>,
    pub(super) failed: Option<Failed>,
}

impl Ordered {
    /// Tasks of it that are not in the agreed state yet.
    pub fn left(&self) -> u64 {
        self.left
    }
}

/// A process from a shell whose birth as a master is on its way into the log.
#[derive(Debug)]
pub(in crate::daemon) struct Enrolling {
    /// Its connection; `None` once that is gone.
    pub conn: Option<ConnId>,
    pub pid: u32,
    pub offer: Offer,
}
