//! Coverage of the simulation: the number of faults in each phase, and of outcomes.

use std::{collections::BTreeMap, fmt};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All values, in the order of the table.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The name in the table.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// A kind of fault.
    Fault {
        /// Packets between two hosts are lost for a while; TCP sends them again.
        LinkPause = "link loses packets",
        /// A connection is destroyed with all that is in it.
        LinkCut = "link destroyed",
        /// A connection is destroyed, but one end notices only when the other connects again.
        HalfCut = "link destroyed, one end",
        /// No packet crosses between two sets of hosts.
        Partition = "partition",
        /// kill -9 of a daemon that does not lead.
        DaemonKill = "daemon killed",
        /// kill -9 of the daemon that leads.
        LeaderKill = "leader killed",
        /// SIGSTOP of a daemon until the timer of its lease kills it.
        DaemonStop = "daemon stopped",
        /// SIGSTOP, then SIGCONT within the lease.
        DaemonStall = "daemon stalled",
        /// kill -9 of a task.
        TaskKill = "task killed",
        /// A daemon requests to join.
        HostJoin = "host joins",
        /// A console deletes the host, whose daemon leaves in order.
        HostDelete = "host deleted",
        /// A console drains the host.
        HostDrain = "host drained",
        /// All frames on one link have a high delay.
        Delay = "link slow",
        /// The queue to a host is full: data frames are dropped.
        QueueFull = "queue full",
        /// kill -9 of a coordinator.
        CoordinatorKill = "coordinator killed",
        /// SIGSTOP of a coordinator for a while.
        CoordinatorHang = "coordinator hangs",
        /// A clock's rate changes.
        ClockSkew = "clock skew",
    }
}

named! {
    /// The activity that a fault met.
    Phase {
        /// The join request of a daemon has no reply yet.
        Joining = "joining",
        /// A task waits for the reply to a spawn.
        Spawning = "spawning",
        /// A send waits for credit.
        Blocked = "send blocked",
        /// Messages are in transit.
        InFlight = "in flight",
        /// A task waits for the reply to its exit.
        Exiting = "exiting",
        /// A task waits for the reply to a change of a group.
        Grouping = "grouping",
        /// The voters have no leader.
        Electing = "electing",
        /// A host is leaving in order.
        Leaving = "leaving",
        /// A daemon has ended and is not declared dead yet.
        Detecting = "detecting",
        /// The voters are not the wanted ones.
        Voters = "voters change",
        /// A task is being moved.
        Moving = "moving",
        /// By its coordinator's reports, a move is in its initialisation. (There is no phase of
        /// draining here: it is over when it has begun.)
        Initialisation = "initialisation",
        /// By its coordinator's reports, a move is in its copying.
        Copying = "copying",
        /// By its coordinator's reports, a move is in its interruption.
        Interruption = "interruption",
        /// By its coordinator's reports, a move is in its saving.
        Saving = "saving",
        /// By its coordinator's reports, a move is in its resumption.
        Resumption = "resumption",
        /// A draining host still has tasks.
        Draining = "draining",
    }
}

named! {
    /// An outcome of a move or of a checkpoint.
    Turn {
        /// The task resumed at the target.
        Committed = "committed",
        /// The target refused, or did not reply.
        OfferRefused = "offer refused",
        /// The task could not be saved.
        SaveRefused = "save refused",
        /// An image could not be restored.
        ImageLost = "image lost",
        /// The task resumed at the source because its image was lost.
        Aborted = "aborted for it",
        /// The target's host was lost.
        TargetLost = "target lost",
        /// The log decided for `Stay` after the release.
        Stayed = "Stay won",
        /// The log decided for `Relocate` although `Stay` was proposed.
        WentInDoubt = "Relocate won after doubt",
        /// The source was lost before the release.
        SourceLost = "source lost before release",
        /// The source was lost after the release, and the task with it.
        SourceLostReleased = "source lost after release",
        /// The task resumed at the target while the source's daemon was stopped or had ended.
        SourceGone = "resumed without the source",
        /// The task moved because its host drained, and a console got the report.
        Drained = "by drains",
        /// A console got the report of a committed move.
        Answered = "reported to consoles",
        /// The move returned the task to the host that it had just left.
        Back = "back at once",
        /// A coordinator cancelled a move.
        Cancelled = "cancelled",
        /// The source resumed the task because of a cancellation.
        CancelledAtSource = "aborted for that",
        /// A coordinator took over a move of another coordinator.
        TakenOver = "taken over",
        /// An order of a former coordinator had no effect.
        OrderStale = "stale orders",
        /// A coordinator died, or did not start.
        CoordinatorLost = "coordinators lost",
        /// A coordinator was replaced because it did not reply.
        CoordinatorHung = "coordinators hung",
        /// A console got the report of a checkpoint.
        Checkpointed = "checkpoints",
        /// An application was restarted from a checkpoint.
        Restarted = "restarts",
        /// A console got the reason why there is no checkpoint.
        NotCheckpointed = "not made",
        /// A single task was suspended.
        Suspended = "suspended",
        /// A single task was resumed.
        Resumed = "resumed",
        /// The image of a suspended task moved to another host, because its host drained.
        HandedOn = "handed on",
        /// A frame for a frozen task: it was dropped and sent again.
        FrameKept = "frames kept for frozen",
    }
}

/// The number of times that each outcome occurred.
#[derive(Debug, Clone, Default)]
pub struct Turns(BTreeMap<Turn, u64>);

impl Turns {
    /// Counts one occurrence.
    pub fn note(&mut self, turn: Turn) {
        self.note_many(turn, 1);
    }

    /// Counts `count` occurrences.
    pub fn note_many(&mut self, turn: Turn, count: u64) {
        *self.0.entry(turn).or_default() += count;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Turns) {
        for (&turn, &count) in &other.0 {
            self.note_many(turn, count);
        }
    }

    /// The number of occurrences.
    pub fn count(&self, turn: Turn) -> u64 {
        self.0.get(&turn).copied().unwrap_or(0)
    }
}

/// All outcomes with their counts, on one line.
impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "moves:")?;
        for (place, &turn) in Turn::ALL.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma} {} {}", self.count(turn), turn.name())?;
        }
        Ok(())
    }
}

/// Counts of faults by phase.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    cells: BTreeMap<(Phase, Fault), u64>,
}

impl Coverage {
    /// Counts a fault that struck during `phases`.
    pub fn note(&mut self, fault: Fault, phases: &[Phase]) {
        *self.faults.entry(fault).or_default() += 1;
        for &phase in phases {
            *self.cells.entry((phase, fault)).or_default() += 1;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Coverage) {
        for (&fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (&cell, count) in &other.cells {
            *self.cells.entry(cell).or_default() += count;
        }
    }

    /// How often a fault struck.
    pub fn count(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }

    /// How often a fault struck in a phase.
    pub fn cell(&self, phase: Phase, fault: Fault) -> u64 {
        self.cells.get(&(phase, fault)).copied().unwrap_or(0)
    }

    /// The number of faults, of all kinds.
    pub fn total(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// A table: a row for each fault, a column for each phase.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<24}{:>9}", "fault \\ phase", "all")?;
        for phase in Phase::ALL {
            write!(f, "{:>15}", phase.name())?;
        }
        for &fault in Fault::ALL {
            write!(f, "\n{:<24}{:>9}", fault.name(), self.count(fault))?;
            for &phase in Phase::ALL {
                write!(f, "{:>15}", self.cell(phase, fault))?;
            }
        }
        Ok(())
    }
}
