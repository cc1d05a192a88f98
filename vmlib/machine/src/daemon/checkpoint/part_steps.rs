//! One task's part in a checkpoint, at its own daemon ([`super::cut_steps`] has the whole).
//!
//! The way into the store is opened, the task stops, its image or that of a copy of it is written, is
//! copied to a second host where each has a store of its own, and the coordinator is told.

use super::{copies::Copies, cut_steps::Stage};
use crate::{
    Outbox, Output, SavedBy, Time, Written,
    daemon::{
        Daemon,
        local_task::Stops,
        objection::{CUT, STOPPED},
    },
};
use vm_wire::{
    Frame, HostId, Tid,
    checkpoint::{Part, PartSaved, PartStands, SavedPart},
    peer::{Belongings, MoveWay, Order},
    stores::{CopyAsk, CopyEnd},
    task::{FailKind, Failed},
};

/// What is known of a task that was told to stop, until its part is told.
#[derive(Debug)]
pub(in crate::daemon) struct Saving {
    pub(in crate::daemon) belongings: Belongings,
    /// When it had come to a call of the library, if it stops in these alone.
    pub(in crate::daemon) held: Option<Time>,
    /// When it was known to stand, and what it said; when it went on.
    pub(in crate::daemon) stood: Option<(Time, Written)>,
    pub(in crate::daemon) went: Option<Time>,
    /// The host that gets a copy of its image, if any does.
    second: Option<HostId>,
    /// Its image is in the store here, and is being copied.
    copied: Option<Part>,
    /// Its image is in the store, and copied where it is to be.
    stored: Option<Part>,
}

/// What a task is saved for.
#[derive(Debug, Clone, Copy)]
struct For {
    generation: u32,
    epoch: u32,
    /// The application ends with it.
    blocks: bool,
}

/// Has a task stop, once there is a way for its image.
pub(in crate::daemon) fn stop_part(tid: Tid, out: &mut Outbox) {
    let way = MoveWay {
        precopy: false,
        compress: false,
        suspended: false,
    };
    out.push_back(Output::Freeze(tid, way));
}

impl Daemon {
    /// Has a task of this host saved that has started or arrived, if its application is cut and it
    /// was not saved yet.
    pub(in crate::daemon) fn save_part(&mut self, tid: Tid) {
        if self.open_part(tid) {
            stop_part(tid, &mut self.cx.out);
        }
    }

    /// Opens a way into the store for the image of a task, if it is to be saved; whether it is to
    /// stop now.
    pub(in crate::daemon) fn open_part(&mut self, tid: Tid) -> bool {
        let app = self
            .cx
            .agreement
            .state()
            .living_task(tid)
            .map(|task| task.app);
        let Some((app, cut)) = app.and_then(|app| Some((app, self.cuts.get_mut(&app)?))) else {
            return false;
        };
        let known = matches!(cut.parts.get(&tid), Some(Stage::Saving(_) | Stage::Told));
        if cut.gone || known {
            return false;
        }
        cut.parts.insert(tid, Stage::Waits);
        let (epoch, blocks) = (cut.epoch, cut.blocks);
        if self.is_released(tid) {
            return false;
        }
        if self.migration.leaving.contains_key(&tid) {
            let failed = self.cannot_move(tid, FailKind::Refused, CUT);
            self.take_back(tid, failed);
        }
        let Some(task) = self.tasks.get(&tid) else {
            return false;
        };
        let enrolled = self.cx.agreement.state().living_task(tid);
        let why = match enrolled.is_some_and(|task| task.enrolled) {
            true => Some("it was started from a shell; start it with 'vm run'"),
            false if task.stopped => Some(STOPPED),
            false if task.leaving || task.exiting => {
                self.tell_part(app, tid, Err(self.cx.no_such_task(tid)));
                return false;
            }
            false => None,
        };
        if let Some(why) = why {
            self.cannot_save(app, tid, FailKind::Refused, why);
            return false;
        }
        if !task.connected {
            // It is starting.
            return false;
        }
        let state = self.cx.agreement.state();
        let second = self
            .cx
            .has_own_stores()
            .then(|| state.second_host(self.cx.me));
        let second = second.flatten();
        let saving = Box::new(Saving {
            belongings: self.belongings_of(tid),
            held: None,
            stood: None,
            went: None,
            second,
            copied: None,
            stored: None,
        });
        if let Some(cut) = self.cuts.get_mut(&app) {
            cut.parts.insert(tid, Stage::Saving(saving));
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.frozen = true;
        }
        // It needs messages to come to a safe point.
        self.cx
            .routes
            .set_connected(tid, self.stops(tid).is_portable());
        let epochs = self.cx.agreement.state().epochs(app);
        let by = match epochs.policy {
            _ if blocks => SavedBy::Standing,
            policy if policy.blocking => SavedBy::Memory,
            policy if policy.comes_soon() => SavedBy::CopyOrMemory,
            _ => SavedBy::Copy,
        };
        self.cx.emit(Output::Store {
            tid,
            app,
            generation: epochs.generation,
            epoch,
            by,
            second: second.map(|host| self.cx.host_name(host)),
            full: self.tasks.get(&tid).is_some_and(|task| task.stored_in_full),
            compress: epochs.policy.compress,
        });
        true
    }

    /// What this daemon knows of a task: its request under way will be asked anew.
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

    /// Whether a task stands, or is to, because its application is cut.
    pub(in crate::daemon) fn is_saving(&self, tid: Tid) -> bool {
        self.tasks.get(&tid).is_some_and(|task| {
            let cut = self.cuts.get(&task.app);
            let cut = cut.filter(|cut| !cut.gone);
            cut.is_some_and(|cut| matches!(cut.parts.get(&tid), Some(Stage::Saving(_))))
        })
    }

    /// A task that is being saved, which may have ended meanwhile: of which application, and for what
    /// cut.
    fn saving(&mut self, tid: Tid) -> Option<(Tid, For, &mut Saving)> {
        let mut cuts = self.cuts.iter_mut();
        cuts.find_map(|(app, cut)| match cut.parts.get_mut(&tid)? {
            Stage::Saving(saving) => {
                let of = For {
                    generation: cut.generation,
                    epoch: cut.epoch,
                    blocks: cut.blocks,
                };
                Some((*app, of, &mut **saving))
            }
            _ => None,
        })
    }

    /// A task stands and has written its image, or a copy of it does; or it says why it cannot.
    pub(in crate::daemon) fn on_part_written(&mut self, tid: Tid, result: Result<Written, Failed>) {
        let now = self.cx.now;
        let Some((app, cut, saving)) = self.saving(tid) else {
            return;
        };
        match result {
            Ok(written) => {
                saving.stood = Some((now, written));
                self.cx.routes.set_connected(tid, false);
                if cut.blocks {
                    return self.review_part(tid);
                }
                let stands = PartStands {
                    app,
                    epoch: cut.epoch,
                    tid,
                    host: self.cx.me,
                };
                self.tell_coordinator_of(app, &Order::PartStands(stands));
            }
            Err(failed) if failed.kind == FailKind::NoSuchTask => {
                self.tell_part(app, tid, Err(failed));
            }
            Err(failed) => self.cannot_save(app, tid, failed.kind, &failed.text),
        }
    }

    /// A task that was told to stop has come to a call of the library, and is about to save itself.
    pub(in crate::daemon) fn on_held_to_save(&mut self, tid: Tid) {
        let now = self.cx.now;
        if let Some((.., saving)) = self.saving(tid) {
            saving.held = Some(now);
        }
    }

    /// Where a task stops; one that is not here, anywhere.
    pub(in crate::daemon) fn stops(&self, tid: Tid) -> Stops {
        let task = self.tasks.get(&tid);
        task.map_or(Stops::Anywhere, |task| task.stops)
    }

    /// Tasks of the program have callbacks around saves: they stop in calls of the library alone from now
    /// on. Nothing is different for one that has just been told to stop: it does so once it can.
    pub(in crate::daemon) fn on_in_calls(&mut self, tid: Tid) {
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|task| task.stops.at_once()) {
            task.stops = Stops::InCalls;
        }
    }

    /// A task is saved by what its program gives, from now on. If it was just told to stop, it does so
    /// at a safe point, too.
    pub(in crate::daemon) fn on_portable(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.stops = Stops::AtSafePoints;
        if let Some((.., saving)) = self.saving(tid)
            && saving.stood.is_none()
        {
            saving.belongings.portable = true;
            self.cx.routes.set_connected(tid, true);
        }
    }

    /// The image of a task is in the store, or is not.
    pub(in crate::daemon) fn on_stored(
        &mut self,
        tid: Tid,
        epoch: u32,
        result: Result<Part, Failed>,
    ) {
        let Some((app, cut, saving)) = self.saving(tid) else {
            return;
        };
        let generation = cut.generation;
        match (result, saving.second) {
            _ if cut.epoch != epoch => {}
            (Ok(part), None) => {
                saving.stored = Some(part);
                self.review_part(tid);
            }
            (Ok(part), Some(host)) => {
                saving.copied = Some(part.clone());
                let ask = CopyAsk {
                    app,
                    generation,
                    epoch,
                    tid,
                    part,
                };
                if let Err(failed) = Copies::ask(&mut self.cx, host, ask) {
                    self.cannot_save(app, tid, failed.kind, &failed.text);
                }
            }
            (Err(failed), _) => self.cannot_save(app, tid, failed.kind, &failed.text),
        }
    }

    /// The second host has a copy of an image, or not.
    pub(in crate::daemon) fn on_copy_end(&mut self, host: HostId, end: CopyEnd) {
        let (tid, name) = (end.tid, self.cx.host_name(host));
        let Some((app, cut, saving)) = self.saving(tid) else {
            return;
        };
        if (app, cut.epoch, saving.second) != (end.app, end.epoch, Some(host)) {
            return;
        }
        let Some(mut part) = saving.copied.take() else {
            return;
        };
        match end.result {
            Ok(()) => {
                part.copy = Some(name);
                saving.stored = Some(part);
                self.review_part(tid);
            }
            Err(failed) => {
                // Perhaps it does not have the base.
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

    /// The host is lost that was to have copies of images: the checkpoint is begun again, with another.
    pub(in crate::daemon) fn lose_copies_on(&mut self, host: HostId) {
        let to_it = |(tid, stage): (&Tid, &Stage)| match stage {
            Stage::Saving(saving) if saving.second == Some(host) => Some(*tid),
            _ => None,
        };
        let cuts = self.cuts.iter();
        let lost = cuts.flat_map(|(app, cut)| {
            let tids = cut.parts.iter().filter_map(to_it);
            tids.map(move |tid| (*app, tid))
        });
        for (app, tid) in lost.collect::<Vec<_>>() {
            let text = "a host is lost to which a part of it was to be copied";
            let failed = Failed::new(FailKind::NoSuchTask, text);
            self.tell_part(app, tid, Err(failed));
        }
    }

    /// Tells of a part that is in the store, once it is known for how long its task stood; of one that
    /// ends with it, until now.
    pub(in crate::daemon) fn review_part(&mut self, tid: Tid) {
        let now = self.cx.now;
        let Some((app, cut, saving)) = self.saving(tid) else {
            return;
        };
        let until = saving.went.or(cut.blocks.then_some(now));
        if let (Some((stood, written)), Some(until)) = (saving.stood, until)
            && let Some(image) = saving.stored.take()
        {
            let part = SavedPart {
                image,
                belongings: std::mem::take(&mut saving.belongings),
                freeze_us: (written.time + until.since(stood)).as_micros() as u64,
                unacknowledged: written.unacknowledged,
            };
            self.tell_part(app, tid, Ok(part));
        }
    }

    /// A task is not saved. Only if the reason passes by itself is it worth another try.
    pub(in crate::daemon) fn cannot_save(&mut self, app: Tid, tid: Tid, kind: FailKind, why: &str) {
        let kind = match kind {
            FailKind::Busy => FailKind::Busy,
            _ => FailKind::Refused,
        };
        let shown = tid.show(self.cx.machine);
        let name = &self.cx.config.facts.name;
        let text = format!("task {shown} on '{name}' cannot be saved: {why}");
        self.tell_part(app, tid, Err(Failed::new(kind, text)));
    }

    /// Tells the coordinator what came of a task.
    pub(in crate::daemon) fn tell_part(
        &mut self,
        app: Tid,
        tid: Tid,
        result: Result<SavedPart, Failed>,
    ) {
        let Some(cut) = self.cuts.get_mut(&app) else {
            return;
        };
        cut.parts.insert(tid, Stage::Told);
        let epoch = cut.epoch;
        let saved = PartSaved {
            app,
            epoch,
            tid,
            result,
        };
        self.tell_coordinator_of(app, &Order::PartSaved(saved));
    }
}
