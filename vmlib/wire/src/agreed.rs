//! The entries of the log, and the records of the agreed state that they change.
//!
//! The rules that apply an entry are in the `machine` crate. This module holds only the types that
//! travel.

use crate::{
    checkpoint::{Policy, SavedGroup, Stop},
    codec::Body,
    id::{CheckpointId, HostId, MachineId, Tid},
};
use serde::{Deserialize, Serialize};

/// One entry: the changes that one daemon proposed together.
///
/// A daemon has at most one entry under way and numbers its entries from 1. A number that is not
/// above the proposer's last number is void, so an entry that was proposed twice is applied once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The host whose daemon proposed the entry.
    pub proposer: HostId,
    /// The proposer's number of this entry. 0: the entry is idempotent by itself (a join, proposed
    /// by the host that received the request; the death of a host, proposed by the leader).
    pub number: u64,
    /// Applied in this order. A void change does not stop the changes after it.
    pub changes: Vec<Change>,
}

/// One change of the agreed state. A change is void if its conditions do not hold when it is
/// applied: it changes nothing, and its proposer is informed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A host joins and receives the next host number. Two joins with the same nonce are one host.
    /// Void if a living host has the same name.
    HostJoin {
        /// Drawn by the joining daemon at its start.
        nonce: u64,
        /// Facts that the host states about itself.
        facts: HostFacts,
    },
    /// The address of a host changes. Void unless the host is in the machine.
    HostAddress {
        /// The host.
        host: HostId,
        /// `address:port`.
        addr: String,
    },
    /// A drain of a host begins: no task is placed there or moved there any more. Void if the host
    /// takes no tasks already, or if no other host takes tasks and `suspend` is false.
    HostDraining {
        /// The draining host.
        host: HostId,
        /// Whether tasks that no other host can take are suspended.
        suspend: bool,
    },
    /// The drain of a host ends: the host takes tasks again. Void if the host was not draining.
    HostResumed(HostId),
    /// A host begins to leave in order: no task is placed there any more, and the host stops being
    /// a voter.
    HostLeaving(HostId),
    /// A host has left in order. Tasks that still ran there have ended.
    HostGone(HostId),
    /// A host is lost: its lease must have ended, and its tasks are dead.
    HostDead(HostId),
    /// `count` tasks start on `host`, numbered from `first`, for the request `(requester, request)`.
    /// Void if that request already has a task with one of these indices, or if the host is not
    /// living.
    Spawn(SpawnRecord),
    /// A task ends. Void unless the task is at `(host, incarnation)`.
    Exit {
        /// The task.
        tid: Tid,
        /// The task's owner at its end.
        host: HostId,
        /// The task's incarnation on that host.
        incarnation: u32,
        /// The way in which the task ended.
        status: ExitStatus,
        /// Whether a signal ended the task that was not sent through the machine.
        killed: bool,
        /// Whether nothing requested the end: no signal was sent through the machine, and the host
        /// is not leaving.
        unasked: bool,
    },
    /// The target becomes the owner of a task (`docs/protocol.md`, "Moves"): the task is at `to`
    /// with the next incarnation. The entry may also suspend or resume the task; in this case
    /// `from` may equal `to`. Void unless the task is at `(from, incarnation)`. Void also if the
    /// entry would suspend the task while a cut or a restart of its application is under way.
    Relocate {
        /// The task.
        tid: Tid,
        /// The source, which released the task.
        from: HostId,
        /// The target.
        to: HostId,
        /// The task's incarnation at `from`.
        incarnation: u32,
        /// Whether the task is suspended afterwards: it has no process, and its image is in the
        /// store.
        suspended: bool,
    },
    /// A move with an unknown result ends: the task stays with its owner, with the next
    /// incarnation. Void under the conditions of `Relocate`.
    Stay {
        /// The task.
        tid: Tid,
        /// The task's owner.
        host: HostId,
        /// The task's incarnation before this entry.
        incarnation: u32,
    },
    /// A living task joins a group and receives the lowest free instance number. The first member
    /// makes the group. A second join of the same task changes nothing.
    GroupJoin {
        /// The group's name.
        group: String,
        /// The new member.
        tid: Tid,
        /// Generation of the task's application at the time of the request. Void in another
        /// generation.
        generation: u32,
    },
    /// A member leaves its group.
    GroupLeave {
        /// The group's name.
        group: String,
        /// The member.
        tid: Tid,
        /// Generation of the task's application at the time of the request. Void in another
        /// generation.
        generation: u32,
    },
    /// A living task gets the number of a new context, which no task has got before. Void if all
    /// numbers were given ([`limits::CONTEXTS_MAX`](crate::limits::CONTEXTS_MAX)).
    Context {
        /// The task.
        tid: Tid,
        /// Generation of the task's application at the time of the request. Void in another
        /// generation.
        generation: u32,
    },
    /// The coordinator of an application is a process on that host from now on. Void unless the
    /// application is alive, the host is in the machine, and the coordinator term follows the last
    /// one.
    Coordinator {
        /// The application: the tid of its master.
        app: Tid,
        /// The host of the process.
        host: HostId,
        /// The coordinator term: from 1, one higher at each appointment.
        term: u32,
    },
    /// A cut of an application begins: each task is frozen when its daemon applies this entry,
    /// until `CutGo` or `CutEnd`. Void unless the application is alive, `term` is the agreed
    /// coordinator term, no cut of the application is under way, the epoch follows the last one,
    /// and none of its tasks is suspended alone. Void also if the application is to be suspended
    /// and the number of suspended applications is at its limit.
    Cut {
        /// The application: the tid of its master.
        app: Tid,
        /// The epoch of the checkpoint: from 1, one higher at each cut.
        epoch: u32,
        /// The term of the coordinator that requested the cut.
        term: u32,
        /// Whether, and how, the application ends with the checkpoint. Then its tasks stay frozen
        /// until the commit.
        stop: Option<Stop>,
    },
    /// All tasks of the cut are frozen and copies write their images: the tasks resume. Void unless
    /// the cut is under way, its tasks are frozen, and the application does not end with the
    /// checkpoint.
    CutGo {
        /// The application: the tid of its master.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
    },
    /// A cut ends. Void unless the cut is under way. If the application was to end with the
    /// checkpoint and the checkpoint is committed, the tasks end. If the application was to be
    /// suspended, the agreed state records it as suspended.
    CutEnd {
        /// The application: the tid of its master.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
        /// Whether the checkpoint is committed in the store.
        saved: bool,
        /// Time that the checkpoint cost the application, as its coordinator computes it.
        /// Microseconds.
        cost_us: u64,
    },
    /// The checkpoint policy of an application changes. Void unless the application is alive.
    Policy {
        /// The application: the tid of its master.
        app: Tid,
        /// The new policy.
        policy: Policy,
    },
    /// A restart of an application begins: its tasks live again on the hosts of the record, and are
    /// frozen until all of them are restored. Void if one of the tasks or one of the groups is
    /// alive, or if one of the hosts takes no tasks.
    Revive(Revival),
    /// All tasks of a restart that belong on one host are restored and frozen there. Void unless a
    /// restart of the application in that generation is under way.
    Standing {
        /// The application: the tid of its master.
        app: Tid,
        /// The generation that the restart began.
        generation: u32,
        /// The host of the restored tasks.
        host: HostId,
    },
    /// A restart fails: its tasks end again. A recovery is tried again, up to a limit. A suspended
    /// application stays suspended. Void under the conditions of `Standing`.
    Abandon {
        /// The application: the tid of its master.
        app: Tid,
        /// The generation that the restart began. For an application that awaits recovery or is
        /// suspended: its last generation.
        generation: u32,
        /// Whether no further restart is tried.
        for_good: bool,
        /// The reason, for users; at most [`limits::REASON_MAX`](crate::limits::REASON_MAX) bytes.
        why: String,
    },
    /// A suspended application ends; its checkpoints stay. Void unless the application is suspended
    /// with that checkpoint and is not being resumed.
    Unsuspend {
        /// The application: the tid of its master.
        app: Tid,
        /// The checkpoint with which the application was suspended.
        from: CheckpointId,
        /// `true`: the time of the suspension is over. `false`: a user ended the application.
        over: bool,
    },
    /// The machine ends: every daemon ends its tasks and itself.
    Halt,
}

/// The restart of an application from a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revival {
    /// The application: the tid of its master.
    pub app: Tid,
    /// The host whose daemon received the request, and that daemon's number of the request.
    pub requester: (HostId, u64),
    /// The checkpoint.
    pub from: CheckpointId,
    /// Age of the checkpoint when it was read. Milliseconds.
    pub age_ms: u64,
    /// Log index of the cut, if the cut was made in this machine. Tasks that the application
    /// spawned after the cut will be spawned again.
    pub cut: Option<u64>,
    /// The host whose console shows the output of the tasks; [`HostId::NONE`]: the output goes to
    /// the logs of the tasks' hosts. A recovery keeps the application's console.
    pub console: HostId,
    /// The tasks, ordered by tid.
    pub tasks: Vec<RevivedTask>,
    /// The groups with these tasks as members.
    pub groups: Vec<SavedGroup>,
    /// The last context that was given to a task before the checkpoint, in the machine of the
    /// checkpoint. The restarted tasks may use it, so no later context of this machine is one of
    /// theirs.
    pub context: u32,
    /// The checkpoint policy of the application.
    pub policy: Policy,
    /// Whether files that the tasks had open for writing are used as they are, and not rolled back.
    pub keep_files: bool,
    /// Whether this restart resumes a suspended application. Then it is void unless the application
    /// is suspended with that checkpoint.
    pub resumes: bool,
}

/// One task of a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevivedTask {
    /// The task.
    pub tid: Tid,
    /// The host on which the task is restored.
    pub host: HostId,
    /// Its incarnation at the cut; the restarted task has a higher one.
    pub incarnation: u32,
    /// The requester of its spawn.
    pub requester: Tid,
    /// The requester's number of that request.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Last component of its program's path, for users.
    pub program: String,
    /// The host that sends the image; [`HostId::NONE`]: the image is in the store of `host`.
    pub source: HostId,
}

/// Facts that a joining host states about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Name, unique among the living hosts.
    pub name: String,
    /// `address:port` at which other daemons reach the host.
    pub addr: String,
    /// Number of cores, for placement.
    pub cpus: u32,
    /// Largest number of tasks on the host at one time.
    pub tasks_max: u32,
    /// CPU architecture: `x86_64` or `aarch64`.
    pub arch: String,
    /// Whether the host has a store of its own. `false`: all hosts share one store.
    pub store_local: bool,
}

/// The tasks of one spawn request on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRecord {
    /// The requester: a task, or, for a master, the daemon that received a console's request.
    pub requester: Tid,
    /// The requester's number of the request.
    pub request: u64,
    /// The host on which the tasks start.
    pub host: HostId,
    /// Index of the first task among all tasks of the request.
    pub index: u32,
    /// Sequence number of the first task on that host.
    pub first: u32,
    /// Number of tasks.
    pub count: u32,
    /// Their application: the tid of its master. [`Tid::NONE`]: each task is a master.
    pub app: Tid,
    /// Last component of the program's path, for users.
    pub program: String,
    /// Whether the process existed before the spawn (a master enrolled from a shell).
    pub enrolled: bool,
    /// Generation of the application at the time of the request. Void in another generation.
    pub generation: u32,
    /// For a master: the host whose console shows the application's output, or [`HostId::NONE`].
    pub console: HostId,
}

/// The way in which a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// The task left the machine in order, with this status. Its last messages are delivered.
    Left(i32),
    /// The process exited with this code, without leaving in order.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
    /// The program could not be started.
    NotStarted,
    /// The host was declared dead, or left.
    HostLost,
    /// The application ended with a checkpoint, and can be restarted.
    Suspended,
    /// The application lost a task and restarts from its last checkpoint.
    RolledBack,
    /// The task never existed, or its end was forgotten. No log entry has this status.
    Unknown,
}

impl ExitStatus {
    /// Whether the task left in order, so that its last messages will be delivered.
    pub fn in_order(self) -> bool {
        matches!(self, ExitStatus::Left(_))
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Left(0) => write!(f, "ended"),
            ExitStatus::Left(status) => write!(f, "ended with status {status}"),
            ExitStatus::Code(code) => write!(f, "exited with code {code}"),
            ExitStatus::Signal(signal) => write!(f, "killed by signal {signal}"),
            ExitStatus::NotStarted => write!(f, "could not be started"),
            ExitStatus::HostLost => write!(f, "lost with its host"),
            ExitStatus::Suspended => write!(f, "stopped with a checkpoint"),
            ExitStatus::RolledBack => write!(f, "went back to a checkpoint"),
            ExitStatus::Unknown => write!(f, "not known to the machine"),
        }
    }
}

/// A snapshot of the agreed state at one index of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAt {
    /// The machine of the log.
    pub machine: MachineId,
    /// Index of the last entry that the snapshot contains.
    pub index: u64,
    /// The voters at that entry.
    pub voters: Vec<HostId>,
    /// The state, encoded by the `machine` crate.
    pub state: Body,
}
