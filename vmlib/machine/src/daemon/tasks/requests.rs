//! Requests of tasks to their daemon.
//!
//! A task has at most one request under way. The daemon keeps the number of the request and its
//! reply until the next request. The daemon carries a repeated request out only once: it sends the
//! same reply again, or lets the request wait on. If a reply depends on the log, the daemon replies
//! after the log has applied the change, so every fact in a reply holds on all hosts, at once or
//! later.

use super::spawning::SpawnRequester;
use crate::{
    Output,
    daemon::{
        Daemon,
        context::Timer,
        requester::Requester,
        task_request::{Reply, Waiting},
    },
};
use vm_wire::{
    CodecError, Frame, Message, Op, Tid, limits,
    peer::DrainWay,
    task::{
        Await, CheckTask, ContextAsk, DrainHost, Exit, FailKind, Failed, GroupAsk, GroupChange,
        Hosts, HostsAsk, MoveTask, ResumeApp, RingAsk, RingClosed, SaveApp, Siblings, Signal,
        Spawn, SuspendApp, Tids, Watch, Watched,
    },
};

/// The reply comes from other daemons, unless the request failed.
fn asked(result: Result<(), Failed>) -> Reply {
    match result {
        Ok(()) => Reply::Later(Waiting::Asked),
        Err(failed) => Reply::Now(failed.frame()),
    }
}

impl Daemon {
    /// Handles a frame from a task.
    pub(in crate::daemon) fn on_task(&mut self, tid: Tid, mut frame: Frame) {
        match frame.header.op {
            Op::Ack if frame.header.to.is_none() => self.on_told(tid, frame.header.ack),
            Op::Await => match Await::read(&frame) {
                Ok(awaited) => self.on_await(tid, awaited.tid),
                Err(error) => self.close_task(tid, &error.to_string()),
            },
            Op::RingAsk => match RingAsk::read(&frame) {
                Ok(ask) => self.on_route_ask(tid, ask.peer),
                Err(error) => self.close_task(tid, &error.to_string()),
            },
            Op::RingClosed => match RingClosed::read(&frame) {
                Ok(closed) => self.on_route_closed(tid, &closed),
                Err(error) => self.close_task(tid, &error.to_string()),
            },
            Op::Data | Op::Ack | Op::Resend => {
                if frame.header.from != tid {
                    self.close_task(tid, "a message in another task's name");
                } else if frame.header.to.is_daemon() {
                    // No task has the id of a daemon, so the sender is notified as for an ended
                    // task.
                    self.tell_ended(&frame);
                } else if frame.header.flags != 0 {
                    self.on_last_chunk(tid, frame);
                } else {
                    frame.header.hops = 0;
                    self.forward(frame, false);
                }
            }
            Op::Spawn
            | Op::Exit
            | Op::Signal
            | Op::Watch
            | Op::GroupChange
            | Op::GroupAsk
            | Op::ContextAsk
            | Op::HostsAsk
            | Op::Siblings
            | Op::MoveTask
            | Op::CheckTask
            | Op::DrainHost
            | Op::SaveApp
            | Op::SuspendApp
            | Op::ResumeApp => self.on_request(tid, &frame),
            other => self.close_task(tid, &format!("{other:?} is not for a task to say")),
        }
    }

    fn on_request(&mut self, tid: Tid, frame: &Frame) {
        // The task repeats the request to its owner after the move is decided.
        if self.is_released(tid) {
            return;
        }
        let Some(task) = self
            .tasks
            .get_mut(&tid)
            .filter(|task| task.process.takes_notices())
        else {
            return;
        };
        let number = frame.header.request;
        if number == task.asked && number != 0 {
            let repeat = task.answer.clone();
            self.cx
                .out
                .extend(repeat.map(|answer| Output::Task(tid, answer)));
            return;
        }
        if number < task.asked {
            return;
        }
        if number == 0 {
            return self.close_task(tid, "a request without a number");
        }
        task.asked = number;
        task.answer = None;
        task.waiting = None;
        self.answer_request(tid, frame);
    }

    fn answer_request(&mut self, tid: Tid, frame: &Frame) {
        let number = frame.header.request;
        match self.reply(tid, frame) {
            Ok(Reply::Now(answer)) => self.answer_task(tid, number, answer),
            Ok(Reply::Later(waiting)) => {
                if let Some(task) = self.tasks.get_mut(&tid)
                    && task.answer.is_none()
                {
                    task.waiting = Some(waiting);
                }
            }
            Err(error) => self.close_task(tid, &error.to_string()),
        }
    }

    /// Carries out a request.
    fn reply(&mut self, tid: Tid, frame: &Frame) -> Result<Reply, CodecError> {
        Ok(match frame.header.op {
            Op::Spawn => self.spawn_for_task(tid, Spawn::read(frame)?, frame.header.request),
            Op::Exit => self.exit(tid, Exit::read(frame)?),
            Op::Signal => {
                let signal = Signal::read(frame)?;
                match self.waits_for(signal.tid) {
                    true => self.park(tid, signal.tid, frame),
                    false => self.signal(signal.tid, signal.signal).into(),
                }
            }
            Op::Watch => {
                let watch = Watch::read(frame)?;
                match watch.what {
                    Watched::Task(about) if watch.on && self.waits_for(about) => {
                        self.park(tid, about, frame)
                    }
                    _ => self.watch(tid, &watch, frame.header.request),
                }
            }
            Op::MoveTask => {
                let ask = MoveTask::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                match self.waits_for(ask.tid) {
                    true => self.park(tid, ask.tid, frame),
                    false => asked(self.ask_move(requester, ask.tid, ask.to.as_deref(), ask.way)),
                }
            }
            Op::CheckTask => {
                let ask = CheckTask::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                match self.waits_for(ask.tid) {
                    true => self.park(tid, ask.tid, frame),
                    false => asked(self.ask_check(requester, ask.tid)),
                }
            }
            Op::DrainHost => {
                let ask = DrainHost::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                asked(self.ask_drain(requester, &ask.host, DrainWay::default()))
            }
            Op::SaveApp => {
                SaveApp::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                match self.waits_for(tid) {
                    true => self.park(tid, tid, frame),
                    false => asked(self.ask_checkpoint(requester, tid, None)),
                }
            }
            Op::SuspendApp => {
                let SuspendApp { app, for_ms } = SuspendApp::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                match self.waits_for(app) {
                    true => self.park(tid, app, frame),
                    false => asked(self.ask_suspend(requester, app, for_ms)),
                }
            }
            Op::ResumeApp => {
                let ResumeApp { app } = ResumeApp::read(frame)?;
                let requester = self.requester_of(tid, frame.header.request);
                asked(self.ask_resume(requester, app, None))
            }
            Op::GroupChange => self.change_group(tid, GroupChange::read(frame)?),
            Op::GroupAsk => self.ask_group(tid, GroupAsk::read(frame)?),
            Op::ContextAsk => {
                let ContextAsk {} = ContextAsk::read(frame)?;
                self.ask_context(tid)
            }
            Op::HostsAsk => HostsAsk::read(frame).map(|_| Reply::Now(self.hosts().frame()))?,
            _ => {
                Siblings::read(frame)?;
                match self.lacks_siblings(tid) {
                    true => self.park(tid, tid, frame),
                    false => Reply::Now(self.siblings(tid).frame()),
                }
            }
        })
    }

    fn requester_of(&self, tid: Tid, request: u64) -> Requester {
        Requester::Task {
            tid,
            generation: self.cx.living_generation_of(tid),
            request,
        }
    }

    fn spawn_for_task(&mut self, tid: Tid, spawn: Spawn, request: u64) -> Reply {
        let Some(task) = self.tasks.get(&tid) else {
            return Reply::failed(FailKind::Refused, "this task has ended");
        };
        let (app, console) = (task.app, task.console);
        match self.spawn(tid, request, app, console, spawn, SpawnRequester::Task) {
            Ok(()) => Reply::Later(Waiting::Spawn),
            Err(failed) => Reply::Now(failed.frame()),
        }
    }

    fn hosts(&self) -> Hosts {
        let state = self.cx.agreement.state();
        let row =
            |(id, host): (_, &crate::Host)| (id, host.facts.clone(), state.task_count(id) as u32);
        Hosts {
            hosts: state.hosts().map(row).collect(),
        }
    }

    fn siblings(&self, tid: Tid) -> Tids {
        let state = self.cx.agreement.state();
        let tids = match state.task(tid) {
            Some(task) => state
                .born(task.requester, task.request)
                .map(|(_, tid)| tid)
                .collect(),
            None => Vec::new(),
        };
        Tids { tids }
    }

    /// Whether the local log does not know all siblings of a task yet. The siblings on each host
    /// are an entry of their own.
    fn lacks_siblings(&self, tid: Tid) -> bool {
        let expected = self.tasks.get(&tid).map_or(0, |task| task.siblings);
        self.siblings(tid).tids.len() < expected
    }

    /// Sends the reply to a task's request, and keeps it, unless the task has made another request
    /// since. A frozen task gets the reply when it resumes. A task that is about to freeze for a
    /// cut gets the reply after the cut, because it may not be frozen yet, and the reply may depend
    /// on events after the cut.
    pub(in crate::daemon) fn answer_task(&mut self, tid: Tid, request: u64, answer: Frame) {
        if self.is_cut_ahead(tid) {
            // The reply may depend on events after the cut.
            self.checkpoints.cuts.postpone(tid, request, answer);
            return;
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        if task.asked == request && task.answer.is_none() {
            let answer = answer.between(self.cx.tid, tid).asked(request);
            task.answer = Some(answer.clone());
            task.waiting = None;
            if !task.frozen {
                self.cx.emit(Output::Task(tid, answer));
            }
            self.release_task(tid);
        }
    }

    /// Whether a request about a task has to wait until the log knows the task.
    fn waits_for(&self, about: Tid) -> bool {
        self.cx.agreement.state().task(about).is_none() && self.may_be_born(about)
    }

    fn park(&mut self, tid: Tid, about: Tid, frame: &Frame) -> Reply {
        self.parked.by_task.insert(tid);
        let due = self.cx.now + limits::HELD_TIME;
        self.cx
            .set_timer(due, Timer::Parked(tid, frame.header.request));
        Reply::Later(Waiting::Task(about, frame.clone()))
    }

    /// The log has applied entries: continues the requests that waited for them.
    pub(in crate::daemon) fn release_parked(&mut self) {
        if self.parked.by_task.is_empty() {
            return;
        }
        for tid in std::mem::take(&mut self.parked.by_task) {
            let Some(task) = self.tasks.get(&tid) else {
                continue;
            };
            let Some(Waiting::Task(about, frame)) = task.waiting.clone() else {
                continue;
            };
            let waits = match frame.header.op {
                Op::Siblings => self.lacks_siblings(tid),
                _ => self.waits_for(about),
            };
            if waits {
                self.parked.by_task.insert(tid);
            } else {
                self.answer_request(tid, &frame);
            }
        }
    }

    /// A request has waited long enough for the log. The task that it is about does not exist.
    /// Siblings that are still unknown could not be started.
    pub(in crate::daemon) fn on_parked_too_long(&mut self, tid: Tid, request: u64) {
        if let Some(task) = self.tasks.get(&tid)
            && task.asked == request
            && let Some(Waiting::Task(about, frame)) = &task.waiting
        {
            let answer = match frame.header.op {
                Op::Siblings => self.siblings(tid).frame(),
                _ => self.cx.no_such_task(*about).frame(),
            };
            self.parked.by_task.remove(&tid);
            self.answer_task(tid, request, answer);
        }
    }
}
