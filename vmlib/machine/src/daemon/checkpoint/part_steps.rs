//! One task's part in a checkpoint, at the owner of the task ([`super::cut_steps`] has the whole).
//!
//! A way into the store is opened. The task freezes. The task, or a copy of it, writes the image. Where
//! each host has a store of its own, a second host copies the image. The coordinator learns the result.

use super::{copies::Copies, cuts::SavedFor};
use crate::{
    MoveOutput, SavedBy, StoreOutput, Written,
    daemon::{
        Daemon,
        local_task::Stops,
        objection::{CUT, STOPPED},
        task_life::End,
    },
};
use vm_wire::{
    Frame, HostId, Tid,
    checkpoint::{Part, PartSaved, PartStands, SavedPart},
    peer::{Belongings, MoveWay, Order},
    stores::{CopyAsk, CopyEnd},
    task::{FailKind, Failed},
};

/// From the cut until the task is frozen.
impl Daemon {
    /// Has a task that has started or arrived here saved, if its application is frozen and the task
    /// was not saved.
    pub(in crate::daemon) fn save_part(&mut self, tid: Tid) {
        if self.open_part(tid) {
            self.freeze_part(tid);
        }
    }

    /// Opens a way into the store for the image of a task, if the task is to be saved: whether the
    /// task is to freeze now.
    pub(super) fn open_part(&mut self, tid: Tid) -> bool {
        let task = self.cx.agreement.state().living_task(tid);
        let Some(app) = task.map(|task| task.app) else {
            return false;
        };
        let Some(of) = self.checkpoints.cuts.expect_part(app, tid) else {
            return false;
        };
        if self.is_released(tid) {
            return false;
        }
        if self.migration.leaving.contains_key(&tid) {
            let failed = self.cannot_move(tid, FailKind::Refused, CUT);
            self.abort_move(tid, failed);
        }
        if !self.can_be_saved(app, tid) {
            return false;
        }
        self.begin_part(of, tid);
        true
    }

    /// Has a task freeze whose image has a way into the store.
    pub(super) fn freeze_part(&mut self, tid: Tid) {
        let way = MoveWay {
            precopy: false,
            compress: false,
            suspended: false,
        };
        self.cx.emit(MoveOutput::Freeze(tid, way));
    }

    /// Whether a task can be saved now. A starting task is saved once it has started. For a task that
    /// cannot be saved at all, the coordinator learns the reason.
    fn can_be_saved(&mut self, app: Tid, tid: Tid) -> bool {
        let Some(task) = self.tasks.get(&tid) else {
            return false;
        };
        let agreed = self.cx.agreement.state().living_task(tid);
        let why = if agreed.is_some_and(|task| task.enrolled) {
            "it was started from a shell; start it with 'vm run'"
        } else if task.stopped {
            STOPPED
        } else if task.end != End::None {
            self.tell_part(app, tid, Err(self.cx.no_such_task(tid)));
            return false;
        } else {
            return task.process.takes_notices();
        };
        self.cannot_save(app, tid, FailKind::Refused, why);
        false
    }

    fn begin_part(&mut self, of: SavedFor, tid: Tid) {
        let state = self.cx.agreement.state();
        let own = self.cx.has_own_stores();
        let second = own.then(|| state.second_host(self.cx.me)).flatten();
        let belongings = self.belongings_of(tid);
        let cuts = &mut self.checkpoints.cuts;
        cuts.begin_part(of.app, tid, belongings, second);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.frozen = true;
        }
        // A portable task may need messages to come to a safe point.
        self.cx.routes.set_open(tid, self.stops(tid).is_portable());
        let epochs = self.cx.agreement.state().epochs(of.app);
        let by = match epochs.policy {
            _ if of.ends_app => SavedBy::Standing,
            policy if policy.blocking => SavedBy::Memory,
            policy if policy.comes_soon() => SavedBy::CopyOrMemory,
            _ => SavedBy::Copy,
        };
        self.cx.emit(StoreOutput::Part {
            tid,
            app: of.app,
            generation: epochs.generation,
            epoch: of.epoch,
            by,
            second: second.map(|host| self.cx.host_name(host)),
            full: self.tasks.get(&tid).is_some_and(|task| task.stored_in_full),
            compress: epochs.policy.compress,
        });
    }

    /// The daemon's own state of a task. A request of the task that is under way counts as not made:
    /// the restored task makes it again.
    fn belongings_of(&self, tid: Tid) -> Belongings {
        let watches = self.watches_of(tid);
        let Some(task) = self.tasks.get(&tid) else {
            return Belongings::default();
        };
        Belongings {
            siblings: task.siblings as u32,
            console: HostId::NONE,
            watches,
            asked: task.asked.saturating_sub(u64::from(task.waiting.is_some())),
            answer: task.answer.as_ref().map(Frame::to_body),
            awaits: HostId::NONE,
            told: task.told,
            untaken: task.untaken.iter().map(Frame::to_body).collect(),
            hosts: self.watching.known.iter().copied().collect(),
            portable: task.stops.is_portable(),
            suspended: None,
            work_dir: self.cx.config.work_dir.clone(),
        }
    }

    /// Whether a task is frozen because its application is cut, or was told to freeze for that.
    pub(in crate::daemon) fn is_saving(&self, tid: Tid) -> bool {
        let task = self.tasks.get(&tid);
        task.is_some_and(|task| self.checkpoints.cuts.is_frozen(task.app, tid))
    }

    /// A task is frozen, and has written its image or has a copy that writes the image; or it cannot
    /// be saved.
    pub(in crate::daemon) fn on_part_written(&mut self, tid: Tid, result: Result<Written, Failed>) {
        let Some(of) = self.checkpoints.cuts.saved_for(tid) else {
            return;
        };
        match result {
            Ok(written) => {
                let cuts = &mut self.checkpoints.cuts;
                cuts.on_frozen(self.cx.now, tid, written);
                self.cx.routes.set_open(tid, false);
                if of.ends_app {
                    return self.review_part(tid);
                }
                let stands = PartStands {
                    app: of.app,
                    epoch: of.epoch,
                    tid,
                    host: self.cx.me,
                };
                self.tell_coordinator_of(of.app, &Order::PartStands(stands));
            }
            Err(failed) if failed.kind == FailKind::NoSuchTask => {
                self.tell_part(of.app, tid, Err(failed));
            }
            Err(failed) => self.cannot_save(of.app, tid, failed.kind, &failed.text),
        }
    }

    /// A task that was told to freeze has come to a call of the library, and is about to save itself.
    pub(super) fn on_held_to_save(&mut self, tid: Tid) {
        self.checkpoints.cuts.on_call(tid);
    }
}

/// Where a task freezes.
impl Daemon {
    /// Where a task freezes. A task that is not here counts as one that freezes anywhere.
    pub(in crate::daemon) fn stops(&self, tid: Tid) -> Stops {
        let task = self.tasks.get(&tid);
        task.map_or(Stops::Anywhere, |task| task.stops)
    }

    /// The program of a task has registered callbacks around saves: from now on the task freezes in
    /// calls of the library alone. If the task was just told to freeze, it does so in its next call.
    pub(in crate::daemon) fn on_in_calls(&mut self, tid: Tid) {
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|task| task.stops.at_once()) {
            task.stops = Stops::InCalls;
        }
    }

    /// A task has become portable: from now on it freezes at safe points alone, and is saved by the
    /// state that its program gives. If the task was just told to freeze, it does so at its next safe
    /// point.
    pub(in crate::daemon) fn on_portable(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.stops = Stops::AtSafePoints;
        self.close_routes_of(tid);
        if self.checkpoints.cuts.on_portable(tid) {
            self.cx.routes.set_open(tid, true);
        }
    }
}

/// From the image to the report.
impl Daemon {
    /// The image of a task is in the store here, or could not be stored.
    pub(in crate::daemon) fn on_stored(
        &mut self,
        tid: Tid,
        epoch: u32,
        result: Result<Part, Failed>,
    ) {
        let of = self.checkpoints.cuts.saved_for(tid);
        let Some(of) = of.filter(|of| of.epoch == epoch) else {
            return;
        };
        let part = match result {
            Ok(part) => part,
            Err(failed) => return self.cannot_save(of.app, tid, failed.kind, &failed.text),
        };
        let cuts = &mut self.checkpoints.cuts;
        let Some(host) = cuts.on_stored(tid, part.clone()) else {
            return self.review_part(tid);
        };
        let ask = CopyAsk {
            app: of.app,
            generation: of.generation,
            epoch,
            tid,
            part,
        };
        if let Err(failed) = Copies::ask(&mut self.cx, host, ask) {
            self.cannot_save(of.app, tid, failed.kind, &failed.text);
        }
    }

    /// The second host has a copy of an image, or failed to copy it.
    pub(in crate::daemon) fn on_copy_end(&mut self, host: HostId, end: CopyEnd) {
        let CopyEnd {
            app,
            epoch,
            tid,
            result,
        } = end;
        let name = self.cx.host_name(host);
        let cuts = &mut self.checkpoints.cuts;
        let is_of = |of: SavedFor| (of.app, of.epoch) == (app, epoch);
        if !cuts.saved_for(tid).is_some_and(is_of) {
            return;
        }
        let Some(part) = cuts.copying(app, tid, host) else {
            return;
        };
        match result {
            Ok(()) => {
                cuts.on_copied(tid, name);
                self.review_part(tid);
            }
            Err(failed) => {
                // The second host may lack the base.
                if part.base.is_some()
                    && let Some(task) = self.tasks.get_mut(&tid)
                {
                    task.stored_in_full = true;
                }
                let why = format!("it cannot be copied to host '{name}': {}", failed.text);
                self.cannot_save(app, tid, failed.kind, &why);
            }
        }
    }

    /// A host is lost that was to have copies of images. The coordinator begins the checkpoint again,
    /// with another second host.
    pub(super) fn lose_copies_on(&mut self, host: HostId) {
        for (app, tid) in self.checkpoints.cuts.copied_to(host) {
            let text = "a host is lost to which a part of it was to be copied";
            let failed = Failed::new(FailKind::NoSuchTask, text);
            self.tell_part(app, tid, Err(failed));
        }
    }

    /// Reports a saved part, once it is complete.
    pub(super) fn review_part(&mut self, tid: Tid) {
        let cuts = &mut self.checkpoints.cuts;
        if let Some((app, saved)) = cuts.take_saved(self.cx.now, tid) {
            self.tell_part(app, tid, Ok(saved));
        }
    }

    /// Reports that a task is not saved. The coordinator tries again only if the reason is
    /// [`FailKind::Busy`].
    pub(super) fn cannot_save(&mut self, app: Tid, tid: Tid, kind: FailKind, why: &str) {
        let kind = match kind {
            FailKind::Busy => FailKind::Busy,
            _ => FailKind::Refused,
        };
        let shown = tid.show(self.cx.machine);
        let name = &self.cx.config.facts.name;
        let text = format!("task {shown} on '{name}' cannot be saved: {why}");
        self.tell_part(app, tid, Err(Failed::new(kind, text)));
    }

    /// Reports the result of a task's part to the coordinator.
    fn tell_part(&mut self, app: Tid, tid: Tid, result: Result<SavedPart, Failed>) {
        let Some(epoch) = self.checkpoints.cuts.report(app, tid) else {
            return;
        };
        let saved = PartSaved {
            app,
            epoch,
            tid,
            result,
        };
        self.tell_coordinator_of(app, &Order::PartSaved(saved));
    }
}
