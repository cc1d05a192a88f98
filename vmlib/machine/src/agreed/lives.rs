//! Applications between two runs: those that are restarted, that recover, or that are suspended.

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use vm_wire::{CheckpointId, HostId, RequestKey, Tid, checkpoint::Suspend};

/// Because of what an application goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lost {
    /// A host went, with tasks of it.
    Host(HostId),
    /// A task was killed.
    Task(Tid),
}

/// How a revival failed, for an application that goes back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// Another host went: that is no reason to give up.
    HostLost,
    /// It is tried again a few times.
    Failed,
    /// Somebody ended it.
    ForGood,
}

/// An application that goes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovering {
    /// What it lost.
    pub lost: Lost,
    /// How often it could not be brought back.
    pub failures: u32,
    /// Hosts on which processes of before may still run.
    pub lingering: BTreeSet<HostId>,
}

/// An application that is being brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviving {
    /// Whose daemon was asked for it, and under which number.
    pub asker: RequestKey,
    /// From which checkpoint: its generation and epoch.
    pub from: CheckpointId,
    /// Files that its tasks write are used as they are.
    pub keep_files: bool,
    /// How old the checkpoint was when it was read. Milliseconds.
    pub age_ms: u64,
    /// Because of what it went back by itself; none if a person wanted it back.
    pub lost: Option<Lost>,
    /// The hosts whose tasks do not all stand yet, or where processes of before may still run.
    pub awaited: BTreeSet<HostId>,
    /// Tasks whose images are in the store of another host than that where they are to live.
    pub sources: BTreeMap<Tid, HostId>,
}

/// An application that is suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// With which checkpoint: its generation and epoch.
    pub from: CheckpointId,
    /// How it was asked for.
    pub how: Suspend,
    /// How many tasks it had.
    pub tasks: u32,
    /// Its master's program, for people.
    pub program: Arc<str>,
    /// Where its console is, which waits for it, or none.
    pub console: HostId,
    /// What was proposed of a resumption under another number is void.
    pub generation: u32,
    /// How often it could not be resumed.
    pub failures: u32,
}

impl Suspension {
    /// When it has ended, unless it was resumed. Milliseconds since 1970; none: never.
    pub fn until_ms(&self) -> Option<u64> {
        let Suspend {
            asked_ms, for_ms, ..
        } = self.how;
        (for_ms != 0).then(|| asked_ms.saturating_add(for_ms))
    }
}

/// Why an application is suspended no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsuspended {
    /// It runs again.
    Resumed,
    /// Its time was over.
    Over,
    /// Somebody ended it.
    Ended,
}
