//! The steps of a move at its source: offer, pre-copy, freeze, release; or abort (see [`super`]).

use super::outgoing::{Leaving, Stage};
use crate::{
    MoveOutput, Output, Written,
    daemon::{
        Daemon, LocalTask,
        context::Timer,
        objection::STOPPED,
        task_life::{End, Process},
        task_request::Waiting,
    },
    placement,
};
use vm_wire::{
    Frame, HostId, RequestKey, Tid,
    agreed::Change,
    interrupt::Folders,
    limits,
    peer::{
        Belongings, MoveAbort, MoveLoaded, MoveOffer, MoveReady, MoveRelease, MoveReport, MoveWay,
        Order,
    },
    task::{FailKind, Failed},
};

impl Daemon {
    /// Offers a task of this host to a target, if there is no objection.
    pub(in crate::daemon) fn begin_move(
        &mut self,
        requester: RequestKey,
        tid: Tid,
        to: HostId,
        way: MoveWay,
    ) -> Result<(), Failed> {
        let refuse = |text: String| Failed::new(FailKind::Refused, text);
        let shown = tid.show(self.cx.machine).to_string();
        let state = self.cx.agreement.state();
        let Some(agreed) = state.living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        if agreed.host != self.cx.me {
            let name = self.cx.host_name(agreed.host);
            let text = format!("task {shown} has just moved to '{name}'");
            return Err(Failed::new(FailKind::Busy, text));
        }
        let suspended = self.is_suspended(tid);
        if way.suspended && !suspended && to != self.cx.me {
            // The drain that hands it on looks again how it is to leave.
            let text = format!("task {shown} is not suspended any more");
            return Err(Failed::new(FailKind::Busy, text));
        }
        if way.suspended && !suspended {
            return self.begin_suspension(requester, tid, way);
        }
        if suspended {
            self.check_suspended_move(tid, to, way)?;
        } else if to == self.cx.me {
            let name = &self.cx.config.facts.name;
            return Err(refuse(format!("task {shown} is on '{name}' already")));
        }
        // A suspended task may resume on this host while the host drains.
        let stays = to == self.cx.me && !self.departure.is_underway();
        if !stays && !state.is_living(to) {
            return Err(refuse(placement::takes_no_tasks(state, to)));
        }
        let portable = self.stops(tid).is_portable();
        if !portable && let Some(text) = placement::unlike(state, self.cx.me, to) {
            return Err(refuse(format!(
                "task {shown} cannot be moved there: {text}"
            )));
        }
        if self.unreachable.cut_off(&self.cx).contains(&to) {
            return Err(refuse(format!(
                "task {shown} cannot be moved: {}",
                self.cx.cannot_reach(to)
            )));
        }
        if let Some(reason) = self.objections(tid).into_iter().next() {
            let text = format!("task {shown} cannot be moved: {}", reason.text);
            return Err(Failed::new(reason.kind(), text));
        }
        let incarnation = agreed.incarnation;
        // A portable program supplies its state only at a safe point, so there is no pre-copy.
        let precopy = way.precopy && !portable;
        let way = MoveWay { precopy, ..way };
        let number = self.cx.next_request;
        self.cx.next_request += 1;
        let offer = MoveOffer {
            tid,
            incarnation,
            number,
        };
        let now = self.cx.now;
        let moving = Leaving::new(now, (to, incarnation), way, number, requester);
        if to != self.cx.me && !self.cx.send_order(to, &Order::MoveOffer(offer.clone())) {
            let text = "too many orders wait to be sent to that host; try again";
            return Err(Failed::new(FailKind::Limit, text));
        }
        self.migration.leaving.insert(tid, moving);
        self.consoles.begin_delivery(tid);
        self.cx
            .set_timer(now + limits::MOVE_OFFER_TIME, Timer::Move(tid, incarnation));
        if to == self.cx.me {
            self.report_phase(tid);
            self.on_move_offer(to, &offer);
        }
        Ok(())
    }

    pub(in crate::daemon) fn on_move_ready(&mut self, from: HostId, ready: MoveReady) {
        let (now, tid) = (self.cx.now, ready.tid);
        let Some(moving) = self.migration.leaving.get_mut(&tid).filter(|moving| {
            (moving.to, moving.number, moving.stage) == (from, ready.number, Stage::Offered)
        }) else {
            return;
        };
        let ticket = match ready.ticket {
            Ok(ticket) => ticket,
            Err(failed) => {
                self.cx.counters.moves.offers_refused += 1;
                return self.give_up_move(tid, failed);
            }
        };
        let Some(host) = self.cx.agreement.state().host(from) else {
            return;
        };
        if self.tasks.get(&tid).is_some_and(LocalTask::is_suspended) {
            let addr = host.facts.addr.clone();
            return self.send_suspended_image(tid, addr, ticket);
        }
        (moving.stage, moving.prepared) = (Stage::Copying, now);
        let (addr, incarnation, way) = (host.facts.addr.clone(), moving.incarnation, moving.way);
        self.cx
            .set_timer(now + limits::MOVE_TIME, Timer::Move(tid, incarnation));
        let folders = self.cx.config.work_dir.clone().zip(ready.work_dir);
        let folders = folders.map(|(here, there)| Folders { here, there });
        self.cx.emit(MoveOutput::Copy {
            tid,
            addr,
            ticket,
            way,
            folders: folders.filter(|folders| folders.here != folders.there),
        });
        self.report_phase(tid);
        if !way.precopy {
            self.on_copied(tid, 0, 0);
        }
    }

    /// Pre-copy has ended: orders the task to freeze and to write the rest of its memory.
    pub(in crate::daemon) fn on_copied(&mut self, tid: Tid, bytes: u64, rounds: u32) {
        let Some(moving) = self.migration.leaving.get_mut(&tid) else {
            return;
        };
        if moving.stage != Stage::Copying {
            return;
        }
        (moving.stage, moving.copied) = (Stage::Saving, self.cx.now);
        moving.rounds = (bytes, rounds);
        let way = moving.way;
        let (due, incarnation) = (self.cx.now + limits::SAFE_POINT, moving.incarnation);
        match self.stops(tid).at_once() {
            true => self.hold_back(tid),
            // A portable task runs on to its safe point, and may need messages and replies for that.
            // A task with callbacks around saves runs on to a call of the library.
            false => self.cx.set_timer(due, Timer::Move(tid, incarnation)),
        }
        self.cx.emit(MoveOutput::Freeze(tid, way));
        self.report_phase(tid);
    }

    /// A task that was ordered to freeze has reached a call of the library, and is about to save
    /// itself. `false` if the task is not in that stage of a move.
    pub(in crate::daemon) fn on_held_to_move(&mut self, tid: Tid) -> bool {
        let now = self.cx.now;
        let moving = self.migration.leaving.get_mut(&tid);
        let moving = moving.filter(|moving| moving.stage == Stage::Saving);
        let is_leaving = moving.map(|moving| moving.held = Some(now)).is_some();
        if is_leaving {
            self.hold_back(tid);
        }
        is_leaving
    }

    /// The task is frozen, or will be at once: holds the frames for it.
    pub(in crate::daemon) fn hold_back(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.frozen = true;
        }
        self.close_routes_of(tid);
        self.cx.routes.set_open(tid, false);
    }

    /// The task is frozen and has written its image; or it reports a failure, and the move is
    /// aborted.
    pub(in crate::daemon) fn on_frozen(&mut self, tid: Tid, result: Result<Written, Failed>) {
        let now = self.cx.now;
        if self.is_saving(tid) {
            return self.on_part_written(tid, result);
        }
        let Some(moving) = self.migration.leaving.get_mut(&tid) else {
            return;
        };
        match (result, moving.stage) {
            (Ok(written), Stage::Saving) => {
                (moving.stage, moving.saved, moving.written) = (Stage::Loading, now, written);
                self.hold_back(tid);
                self.report_phase(tid);
                self.release_task(tid);
            }
            (Err(failed), Stage::Copying | Stage::Saving) => {
                self.cx.counters.moves.saves_refused += 1;
                let failed = self.cannot_move(tid, failed.kind, &failed.text);
                self.abort_move(tid, failed);
            }
            // The image was written, but not sent.
            (Err(failed), Stage::Loading) if moving.loaded.is_none() => {
                self.cx.counters.moves.images_lost += 1;
                let failed = self.cannot_move(tid, failed.kind, &failed.text);
                self.abort_move(tid, failed);
            }
            _ => {}
        }
    }

    /// A signal has stopped or continued the process of a task. A stopped process does not write
    /// its image, so a save in progress fails.
    pub(in crate::daemon) fn on_stopped(&mut self, tid: Tid, stopped: bool) {
        self.consoles.on_stopped(&mut self.cx, tid, stopped);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.stopped = stopped;
        let writes = |moving: &Leaving| matches!(moving.stage, Stage::Copying | Stage::Saving);
        if stopped && (self.is_saving(tid) || self.migration.leaving.get(&tid).is_some_and(writes))
        {
            let failed = Failed::new(FailKind::Refused, STOPPED);
            self.on_frozen(tid, Err(failed));
        }
    }

    /// The reply to the requester if a task is not moved.
    pub(in crate::daemon) fn cannot_move(&self, tid: Tid, kind: FailKind, why: &str) -> Failed {
        let shown = tid.show(self.cx.machine);
        let suspends = self
            .migration
            .leaving
            .get(&tid)
            .map(|moving| moving.way.suspended);
        let (verb, stays) = match (self.is_suspended(tid), suspends) {
            (false, Some(true)) => ("suspended", "runs"),
            (false, _) => ("moved", "runs"),
            (true, Some(true)) => ("handed on", "stays suspended"),
            (true, _) => ("resumed", "stays suspended"),
        };
        let mut text = format!("task {shown} cannot be {verb}: {why}");
        // A task that is about to end does not stay anywhere.
        if kind != FailKind::NoSuchTask {
            text = format!("{text}; it {stays} on '{}'", self.cx.config.facts.name);
        }
        Failed::new(kind, text)
    }

    pub(in crate::daemon) fn on_move_loaded(&mut self, from: HostId, loaded: MoveLoaded) {
        let (now, tid) = (self.cx.now, loaded.tid);
        let Some(moving) = self.migration.leaving.get_mut(&tid).filter(|moving| {
            (moving.to, moving.incarnation) == (from, loaded.incarnation)
                && matches!(
                    moving.stage,
                    Stage::Copying | Stage::Saving | Stage::Loading
                )
        }) else {
            return;
        };
        match loaded.result {
            Ok(()) => {
                moving.loaded = Some(now);
                self.release_task(tid);
            }
            Err(failed) => {
                self.cx.counters.moves.images_lost += 1;
                let name = self.cx.host_name(from);
                let why = format!("host '{name}' could not restore it: {}", failed.text);
                let failed = self.cannot_move(tid, failed.kind, &why);
                self.abort_move(tid, failed);
            }
        }
    }

    /// Whether the task is released: only the log decides where the task resumes.
    pub(in crate::daemon) fn is_released(&self, tid: Tid) -> bool {
        let moving = self.migration.leaving.get(&tid);
        moving.is_some_and(|moving| moving.stage == Stage::Released)
    }

    /// At the source: gives the decision about the task to the log, once the target has the whole
    /// image and the task's request has its reply. The release waits neither for the reply to
    /// a move, check, drain or checkpoint, which follows the task, nor for a group version, which the
    /// task requests again at the target. A task whose process has ended meanwhile is not released.
    pub(in crate::daemon) fn release_task(&mut self, tid: Tid) {
        if self.suspends(tid) {
            return self.release_to_store(tid);
        }
        let watches = self.watches_of(tid);
        let (Some(moving), Some(task)) = (self.migration.leaving.get(&tid), self.tasks.get(&tid))
        else {
            return;
        };
        let (asks_again, awaits) = match task.waiting {
            None => (false, HostId::NONE),
            Some(Waiting::GroupVersion(_)) => (true, HostId::NONE),
            Some(Waiting::Asked) => (false, self.cx.me),
            Some(Waiting::Elsewhere(host)) => (false, host),
            Some(_) => return,
        };
        let is_here = task.process != Process::Ended && task.end == End::None;
        if moving.stage != Stage::Loading || moving.loaded.is_none() || !is_here {
            return;
        }
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        if !consoles.is_delivered(cx, tid, task, (moving.to, moving.number)) {
            return;
        }
        let (Some(moving), Some(task)) =
            (self.migration.leaving.get_mut(&tid), self.tasks.get(&tid))
        else {
            return;
        };
        (moving.stage, moving.released) = (Stage::Released, self.cx.now);
        moving.unanswered = awaits != HostId::NONE;
        let (to, incarnation) = (moving.to, moving.incarnation);
        let belongings = Belongings {
            siblings: task.siblings as u32,
            console: task.console,
            watches,
            asked: task.asked.saturating_sub(u64::from(asks_again)),
            answer: task.answer.as_ref().map(Frame::to_body),
            awaits,
            told: task.told,
            untaken: task.untaken.iter().map(Frame::to_body).collect(),
            hosts: self.watching.known.iter().copied().collect(),
            portable: task.stops.is_portable(),
            suspended: task
                .process
                .image()
                .filter(|_| moving.way.suspended)
                .cloned(),
            work_dir: None,
        };
        let release = MoveRelease {
            tid,
            incarnation,
            belongings,
        };
        match to == self.cx.me {
            true => self.on_move_release(to, release),
            false => {
                self.hand_over_with(tid, to);
                self.cx.send_order(to, &Order::MoveRelease(release));
            }
        }
        self.report_phase(tid);
        self.cx.set_timer(
            self.cx.now + limits::MOVE_DOUBT,
            Timer::Move(tid, incarnation),
        );
    }

    /// Aborts a move before its release: the task resumes on this host.
    pub(in crate::daemon) fn abort_move(&mut self, tid: Tid, failed: Failed) {
        if let Some(moving) = self.migration.leaving.get(&tid) {
            let (to, incarnation) = (moving.to, moving.incarnation);
            let abort = MoveAbort { tid, incarnation };
            self.send_abort(to, abort);
        }
        self.abort_at_source(tid, failed);
    }

    /// Aborts a move before its release, without an order to the target.
    pub(in crate::daemon) fn abort_at_source(&mut self, tid: Tid, failed: Failed) {
        let moving = self.migration.leaving.get(&tid);
        if moving.is_some_and(|moving| moving.stage == Stage::Saving) {
            // A task that does not freeze at once may be frozen by now.
            self.hold_back(tid);
        }
        self.resume_in_place(tid);
        self.give_up_move(tid, failed);
    }

    pub(in crate::daemon) fn send_abort(&mut self, to: HostId, abort: MoveAbort) {
        match to == self.cx.me {
            true => self.on_move_abort(to, &abort),
            false => drop(self.cx.send_order(to, &Order::MoveAbort(abort))),
        }
    }

    /// The task resumes on this host, if it is frozen and has a process. The image of the task is
    /// not used.
    pub(in crate::daemon) fn resume_in_place(&mut self, tid: Tid) {
        self.resume_frozen(tid, false);
    }

    /// The task resumes on this host. `writes`: a copy of the process may still write its image.
    pub(in crate::daemon) fn resume_frozen(&mut self, tid: Tid, writes: bool) {
        let task = self.tasks.get_mut(&tid);
        let Some(task) = task.filter(|task| !task.is_suspended()) else {
            return;
        };
        if !std::mem::replace(&mut task.frozen, false) {
            return;
        }
        let open = task.process.is_connected() && !task.end.leaves();
        let generation = self.cx.agreement.state().epochs(task.app).generation;
        let (waited, missed) = task.absent.leave(&mut self.routing.absent_bytes);
        self.cx.routes.set_open(tid, open);
        self.cx.emit(MoveOutput::Resume {
            tid,
            generation,
            writes,
        });
        self.tell_again(tid);
        self.send_on(tid, waited, missed);
    }

    pub(in crate::daemon) fn give_up_move(&mut self, tid: Tid, failed: Failed) {
        if let Some(moving) = self.migration.leaving.remove(&tid) {
            if moving.stage == Stage::Copying {
                self.cx.emit(MoveOutput::CancelCopy(tid));
            }
            self.drop_unused(tid, &moving);
            self.tell_move_end(moving.requester, tid, Err(failed));
        }
    }

    /// A move from this host has ended: logs a note, and reports to the coordinator and the
    /// requester.
    pub(in crate::daemon) fn tell_move_end(
        &mut self,
        requester: RequestKey,
        tid: Tid,
        result: Result<MoveReport, Failed>,
    ) {
        let shown = tid.show(self.cx.machine);
        self.cx.emit(Output::Note(match &result {
            Err(failed) => failed.text.clone(),
            Ok(report) if report.to != self.cx.me => format!(
                "{shown} has moved to '{}': {:.1} MB in {:.1} ms, frozen for {:.1} ms",
                self.cx.host_name(report.to),
                report.bytes as f64 / 1e6,
                report.total_us as f64 / 1e3,
                report.freeze_us() as f64 / 1e3
            ),
            Ok(_) if self.is_suspended(tid) => format!("{shown} is suspended"),
            Ok(_) => format!("{shown} is resumed"),
        }));
        self.remember_move_end(requester, tid, &result);
        self.send_move_end(requester, tid, result);
    }

    /// Aborts a move whose current stage takes too long. Puts a released move in doubt.
    pub(in crate::daemon) fn on_move_due(&mut self, tid: Tid, incarnation: u32) {
        let Some(moving) = self.migration.leaving.get_mut(&tid) else {
            return;
        };
        if moving.incarnation != incarnation {
            return;
        }
        let (begun, prepared, to) = (moving.begun, moving.prepared, moving.to);
        let stage = moving.stage;
        let (copied, held) = (moving.copied, moving.held.is_some());
        // Timers of earlier stages are still set, so the time of the release is compared.
        let in_doubt =
            stage == Stage::Released && self.cx.now >= moving.released + limits::MOVE_DOUBT;
        moving.doubted |= in_doubt;
        let name = self.cx.host_name(to);
        let late = |why: &str| self.cannot_move(tid, FailKind::System, why);
        let no_link = self.unreachable.lost_since(to);
        let no_link = no_link.is_some_and(|since| self.cx.now >= since + limits::MOVE_NO_LINK);
        let stops = self.stops(tid);
        let is_late = !stops.at_once() && !held && self.cx.now >= copied + limits::SAFE_POINT;
        match stage {
            Stage::Saving if is_late => {
                self.cx.counters.moves.saves_refused += 1;
                let failed = self.cannot_move(tid, FailKind::Refused, &stops.why_late());
                self.abort_move(tid, failed);
            }
            Stage::Offered if self.cx.now >= begun + limits::MOVE_OFFER_TIME => {
                let here = &self.cx.config.facts.name;
                let failed = late(&format!("host '{name}' does not answer host '{here}'"));
                self.cx.counters.moves.offers_refused += 1;
                self.abort_move(tid, failed);
            }
            Stage::Copying | Stage::Saving | Stage::Loading if no_link => {
                let time = limits::MOVE_NO_LINK;
                let here = &self.cx.config.facts.name;
                let why = format!("host '{here}' cannot reach host '{name}' for {time:?}");
                let failed = late(&why);
                self.cx.counters.moves.images_lost += 1;
                self.abort_move(tid, failed);
            }
            Stage::Copying | Stage::Saving | Stage::Loading
                if self.cx.now >= prepared + limits::MOVE_TIME =>
            {
                let time = limits::MOVE_TIME;
                let failed = late(&match to == self.cx.me {
                    true => format!("its image took longer than {time:?}"),
                    false => format!("its image did not arrive at host '{name}' within {time:?}"),
                });
                self.cx.counters.moves.images_lost += 1;
                self.abort_move(tid, failed);
            }
            Stage::Released if in_doubt => {
                self.cx.agreement.propose(Change::Stay {
                    tid,
                    host: self.cx.me,
                    incarnation,
                });
                self.cx.set_timer(
                    self.cx.now + limits::MOVE_TIME,
                    Timer::Move(tid, incarnation),
                );
            }
            _ => {}
        }
    }

    /// There is no link to a host: reviews the moves to that host after `limits::MOVE_NO_LINK`.
    pub(in crate::daemon) fn await_link(&mut self, host: HostId) {
        let due = self.cx.now + limits::MOVE_NO_LINK;
        let there = self
            .migration
            .leaving
            .iter()
            .filter(|(_, moving)| moving.to == host);
        let there: Vec<Timer> = there
            .map(|(tid, moving)| Timer::Move(*tid, moving.incarnation))
            .collect();
        for timer in there {
            self.cx.set_timer(due, timer);
        }
    }
}
