//! Suspension and resumption of single tasks.
//!
//! ```text
//! suspend   task frozen, image -> store    Relocate here, suspended    its process ends
//! resume    store -> restorer, any host    Relocate there              its process resumes
//! hand on   belongings, no image           Relocate there, suspended
//! ```
//!
//! Each of the three is a move ([`super`]), with its phases, its release and its doubt. Only the
//! destination or origin of the image differs. A suspended task therefore has one owner like any
//! other task: the daemon of its host. Only the owner knows where the image is. The owner keeps the
//! notifications and the request state of the task, and holds frames for the task as for a frozen
//! task. The sender retains a frame that finds no room, and waits for credit.
//!
//! The image is in the store of the owner ([`vm_wire::checkpoint::suspended_image`]). The image is
//! written before the log says that the task is suspended. The image is removed after the log says
//! that the task is not suspended any more: the task was resumed, has ended, or was rolled back
//! with its application. If all hosts share the store, a draining host hands a suspended task on to
//! another host, and the task stays suspended.
//!
//! No checkpoint of an application is made while one of its tasks is suspended.

use super::outgoing::{Leaving, Stage};
use crate::{
    MoveOutput, ProcessOutput, StoreOutput,
    daemon::{
        Daemon, LocalTask, context::Timer, requester::Requester, signal_numbers::SIGKILL,
        task_life::Process,
    },
    placement,
};
use std::collections::BTreeSet;
use vm_wire::{
    HostId, RequestKey, Tid,
    agreed::{Change, ExitStatus},
    checkpoint::{Part, suspended_image},
    limits,
    peer::MoveWay,
    task::{FailKind, Failed},
};

impl Daemon {
    /// Whether a task of this host is a suspended task.
    pub(in crate::daemon) fn is_suspended(&self, tid: Tid) -> bool {
        self.tasks.get(&tid).is_some_and(LocalTask::is_suspended)
    }

    /// Fails if the application has a suspended task: then no checkpoint of it can be made.
    pub(in crate::daemon) fn no_task_suspended(&self, app: Tid) -> Result<(), Failed> {
        match self.cx.agreement.state().suspended_task(app) {
            None => Ok(()),
            Some(tid) => {
                let name = tid.show(self.cx.machine);
                let text = format!(
                    "its task {name} is suspended, and is in no checkpoint: resume it first (vm resume \
                     {name})"
                );
                Err(Failed::new(FailKind::Refused, text))
            }
        }
    }

    /// Begins the suspension of a single task, requested on this host.
    pub(in crate::daemon) fn ask_suspend_task(
        &mut self,
        requester: Requester,
        tid: Tid,
    ) -> Result<(), Failed> {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let owner = task.host;
        if task.suspended {
            let name = tid.show(self.cx.machine);
            let text = format!("task {name} is suspended: 'vm resume {name}' resumes it");
            return Err(Failed::new(FailKind::Refused, text));
        }
        let way = MoveWay {
            precopy: false,
            suspended: true,
            ..MoveWay::default()
        };
        self.want_move(requester, tid, owner, owner, way);
        Ok(())
    }

    /// Begins the resumption of a single task, requested on this host. Without a name in `host`,
    /// the target is the owner, if the owner takes tasks; otherwise another host with room;
    /// otherwise the owner nevertheless.
    pub(in crate::daemon) fn ask_resume_task(
        &mut self,
        requester: Requester,
        tid: Tid,
        host: Option<&str>,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let Some(task) = state.living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let owner = task.host;
        let to = match host {
            Some(name) => state
                .host_called(name)
                .ok_or_else(|| placement::no_such_host(state, name))?,
            None if state.is_living(owner) => owner,
            None => {
                let other = self.choose_target(owner, &BTreeSet::new());
                other.unwrap_or(owner)
            }
        };
        self.want_move(requester, tid, owner, to, MoveWay::default());
        Ok(())
    }

    /// Freezes a task of this host and has its image written into the store, if there is no
    /// objection.
    pub(in crate::daemon) fn begin_suspension(
        &mut self,
        requester: RequestKey,
        tid: Tid,
        way: MoveWay,
    ) -> Result<(), Failed> {
        let shown = tid.show(self.cx.machine).to_string();
        if let Some(reason) = self.objections(tid).into_iter().next() {
            let text = format!("task {shown} cannot be suspended: {}", reason.text);
            return Err(Failed::new(reason.kind(), text));
        }
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let (app, incarnation) = (task.app, task.incarnation);
        let (now, number) = (self.cx.now, self.cx.next_request);
        self.cx.next_request += 1;
        let mut moving = Leaving::new(now, (self.cx.me, incarnation), way, number, requester);
        let generation = self.cx.agreement.state().epochs(app).generation;
        let name = suspended_image(app, tid, generation, incarnation, number);
        moving.name = Some(name.clone());
        self.migration.leaving.insert(tid, moving);
        self.report_phase(tid);
        if let Some(moving) = self.migration.leaving.get_mut(&tid) {
            // A suspension has no target to wait for.
            moving.stage = Stage::Saving;
        }
        self.cx.emit(StoreOutput::Suspend {
            tid,
            app,
            name,
            number,
        });
        match self.stops(tid).at_once() {
            true => self.hold_back(tid),
            // A portable task runs on to its safe point, and may need messages and replies for that.
            // A task with callbacks around saves runs on to a call of the library.
            false => self
                .cx
                .set_timer(now + limits::SAFE_POINT, Timer::Move(tid, incarnation)),
        }
        self.cx
            .set_timer(now + limits::MOVE_TIME, Timer::Move(tid, incarnation));
        self.cx.emit(MoveOutput::Freeze(tid, way));
        Ok(())
    }

    /// Whether a task of this host is being suspended into the store.
    pub(in crate::daemon) fn suspends(&self, tid: Tid) -> bool {
        let moving = self.migration.leaving.get(&tid);
        moving.is_some_and(|moving| moving.way.suspended) && !self.is_suspended(tid)
    }

    /// The image of a task is in the store, or could not be written.
    pub(in crate::daemon) fn on_suspended_image(
        &mut self,
        tid: Tid,
        number: u64,
        result: Result<Part, Failed>,
    ) {
        let now = self.cx.now;
        let Some(moving) = self.migration.leaving.get_mut(&tid).filter(|moving| {
            let writes = matches!(moving.stage, Stage::Saving | Stage::Loading);
            moving.number == number && writes
        }) else {
            return;
        };
        match result {
            Ok(part) => {
                let name = moving.name.clone().unwrap_or_default();
                moving.image = Some(Part { name, ..part });
                moving.loaded = Some(now);
                self.release_task(tid);
            }
            Err(failed) => {
                self.cx.counters.moves.images_lost += 1;
                let failed = self.cannot_move(tid, failed.kind, &failed.text);
                self.abort_move(tid, failed);
            }
        }
    }

    /// Proposes that a task is suspended, once it is frozen and its image is complete. A task whose
    /// process has ended meanwhile has ended, and is not suspended.
    pub(in crate::daemon) fn release_to_store(&mut self, tid: Tid) {
        let (now, me) = (self.cx.now, self.cx.me);
        let task = self.tasks.get(&tid);
        let process = task.is_some_and(|task| task.process.exists());
        let Some(moving) = self.migration.leaving.get_mut(&tid) else {
            return;
        };
        if moving.stage != Stage::Loading || moving.loaded.is_none() || !process {
            return;
        }
        (moving.stage, moving.released) = (Stage::Released, now);
        let incarnation = moving.incarnation;
        self.cx.agreement.propose(Change::Relocate {
            tid,
            from: me,
            to: me,
            incarnation,
            suspended: true,
        });
        self.report_phase(tid);
        self.cx
            .set_timer(now + limits::MOVE_DOUBT, Timer::Move(tid, incarnation));
    }

    /// The log has voided the suspension, because it applied a checkpoint of the application first.
    pub(in crate::daemon) fn on_not_suspended(&mut self, tid: Tid, incarnation: u32) {
        let moving = self.migration.leaving.get(&tid);
        let released =
            |moving: &Leaving| (moving.stage, moving.incarnation) == (Stage::Released, incarnation);
        if !moving.is_some_and(released) || !self.suspends(tid) {
            return;
        }
        let failed = self.cannot_move(tid, FailKind::Refused, crate::daemon::objection::CUT);
        self.resume_in_place(tid);
        self.give_up_move(tid, failed);
        self.save_part(tid);
    }

    /// The log has applied that a task of this host is suspended: ends the process of the task.
    pub(in crate::daemon) fn settle_suspended(&mut self, tid: Tid, incarnation: u32) {
        let Some(moving) = self.migration.leaving.remove(&tid) else {
            return;
        };
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        self.cx.counters.moves.suspended += 1;
        task.process = match moving.image.clone() {
            Some(image) => Process::Suspended(image),
            None => Process::Ended,
        };
        (task.pid, task.frozen) = (0, true);
        let killed = task.signalled == Some(SIGKILL);
        let (app, status) = (task.app, task.end.proposed());
        self.cx.routes.set_open(tid, false);
        self.cx.emit(MoveOutput::Discard(tid));
        if let Some(status) = status {
            // The process ended meanwhile. The exit that was proposed then is void.
            self.propose_end(tid, incarnation, status);
        } else if killed || self.cx.agreement.state().is_forsaken(app) {
            self.kill(tid);
        }
        let requester = moving.requester;
        let report = moving.report(self.cx.now, (self.cx.me, self.cx.me), 0);
        self.tell_move_end(requester, tid, Ok(report));
    }

    /// Fails if a suspended task of this host cannot be resumed on, or handed on to, host `to`.
    pub(in crate::daemon) fn check_suspended_move(
        &self,
        tid: Tid,
        to: HostId,
        way: MoveWay,
    ) -> Result<(), Failed> {
        if way.suspended && to == self.cx.me {
            let text = format!("task {} is suspended already", tid.show(self.cx.machine));
            return Err(Failed::new(FailKind::Refused, text));
        }
        match way.suspended {
            true => self.check_hand_on(tid),
            false => Ok(()),
        }
    }

    /// Whether another host can own a suspended task of this host: only if all hosts share the
    /// store.
    pub(in crate::daemon) fn check_hand_on(&self, tid: Tid) -> Result<(), Failed> {
        if !self.cx.has_own_stores() {
            return Ok(());
        }
        let name = tid.show(self.cx.machine);
        let text = format!(
            "task {name} cannot be handed on: it is suspended, and its image is in the store of host \
             '{}' alone; resume it on another one ('vm resume {name} HOST')",
            self.cx.config.facts.name
        );
        Err(Failed::new(FailKind::Refused, text))
    }

    /// The target is ready for a suspended task: sends the image, or, if the task is handed on,
    /// only releases it.
    pub(in crate::daemon) fn send_suspended_image(&mut self, tid: Tid, addr: String, ticket: u64) {
        let now = self.cx.now;
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let (Some(image), Some(moving)) = (
            task.process.image().cloned(),
            self.migration.leaving.get_mut(&tid),
        ) else {
            return;
        };
        let app = task.app;
        (moving.stage, moving.prepared) = (Stage::Loading, now);
        (moving.copied, moving.saved) = (now, now);
        moving.written.bytes = image.bytes;
        let incarnation = moving.incarnation;
        if moving.way.suspended {
            moving.loaded = Some(now);
        } else {
            moving.ticket = Some(ticket);
            self.cx.emit(StoreOutput::SendSuspended {
                ticket,
                addr,
                app,
                image,
            });
        }
        self.cx
            .set_timer(now + limits::MOVE_TIME, Timer::Move(tid, incarnation));
        self.report_phase(tid);
        self.release_task(tid);
    }

    /// The image of a suspended task could not be sent completely.
    pub(in crate::daemon) fn on_image_not_sent(&mut self, ticket: u64, why: &Failed) {
        let mut leaving = self.migration.leaving.iter();
        let of_it = |moving: &Leaving| moving.ticket == Some(ticket) && moving.loaded.is_none();
        let Some(tid) = leaving.find(|(_, it)| of_it(it)).map(|(tid, _)| *tid) else {
            return;
        };
        self.cx.counters.moves.images_lost += 1;
        let failed = self.cannot_move(tid, why.kind, &why.text);
        self.abort_move(tid, failed);
    }

    /// The log has applied that a suspended task of this host resumes on this host.
    pub(in crate::daemon) fn settle_resumed(&mut self, tid: Tid, incarnation: u32) {
        self.cx.counters.moves.resumed += 1;
        self.drop_image(tid);
        let arrived = self.migration.arriving.remove(&tid);
        let lost = arrived.is_none_or(|arrived| arrived.lost);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        (task.process, task.frozen) = (Process::arrived(lost), false);
        let (app, status) = (task.app, task.end.proposed());
        let raw = app == tid && task.console != HostId::NONE;
        let sent_again = task.absent.missed_chunks();
        let (waited, missed) = task.absent.leave(&mut self.routing.absent_bytes);
        self.cx.routes.set_open(tid, !lost);
        let generation = self.cx.agreement.state().epochs(app).generation;
        self.cx.emit(MoveOutput::Begin {
            tid,
            incarnation,
            generation,
            raw,
        });
        self.consoles.renew_output(&mut self.cx, tid);
        self.tell_again(tid);
        self.send_on(tid, waited, missed);
        if let Some(status) = status {
            // The task was ended meanwhile. The exit that was proposed then is void.
            self.cx.emit(ProcessOutput::Signal(tid, SIGKILL));
            self.propose_end(tid, incarnation, status);
        } else if lost {
            self.lose_arrived(tid, incarnation);
        } else if self.cx.agreement.state().is_forsaken(app) {
            self.kill(tid);
        }
        self.save_part(tid);
        if let Some(moving) = self.migration.leaving.remove(&tid) {
            let requester = moving.requester;
            let report = moving.report(self.cx.now, (self.cx.me, self.cx.me), sent_again);
            self.tell_move_end(requester, tid, Ok(report));
        }
    }

    /// Kills a task of this host, with or without a process.
    pub(in crate::daemon) fn kill(&mut self, tid: Tid) {
        match self.is_suspended(tid) {
            true => self.end_suspended_task(tid),
            false => self.cx.emit(ProcessOutput::Signal(tid, SIGKILL)),
        }
    }

    fn end_suspended_task(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.signalled = Some(SIGKILL);
        }
        self.propose_exit(tid, ExitStatus::Signal(SIGKILL));
    }

    /// Ends the suspended tasks of an application whose master has ended with an error.
    pub(in crate::daemon) fn end_suspended_of(&mut self, master: Tid) {
        let of_it = self.tasks.iter().filter(|(_, task)| task.app == master);
        let suspended = of_it.filter(|(tid, task)| task.is_suspended() && **tid != master);
        for tid in suspended.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.end_suspended_task(tid);
        }
    }

    /// Ends the suspended tasks of this host, because the host leaves or the machine halts.
    pub(in crate::daemon) fn end_suspended(&mut self) {
        let suspended = self.tasks.iter().filter(|(_, task)| task.is_suspended());
        for tid in suspended.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            match self.cx.agreement.state().halted() {
                true => self.drop_image(tid),
                false => self.propose_exit(tid, ExitStatus::HostLost),
            }
        }
    }

    /// Removes what was written of the image of a task whose suspension failed.
    pub(in crate::daemon) fn drop_unused(&mut self, tid: Tid, moving: &Leaving) {
        let app = self.tasks.get(&tid).map(|task| task.app);
        if let (Some(app), Some(name)) = (app, moving.name.clone()) {
            self.cx.emit(StoreOutput::DropSuspended { app, name });
        }
    }

    /// A task is not suspended any more: removes its image.
    pub(in crate::daemon) fn drop_image(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && let Process::Suspended(image) = &mut task.process
        {
            let (app, name) = (task.app, std::mem::take(&mut image.name));
            task.process = Process::Ended;
            self.cx.emit(StoreOutput::DropSuspended { app, name });
        }
    }
}
