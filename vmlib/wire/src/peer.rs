//! What two daemons say to each other.
//!
//! A link begins with a handshake that proves the machine's secret (in `vmd`), then [`Hello`] from
//! both ends. Two kinds of traffic follow. *Unreliable*: raft, leases, the feed of the log: each has
//! its own repetition. *Reliable*: orders and their results travel as [`Op::Data`] between the two
//! daemons' own tids, through the same channels as the messages of tasks, so that they arrive
//! exactly once and in order however often the link breaks. The payload of such a message is one
//! byte, the opcode, and the MessagePack body (see [`Order`]).

mod moves;

use crate::{
    agreed::{Change, HostFacts, SnapshotAt},
    checkpoint::{
        CheckpointAsk, CheckpointEnd, CommitAsk, Committed, CutAsk, CutClose, CutClosed, CutGo,
        CutGone, CutLost, CutMade, CutPrepare, CutPrepared, KeptSaved, PartSaved, PartStands,
    },
    codec::{Body, CodecError, Message, decode, encode},
    frame::Op,
    id::{HostId, MachineId, Tid},
    stores::{
        CommitHere, CopyAsk, CopyEnd, ForgetStored, ManifestAsk, ManifestEnd, PartAsk, PartLost,
        Stock, StockAsk,
    },
    task::{Failed, message},
    version::Offer,
};
pub use moves::{
    Belongings, MoveAbort, MoveAsk, MoveCancel, MoveEnd, MoveLoaded, MoveOffer, MoveOrder,
    MovePhase, MoveProgress, MoveReady, MoveRelease, MoveReport, MoveReported, MoveSent, MoveState,
    MoveWay, Sent,
};
use serde::{Deserialize, Serialize};

message! {
    Hello Join Joined Refused Raft Propose FeedAsk Feed Snapshot Alive Grant
    SpawnOrder SpawnResult SignalOrder LastAsk Last OutputLines RunHold KeepOrder UsageAsk Usage Kept
    FlushAsk Flushed MoveAsk MoveEnd MoveOffer MoveReady MoveLoaded MoveRelease MoveAbort
    MoveOrder MoveCancel MoveReported MoveProgress MoveSent
    DrainAsk DrainEnd CheckAsk CheckEnd TaskAnswer LinksDown
}

/// The first frame of both ends of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions spoken.
    pub offer: Offer,
    /// The machine; `None` for a daemon that has not joined yet.
    pub machine: Option<MachineId>,
    /// The sender's host number; [`HostId::NONE`] before it joined.
    pub host: HostId,
    /// The sender's name.
    pub name: String,
}

/// "Let me in"; answered with [`Joined`] or [`Refused`]. Asked again until answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Drawn at the daemon's start; makes asking twice one host.
    pub nonce: u64,
    /// What it says of itself.
    pub facts: HostFacts,
}

/// The answer to [`Join`], once the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The number of the new host.
    pub host: HostId,
    /// The state at or after its join.
    pub snapshot: SnapshotAt,
}

/// The answer to [`Join`] that failed for good, or to a bad [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub why: Failed,
}

/// A message of raft, as raft encodes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raft {
    /// Protobuf.
    pub message: Body,
}

/// Changes that a daemon wants in the log; to the leader, or to any voter, which passes them on.
/// Proposed again until applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Propose {
    /// See [`crate::agreed::Entry`].
    pub proposer: HostId,
    /// See [`crate::agreed::Entry`].
    pub number: u64,
    /// The changes.
    pub changes: Vec<Change>,
}

/// "My log has reached `after`: send me what follows, now and as it comes."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedAsk {
    /// Index of the last entry that the asker has applied.
    pub after: u64,
}

/// Committed entries, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    /// Index of the first one.
    pub first: u64,
    /// Encoded [`crate::agreed::Entry`]; empty where raft has an entry of its own.
    pub entries: Vec<Body>,
    /// The voters now, for the next question.
    pub voters: Vec<HostId>,
}

/// The state, for a follower whose place in the log was compacted away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The state.
    pub snapshot: SnapshotAt,
}

/// "I am alive": asks the leader for the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Goes up with each beat; the sender knows when it sent which.
    pub number: u64,
    /// The last entry that the sender has applied.
    pub applied: u64,
}

/// The answer to [`Alive`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The beat to which a majority has agreed: the lease runs from when it was sent. 0: nothing
    /// is granted, the receiver is only told who leads.
    pub number: u64,
    /// The leader as far as known, or [`HostId::NONE`].
    pub leader: HostId,
    /// The voters as far as known.
    pub voters: Vec<HostId>,
}

/// Start tasks on the receiver's host. Carried out once per `(asker, request)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// The task that asked, or the daemon that a console asked.
    pub asker: Tid,
    /// Its request number.
    pub request: u64,
    /// The application, or [`Tid::NONE`]: each is a master of its own.
    pub app: Tid,
    /// Its generation when the task asked.
    pub generation: u32,
    /// Which of the tasks of the request: index of the first and how many, one entry for each
    /// stretch without a gap, rising.
    pub runs: Vec<(u32, u32)>,
    /// How many tasks the whole request asks for, on all hosts: how many siblings to expect.
    pub siblings: u32,
    /// The host whose daemon serves the console of the application, or [`HostId::NONE`].
    pub console: HostId,
    /// See [`crate::task::Spawn`].
    pub program: String,
    /// See [`crate::task::Spawn`].
    pub args: Vec<String>,
    /// See [`crate::task::Spawn`].
    pub env: Vec<(String, String)>,
    /// See [`crate::task::Spawn`].
    pub dir: Option<String>,
}

/// The answer to [`SpawnOrder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnResult {
    /// As in the order.
    pub asker: Tid,
    /// As in the order.
    pub request: u64,
    /// As in the order.
    pub generation: u32,
    /// The tasks with their index.
    pub tids: Vec<(u32, Tid)>,
    /// Why those that were ordered and are not among the tasks do not exist.
    pub failed: Option<Failed>,
}

/// Send a signal to a task of the receiver's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalOrder {
    /// The task.
    pub tid: Tid,
    /// The signal's number.
    pub signal: i32,
}

/// "What was the last chunk that `ended` sent to `watcher`?" To the daemon where `ended` was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAsk {
    /// The task that ended.
    pub ended: Tid,
    /// The one that watches it.
    pub watcher: Tid,
}

/// The answer to [`LastAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// As asked.
    pub ended: Tid,
    /// As asked.
    pub watcher: Tid,
    /// 0: it sent none. `None`: it did not leave in order, or is forgotten.
    pub last: Option<u64>,
}

/// Output of a task, for the host where its application's console is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLines {
    /// The task.
    pub tid: Tid,
    /// 1: standard output, 2: standard error.
    pub stream: u8,
    /// Whole lines, or a line cut at its limit; of a master, as it wrote them.
    pub bytes: Body,
    /// Bytes that were dropped before these because the way was full.
    pub dropped: u64,
}

/// From the host of a console to that of its master: whether the console does not read, so that what the
/// master writes is not read either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHold {
    /// The master.
    pub tid: Tid,
    /// Whether it is to wait.
    pub hold: bool,
}

/// The sender's host leaves: the receiver's daemon becomes the keeper of what an ended task sent to
/// a task of the receiver's. The chunks follow, each in a [`Kept`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepOrder {
    /// The task that ended.
    pub from: Tid,
    /// The task that will receive.
    pub to: Tid,
    /// Number of the last chunk.
    pub last: u64,
}

/// One retained chunk of an ended task, handed over after its [`KeepOrder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The whole data frame, header and payload, as it travels on a socket.
    pub frame: Body,
}

/// Say so ([`Flushed`]): the master of a run on the sender's console has ended, when all output of those
/// tasks of the application that ended on the receiver's host was sent; or the master moves, and its
/// console is the receiver's: at once, as what it wrote came before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushAsk {
    /// The application.
    pub app: Tid,
    /// Of the move ([`MoveOffer::number`]); 0: the run ends.
    pub number: u64,
}

/// The answer to [`FlushAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// As asked.
    pub app: Tid,
    /// As asked.
    pub number: u64,
}

/// Ask what the tasks on a host use; answered with [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageAsk {
    /// Chosen by the asker.
    pub question: u64,
}

/// The answer to [`UsageAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// As asked.
    pub question: u64,
    /// One row per living task.
    pub rows: Vec<UsageRow>,
}

/// What one task uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// The task.
    pub tid: Tid,
    /// Its process.
    pub pid: u32,
    /// User and system time. Milliseconds.
    pub cpu_ms: u64,
    /// Resident memory. Bytes.
    pub memory: u64,
    /// One letter as in `ps`: R, S, D, T, Z.
    pub state: char,
}

/// To a host's daemon: have all tasks of your host leave. Answered with [`DrainEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainAsk {
    /// Chosen by the asker.
    pub request: u64,
    /// How.
    pub way: DrainWay,
}

/// What a drain does beside moving tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWay {
    /// Each application with a task there is saved first; if one cannot be, nothing is begun.
    pub checkpoint: bool,
    /// The application of a task that cannot leave is suspended, and resumed when there is room.
    pub suspend: bool,
}

/// What became of a drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnd {
    /// As asked.
    pub request: u64,
    /// How it went, or why there was none.
    pub result: Result<DrainReport, Failed>,
}

/// How a drain went: of every task that was on the host, where it is or why it stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// The host.
    pub host: HostId,
    /// From the first wish to the end of the last move. Microseconds.
    pub total_us: u64,
    /// How many left.
    pub moved_count: u32,
    /// How many are still there.
    pub refused_count: u32,
    /// How many applications were saved first.
    pub saved_count: u32,
    /// Those that left, at most [`crate::limits::DRAIN_NAMED_MAX`].
    pub moved: Vec<(Tid, MoveReport)>,
    /// Those that are still there, and why; at most as many.
    pub refused: Vec<(Tid, Failed)>,
    /// Applications that were suspended because a task of theirs could not leave; at most as many.
    pub suspended: Vec<Tid>,
}

/// To the owner of a task: what speaks against moving it? Answered with [`CheckEnd`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAsk {
    /// Chosen by the asker.
    pub request: u64,
    /// The task.
    pub tid: Tid,
}

/// The answer to [`CheckAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEnd {
    /// As asked.
    pub request: u64,
    /// Each reason why it cannot be moved, none if it can; or why that is not known.
    pub result: Result<Vec<String>, Failed>,
}

/// The answer to a request of a task that has moved since: to where the task is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAnswer {
    /// The task.
    pub tid: Tid,
    /// Its incarnation there, as far as the sender knows.
    pub incarnation: u32,
    /// The life of its application in which it asked: the next one may ask by the same number.
    pub generation: u32,
    /// The number of the request.
    pub request: u64,
    /// The answer, a whole frame.
    pub answer: Body,
}

/// To all: which hosts of the machine one of them cannot link to, for longer than
/// [`crate::limits::LINK_DOWN`]. It takes the place of what that one said before. Those that it cannot
/// link to hear it from another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinksDown {
    /// Who says so.
    pub of: HostId,
    /// Goes up with each time that it does.
    pub number: u64,
    /// Those hosts.
    pub hosts: Vec<HostId>,
}

/// A message between two daemons' own tids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each variant is the struct of its name.
pub enum Order {
    SpawnOrder(SpawnOrder),
    SpawnResult(SpawnResult),
    SignalOrder(SignalOrder),
    LastAsk(LastAsk),
    Last(Last),
    OutputLines(OutputLines),
    RunHold(RunHold),
    KeepOrder(KeepOrder),
    UsageAsk(UsageAsk),
    Usage(Usage),
    Kept(Kept),
    FlushAsk(FlushAsk),
    Flushed(Flushed),
    MoveAsk(MoveAsk),
    MoveEnd(MoveEnd),
    MoveOffer(MoveOffer),
    MoveReady(MoveReady),
    MoveLoaded(MoveLoaded),
    MoveRelease(MoveRelease),
    MoveAbort(MoveAbort),
    MoveOrder(MoveOrder),
    MoveCancel(MoveCancel),
    MoveReported(MoveReported),
    MoveProgress(MoveProgress),
    MoveSent(MoveSent),
    DrainAsk(DrainAsk),
    DrainEnd(DrainEnd),
    CheckAsk(CheckAsk),
    CheckEnd(CheckEnd),
    TaskAnswer(TaskAnswer),
    CheckpointAsk(CheckpointAsk),
    CheckpointEnd(CheckpointEnd),
    CutAsk(CutAsk),
    CutMade(CutMade),
    PartStands(PartStands),
    CutLost(CutLost),
    CutGo(CutGo),
    CutGone(CutGone),
    PartSaved(PartSaved),
    CommitAsk(CommitAsk),
    Committed(Committed),
    CutClose(CutClose),
    CutClosed(CutClosed),
    KeptSaved(KeptSaved),
    CopyAsk(CopyAsk),
    CopyEnd(CopyEnd),
    PartAsk(PartAsk),
    PartLost(PartLost),
    StockAsk(StockAsk),
    Stock(Stock),
    ManifestAsk(ManifestAsk),
    ManifestEnd(ManifestEnd),
    CommitHere(CommitHere),
    ForgetStored(ForgetStored),
    LinksDown(LinksDown),
    CutPrepare(CutPrepare),
    CutPrepared(CutPrepared),
}

macro_rules! orders {
    ($($name:ident)*) => {
        impl Order {
            /// Opcode and body, the payload of a message.
            pub fn to_payload(&self) -> Vec<u8> {
                match self { $(Order::$name(order) => {
                    let mut payload = vec![Op::$name as u8];
                    payload.extend_from_slice(&encode(order));
                    payload
                })* }
            }

            /// Reads what [`Order::to_payload`] made.
            ///
            /// # Errors
            /// [`CodecError`] when the payload is no order.
            pub fn from_payload(payload: &[u8]) -> Result<Self, CodecError> {
                let unknown = || CodecError { op: None, cause: "no such order".to_owned() };
                let (number, body) = payload.split_first().ok_or_else(unknown)?;
                match Op::from_number(*number) {
                    $(Some(Op::$name) => Ok(Order::$name(decode(body)?)),)*
                    _ => Err(unknown()),
                }
            }
        }
    };
}

orders! { SpawnOrder SpawnResult SignalOrder LastAsk Last OutputLines RunHold KeepOrder UsageAsk Usage Kept FlushAsk Flushed
MoveAsk MoveEnd MoveOffer MoveReady MoveLoaded MoveRelease MoveAbort MoveOrder MoveCancel MoveReported
MoveProgress MoveSent DrainAsk DrainEnd CheckAsk CheckEnd TaskAnswer
CheckpointAsk CheckpointEnd CutAsk CutMade PartStands CutLost CutGo CutGone PartSaved CommitAsk Committed CutClose CutClosed
KeptSaved
CopyAsk CopyEnd PartAsk PartLost StockAsk Stock ManifestAsk ManifestEnd CommitHere ForgetStored
LinksDown CutPrepare CutPrepared }
