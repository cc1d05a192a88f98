//! The cells of the matrix: the faults, and the outcomes that must follow.

use At::{Source, SpawnRequester, Target};
use Deed::{
    AskAnew, AskElsewhere, AskTwice, AskedAtTarget, CallerMoves, ConsoleKilled, DiskFull,
    LeaderKilled, LinkCut, MemoryFull, None, SourceCutOff, TargetCutOff,
};
use Then::{Ends, EndsOrMoves, Moves, Stays, StaysOrEnds, StaysOrMoves};

/// The host on which a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The host where the move was requested, with the application's coordinator.
    SpawnRequester,
    Source,
    Target,
}

/// The outcome for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The task runs on at the source.
    Stays,
    /// The task runs at the target.
    Moves,
    /// The task has ended: its owner was lost, or its process was killed.
    Ends,
    /// The task's process was killed when its image was whole: the task has ended, or runs at the
    /// target if the target was quicker than the report of the end.
    EndsOrMoves,
    /// The log decides, because both changes were proposed.
    StaysOrMoves,
    /// The process at the target was killed when it was frozen and ready: the task runs on at the
    /// source, or has ended if the log was quicker.
    StaysOrEnds,
}

/// A second event, once the fault has struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    None,
    /// Before the fault: the move is requested at the target's daemon.
    AskedAtTarget,
    /// The console that requested the move gets SIGKILL.
    ConsoleKilled,
    /// Another console requests the same move.
    AskTwice,
    /// Another console requests a move to another host.
    AskElsewhere,
    /// The caller moves, too.
    CallerMoves,
    /// After the move was aborted, it is requested again.
    AskAnew,
    /// The leader, which is neither source nor target nor requester, gets SIGKILL.
    LeaderKilled,
    /// The cable of the source is cut.
    SourceCutOff,
    /// The cable of the target is cut.
    TargetCutOff,
    /// All packets between source and target are dropped, both ways.
    LinkCut,
    /// Before the fault: the target's processes get less memory than the task needs.
    MemoryFull,
    /// Before the fault: the disk with the target's folder and log is full.
    DiskFull,
}

/// A fault by host, point and action: see `vmd/src/fault.rs`.
pub type Fault = (At, &'static str, &'static str);

/// A fault, and the outcome that must follow.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub fault: Fault,
    /// A second fault, at another host.
    pub also: Option<Fault>,
    pub deed: Deed,
    pub then: Then,
    /// Words that the console's reply contains.
    pub told: &'static str,
}

const fn cell(at: At, point: &'static str, action: &'static str, then: Then) -> Cell {
    Cell {
        fault: (at, point, action),
        also: Option::None,
        deed: None,
        then,
        told: "",
    }
}

impl Cell {
    const fn told(self, told: &'static str) -> Cell {
        Cell { told, ..self }
    }

    const fn with(self, deed: Deed) -> Cell {
        Cell { deed, ..self }
    }

    const fn and(self, at: At, point: &'static str, action: &'static str) -> Cell {
        let also = Some((at, point, action));
        Cell { also, ..self }
    }

    /// The fault as text for people.
    pub fn shown(&self) -> String {
        let mut shown = self.fault.2.to_owned();
        if let Some((at, point, action)) = self.also {
            shown = format!("{shown}; {at:?} {point} {action}");
        }
        match self.deed {
            None => shown,
            deed => format!("{shown}; {deed:?}"),
        }
    }

    /// Whether the cell needs hosts in network namespaces.
    pub fn takes_network(&self) -> bool {
        matches!(self.deed, SourceCutOff | TargetCutOff | LinkCut)
    }
}

/// All cells, by phase, followed by the other cells.
pub const MATRIX: [Cell; 91] = [
    // Initialisation: the offer and its reply.
    cell(Source, "send.MoveOffer", "kill", Ends),
    cell(Source, "send.MoveOffer", "cut", Moves),
    cell(Source, "send.MoveOffer", "delay-700", Moves),
    cell(Target, "receive.MoveOffer", "kill", Stays).told("'n3' was lost"),
    cell(Target, "send.MoveReady", "stop", Stays).told("'n3' was lost"),
    cell(Target, "send.MoveReady", "delay-700", Moves),
    cell(Target, "send.MoveReady", "delay-6000", Stays).told("initialisation took too long"),
    cell(Target, "send.MoveReady", "delay-6000", Stays).and(
        SpawnRequester,
        "send.MoveCancel",
        "delay-500",
    ),
    cell(SpawnRequester, "send.MoveOrder", "delay-700", Moves),
    cell(Source, "send.MoveReported", "delay-700", Moves),
    cell(Target, "send.MoveAsk", "delay-700", Moves).with(AskedAtTarget),
    cell(SpawnRequester, "send.MoveProgress", "delay-700", Moves).with(AskedAtTarget),
    cell(SpawnRequester, "coordinator.initialisation", "end", Moves),
    cell(SpawnRequester, "coordinator.initialisation", "hold", Moves),
    cell(Source, "send.MoveOffer", "delay-700", Moves).with(LeaderKilled),
    // Copying, while the task runs.
    cell(Source, "order.copy", "kill", Ends),
    cell(Source, "order.copy", "task", Ends),
    cell(Source, "sender", "kill", Stays),
    cell(Source, "sender", "stop", Stays).told("the process that sends its image hangs"),
    cell(Source, "sender", "reset", Stays),
    cell(Source, "sender", "delay-4000", Moves),
    cell(Target, "receiver", "kill", Stays),
    cell(Target, "receiver", "stop", Stays).told("the process that receives its image hangs"),
    cell(Target, "receiver", "reset", Stays),
    cell(Target, "receiver", "delay-4000", Moves),
    cell(Target, "receiver", "break", Stays).told("'n3' could not restore it"),
    cell(Target, "restorer", "kill", Stays).told("'n3' could not restore it"),
    cell(Target, "restorer", "stop", Stays).told("the process that was to become it hangs"),
    cell(Target, "restorer", "delay-4000", Moves),
    cell(Source, "report.copied", "kill", Ends),
    cell(SpawnRequester, "coordinator.copying", "end", Moves),
    cell(SpawnRequester, "coordinator.copying", "hold", Moves),
    cell(Source, "sender", "delay-700", Moves).with(LeaderKilled),
    cell(Source, "sender", "delay-1500", Ends).with(SourceCutOff),
    cell(Source, "sender", "delay-1500", Stays)
        .with(TargetCutOff)
        .told("'n3' was lost"),
    cell(Source, "sender", "delay-1500", Stays).with(LinkCut),
    // Interruption, draining, saving.
    cell(Source, "order.freeze", "kill", Ends),
    cell(Source, "order.freeze", "stop", Ends),
    cell(Source, "order.freeze", "task", Ends),
    cell(Source, "order.freeze", "cut", Moves),
    cell(Source, "report.saved", "kill", Ends),
    cell(Source, "report.saved", "stop", Ends),
    cell(Source, "report.saved", "task", EndsOrMoves),
    cell(SpawnRequester, "coordinator.interruption", "end", Moves),
    cell(SpawnRequester, "coordinator.interruption", "hold", Moves),
    cell(SpawnRequester, "coordinator.saving", "end", Moves),
    cell(SpawnRequester, "coordinator.saving", "hold", Moves),
    // The target restores the image.
    cell(Target, "report.back", "kill", Stays),
    cell(Target, "report.back", "stop", Stays),
    cell(Target, "report.back", "cut", Moves),
    cell(Target, "report.back", "task", StaysOrEnds),
    cell(Target, "send.MoveLoaded", "kill", Stays),
    cell(Target, "send.MoveLoaded", "cut", Moves),
    cell(Target, "send.MoveLoaded", "delay-700", Moves),
    cell(Target, "send.MoveLoaded", "delay-1500", Stays)
        .with(LinkCut)
        .told("host 'n2' cannot reach host 'n3'"),
    // Resumption: the release and the commit.
    cell(Source, "send.MoveRelease", "kill", Ends),
    cell(Source, "send.MoveRelease", "stop", Ends),
    cell(Source, "send.MoveRelease", "cut", Moves),
    cell(Source, "send.MoveRelease", "delay-300", Moves),
    cell(Source, "send.MoveRelease", "delay-300", StaysOrMoves).with(LeaderKilled),
    cell(Source, "send.MoveRelease", "delay-1500", Ends).with(SourceCutOff),
    cell(Source, "send.MoveRelease", "delay-1500", Stays).with(TargetCutOff),
    cell(Source, "send.MoveRelease", "delay-1500", Stays).with(LinkCut),
    cell(Target, "receive.MoveRelease", "kill", Stays),
    cell(Target, "receive.MoveRelease", "stop", Stays),
    cell(Target, "receive.MoveRelease", "note", Moves).with(SourceCutOff),
    cell(Target, "begin", "kill", Ends),
    cell(Source, "discard", "kill", Moves),
    cell(Source, "send.MoveEnd", "delay-700", Moves),
    cell(SpawnRequester, "coordinator.resumption", "end", Moves),
    cell(SpawnRequester, "coordinator.resumption", "hold", Moves),
    // The move is aborted, and requested once more.
    cell(Target, "send.MoveReady", "delay-6000", Moves).with(AskAnew),
    cell(Target, "send.MoveReady", "delay-6000", Moves)
        .and(Source, "send.MoveAbort", "delay-700")
        .with(AskAnew),
    cell(Source, "sender", "kill", Moves).with(AskAnew),
    cell(Target, "restorer", "kill", Moves).with(AskAnew),
    cell(Target, "restorer", "kill", Moves)
        .and(Source, "send.MoveAbort", "delay-700")
        .with(AskAnew),
    // A second request arrives during the move.
    cell(Source, "send.MoveOffer", "delay-700", Moves).with(ConsoleKilled),
    cell(Source, "sender", "delay-700", Moves).with(ConsoleKilled),
    cell(Target, "send.MoveLoaded", "delay-700", Moves).with(ConsoleKilled),
    cell(Source, "send.MoveOffer", "delay-700", Moves).with(AskTwice),
    cell(Target, "send.MoveLoaded", "delay-700", Moves).with(AskTwice),
    cell(Source, "send.MoveOffer", "delay-700", Moves).with(AskElsewhere),
    cell(Target, "send.MoveLoaded", "delay-700", Moves).with(AskElsewhere),
    cell(Source, "send.MoveOffer", "delay-700", Moves).with(CallerMoves),
    cell(Source, "sender", "delay-700", Moves).with(CallerMoves),
    cell(Target, "send.MoveLoaded", "delay-700", Moves).with(CallerMoves),
    cell(Source, "send.MoveRelease", "delay-300", Moves).with(ConsoleKilled),
    cell(Source, "send.MoveRelease", "delay-700", StaysOrMoves).with(AskTwice),
    cell(Source, "send.MoveRelease", "delay-300", Moves).with(CallerMoves),
    // The target lacks memory or space on its disk.
    cell(Target, "restorer", "note", Stays)
        .with(MemoryFull)
        .told("'n3' could not restore it"),
    cell(Target, "restorer", "note", Moves).with(DiskFull),
];
