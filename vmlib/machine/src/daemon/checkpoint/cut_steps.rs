//! A cut of an application, at the daemons of its tasks. The crate `vm-coordinator` has the decisions
//! of the coordinator, which drives the checkpoint.
//!
//! The log makes the cut ([`Change::Cut`]). From the moment when a daemon applies that entry, it hands
//! the application's tasks no message, no reply and no notification. Each task freezes, and a copy of
//! the task writes its image into the store, together with what the daemon knew of the task at the
//! cut. When all tasks are frozen, the log lets the application resume ([`Change::CutGo`]), while the
//! copies write. When the checkpoint is committed, the log ends the cut ([`Change::CutEnd`]).
//!
//! If the application ends with the checkpoint, no copies write: the tasks stay frozen until the log
//! ends the cut, and then they end.
//!
//! Portable tasks come to their safe points before the cut ([`super::prepare_steps`]). A portable task
//! that is not at a safe point, because it became portable or arrived too late, freezes at its next
//! one. Until then it receives messages, which it may need to get there, but no replies and no
//! notifications, which would be from after the cut. It has [`limits::SAFE_POINT`] for that. A task
//! whose program has callbacks around saves has the same time to come to a call of the library.
//!
//! A task that is spawned meanwhile is started when the application resumes, because it could send
//! messages to tasks that are not frozen yet. A task that is moving is saved on the host where it
//! resumes. If a task ends before all tasks are frozen, the cut ends without a checkpoint, because the
//! task was part of the cut.
//!
//! Where each host has a store of its own, a part counts as saved when a second host has it, too
//! ([`super::copies`]), and all hosts commit.
//!
//! Tasks do not stay frozen because a coordinator is lost or fails: the daemon of the next coordinator
//! ends the cut, and so does any daemon after [`limits::CUT_TIME`].
//!
//! [`Change::Cut`]: vm_wire::agreed::Change::Cut
//! [`Change::CutGo`]: vm_wire::agreed::Change::CutGo
//! [`Change::CutEnd`]: vm_wire::agreed::Change::CutEnd

use super::cuts::{Ended, Postponed, Resumed};
use crate::{
    LaunchSpec, MoveOutput, Output, ProcessOutput, StoreOutput,
    daemon::{Daemon, signal_numbers::SIGKILL, task_life::Launch},
};
use vm_wire::{
    Frame, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{AgreedPart, CutLost, KeptChunks, KeptSaved, PartSaved},
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

impl Daemon {
    /// The log has cut an application. If this daemon does not know what was agreed then, a
    /// coordinator here has to begin the checkpoint from the start.
    pub(in crate::daemon) fn on_cut(&mut self, app: Tid, epoch: u32, agreed: Option<AgreedPart>) {
        let state = self.cx.agreement.state();
        let here = |tid: &Tid| {
            state
                .living_task(*tid)
                .is_some_and(|it| it.host == self.cx.me)
        };
        let mut tids: Vec<Tid> = state.tasks_of(app).filter(here).collect();
        let cuts = &mut self.checkpoints.cuts;
        cuts.begin(&mut self.cx, app, epoch, agreed);
        self.warn_of_single_disk(&tids);
        self.tell_cut_made(app);
        self.save_kept(app, epoch);
        // It takes longer to open a way into the store than to freeze a task.
        tids.retain(|tid| self.open_part(*tid));
        for tid in tids {
            self.freeze_part(tid);
        }
        self.end_holding(app);
        let postponed = self.checkpoints.cuts.take_postponed();
        for Postponed {
            tid,
            request,
            reply,
        } in postponed
        {
            self.answer_task(tid, request, reply);
        }
    }

    /// Warns that the images of a checkpoint will be on one disk instead of two.
    fn warn_of_single_disk(&mut self, tids: &[Tid]) {
        let second = self.cx.agreement.state().second_host(self.cx.me);
        if self.cx.has_own_stores() && second.is_none() && !tids.is_empty() {
            let text = "the images of this checkpoint are on the disk of this host alone: there is no \
                        second one that takes tasks (vm add)";
            self.cx.emit(Output::Note(text.to_owned()));
        }
    }

    /// Takes part in the cuts that are under way in this daemon's first state of the log: they may
    /// wait for the messages that this host keeps.
    pub(in crate::daemon) fn take_part_in_cuts(&mut self) {
        let state = self.cx.agreement.state();
        let cut: Vec<Tid> = state.apps().filter(|app| state.is_standing(*app)).collect();
        for app in cut {
            let epoch = self.cx.agreement.state().epochs(app).epoch;
            self.on_cut(app, epoch, None);
        }
    }

    /// Whether the log has cut the application of a task here and this daemon has not carried that
    /// out.
    pub(in crate::daemon) fn is_cut_ahead(&self, tid: Tid) -> bool {
        let task = self.tasks.get(&tid);
        task.is_some_and(|task| self.checkpoints.cuts.is_ahead(&self.cx, task.app))
    }

    /// All tasks of a cut are frozen, and the application resumes.
    pub(in crate::daemon) fn on_cut_gone(&mut self, app: Tid, epoch: u32) {
        let resumed = self.checkpoints.cuts.resume(&self.cx, app, epoch);
        let Some(Resumed { frozen, launches }) = resumed else {
            return;
        };
        for tid in &frozen {
            self.resume_frozen(*tid, true);
        }
        self.cx.out.extend(
            frozen
                .iter()
                .map(|tid| Output::Store(StoreOutput::PartOfCopy(*tid))),
        );
        for tid in frozen {
            self.review_part(tid);
        }
        self.launch_all(launches);
        self.tell_cut_gone(app, epoch);
    }

    /// Sends the coordinator the messages of ended tasks that are kept here for tasks of its
    /// application. The tasks acknowledge nothing until the cut ends, so the messages are the same as
    /// at the cut.
    fn save_kept(&mut self, app: Tid, epoch: u32) {
        let tids: Vec<Tid> = self.cx.agreement.state().tasks_of(app).collect();
        let of_each = tids.iter().flat_map(|tid| self.cx.keeper.kept_for(*tid));
        let kept = of_each.map(|(order, chunks)| KeptChunks {
            host: self.cx.me,
            order,
            chunks: chunks.iter().map(Frame::to_body).collect(),
        });
        let kept: Vec<KeptChunks> = kept.collect();
        let bytes = kept.iter().map(KeptChunks::bytes).sum();
        let result = if self.departure.is_underway() {
            let name = &self.cx.config.facts.name;
            let text = format!("host '{name}' is leaving the machine; try again");
            Err(Failed::new(FailKind::Busy, text))
        } else if bytes > limits::KEPT_SAVED_MAX {
            Err(KeptChunks::too_much(bytes))
        } else {
            Ok(kept)
        };
        let saved = KeptSaved {
            app,
            epoch,
            host: self.cx.me,
            result,
        };
        self.tell_coordinator_of(app, &Order::KeptSaved(saved));
    }

    /// A host is lost, with the messages that it kept and the images that were being written there.
    pub(in crate::daemon) fn lose_parts_of(&mut self, host: HostId) {
        for (app, epoch) in self.checkpoints.cuts.epochs() {
            let lost = CutLost { app, epoch, host };
            self.on_saved(self.cx.me, app, &Order::CutLost(lost));
        }
        self.lose_copies_on(host);
    }

    /// A cut has lasted for some time.
    pub(in crate::daemon) fn on_cut_due(&mut self, app: Tid, epoch: u32) {
        let Some(mut late) = self.checkpoints.cuts.late(&self.cx, app, epoch) else {
            return;
        };
        late.running.retain(|tid| !self.stops(*tid).at_once());
        for tid in late.waiting {
            let why = "it has not called vmlib::init, or is being moved; if it has just started, \
                       try again";
            self.cannot_save(app, tid, FailKind::Refused, why);
        }
        for tid in late.running {
            let why = self.stops(tid).why_late();
            self.cannot_save(app, tid, FailKind::Refused, &why);
        }
        if late.is_over {
            self.end_cut(app, epoch);
        }
    }

    /// A task belongs to another host. If its application was cut before that, the task is saved
    /// there.
    pub(in crate::daemon) fn leave_cut(&mut self, tid: Tid) {
        self.checkpoints.cuts.forget_waiting(tid);
    }

    /// The log has ended a cut.
    pub(in crate::daemon) fn on_cut_ended(&mut self, app: Tid, epoch: u32, saved: bool) {
        let state = self.cx.agreement.state();
        let coordinator = state.coordinator(app).map(|agreed| agreed.host);
        let mut clears = coordinator == Some(self.cx.me);
        let mut generation = state.epochs(app).generation;
        if let Some(mut ended) = self.checkpoints.cuts.end(&mut self.cx, app, epoch) {
            generation = ended.generation;
            // Where the hosts prove not to share a store, each host removes what it wrote.
            clears |= !ended.tids.is_empty();
            let agreed = ended.agreed.take();
            self.end_parts(ended, saved);
            if let Some(agreed) = agreed.filter(|_| coordinator.is_none()) {
                // The application has ended: one of its hosts removes what was written.
                let state = self.cx.agreement.state();
                let hosts = agreed.tasks.iter().map(|task| task.host);
                clears |= hosts.filter(|host| state.is_present(*host)).min() == Some(self.cx.me);
            }
        }
        if !saved {
            self.checkpoints.copies.cancel(&mut self.cx, app, epoch);
        }
        if !saved && (clears || self.cx.has_own_stores()) {
            self.cx.emit(StoreOutput::Drop {
                app,
                generation,
                epoch,
            });
        }
        self.tell_cut_closed(app, epoch, saved);
        self.review_held(app);
        self.drain_on();
        self.review_policy(app);
    }

    /// Sends the results of the requests that end with a cut, and has the tasks of the cut resume, or
    /// end with their application.
    fn end_parts(&mut self, ended: Ended, saved: bool) {
        for (requester, end) in ended.ends.into_iter().filter(|_| saved) {
            self.send_checkpoint_end(requester, end);
        }
        for tid in ended.tids {
            let leaves = self.migration.leaving.contains_key(&tid);
            // An ended task may have a way into the store, too.
            if !saved && !leaves {
                self.cx.emit(MoveOutput::CancelCopy(tid));
            }
            let state = self.cx.agreement.state();
            let task = state.task(tid);
            let status = task.and_then(|task| task.status);
            // If this daemon was given a later state, the application may have been restarted.
            let is_restarted = state.epochs(ended.app).generation > ended.generation;
            if is_restarted || status == Some(ExitStatus::Suspended) {
                self.cx.emit(ProcessOutput::Signal(tid, SIGKILL));
            } else if !leaves {
                // For a moving task, the log decides where it resumes.
                self.resume_in_place(tid);
            }
        }
        self.launch_all(ended.launches);
    }

    /// Starts the process of a spawned task, once its application is not frozen.
    pub(in crate::daemon) fn launch(&mut self, app: Tid, spec: LaunchSpec) {
        if let Some(spec) = self.checkpoints.cuts.delay(app, spec) {
            self.start(spec);
        }
    }

    /// Starts the processes of tasks that were spawned while their application was frozen. Tasks that
    /// have ended since are not started.
    fn launch_all(&mut self, launches: Vec<LaunchSpec>) {
        let lives = |spec: &LaunchSpec| self.cx.agreement.state().living_task(spec.tid).is_some();
        let (living, ended): (Vec<_>, Vec<_>) = launches.into_iter().partition(lives);
        for spec in living {
            self.start(spec);
        }
        for spec in ended {
            self.on_process_ended(spec.tid, ExitStatus::NotStarted);
        }
    }

    fn start(&mut self, spec: LaunchSpec) {
        if let Some(task) = self.tasks.get_mut(&spec.tid) {
            task.launch = Launch::Begun(self.cx.now);
        }
        self.cx.emit(ProcessOutput::Launch(Box::new(spec)));
    }

    /// A task has ended. If its application is frozen, the task cannot be saved any more.
    pub(in crate::daemon) fn end_part_of(&mut self, tid: Tid) {
        let app = self.cx.agreement.state().task(tid).map(|task| task.app);
        if let Some(app) = app
            && let Some(epoch) = self.checkpoints.cuts.frozen(app)
        {
            let saved = PartSaved {
                app,
                epoch,
                tid,
                result: Err(self.cx.no_such_task(tid)),
            };
            self.on_saved(self.cx.me, app, &Order::PartSaved(saved));
        }
    }
}
