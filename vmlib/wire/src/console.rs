//! Frames between a console and its daemon, on the daemon's UNIX socket.
//!
//! A console's first frame is a [`Request`], numbered in the header like a task's; any number may
//! follow on the same connection. After [`Request::Run`] was answered with [`Answer::Started`] the
//! connection also carries the run's terminal: [`Input`], [`WindowSize`] and [`RunSignal`] to the
//! daemon, [`Output`], [`RunStopped`] and at last [`RunEnd`] to the console.

use crate::{
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, Policy, RestartReport},
    codec::{Body, Message, message},
    frame::Op,
    id::{CheckpointId, HostId, MachineId, Tid},
    peer::{DrainReport, DrainWay, MovePhase, MoveReport, MoveWay, Sent, UsageRow},
    stores::HostStock,
    task::{Failed, Spawn},
    version::Offer,
};
use serde::{Deserialize, Serialize};

message! { Input Output WindowSize RunSignal RunEnd RunStopped }

impl Message for Request {
    const OP: Op = Op::ConsoleRequest;
}

impl Message for Answer {
    const OP: Op = Op::ConsoleAnswer;
}

/// A request of a console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The versions that the console speaks; always the first request.
    Version(Offer),
    /// The hosts, the leader and the voters.
    Conf,
    /// Tasks, of one application or of all.
    Ps(Option<Tid>),
    /// Start a master whose terminal is this console. `count` is 1.
    Run {
        /// The program and its host. `count` is 1.
        spawn: Spawn,
        /// The size of the console's terminal, if the master shall have a terminal too.
        terminal: Option<WindowSize>,
    },
    /// Start masters; their output goes to the daemon's log.
    Spawn(Spawn),
    /// Send a signal, by number, to a task.
    Signal(Tid, i32),
    /// Make a host leave the machine: its tasks end, then its daemon ends.
    Delete(String),
    /// Wait for a host: the reply comes once a host of that name is in the machine.
    AwaitHost(String),
    /// Whether a task can be moved, and why not.
    Check(Tid),
    /// Move a task to the host of that name, or to the one that the machine chooses.
    Move(Tid, Option<String>, MoveWay),
    /// The moves that were requested at this daemon and have not ended.
    Moves,
    /// Make a checkpoint of the application of that task; with `true`, end the application with it.
    Checkpoint(Tid, bool),
    /// Suspend the application of that master: make a checkpoint, end the application with it, and
    /// remember it. For that many milliseconds; 0: until a request resumes it. The reply is
    /// `Checkpointed`. A task that is no master is suspended alone, until a request resumes it: the
    /// reply is `Moved`.
    Suspend(Tid, u64),
    /// Resume that suspended application. The reply is `Restarted`, when all its tasks run. Or
    /// resume that single task, on the host of that name or on one that the machine chooses: the
    /// reply is `Moved`.
    Resume(Tid, Option<String>),
    /// The suspended applications.
    Suspended,
    /// Set the checkpoint policy of the application of that task.
    Policy(Tid, Policy),
    /// Restart the application of that master from a checkpoint in the daemon's store: the one in
    /// `from`, or the last whole one. The reply is `Restarted`, when all its tasks run.
    Restart {
        /// The application, its master's tid.
        app: Tid,
        /// The checkpoint; `None`: the last checkpoint that is whole.
        from: Option<CheckpointId>,
        /// Whether this console becomes the application's console, as after `Run`.
        attach: bool,
        /// Whether files that its tasks had open for writing are used as they are, and not rolled
        /// back.
        keep_files: bool,
    },
    /// The store inventories of all hosts for the checkpoints of an application, if each host has
    /// its own store; with `true`, the hosts read and verify all of it.
    Stock(Tid, bool),
    /// Remove all checkpoints of an application from the stores of all other hosts, if each host
    /// has its own. The reply comes when these hosts have received the order.
    ForgetStored(Tid),
    /// Drain the host of that name. The reply is `Drained`, when each task has left or was refused.
    Drain(String, DrainWay),
    /// End the drain of the host of that name: it takes tasks again.
    Undrain(String),
    /// End the machine.
    Halt,
}

/// The reply of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Reply to `Version`.
    Version {
        /// The version chosen for this connection.
        version: u16,
        /// The daemon's release.
        release: String,
        /// The machine.
        machine: MachineId,
        /// The host of the daemon.
        host: HostId,
    },
    /// Reply to `Conf`.
    Conf(Conf),
    /// Reply to `Ps`.
    Ps(Vec<TaskRow>),
    /// Reply to `Run` and `Spawn`.
    Started(Vec<Tid>),
    /// Reply to requests without a result.
    Done,
    /// Reply to `Move`, and to `Suspend` and `Resume` of a single task.
    Moved(MoveReport),
    /// Reply to `Moves`.
    Moves(Vec<MoveRow>),
    /// Reply to `Checkpoint`, and to `Suspend` of an application.
    Checkpointed(CheckpointReport),
    /// Reply to `Restart`, and to `Resume` of an application.
    Restarted(RestartReport),
    /// Reply to `Stock`.
    Stock(Vec<HostStock>),
    /// Reply to `Suspended`, ordered by application.
    Suspended(Vec<SuspendedRow>),
    /// Reply to `Drain`.
    Drained(DrainReport),
    /// Reply to `Check`: empty if the task can be moved, else each reason why not.
    Check(Vec<String>),
    /// Reply to any request that failed.
    Failed(Failed),
}

/// The machine as the replying daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conf {
    /// The machine.
    pub machine: MachineId,
    /// The host of the replying daemon.
    pub here: HostId,
    /// The leader, or [`HostId::NONE`].
    pub leader: HostId,
    /// Index of the last entry that the replying daemon has applied.
    pub applied: u64,
    /// Path of the replying daemon's store.
    pub store: String,
    /// All hosts by number, those that left or were lost included.
    pub hosts: Vec<HostRow>,
    /// Pairs of hosts that cannot reach each other, as one of the two reports; the lower number
    /// first.
    pub links_down: Vec<(HostId, HostId)>,
}

/// One host of [`Conf`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    /// Number of the host.
    pub host: HostId,
    /// Facts that the host stated when it joined.
    pub facts: HostFacts,
    /// Number of living tasks on the host.
    pub tasks: u32,
    /// Whether the host votes on the log.
    pub voter: bool,
    /// State of the host.
    pub state: HostState,
}

/// The state of a host in the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostState {
    /// In the machine, and takes tasks.
    Live,
    /// In the machine; its tasks move away, and it takes none.
    Draining,
    /// Leaving the machine in order.
    Leaving,
    /// Has left in order.
    Gone,
    /// Was declared dead.
    Dead,
}

/// One task in the reply to [`Request::Ps`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// Id of the task.
    pub tid: Tid,
    /// The task that spawned it, or [`Tid::NONE`].
    pub parent: Tid,
    /// Its application: the tid of the master.
    pub app: Tid,
    /// Name of its owner.
    pub host: String,
    /// Its incarnation on that host.
    pub incarnation: u32,
    /// Name of its program.
    pub program: String,
    /// Processor time and memory; `None` if the host did not reply in time.
    pub usage: Option<UsageRow>,
    /// Whether the task is suspended alone: it has no process, and its image is in the store.
    pub suspended: bool,
}

/// One suspended application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendedRow {
    /// Tid of the master.
    pub app: Tid,
    /// Name of the master's program.
    pub program: String,
    /// Number of tasks in the checkpoint.
    pub tasks: u32,
    /// The checkpoint.
    pub from: CheckpointId,
    /// Start of the suspension. Milliseconds since 1970.
    pub since_ms: u64,
    /// End of the suspension; then the application has ended. 0: no end. Milliseconds since 1970.
    pub until_ms: u64,
    /// Name of the host whose drain suspended it; the machine resumes such an application.
    pub drained: Option<String>,
    /// Whether it is being resumed.
    pub resuming: bool,
}

/// One move that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The task that moves.
    pub tid: Tid,
    /// Name of the owner at the time of the request.
    pub from: String,
    /// Name of the target.
    pub to: String,
    /// Phase of the move; `None` before the first report of a coordinator.
    pub phase: Option<MovePhase>,
    /// Progress of the image; `None` before the first report of the source.
    pub sent: Option<Sent>,
}

/// Bytes typed at the console; empty: the end of file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Typed bytes.
    pub bytes: Body,
}

/// Bytes written by a task of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The task that wrote the bytes. The master's bytes are unchanged, those of other tasks are
    /// whole lines.
    pub tid: Tid,
    /// 1: standard output, 2: standard error.
    pub stream: u8,
    /// Written bytes.
    pub bytes: Body,
    /// Bytes that were dropped before these because the queue was full.
    pub dropped: u64,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Height in characters.
    pub rows: u16,
    /// Width in characters.
    pub columns: u16,
}

/// A signal that the console passes on to the master of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSignal {
    /// Number of the signal.
    pub signal: i32,
}

/// The run is over for its console; its output came before this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How the master ended. `None`: the application runs on, but the console's host leaves the
    /// machine.
    pub status: Option<ExitStatus>,
}

/// A signal stopped the process of the run's master, which has a terminal, or the process
/// continues. The console stops, too, as the shell that started it expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStopped {
    /// `true`: stopped; `false`: continued.
    pub stopped: bool,
}
