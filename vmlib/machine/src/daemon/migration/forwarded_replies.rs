//! Answers that follow their tasks.
//!
//! A move, a check, a drain or a checkpoint may take long, and the task that asked for it may move meanwhile, by
//! that very wish. The daemon that was asked owes the answer, and sends it to wherever the task is
//! then. The task's new daemon knows from its belongings that its request is under way, and does
//! not carry it out a second time; it does so only if the daemon that owes the answer is lost.
//!
//! An answer that is ahead of the log here waits until that has caught up. One that was asked for in an
//! earlier life of the application is dropped: what went back asks anew, perhaps something else by the
//! same number.

use crate::daemon::{Daemon, task_request::Waiting};
use vm_wire::{
    Frame, HostId, Message, Tid,
    console::Answer,
    peer::{Order, TaskAnswer},
    task::{Checked, Drained, Moved, Resumed, Saved},
};

impl Daemon {
    /// Answers a task that asked here, wherever it is now.
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
            // Nothing else is asked for a task.
            _ => return,
        };
        let frame = frame.between(self.cx.tid, tid).asked(request);
        self.pass_answer(tid, generation, request, frame);
    }

    /// The answer goes to the task, here or where it is, unless its application has gone back since.
    fn pass_answer(&mut self, tid: Tid, generation: u32, request: u64, answer: Frame) {
        if self.cx.life_of(tid) != generation {
            return;
        }
        if self.tasks.contains_key(&tid) {
            self.answer_task(tid, request, answer);
        } else {
            self.send_answer_after(tid, request, &answer);
        }
    }

    /// The task has moved: its answer goes after it.
    pub(in crate::daemon) fn send_answer_after(&mut self, tid: Tid, request: u64, answer: &Frame) {
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return;
        };
        let (host, incarnation) = (task.host, task.incarnation);
        let answer = TaskAnswer {
            tid,
            incarnation,
            generation: self.cx.life_of(tid),
            request,
            answer: answer.to_body(),
        };
        if host == self.cx.me {
            self.migration.early_answers.insert(tid, answer);
        } else {
            self.cx.send_order(host, &Order::TaskAnswer(answer));
        }
    }

    /// An answer has come for a task that is here, was here, or will be.
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

    /// The log has come to know where a task is.
    pub(in crate::daemon) fn review_answer(&mut self, tid: Tid) {
        if let Some(answer) = self.migration.early_answers.remove(&tid) {
            self.on_task_answer(answer);
        }
    }

    /// The daemon of `host` will not answer that task any more: what it asks again is carried out.
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
