//! Frames between two daemons.
//!
//! A link begins with a handshake that proves the machine's secret (in `vmd`), then [`Hello`] from
//! both ends. Two kinds of traffic follow. *Unreliable*: raft, leases and the feed of the log, each
//! with a repetition of its own. *Reliable*: orders and their results travel as [`Op::Data`]
//! between the two daemons' own tids, through the same channels as the messages of tasks. So they
//! arrive exactly once and in order, however often the link breaks. The payload of such a message
//! is one byte, the opcode, and the MessagePack body (see [`Order`]).

mod directs;
mod kept;
mod moves;
mod raft;

use crate::{
    agreed::{Change, HostFacts, SnapshotAt},
    checkpoint::{
        CheckpointAsk, CheckpointEnd, CommitAsk, Committed, CutAsk, CutClose, CutClosed, CutGo,
        CutGone, CutLost, CutMade, CutPrepare, CutPrepared, KeptSaved, PartSaved, PartStands,
    },
    codec::{Body, CodecError, decode, encode, message},
    failure::Failed,
    frame::Op,
    id::{HostId, MachineId, Tid},
    stores::{
        CommitHere, CopyAsk, CopyEnd, ForgetStored, ManifestAsk, ManifestEnd, PartAsk, PartLost,
        Stock, StockAsk,
    },
    version::Offer,
};
pub use directs::{DirectAsk, DirectClosed, DirectEnd, DirectEnds, DirectReady};
pub use kept::{KeepOrder, Kept};
pub use moves::{
    Belongings, DrainReport, MoveAbort, MoveAsk, MoveCancel, MoveEnd, MoveLoaded, MoveOffer,
    MoveOrder, MovePhase, MoveProgress, MoveReady, MoveRelease, MoveReport, MoveReported, MoveSent,
    MoveState, MoveWay, Sent,
};
pub use raft::{EntryContent, LogEntry, LogPosition, LogSnapshot, Raft, RaftMessage};
use serde::{Deserialize, Serialize};

message! {
    Hello Join Joined Refused Raft Propose FeedAsk Feed Snapshot Alive Grant
    SpawnOrder SpawnResult SignalOrder LastAsk Last OutputLines RunHold KeepOrder UsageAsk Usage Kept
    FlushAsk Flushed MoveAsk MoveEnd MoveOffer MoveReady MoveLoaded MoveRelease MoveAbort
    MoveOrder MoveCancel MoveReported MoveProgress MoveSent
    DrainAsk DrainEnd CheckAsk CheckEnd TaskAnswer LinksDown
    DirectAsk DirectReady DirectClosed
}

/// The first frame of both ends of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the sender speaks.
    pub offer: Offer,
    /// The machine; `None` for a daemon that has not joined yet.
    pub machine: Option<MachineId>,
    /// The sender's host number; [`HostId::NONE`] before it joined.
    pub host: HostId,
    /// Name of the sender's host.
    pub name: String,
}

/// Request to join the machine. The reply is [`Joined`] or [`Refused`]. Repeated until the reply
/// comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// Random number of the daemon's start: a repeated request yields one host.
    pub nonce: u64,
    /// Facts about the new host.
    pub facts: HostFacts,
}

/// Reply to [`Join`], once the log has the new host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The number of the new host.
    pub host: HostId,
    /// The agreed state at or after its join.
    pub snapshot: SnapshotAt,
}

/// Reply to a [`Join`] that failed for good, or to a bad [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Reason of the refusal.
    pub why: Failed,
}

/// Changes that a daemon proposes for the log; to the leader, or to any voter, which passes them
/// on. Repeated until applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Propose {
    /// As in [`crate::agreed::Entry`].
    pub proposer: HostId,
    /// As in [`crate::agreed::Entry`].
    pub number: u64,
    /// The proposed changes.
    pub changes: Vec<Change>,
}

/// Request of a follower for all entries after `after`, existing and future ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedAsk {
    /// Index of the last entry that the requester has applied.
    pub after: u64,
}

/// Committed entries, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    /// Index of the first one.
    pub first: u64,
    /// Encoded [`crate::agreed::Entry`]; empty where raft has an entry of its own.
    pub entries: Vec<Body>,
    /// The current voters, to which the next request may go.
    pub voters: Vec<HostId>,
}

/// The agreed state, for a follower whose position in the log was compacted away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The agreed state.
    pub snapshot: SnapshotAt,
}

/// A beat: requests the lease from the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Goes up with each beat; the sender notes the time of each number.
    pub number: u64,
    /// The last entry that the sender has applied.
    pub applied: u64,
}

/// Reply to [`Alive`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The beat that a majority has confirmed: the lease runs from the time when it was sent. 0: no
    /// lease is granted, and the reply only names the leader.
    pub number: u64,
    /// The leader as far as known, or [`HostId::NONE`].
    pub leader: HostId,
    /// The voters as far as known.
    pub voters: Vec<HostId>,
}

/// Start tasks on the receiver's host. Carried out once per `(requester, request)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// The requesting task, or the daemon of the requesting console.
    pub requester: Tid,
    /// The requester's number of the request.
    pub request: u64,
    /// The application, or [`Tid::NONE`]: each is a master of its own.
    pub app: Tid,
    /// Generation of the application at the time of the request.
    pub generation: u32,
    /// The ordered tasks of the request: first index and count, one pair for each stretch without a
    /// gap, ascending.
    pub runs: Vec<(u32, u32)>,
    /// Number of tasks of the whole request, on all hosts.
    pub siblings: u32,
    /// The host whose daemon serves the console of the application, or [`HostId::NONE`].
    pub console: HostId,
    /// As in [`crate::task::Spawn`].
    pub program: String,
    /// As in [`crate::task::Spawn`].
    pub args: Vec<String>,
    /// As in [`crate::task::Spawn`].
    pub env: Vec<(String, String)>,
    /// As in [`crate::task::Spawn`].
    pub dir: Option<String>,
}

/// Reply to [`SpawnOrder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnResult {
    /// As in the order.
    pub requester: Tid,
    /// As in the order.
    pub request: u64,
    /// As in the order.
    pub generation: u32,
    /// The started tasks, each with its index.
    pub tids: Vec<(u32, Tid)>,
    /// Why the other ordered tasks were not started.
    pub failed: Option<Failed>,
}

/// Send a signal to a task of the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalOrder {
    /// The task that gets the signal.
    pub tid: Tid,
    /// Number of the signal.
    pub signal: i32,
}

/// To the daemon where `ended` ended: request the number of the last chunk that it sent to
/// `watcher`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAsk {
    /// The ended task.
    pub ended: Tid,
    /// The task that watches it.
    pub watcher: Tid,
}

/// Reply to [`LastAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// As in the request.
    pub ended: Tid,
    /// As in the request.
    pub watcher: Tid,
    /// Number of the chunk. 0: there is none. `None`: the task did not leave in order, or is
    /// forgotten.
    pub last: Option<u64>,
}

/// Output of a task, for the host where its application's console is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLines {
    /// The task that wrote the bytes.
    pub tid: Tid,
    /// 1: standard output, 2: standard error.
    pub stream: u8,
    /// Whole lines, or a line cut at its limit; of a master, its raw output.
    pub bytes: Body,
    /// Bytes that were dropped before these because the queue was full.
    pub dropped: u64,
}

/// From the host of a console to the host of its master: whether the console does not read, so that
/// the master's output is not read either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHold {
    /// The master of the run.
    pub tid: Tid,
    /// `true`: stop reading the master's output; `false`: continue.
    pub hold: bool,
}

/// Request for a confirmation ([`Flushed`]) that output is complete. After the end of a run: the
/// receiver replies when all output of the application's tasks that ended on its host was sent.
/// Before the release of a master: the receiver has the master's console, and replies at once,
/// because the master's output came before this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushAsk {
    /// The application.
    pub app: Tid,
    /// Number of the move ([`MoveOffer::number`]); 0: the run ends.
    pub number: u64,
}

/// Reply to [`FlushAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// As in the request.
    pub app: Tid,
    /// As in the request.
    pub number: u64,
}

/// Request for the usage of all tasks on a host. The reply is [`Usage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageAsk {
    /// Number chosen by the requester; the reply bears it.
    pub question: u64,
}

/// Reply to [`UsageAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// As in the request.
    pub question: u64,
    /// One row per living task.
    pub rows: Vec<UsageRow>,
}

/// Processor time, memory and state of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Id of the task.
    pub tid: Tid,
    /// Id of its process.
    pub pid: u32,
    /// User and system time. Milliseconds.
    pub cpu_ms: u64,
    /// Resident memory. Bytes.
    pub memory: u64,
    /// One letter as in `ps`: R, S, D, T, Z.
    pub state: char,
}

/// Drain the receiver's host. The reply is [`DrainEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainAsk {
    /// Number chosen by the requester; the reply bears it.
    pub request: u64,
    /// Steps beside moving the tasks.
    pub way: DrainWay,
}

/// Steps of a drain beside moving the tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWay {
    /// Save each application with a task on the host first; if one cannot be saved, nothing is
    /// begun.
    pub checkpoint: bool,
    /// Suspend the application of a task that cannot leave, and resume it when there is room.
    pub suspend: bool,
}

/// Reply to [`DrainAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnd {
    /// As in the request.
    pub request: u64,
    /// The report, or why nothing was drained.
    pub result: Result<DrainReport, Failed>,
}

/// To the owner of a task: request the reasons against moving it. The reply is [`CheckEnd`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAsk {
    /// Number chosen by the requester; the reply bears it.
    pub request: u64,
    /// The task to check.
    pub tid: Tid,
}

/// Reply to [`CheckAsk`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckEnd {
    /// As in the request.
    pub request: u64,
    /// Each reason why the task cannot be moved, none if it can; or why that is not known.
    pub result: Result<Vec<String>, Failed>,
}

/// The reply to a request of a task that has moved since, sent to the task's new owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAnswer {
    /// The task that made the request.
    pub tid: Tid,
    /// Its incarnation on the new owner, as far as the sender knows.
    pub incarnation: u32,
    /// Generation of its application at the time of the request: in the next one the task may use
    /// the same number.
    pub generation: u32,
    /// Number of the request.
    pub request: u64,
    /// The reply, a whole frame.
    pub answer: Body,
}

/// To all hosts: the hosts that one host could not link to for longer than
/// [`crate::limits::LINK_DOWN`]. Replaces the former report of that host. The hosts in the report
/// receive it from another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinksDown {
    /// The reporting host.
    pub of: HostId,
    /// Goes up with each report of that host.
    pub number: u64,
    /// The hosts that the reporting host cannot link to.
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
    DirectAsk(DirectAsk),
    DirectReady(DirectReady),
    DirectClosed(DirectClosed),
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

            /// Decodes what [`Order::to_payload`] encoded.
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
LinksDown CutPrepare CutPrepared DirectAsk DirectReady DirectClosed }
