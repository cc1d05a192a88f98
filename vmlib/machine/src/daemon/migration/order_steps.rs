//! Orders of coordinators about tasks of this host ([`super::coordinator_steps`]), and the reports
//! about them.
//!
//! This host accepts an order only if the order has the agreed term and comes from the agreed host.
//! An order that is ahead of the local log waits until the log has caught up.

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

/// The fence of an order: its term and sender, compared with the agreed coordinator.
enum Fence {
    /// The order comes from the agreed coordinator.
    Agreed,
    /// The local log does not know the term of the order yet.
    Early,
    /// The order comes from a former coordinator.
    Stale,
}

impl Daemon {
    /// Compares the sender and term of an order about a task with the agreed coordinator of the
    /// task's application.
    fn fence(&self, host: HostId, term: u32, tid: Tid) -> Fence {
        let state = self.cx.agreement.state();
        let app = state.task(tid).map(|task| task.app);
        match app.and_then(|app| state.coordinator(app)) {
            Some(agreed) if agreed == (Coordinated { host, term }) => Fence::Agreed,
            Some(agreed) if agreed.term >= term => Fence::Stale,
            _ => Fence::Early,
        }
    }

    /// Whether an order may be carried out now. Holds an order that is ahead of the local log: the
    /// log does not know the coordinator's term yet, or does not know yet that the task is on this
    /// host.
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

    /// Carries out the held orders that `of` selects, as far as the local log has caught up with
    /// them.
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

    /// A coordinator orders the move of a task of this host, or asks for the state of that move.
    pub(in crate::daemon) fn on_move_order(&mut self, host: HostId, order: MoveOrder) {
        let MoveOrder {
            term,
            requester,
            request,
            tid,
            to,
            way,
            ..
        } = order;
        let key = RequestKey::new(requester, request);
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

    /// Whether a move waits for the end of a checkpoint. The coordinator knows that the checkpoint
    /// has ended before the local log does; or the checkpoint belongs to a former coordinator, and
    /// the log will end it. The coordinator repeats its order; the order is refused after
    /// `limits::MOVE_HELD`.
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

    /// A checkpoint has ended: begins the moves that waited for that.
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

    /// A coordinator cancels a move.
    pub(in crate::daemon) fn on_move_cancel(&mut self, host: HostId, cancel: MoveCancel) {
        let (term, tid) = (cancel.term, cancel.tid);
        let key = RequestKey::new(cancel.requester, cancel.request);
        let why = cancel.why.clone();
        if !self.admit(host, term, tid, key, Order::MoveCancel(cancel)) {
            return;
        }
        self.migration.orders.held.remove(&key);
        let moving = self.migration.leaving.get(&tid);
        if moving.is_some_and(|moving| moving.requester == key) && !self.is_released(tid) {
            self.cx.counters.moves.cancelled += 1;
            let shown = tid.show(self.cx.machine);
            let text = format!("the move of {shown} was cancelled: {why}");
            return self.abort_move(tid, Failed::new(FailKind::System, text));
        }
        if !self.report(key, tid) {
            let result = Err(self.cx.no_such_task(tid));
            self.report_state(key, tid, MoveState::Ended(result));
        }
    }

    /// Reports the state of a move to the coordinator. `false` if the move is not known on this
    /// host.
    fn report(&mut self, key: RequestKey, tid: Tid) -> bool {
        let moving = self
            .migration
            .leaving
            .get(&tid)
            .filter(|moving| moving.requester == key);
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

    /// Reports the phase of the move of a task of this host.
    pub(in crate::daemon) fn report_phase(&mut self, tid: Tid) {
        if let Some(moving) = self.migration.leaving.get(&tid) {
            let (key, phase) = (moving.requester, phase_of(moving));
            self.report_state(key, tid, MoveState::In(phase));
        }
    }

    /// Stores the result of an ended move from this host, and reports it to the coordinator.
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
            host: requester,
            number: request,
        } = key;
        self.migration.orders.reports.push_back(MoveReported {
            requester,
            request,
            tid,
            state,
        });
    }

    /// Sends the pending reports to the coordinators that the local log knows. A later coordinator
    /// asks for the states of moves itself, so no report is kept for it.
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

    /// Sends the result of a move to the daemon of the requester.
    pub(in crate::daemon) fn send_move_end(
        &mut self,
        requester: RequestKey,
        tid: Tid,
        result: Result<MoveReport, Failed>,
    ) {
        let host = requester.host;
        let end = MoveEnd {
            request: requester.number,
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

/// The phase of a move, by its stage at the source.
fn phase_of(moving: &Leaving) -> MovePhase {
    match moving.stage {
        Stage::Offered => MovePhase::Initialisation,
        Stage::Copying => MovePhase::Copying,
        // The task's channels are closed in this stage too, but the task may not be frozen yet.
        Stage::Saving => MovePhase::Interruption,
        Stage::Loading => MovePhase::Saving,
        Stage::Released => MovePhase::Resumption,
    }
}
