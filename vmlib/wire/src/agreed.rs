//! The entries of the one log, and the records of the state that they change.
//!
//! How they are applied is in the `machine` crate; here is only what travels.

use crate::{
    checkpoint::{Policy, SavedGroup, Stop},
    codec::Body,
    id::{CheckpointId, HostId, MachineId, Tid},
};
use serde::{Deserialize, Serialize};

/// One entry: the changes that one daemon gathered in one turn.
///
/// A daemon has one entry under way at a time and numbers its entries from 1, so an entry that
/// was proposed twice is applied once: a number not above the proposer's last is void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Who proposed it.
    pub proposer: HostId,
    /// The proposer's number of this entry; 0 for entries that are idempotent by themselves (a
    /// join, proposed by whichever host was asked; a host's death, proposed by the leader).
    pub number: u64,
    /// Applied in this order, each on its own: a void change does not stop the others.
    pub changes: Vec<Change>,
}

/// One change of the agreed state. A change whose conditions do not hold when it is applied is
/// void: it changes nothing, and its proposer sees so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A host joins; the state gives it the next number. The nonce makes asking twice one host.
    /// Void if a living host has that name.
    HostJoin {
        /// Drawn by the joining daemon at its start.
        nonce: u64,
        /// What the host says of itself.
        facts: HostFacts,
    },
    /// A host is reached at another address than it said. Void unless it is in the machine.
    HostAddress {
        /// The host.
        host: HostId,
        /// `address:port`.
        addr: String,
    },
    /// The host's tasks are to leave: none are placed there or moved there any more. Void if the
    /// host takes no tasks anyway, or no other host does and they are not to be suspended.
    HostDraining {
        /// The host.
        host: HostId,
        /// What has nowhere to go is suspended.
        suspend: bool,
    },
    /// The host takes tasks again. Void if it was not draining.
    HostResumed(HostId),
    /// A planned leave begins: no more tasks are placed there, it stops being a voter.
    HostLeaving(HostId),
    /// A planned leave is complete; what still ran there has ended.
    HostGone(HostId),
    /// The host's lease must have ended: its tasks are dead.
    HostDead(HostId),
    /// `count` tasks numbered from `first` are born on `host`, asked for by `(asker, request)`.
    /// Void if that request already bore a task of one of these indices, or the host is not living.
    Spawn(SpawnRecord),
    /// A task ends. Void if it is not at `(host, incarnation)`.
    Exit {
        /// The task.
        tid: Tid,
        /// Where it ends.
        host: HostId,
        /// Its incarnation there.
        incarnation: u32,
        /// How it ended.
        status: ExitStatus,
        /// A signal ended it that nobody sent through the machine.
        killed: bool,
        /// Nobody has asked it to end: it sent no signal to it, and its host is not leaving.
        unasked: bool,
    },
    /// The target becomes the owner of a task (`docs/protocol.md`, "Moves"). Void if the task is not at
    /// `(from, incarnation)`. Afterwards the task is at `to` with the next incarnation. The entry may
    /// also suspend the task, or resume it, on the same host too: then `from` is `to`. It is void if
    /// it would suspend the task while the application is cut or restarted.
    Relocate {
        /// The task.
        tid: Tid,
        /// The owner that released it.
        from: HostId,
        /// The owner to be.
        to: HostId,
        /// Its incarnation at `from`.
        incarnation: u32,
        /// It is suspended there: it has no process, and its image is in the store.
        suspended: bool,
    },
    /// A move ends in doubt: the task stays with its owner under the next incarnation. Void like
    /// `Relocate`.
    Stay {
        /// The task.
        tid: Tid,
        /// Its owner.
        host: HostId,
        /// Its incarnation before this entry.
        incarnation: u32,
    },
    /// A living task joins a group (made by its first member) and gets the lowest free instance
    /// number. Joining twice changes nothing.
    GroupJoin {
        /// The group's name.
        group: String,
        /// The new member.
        tid: Tid,
        /// Of its application when it asked: what it asked in an earlier one is void.
        generation: u32,
    },
    /// A member leaves its group.
    GroupLeave {
        /// The group's name.
        group: String,
        /// The member.
        tid: Tid,
        /// As for a join.
        generation: u32,
    },
    /// The coordinator of an application is a process on that host from now on. Void unless the
    /// application lives, the host is in the machine, and the term follows the last one.
    Coordinator {
        /// The application, its master's tid.
        app: Tid,
        /// Where the process is.
        host: HostId,
        /// From 1, one higher each time.
        term: u32,
    },
    /// A checkpoint of an application begins: its tasks stand still, each from the moment on when its
    /// daemon applies this, until `CutGo` or `CutEnd`. Void unless it lives, that coordinator is the
    /// agreed one, no cut of it is under way, the epoch follows the last one, none of its tasks is
    /// suspended alone, and, if it is to be suspended, not too many are.
    Cut {
        /// The application, its master's tid.
        app: Tid,
        /// From 1, one higher each time.
        epoch: u32,
        /// Of the coordinator that wants it.
        term: u32,
        /// The application ends with it, and how: its tasks stand until it is committed.
        stop: Option<Stop>,
    },
    /// All tasks of that cut stand, and copies of them are being written: they go on. Void unless it
    /// is under way, they stand, and the application does not end with it.
    CutGo {
        /// The application, its master's tid.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
    },
    /// That cut ends. Void unless it is under way. If the application was to end with it, and it has
    /// left a checkpoint, its tasks end; if it was to be suspended, that is remembered from then on.
    CutEnd {
        /// The application.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
        /// It has left a checkpoint, committed in the store.
        saved: bool,
        /// What the application has lost for it, as its coordinator reckons. Microseconds.
        cost_us: u64,
    },
    /// From now on checkpoints of an application are made so. Void unless it lives.
    Policy {
        /// The application, its master's tid.
        app: Tid,
        /// How.
        policy: Policy,
    },
    /// An application is brought back from a checkpoint: its tasks live again where that says, and
    /// stand still until all of them are there. Void if any of them lives, if a group of theirs does,
    /// or if one of the hosts does not take them.
    Revive(Revival),
    /// All tasks of that application that are to live on that host stand there. Void unless it is
    /// being brought back in that generation.
    Standing {
        /// The application, its master's tid.
        app: Tid,
        /// That which its revival began.
        generation: u32,
        /// Where they stand.
        host: HostId,
    },
    /// It cannot be brought back: its tasks end again. One that goes back by itself is tried again, a
    /// few times; one that is suspended stays so. Void like `Standing`.
    Abandon {
        /// The application, its master's tid.
        app: Tid,
        /// That which its revival began; or, of one that goes back or is suspended, its last one.
        generation: u32,
        /// It is not tried again.
        for_good: bool,
        /// For people; at most [`limits::REASON_MAX`](crate::limits::REASON_MAX) bytes.
        why: String,
    },
    /// An application is suspended no more, and has ended: its checkpoints stay. Void unless it is, with
    /// that checkpoint, and is not just being brought back.
    Unsuspend {
        /// The application, its master's tid.
        app: Tid,
        /// Generation and epoch of the checkpoint with which it was suspended.
        from: CheckpointId,
        /// Because its time was over; else because somebody ended it.
        over: bool,
    },
    /// The machine ends: every daemon ends its tasks and itself.
    Halt,
}

/// How an application is brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revival {
    /// The application, its master's tid.
    pub app: Tid,
    /// Whose daemon was asked for it, and under which number.
    pub asker: (HostId, u64),
    /// From which checkpoint: its generation and epoch.
    pub from: CheckpointId,
    /// How old the checkpoint was when it was read. Milliseconds.
    pub age_ms: u64,
    /// The index of the cut, if it was made in this machine: what the application bore later it will
    /// bear again.
    pub cut: Option<u64>,
    /// Where the output of its tasks goes; [`HostId::NONE`]: to the logs of their hosts. One that goes
    /// back by itself keeps its console.
    pub console: HostId,
    /// Its tasks, by tid.
    pub tasks: Vec<RevivedTask>,
    /// The groups that they are members of.
    pub groups: Vec<SavedGroup>,
    /// When checkpoints of it are made by themselves.
    pub policy: Policy,
    /// Files that its tasks had open for writing are used as they are, and not rolled back to what they
    /// were.
    pub keep_files: bool,
    /// Void unless the application is suspended with that checkpoint.
    pub resumes: bool,
}

/// A task of an application that is brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevivedTask {
    /// The task.
    pub tid: Tid,
    /// Where it is to live.
    pub host: HostId,
    /// Its incarnation at the cut; the next one is higher.
    pub incarnation: u32,
    /// Who asked for it.
    pub asker: Tid,
    /// The asker's request number.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Last part of its program's path, for people.
    pub program: String,
    /// The host that has its image; [`HostId::NONE`]: the host where it is to live has it in its store.
    pub source: HostId,
}

/// What a joining host says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Unique among the living hosts.
    pub name: String,
    /// `address:port` where other daemons reach it.
    pub addr: String,
    /// Cores, for placement.
    pub cpus: u32,
    /// Most tasks that it runs at once.
    pub tasks_max: u32,
    /// `x86_64`, `aarch64`.
    pub arch: String,
    /// Its folder of checkpoints is on a disk of its own; else all hosts share it.
    pub store_local: bool,
}

/// The tasks of one spawn request on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRecord {
    /// Who asked: a task; or, for a master, the daemon that a console asked.
    pub asker: Tid,
    /// The asker's request number.
    pub request: u64,
    /// Where they are born.
    pub host: HostId,
    /// Index of the first one among all tasks of the request.
    pub index: u32,
    /// Sequence number of the first one on that host.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Their application, named by its master's tid; [`Tid::NONE`]: each is a master of its own.
    pub app: Tid,
    /// Last part of the program's path, for people.
    pub program: String,
    /// Whether the process was there before (a master enrolled from a shell).
    pub enrolled: bool,
    /// Of the application when its task asked: what one asked in an earlier life is void.
    pub generation: u32,
    /// Of a master: where the output of its application goes, or [`HostId::NONE`].
    pub console: HostId,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It left the machine in order, with this status: its last messages are delivered.
    Left(i32),
    /// Its process ended with this code without leaving in order.
    Code(i32),
    /// Its process was ended by this signal.
    Signal(i32),
    /// Its program could not be started.
    NotStarted,
    /// Its host was declared dead, or left.
    HostLost,
    /// Its application was stopped with a checkpoint, and can be brought back.
    Suspended,
    /// Its application lost a task, and goes back to its last checkpoint.
    RolledBack,
    /// Nothing is known of it: it never was, or ended so long ago that it is forgotten. In no entry.
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

/// A snapshot of the agreed state, and the place in the log that it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAt {
    /// The machine.
    pub machine: MachineId,
    /// Index of the last entry that it contains.
    pub index: u64,
    /// The voters at that entry.
    pub voters: Vec<HostId>,
    /// The state, encoded by the `machine` crate.
    pub state: Body,
}
