//! Whether a task can be moved, and what speaks against it: asked beforehand, of the daemon that
//! would refuse the move, so that both say the same.

use super::{Daemon, LocalTask, asked::MoveAsker, cut::CUT};
use crate::Outbox;
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Tid,
    console::Answer,
    peer::{CheckAsk, CheckEnd, Order},
    task::Failed,
};

/// Why a task that is stopped by a signal stays.
pub(super) const STOPPED: &str =
    "it is stopped by a signal; let it go on first ('vm sig CONT' and its TID)";

impl Daemon {
    /// Somebody here wants to know whether a task can be moved.
    pub(super) fn ask_check(
        &mut self,
        asker: MoveAsker,
        tid: Tid,
        out: &mut Outbox,
    ) -> Result<(), Failed> {
        let Some(task) = self.agreement.state().living_task(tid) else {
            return Err(self.no_such_task(tid));
        };
        let owner = task.host;
        let request = self.note_asked(asker, owner, Some(tid));
        let ask = CheckAsk { request, tid };
        if owner == self.me {
            self.on_check_ask(self.me, &ask, out);
        } else {
            self.send_order(owner, &Order::CheckAsk(ask));
        }
        Ok(())
    }

    pub(super) fn on_check_ask(&mut self, from: HostId, ask: &CheckAsk, out: &mut Outbox) {
        let end = CheckEnd {
            request: ask.request,
            result: self.reasons_against(ask.tid),
        };
        if from == self.me {
            self.on_check_end(end, out);
        } else {
            self.send_order(from, &Order::CheckEnd(end));
        }
    }

    pub(super) fn on_check_end(&mut self, end: CheckEnd, out: &mut Outbox) {
        let answer = end.result.map_or_else(Answer::Failed, Answer::Check);
        self.answer_asked(end.request, &answer, out);
    }

    /// All that is known to speak against moving a task of this host: its own reasons, and that no
    /// host could take it.
    fn reasons_against(&self, tid: Tid) -> Result<Vec<String>, Failed> {
        let state = self.agreement.state();
        if state.living_task(tid).is_none() {
            return Err(self.no_such_task(tid));
        }
        let mut reasons = self.objections(tid);
        if self.is_suspended(tid) {
            let name = tid.show(self.machine);
            reasons.push(format!(
                "it is suspended; 'vm resume {name}' brings it back"
            ));
        }
        if let Err(nowhere) = self.choose_target(self.me, &BTreeSet::new()) {
            reasons.push(nowhere.text);
        }
        Ok(reasons)
    }

    /// What speaks against moving a task of this host, wherever to.
    pub(super) fn objections(&self, tid: Tid) -> Vec<String> {
        if self.is_suspended(tid) {
            let busy = self.leaving.contains_key(&tid);
            let text = "it is being resumed, or handed on, already; try again";
            return Vec::from_iter(busy.then(|| text.to_owned()));
        }
        let agreed = self.agreement.state().living_task(tid);
        let mut reasons = Vec::new();
        if agreed.is_some_and(|task| task.enrolled) {
            reasons.push("it was started from a shell; start it with 'vm run'".to_owned());
        }
        if self.runs.contains_key(&tid) {
            let text = "its terminal is a console of this host; end the run and start the program \
                        with 'vm spawn', or 'vm stop --checkpoint' it and 'vm restart --detach'";
            reasons.push(text.to_owned());
        }
        let task = self.tasks.get(&tid);
        if task.is_some_and(|task| self.cuts.contains_key(&task.app)) {
            reasons.push(CUT.to_owned());
        }
        if task.is_some_and(|task| task.stopped) {
            reasons.push(STOPPED.to_owned());
        }
        if task.is_some_and(|task| task.token.is_some() && task.pid != 0) {
            let text = "it has not called vmlib::init: only programs that use vmlib can be moved; \
                        if it has just started, try again";
            reasons.push(text.to_owned());
        } else if !task.is_some_and(LocalTask::is_settled) || self.leaving.contains_key(&tid) {
            let text = "it is starting, ending, or on its way already; try again";
            reasons.push(text.to_owned());
        }
        reasons
    }
}
