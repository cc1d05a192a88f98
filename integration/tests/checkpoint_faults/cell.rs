//! The cells of the matrix: the faults, and the outcomes that must follow.

use At::{Home, Leader, Member};
use Deed::{
    ConsoleKilled, CopyKilled, Damaged, HomeCutOff, LeaderKilled, MemberCutOff, None, QuotaReached,
    StoreFull, TaskKilled,
};
use Then::{Back, Ended, NotSaved, Refused, RefusedOrEnded, Runs, Saved};
use Work::{Checkpoint, Recovery, Restart};

/// The host on which a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The founder, which leads, and where a checkpoint is requested. It has no task.
    Leader,
    /// The host of the caller, its console and the coordinator, where a restart is requested.
    Home,
    /// The host of the callee.
    Member,
}

/// The work that the fault interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The second checkpoint of an application is being made.
    Checkpoint,
    /// An application that was stopped with its second checkpoint is being restarted.
    Restart,
    /// The member is lost, and the application recovers.
    Recovery,
}

/// The outcome for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The checkpoint is made, and all tasks run on.
    Saved,
    /// The checkpoint is not made, the console gets the reason, and all tasks run on.
    NotSaved,
    /// The application recovers from its last committed checkpoint.
    Back,
    /// The callee is reported dead.
    Ended,
    /// The application is restarted.
    Runs,
    /// The restart fails, the console gets the reason, and the next restart succeeds.
    Refused,
    /// The callee was killed when it was frozen and ready. Either the restart is refused, or, if
    /// the log was quicker, the callee is reported dead.
    RefusedOrEnded,
}

/// A second event, once the fault has struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    None,
    /// The copy of the callee's process that writes its image gets SIGKILL.
    CopyKilled,
    /// The callee gets SIGKILL.
    TaskKilled,
    /// The console that sent the request gets SIGKILL.
    ConsoleKilled,
    /// The leader's daemon gets SIGKILL. The request goes to the daemon at home.
    LeaderKilled,
    /// The cable of the home is cut.
    HomeCutOff,
    /// The cable of the member is cut.
    MemberCutOff,
    /// Before the request, the disk with the store is filled.
    StoreFull,
    /// Before the request, the quota of the store at the member is reached.
    QuotaReached,
    /// Before the request, a bit of the last checkpoint is flipped.
    Damaged,
}

/// A fault, and the outcome that must follow.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub work: Work,
    /// Host, point and action: see `vmd/src/fault.rs`.
    pub fault: (At, &'static str, &'static str),
    pub deed: Deed,
    /// Whether the application also recovers when a task is killed.
    pub recovers: bool,
    pub then: Then,
    /// Words that the console's reply contains.
    pub told: &'static str,
}

const fn of(work: Work, at: At, point: &'static str, action: &'static str, then: Then) -> Cell {
    Cell {
        work,
        fault: (at, point, action),
        deed: None,
        recovers: false,
        then,
        told: "",
    }
}

const fn save(at: At, point: &'static str, action: &'static str, then: Then) -> Cell {
    of(Checkpoint, at, point, action, then)
}

const fn restart(at: At, point: &'static str, action: &'static str, then: Then) -> Cell {
    of(Restart, at, point, action, then)
}

impl Cell {
    const fn told(self, told: &'static str) -> Cell {
        Cell { told, ..self }
    }

    const fn with(self, deed: Deed) -> Cell {
        Cell { deed, ..self }
    }

    const fn recovers(self) -> Cell {
        Cell {
            recovers: true,
            ..self
        }
    }

    /// The fault as text for people.
    pub fn shown(&self) -> String {
        let (_, _, action) = self.fault;
        let policy = if self.recovers {
            "; --recover kill"
        } else {
            ""
        };
        match self.deed {
            None => format!("{action}{policy}"),
            deed => format!("{action}; {deed:?}{policy}"),
        }
    }

    /// Whether the cell needs hosts in network namespaces.
    pub fn takes_network(&self) -> bool {
        matches!(self.deed, HomeCutOff | MemberCutOff)
    }
}

/// All cells, by phase.
pub const MATRIX: [Cell; 71] = [
    // The request, and the cut.
    save(Leader, "send.CheckpointAsk", "cut", Saved),
    save(Leader, "send.CheckpointAsk", "delay-700", Saved),
    save(Home, "receive.CheckpointAsk", "kill", Back),
    save(Home, "says.CutAsk", "kill", Back),
    save(Home, "says.CutAsk", "end", Saved),
    save(Home, "says.CutAsk", "hold", Saved),
    save(Home, "coordinator.CutMade", "end", Saved),
    save(Home, "coordinator.CutMade", "hold", Saved),
    // The tasks are told to freeze, and are frozen.
    save(Member, "order.freeze", "kill", Back),
    save(Member, "order.freeze", "stop", Back),
    save(Member, "order.freeze", "task", Ended),
    save(Member, "order.freeze", "task", Back).recovers(),
    save(Home, "order.freeze", "cut", Saved),
    save(Home, "order.freeze", "kill", Back),
    save(Member, "report.saved", "kill", Back),
    save(Member, "report.saved", "stop", Back),
    save(Member, "report.saved", "task", Ended),
    save(Member, "send.PartStands", "kill", Back),
    save(Member, "send.PartStands", "cut", Saved),
    save(Member, "send.PartStands", "delay-700", Saved),
    save(Member, "send.PartStands", "delay-700", Saved).with(LeaderKilled),
    save(Member, "send.PartStands", "delay-1500", Back).with(MemberCutOff),
    save(Member, "send.PartStands", "delay-1500", Back).with(HomeCutOff),
    save(Home, "receive.PartStands", "kill", Back),
    save(Home, "coordinator.PartStands", "end", Saved),
    save(Home, "coordinator.PartStands", "hold", Saved),
    // All tasks are frozen, and resume.
    save(Home, "says.CutGo", "kill", Back),
    save(Home, "says.CutGo", "end", Saved),
    save(Home, "says.CutGo", "hold", Saved),
    save(Home, "coordinator.CutGone", "kill", Back),
    save(Home, "coordinator.CutGone", "end", Saved),
    save(Home, "coordinator.CutGone", "hold", Saved),
    // The copies of the tasks' processes write the images.
    save(Member, "writer", "kill", NotSaved).told("stores its image"),
    save(Member, "writer", "delay-1500", Saved),
    save(Member, "writer", "delay-1500", NotSaved).with(CopyKilled),
    save(Member, "writer", "delay-1500", Ended).with(TaskKilled),
    save(Member, "writer", "delay-1500", Back)
        .with(TaskKilled)
        .recovers(),
    save(Member, "writer", "delay-1500", Saved).with(ConsoleKilled),
    save(Member, "writer", "delay-1500", Saved).with(LeaderKilled),
    save(Member, "writer", "delay-1500", Back).with(MemberCutOff),
    save(Member, "writer", "note", NotSaved).with(StoreFull),
    save(Member, "writer", "note", NotSaved)
        .with(QuotaReached)
        .told("quota"),
    save(Member, "send.PartSaved", "kill", Back),
    save(Member, "send.PartSaved", "cut", Saved),
    save(Member, "send.PartSaved", "delay-700", Saved),
    save(Home, "receive.PartSaved", "kill", Back),
    save(Home, "coordinator.PartSaved", "end", Saved),
    save(Home, "coordinator.PartSaved", "hold", Saved),
    // The checkpoint is committed.
    save(Home, "says.CommitAsk", "kill", Back),
    save(Home, "says.CommitAsk", "end", Saved),
    save(Home, "commit", "kill", Back),
    save(Home, "coordinator.Committed", "kill", Back),
    save(Home, "coordinator.Committed", "end", Saved),
    save(Home, "coordinator.Committed", "hold", Saved),
    save(Home, "says.CutClose", "kill", Back),
    save(Home, "says.CutClose", "end", Saved),
    save(Home, "coordinator.CutClosed", "end", Saved),
    save(Home, "send.CheckpointEnd", "kill", Back),
    save(Home, "send.CheckpointEnd", "cut", Saved),
    // A console requests a restart.
    restart(Member, "reader", "kill", Refused),
    restart(Member, "reader", "delay-1500", Runs),
    restart(Member, "reader", "delay-700", Runs).with(LeaderKilled),
    restart(Member, "reader", "note", Runs)
        .with(Damaged)
        .told("damaged"),
    restart(Member, "restorer", "kill", Refused),
    restart(Home, "restorer", "kill", Refused),
    restart(Member, "report.back", "task", RefusedOrEnded),
    restart(Member, "report.back", "kill", Refused),
    restart(Member, "begin", "kill", Back),
    // The application recovers.
    of(Recovery, Leader, "reader", "kill", Back),
    of(Recovery, Home, "restorer", "kill", Back),
    of(Recovery, Home, "reader", "note", Back).with(Damaged),
];
