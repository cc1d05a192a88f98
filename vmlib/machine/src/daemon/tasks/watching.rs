//! The watches of the tasks of this host.

use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{HostId, Tid, agreed::ExitStatus, task::Watched};

/// The watches of the tasks of this host, and the hosts that these tasks know.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Watching {
    /// The hosts that the tasks here were notified of, except hosts whose end was notified.
    pub known: BTreeSet<HostId>,
    /// The local tasks that watch, by the watched task or event.
    pub watchers: BTreeMap<Watched, BTreeSet<Tid>>,
    /// Last numbers that were requested, by the ended task and its watcher.
    pub asked_last: BTreeMap<(Tid, Tid), LastAsked>,
}

/// A request for the last number of an ended task.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct LastAsked {
    pub(super) host: HostId,
    pub(super) status: ExitStatus,
    /// See [`Ended::watched`](vm_wire::task::Ended::watched).
    pub(super) watched: bool,
}
