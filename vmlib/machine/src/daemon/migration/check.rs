//! Reasons against a move of a task. The daemon that would refuse the move replies to the check, so
//! that the check and the move give the same reasons.

use crate::daemon::{
    Daemon,
    local_task::LocalTask,
    objection::{CUT, Objection, STOPPED},
    requester::Requester,
    task_life::Launch,
};
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Tid,
    console::Answer,
    limits,
    peer::{CheckAsk, CheckEnd, Order},
    task::Failed,
};

impl Daemon {
    /// Begins the check, requested on this host, whether a task can be moved.
    pub(in crate::daemon) fn ask_check(
        &mut self,
        requester: Requester,
        tid: Tid,
    ) -> Result<(), Failed> {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let owner = task.host;
        let request = self.note_asked(requester, owner, Some(tid));
        let ask = CheckAsk { request, tid };
        if owner == self.cx.me {
            self.on_check_ask(self.cx.me, &ask);
        } else {
            self.cx.send_order(owner, &Order::CheckAsk(ask));
        }
        Ok(())
    }

    pub(in crate::daemon) fn on_check_ask(&mut self, from: HostId, ask: &CheckAsk) {
        let end = CheckEnd {
            request: ask.request,
            result: self.reasons_against(ask.tid),
        };
        if from == self.cx.me {
            self.on_check_end(end);
        } else {
            self.cx.send_order(from, &Order::CheckEnd(end));
        }
    }

    pub(in crate::daemon) fn on_check_end(&mut self, end: CheckEnd) {
        let answer = end.result.map_or_else(Answer::Failed, Answer::Check);
        self.answer_asked(end.request, &answer);
    }

    /// All known reasons against a move of a task of this host: the objections of the task itself,
    /// and the lack of a target.
    fn reasons_against(&self, tid: Tid) -> Result<Vec<String>, Failed> {
        let state = self.cx.agreement.state();
        if state.living_task(tid).is_none() {
            return Err(self.cx.no_such_task(tid));
        }
        let objections = self.objections(tid).into_iter();
        let mut reasons: Vec<String> = objections.map(|it| it.text).collect();
        if self.is_suspended(tid) {
            let name = tid.show(self.cx.machine);
            reasons.push(format!("it is suspended; 'vm resume {name}' resumes it"));
        }
        if let Err(nowhere) = self.choose_target(self.cx.me, &BTreeSet::new()) {
            reasons.push(nowhere.text);
        }
        Ok(reasons)
    }

    /// The objections to a move of a task of this host to any target. Objections that do not pass
    /// come first.
    pub(in crate::daemon) fn objections(&self, tid: Tid) -> Vec<Objection> {
        let busy = self.migration.leaving.contains_key(&tid);
        if self.is_suspended(tid) {
            let text = "it is being resumed, or handed on, already; try again";
            return Vec::from_iter(busy.then(|| Objection::lasting(text)));
        }
        let agreed = self.cx.agreement.state().living_task(tid);
        let mut reasons = Vec::new();
        if agreed.is_some_and(|task| task.enrolled) {
            let text = "it was started from a shell; start it with 'vm run'";
            reasons.push(Objection::lasting(text));
        }
        let ties = self.consoles.ties_master(tid);
        reasons.extend(ties.map(Objection::lasting));
        let task = self.tasks.get(&tid);
        if task.is_some_and(|task| task.stopped) {
            reasons.push(Objection::lasting(STOPPED));
        }
        if task.is_some_and(|task| task.token.is_some() && task.pid != 0) {
            let text = "it has not called vmlib::init: only programs that use vmlib can be moved; \
                        if it has just started, try again";
            reasons.push(match task.map(|task| task.launch) {
                Some(Launch::Done(since)) if self.cx.now < since + limits::CUT_START => {
                    Objection::passing(text)
                }
                _ => Objection::lasting(text),
            });
        } else if busy {
            // Another request moves the task.
            let text = "it is starting, ending, or on its way already; try again";
            reasons.push(Objection::lasting(text));
        } else if !task.is_some_and(LocalTask::is_settled) {
            let text = "it is starting, ending, or on its way already; try again";
            reasons.push(Objection::passing(text));
        }
        if task.is_some_and(|task| self.checkpoints.cuts.has(task.app)) {
            reasons.push(Objection::passing(CUT));
        }
        reasons
    }
}
