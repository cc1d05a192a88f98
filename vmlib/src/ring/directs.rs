//! The direct connections of a task.
//!
//! **A connection that is closed loses what is under way.** Its sender repeats by the daemon the chunks
//! that the peer has not acknowledged, as soon as a call sees that ([`Directs::settle`]), or in a signal
//! handler on an order of the daemon ([`crate::resend`]).
//!
//! **What a peer has written before its end is read.** A connection that the daemon closes is read until
//! its end, but for [`DRAIN`] at most.

use super::{
    Until, Watch,
    direct::{Direct, Stage, dial},
    keyed::Keyed,
};
use crate::clock::recent;
use rustix::fd::OwnedFd;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use vm_endpoint::{Endpoint, Received, Time};
use vm_wire::{
    Frame, Tid,
    direct::{Connection, End, wipe_stack},
    limits,
    task::{DirectDial, DirectOpen, RingClosed, RouteEnd},
};

/// Time for the rest of what a peer has written, after the daemon has closed the connection.
const DRAIN: Duration = Duration::from_secs(2);
/// Time for the same while the end of the peer is handled: its process was killed, and its kernel sends the
/// rest and the end.
const LAST: Duration = Duration::from_millis(250);

/// Time for a connection to be made before the call goes on. In a cluster it takes less.
const CONNECT: Duration = Duration::from_millis(1);

/// All direct connections of a task.
#[derive(Debug, Default)]
pub(super) struct Directs {
    all: Vec<Direct>,
}

impl Directs {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes the connection that the daemon has prepared.
    ///
    /// # Errors
    /// Why that is impossible.
    pub fn dial(&mut self, order: &DirectDial, me: Tid, now: Time) -> Result<(), RouteEnd> {
        let connection = Connection {
            id: order.id,
            ends: [me, order.peer],
            secret: order.secret.clone(),
        };
        let stage = Stage::Dials {
            opening: connection.opening(),
            until: now + limits::DIRECT_DIAL,
        };
        wipe_stack();
        let end = order.sealed.then_some(End::Dials);
        let socket = dial(&order.addr)?;
        let memory = Keyed::new(socket, &connection, end).map_err(|_| RouteEnd::GivenUp)?;
        let direct = self.add(Direct::new(order.peer, order.id, stage, memory));
        // The program may compute for long before its next call.
        direct.await_room(CONNECT);
        direct.flush();
        Ok(())
    }

    /// Takes the connection that has come. `false` if that is impossible.
    pub fn accept(&mut self, open: &DirectOpen, socket: OwnedFd, endpoint: &mut Endpoint) -> bool {
        let connection = Connection {
            id: open.id,
            ends: [open.peer, endpoint.me()],
            secret: open.secret.clone(),
        };
        let end = open.sealed.then_some(End::Accepts);
        let Ok(memory) = Keyed::new(socket, &connection, end) else {
            return false;
        };
        endpoint.ring_opened(open.peer);
        let direct = self.add(Direct::new(open.peer, open.id, Stage::Open, memory));
        direct.greet(endpoint);
        true
    }

    fn add(&mut self, direct: Direct) -> &mut Direct {
        self.all.retain(|other| other.peer != direct.peer);
        self.all.push(direct);
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    fn to(&mut self, peer: Tid) -> Option<&mut Direct> {
        self.all.iter_mut().find(|direct| direct.peer == peer)
    }

    /// Whether the connection to a peer is the one with that number.
    pub fn has(&self, peer: Tid, id: u64) -> bool {
        self.all
            .iter()
            .any(|direct| (direct.peer, direct.id) == (peer, id))
    }

    /// The connection to a peer, if chunks may go by it.
    pub fn writer(&mut self, peer: Tid) -> Option<&mut Direct> {
        self.to(peer).filter(|direct| direct.is_open())
    }

    /// Writes on what the kernel has not taken yet.
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(Direct::flush);
    }

    /// The chunk to a peer that is not written whole, and did not go by the daemon; 0 if there is none.
    pub fn unwritten(&mut self, peer: Tid) -> u64 {
        self.to(peer).map_or(0, |direct| direct.unwritten())
    }

    /// The chunk that is not written whole went by the daemon as well.
    pub fn rest_went_by_daemon(&mut self, peer: Tid) {
        if let Some(direct) = self.to(peer) {
            direct.rest_went_by_daemon();
        }
    }

    /// Sends the acknowledgements that are due.
    pub fn acknowledge(&mut self, endpoint: &mut Endpoint, now: Time) {
        for direct in &mut self.all {
            direct.acknowledge(endpoint, now);
        }
    }

    /// Takes what has come, up to a message that `until` names. Nothing is taken while the inbox is
    /// full.
    pub fn read(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        until: Until<'_>,
    ) -> Option<Received> {
        for direct in &mut self.all {
            let found = direct.read(endpoint, now, until, false);
            if found.is_some() || until.has_landed(endpoint) {
                return found;
            }
        }
        None
    }

    /// Takes all that a peer has written, even if the inbox is full: the peer has ended. If its last
    /// chunk is not `known`, the end of the connection is awaited for a moment.
    pub fn read_last(&mut self, endpoint: &mut Endpoint, now: Time, peer: Tid, known: bool) {
        let Some(direct) = self.to(peer) else {
            return;
        };
        let until = Instant::now() + LAST;
        loop {
            direct.read(endpoint, now, Until::Empty, true);
            let left = until.saturating_duration_since(Instant::now());
            if known || left.is_zero() || !direct.await_more(left) {
                return;
            }
        }
    }

    /// The daemon has closed the connection to a peer: nothing is written any more.
    pub fn close(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        peer: Tid,
        out: &mut VecDeque<Frame>,
    ) {
        if let Some(direct) = self.to(peer) {
            direct.read(endpoint, now, Until::Empty, false);
            drain(direct, endpoint, now, out);
        }
    }

    /// Forgets connections that have ended, and sends again what they may have lost. Returns those that
    /// the daemon does not know of.
    pub fn settle(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) -> Vec<RingClosed> {
        let mut closed = Vec::new();
        self.all.retain_mut(|direct| {
            let (peer, id) = (direct.peer, direct.id);
            if direct.due().is_some_and(|due| due <= now) {
                direct.catch_up(endpoint, now);
            }
            let is_over = direct.due().is_some_and(|due| due <= now);
            let is_unmade = direct.has_failed && direct.is_dialled();
            let ends = is_over || is_unmade || direct.has_ended && !direct.is_early();
            let drains = direct.drains();
            if !ends && (drains || !direct.has_failed) {
                return true;
            }
            if !drains {
                let why = direct.end();
                drain(direct, endpoint, now, out);
                closed.push(RingClosed { peer, id, why });
            }
            !ends
        });
        closed
    }

    /// The first time at which [`Directs::settle`] is due.
    pub fn due(&self) -> Option<Time> {
        self.all.iter().filter_map(Direct::due).min()
    }

    /// Closes the connections that were unused for long. Returns them, for the daemon to be told.
    pub fn close_idle(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        is_under_way: impl Fn(Tid) -> bool,
    ) -> Vec<RingClosed> {
        let is_idle =
            |direct: &mut Direct| direct.is_idle(endpoint, now) && !is_under_way(direct.peer);
        let idle: Vec<Direct> = self.all.extract_if(.., is_idle).collect();
        let close = |direct: Direct| {
            endpoint.ring_closed(direct.peer);
            RingClosed {
                peer: direct.peer,
                id: direct.id,
                why: RouteEnd::GivenUp,
            }
        };
        idle.into_iter().map(close).collect()
    }

    /// Closes all connections, because the task leaves.
    pub fn close_all(&mut self, endpoint: &mut Endpoint, now: Time) {
        for mut direct in std::mem::take(&mut self.all) {
            direct.flush();
            direct.read(endpoint, now, Until::Empty, false);
            endpoint.ring_closed(direct.peer);
        }
    }

    /// Gives up all connections: what they may lose goes by the daemon.
    pub fn give_up_all(&mut self, endpoint: &mut Endpoint, now: Time, out: &mut VecDeque<Frame>) {
        for mut direct in std::mem::take(&mut self.all) {
            direct.flush();
            direct.read(endpoint, now, Until::Empty, false);
            drain(&mut direct, endpoint, now, out);
        }
    }

    /// Forgets the connections that a freeze has closed, and heeds the daemon's orders about others.
    pub fn after_freeze(&mut self, endpoint: &mut Endpoint, out: &mut VecDeque<Frame>) {
        self.all.retain_mut(|direct| {
            if direct.is_lost() && !direct.drains() {
                drain(direct, endpoint, recent(), out);
            }
            !direct.is_closed()
        });
    }

    /// Forgets all connections: this process is a child of the task. The descriptors are the parent's.
    pub fn forget(&mut self, endpoint: &mut Endpoint) {
        for direct in std::mem::take(&mut self.all) {
            endpoint.ring_closed(direct.peer);
            std::mem::forget(direct);
        }
    }

    /// The peers of connections that are closed, and whose chunks were not sent again yet; for signal
    /// handlers.
    pub fn lost(&self) -> impl Iterator<Item = Tid> {
        let lost = self.all.iter().filter(|direct| direct.is_lost());
        lost.map(|direct| direct.peer)
    }

    /// The socket of the connection to a peer.
    #[cfg(test)]
    pub fn socket(&mut self, peer: Tid) -> rustix::fd::BorrowedFd<'_> {
        let direct = self.to(peer).expect("there is a connection");
        direct.socket().expect("it is open")
    }

    /// Whether frames were read from a socket and not looked at.
    pub fn have_more(&self) -> bool {
        self.all.iter().any(Direct::has_more)
    }

    /// Makes `watch` watch the sockets, for what can be read if the wait `reads`, and for room.
    pub fn watch(&self, watch: &mut Watch, reads: bool) {
        for direct in &self.all {
            if let Some((socket, events)) = direct.watched(reads) {
                watch.socket(socket, events);
            }
        }
    }
}

/// Writes no more to the peer: all that it has not acknowledged goes by the daemon. The rest of the bytes
/// that the peer has written is read.
fn drain(direct: &mut Direct, endpoint: &mut Endpoint, now: Time, out: &mut VecDeque<Frame>) {
    endpoint.ring_closed(direct.peer);
    endpoint.resend_by_daemon(now, direct.peer, 1, out);
    direct.lost_is_heeded();
    let until = now + DRAIN;
    direct.stage = Stage::Drains { until };
}
