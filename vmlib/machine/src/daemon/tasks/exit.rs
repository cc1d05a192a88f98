//! How tasks end.
//!
//! - In order: the task leaves its unacknowledged chunks to the keeper on this host, then sends
//!   [`Exit`]. The daemon proposes the end to the log. When the log has applied the end, the daemon
//!   replies, and the task closes its connection.
//! - Otherwise the daemon observes the end of the process, and proposes that end to the log.
//!
//! The first of the two that the log applies is the task's end.
//!
//! If a master ends without `Exit`, or with a status that is not zero, the daemons kill the other
//! tasks of its application, so that the user sees one clear end. If a master leaves with status
//! zero, the other tasks run on.

use crate::{
    ProcessOutput, Void,
    daemon::{
        Daemon,
        local_task::LocalTask,
        signal_numbers::SIGKILL,
        task_life::{End, Launch, Process},
        task_request::{Reply, Waiting},
    },
};
use vm_wire::{
    Frame, HostId, Message, Tid,
    agreed::{Change, ExitStatus},
    task::{Done, Exit, FailKind, Failed},
};

impl Daemon {
    /// Gives an unacknowledged chunk of a task that leaves to the keeper.
    pub(in crate::daemon) fn on_last_chunk(&mut self, tid: Tid, frame: Frame) {
        let state = self.cx.agreement.state();
        let forgotten = state
            .task(frame.header.to)
            .is_some_and(|task| !task.is_alive());
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| !task.end.leaves()) else {
            return;
        };
        if !forgotten {
            let kept = self.cx.keeper.keep(self.cx.now, frame, &mut self.cx.frames);
            task.not_kept |= kept.is_err();
        }
    }

    /// A task leaves in order.
    pub(in crate::daemon) fn exit(&mut self, tid: Tid, exit: Exit) -> Reply {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return Reply::failed(FailKind::Refused, "this task has ended");
        };
        if std::mem::take(&mut task.not_kept) {
            let text = "too many messages of tasks that have ended wait for their receivers on \
                        this host; try again when those have received";
            return Reply::failed(FailKind::Limit, text);
        }
        self.cx.keeper.left(tid, exit.last);
        // Acknowledgements of the task's messages go to the keeper from now on.
        self.cx.routes.set_open(tid, false);
        self.propose_exit(tid, ExitStatus::Left(exit.status));
        Reply::Later(Waiting::Exit)
    }

    /// Proposes the end of a task of this host to the log, once.
    pub(in crate::daemon) fn propose_exit(&mut self, tid: Tid, status: ExitStatus) {
        let incarnation = match self.cx.agreement.state().living_task(tid) {
            Some(task) if task.host == self.cx.me => task.incarnation,
            _ => return,
        };
        // A task that has ended in the log may have been restarted; then the ended process is of
        // the earlier generation.
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|task| task.end == End::None) {
            task.end = End::Proposed(status);
            self.propose_end(tid, incarnation, status);
        }
    }

    /// Proposes the end of a task of this host, under that incarnation.
    pub(in crate::daemon) fn propose_end(
        &mut self,
        tid: Tid,
        incarnation: u32,
        status: ExitStatus,
    ) {
        let killed = self
            .tasks
            .get(&tid)
            .is_some_and(|task| task.was_killed(status));
        let signalled = self.tasks.get(&tid).and_then(|task| task.signalled);
        let unasked = signalled.is_none() && !self.departure.is_underway() && !self.is_stopping();
        self.cx.agreement.propose(Change::Exit {
            tid,
            host: self.cx.me,
            incarnation,
            status,
            killed,
            unasked,
        });
    }

    pub(in crate::daemon) fn on_launched(&mut self, tid: Tid, pid: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.pid = pid;
            task.launch = Launch::Done(self.cx.now);
        }
        self.consoles.on_process_started(&mut self.cx, tid);
    }

    pub(in crate::daemon) fn on_launch_failed(&mut self, tid: Tid, failed: &Failed) {
        let text = format!("{tid} could not be started: {failed}\n");
        self.on_task_output(tid, 2, text.into_bytes());
        self.on_process_ended(tid, ExitStatus::NotStarted);
    }

    pub(in crate::daemon) fn on_process_ended(&mut self, tid: Tid, status: ExitStatus) {
        if self.tasks.get(&tid).is_none_or(LocalTask::is_suspended) {
            let failed = self.restorer_ended(tid, status);
            return self.on_arrived(tid, Err(failed));
        }
        if self
            .tasks
            .get(&tid)
            .is_none_or(|task| !task.process.exists())
        {
            return;
        }
        self.consoles.send_last(&mut self.cx, tid);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.process = Process::Ended;
        if matches!(task.launch, Launch::Begun(_)) {
            task.launch = Launch::NotBegun;
        }
        let (app, together) = (task.app, task.end.together());
        self.close_routes_of(tid);
        self.cx.routes.set_open(tid, false);
        self.propose_exit(tid, status);
        match together {
            // The task is restarted, or will be.
            Some(ExitStatus::RolledBack) => {}
            // The console waits for the suspended application.
            Some(_) if self.cx.agreement.state().suspended(app).is_some() => {}
            // The log has the reason for the end of the task.
            Some(suspended) => self.end_run(tid, suspended),
            None => self.end_run(tid, status),
        }
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_process_ended(cx, &self.tasks, app);
        consoles.on_process_started(cx, tid);
        self.forget_task(tid);
    }

    /// The log has applied the end of a task, on any host.
    pub(in crate::daemon) fn on_exited(&mut self, tid: Tid, host: HostId, status: ExitStatus) {
        self.cx.routes.ended(tid);
        self.end_moves_of(tid, status);
        self.end_part_of(tid);
        self.hold_no_more(tid);
        self.cx.keeper.ended(tid);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.end.apply(status);
            if status == ExitStatus::RolledBack && task.process.exists() {
                self.cx.emit(ProcessOutput::Signal(tid, SIGKILL));
            }
            self.drop_image(tid);
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            if task.waiting == Some(Waiting::Exit) {
                let request = task.asked;
                self.answer_task(tid, request, Done {}.frame());
            }
            self.forget_task(tid);
        } else if self.ends_for_good(tid, status) {
            // The master of a run was restarted on another host.
            self.end_run(tid, status);
        }
        self.directs.peer_ended(&mut self.cx, tid);
        self.notify_ended(tid, host, status);
        if status != ExitStatus::Left(0) {
            self.kill_application(tid);
        }
        self.release_held();
    }

    /// Whether the end of a master ends its application's run on this host.
    fn ends_for_good(&self, tid: Tid, status: ExitStatus) -> bool {
        let state = self.cx.agreement.state();
        let waits = state.suspended(tid).is_some() || state.recovering(tid).is_some();
        status != ExitStatus::RolledBack && !waits
    }

    /// Kills the tasks of an application on this host, because its master ended with an error.
    fn kill_application(&mut self, master: Tid) {
        for (tid, task) in &self.tasks {
            if task.app == master && task.process.exists() && *tid != master {
                self.cx.emit(ProcessOutput::Signal(*tid, SIGKILL));
            }
        }
        self.end_suspended_of(master);
    }

    /// Forgets the state of a task that has ended: its watches once the log has its end, everything
    /// once its process has ended, too.
    fn forget_task(&mut self, tid: Tid) {
        let task = self.tasks.get_mut(&tid);
        let Some(task) = task.filter(|task| task.end.is_applied()) else {
            return;
        };
        if let Some(token) = task.token.take() {
            self.births.tokens.remove(&token);
        }
        let (waited, _) = task.absent.leave(&mut self.routing.absent_bytes);
        // The senders are notified that the task has ended.
        for frame in waited {
            self.forward(frame, false);
        }
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let (gone, app) = (!task.process.exists(), task.app);
        self.forget_watches(tid);
        if gone {
            self.parked.by_task.remove(&tid);
            self.consoles.forget_output(&mut self.cx, tid);
            self.tasks.remove(&tid);
            self.review_restoring(app);
        }
    }

    /// The log has voided a change.
    pub(in crate::daemon) fn on_void(&mut self, change: Change, why: Void) {
        match change {
            Change::Spawn(record) => self.on_not_spawned(&record, why),
            Change::GroupJoin { group, tid, .. } => self.on_membership_void(tid, &group, true, why),
            Change::GroupLeave { group, tid, .. } => {
                self.on_membership_void(tid, &group, false, why);
            }
            Change::Context { tid, .. } => self.on_no_context(tid, why),
            Change::Coordinator { app, host, .. } => self.on_not_coordinated(app, host),
            Change::Unsuspend {
                app, over: false, ..
            } => self.suspensions.on_not_unsuspended(&mut self.cx, app),
            Change::HostDraining { host, .. } => self.on_not_draining(host),
            Change::Relocate {
                tid,
                incarnation,
                suspended: true,
                ..
            } => self.on_not_suspended(tid, incarnation),
            Change::Abandon {
                app,
                for_good: true,
                ..
            } => self.restarts.on_not_abandoned(&mut self.cx, app),
            Change::Revive(revival) => self.restarts.on_not_revived(&mut self.cx, &revival, why),
            Change::Policy { app, policy } => self.on_no_policy(app, policy, why),
            // A void change of the other kinds needs no action: its purpose was reached already,
            // for example because the host is gone or the task has ended.
            _ => {}
        }
    }
}
