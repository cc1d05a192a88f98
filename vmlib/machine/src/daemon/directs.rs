//! The direct connections of this host's tasks: connections to tasks of other hosts, to exchange
//! messages past the daemons.
//!
//! A task asks for a route to a peer after a few messages. If the peer is on another host, the daemon
//! asks that host's daemon, which expects the connection, under a number and a secret; then the daemon
//! lets its task dial. When one of the two tasks is frozen to be moved, or has ended, or when the link
//! between the two hosts is lost, the daemons forget the connection and tell their tasks. A task that
//! may have sent over the connection is interrupted as well: it may compute, and what it retains for
//! the peer has to go by the daemons. The content of a connection is never needed: a sender retains
//! each chunk until the receiver has acknowledged it.

use super::context::{Context, Timer};
use crate::{DirectOutput, Output, Time};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Message, Tid,
    direct::{Connection, Secret},
    limits,
    peer::{DirectAsk, DirectClosed, DirectEnd, DirectEnds, DirectReady, Order},
    task::{DirectDial, DirectOpen, RingClosed, RouteEnd},
};

/// A task of this host, and a task of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    local: Tid,
    peer: Tid,
}

/// A direct connection of a task of this host.
#[derive(Debug)]
struct Direct {
    id: u64,
    /// The host of the peer.
    host: HostId,
    stage: Stage,
}

/// The stage of a direct connection.
#[derive(Debug)]
enum Stage {
    /// The peer is to dial, and the local task has not heard of the connection.
    Awaited {
        secret: Secret,
        /// Whether the connection is sealed.
        sealed: bool,
    },
    /// The local task dials, or has the connection.
    Told,
}

/// A request to the daemon of a peer.
#[derive(Debug)]
struct Asked {
    request: u64,
    /// The time after which the reply is void.
    until: Time,
}

/// The direct connections of this host's tasks.
#[derive(Debug, Default)]
pub(super) struct Directs {
    /// For each local task its connections, by peer.
    of_task: BTreeMap<Tid, BTreeMap<Tid, Direct>>,
    /// The connections that peers are to make, by number.
    awaited: BTreeMap<u64, Pair>,
    asked: BTreeMap<Pair, Asked>,
    /// Hosts whose tasks could not connect to this host, and the time up to which no connection is
    /// expected from there.
    failing: BTreeMap<HostId, Time>,
    /// The hosts of which the log says that.
    noted: BTreeSet<HostId>,
}

impl Directs {
    /// Number of connections of a task.
    pub fn count_of(&self, tid: Tid) -> usize {
        self.of_task.get(&tid).map_or(0, BTreeMap::len)
    }

    /// Number of connections of all tasks of this host, expected ones included.
    pub fn count(&self) -> usize {
        self.of_task.values().map(BTreeMap::len).sum()
    }

    /// Asks the daemon of the peer's host to expect a connection, unless there is one or a request for
    /// one.
    pub fn ask(&mut self, cx: &mut Context, ends: DirectEnds, host: HostId) {
        let (local, peer, now) = (ends.dials, ends.accepts, cx.now);
        let pair = Pair { local, peer };
        let is_asked = |asked: &Asked| asked.until > now;
        if self.get(pair).is_some() || self.asked.get(&pair).is_some_and(is_asked) {
            return;
        }
        if self.asked.len() >= limits::DIRECTS_AWAITED {
            self.asked.retain(|_, asked| is_asked(asked));
        }
        if self.asked.len() >= limits::DIRECTS_AWAITED {
            return;
        }
        let request = cx.next_request;
        cx.next_request += 1;
        let ask = DirectAsk {
            request,
            ends,
            sealed: cx.config.sealed,
            is_only_way: self.is_failing(host, now),
        };
        if cx.send_news(host, &Order::DirectAsk(ask)) {
            let until = now + limits::DIRECT_AWAITED;
            self.asked.insert(pair, Asked { request, until });
        }
    }

    /// Expects the connection that the daemon of the dialling task's host asks for, if there is room.
    pub fn expect(&mut self, cx: &mut Context, ask: &DirectAsk, host: HostId) {
        let (local, peer) = (ask.ends.accepts, ask.ends.dials);
        let (pair, now) = (Pair { local, peer }, cx.now);
        if self.is_failing(host, now) || self.awaited.len() >= limits::DIRECTS_AWAITED {
            return;
        }
        // Both tasks have asked: the request of the lower tid counts.
        let own = self.asked.get(&pair);
        if local < peer && own.is_some_and(|own| own.until > now) && !ask.is_only_way {
            return;
        }
        // The other daemon has none.
        if let Some(former) = self.remove(pair) {
            self.end(cx, pair, &former, true);
        }
        // A late frame about a connection or a ring that these tasks had elsewhere does not match this
        // one, because each daemon counts from a random number.
        let id = cx.config.nonce.wrapping_add(cx.next_request);
        let secret = Secret::derived(&cx.config.direct_seed, id);
        let sealed = ask.sealed || cx.config.sealed;
        let ready = DirectReady {
            request: ask.request,
            ends: ask.ends,
            id,
            secret: secret.clone(),
            sealed,
        };
        if !cx.send_news(host, &Order::DirectReady(ready)) {
            return;
        }
        cx.next_request += 1;
        self.asked.remove(&pair);
        self.awaited.insert(id, pair);
        let connection = Connection {
            id,
            ends: [peer, local],
            secret: secret.clone(),
        };
        let stage = Stage::Awaited { secret, sealed };
        self.insert(pair, Direct { id, host, stage });
        cx.set_timer(now + limits::DIRECT_AWAITED, Timer::Direct(id));
        cx.emit(DirectOutput::Expect(Box::new(connection)));
    }

    /// The peer's daemon expects the connection: lets the local task dial, if it `may` have the
    /// connection and the reply is not void.
    pub fn dial(&mut self, cx: &mut Context, ready: DirectReady, host: HostId, may: bool) {
        let (local, peer, id) = (ready.ends.dials, ready.ends.accepts, ready.id);
        let pair = Pair { local, peer };
        let is_it = |asked: &Asked| asked.request == ready.request && asked.until > cx.now;
        let is_asked = self.asked.get(&pair).is_some_and(is_it);
        if is_asked {
            self.asked.remove(&pair);
        }
        let peers_host = cx.agreement.state().host(host);
        let addr = peers_host.map(|host| host.facts.addr.clone());
        let addr = addr.filter(|_| may && is_asked && self.get(pair).is_none());
        let Some(addr) = addr else {
            return tell_daemon(cx, pair, id, host, DirectEnd::Left);
        };
        let stage = Stage::Told;
        self.insert(pair, Direct { id, host, stage });
        let dial = DirectDial {
            peer,
            id,
            addr,
            secret: ready.secret,
            sealed: ready.sealed,
        };
        let frame = dial.frame().between(cx.tid, local);
        cx.emit(Output::Task(local, frame));
    }

    /// The local task to which an expected connection leads, by the number of the connection.
    pub fn accepting(&self, id: u64) -> Option<Tid> {
        self.awaited.get(&id).map(|pair| pair.local)
    }

    /// An expected connection has come: hands it to its task, if the task `may` have it.
    pub fn came(&mut self, cx: &mut Context, id: u64, may: bool) {
        let Some(pair) = self.awaited.get(&id).copied() else {
            return cx.emit(DirectOutput::Forget(id));
        };
        if !may {
            return self.close(cx, pair, DirectEnd::Left);
        }
        self.awaited.remove(&id);
        let direct = self.get_mut(pair);
        let stage = direct.map(|direct| std::mem::replace(&mut direct.stage, Stage::Told));
        let Some(Stage::Awaited { secret, sealed }) = stage else {
            return cx.emit(DirectOutput::Forget(id));
        };
        cx.counters.directs_accepted += 1;
        let (tid, peer) = (pair.local, pair.peer);
        let open = DirectOpen {
            peer,
            id,
            secret,
            sealed,
        };
        let frame = open.frame().between(cx.tid, tid);
        cx.emit(DirectOutput::Open { id, tid, frame });
    }

    /// The time for an expected connection is over.
    pub fn on_due(&mut self, cx: &mut Context, id: u64) {
        if let Some(pair) = self.awaited.get(&id).copied() {
            self.close(cx, pair, DirectEnd::Late);
        }
    }

    /// Closes all connections of a task that is frozen to be moved, or has ended. If its process is
    /// `alive`, it is interrupted: it may continue here.
    pub fn close_all_of(&mut self, cx: &mut Context, tid: Tid, alive: bool) {
        self.asked.retain(|pair, _| pair.local != tid);
        for (peer, direct) in self.of_task.remove(&tid).unwrap_or_default() {
            let pair = Pair { local: tid, peer };
            tell_daemon(cx, pair, direct.id, direct.host, DirectEnd::Left);
            self.end(cx, pair, &direct, alive);
        }
    }

    /// Closes a connection that its task cannot use, or has given up.
    pub fn given_up(&mut self, cx: &mut Context, tid: Tid, closed: &RingClosed) {
        let (local, peer) = (tid, closed.peer);
        let pair = Pair { local, peer };
        let told = |direct: &Direct| direct.id == closed.id && matches!(direct.stage, Stage::Told);
        if self.get(pair).is_some_and(told)
            && let Some(direct) = self.remove(pair)
        {
            let why = match closed.why {
                RouteEnd::NotMade => DirectEnd::NotMade,
                RouteEnd::Closed | RouteEnd::GivenUp => DirectEnd::GivenUp,
            };
            tell_daemon(cx, pair, direct.id, direct.host, why);
        }
    }

    /// The daemon of the peer's host has closed a connection.
    pub fn on_closed(&mut self, cx: &mut Context, closed: DirectClosed, host: HostId) {
        let (local, peer) = (closed.to, closed.from);
        let pair = Pair { local, peer };
        let is_it = |direct: &Direct| (direct.id, direct.host) == (closed.id, host);
        if self.get(pair).is_some_and(is_it)
            && let Some(direct) = self.remove(pair)
        {
            let is_awaited = matches!(direct.stage, Stage::Awaited { .. });
            if is_awaited && closed.why == DirectEnd::NotMade {
                self.note_failure(cx, host);
            }
            self.end(cx, pair, &direct, true);
        }
    }

    /// A task of another host has ended: closes the connections of local tasks to it, which read what
    /// it has sent before they hear of its end.
    pub fn peer_ended(&mut self, cx: &mut Context, peer: Tid) {
        self.close_where(cx, false, |other, _| other == peer);
    }

    /// A task has moved to `host`: closes the connections of local tasks to its earlier place.
    pub fn peer_moved(&mut self, cx: &mut Context, peer: Tid, host: HostId) {
        self.close_where(cx, true, |other, direct| {
            other == peer && direct.host != host
        });
    }

    /// The link to a host is lost or new, or the host is: closes all connections to its tasks.
    pub fn on_link_changed(&mut self, cx: &mut Context, host: HostId) {
        self.failing.remove(&host);
        self.noted.remove(&host);
        self.close_where(cx, true, |_, direct| direct.host == host);
    }

    /// Closes the connections that `selects` names by peer, and tells the local tasks alone.
    fn close_where(
        &mut self,
        cx: &mut Context,
        interrupts: bool,
        selects: impl Fn(Tid, &Direct) -> bool,
    ) {
        let all = self.of_task.iter().flat_map(|(local, directs)| {
            let chosen = directs.iter().filter(|(peer, it)| selects(**peer, it));
            chosen.map(|(peer, _)| Pair {
                local: *local,
                peer: *peer,
            })
        });
        for pair in all.collect::<Vec<_>>() {
            if let Some(direct) = self.remove(pair) {
                self.end(cx, pair, &direct, interrupts);
            }
        }
    }

    /// Closes an expected connection, and tells the daemon of the peer's host.
    fn close(&mut self, cx: &mut Context, pair: Pair, why: DirectEnd) {
        if let Some(direct) = self.remove(pair) {
            tell_daemon(cx, pair, direct.id, direct.host, why);
            self.end(cx, pair, &direct, false);
        }
    }

    /// Tells the local task of a connection, which is removed, that it is closed. With `interrupts`,
    /// the task sends at once by the daemon what it retains.
    fn end(&mut self, cx: &mut Context, pair: Pair, direct: &Direct, interrupts: bool) {
        let (tid, peer, id) = (pair.local, pair.peer, direct.id);
        match direct.stage {
            Stage::Awaited { .. } => {
                self.awaited.remove(&id);
                cx.emit(DirectOutput::Forget(id));
            }
            Stage::Told => {
                cx.tell_route_closed(tid, peer, id);
                if interrupts {
                    cx.emit(DirectOutput::Nudge { tid, id });
                }
            }
        }
    }

    /// Whether tasks of that host could not connect to this host a short time ago.
    fn is_failing(&self, host: HostId, now: Time) -> bool {
        self.failing.get(&host).is_some_and(|until| *until > now)
    }

    fn note_failure(&mut self, cx: &mut Context, host: HostId) {
        self.failing.insert(host, cx.now + limits::DIRECT_PAUSE);
        if self.noted.insert(host) {
            let (here, there) = (&cx.config.facts.name, cx.host_name(host));
            let text = format!(
                "tasks of host '{there}' cannot connect to host '{here}': messages between tasks of \
                 the two go through the daemons, which is slower"
            );
            cx.emit(Output::Note(text));
        }
    }

    fn get(&self, pair: Pair) -> Option<&Direct> {
        self.of_task.get(&pair.local)?.get(&pair.peer)
    }

    fn get_mut(&mut self, pair: Pair) -> Option<&mut Direct> {
        self.of_task.get_mut(&pair.local)?.get_mut(&pair.peer)
    }

    fn insert(&mut self, pair: Pair, direct: Direct) {
        let directs = self.of_task.entry(pair.local).or_default();
        directs.insert(pair.peer, direct);
    }

    fn remove(&mut self, pair: Pair) -> Option<Direct> {
        let directs = self.of_task.get_mut(&pair.local)?;
        let direct = directs.remove(&pair.peer);
        if directs.is_empty() {
            self.of_task.remove(&pair.local);
        }
        direct
    }
}

/// Tells the daemon of the peer's host that a connection is closed.
fn tell_daemon(cx: &mut Context, pair: Pair, id: u64, host: HostId, why: DirectEnd) {
    let closed = DirectClosed {
        id,
        from: pair.local,
        to: pair.peer,
        why,
    };
    cx.send_order(host, &Order::DirectClosed(closed));
}
