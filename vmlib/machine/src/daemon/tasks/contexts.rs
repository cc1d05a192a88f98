//! Requests of tasks for new contexts. The agreed state counts the contexts that were given.

use crate::{
    Void,
    daemon::{
        Daemon,
        task_request::{Reply, Waiting},
    },
};
use vm_wire::{
    Frame, Message, Tid,
    agreed::Change,
    task::{ContextGiven, FailKind, Failed},
};

impl Daemon {
    pub(in crate::daemon) fn ask_context(&mut self, tid: Tid) -> Reply {
        self.propose_context(tid);
        self.parked.for_context.insert(tid);
        Reply::Later(Waiting::Context)
    }

    fn propose_context(&mut self, tid: Tid) {
        let generation = self.cx.generation_of(tid);
        let change = Change::Context { tid, generation };
        self.cx.agreement.propose(change);
    }

    /// No proposal of this daemon is pending any more: contexts for which tasks still wait were given in
    /// entries that a snapshot has replaced, or their proposals were void in an earlier generation.
    /// Proposes these changes again.
    pub(in crate::daemon) fn sweep_lost_contexts(&mut self) {
        let waiting = std::mem::take(&mut self.parked.for_context);
        for tid in waiting {
            if self.awaits_context(tid).is_some() {
                self.propose_context(tid);
                self.parked.for_context.insert(tid);
            }
        }
    }

    /// The log has given a context to a task.
    pub(in crate::daemon) fn on_context(&mut self, tid: Tid, context: u32) {
        self.reply_context(tid, ContextGiven { context }.frame());
    }

    /// The log has voided the request of a task for a context.
    pub(in crate::daemon) fn on_no_context(&mut self, tid: Tid, why: Void) {
        let failed = match why {
            // The task that waits now has made its request in this generation.
            Void::Generation => return,
            Void::Limit => {
                Failed::new(FailKind::Limit, "the machine has given all of its contexts")
            }
            why => Failed::new(FailKind::Refused, why.to_string()),
        };
        self.reply_context(tid, failed.frame());
    }

    fn reply_context(&mut self, tid: Tid, answer: Frame) {
        if let Some(request) = self.awaits_context(tid) {
            self.parked.for_context.remove(&tid);
            self.answer_task(tid, request, answer);
        }
    }

    /// Number of a task's request for a context, if the task waits for one.
    fn awaits_context(&self, tid: Tid) -> Option<u64> {
        let task = self.tasks.get(&tid)?;
        matches!(task.waiting, Some(Waiting::Context)).then_some(task.asked)
    }
}
