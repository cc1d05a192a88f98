//! Routes past the daemon: rings between tasks of this host, and direct connections to tasks of other
//! hosts. A task asks for a route without knowing where its peer is.

use crate::{
    daemon::{Daemon, local_task::LocalTask},
    route::Route,
};
use vm_wire::{
    HostId, Tid, limits,
    peer::{DirectAsk, DirectClosed, DirectEnds, DirectReady},
    task::{RingClosed, RouteEnd},
};

impl Daemon {
    /// A task asks for a route to a peer. It asks again later if there is none.
    pub(in crate::daemon) fn on_route_ask(&mut self, tid: Tid, peer: Tid) {
        if tid == peer || !self.takes_route(tid) {
            return;
        }
        match self.cx.routes.of(peer) {
            Some(Route::Here { .. }) => self.open_ring(tid, peer),
            Some(Route::There { host, .. }) if self.cx.routes.has_link(host) => {
                if let Some(ends) = self.direct_ends(tid, peer) {
                    self.directs.ask(&mut self.cx, ends, host);
                }
            }
            Some(Route::There { .. }) | None => {}
        }
    }

    /// Whether a task of this host can have one more route now. None is opened while its application
    /// stands.
    fn takes_route(&self, tid: Tid) -> bool {
        let routes = self.rings.count_of(tid) + self.directs.count_of(tid);
        let task = self.tasks.get(&tid);
        task.is_some_and(LocalTask::takes_rings)
            && routes < limits::RINGS_PER_TASK
            && !self.is_cut_ahead(tid)
    }

    fn open_ring(&mut self, tid: Tid, peer: Tid) {
        let ends = [tid, peer];
        let app = |tid: Tid| self.tasks.get(&tid).map(|task| task.app);
        if self.takes_route(peer) && app(tid) == app(peer) {
            let pids = ends.map(|tid| self.tasks.get(&tid).map_or(0, |task| task.pid));
            self.rings.open(&mut self.cx, ends, pids);
        }
    }

    /// The two tasks of a direct connection as the local log has them, if they belong to one
    /// application.
    fn direct_ends(&self, dials: Tid, accepts: Tid) -> Option<DirectEnds> {
        let state = self.cx.agreement.state();
        let (one, other) = (state.living_task(dials)?, state.living_task(accepts)?);
        (one.app == other.app).then(|| DirectEnds {
            dials,
            accepts,
            dials_incarnation: one.incarnation,
            accepts_incarnation: other.incarnation,
            generation: state.epochs(one.app).generation,
        })
    }

    /// Whether the local log agrees with the daemon of `host` about the places of the two tasks: the
    /// first is on this host, the second on `host`.
    fn are_in_place(&self, ends: &DirectEnds, local: Tid, peer: Tid, host: HostId) -> bool {
        let at = |tid| {
            let state = self.cx.agreement.state();
            state.living_task(tid).map(|task| task.host)
        };
        (at(local), at(peer)) == (Some(self.cx.me), Some(host))
            && self.direct_ends(ends.dials, ends.accepts) == Some(*ends)
    }

    /// Another daemon asks this one to expect a direct connection. A refusal is silence.
    pub(in crate::daemon) fn on_direct_ask(&mut self, host: HostId, ask: &DirectAsk) {
        let (local, peer) = (ask.ends.accepts, ask.ends.dials);
        if self.are_in_place(&ask.ends, local, peer, host) && self.takes_route(local) {
            self.directs.expect(&mut self.cx, ask, host);
        }
    }

    /// Another daemon expects the direct connection that this one has asked for.
    pub(in crate::daemon) fn on_direct_ready(&mut self, host: HostId, ready: DirectReady) {
        let (local, peer) = (ready.ends.dials, ready.ends.accepts);
        let may = self.are_in_place(&ready.ends, local, peer, host) && self.takes_route(local);
        self.directs.dial(&mut self.cx, ready, host, may);
    }

    /// A direct connection has come, and has proved its number.
    pub(in crate::daemon) fn on_direct_came(&mut self, id: u64) {
        let local = self.directs.accepting(id);
        // The connection is among the routes of the task already.
        let takes = |task: &LocalTask| task.takes_rings();
        let may = local
            .is_some_and(|tid| self.tasks.get(&tid).is_some_and(takes) && !self.is_cut_ahead(tid));
        self.directs.came(&mut self.cx, id, may);
    }

    /// Another daemon has closed a direct connection.
    pub(in crate::daemon) fn on_direct_closed(&mut self, host: HostId, closed: DirectClosed) {
        self.directs.on_closed(&mut self.cx, closed, host);
    }

    /// A task cannot use a route, or has given it up.
    pub(in crate::daemon) fn on_route_closed(&mut self, tid: Tid, closed: &RingClosed) {
        self.rings.close(&mut self.cx, tid, closed);
        self.directs.given_up(&mut self.cx, tid, closed);
    }

    /// The memory of a ring could not be made.
    pub(in crate::daemon) fn on_ring_failed(&mut self, id: u64, [first, second]: [Tid; 2]) {
        let (peer, why) = (second, RouteEnd::GivenUp);
        let closed = RingClosed { peer, id, why };
        self.rings.close(&mut self.cx, first, &closed);
    }

    /// Closes all routes of a task that is frozen to be moved, has become portable, or has ended.
    pub(in crate::daemon) fn close_routes_of(&mut self, tid: Tid) {
        self.rings.close_all_of(&mut self.cx, tid);
        let task = self.tasks.get(&tid);
        let is_connected = task.is_some_and(|task| task.process.is_connected());
        self.directs.close_all_of(&mut self.cx, tid, is_connected);
    }
}
