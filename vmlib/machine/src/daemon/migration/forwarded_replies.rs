//! Replies that follow their tasks.
//!
//! A move, a check, a drain or a checkpoint may take long, and the task that requested it may move
//! meanwhile, because of that very request. The daemon that accepted the request owes the reply,
//! and sends the reply to the host of the task at that time. The new daemon of the task knows from
//! the task's belongings that the request is under way, and does not carry it out a second time.
//! The new daemon carries a repeated request out only if the daemon that owes the reply is lost.
//!
//! A reply that is ahead of the local log waits until the log has caught up. A reply to a request
//! of an earlier generation of the application is dropped: a restarted task makes its request
//! again, and may give the same number to a different request.

use crate::daemon::{Daemon, task_request::Waiting};
use vm_wire::{
    Frame, HostId, Message, Tid,
    console::Answer,
    peer::{Order, TaskAnswer},
    task::{Checked, Drained, Moved, Resumed, Saved},
};

impl Daemon {
    /// Replies to a task that made its request on this host, wherever the task is now.
    pub(in crate::daemon) fn answer_far_task(
        &mut self,
        tid: Tid,
        generation: u32,
        request: u64,
        answer: &Answer,
    ) {
        let frame = match answer.clone() {
            Answer::Moved(report) => Moved { report }.frame(),
            Answer::Check(reasons) => Checked { reasons }.frame(),
            Answer::Drained(report) => Drained { report }.frame(),
            Answer::Checkpointed(report) => Saved { report }.frame(),
            Answer::Restarted(report) => Resumed { report }.frame(),
            Answer::Failed(failed) => failed.frame(),
            // A task makes no other kind of request to other daemons.
            _ => return,
        };
        let frame = frame.between(self.cx.tid, tid).asked(request);
        self.pass_answer(tid, generation, request, frame);
    }

    /// Gives the reply to the task on this host, or sends it to the task's host. Drops the reply if
    /// the application has been restarted since the request.
    fn pass_answer(&mut self, tid: Tid, generation: u32, request: u64, answer: Frame) {
        if self.cx.living_generation_of(tid) != generation {
            return;
        }
        if self.tasks.contains_key(&tid) {
            self.answer_task(tid, request, answer);
        } else {
            self.send_answer_after(tid, request, &answer);
        }
    }

    /// Sends a reply to the host to which the task has moved.
    pub(in crate::daemon) fn send_answer_after(&mut self, tid: Tid, request: u64, answer: &Frame) {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return;
        };
        let (host, incarnation) = (task.host, task.incarnation);
        let answer = TaskAnswer {
            tid,
            incarnation,
            generation: self.cx.living_generation_of(tid),
            request,
            answer: answer.to_body(),
        };
        if host == self.cx.me {
            self.migration.early_answers.insert(tid, answer);
        } else {
            self.cx.send_order(host, &Order::TaskAnswer(answer));
        }
    }

    /// A reply arrived for a task that is, was or will be on this host.
    pub(in crate::daemon) fn on_task_answer(&mut self, answer: TaskAnswer) {
        let tid = answer.tid;
        let known = self.cx.agreement.state().task(tid);
        if known.is_none_or(|task| task.incarnation < answer.incarnation) {
            self.migration.early_answers.insert(tid, answer);
            return;
        }
        if let Some(frame) = Frame::of_body(&answer.answer) {
            self.pass_answer(tid, answer.generation, answer.request, frame);
        }
    }

    /// The local log has applied the owner of a task: handles the reply that waited for that.
    pub(in crate::daemon) fn review_answer(&mut self, tid: Tid) {
        if let Some(answer) = self.migration.early_answers.remove(&tid) {
            self.on_task_answer(answer);
        }
    }

    /// The daemon of `host` will not reply to the task any more. If the task repeats its request,
    /// this daemon carries the request out.
    pub(in crate::daemon) fn ask_anew(&mut self, tid: Tid, host: HostId) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && task.waiting == Some(Waiting::Elsewhere(host))
        {
            task.waiting = None;
            task.asked = task.asked.saturating_sub(1);
            self.release_task(tid);
        }
    }
}
