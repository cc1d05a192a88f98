//! Requests for checkpoints, and the policies with which daemons make checkpoints without a request.

use super::policies::Policies;
use crate::{
    Void,
    daemon::{Daemon, requester::Requester},
};
use vm_wire::{
    HostId, RequestKey, Tid,
    checkpoint::{CheckpointAsk, CheckpointEnd, Policy, Stop},
    console::Answer,
    peer::Order,
    task::{FailKind, Failed},
};

/// Requests.
impl Daemon {
    /// A console, a task or this daemon requests a checkpoint of the application of a task. The reply
    /// comes with the end of the checkpoint.
    pub(in crate::daemon) fn ask_checkpoint(
        &mut self,
        requester: Requester,
        tid: Tid,
        stop: Option<Stop>,
    ) -> Result<(), Failed> {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let app = task.app;
        self.no_task_suspended(app)?;
        self.checkpoints
            .requests
            .make(&mut self.cx, requester, app, stop);
        self.deliver_effects();
        Ok(())
    }

    /// A coordinator has had the time to take up a request for a checkpoint.
    pub(in crate::daemon) fn on_checkpoint_asked_due(&mut self, request: u64) {
        let requests = &mut self.checkpoints.requests;
        if let Some(app) = requests.on_due(&mut self.cx, request) {
            let result = Err(self.not_taken_up(app));
            let end = CheckpointEnd {
                request,
                app,
                result,
            };
            self.on_checkpoint_end(end);
        }
    }

    /// A daemon requests a checkpoint of the coordinator here.
    pub(in crate::daemon) fn on_checkpoint_ask(&mut self, requester: HostId, ask: CheckpointAsk) {
        let requests = &mut self.checkpoints.requests;
        requests.on_ask(&mut self.cx, requester, ask);
        self.deliver_effects();
    }

    /// Forwards a request for a checkpoint to the coordinator here, which is started if it does not
    /// run.
    pub(in crate::daemon) fn request_checkpoint(&mut self, requester: HostId, ask: CheckpointAsk) {
        let key = RequestKey::new(requester, ask.request);
        let of = (ask.app, ask.generation);
        self.ask_or_wait(of, key, Order::CheckpointAsk(ask));
    }

    /// Sends the result of a request to the daemon where it was made.
    pub(in crate::daemon) fn send_checkpoint_end(&mut self, requester: HostId, end: CheckpointEnd) {
        let requests = &mut self.checkpoints.requests;
        requests.send_end(&mut self.cx, requester, end);
        self.deliver_effects();
    }

    /// A request that was made on this host has its result.
    pub(in crate::daemon) fn on_checkpoint_end(&mut self, end: CheckpointEnd) {
        self.checkpoints.requests.on_end(&mut self.cx, end);
        self.deliver_effects();
    }

    /// An application has another coordinator, which does not know the requests that were made here.
    pub(in crate::daemon) fn ask_checkpoints_again(&mut self, app: Tid) {
        self.checkpoints.requests.send_again(&mut self.cx, app);
        self.deliver_effects();
    }

    /// An application has ended, and with it its coordinator: its requests have no other end.
    pub(in crate::daemon) fn forget_checkpoints(&mut self, app: Tid) {
        if self.cx.agreement.state().recovering(app).is_none() {
            self.restarts.forget(app);
        }
        self.checkpoints.requests.on_app_ended(&mut self.cx, app);
        self.deliver_effects();
    }

    /// An application has ended with a checkpoint. The result is awaited from the daemon of the
    /// coordinator.
    pub(in crate::daemon) fn await_end_report(&mut self, app: Tid) {
        self.checkpoints
            .requests
            .await_end_report(&mut self.cx, app);
    }
}

/// Policies.
impl Daemon {
    /// Proposes a checkpoint policy for the application of a task, as a user requested. Returned is
    /// the application.
    pub(in crate::daemon) fn set_policy(
        &mut self,
        tid: Tid,
        policy: Policy,
    ) -> Result<Tid, Failed> {
        Policies::propose(&mut self.cx, tid, policy)
    }

    /// The log has set the checkpoint policy of an application.
    pub(in crate::daemon) fn on_policy(&mut self, app: Tid) {
        let policy = self.cx.agreement.state().epochs(app).policy;
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_policy(cx, (app, policy), &Answer::Done);
        self.review_policy(app);
    }

    /// The log has refused a checkpoint policy: the application has ended, or the machine keeps no more
    /// policies.
    pub(in crate::daemon) fn on_no_policy(&mut self, app: Tid, policy: Policy, why: Void) {
        let failed = match why {
            // A lost host had proposed the same policy.
            Void::Proposer => return,
            Void::NoTask(_) => self.cx.no_such_task(app),
            why => Failed::new(FailKind::Refused, why.to_string()),
        };
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_policy(cx, (app, policy), &Answer::Failed(failed));
    }

    /// A fact has changed that decides when this daemon makes the next checkpoint.
    pub(in crate::daemon) fn review_policy(&mut self, app: Tid) {
        self.checkpoints.policies.review(&mut self.cx, app);
    }

    /// A checkpoint may be due. None is requested while another checkpoint is under way, since its end
    /// sets the next time, nor while the last request has no result, since requests would queue up
    /// without end.
    pub(in crate::daemon) fn on_policy_due(&mut self, app: Tid) {
        let requester = Requester::Policy(app);
        let checkpoints = &mut self.checkpoints;
        if !checkpoints.policies.take_due(self.cx.now, app)
            || checkpoints.requests.has_of(requester)
            || self.cx.agreement.state().is_cut(app)
        {
            return;
        }
        // Any task of the application will do: the master may have ended.
        let any = self.cx.agreement.state().tasks_of(app).next();
        if let Some(tid) = any
            && let Err(failed) = self.ask_checkpoint(requester, tid, None)
        {
            self.on_policy_answer(app, &Answer::Failed(failed));
        }
    }

    /// A request that a policy made has its reply.
    pub(in crate::daemon) fn on_policy_answer(&mut self, app: Tid, answer: &Answer) {
        let result = match answer {
            Answer::Checkpointed(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            _ => return,
        };
        self.checkpoints.policies.report(&mut self.cx, app, result);
    }
}
