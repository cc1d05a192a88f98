//! The watches of the tasks of this host.

use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{HostId, Tid, agreed::ExitStatus, task::Watched};

/// What the tasks of this host watch, and what they were told of hosts.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Watching {
    /// The hosts whose arrival the tasks here were told of, and not their departure.
    pub known: BTreeSet<HostId>,
    /// The local tasks that watch, by what they watch.
    pub watchers: BTreeMap<Watched, BTreeSet<Tid>>,
    /// Last numbers that were requested, by the ended task and its watcher.
    pub asked_last: BTreeMap<(Tid, Tid), LastAsked>,
}

/// A last number that was asked for.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct LastAsked {
    pub(super) host: HostId,
    pub(super) status: ExitStatus,
    /// See [`Ended::watched`](vm_wire::task::Ended::watched).
    pub(super) watched: bool,
}
