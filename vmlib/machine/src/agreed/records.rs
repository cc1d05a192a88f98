//! The records of the agreed state, one for each host, task, coordinator, cut and application with
//! checkpoints. Only `apply`, `recover`, `revive` and `suspend` change the records.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vm_wire::{
    HostId, Tid,
    agreed::{ExitStatus, HostFacts},
    checkpoint::{Policy, Stop},
};

/// The phase of a host between its join and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPhase {
    /// The host takes tasks.
    Living,
    /// The host is being drained: it takes no new tasks, and its tasks are moved.
    Draining,
    /// A planned leave has begun: the host takes no new tasks, and may still run tasks.
    Leaving,
    /// A planned leave is complete.
    Gone,
    /// The host was declared dead.
    Dead,
}

/// Record of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Facts that the host stated when it joined.
    pub facts: HostFacts,
    /// Nonce that the daemon drew at its start.
    pub nonce: u64,
    /// Phase of the host.
    pub phase: HostPhase,
    /// Number of its last entry that was applied.
    pub entries: u64,
}

impl Host {
    /// Whether the host is in the machine, leaving or not.
    pub fn is_present(&self) -> bool {
        matches!(
            self.phase,
            HostPhase::Living | HostPhase::Draining | HostPhase::Leaving
        )
    }
}

/// Record of a task, living or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Owner of the task, or last owner of an ended task.
    pub host: HostId,
    /// Incarnation of the task, counted from 1.
    pub incarnation: u32,
    /// Application, named by the task id of its master.
    pub app: Tid,
    /// Requester of the spawn: a task (the parent), or a daemon (then the task is a master).
    pub requester: Tid,
    /// Number of the spawn request, counted by the requester.
    pub request: u64,
    /// Index of the task among all tasks of the spawn request.
    pub index: u32,
    /// Index of the entry that spawned or restarted the task.
    pub born: u64,
    /// Last component of the program's path.
    pub program: Arc<str>,
    /// Whether the process existed before it became a task.
    pub enrolled: bool,
    /// Whether the task is suspended alone: the task has no process, and its owner knows its image
    /// in the store. For an ended task: whether it was suspended.
    pub suspended: bool,
    /// Exit status; `None` while the task lives.
    pub status: Option<ExitStatus>,
}

impl Task {
    /// Whether the task has not ended.
    pub fn is_alive(&self) -> bool {
        self.status.is_none()
    }

    /// The task that spawned this task; `None` for a master.
    pub fn parent(&self) -> Option<Tid> {
        (!self.requester.is_daemon()).then_some(self.requester)
    }
}

/// Record of the coordinator of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinated {
    /// Host of the coordinator's process. The host may be gone.
    pub host: HostId,
    /// Coordinator term: from 1, and higher by 1 with each new coordinator.
    pub term: u32,
}

/// Record of a cut that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutUnderWay {
    /// Term of the coordinator that requested the cut.
    pub term: u32,
    /// How the application ends with the checkpoint; `None` if it does not end.
    pub stop: Option<Stop>,
    /// All tasks have been frozen, and resume.
    pub gone: bool,
}

/// Record of the checkpoints of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// Generation of the application.
    pub generation: u32,
    /// Epoch of the last cut; 0 before the first cut.
    pub epoch: u32,
    /// The last cut, while it is under way.
    pub cut: Option<CutUnderWay>,
    /// Epoch of the last committed checkpoint; 0 if there is none.
    pub saved: u32,
    /// Cost of that checkpoint for the application, as its coordinator computed it; 0 before the
    /// first checkpoint. Microseconds.
    pub cost_us: u64,
    /// Policy for automatic checkpoints.
    pub policy: Policy,
    /// Number of recoveries from that checkpoint because a task was killed.
    pub kills: u32,
    /// The master ended successfully, without a signal: the checkpoints are of no use once all
    /// tasks have ended.
    pub finished: bool,
}
