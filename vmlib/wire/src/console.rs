//! What a console and its daemon say to each other, on the daemon's UNIX socket.
//!
//! A console's first frame is a [`Request`], numbered in the header like a task's; any number may
//! follow on the same connection. After [`Request::Run`] was answered with [`Answer::Started`] the
//! connection also carries the run's terminal: [`Input`], [`WindowSize`] and [`RunSignal`] to the
//! daemon, [`Output`], [`RunStopped`] and at last [`RunEnd`] to the console.

use crate::{
    agreed::{ExitStatus, HostFacts},
    checkpoint::{CheckpointReport, Policy, RestartReport},
    codec::{Body, Message},
    frame::Op,
    id::{HostId, MachineId, Tid},
    peer::{DrainReport, DrainWay, MovePhase, MoveReport, MoveWay, Sent, UsageRow},
    stores::HostStock,
    task::{Failed, Spawn, message},
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

/// What a console asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Versions; always the first question.
    Version(Offer),
    /// Hosts, leader, voters.
    Conf,
    /// Tasks, of one application or of all.
    Ps(Option<Tid>),
    /// Start a master whose terminal is this console. `count` is 1.
    Run {
        /// What and where.
        spawn: Spawn,
        /// The size of the console's terminal, if the master shall have a terminal too.
        terminal: Option<WindowSize>,
    },
    /// Start masters; their output goes to the daemon's log.
    Spawn(Spawn),
    /// Send a signal.
    Signal(Tid, i32),
    /// Take a host out of the machine: its tasks end, its daemon ends.
    Delete(String),
    /// Answered once a host of that name is in the machine.
    AwaitHost(String),
    /// Whether a task can be moved, and why not.
    Check(Tid),
    /// Move a task to the host of that name, or to the one that the machine chooses.
    Move(Tid, Option<String>, MoveWay),
    /// The moves that were asked for at this daemon and are not over.
    Moves,
    /// Make a checkpoint of the application of that task; with `true`, end it with that.
    Checkpoint(Tid, bool),
    /// Suspend the application of that master: make a checkpoint and end it with that, to be resumed.
    /// For so many milliseconds; 0: until somebody resumes it. Answered with `Checkpointed`. Another
    /// task is suspended alone, until somebody resumes it: answered with `Moved`.
    Suspend(Tid, u64),
    /// Resume that application, which is suspended. Answered with `Restarted` when all its tasks run.
    /// Or that task alone, on the host of that name or on the one that the machine chooses: answered
    /// with `Moved`.
    Resume(Tid, Option<String>),
    /// The applications that are suspended.
    Suspended,
    /// From now on make checkpoints of the application of that task so.
    Policy(Tid, Policy),
    /// Bring back the application of that master from a checkpoint in the store of the asked daemon:
    /// that of this generation and epoch, or the last one. Answered with `Restarted` when all its
    /// tasks run.
    Restart {
        /// The application, its master's tid.
        app: Tid,
        /// Generation and epoch.
        from: Option<(u32, u32)>,
        /// This console is its terminal from then on, as that of a run.
        attach: bool,
        /// Files that its tasks had open for writing are used as they are, and not rolled back to what
        /// they were.
        keep_files: bool,
    },
    /// What all hosts have in their stores of the checkpoints of an application, if each has its own;
    /// with `true`, all of it is read.
    Stock(Tid, bool),
    /// Have all checkpoints of an application removed from the stores of all other hosts, if each has its
    /// own. Answered when they have been told.
    ForgetStored(Tid),
    /// Have all tasks of the host of that name leave; it takes no more. Answered with `Drained`
    /// when each has left, or refused to.
    Drain(String, DrainWay),
    /// The host of that name takes tasks again.
    Undrain(String),
    /// End the machine.
    Halt,
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Version`.
    Version {
        /// The chosen version.
        version: u16,
        /// The daemon's release.
        release: String,
        /// The machine.
        machine: MachineId,
        /// The daemon's host.
        host: HostId,
    },
    /// To `Conf`.
    Conf(Conf),
    /// To `Ps`.
    Ps(Vec<TaskRow>),
    /// To `Run` and `Spawn`.
    Started(Vec<Tid>),
    /// To requests without a result.
    Done,
    /// To `Move`.
    Moved(MoveReport),
    /// To `Moves`.
    Moves(Vec<MoveRow>),
    /// To `Checkpoint` and `Suspend`.
    Checkpointed(CheckpointReport),
    /// To `Restart` and `Resume`.
    Restarted(RestartReport),
    /// To `Stock`.
    Stock(Vec<HostStock>),
    /// To `Suspended`, by application.
    Suspended(Vec<SuspendedRow>),
    /// To `Drain`.
    Drained(DrainReport),
    /// To `Check`: empty if the task can be moved, else each reason why not.
    Check(Vec<String>),
    /// The request failed.
    Failed(Failed),
}

/// The machine as the asked daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conf {
    /// The machine.
    pub machine: MachineId,
    /// The asked daemon's host.
    pub here: HostId,
    /// Who leads, or [`HostId::NONE`].
    pub leader: HostId,
    /// The last entry that the asked daemon has applied.
    pub applied: u64,
    /// Where the asked daemon's checkpoints are.
    pub store: String,
    /// All hosts, those that are gone too, by number.
    pub hosts: Vec<HostRow>,
    /// Pairs of hosts that cannot reach each other, as one of them has said; the lower number first.
    pub links_down: Vec<(HostId, HostId)>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its number.
    pub host: HostId,
    /// What it said of itself.
    pub facts: HostFacts,
    /// Tasks alive there.
    pub tasks: u32,
    /// Whether it votes.
    pub voter: bool,
    /// How it is.
    pub state: HostState,
}

/// How a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostState {
    /// In the machine.
    Live,
    /// In the machine, but its tasks leave and it takes none.
    Draining,
    /// On its way out in order.
    Leaving,
    /// It left in order.
    Gone,
    /// It was declared dead.
    Dead,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// The task.
    pub tid: Tid,
    /// Its parent, or [`Tid::NONE`].
    pub parent: Tid,
    /// Its application.
    pub app: Tid,
    /// Where it runs.
    pub host: String,
    /// Its incarnation there.
    pub incarnation: u32,
    /// Its program.
    pub program: String,
    /// What it uses; `None` if its host did not answer in time.
    pub usage: Option<UsageRow>,
    /// It is suspended: it has no process, and its image is in the store.
    pub suspended: bool,
}

/// One application that is suspended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendedRow {
    /// Its master's tid.
    pub app: Tid,
    /// Its master's program.
    pub program: String,
    /// The tasks in its checkpoint.
    pub tasks: u32,
    /// That checkpoint: its generation and epoch.
    pub from: (u32, u32),
    /// Since when. Milliseconds since 1970.
    pub since_ms: u64,
    /// Until when, then it has ended; 0: until somebody resumes it. Milliseconds since 1970.
    pub until_ms: u64,
    /// The host that drained, if it was suspended because of that: then it is resumed by itself.
    pub drained: Option<String>,
    /// It is just being resumed.
    pub resuming: bool,
}

/// One move that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The task.
    pub tid: Tid,
    /// Where it was when the move was asked for.
    pub from: String,
    /// Where to.
    pub to: String,
    /// How far it is; `None` if no coordinator has said so yet.
    pub phase: Option<MovePhase>,
    /// What has been sent; `None` as long as that is not known.
    pub sent: Option<Sent>,
}

/// Bytes typed at the console; an end of file if empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The bytes.
    pub bytes: Body,
}

/// Bytes written by a task of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Who wrote them: the master's pass through as they are, others' as whole lines.
    pub tid: Tid,
    /// 1: standard output, 2: standard error.
    pub stream: u8,
    /// The bytes.
    pub bytes: Body,
    /// Bytes that were dropped before these because the way was full.
    pub dropped: u64,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// In characters.
    pub rows: u16,
    /// In characters.
    pub columns: u16,
}

/// A signal for the master of the run, sent to the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSignal {
    /// Its number.
    pub signal: i32,
}

/// The run is over for its console; its output came before this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How the master ended. `None`: the application runs on, but the console's host leaves the
    /// machine.
    pub status: Option<ExitStatus>,
}

/// The process of the run's master, which has a terminal, was stopped by a signal, or goes on: the
/// console stops, too, as the shell that started it expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStopped {
    /// Whether it is stopped.
    pub stopped: bool,
}
