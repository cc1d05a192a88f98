//! The steps of checkpoints in which other subsystems have a part.

use super::{copies::Restored, policies::Policies};
use crate::{
    Void,
    daemon::{Daemon, requester::MoveAsker},
};
use vm_wire::{
    CheckpointId, HostId, RequestKey, Tid,
    checkpoint::{CheckpointAsk, CheckpointEnd, Policy, Stop},
    console::Answer,
    peer::Order,
    stores::ForgetStored,
    task::{FailKind, Failed},
};

impl Daemon {
    /// A console, a task or this daemon requests a checkpoint of the application of a task. The reply
    /// comes with the end of the checkpoint.
    pub(in crate::daemon) fn ask_checkpoint(
        &mut self,
        asker: MoveAsker,
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
            .make(&mut self.cx, asker, app, stop);
        self.deliver_effects();
        Ok(())
    }

    /// No coordinator may have taken up a request for a checkpoint.
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
    pub(in crate::daemon) fn on_checkpoint_ask(&mut self, asker: HostId, ask: CheckpointAsk) {
        let requests = &mut self.checkpoints.requests;
        requests.on_ask(&mut self.cx, asker, ask);
        self.deliver_effects();
    }

    /// Forwards a request for a checkpoint to the coordinator here, which is started if it does not
    /// run.
    pub(in crate::daemon) fn request_checkpoint(&mut self, asker: HostId, ask: CheckpointAsk) {
        let key = RequestKey::new(asker, ask.request);
        let of = (ask.app, ask.generation);
        self.ask_or_wait(of, key, Order::CheckpointAsk(ask));
    }

    /// Sends the result of a request to the daemon where it was made.
    pub(in crate::daemon) fn send_checkpoint_end(&mut self, asker: HostId, end: CheckpointEnd) {
        let requests = &mut self.checkpoints.requests;
        requests.send_end(&mut self.cx, asker, end);
        self.deliver_effects();
    }

    /// A request that was made on this host has its result.
    pub(in crate::daemon) fn on_checkpoint_end(&mut self, end: CheckpointEnd) {
        self.checkpoints.requests.on_end(&mut self.cx, end);
        self.deliver_effects();
    }

    /// An application has another coordinator.
    pub(in crate::daemon) fn ask_checkpoints_again(&mut self, app: Tid) {
        self.checkpoints.requests.send_again(&mut self.cx, app);
        self.deliver_effects();
    }

    /// An application has ended, and with it its coordinator.
    pub(in crate::daemon) fn forget_checkpoints(&mut self, app: Tid) {
        if self.cx.agreement.state().recovering(app).is_none() {
            self.restarts.forget(app);
        }
        self.checkpoints.requests.on_app_ended(&mut self.cx, app);
        self.deliver_effects();
    }

    /// An application has ended with a checkpoint.
    pub(in crate::daemon) fn await_end_report(&mut self, app: Tid) {
        self.checkpoints
            .requests
            .await_end_report(&mut self.cx, app);
    }

    /// A user sets the checkpoint policy of the application of a task: the application.
    pub(in crate::daemon) fn set_policy(
        &mut self,
        tid: Tid,
        policy: Policy,
    ) -> Result<Tid, Failed> {
        Policies::propose(&mut self.cx, tid, policy)
    }

    /// The log has a checkpoint policy of an application.
    pub(in crate::daemon) fn on_policy(&mut self, app: Tid) {
        let policy = self.cx.agreement.state().epochs(app).policy;
        let (consoles, cx) = (&mut self.consoles, &mut self.cx);
        consoles.on_policy(cx, (app, policy), &Answer::Done);
        self.review_policy(app);
    }

    /// The application ended before its policy was agreed, or the machine keeps no more policies.
    pub(in crate::daemon) fn on_no_policy(&mut self, app: Tid, policy: Policy, why: Void) {
        let failed = match why {
            // The proposal was of a lost host, which wanted the same policy.
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

    /// A checkpoint may be due. None is made while another is under way, whose end counts the time
    /// anew, nor while the last request is not over: requests would queue up without end.
    pub(in crate::daemon) fn on_policy_due(&mut self, app: Tid) {
        let asker = MoveAsker::Policy(app);
        let checkpoints = &mut self.checkpoints;
        if !checkpoints.policies.take_due(self.cx.now, app)
            || checkpoints.requests.has_of(asker)
            || self.cx.agreement.state().is_cut(app)
        {
            return;
        }
        // Its master may have ended: any task of it will do.
        let any = self.cx.agreement.state().tasks_of(app).next();
        if let Some(tid) = any
            && let Err(failed) = self.ask_checkpoint(asker, tid, None)
        {
            self.on_policy_answer(app, &Answer::Failed(failed));
        }
    }

    /// A checkpoint that a policy wanted was made, or was not.
    pub(in crate::daemon) fn on_policy_answer(&mut self, app: Tid, answer: &Answer) {
        let result = match answer {
            Answer::Checkpointed(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            _ => return,
        };
        self.checkpoints.policies.report(&mut self.cx, app, result);
    }

    /// Restores a task from its part in the store of another host.
    pub(in crate::daemon) fn fetch_task(
        &mut self,
        host: HostId,
        tid: Tid,
        of: (Tid, CheckpointId),
        restored: Restored,
    ) {
        let copies = &mut self.checkpoints.copies;
        copies.fetch(&mut self.cx, host, tid, of, restored);
        self.deliver_effects();
    }

    /// A part, or the image of a suspended task, was sent to another host, or not as a whole.
    pub(in crate::daemon) fn on_part_sent(&mut self, ticket: u64, result: Result<(), Failed>) {
        if let Err(why) = &result {
            self.on_image_not_sent(ticket, why);
        }
        let copies = &mut self.checkpoints.copies;
        copies.on_part_sent(&mut self.cx, ticket, result);
    }

    /// A host is lost, with its store.
    pub(in crate::daemon) fn lose_stores_of(&mut self, host: HostId) {
        for ticket in self.checkpoints.copies.forget_host(host) {
            let copies = &mut self.checkpoints.copies;
            copies.lose_with_host(&mut self.cx, host, ticket);
            self.deliver_effects();
        }
        self.end_commits_at(host);
        self.restarts.lose_stock_of(&mut self.cx, host);
    }

    /// Has the daemons of all other hosts remove the checkpoints of an application.
    pub(in crate::daemon) fn forget_stored(&mut self, app: Tid) {
        for host in self.cx.other_hosts() {
            let order = Order::ForgetStored(ForgetStored { app });
            self.cx.send_order(host, &order);
        }
    }
}
