//! How the drain of this host is going on, or how it went.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid, limits,
    peer::{DrainReport, DrainWay, MoveReport},
    task::{FailKind, Failed},
};

/// How this host's drain is going on, or how it went.
#[derive(Debug)]
pub(in crate::daemon) struct Drain {
    /// Daemons that wait for the end, each with its number for it.
    pub(super) askers: BTreeSet<RequestKey>,
    /// What it does beside.
    pub(super) way: DrainWay,
    /// Applications are being saved first: those whose turn has not come, those that just are, how
    /// often others could not be, and how many have been.
    pub(super) saves: bool,
    pub(super) to_save: BTreeSet<Tid>,
    pub(super) saving: BTreeSet<Tid>,
    pub(super) not_saved: BTreeMap<Tid, usize>,
    pub(super) saved: u32,
    /// It is time to look again at what failed.
    pub(super) looks: bool,
    /// Whether tasks are being moved.
    pub(super) active: bool,
    /// When this pass over the tasks began, and when the last of them had left or was refused.
    pub(super) begun: Time,
    pub(super) ended: Time,
    /// Tasks whose turn has not come.
    pub(super) waiting: VecDeque<Tid>,
    /// Tasks on their way, and where to.
    pub(super) underway: BTreeMap<Tid, HostId>,
    /// Tasks that cannot be moved just now.
    pub(super) later: BTreeSet<Tid>,
    /// Where each task was to go already, and why it did not.
    pub(super) tried: BTreeMap<Tid, (BTreeSet<HostId>, Option<Failed>)>,
    /// How often a checkpoint kept it from leaving.
    pub(super) cut_short: BTreeMap<Tid, usize>,
    /// Tasks that cannot be moved for reasons that pass.
    pub(super) busy: BTreeMap<Tid, Busy>,
    /// What became of the others. Bounded by the tasks that were here when the drain began.
    pub(super) moved: BTreeMap<Tid, MoveReport>,
    pub(super) refused: BTreeMap<Tid, Failed>,
    /// Applications that are being suspended, those that were, and how often others could not be.
    pub(super) suspending: BTreeSet<Tid>,
    pub(super) suspended: BTreeSet<Tid>,
    pub(super) not_suspended: BTreeMap<Tid, (usize, Failed)>,
    /// The daemon was asked to end, and leaves at this time at the latest.
    pub(super) leave_by: Option<Time>,
}

/// A task that cannot be moved for a reason that passes.
#[derive(Debug)]
pub(super) struct Busy {
    /// Since when.
    pub(super) since: Time,
    /// How often it was tried, and when it is again.
    pub(super) tries: u32,
    pub(super) again: Time,
}

impl Drain {
    pub(super) fn new(now: Time) -> Self {
        Drain {
            askers: BTreeSet::new(),
            way: DrainWay::default(),
            saves: false,
            to_save: BTreeSet::new(),
            saving: BTreeSet::new(),
            not_saved: BTreeMap::new(),
            saved: 0,
            looks: false,
            active: false,
            begun: now,
            ended: now,
            waiting: VecDeque::new(),
            underway: BTreeMap::new(),
            later: BTreeSet::new(),
            tried: BTreeMap::new(),
            cut_short: BTreeMap::new(),
            busy: BTreeMap::new(),
            moved: BTreeMap::new(),
            refused: BTreeMap::new(),
            suspending: BTreeSet::new(),
            suspended: BTreeSet::new(),
            not_suspended: BTreeMap::new(),
            leave_by: None,
        }
    }

    pub(super) fn report(&self, host: HostId) -> DrainReport {
        let named = limits::DRAIN_NAMED_MAX;
        let moved = self.moved.iter().take(named);
        let refused = self.refused.iter().take(named);
        DrainReport {
            host,
            total_us: self.ended.since(self.begun).as_micros() as u64,
            moved_count: self.moved.len() as u32,
            refused_count: self.refused.len() as u32,
            saved_count: self.saved,
            moved: moved.map(|(tid, report)| (*tid, report.clone())).collect(),
            refused: refused.map(|(tid, why)| (*tid, why.clone())).collect(),
            suspended: self.suspended.iter().take(named).copied().collect(),
        }
    }

    /// Whether a task that cannot be moved for a reason that passes is waited for: for
    /// [`limits::DRAIN_PATIENCE`]; where the daemon was asked to end, for all of the time that is left,
    /// or, if something else is to be tried then, half of it.
    pub(super) fn waits_for(&mut self, now: Time, tid: Tid) -> bool {
        let busy = self.busy.entry(tid).or_insert(Busy {
            since: now,
            tries: 0,
            again: now,
        });
        let patience = busy.since + limits::DRAIN_PATIENCE;
        let until = match self.leave_by {
            Some(by) if self.way.suspend => patience.min(self.begun + by.since(self.begun) / 2),
            Some(by) => by,
            None => patience,
        };
        now < until
    }

    /// The same, of one that was tried and failed: it is tried again after a pause.
    pub(super) fn tries_again(&mut self, now: Time, tid: Tid) -> bool {
        let waits = self.waits_for(now, tid);
        if let Some(busy) = self.busy.get_mut(&tid) {
            busy.tries += 1;
            busy.again = now + limits::busy_pause(busy.tries);
        }
        waits
    }

    /// A task stays; `shown` is its tid as people write it.
    pub(super) fn refuse(&mut self, now: Time, tid: Tid, shown: &str, mut why: Failed) {
        if let Some(text) = why
            .text
            .strip_prefix(&format!("task {shown} cannot be moved: "))
        {
            why.text = text.to_owned();
        }
        let mut end = why.text.len().min(limits::DRAIN_REASON_MAX);
        while !why.text.is_char_boundary(end) {
            end -= 1;
        }
        why.text.truncate(end);
        self.ended = now;
        self.refused.insert(tid, why);
    }
}

/// There is no other host that could take a task.
pub(super) fn nowhere() -> Failed {
    let text = "there is no other host that takes tasks, so its tasks run on where they are; add \
                one (vm add), or have one that drains take tasks again (vm drain --undo)";
    Failed::new(FailKind::Refused, text)
}

/// The host takes tasks again.
pub(super) fn taken_back() -> Failed {
    let text = "the drain was taken back; the other tasks run on where they are";
    Failed::new(FailKind::Refused, text)
}
