//! The records of the agreed state: hosts, tasks, coordinators, checkpoints under way.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vm_wire::{
    HostId, Tid,
    agreed::{ExitStatus, HostFacts},
    checkpoint::{Policy, Stop},
};

/// Where a host is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPhase {
    /// It takes tasks.
    Living,
    /// Its tasks are to leave, and it takes no new ones.
    Draining,
    /// It still runs tasks, but takes no new ones.
    Leaving,
    /// It has left as planned.
    Gone,
    /// It was declared dead.
    Dead,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it said of itself.
    pub facts: HostFacts,
    /// What it drew at its start.
    pub nonce: u64,
    /// Where it is in its life.
    pub phase: HostPhase,
    /// The number of its last entry that was applied.
    pub entries: u64,
}

impl Host {
    /// Whether it is in the machine, leaving or not.
    pub fn is_present(&self) -> bool {
        matches!(
            self.phase,
            HostPhase::Living | HostPhase::Draining | HostPhase::Leaving
        )
    }
}

/// A task, alive or remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its owner; after its end, where it was.
    pub host: HostId,
    /// Its incarnation there, from 1.
    pub incarnation: u32,
    /// Its application, named by its master's tid.
    pub app: Tid,
    /// Who asked for it: a task (its parent), or a daemon (then it is a master).
    pub asker: Tid,
    /// The asker's request number.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Index of the entry that bore it, or brought it back.
    pub born: u64,
    /// Last part of the program's path.
    pub program: Arc<str>,
    /// Whether the process was there before it became a task.
    pub enrolled: bool,
    /// Whether it is suspended alone: it has no process, and its owner knows its image in the store.
    /// Of one that has ended: whether it was.
    pub suspended: bool,
    /// How it ended.
    pub status: Option<ExitStatus>,
}

impl Task {
    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.status.is_none()
    }

    /// The task that spawned it; a master has none.
    pub fn parent(&self) -> Option<Tid> {
        (!self.asker.is_daemon()).then_some(self.asker)
    }
}

/// The coordinator of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinated {
    /// Where its process is, or was: that host may be gone.
    pub host: HostId,
    /// From 1; one higher with each that took the place of another.
    pub term: u32,
}

/// A cut that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutUnderWay {
    /// Of the coordinator that wants it.
    pub term: u32,
    /// The application ends with it, and how.
    pub stop: Option<Stop>,
    /// All tasks have stood, and go on.
    pub gone: bool,
}

/// What is agreed about the checkpoints of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// Goes up when the application is brought back.
    pub generation: u32,
    /// Of the last cut; 0 before the first one.
    pub epoch: u32,
    /// That cut, if it is under way.
    pub cut: Option<CutUnderWay>,
    /// The epoch of the last checkpoint that was committed; 0 if there is none.
    pub saved: u32,
    /// What the application has lost for that, as its coordinator reckoned; 0 before the first one.
    /// Microseconds.
    pub cost_us: u64,
    /// When checkpoints are made by themselves.
    pub policy: Policy,
    /// How often it has gone back because a task was killed, since then.
    pub kills: u32,
    /// Its master has ended well, by itself: its checkpoints are of no use when all of it has ended.
    pub finished: bool,
}
