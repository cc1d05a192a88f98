//! The coordinators of applications, from the view of their daemons. The crate `vm-coordinator`
//! contains the decisions of coordinators.
//!
//! A coordinator is a process beside a daemon. The library of a master forks the first one: the
//! daemon sends one end of a socket with the master's Welcome and keeps the other end. If the
//! library forks no coordinator, or if the process ends or hangs, the daemon starts a coordinator
//! process itself. The steps are:
//!
//! - The process reports that it is ready.
//! - The daemon proposes it as coordinator ([`Change::Coordinator`]) under the next term.
//! - When the log has applied that change, the daemon sends `Serve` to the process, and accepts
//!   mail from it.
//!
//! The agreed state determines the host that has to start a coordinator
//! ([`Agreed::coordinating_host`](crate::Agreed::coordinating_host)). Each daemon reviews this
//! whenever the state may have changed it.
//!
//! A daemon sends the mail of its coordinator to other daemons only while the coordinator's term is
//! the agreed term. The owner of a task accepts an order only if the order has the agreed term and
//! comes from the agreed host. The owner holds an order that is ahead of its log. The daemon of a
//! requester sends its move request again for each new term, and fails the request itself if no
//! coordinator accepts it within [`limits::COORDINATOR_WAIT`]. An accepted move ends with the
//! report of the task's owner, or with the loss of the owner's host.
//!
//! A coordinator hangs if it has not handled a frame within [`limits::COORDINATOR_SILENT`]. An idle
//! coordinator receives no frames, and is not checked.

use super::coordinators::{Life, Process};
use crate::{
    Agreed, Coordinated, Output, ProcessOutput,
    daemon::{Daemon, context::Timer},
};
use std::collections::BTreeSet;
use vm_wire::{
    Body, Frame, HostId, Message, Op, RequestKey, Tid,
    agreed::Change,
    coordinator::{CoordinatorReady, Heard, Mail, Serve},
    limits,
    peer::{MoveAsk, MoveCancel, MoveOrder, MoveReported, MoveState, Order},
    task::{FailKind, Failed},
};

impl Daemon {
    /// The coordinator of an application that serves on this host: the number of its process, and
    /// its term.
    pub fn serving_coordinator(&self, app: Tid) -> Option<(u64, u32)> {
        let process = self.migration.coordinators.processes.get(&app)?;
        match process.stage {
            Life::Serving(term) => Some((process.number, term)),
            _ => None,
        }
    }

    /// The number of the coordinator process that the library of `master` may fork; `None` if this
    /// host has no coordinator to start for it. Called for the master's Welcome.
    pub(in crate::daemon) fn await_coordinator(&mut self, master: Tid) -> Option<u64> {
        let state = self.cx.agreement.state();
        let here = state.coordinating_host(master) == Some(self.cx.me);
        if !here || self.migration.coordinators.processes.contains_key(&master) {
            return None;
        }
        Some(self.new_process(master))
    }

    fn new_process(&mut self, app: Tid) -> u64 {
        self.migration.coordinators.last += 1;
        let number = self.migration.coordinators.last;
        let process = Process {
            number,
            generation: self.cx.agreement.state().epochs(app).generation,
            started: self.cx.now,
            stage: Life::Starting,
            sent: 0,
            heard: 0,
            silent: None,
        };
        self.migration.coordinators.processes.insert(app, process);
        let due = self.cx.now + limits::COORDINATOR_START;
        self.cx.set_timer(due, Timer::Coordinator(app, number));
        number
    }

    /// Reviews the coordinator of the application of a task whose state has changed.
    pub(in crate::daemon) fn review_coordinator_of(&mut self, tid: Tid) {
        let task = self.cx.agreement.state().task(tid);
        if let Some(app) = task.map(|task| task.app) {
            self.review_coordinator(app);
            self.forget_application(app);
        }
    }

    /// Reviews the coordinators of all applications, after a change that may affect each of them.
    pub(in crate::daemon) fn review_coordinators(&mut self) {
        let mut apps: BTreeSet<Tid> = self.cx.agreement.state().apps().collect();
        apps.extend(self.migration.coordinators.processes.keys());
        for app in apps {
            self.review_coordinator(app);
        }
    }

    /// Starts, appoints or ends the coordinator of an application on this host, as the agreed state
    /// requires.
    pub(in crate::daemon) fn review_coordinator(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let generation = state.epochs(app).generation;
        let process = self.migration.coordinators.processes.get(&app);
        if process.is_some_and(|process| process.generation != generation) {
            // The process coordinated an earlier generation of the application.
            self.end_coordinator(app);
        }
        let state = self.cx.agreement.state();
        let agreed = state.coordinator(app);
        let lives = state.tasks_of(app).next().is_some() && !state.halted();
        let mine = lives && state.coordinating_host(app) == Some(self.cx.me);
        let process = self.migration.coordinators.processes.get(&app);
        let serves = process.is_some_and(|process| {
            let term = agreed.filter(|agreed| agreed.host == self.cx.me);
            term.is_some_and(|agreed| process.stage == Life::Serving(agreed.term))
        });
        if serves {
            return;
        }
        if !mine {
            return self.end_coordinator(app);
        }
        // The library of a master forks a coordinator after the Welcome. A master that does not use
        // vmlib gets no Welcome. (The state may contain the master's birth before this daemon has
        // applied it to its tables.)
        let enrols = |master: &crate::daemon::LocalTask| master.token.is_some();
        let master_here = state
            .living_task(app)
            .is_some_and(|it| it.host == self.cx.me);
        let wanted = self
            .migration
            .coordinators
            .waiting
            .keys()
            .any(|(of, _)| *of == app);
        if master_here && !wanted && self.tasks.get(&app).is_none_or(enrols) {
            return;
        }
        let last = agreed.map_or(0, |agreed| agreed.term);
        match process.map(|process| (process.stage, process.started)) {
            None => self.start_coordinator(app),
            Some((Life::Gone, started)) if self.cx.now < started + limits::COORDINATOR_PAUSE => {}
            Some((Life::Gone, _)) => self.start_coordinator(app),
            Some((Life::Starting, _)) => {}
            Some((Life::Proposed(term), _))
                if agreed
                    == Some(Coordinated {
                        host: self.cx.me,
                        term,
                    }) =>
            {
                self.serve(app, term);
            }
            Some((Life::Proposed(term), _)) if term > last && self.cx.agreement.is_pending() => {}
            Some(_) => self.propose_coordinator(app, last + 1),
        }
    }

    fn start_coordinator(&mut self, app: Tid) {
        let number = self.new_process(app);
        self.cx
            .emit(ProcessOutput::StartCoordinator { number, app });
    }

    fn propose_coordinator(&mut self, app: Tid, term: u32) {
        if let Some(process) = self.migration.coordinators.processes.get_mut(&app) {
            process.stage = Life::Proposed(term);
            self.migration.coordinators.proposed.insert(app);
            let host = self.cx.me;
            self.cx
                .agreement
                .propose(Change::Coordinator { app, host, term });
        }
    }

    /// The log has appointed the process of this host: sends `Serve`, and the requests that waited.
    fn serve(&mut self, app: Tid, term: u32) {
        if let Some(process) = self.migration.coordinators.processes.get_mut(&app) {
            process.stage = Life::Serving(term);
        }
        let host = self.cx.me;
        self.tell_coordinator(app, Serve { app, term, host }.frame());
        let all = (app, RequestKey::MIN)..=(app, RequestKey::MAX);
        let waiting = self.migration.coordinators.waiting.range(all);
        for key in waiting.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some((since, life, ask)) = self.migration.coordinators.waiting.remove(&key)
                && self.cx.now < since + limits::COORDINATOR_WAIT
                && life == self.cx.agreement.state().epochs(app).generation
            {
                self.mail_to_coordinator(app, key.1.host, &ask);
            }
        }
        self.end_cut_of_others(app, term);
    }

    /// Ends the process of this host: another host has the coordinator, or the application has
    /// ended.
    fn end_coordinator(&mut self, app: Tid) {
        self.migration.coordinators.proposed.remove(&app);
        if let Some(process) = self.migration.coordinators.processes.remove(&app)
            && process.stage != Life::Gone
        {
            self.cx.emit(ProcessOutput::EndCoordinator(process.number));
        }
    }

    /// Ends a coordinator process that failed, if it has not ended already, and starts another.
    fn lose_coordinator(&mut self, app: Tid) {
        let Some(process) = self.migration.coordinators.processes.get_mut(&app) else {
            return;
        };
        if process.stage == Life::Gone {
            return;
        }
        process.stage = Life::Gone;
        process.silent = None;
        let (number, due) = (process.number, process.started + limits::COORDINATOR_PAUSE);
        self.cx.emit(ProcessOutput::EndCoordinator(number));
        if due > self.cx.now {
            self.cx.set_timer(due, Timer::Coordinator(app, number));
        }
        self.review_coordinator(app);
    }

    fn app_of_process(&self, number: u64) -> Option<Tid> {
        let mut processes = self.migration.coordinators.processes.iter();
        let found = processes
            .find(|(_, process)| process.number == number && process.stage != Life::Gone)?;
        Some(*found.0)
    }

    /// The process of a coordinator has ended, or could not be started.
    pub(in crate::daemon) fn on_coordinator_gone(&mut self, number: u64) {
        if let Some(app) = self.app_of_process(number) {
            self.cx.counters.moves.coordinators_lost += 1;
            self.lose_coordinator(app);
        }
    }

    /// Ends the coordinator process of that number if its start, or its handling of a frame, takes
    /// too long.
    pub(in crate::daemon) fn on_coordinator_due(&mut self, app: Tid, number: u64) {
        let now = self.cx.now;
        let Some(process) = self.migration.coordinators.processes.get(&app) else {
            return;
        };
        if process.number != number {
            return;
        }
        let silent = process
            .silent
            .map(|since| since + limits::COORDINATOR_SILENT);
        match process.stage {
            Life::Gone => self.review_coordinator(app),
            Life::Starting if now >= process.started + limits::COORDINATOR_START => {
                self.cx.counters.moves.coordinators_lost += 1;
                self.lose_coordinator(app);
            }
            _ => match silent {
                Some(due) if due <= now => {
                    self.cx.counters.moves.coordinators_hung += 1;
                    self.cx.emit(Output::Note(format!(
                        "the coordinator of {app} does not answer: another takes its place"
                    )));
                    self.lose_coordinator(app);
                }
                Some(due) => self.cx.set_timer(due, Timer::Coordinator(app, number)),
                None => {}
            },
        }
    }

    /// Handles a frame from the process of a coordinator. A coordinator that breaks the protocol is
    /// replaced.
    pub(in crate::daemon) fn on_coordinator(&mut self, number: u64, frame: &Frame) {
        let Some(app) = self.app_of_process(number) else {
            return;
        };
        let understood = match frame.header.op {
            Op::CoordinatorReady => CoordinatorReady::read(frame).is_ok_and(|_| {
                self.on_coordinator_ready(app);
                true
            }),
            Op::Heard => Heard::read(frame).is_ok_and(|_| {
                self.on_heard(app, frame.header.request);
                true
            }),
            Op::Mail => self.on_coordinator_mail(app, frame),
            _ => false,
        };
        if !understood {
            self.cx.counters.refused_local += 1;
            self.cx.emit(Output::Note(format!(
                "the coordinator of {app} broke the protocol: another takes its place"
            )));
            self.lose_coordinator(app);
        }
    }

    fn on_coordinator_ready(&mut self, app: Tid) {
        if let Some(process) = self.migration.coordinators.processes.get_mut(&app)
            && process.stage == Life::Starting
        {
            process.stage = Life::Ready;
            self.review_coordinator(app);
        }
    }

    fn on_heard(&mut self, app: Tid, number: u64) {
        let now = self.cx.now;
        if let Some(process) = self.migration.coordinators.processes.get_mut(&app)
            && (process.heard + 1..=process.sent).contains(&number)
        {
            process.heard = number;
            process.silent = (number < process.sent).then_some(now);
        }
    }

    /// Sends or handles mail of a coordinator for a daemon. `false` if the mail breaks the
    /// protocol.
    fn on_coordinator_mail(&mut self, app: Tid, frame: &Frame) -> bool {
        let Ok(mail) = Mail::read(frame) else {
            return false;
        };
        let Ok(order) = Order::from_payload(&mail.order) else {
            return false;
        };
        let state = self.cx.agreement.state();
        let Some((_, term)) = self.serving_coordinator(app) else {
            return true;
        };
        let agreed = Coordinated {
            host: self.cx.me,
            term,
        };
        if state.coordinator(app) != Some(agreed) {
            return true;
        }
        let (to, here) = (mail.host, mail.host == self.cx.me);
        let owner_gone = !state.may_be_present(to);
        match order {
            Order::MoveOrder(MoveOrder {
                requester,
                request,
                tid,
                ..
            })
            | Order::MoveCancel(MoveCancel {
                requester,
                request,
                tid,
                ..
            }) if owner_gone || state.task(tid).is_none() => {
                // The task existed when the move was requested. If it does not exist now, it
                // belongs to an earlier generation of its application.
                let failed = match owner_gone {
                    true => {
                        let text = format!("host '{}' was lost", self.cx.host_name(to));
                        Failed::new(FailKind::HostLost, text)
                    }
                    false => self.cx.no_such_task(tid),
                };
                let reported = MoveReported {
                    requester,
                    request,
                    tid,
                    state: MoveState::Ended(Err(failed)),
                };
                self.mail_to_coordinator(app, to, &Order::MoveReported(reported));
            }
            Order::MoveOrder(order) if here => self.on_move_order(to, order),
            Order::MoveCancel(cancel) if here => self.on_move_cancel(to, cancel),
            Order::MoveProgress(progress) if here => self.on_move_progress(&progress),
            Order::MoveEnd(end) if here => self.on_move_end(end),
            Order::CheckpointEnd(end) if here => self.on_checkpoint_end(end),
            Order::CutAsk(ask) if here && ask.app == app => self.on_cut_ask(&ask),
            Order::CutGo(go) if here && go.app == app => self.on_cut_go(go),
            Order::CommitAsk(ask) if here && ask.checkpoint.agreed.app == app => {
                self.on_commit_ask(ask);
            }
            Order::CutClose(close) if here && close.app == app => self.on_cut_close(close),
            Order::MoveOrder(_)
            | Order::MoveCancel(_)
            | Order::MoveProgress(_)
            | Order::CheckpointEnd(_)
            | Order::MoveEnd(_) => {
                // If the queue to that daemon is full, the coordinator repeats the order later.
                self.cx.send_order(to, &order);
            }
            _ => return false,
        }
        true
    }

    pub(in crate::daemon) fn mail_to_coordinator(&mut self, app: Tid, from: HostId, order: &Order) {
        let mail = Mail {
            host: from,
            order: Body::from(order.to_payload()),
        };
        self.tell_coordinator(app, mail.frame());
    }

    /// Sends a frame to the process of a coordinator, which has to acknowledge it with `Heard`.
    fn tell_coordinator(&mut self, app: Tid, frame: Frame) {
        let now = self.cx.now;
        let Some(process) = self.migration.coordinators.processes.get_mut(&app) else {
            return;
        };
        process.sent += 1;
        let (number, sent) = (process.number, process.sent);
        let first = process.silent.is_none();
        process.silent.get_or_insert(now);
        self.cx.emit(Output::Coordinator(number, frame.asked(sent)));
        if first {
            let due = now + limits::COORDINATOR_SILENT;
            self.cx.set_timer(due, Timer::Coordinator(app, number));
        }
    }

    /// The log has applied a new coordinator of an application.
    pub(in crate::daemon) fn on_coordinated(&mut self, app: Tid) {
        self.migration.coordinators.proposed.remove(&app);
        self.review_coordinator(app);
        let state = self.cx.agreement.state();
        let of_app = |tid: Tid| state.task(tid).is_some_and(|task| task.app == app);
        let asked = self.migration.requests.iter();
        let asked: Vec<u64> = asked
            .filter(|(_, asked)| asked.driven.as_ref().is_some_and(|it| of_app(it.ask.tid)))
            .map(|(number, _)| *number)
            .collect();
        let of_app = |state: &Agreed, tid| state.task(tid).is_some_and(|task| task.app == app);
        self.review_early(of_app);
        for number in asked {
            self.ask_coordinator(number);
        }
        self.ask_checkpoints_again(app);
        self.review_policy(app);
    }

    /// The log has voided the term that a daemon proposed.
    pub(in crate::daemon) fn on_not_coordinated(&mut self, app: Tid, host: HostId) {
        if host == self.cx.me {
            self.migration.coordinators.proposed.remove(&app);
            self.review_coordinator(app);
        }
    }

    /// No proposal of this daemon is pending any more: proposed terms that were not applied were
    /// void. (See [`Daemon::sweep_lost_births`].)
    pub(in crate::daemon) fn sweep_lost_terms(&mut self) {
        if self.migration.coordinators.proposed.is_empty() {
            return;
        }
        for app in std::mem::take(&mut self.migration.coordinators.proposed) {
            self.review_coordinator(app);
        }
    }

    /// A task has ended. If the application has no task left, no coordinator will reply or order:
    /// drops the application's orders and requests.
    pub(in crate::daemon) fn forget_application(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        if state.tasks_of(app).next().is_some() {
            return;
        }
        let of_app = |tid: Tid| state.task(tid).is_none_or(|task| task.app == app);
        self.migration
            .orders
            .early
            .retain(|_, (_, order)| match order {
                Order::MoveOrder(order) => !of_app(order.tid),
                Order::MoveCancel(cancel) => !of_app(cancel.tid),
                _ => false,
            });
        let held = &mut self.migration.orders.held;
        held.retain(|_, (_, _, order)| !of_app(order.tid));
        self.migration
            .coordinators
            .waiting
            .retain(|(of, _), _| *of != app);
        let tids = self.migration.requests.values();
        let tids = tids.filter_map(|asked| Some(asked.driven.as_ref()?.ask.tid));
        let over: BTreeSet<Tid> = tids.filter(|tid| of_app(*tid)).collect();
        self.end_moves(|driven| {
            over.contains(&driven.ask.tid) && driven.progress.phase().is_none()
        });
        self.forget_checkpoints(app);
    }

    /// A daemon requests a move from the coordinator on this host, which may not serve yet.
    pub(in crate::daemon) fn on_move_ask(&mut self, requester: HostId, ask: &MoveAsk) {
        let state = self.cx.agreement.state();
        let app = state.task(ask.tid).map(|task| task.app);
        let key = RequestKey::new(requester, ask.request);
        let is_over = |app: &Tid| ask.generation < state.epochs(*app).generation;
        let Some(app) = app.filter(|app| !is_over(app)) else {
            let result = Err(self.cx.no_such_task(ask.tid));
            return self.send_move_end(key, ask.tid, result);
        };
        self.ask_or_wait((app, ask.generation), key, Order::MoveAsk(ask.clone()));
    }

    /// Sends a request, made in generation `life` of an application, to the coordinator on this
    /// host. If the coordinator does not serve yet, the request waits.
    pub(in crate::daemon) fn ask_or_wait(
        &mut self,
        (app, life): (Tid, u32),
        key: RequestKey,
        ask: Order,
    ) {
        // The local log may be behind the log of the requester's host.
        let is_known = life == self.cx.agreement.state().epochs(app).generation;
        if is_known && self.serving_coordinator(app).is_some() {
            return self.mail_to_coordinator(app, key.host, &ask);
        }
        let now = self.cx.now;
        let waiting = &mut self.migration.coordinators.waiting;
        waiting.retain(|_, (since, ..)| now < *since + limits::COORDINATOR_WAIT);
        if waiting.len() < limits::MOVES_WAITING_MAX {
            waiting.insert((app, key), (now, life, ask));
        }
        self.review_coordinator(app);
    }

    /// The owner of a task reports the state of a move to the coordinator on this host.
    pub(in crate::daemon) fn on_move_reported(&mut self, owner: HostId, reported: MoveReported) {
        let app = self
            .cx
            .agreement
            .state()
            .task(reported.tid)
            .map(|task| task.app);
        if let Some(app) = app.filter(|app| self.serving_coordinator(*app).is_some()) {
            self.mail_to_coordinator(app, owner, &Order::MoveReported(reported));
        }
    }
}
