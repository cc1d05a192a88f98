//! Before a cut: the portable tasks of the application come to their safe points, while the other
//! tasks run.
//!
//! ```text
//! coordinator's daemon        owners
//! CutPrepare              ->  each portable task is told to freeze at its next safe point
//!                         <-  CutPrepared, when all portable tasks of that host are frozen
//! Cut into the log
//! ```
//!
//! A portable task may be far from its safe point. If the other tasks were frozen meanwhile, the
//! whole application would be frozen for seconds, and a message that another task has yet to send
//! might be what the portable task waits for. So portable tasks freeze first: each waits at its
//! safe point and reads no message, although its route is open. Once the cut is in the log, the
//! portable tasks supply their states at once. If a portable task comes to no safe point within
//! [`limits::SAFE_POINT`](vm_wire::limits::SAFE_POINT), no checkpoint is made, and no other task
//! was frozen for it.
//!
//! In this folder, "portable" includes all tasks that cannot be frozen at any instruction: tasks whose
//! program has callbacks around saves come to a call of the library.
//!
//! A task that becomes portable, is spawned or arrives after the preparation freezes when the cut is
//! made ([`super::cut_steps`]).

use super::{
    holdings::{Due, Prepared},
    preparations::hosts_of,
};
use crate::{
    MoveOutput,
    daemon::{Daemon, local_task::LocalTask},
};
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Tid,
    checkpoint::{CheckpointEnd, CutAsk, CutPrepare, CutPrepared},
    peer::Order,
    task::{FailKind, Failed},
};

/// At the daemon of the coordinator.
impl Daemon {
    /// Whether the portable tasks of an application are frozen, so that the application can be cut. If
    /// no preparation is under way, it begins. The coordinator repeats its request.
    pub(super) fn is_prepared(&mut self, ask: &CutAsk) -> bool {
        let preparations = &mut self.checkpoints.preparations;
        if let Some(hosts) = preparations.begin(&self.cx, *ask) {
            let generation = self.cx.agreement.state().epochs(ask.app).generation;
            self.send_prepare(hosts, (ask.app, generation), false);
        }
        self.checkpoints.preparations.end_telling(ask.app)
    }

    fn send_prepare(&mut self, hosts: BTreeSet<HostId>, (app, generation): (Tid, u32), off: bool) {
        let prepare = CutPrepare {
            app,
            generation,
            off,
        };
        for host in hosts {
            match host == self.cx.me {
                true => self.on_cut_prepare(host, prepare),
                false => drop(self.cx.send_order(host, &Order::CutPrepare(prepare))),
            }
        }
    }

    /// The portable tasks of a host are frozen, or one of them came to no safe point.
    pub(in crate::daemon) fn on_cut_prepared(&mut self, host: HostId, prepared: CutPrepared) {
        let app = prepared.app;
        let preparations = &mut self.checkpoints.preparations;
        if !preparations.has(app, prepared.generation) {
            return;
        }
        match prepared.result {
            Ok(()) => {
                if let Some(ask) = preparations.on_prepared(app, host) {
                    self.on_cut_ask(&ask);
                }
            }
            Err(failed) => {
                self.cancel_preparation(app);
                let end = CheckpointEnd {
                    request: 0,
                    app,
                    result: Err(failed),
                };
                if self.serving_coordinator(app).is_some() {
                    self.mail_to_coordinator(app, self.cx.me, &Order::CheckpointEnd(end));
                }
            }
        }
    }

    /// The cut that is prepared will not be made.
    pub(super) fn cancel_preparation(&mut self, app: Tid) {
        if let Some(generation) = self.checkpoints.preparations.end(app) {
            let hosts = hosts_of(&self.cx, app);
            self.send_prepare(hosts, (app, generation), true);
        }
    }

    /// A host is lost that may prepare cuts.
    pub(in crate::daemon) fn lose_preparations_of(&mut self, host: HostId) {
        for ask in self.checkpoints.preparations.on_host_lost(host) {
            self.on_cut_ask(&ask);
        }
    }
}

/// At an owner.
impl Daemon {
    /// The portable tasks of an application on this host are to freeze, or are to resume, since the
    /// cut is not made.
    pub(in crate::daemon) fn on_cut_prepare(&mut self, from: HostId, prepare: CutPrepare) {
        let CutPrepare {
            app,
            generation,
            off,
        } = prepare;
        if off {
            return self.release_held_tasks(app);
        }
        let of = Prepared {
            app,
            generation,
            requester: from,
        };
        let tids = self.tasks_to_hold(app);
        self.checkpoints.holdings.begin(&mut self.cx, of, tids);
        self.review_holding(app);
    }

    fn tasks_to_hold(&self, app: Tid) -> BTreeSet<Tid> {
        let state = self.cx.agreement.state();
        let is_to_freeze = |(tid, task): &(&Tid, &LocalTask)| {
            let here = state
                .living_task(**tid)
                .is_some_and(|it| it.host == self.cx.me);
            here && task.app == app && !task.stops.at_once() && task.is_settled() && !task.frozen
        };
        let tids = self.tasks.iter().filter(is_to_freeze).map(|(tid, _)| *tid);
        tids.filter(|tid| !self.migration.leaving.contains_key(tid))
            .collect()
    }

    /// A task is frozen at a safe point.
    pub(in crate::daemon) fn on_held(&mut self, tid: Tid) {
        if let Some(app) = self.checkpoints.holdings.on_held(tid) {
            return self.review_holding(app);
        }
        // The task is frozen for its part of a cut, or for its move, or is not to be frozen any more.
        self.on_held_to_save(tid);
        let is_frozen = |task: &LocalTask| task.frozen;
        if !self.on_held_to_move(tid)
            && !self.checkpoints.holdings.is_held(tid)
            && !self.tasks.get(&tid).is_some_and(is_frozen)
        {
            self.cx.emit(MoveOutput::CancelCopy(tid));
        }
    }

    /// A task has ended, or belongs to another host.
    pub(in crate::daemon) fn hold_no_more(&mut self, tid: Tid) {
        if let Some(app) = self.checkpoints.holdings.forget(tid) {
            self.review_holding(app);
        }
    }

    /// Replies to the preparation of a cut, once no task here is awaited any more.
    fn review_holding(&mut self, app: Tid) {
        if let Some(of) = self.checkpoints.holdings.take_complete(app) {
            self.send_prepared(of, Ok(()));
        }
    }

    fn send_prepared(&mut self, of: Prepared, result: Result<(), Failed>) {
        let prepared = CutPrepared {
            app: of.app,
            generation: of.generation,
            result,
        };
        match of.requester == self.cx.me {
            true => self.on_cut_prepared(of.requester, prepared),
            false => drop(
                self.cx
                    .send_order(of.requester, &Order::CutPrepared(prepared)),
            ),
        }
    }

    /// Tasks have had the time to come to their safe points, or are frozen for a cut that does not
    /// come.
    pub(in crate::daemon) fn on_hold_due(&mut self, app: Tid) {
        match self.checkpoints.holdings.due(self.cx.now, app) {
            Some(Due::Late(tid, of)) => {
                let (shown, name) = (tid.show(self.cx.machine), &self.cx.config.facts.name);
                let why = self.stops(tid).why_late();
                let text = format!("task {shown} on '{name}' cannot be saved: {why}");
                self.release_held_tasks(app);
                self.send_prepared(of, Err(Failed::new(FailKind::Refused, text)));
            }
            Some(Due::Forgotten) => self.release_held_tasks(app),
            None => {}
        }
    }

    /// The frozen tasks of an application resume, and the others need not come to a safe point. Tasks
    /// that are frozen for a cut or a move stay frozen.
    fn release_held_tasks(&mut self, app: Tid) {
        for tid in self.checkpoints.holdings.end(app) {
            let task = self.tasks.get(&tid).filter(|task| !task.frozen);
            if task.is_some() && !self.migration.leaving.contains_key(&tid) {
                self.cx.emit(MoveOutput::CancelCopy(tid));
            }
        }
    }

    /// The application is cut: the tasks that the cut saves stay frozen for it, the others resume.
    pub(super) fn end_holding(&mut self, app: Tid) {
        self.checkpoints.preparations.end(app);
        self.release_held_tasks(app);
    }
}
