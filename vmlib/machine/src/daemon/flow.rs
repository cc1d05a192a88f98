//! Steps in which several subsystems take part, in a fixed order.

use super::{
    Daemon,
    requester::Requester,
    restart::Restart,
    suspension::{ToResume, ToSuspend, check_resume, check_suspend, check_suspend_drained},
};
use crate::Reviving;
use vm_wire::{
    CheckpointId, Frame, RequestKey, Tid,
    agreed::ExitStatus,
    checkpoint::{KeptChunks, Stop},
    task::Failed,
};

impl Daemon {
    /// The log has applied a restart, with the host of each task.
    pub(super) fn on_revived(&mut self, app: Tid, generation: u32) {
        let state = self.cx.agreement.state();
        let living = |tid| {
            state
                .living_task(tid)
                .map(|it| (tid, it.host, it.incarnation))
        };
        let tasks: Vec<_> = state.tasks_of(app).filter_map(living).collect();
        let hosts = tasks.iter().map(|(_, host, _)| *host);
        self.consoles.add_hosts(app, hosts);
        for (tid, host, incarnation) in &tasks {
            self.cx.keeper.lives_again(*tid);
            self.cx.routes.moved(*tid, *host, *incarnation);
            self.tell_located(*tid, *host, *incarnation);
        }
        self.release_held();
        let lingers = self.has_processes_of(app);
        self.restarts
            .on_revived(&mut self.cx, app, generation, lingers);
    }

    /// The last process of an application's earlier generation may have ended on this host.
    pub(super) fn review_restoring(&mut self, app: Tid) {
        let lingers = self.has_processes_of(app);
        self.restarts.review_restoring(&mut self.cx, app, lingers);
    }

    fn has_processes_of(&self, app: Tid) -> bool {
        self.tasks.values().any(|task| task.app == app)
    }

    /// All tasks of a restarted application are restored: resumes its tasks on this host.
    pub(super) fn on_started(&mut self, app: Tid, generation: u32, reviving: Option<Reviving>) {
        let (here, kept) = self
            .restarts
            .on_started(&mut self.cx, app, generation, reviving);
        self.deliver_effects();
        // The keeper needs the numbers of its last chunks before a task is notified of an end.
        for kept in &kept {
            self.cx.keeper.take_over(&kept.order);
        }
        for tid in here {
            let task = self.cx.agreement.state().living_task(tid);
            if let Some(incarnation) = task.map(|task| task.incarnation) {
                self.settle_here(tid, incarnation, None);
                self.release_held();
            }
        }
        for kept in kept {
            self.keep_again(&kept, generation);
        }
        self.review_coordinator(app);
        self.review_policy(app);
    }

    /// The log has abandoned a restart before its tasks were resumed.
    pub(super) fn on_abandoned(
        &mut self,
        app: Tid,
        generation: u32,
        requester: RequestKey,
        why: &str,
    ) {
        let (here, _) = self
            .restarts
            .forget_restoring(&mut self.cx, app, generation);
        self.deliver_effects();
        for tid in here {
            self.discard(tid);
        }
        self.restarts
            .on_abandoned(&mut self.cx, app, requester, why);
    }

    /// Retains the messages that an ended task had left for a restarted task of this host.
    fn keep_again(&mut self, kept: &KeptChunks, generation: u32) {
        let to = kept.order.to;
        let incarnation = self.cx.agreement.state().living_task(to);
        let incarnation = incarnation.map_or(0, |task| task.incarnation);
        for mut frame in kept.chunks.iter().filter_map(|bytes| Frame::of_body(bytes)) {
            frame.header.generation = generation;
            frame.header.incarnation = incarnation;
            // The room was checked before the restore.
            let _ = self.cx.keeper.keep(self.cx.now, frame, &mut self.cx.frames);
        }
    }

    /// The process of a task has ended. If it is the master of a run of a local console, the run
    /// ends.
    pub(super) fn end_run(&mut self, tid: Tid, status: ExitStatus) {
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.end_run(cx, &self.tasks, tid, status);
    }

    /// Updates the notes on consoles about hosts that cannot reach each other, after a change of
    /// the hosts of an application.
    pub(super) fn tell_runs_of_links(&mut self) {
        let (cx, apps) = (&mut self.cx, self.consoles.applications());
        self.unreachable.tell_consoles(cx, apps);
        self.deliver_effects();
    }

    /// Suspends an application or a single task for this requester. The reply comes when the
    /// application has ended, or when the suspension has failed.
    pub(super) fn ask_suspend(
        &mut self,
        requester: Requester,
        app: Tid,
        for_ms: u64,
    ) -> Result<(), Failed> {
        match check_suspend(&self.cx, requester, app, for_ms)? {
            ToSuspend::Task(tid) => self.ask_suspend_task(requester, tid),
            ToSuspend::Application(any, how) => {
                self.ask_checkpoint(requester, any, Some(Stop::Suspend(how)))
            }
        }
    }

    /// Suspends the application of a task that cannot leave this host during its drain.
    pub(super) fn suspend_drained(&mut self, requester: Requester, tid: Tid) -> Result<(), Failed> {
        let how = check_suspend_drained(&self.cx)?;
        self.ask_checkpoint(requester, tid, Some(Stop::Suspend(how)))
    }

    /// Resumes an application or a single task for this requester. The reply comes when it runs, or
    /// when the resumption has failed.
    pub(super) fn ask_resume(
        &mut self,
        requester: Requester,
        app: Tid,
        host: Option<&str>,
    ) -> Result<(), Failed> {
        match check_resume(&self.cx, requester, app, host)? {
            ToResume::Task => self.ask_resume_task(requester, app, host),
            ToResume::Application(restart) => {
                self.restarts.request(&mut self.cx, requester, restart)
            }
        }
    }

    /// Resumes an application without a request, one application at a time.
    pub(super) fn resume(&mut self, app: Tid, generation: u32, from: CheckpointId) {
        if self.restarts.is_requested(app) || self.restarts.is_resuming() {
            return;
        }
        let (requester, restart) = (
            Requester::Resume(app, generation),
            Restart::suspended(app, from),
        );
        if let Err(failed) = self.restarts.request(&mut self.cx, requester, restart) {
            self.restarts
                .abandon(&mut self.cx, app, generation, &failed.text);
        }
    }
}
