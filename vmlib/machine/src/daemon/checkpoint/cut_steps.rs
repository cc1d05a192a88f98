//! Checkpoints, as the daemons of an application's tasks and of its coordinator see them
//! ([`crate::coordinator`] drives them).
//!
//! The log makes the cut ([`Change::Cut`]). From the moment on when a daemon applies that, it tells
//! the tasks of the application here nothing new and hands them no message: each stops when it hears
//! of it, and a copy of it writes its image into the store. What its daemon knew of it at that moment
//! goes along. When all tasks stand, the log lets them go on ([`Change::CutGo`]), while the copies
//! write; and when the checkpoint is committed, it ends the cut.
//!
//! If the application is to be stopped, nothing is copied: its tasks stand until the log ends the cut,
//! and with that they end.
//!
//! Portable tasks are brought to their safe points before that ([`super::prepare_steps`]). One that is not there
//! all the same, because it has just become portable or has arrived, stops at its next one. Until then it
//! receives messages, which it may need to get there, but no answers and nothing that the log says: that
//! would be of after the cut. It has [`limits::SAFE_POINT`]. So has a task whose program has callbacks around
//! saves: it comes to a call of the library before the cut, or stops in its next one.
//!
//! What is born meanwhile is started only then: it could speak to tasks that have not stopped yet. A
//! task that is just being moved is saved where it goes on. One that ends before all stand ends the
//! cut without a checkpoint: it was a member.
//!
//! Where each host has a store of its own, a part counts as saved when it is on a second host, too
//! ([`super::copies`]), and all hosts commit.
//!
//! A coordinator that is lost, or one that forgets, does not leave tasks standing: the host of the
//! next one ends the cut, and so does any daemon after [`limits::CUT_TIME`].

use super::{
    commits::Commit,
    part_steps::{Saving, stop_part},
};
use crate::{
    LaunchSpec, Output, Time,
    checkpointing::too_much_kept,
    daemon::{Daemon, context::Timer, signal_numbers::SIGKILL},
};
use std::collections::BTreeMap;
use vm_wire::{
    Frame, HostId, Tid,
    agreed::{Change, ExitStatus},
    checkpoint::{
        AgreedPart, CheckpointEnd, CommitAsk, Committed, CutAsk, CutClose, CutClosed, CutGo,
        CutGone, CutLost, CutMade, KeptChunks, KeptSaved, PartSaved,
    },
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// The cuts that are under way, by application.
pub(in crate::daemon) type Cuts = BTreeMap<Tid, Cut>;

/// One of them.
#[derive(Debug)]
pub(in crate::daemon) struct Cut {
    pub(in crate::daemon) generation: u32,
    pub(in crate::daemon) epoch: u32,
    /// The application ends with it.
    pub(in crate::daemon) blocks: bool,
    /// The tasks have gone on.
    pub(in crate::daemon) gone: bool,
    began: Time,
    /// The tasks here.
    pub(in crate::daemon) parts: BTreeMap<Tid, Stage>,
    /// What was born meanwhile.
    launches: Vec<LaunchSpec>,
    /// What was agreed when it was made, for the coordinator; none if this daemon does not know.
    agreed: Option<AgreedPart>,
    /// The coordinator has asked for the commit.
    pub(in crate::daemon) committing: Option<Commit>,
    /// If the application is to end with it, who is to be told what then.
    ends: Vec<(HostId, CheckpointEnd)>,
}

/// How far a task is.
#[derive(Debug)]
pub(in crate::daemon) enum Stage {
    /// It starts, or is being moved here.
    Waits,
    /// It was told to stop, and its image is being written.
    Saving(Box<Saving>),
    /// Its part is saved, or it could not be, and that was told.
    Told,
}

impl Daemon {
    /// The log has cut an application. A coordinator whose daemon does not know what was agreed then
    /// begins again.
    pub(in crate::daemon) fn on_cut(&mut self, app: Tid, epoch: u32, agreed: Option<AgreedPart>) {
        let state = self.cx.agreement.state();
        let here = |tid: &Tid| {
            state
                .living_task(*tid)
                .is_some_and(|it| it.host == self.cx.me)
        };
        let mut tids: Vec<Tid> = state.tasks_of(app).filter(here).collect();
        let epochs = state.epochs(app);
        let cut = Cut {
            generation: epochs.generation,
            epoch,
            blocks: epochs.cut.is_some_and(|cut| cut.stop.is_some()),
            gone: false,
            began: self.cx.now,
            parts: BTreeMap::new(),
            launches: Vec::new(),
            agreed,
            committing: None,
            ends: Vec::new(),
        };
        self.cuts.insert(app, cut);
        self.warn_of_single_disk(&tids);
        self.tell_cut_made(app);
        self.save_kept(app, epoch);
        // The ways into the store take longer to open than tasks to stop.
        tids.retain(|tid| self.open_part(*tid));
        for tid in tids {
            stop_part(tid, &mut self.cx.out);
        }
        self.end_holding(app);
        for (tid, request, answer) in std::mem::take(&mut self.postponed) {
            self.answer_task(tid, request, answer);
        }
        let now = self.cx.now;
        self.cx
            .set_timer(now + limits::CUT_START, Timer::Cut(app, epoch));
        self.cx
            .set_timer(now + limits::SAFE_POINT, Timer::Cut(app, epoch));
        self.cx
            .set_timer(now + limits::CUT_TIME, Timer::Cut(app, epoch));
    }

    /// There is one disk for what is to be on two.
    fn warn_of_single_disk(&mut self, tids: &[Tid]) {
        let second = self.cx.agreement.state().second_host(self.cx.me);
        if self.cx.has_own_stores() && second.is_none() && !tids.is_empty() {
            let text = "the images of this checkpoint are on the disk of this host alone: there is no \
                        second one that takes tasks (vm add)";
            self.cx.emit(Output::Note(text.to_owned()));
        }
    }

    /// This daemon's first state may be of after a cut that waits for what this host keeps.
    pub(in crate::daemon) fn take_part_in_cuts(&mut self) {
        let state = self.cx.agreement.state();
        let cut: Vec<Tid> = state.apps().filter(|app| state.is_standing(*app)).collect();
        for app in cut {
            let epoch = self.cx.agreement.state().epochs(app).epoch;
            self.on_cut(app, epoch, None);
        }
    }

    /// Whether the application of a task was cut in the log, and that is still to be carried out here:
    /// the agreed state is ahead of what this daemon does by the entries that came together.
    pub(in crate::daemon) fn is_cut_ahead(&self, tid: Tid) -> bool {
        let Some(app) = self.tasks.get(&tid).map(|task| task.app) else {
            return false;
        };
        let state = self.cx.agreement.state();
        let known = self.cuts.get(&app).map(|cut| cut.epoch);
        state.is_standing(app) && known != Some(state.epochs(app).epoch)
    }

    /// Its own coordinator learns of the cut.
    fn tell_cut_made(&mut self, app: Tid) {
        if self.serving_coordinator(app).is_none() {
            return;
        }
        match self.cuts.get(&app).map(|cut| (cut.epoch, &cut.agreed)) {
            Some((_, Some(agreed))) => {
                let agreed = agreed.clone();
                let made = Order::CutMade(CutMade { agreed });
                self.mail_to_coordinator(app, self.cx.me, &made);
            }
            Some((epoch, None)) => self.end_cut(app, epoch),
            None => {}
        }
    }

    /// All tasks of a cut stand: those of this host go on.
    pub(in crate::daemon) fn on_cut_gone(&mut self, app: Tid, epoch: u32) {
        let now = self.cx.now;
        let generation = self.cx.agreement.state().epochs(app).generation;
        let Some(cut) = self.cuts.get_mut(&app).filter(|cut| cut.epoch == epoch) else {
            return;
        };
        cut.gone = true;
        if cut.generation != generation {
            // The application has gone back since: what stands here has ended.
            return;
        }
        let mut tids = Vec::new();
        for (tid, stage) in &mut cut.parts {
            if let Stage::Saving(saving) = stage {
                saving.went = Some(now);
                tids.push(*tid);
            }
        }
        let launches = std::mem::take(&mut cut.launches);
        for tid in &tids {
            self.go_on(*tid, true);
        }
        self.cx
            .out
            .extend(tids.iter().map(|tid| Output::StoreCopy(*tid)));
        for tid in tids {
            self.review_part(tid);
        }
        self.launch_waiting(launches);
        self.tell_cut_gone(app, epoch);
    }

    /// Starts what was born while its application stood.
    fn launch_waiting(&mut self, launches: Vec<LaunchSpec>) {
        let lives = |spec: &LaunchSpec| self.cx.agreement.state().living_task(spec.tid).is_some();
        let (born, ended): (Vec<_>, Vec<_>) = launches.into_iter().partition(lives);
        for spec in born {
            self.start(spec);
        }
        for spec in ended {
            let status = ExitStatus::NotStarted;
            self.on_process_ended(spec.tid, status);
        }
    }

    /// Says something about the cut to the coordinator, wherever that is. Who comes next ends the cut.
    pub(in crate::daemon) fn tell_coordinator_of(&mut self, app: Tid, order: &Order) {
        match self.cx.agreement.state().coordinator(app) {
            Some(agreed) if agreed.host == self.cx.me => self.on_saved(self.cx.me, app, order),
            Some(agreed) => {
                self.cx.send_order(agreed.host, order);
            }
            None => {}
        }
    }

    /// A host tells the coordinator here what came of a task, or what it keeps.
    pub(in crate::daemon) fn on_saved(&mut self, host: HostId, app: Tid, order: &Order) {
        if self.serving_coordinator(app).is_some() {
            self.mail_to_coordinator(app, host, order);
        }
    }

    /// Tells the coordinator what is kept here of tasks that have ended for those of its application.
    /// They acknowledge nothing until the cut ends, so it is as good as at the cut.
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
            Err(too_much_kept(bytes))
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

    /// A host is lost, with what it kept and what was being written there.
    pub(in crate::daemon) fn lose_parts_of(&mut self, host: HostId) {
        let cuts: Vec<_> = self
            .cuts
            .iter()
            .map(|(app, cut)| (*app, cut.epoch))
            .collect();
        for (app, epoch) in cuts {
            let lost = CutLost { app, epoch, host };
            self.on_saved(self.cx.me, app, &Order::CutLost(lost));
        }
        self.lose_copies_on(host);
    }

    /// The coordinator here wants a cut.
    pub(in crate::daemon) fn on_cut_ask(&mut self, ask: &CutAsk) {
        let (app, term, stop) = (ask.app, ask.term, ask.stop);
        let epochs = self.cx.agreement.state().epochs(app);
        // A cut that is on its way into the log is not refused any more: no coordinator would end it.
        if epochs.cut.is_none()
            && !self.cx.agreement.is_pending()
            && let Err(failed) = self.no_task_suspended(app)
        {
            // Else the last host that prepares would have the cut made, for no coordinator.
            self.cancel_preparation(app);
            let end = CheckpointEnd {
                request: 0,
                app,
                result: Err(failed),
            };
            return self.mail_to_coordinator(app, self.cx.me, &Order::CheckpointEnd(end));
        }
        match epochs.cut {
            Some(cut) if cut.term == term => self.tell_cut_made(app),
            Some(_) => self.end_cut(app, epochs.epoch),
            None if !self.is_prepared(ask) || self.cx.agreement.is_pending() => {}
            None => {
                let epoch = epochs.epoch + 1;
                self.cx.agreement.propose(Change::Cut {
                    app,
                    epoch,
                    term,
                    stop,
                });
            }
        }
    }

    /// The coordinator here knows that all tasks stand.
    pub(in crate::daemon) fn on_cut_go(&mut self, go: CutGo) {
        let CutGo { app, epoch } = go;
        let epochs = self.cx.agreement.state().epochs(app);
        match epochs.cut.filter(|_| epochs.epoch == epoch) {
            Some(cut) if cut.gone => self.tell_cut_gone(app, epoch),
            Some(_) if !self.cx.agreement.is_pending() => {
                self.cx.agreement.propose(Change::CutGo { app, epoch });
            }
            _ => {}
        }
    }

    fn tell_cut_gone(&mut self, app: Tid, epoch: u32) {
        if self.serving_coordinator(app).is_some() {
            let gone = CutGone { app, epoch };
            self.mail_to_coordinator(app, self.cx.me, &Order::CutGone(gone));
        }
    }

    /// The coordinator here has all parts.
    pub(in crate::daemon) fn on_commit_ask(&mut self, ask: CommitAsk) {
        let agreed = &ask.checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        let begins = |cut: &Cut| cut.epoch == epoch && cut.committing.is_none();
        if !self.cuts.get(&app).is_some_and(begins) {
            return;
        }
        let committing = Commit::begin(&mut self.cx, &ask.checkpoint);
        if let Some(cut) = self.cuts.get_mut(&app) {
            cut.committing = Some(committing);
        }
        self.cx.emit(Output::Commit(Box::new(ask.checkpoint)));
    }

    /// A checkpoint is in the store here, or is not.
    pub(in crate::daemon) fn on_committed(&mut self, committed: Committed) {
        let Committed { app, epoch, result } = committed;
        match self.checkpoints.copies.take_commit(app, epoch) {
            Some(asker) => {
                let committed = Committed { app, epoch, result };
                self.cx.send_order(asker, &Order::Committed(committed));
            }
            None => self.end_commit_at(self.cx.me, app, epoch, result),
        }
    }

    /// A host has committed a checkpoint, or has not.
    pub(in crate::daemon) fn on_committed_at(&mut self, host: HostId, end: Committed) {
        let name = self.cx.host_name(host);
        let result = end.result.map_err(|why| {
            let text = format!("on host '{name}': {}", why.text);
            Failed::new(why.kind, text)
        });
        self.end_commit_at(host, end.app, end.epoch, result);
    }

    /// A host has committed, has failed to, or is lost. The coordinator learns the result of the last
    /// one.
    fn end_commit_at(&mut self, host: HostId, app: Tid, epoch: u32, result: Result<(), Failed>) {
        let cut = self.cuts.get_mut(&app).filter(|cut| cut.epoch == epoch);
        let Some(commit) = cut.and_then(|cut| cut.committing.as_mut()) else {
            return;
        };
        if let Some(result) = commit.end_at(host, result) {
            self.tell_committed(Committed { app, epoch, result });
        }
    }

    /// A host is lost: no commit there is awaited any more.
    pub(super) fn end_commits_at(&mut self, host: HostId) {
        let cuts = self.cuts.iter();
        let apps: Vec<_> = cuts.map(|(app, cut)| (*app, cut.epoch)).collect();
        for (app, epoch) in apps {
            self.end_commit_at(host, app, epoch, Ok(()));
        }
    }

    /// It is in the stores where it has to be, or not in all of them.
    fn tell_committed(&mut self, committed: Committed) {
        if self.serving_coordinator(committed.app).is_some() {
            let app = committed.app;
            let order = Order::Committed(committed);
            self.mail_to_coordinator(app, self.cx.me, &order);
        }
    }

    /// The coordinator here ends the cut.
    pub(in crate::daemon) fn on_cut_close(&mut self, close: CutClose) {
        let CutClose {
            app,
            epoch,
            saved,
            cost_us,
            ends,
        } = close;
        let epochs = self.cx.agreement.state().epochs(app);
        if epochs.cut.is_some() && epochs.epoch == epoch {
            if let Some(cut) = self.cuts.get_mut(&app) {
                cut.ends = ends;
                cut.ends.truncate(1 + limits::CHECKPOINTS_WAITING_MAX);
            }
            if !self.cx.agreement.is_pending() {
                self.cx.agreement.propose(Change::CutEnd {
                    app,
                    epoch,
                    saved,
                    cost_us,
                });
            }
        } else {
            let saved = epochs.saved == epoch;
            self.tell_cut_closed(app, epoch, saved);
        }
    }

    fn tell_cut_closed(&mut self, app: Tid, epoch: u32, saved: bool) {
        if self.serving_coordinator(app).is_some() {
            let closed = CutClosed { app, epoch, saved };
            self.mail_to_coordinator(app, self.cx.me, &Order::CutClosed(closed));
        }
    }

    /// Has the log end a cut without a checkpoint.
    fn end_cut(&mut self, app: Tid, epoch: u32) {
        self.cx.agreement.propose(Change::CutEnd {
            app,
            epoch,
            saved: false,
            cost_us: 0,
        });
    }

    /// Another coordinator serves here: a cut of the last one's is no use to it.
    pub(in crate::daemon) fn end_cut_of_others(&mut self, app: Tid, term: u32) {
        let epochs = self.cx.agreement.state().epochs(app);
        if epochs.cut.is_some_and(|cut| cut.term != term) {
            self.end_cut(app, epochs.epoch);
        }
    }

    /// A cut has lasted for some time.
    pub(in crate::daemon) fn on_cut_due(&mut self, app: Tid, epoch: u32) {
        let Some(cut) = self.cuts.get(&app).filter(|cut| cut.epoch == epoch) else {
            return;
        };
        let waits = cut
            .parts
            .iter()
            .filter(|(_, it)| matches!(it, Stage::Waits));
        let waits: Vec<Tid> = waits.map(|(tid, _)| *tid).collect();
        let late = cut.began + limits::SAFE_POINT <= self.cx.now;
        let runs = |(tid, it): &(&Tid, &Stage)| {
            let is_on_its_way = |saving: &Saving| saving.held.is_none() && saving.stood.is_none();
            let on_its_way = matches!(it, Stage::Saving(it) if is_on_its_way(it));
            late && on_its_way && !self.stops(**tid).at_once()
        };
        let run: Vec<Tid> = cut.parts.iter().filter(runs).map(|(tid, _)| *tid).collect();
        for tid in &waits {
            let why = "it has not called vmlib::init, or is being moved; if it has just started, \
                       try again";
            self.cannot_save(app, *tid, FailKind::Refused, why);
        }
        for tid in &run {
            let why = self.stops(*tid).why_late();
            self.cannot_save(app, *tid, FailKind::Refused, &why);
        }
        // The third timer of a cut is the last one.
        let timer = Timer::Cut(app, epoch);
        if !self.cx.timers.iter().any(|(_, other)| *other == timer) {
            self.end_cut(app, epoch);
        }
    }

    /// A task is another host's: if it was cut before that, it is saved there.
    pub(in crate::daemon) fn leave_cut(&mut self, tid: Tid) {
        for cut in self.cuts.values_mut() {
            if matches!(cut.parts.get(&tid), Some(Stage::Waits)) {
                cut.parts.remove(&tid);
            }
        }
    }

    /// The log has ended a cut.
    pub(in crate::daemon) fn on_cut_ended(&mut self, app: Tid, epoch: u32, saved: bool) {
        let coordinator = self.cx.agreement.state().coordinator(app);
        let mut clears = coordinator.is_some_and(|it| it.host == self.cx.me);
        let mut generation = self.cx.agreement.state().epochs(app).generation;
        if self.cuts.get(&app).is_some_and(|cut| cut.epoch == epoch)
            && let Some(cut) = self.cuts.remove(&app)
        {
            self.cx.cancel_timer(Timer::Cut(app, epoch));
            generation = cut.generation;
            for (asker, end) in cut.ends.into_iter().filter(|_| saved) {
                self.send_checkpoint_end(asker, end);
            }
            // Where the stores of hosts prove not to be one after all, each clears up what it wrote.
            clears |= !cut.parts.is_empty();
            for tid in cut.parts.into_keys() {
                // Also of one that has ended there may be a way into the store.
                if !saved && !self.migration.leaving.contains_key(&tid) {
                    self.cx.emit(Output::CancelCopy(tid));
                }
                let state = self.cx.agreement.state();
                let status = state.task(tid).and_then(|task| task.status);
                // If this daemon was given a later state, the application may be back already.
                let is_back = state.epochs(app).generation > cut.generation;
                if is_back || status == Some(ExitStatus::Suspended) {
                    self.cx.emit(Output::Signal(tid, SIGKILL));
                } else if !self.migration.leaving.contains_key(&tid) {
                    // Of one that is being moved the log says where it goes on.
                    self.thaw(tid);
                }
            }
            self.launch_waiting(cut.launches);
            if let Some(agreed) = cut.agreed.filter(|_| coordinator.is_none()) {
                // The application has ended: one of its hosts clears up.
                let state = self.cx.agreement.state();
                let hosts = agreed.tasks.iter().map(|task| task.host);
                clears |= hosts.filter(|host| state.is_present(*host)).min() == Some(self.cx.me);
            }
        }
        if !saved {
            self.checkpoints.copies.cancel(&mut self.cx, app, epoch);
        }
        if !saved && (clears || self.cx.has_own_stores()) {
            self.cx.emit(Output::Drop {
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

    /// Starts the process of a task that was born; not while its application stands.
    pub(in crate::daemon) fn launch(&mut self, app: Tid, spec: LaunchSpec) {
        match self.cuts.get_mut(&app) {
            Some(cut) if !cut.gone => cut.launches.push(spec),
            _ => self.start(spec),
        }
    }

    fn start(&mut self, spec: LaunchSpec) {
        if let Some(task) = self.tasks.get_mut(&spec.tid) {
            task.starting = Some(self.cx.now);
        }
        self.cx.emit(Output::Launch(Box::new(spec)));
    }

    /// A task has ended: if it was to be saved, it cannot be any more, unless a copy of it writes its
    /// image.
    pub(in crate::daemon) fn end_part_of(&mut self, tid: Tid) {
        let app = self.cx.agreement.state().task(tid).map(|task| task.app);
        if let Some(app) = app
            && let Some(cut) = self.cuts.get(&app).filter(|cut| !cut.gone)
        {
            let epoch = cut.epoch;
            let result = Err(self.cx.no_such_task(tid));
            let saved = PartSaved {
                app,
                epoch,
                tid,
                result,
            };
            self.on_saved(self.cx.me, app, &Order::PartSaved(saved));
        }
    }
}
