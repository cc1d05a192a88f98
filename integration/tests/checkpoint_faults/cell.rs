//! The cells of the matrix: what goes wrong where, and what follows.

use At::{Home, Leader, Member};
use Deed::{
    ConsoleKilled, CopyKilled, Damaged, HomeCutOff, LeaderKilled, MemberCutOff, None, QuotaReached,
    StoreFull, TaskKilled,
};
use Then::{Back, Ended, NotSaved, Refused, RefusedOrEnded, Runs, Saved};
use Work::{Checkpoint, Recovery, Restart};

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The founder, which leads, and where a checkpoint is asked for. It has no task.
    Leader,
    /// Where the caller, its console and the coordinator are, and where a restart is asked for.
    Home,
    /// Where the callee is.
    Member,
}

/// The work that the fault interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The second checkpoint of an application is being made.
    Checkpoint,
    /// An application that was stopped with its second checkpoint is being restarted.
    Restart,
    /// The member is lost, and the application goes back by itself.
    Recovery,
}

/// The outcome for the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The checkpoint is made, and all tasks go on.
    Saved,
    /// It is not made, the console is told why, and all tasks go on.
    NotSaved,
    /// It goes back by itself to the last checkpoint that was committed.
    Back,
    /// The callee is reported dead.
    Ended,
    /// It is brought back.
    Runs,
    /// It is not, the console is told why, and the next restart brings it back.
    Refused,
    /// Its callee was ended when it stood ready: the restart is refused, or the callee is reported dead
    /// if the log was quicker.
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
    /// The console that asked does.
    ConsoleKilled,
    /// The leader's daemon does; the console asks at home.
    LeaderKilled,
    /// The cable of the home is pulled out.
    HomeCutOff,
    /// The cable of the member is.
    MemberCutOff,
    /// Before all: the disk with the store is full.
    StoreFull,
    /// Before all: the member's quota of the store is reached.
    QuotaReached,
    /// Before all: a bit of the last checkpoint flips.
    Damaged,
}

/// A fault, and the outcome that must follow.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub work: Work,
    /// Host, point and action: see `vmd/src/fault.rs`.
    pub fault: (At, &'static str, &'static str),
    pub deed: Deed,
    /// The application goes back when a task is killed, too.
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

    /// The fault, for people.
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

    /// Whether it takes hosts in network namespaces.
    pub fn takes_network(&self) -> bool {
        matches!(self.deed, HomeCutOff | MemberCutOff)
    }
}

/// All of them, by phase.
pub const MATRIX: [Cell; 71] = [
    // The wish, and the cut.
    save(Leader, "send.CheckpointAsk", "cut", Saved),
    save(Leader, "send.CheckpointAsk", "delay-700", Saved),
    save(Home, "receive.CheckpointAsk", "kill", Back),
    save(Home, "says.CutAsk", "kill", Back),
    save(Home, "says.CutAsk", "end", Saved),
    save(Home, "says.CutAsk", "hold", Saved),
    save(Home, "coordinator.CutMade", "end", Saved),
    save(Home, "coordinator.CutMade", "hold", Saved),
    // Tasks are told to stop, and stand.
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
    // All stand, and go on.
    save(Home, "says.CutGo", "kill", Back),
    save(Home, "says.CutGo", "end", Saved),
    save(Home, "says.CutGo", "hold", Saved),
    save(Home, "coordinator.CutGone", "kill", Back),
    save(Home, "coordinator.CutGone", "end", Saved),
    save(Home, "coordinator.CutGone", "hold", Saved),
    // The copies of the tasks' processes write.
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
    // The application recovers by itself.
    of(Recovery, Leader, "reader", "kill", Back),
    of(Recovery, Home, "restorer", "kill", Back),
    of(Recovery, Home, "reader", "note", Back).with(Damaged),
];
