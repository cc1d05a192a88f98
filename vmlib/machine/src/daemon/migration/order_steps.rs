//! What coordinators order of the tasks of this host ([`super::coordinator_steps`]), and what is reported
//! to them.
//!
//! An order is heeded only if it bears the agreed term and comes from the agreed host. One that is
//! ahead of the log here waits for it.

use super::{
    orders::MoveOrders,
    outgoing::{Leaving, Stage},
};
use crate::{
    Agreed, Coordinated, Time,
    daemon::{Daemon, objection::CUT},
};
use vm_wire::{
    HostId, RequestKey, Tid, limits,
    peer::{MoveCancel, MoveEnd, MoveOrder, MovePhase, MoveReport, MoveReported, MoveState, Order},
    task::{FailKind, Failed},
};

/// What an order may do here.
enum Fence {
    /// It is the agreed coordinator's.
    Agreed,
    /// Its term is not known here yet.
    Early,
    /// It is a former coordinator's.
    Stale,
}

impl Daemon {
    /// Whether an order about that task comes from the coordinator that the log knows here.
    fn fence(&self, host: HostId, term: u32, tid: Tid) -> Fence {
        let state = self.cx.agreement.state();
        let app = state.task(tid).map(|task| task.app);
        match app.and_then(|app| state.coordinator(app)) {
            Some(agreed) if agreed == (Coordinated { host, term }) => Fence::Agreed,
            Some(agreed) if agreed.term >= term => Fence::Stale,
            _ => Fence::Early,
        }
    }

    /// Whether an order may be carried out now. One that is ahead of the log is put aside, be it
    /// about its coordinator or about the task: a task may be here before this host knows that.
    fn admit(&mut self, host: HostId, term: u32, tid: Tid, key: RequestKey, order: Order) -> bool {
        let incarnation = match &order {
            Order::MoveOrder(order) => order.incarnation,
            _ => 0,
        };
        let known = self.cx.agreement.state().living_task(tid);
        let is_behind = known.is_some_and(|task| task.incarnation < incarnation);
        match self.fence(host, term, tid) {
            Fence::Agreed if !is_behind => return true,
            Fence::Stale => self.cx.counters.moves.orders_stale += 1,
            Fence::Early | Fence::Agreed => {
                let early = &mut self.migration.orders.early;
                if early.len() < limits::MOVES_WAITING_MAX {
                    early.insert(key, (host, order));
                }
            }
        }
        false
    }

    /// What was ahead of the log about some tasks is carried out, if it is not any more.
    pub(in crate::daemon) fn review_early(&mut self, of: impl Fn(&Agreed, Tid) -> bool) {
        let state = self.cx.agreement.state();
        let early = self.migration.orders.early.iter();
        let early: Vec<RequestKey> = early
            .filter(|(_, (_, order))| match order {
                Order::MoveOrder(order) => of(state, order.tid),
                Order::MoveCancel(cancel) => of(state, cancel.tid),
                _ => true,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in early {
            match self.migration.orders.early.remove(&key) {
                Some((host, Order::MoveOrder(order))) => self.on_move_order(host, order),
                Some((host, Order::MoveCancel(cancel))) => self.on_move_cancel(host, cancel),
                _ => {}
            }
        }
    }

    /// A coordinator orders a task of this host's moved, or asks how far that is.
    pub(in crate::daemon) fn on_move_order(&mut self, host: HostId, order: MoveOrder) {
        let MoveOrder {
            term,
            asker,
            request,
            tid,
            to,
            way,
            ..
        } = order;
        let key = RequestKey::new(asker, request);
        let again = Order::MoveOrder(order.clone());
        if !self.admit(host, term, tid, key, again)
            || self.report(key, tid)
            || self.awaits_cut(key, host, order)
        {
            return;
        }
        match self.begin_move(key, tid, to, way) {
            Ok(()) => self.report_phase(tid),
            Err(failed) => self.tell_move_end(key, tid, Err(failed)),
        }
    }

    /// Whether a move waits for the end of a checkpoint: its coordinator knows that it has ended, and
    /// the log here does not, or will end one that a former coordinator made. It says the order again
    /// and again, and what takes long is refused then.
    fn awaits_cut(&mut self, key: RequestKey, host: HostId, order: MoveOrder) -> bool {
        let task = self.tasks.get(&order.tid);
        let is_cut = task.is_some_and(|task| self.checkpoints.cuts.has(task.app));
        let objections = self.objections(order.tid);
        let only_cut = is_cut && objections.iter().all(|it| it.text == CUT);
        let (now, held) = (self.cx.now, &mut self.migration.orders.held);
        let since = held.get(&key).map_or(now, |(since, ..)| *since);
        let waits = only_cut
            && now < since + limits::MOVE_HELD
            && (held.len() < limits::MOVES_WAITING_MAX || held.contains_key(&key));
        match waits {
            true => drop(held.insert(key, (since, host, order))),
            false => drop(held.remove(&key)),
        }
        waits
    }

    /// A checkpoint has ended: the moves that waited for that are begun.
    pub(in crate::daemon) fn review_held(&mut self, app: Tid) {
        let state = self.cx.agreement.state();
        let of_app = |_: &RequestKey, (_, _, order): &mut (Time, HostId, MoveOrder)| {
            state.task(order.tid).is_none_or(|task| task.app == app)
        };
        let held: Vec<_> = self.migration.orders.held.extract_if(.., of_app).collect();
        for (_, (_, host, order)) in held {
            self.on_move_order(host, order);
        }
    }

    /// A coordinator calls a move off.
    pub(in crate::daemon) fn on_move_cancel(&mut self, host: HostId, cancel: MoveCancel) {
        let (term, tid) = (cancel.term, cancel.tid);
        let key = RequestKey::new(cancel.asker, cancel.request);
        let why = cancel.why.clone();
        if !self.admit(host, term, tid, key, Order::MoveCancel(cancel)) {
            return;
        }
        self.migration.orders.held.remove(&key);
        let moving = self.migration.leaving.get(&tid);
        if moving.is_some_and(|moving| moving.asker == key) && !self.is_released(tid) {
            self.cx.counters.moves.called_off += 1;
            let shown = tid.show(self.cx.machine);
            let text = format!("the move of {shown} was called off: {why}");
            return self.take_back(tid, Failed::new(FailKind::System, text));
        }
        if !self.report(key, tid) {
            let result = Err(self.cx.no_such_task(tid));
            self.report_state(key, tid, MoveState::Ended(result));
        }
    }

    /// Reports how a move stands, if it is known here; whether it is.
    fn report(&mut self, key: RequestKey, tid: Tid) -> bool {
        let moving = self
            .migration
            .leaving
            .get(&tid)
            .filter(|moving| moving.asker == key);
        if moving.is_some() {
            self.report_phase(tid);
            return true;
        }
        let ended = self.migration.orders.ended.get(&key);
        let Some((tid, result)) = ended.cloned() else {
            return false;
        };
        self.report_state(key, tid, MoveState::Ended(result));
        true
    }

    /// Reports the phase that the move of a task of this host's is in.
    pub(in crate::daemon) fn report_phase(&mut self, tid: Tid) {
        if let Some(moving) = self.migration.leaving.get(&tid) {
            let (key, phase) = (moving.asker, phase_of(moving));
            self.report_state(key, tid, MoveState::In(phase));
        }
    }

    /// A move from this host has ended: it is remembered, and the coordinator told.
    pub(in crate::daemon) fn remember_move_end(
        &mut self,
        key: RequestKey,
        tid: Tid,
        result: &Result<MoveReport, Failed>,
    ) {
        let MoveOrders {
            ended, ended_order, ..
        } = &mut self.migration.orders;
        if ended.insert(key, (tid, result.clone())).is_none() {
            ended_order.push_back(key);
        }
        if ended_order.len() > limits::MOVES_ENDED_MAX
            && let Some(oldest) = ended_order.pop_front()
        {
            ended.remove(&oldest);
        }
        self.report_state(key, tid, MoveState::Ended(result.clone()));
    }

    fn report_state(&mut self, key: RequestKey, tid: Tid, state: MoveState) {
        let RequestKey {
            host: asker,
            number: request,
        } = key;
        self.migration.orders.reports.push_back(MoveReported {
            asker,
            request,
            tid,
            state,
        });
    }

    /// Sends what is to be reported to the coordinators that the log knows now: to those that follow
    /// them nothing is owed, they ask.
    pub(in crate::daemon) fn send_reports(&mut self) {
        while let Some(reported) = self.migration.orders.reports.pop_front() {
            let state = self.cx.agreement.state();
            let app = state.task(reported.tid).map(|task| task.app);
            match app.and_then(|app| state.coordinator(app)) {
                Some(agreed) if agreed.host == self.cx.me => {
                    self.on_move_reported(self.cx.me, reported);
                }
                Some(agreed) => {
                    self.cx
                        .send_order(agreed.host, &Order::MoveReported(reported));
                }
                None => {}
            }
        }
    }

    /// Tells who asked for a move how it ended.
    pub(in crate::daemon) fn send_move_end(
        &mut self,
        asker: RequestKey,
        tid: Tid,
        result: Result<MoveReport, Failed>,
    ) {
        let host = asker.host;
        let end = MoveEnd {
            request: asker.number,
            tid,
            result,
        };
        if host == self.cx.me {
            self.on_move_end(end);
        } else {
            self.cx.send_order(host, &Order::MoveEnd(end));
        }
    }
}

/// The phase that a move is in, by what its source has done.
fn phase_of(moving: &Leaving) -> MovePhase {
    match moving.stage {
        Stage::Offered => MovePhase::Initialisation,
        Stage::Copying => MovePhase::Copying,
        // Its channels are closed at this moment too, but it may not stand yet.
        Stage::Saving => MovePhase::Interruption,
        Stage::Loading => MovePhase::Saving,
        Stage::Released => MovePhase::Resumption,
    }
}
