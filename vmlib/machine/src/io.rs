//! The inputs and outputs of a daemon's state machine.
//!
//! The shell (`vmd`, or the simulator) passes one [`Input`] at a time to `Daemon::step`, and then
//! carries out the entries of the [`Outbox`] in order.

use crate::Time;
use std::{collections::VecDeque, time::Duration};
use vm_wire::{
    CheckpointId, Frame, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{Checkpoint, Committed, Loaded, Part},
    console::WindowSize,
    interrupt::Folders,
    peer::{MoveWay, Sent, UsageRow},
    stores::StockRow,
    task::{Enrol, Failed},
};

/// The writer of a task's image for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedBy {
    /// A copy of the task (forked save). The task continues.
    Copy,
    /// The one with less work: a copy, or the task itself, which writes into memory and continues
    /// while the image is stored from there. For checkpoints that follow each other soon.
    CopyOrMemory,
    /// The task, which writes into memory if there is room; else it stays frozen until the image is
    /// stored.
    Memory,
    /// The task, which stays frozen until the image is stored: its application ends with the
    /// checkpoint.
    Standing,
}

impl SavedBy {
    /// Whether a copy writes the image if there is no room in memory.
    pub fn is_copy(self) -> bool {
        matches!(self, SavedBy::Copy | SavedBy::CopyOrMemory)
    }
}

/// A connection that does not belong to a task or peer, or not yet. The shell numbers connections
/// and never reuses a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// An event for a daemon.
#[derive(Debug)]
pub enum Input {
    /// Time has passed: `Daemon::deadline` is reached.
    Tick,
    /// A link to `host` is up: both ends have proved the secret and sent Hello. Frames on an older
    /// link are lost.
    LinkUp(HostId),
    /// The link to `host` is gone, or could not be made.
    LinkDown(HostId),
    /// A frame came over the link to `host`.
    Peer(HostId, Frame),
    /// A frame came from an authenticated daemon that has no host number yet.
    Joiner(ConnId, Frame),
    /// Other hosts reach this host at that address, not at the address that it stated.
    Address(String),
    /// A process of this host enrols. `pid` comes from the kernel.
    Enrol {
        /// Its data socket.
        conn: ConnId,
        /// Process id.
        pid: u32,
        /// Its first frame.
        enrol: Enrol,
    },
    /// A frame came over a task's data socket.
    Task(Tid, Frame),
    /// A task's data socket is closed.
    TaskGone(Tid),
    /// A task's process has ended and its captured output was read to the end.
    ProcessEnded(Tid, ExitStatus),
    /// `Output::Launch` failed.
    LaunchFailed(Tid, Failed),
    /// `Output::Launch` succeeded.
    Launched(Tid, u32),
    /// A task wrote output: whole lines, or raw bytes for a master with a console.
    TaskOutput {
        /// The task.
        tid: Tid,
        /// 1: standard output, 2: standard error.
        stream: u8,
        /// The output, at most about `LINE_MAX` bytes.
        bytes: Vec<u8>,
    },
    /// A frame came from a console.
    Console(ConnId, Frame),
    /// The queue to a console is longer than the shell allows. No output of tasks is to be sent
    /// there until there is room.
    ConsoleFull(ConnId),
    /// A console that was full has room again.
    ConsoleRoom(ConnId),
    /// A console, a joiner or a connection that never enrolled is gone.
    ConnGone(ConnId),
    /// Data frames from the first to the second task of each pair were dropped because a queue was
    /// full. The queue has room again.
    Dropped(Vec<(Tid, Tid)>),
    /// Reply to `Output::MeasureUsage`.
    Usage(u64, Vec<UsageRow>),
    /// Reply to `Output::FindProgram`: the absolute path of the program.
    ProgramFound(u64, Result<String, Failed>),
    /// The pre-copy of a task is over: bytes sent, and number of pre-copy rounds.
    Copied(Tid, u64, u32),
    /// Progress of the image of a task that moves away. Comes now and then, until all is sent.
    Sent(Tid, Sent),
    /// The image of a task was sent, or the transfer process ended otherwise.
    SentAll(Tid),
    /// A signal stopped the process of a task (`true`), or the process continues (`false`).
    Stopped(Tid, bool),
    /// From now on the task is a portable task: its image is the state that its program supplies.
    Portable(Tid),
    /// From now on the task is frozen only in calls of the library, which calls the program's
    /// callbacks around the save.
    InCalls(Tid),
    /// A task has stopped, as `Output::Hold` ordered: a portable task at a safe point, a task with
    /// callbacks in a call of the library, before the callbacks. The latter also comes before a
    /// save without `Hold`.
    Held(Tid),
    /// A task is frozen and has written its image. Or the task continues, for the given reason.
    Frozen(Tid, Result<Written, Failed>),
    /// The image of an expected task is whole, and its process is ready, frozen; or why not.
    Arrived(Tid, Result<(), Failed>),
    /// The image of a task is in the store, for the cut of that epoch; or why not.
    Stored(Tid, u32, Result<Part, Failed>),
    /// The image of a task that is suspended alone is in the store, under that number of the
    /// suspension; or why not. The daemon has chosen its name.
    Suspended(Tid, u64, Result<Part, Failed>),
    /// The part of that ticket was copied into the store, whole and verified; or why not. Follows
    /// `Output::ExpectCopy`.
    CopyTaken(u64, Result<(), Failed>),
    /// The part of that ticket was sent completely; or why not. Follows `Output::SendPart` or
    /// `Output::SendSuspended`.
    PartSent(u64, Result<(), Failed>),
    /// Reply to `Output::Stock`: the store inventory of an application.
    Stocked(u64, Result<Vec<StockRow>, Failed>),
    /// Reply to `Output::Commit`.
    Committed(Committed),
    /// Reply to `Output::Load`: the content of a checkpoint.
    Loaded(u64, Result<Box<Loaded>, Failed>),
    /// The process of a coordinator sent a frame.
    Coordinator(u64, Frame),
    /// The process of a coordinator has ended, or could not be started.
    CoordinatorGone(u64),
    /// The user requests that this daemon leaves (SIGTERM, SIGINT).
    Stop,
}

/// The data from which the shell starts the process of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The task.
    pub tid: Tid,
    /// The token in the environment with which the process enrols.
    pub token: u64,
    /// Absolute path, from `FindProgram`.
    pub program: String,
    /// Arguments after the name.
    pub args: Vec<String>,
    /// Variables in addition to the daemon's environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub dir: Option<String>,
    /// For a master run from a console, whose standard input is open: the size of its terminal, if
    /// it has one. `None`: no console.
    pub console: Option<Option<WindowSize>>,
}

/// An order of a daemon to its shell.
#[derive(Debug)]
pub enum Output {
    /// Make a link to a host at an address, if there is none. `LinkUp` or `LinkDown` follows.
    Connect(HostId, String),
    /// Close the link to that host.
    Disconnect(HostId),
    /// Send on the link to a host. Without a link the frame is dropped.
    Peer(HostId, Frame),
    /// This host has links to all other hosts. Sent once, if [`DaemonConfig::link_time`] is set.
    ///
    /// [`DaemonConfig::link_time`]: crate::DaemonConfig::link_time
    Linked,
    /// After [`DaemonConfig::link_time`](crate::DaemonConfig::link_time), there is no link to these
    /// hosts.
    NotLinked(Vec<HostId>),
    /// From now on this host is known to the others at that address.
    Address(String),
    /// Send to a joining daemon. After a `Refused`, close the connection.
    Joiner(ConnId, Frame),
    /// The connection is the data socket of a task from now on. Send the Welcome first, with the
    /// descriptor of the interrupt socket.
    Welcome {
        /// The connection.
        conn: ConnId,
        /// The task.
        tid: Tid,
        /// The frame with the Welcome.
        frame: Frame,
        /// For a master: send a second descriptor, through which the process that the library forks
        /// is connected as the coordinator of that number. If the library forks none,
        /// `CoordinatorGone` follows.
        coordinator: Option<u64>,
    },
    /// The enrolment failed, or a console broke the protocol: send the frame, then close the
    /// connection.
    Reject(ConnId, Frame),
    /// Send on a task's data socket. Without one the frame is dropped.
    Task(Tid, Frame),
    /// A task broke the protocol: close its data socket; `TaskGone` follows.
    CloseTask(Tid),
    /// Send to a console. Without the connection the frame is dropped.
    Console(ConnId, Frame),
    /// Find a program in the program path. `ProgramFound` with that number follows.
    FindProgram {
        /// Number of the reply.
        question: u64,
        /// The name or path that the user gave.
        program: String,
        /// The working directory for a relative path.
        dir: Option<String>,
    },
    /// Start a process; `Launched` or `LaunchFailed` follows.
    Launch(Box<LaunchSpec>),
    /// Watch the process of a task that the shell did not launch (enrolled from a shell).
    Adopt(Tid, u32),
    /// Send a signal to the process of a task, or to its process group.
    Signal(Tid, i32),
    /// Bytes for the standard input of a task; empty: end of file.
    StandardInput(Tid, Vec<u8>),
    /// The size of a task's terminal has changed.
    Resize(Tid, WindowSize),
    /// The standard input of this task comes from that console. While the task does not read it, do
    /// not read the console. Ends when either of the two ends.
    Attach(ConnId, Tid),
    /// Open a connection to that address for the image of a task; the ticket admits it there. With
    /// pre-copy, have the task write its memory while it runs: `Copied` follows, or `Frozen` with
    /// the reason why not.
    Copy {
        /// The task.
        tid: Tid,
        /// `address:port` of the target's daemon.
        addr: String,
        /// Number that admits the connection at the target.
        ticket: u64,
        /// Options of the move.
        way: MoveWay,
        /// The working folders of source and target, if they differ.
        folders: Option<Folders>,
    },
    /// Open a pipe into the store for the image of a task. `Stored` follows when the image is whole
    /// there.
    Store {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Generation of the application.
        generation: u32,
        /// Epoch of the cut.
        epoch: u32,
        /// The writer of the image.
        by: SavedBy,
        /// If hosts have stores of their own: the name of the host with the second copy, if any. A
        /// part that this host lacks is no base.
        second: Option<String>,
        /// Store the whole image, not an increment.
        full: bool,
        /// Compress the file.
        compress: bool,
    },
    /// Open a pipe into the store for the image of a task that is suspended alone. `Suspended` with
    /// that number follows when the image is whole there.
    Suspend {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Name of the image in the store.
        name: String,
        /// Number of the reply.
        number: u64,
    },
    /// Send the image of a suspended task to that address. `PartSent` follows.
    SendSuspended {
        /// Number that admits the connection at the other host, which may be this one.
        ticket: u64,
        /// `address:port` of the other host's daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// The image.
        image: Part,
    },
    /// Remove the image of that name: its task is no longer suspended.
    DropSuspended {
        /// The application.
        app: Tid,
        /// Name of the image in the store.
        name: String,
    },
    /// The application of that task resumes: store the image that its copy writes.
    StoreCopy(Tid),
    /// Commit a checkpoint. All its parts are in the store. `Committed` follows.
    Commit(Box<Checkpoint>),
    /// Remove the parts of a checkpoint from the store: it will not be committed.
    Drop {
        /// The application.
        app: Tid,
        /// Generation of the application.
        generation: u32,
        /// Epoch of the cut.
        epoch: u32,
    },
    /// Read the content of a checkpoint in the store: the one in `from`, or the last whole one.
    /// `Loaded` with that number follows.
    Load {
        /// Number of the reply.
        question: u64,
        /// The application.
        app: Tid,
        /// The checkpoint; `None`: the last whole one.
        from: Option<CheckpointId>,
        /// Read and verify all data of a checkpoint to find the last whole one, not only lengths.
        verify: bool,
    },
    /// Restore a task from its image in the store, frozen. `Arrived` follows.
    Restore {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The image.
        image: Part,
        /// Use files that the task writes as they are, and do not roll them back.
        keep_files: bool,
        /// The former and the present working folder of the task, if they differ.
        folders: Option<Folders>,
    },
    /// Expect a connection with this ticket that brings the file of a part: write the file into the
    /// store. `CopyTaken` follows.
    ExpectCopy {
        /// Number that admits the connection.
        ticket: u64,
        /// The task with that image.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The part to receive.
        part: Part,
    },
    /// Discard the part of that ticket, also if it was received already.
    CancelPart(u64),
    /// Send a part in the store to that address. `PartSent` follows.
    SendPart {
        /// Number that admits the connection at the other host.
        ticket: u64,
        /// `address:port` of the other host's daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// The checkpoint.
        from: CheckpointId,
        /// The part to send.
        part: Part,
        /// `true`: the bytes of its file; `false`: its content, verified.
        file: bool,
    },
    /// List the checkpoints of an application in the store. `Stocked` with that number follows.
    Stock {
        /// Number of the reply.
        question: u64,
        /// The application.
        app: Tid,
        /// Only this checkpoint.
        from: Option<CheckpointId>,
        /// Read and verify all data, not only lengths.
        verify: bool,
    },
    /// Remove all checkpoints of an application from the store.
    ForgetStored(Tid),
    /// Have a portable task, or a task with callbacks, run to a place where it can be saved and
    /// stop there. `Held` follows. `Freeze` or `CancelCopy` ends the wait.
    Hold(Tid),
    /// Freeze that task and have it write the rest of its image. `Frozen` follows.
    Freeze(Tid, MoveWay),
    /// Discard the pre-copy of a task, or the image that its copy writes. The task runs on.
    CancelCopy(Tid),
    /// Let a frozen task of this host run.
    Resume {
        /// The task.
        tid: Tid,
        /// Generation of its application.
        generation: u32,
        /// Whether a copy of the task still writes its image; `false`: discard the image.
        writes: bool,
    },
    /// Expect a connection with this ticket that brings the image of that task: restore the task,
    /// frozen. `Arrived` follows.
    Expect {
        /// The task.
        tid: Tid,
        /// Number that admits the connection.
        ticket: u64,
        /// Roll files that the task writes back to their content at the save.
        roll_back: bool,
        /// The former and the present working folder of the task, if they differ and the image does
        /// not say so.
        folders: Option<Folders>,
    },
    /// Let a restored task run: this host is its owner.
    Begin {
        /// The task.
        tid: Tid,
        /// Its incarnation here.
        incarnation: u32,
        /// Generation of its application.
        generation: u32,
        /// Whether its output is passed on unchanged, and not in whole lines: a master with a
        /// console.
        raw: bool,
    },
    /// The process of a task belongs to another host's task, or will never become a task: deliver
    /// its output, end it, and report no end.
    Discard(Tid),
    /// Start the process of a coordinator, with that number.
    StartCoordinator {
        /// A number that is never reused.
        number: u64,
        /// The application.
        app: Tid,
    },
    /// Send to the process of a coordinator. Without the process the frame is dropped.
    Coordinator(u64, Frame),
    /// Close the socket of a coordinator, end its process, and report no end.
    EndCoordinator(u64),
    /// Stop reading the output of a task, so that the task waits when its pipe is full.
    PauseOutput(Tid),
    /// Read the output of a task again.
    ResumeOutput(Tid),
    /// Output of a task that has no console: write it to the log.
    LogOutput(Tid, u8, Vec<u8>),
    /// Measure the usage of the tasks on this host. `Usage` with that number follows.
    MeasureUsage(u64),
    /// The end of the lease: arm the timer that kills this daemon then. `None`: this host is the
    /// only one and needs no lease: disarm the timer.
    Lease(Option<Time>),
    /// Print a message for the user.
    Note(String),
    /// Flush the queues to the consoles, end all tasks, close everything, exit. `Ok`: an orderly
    /// end.
    End(Result<String, String>),
}

/// An image written by a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Length of the whole image. Bytes.
    pub bytes: u64,
    /// Time since all threads were frozen.
    pub time: Duration,
    /// Number of sent chunks that the task had no acknowledgement for.
    pub unacknowledged: u32,
}

/// Outputs, in the order in which the shell carries them out.
pub type Outbox = VecDeque<Output>;
