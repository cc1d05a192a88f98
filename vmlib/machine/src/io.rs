//! What goes into a daemon's state machine and what comes out of it.
//!
//! The shell (`vmd`, or the simulator) feeds one [`Input`] at a time to `Daemon::step` and then
//! carries out what the [`Outbox`] holds, in order.

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

/// Who writes the image of a task for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedBy {
    /// A copy of the task, which goes on.
    Copy,
    /// Whichever is less work: a copy, or the task, into memory from where it is stored when the task
    /// goes on. The next checkpoint comes soon.
    CopyOrMemory,
    /// The task, into memory if there is room for it; else it stands until it is stored.
    Memory,
    /// The task, which stands until it is stored: its application ends with that.
    Standing,
}

impl SavedBy {
    /// Whether a copy writes, where there is no memory.
    pub fn is_copy(self) -> bool {
        matches!(self, SavedBy::Copy | SavedBy::CopyOrMemory)
    }
}

/// A connection that is not yet, or never, a task's or a peer's: numbered by the shell, never
/// reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What can happen to a daemon.
#[derive(Debug)]
pub enum Input {
    /// Time passed: something was due at `Daemon::deadline`.
    Tick,
    /// A link to `host` is up: authenticated, both said Hello. What was in an older link is lost.
    LinkUp(HostId),
    /// The link to `host` is gone, or could not be made.
    LinkDown(HostId),
    /// A frame came over the link to `host`.
    Peer(HostId, Frame),
    /// A frame came from an authenticated daemon that has no host number yet.
    Joiner(ConnId, Frame),
    /// Other hosts reach this one at that address, not at the one that they were told.
    Address(String),
    /// A process of this host wants to be a task; `pid` is what the kernel says.
    Enrol {
        /// Its data socket.
        conn: ConnId,
        /// Its process.
        pid: u32,
        /// What it says.
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
        /// 1 or 2.
        stream: u8,
        /// At most `LINE_MAX` or so bytes.
        bytes: Vec<u8>,
    },
    /// A frame came from a console.
    Console(ConnId, Frame),
    /// What waits to be written to a console is more than the shell wants to hold: send no output
    /// of tasks there until there is room.
    ConsoleFull(ConnId),
    /// A console that was full has room again.
    ConsoleRoom(ConnId),
    /// A console, a joiner or a connection that never enrolled is gone.
    ConnGone(ConnId),
    /// Frames of data between these pairs (from, to) were dropped because a queue was full; it has
    /// room again.
    Dropped(Vec<(Tid, Tid)>),
    /// The answer to `Output::MeasureUsage`.
    Usage(u64, Vec<UsageRow>),
    /// A program was looked up: the answer to `Output::FindProgram`.
    ProgramFound(u64, Result<String, Failed>),
    /// Most of a task's image is written while it ran: so many bytes in so many rounds.
    Copied(Tid, u64, u32),
    /// So much of the image of a task that leaves has been sent, and not all of it. Told now and then.
    Sent(Tid, Sent),
    /// All of it has been sent, or its sender has ended otherwise.
    SentAll(Tid),
    /// The process of a task was stopped by a signal, or goes on.
    Stopped(Tid, bool),
    /// From now on the task is saved by what its program gives at its safe points.
    Portable(Tid),
    /// From now on the task is stopped in its calls of the library alone, where its program's callbacks are
    /// called around the save.
    InCalls(Tid),
    /// A portable task stands at a safe point, as it was told to; or one with callbacks in a call of the
    /// library, before it calls them and saves itself too.
    Held(Tid),
    /// A task that was to be frozen stands still and has written its image; or it runs on, and this
    /// is why.
    Frozen(Tid, Result<Written, Failed>),
    /// The image of an expected task is whole, and its process stands ready; or this is why not.
    Arrived(Tid, Result<(), Failed>),
    /// The image of a task is in the store, for the cut of that epoch; or this is why not.
    Stored(Tid, u32, Result<Part, Failed>),
    /// The image of a task that is to be suspended alone is in the store, under that number of its
    /// suspension; or this is why not. Its name is the daemon's matter.
    Suspended(Tid, u64, Result<Part, Failed>),
    /// The part of that ticket was copied into the store, whole and verified; or this is why not. Follows
    /// `Output::ExpectCopy`.
    CopyTaken(u64, Result<(), Failed>),
    /// The part of that ticket was sent; or this is why not, or not as a whole. Follows
    /// `Output::SendPart` or `Output::SendSuspended`.
    PartSent(u64, Result<(), Failed>),
    /// What is in the store of an application: the answer to `Output::Stock`.
    Stocked(u64, Result<Vec<StockRow>, Failed>),
    /// What came of `Output::Commit`.
    Committed(Committed),
    /// What a checkpoint holds: the answer to `Output::Load`.
    Loaded(u64, Result<Box<Loaded>, Failed>),
    /// The process of a coordinator says something.
    Coordinator(u64, Frame),
    /// The process of a coordinator is gone, or could not be started.
    CoordinatorGone(u64),
    /// The user asked this daemon to leave (SIGTERM, SIGINT).
    Stop,
}

/// How to start the process of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The task.
    pub tid: Tid,
    /// What the process proves itself with, in its environment.
    pub token: u64,
    /// Absolute path, as found by `FindProgram`.
    pub program: String,
    /// Arguments after the name.
    pub args: Vec<String>,
    /// Set in addition.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub dir: Option<String>,
    /// For a master run from a console: its standard input is open; `Some` if it has a terminal.
    pub console: Option<Option<WindowSize>>,
}

/// What a daemon wants done.
#[derive(Debug)]
pub enum Output {
    /// Make a link to that host if there is none; `LinkUp` or `LinkDown` follows.
    Connect(HostId, String),
    /// Close the link to that host.
    Disconnect(HostId),
    /// Send over the link to a host; dropped if there is none.
    Peer(HostId, Frame),
    /// This host has arrived: there are links to the others. Said once, if [`DaemonConfig::link_time`]
    /// is set.
    ///
    /// [`DaemonConfig::link_time`]: crate::DaemonConfig::link_time
    Linked,
    /// To these there is none after that time.
    NotLinked(Vec<HostId>),
    /// This host is told to others at that address from now on.
    Address(String),
    /// Send to a joiner; after a `Refused` its connection is closed.
    Joiner(ConnId, Frame),
    /// The connection is a task's data socket from now on; the Welcome goes first, with the
    /// descriptor of the interrupt socket.
    Welcome {
        /// The connection.
        conn: ConnId,
        /// The task.
        tid: Tid,
        /// The Welcome.
        frame: Frame,
        /// For a master: a descriptor goes along by which the process that its library forks is heard
        /// as the coordinator of that number; if it forks none, `CoordinatorGone` follows.
        coordinator: Option<u64>,
    },
    /// The enrolment failed, or a console broke the protocol: send the frame, close.
    Reject(ConnId, Frame),
    /// Send over a task's data socket; dropped if there is none.
    Task(Tid, Frame),
    /// A task broke the protocol: close its data socket; `TaskGone` follows.
    CloseTask(Tid),
    /// Send to a console; dropped if it is gone.
    Console(ConnId, Frame),
    /// Look a program up in the program path; `ProgramFound` with that number follows.
    FindProgram {
        /// Names the answer.
        question: u64,
        /// What the user wrote.
        program: String,
        /// The working directory to resolve a relative path in.
        dir: Option<String>,
    },
    /// Start a process; `Launched` or `LaunchFailed` follows.
    Launch(Box<LaunchSpec>),
    /// Watch the process of a task that was not launched here (enrolled from a shell).
    Adopt(Tid, u32),
    /// Send a signal to a task's process (group).
    Signal(Tid, i32),
    /// Bytes for the standard input of a task; empty: end of file.
    StandardInput(Tid, Vec<u8>),
    /// The size of a task's terminal changed.
    Resize(Tid, WindowSize),
    /// The standard input of this task is fed by that console: while the task does not read it, do
    /// not read the console. Ends with either of the two.
    Attach(ConnId, Tid),
    /// Open a connection to that address, which is known there by the ticket, for the image of a
    /// task. With pre-copy, have the task write most of it while it runs: `Copied` follows, or
    /// `Frozen` with the reason why not.
    Copy {
        /// The task.
        tid: Tid,
        /// `address:port` of the target's daemon.
        addr: String,
        /// What the target's daemon knows the connection by.
        ticket: u64,
        /// How.
        way: MoveWay,
        /// Where files are at the target, if elsewhere.
        folders: Option<Folders>,
    },
    /// Open a way into the store for the image of a task; when it is whole there, `Stored` follows.
    Store {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Of that.
        generation: u32,
        /// Of the cut.
        epoch: u32,
        /// Who writes it.
        by: SavedBy,
        /// If hosts have stores of their own, the name of that which gets a copy, if any does; what it
        /// does not have is no base.
        second: Option<String>,
        /// It is stored in full, whatever is there.
        full: bool,
        /// Its file is compressed.
        compress: bool,
    },
    /// Open a way into the store for the image of a task that is to be suspended alone; when it is whole
    /// there, `Suspended` with that number follows.
    Suspend {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// What its image is called.
        name: String,
        /// Names the answer.
        number: u64,
    },
    /// Send the image of a task that is suspended to that address, under that ticket; `PartSent` follows.
    SendSuspended {
        /// What the other host, perhaps this one, knows the connection by.
        ticket: u64,
        /// `address:port` of its daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// The image.
        image: Part,
    },
    /// The image of that name is of no use any more: of a task that is suspended no more.
    DropSuspended {
        /// The application.
        app: Tid,
        /// What it is called.
        name: String,
    },
    /// The application of that task goes on: store what the copy of it writes.
    StoreCopy(Tid),
    /// Commit a checkpoint, all of whose parts are in the store; `Committed` follows.
    Commit(Box<Checkpoint>),
    /// What is in the store of that checkpoint is of no use.
    Drop {
        /// The application.
        app: Tid,
        /// Of that.
        generation: u32,
        /// Of the cut.
        epoch: u32,
    },
    /// Read what a checkpoint in the store holds: that one, or the last that is whole; `Loaded` with
    /// that number follows.
    Load {
        /// Names the answer.
        question: u64,
        /// The application.
        app: Tid,
        /// Generation and epoch.
        from: Option<CheckpointId>,
        /// To find the last that is whole all of it is read, not only looked at.
        verify: bool,
    },
    /// Bring a task back from its image in the store, and let it stand; `Arrived` follows.
    Restore {
        /// The task.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// From which checkpoint of it: generation and epoch.
        from: CheckpointId,
        /// The image.
        image: Part,
        /// Files that it writes are used as they are, and not rolled back.
        keep_files: bool,
        /// Where files are here, if elsewhere than where it was saved.
        folders: Option<Folders>,
    },
    /// Who connects with this ticket brings the file of a part of a checkpoint: write it into the store;
    /// `CopyTaken` follows.
    ExpectCopy {
        /// What the connection is known by.
        ticket: u64,
        /// The task whose image it is.
        tid: Tid,
        /// Its application.
        app: Tid,
        /// Of which checkpoint of it: generation and epoch.
        from: CheckpointId,
        /// The part.
        part: Part,
    },
    /// What that ticket was to bring is of no use any more: remove what came of it.
    CancelPart(u64),
    /// Send a part that is in the store to that address, under that ticket; `PartSent` follows.
    SendPart {
        /// What the other host knows the connection by.
        ticket: u64,
        /// `address:port` of its daemon.
        addr: String,
        /// The application.
        app: Tid,
        /// Of which checkpoint of it: generation and epoch.
        from: CheckpointId,
        /// The part.
        part: Part,
        /// The bytes of its file; else what it holds, verified.
        file: bool,
    },
    /// Look which checkpoints of an application are in the store; `Stocked` with that number follows.
    Stock {
        /// Names the answer.
        question: u64,
        /// The application.
        app: Tid,
        /// Only this one: generation and epoch.
        from: Option<CheckpointId>,
        /// All of it is read, not only looked at.
        verify: bool,
    },
    /// Remove all checkpoints of an application from the store.
    ForgetStored(Tid),
    /// Have that task, which does not stop wherever it is, come to where it does and stand there; `Held`
    /// follows. `Freeze` or `CancelCopy` is the end of it.
    Hold(Tid),
    /// Have that task stop and write the rest; `Frozen` follows.
    Freeze(Tid, MoveWay),
    /// What `Copy` has begun, or what a copy of the task writes, is of no use any more; it runs on.
    CancelCopy(Tid),
    /// A frozen task goes on, here.
    Resume {
        /// The task.
        tid: Tid,
        /// Of its application.
        generation: u32,
        /// A copy of it writes its image still; else that is of no use.
        writes: bool,
    },
    /// Who connects with this ticket brings the image of that task: bring it back, and let it stand;
    /// `Arrived` follows.
    Expect {
        /// The task.
        tid: Tid,
        /// What the connection is known by.
        ticket: u64,
        /// Files that it writes are rolled back to what they were.
        roll_back: bool,
        /// Where files are here, if elsewhere than where it was saved, and its image does not say so.
        folders: Option<Folders>,
    },
    /// A task that arrived goes on: it is this host's.
    Begin {
        /// The task.
        tid: Tid,
        /// Its incarnation here.
        incarnation: u32,
        /// Of its application.
        generation: u32,
        /// Whether what it writes goes on as it is, and not line by line: a master with a console.
        raw: bool,
    },
    /// The process of a task that is another host's, or never becomes this one's: deliver what it
    /// has written, end it, and say nothing of its end.
    Discard(Tid),
    /// Start the process of a coordinator, which is heard under that number.
    StartCoordinator {
        /// Never given before.
        number: u64,
        /// Whose.
        app: Tid,
    },
    /// Send to the process of a coordinator; dropped if it is gone.
    Coordinator(u64, Frame),
    /// Close the socket of a coordinator, end its process, and say nothing of it.
    EndCoordinator(u64),
    /// Stop reading the output of a task, so that it waits when its pipe is full.
    PauseOutput(Tid),
    /// Read it again.
    ResumeOutput(Tid),
    /// Output of a task that has no console: write it to the log.
    LogOutput(Tid, u8, Vec<u8>),
    /// Look up what the living tasks here use.
    MeasureUsage(u64),
    /// The lease ends then: arm the timer that kills this daemon. `None`: this host is alone and needs
    /// no lease: disarm it.
    Lease(Option<Time>),
    /// Tell the user.
    Note(String),
    /// Write out what waits for consoles, end all tasks, close everything, exit. `Ok` for an orderly end.
    End(Result<String, String>),
}

/// An image that a task has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Of all of it.
    pub bytes: u64,
    /// How long it took since all threads of the task stood.
    pub time: Duration,
    /// Chunks that it had sent and that were not acknowledged.
    pub unacknowledged: u32,
}

/// Outputs, in the order in which they are to be carried out.
pub type Outbox = VecDeque<Output>;
