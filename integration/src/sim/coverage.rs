//! Coverage of the simulation: how often each fault struck in each phase.

use std::{collections::BTreeMap, fmt};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in the order of the table.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// As the table shows it.
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
        /// As before, but one end notices only when the other connects again.
        HalfCut = "link destroyed, one end",
        /// No packet crosses between two sets of hosts.
        Partition = "partition",
        /// kill -9 of a daemon that does not lead.
        DaemonKill = "daemon killed",
        /// kill -9 of the daemon that leads.
        LeaderKill = "leader killed",
        /// SIGSTOP of a daemon until its lease's timer ends it.
        DaemonStop = "daemon stopped",
        /// SIGSTOP, then SIGCONT within the lease.
        DaemonStall = "daemon stalled",
        /// kill -9 of a task.
        TaskKill = "task killed",
        /// A daemon asks to join.
        HostJoin = "host joins",
        /// A console deletes the host, whose daemon leaves in order.
        HostDelete = "host deleted",
        /// The tasks of a host are to leave it.
        HostDrain = "host drained",
        /// Everything on one link takes long.
        Delay = "link slow",
        /// A queue to a host is full: frames of data are dropped.
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
        /// A daemon has asked to join and has no answer.
        Joining = "joining",
        /// A task waits for the answer to a spawn.
        Spawning = "spawning",
        /// A send waits for credit.
        Blocked = "send blocked",
        /// Messages are on their way.
        InFlight = "in flight",
        /// A task waits for the answer to its exit.
        Exiting = "exiting",
        /// A task waits for the answer to a change of a group.
        Grouping = "grouping",
        /// The voters have no leader.
        Electing = "electing",
        /// A host is on its way out in order.
        Leaving = "leaving",
        /// A daemon is gone and not yet declared dead.
        Detecting = "detecting",
        /// The voters are not those that are wanted.
        Voters = "voters change",
        /// A task is on its way to another host.
        Moving = "moving",
        /// As its coordinator sees it, a move is in that phase. (Draining is over when it has begun.)
        Initialisation = "initialisation",
        /// Likewise.
        Copying = "copying",
        /// Likewise.
        Interruption = "interruption",
        /// Likewise.
        Saving = "saving",
        /// Likewise.
        Resumption = "resumption",
        /// A host drains that still has tasks.
        Draining = "draining",
    }
}

named! {
    /// An outcome of a move or of a checkpoint.
    Turn {
        /// The task went on at the target.
        Committed = "committed",
        /// The target refused, or did not answer.
        OfferRefused = "offer refused",
        /// The task could not be saved.
        SaveRefused = "save refused",
        /// An image did not become a process.
        ImageLost = "image lost",
        /// The task was taken back because its image was lost.
        TakenBack = "taken back for it",
        /// The target's host was lost.
        TargetLost = "target lost",
        /// The log said `Stay` after the release.
        Stayed = "Stay won",
        /// The log said `Relocate` although `Stay` was proposed.
        WentInDoubt = "Relocate won after doubt",
        /// The source's host was lost before the release.
        SourceLost = "source lost before release",
        /// The source's host was lost after the release, and with it the task.
        SourceLostReleased = "source lost after release",
        /// The task went on while the source's daemon was stopped or gone.
        SourceGone = "went on without the source",
        /// The task went because its host drained, and a console was told so.
        Drained = "by drains",
        /// A console was told of a committed move.
        Answered = "console told",
        /// The move was back to where the task had just been.
        Back = "back at once",
        /// A coordinator called a move off.
        CalledOff = "called off",
        /// The source took the task back for it.
        TakenBackByOrder = "taken back for that",
        /// A coordinator met a move that another had driven.
        TakenOver = "taken over",
        /// An order of a former coordinator did nothing.
        OrderStale = "stale orders",
        /// A coordinator died, or did not start.
        CoordinatorLost = "coordinators lost",
        /// A coordinator was replaced because it did not answer.
        CoordinatorHung = "coordinators hung",
        /// A console was told of a checkpoint.
        Checkpointed = "checkpoints",
        /// An application went back to one.
        WentBack = "went back",
        /// Or why there is none.
        NotCheckpointed = "not made",
        /// A single task was suspended.
        Suspended = "suspended",
        /// It was resumed.
        Resumed = "resumed",
        /// It was handed on, as its host drained.
        HandedOn = "handed on",
        /// A frame for a task that stood still: it was dropped and sent again.
        FrameKept = "frames kept for frozen",
    }
}

/// How often each came about.
#[derive(Debug, Clone, Default)]
pub struct Turns(BTreeMap<Turn, u64>);

impl Turns {
    /// Counts one occurrence.
    pub fn note(&mut self, turn: Turn) {
        self.note_many(turn, 1);
    }

    /// It came about so often.
    pub fn note_many(&mut self, turn: Turn, count: u64) {
        *self.0.entry(turn).or_default() += count;
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Turns) {
        for (&turn, &count) in &other.0 {
            self.note_many(turn, count);
        }
    }

    /// How often it came about.
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
    /// A fault struck while `phases` were under way.
    pub fn note(&mut self, fault: Fault, phases: &[Phase]) {
        *self.faults.entry(fault).or_default() += 1;
        for &phase in phases {
            *self.cells.entry((phase, fault)).or_default() += 1;
        }
    }

    /// Adds what another run has met.
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
