//! Connections between daemons: made on demand, broken by faults, noticed after a delay.

use super::state::{Event, World};
use crate::sim::{
    network::{Fate, LATENCY_MIN, Slot},
    node::{State, slot_of},
    queue::{MS, Moment, SECOND},
};
use vm_machine::Input;
use vm_wire::{
    Frame, HostId, Message, Op, limits,
    task::{Ended, Located},
};

/// How long a connection is tried while packets are lost.
const CONNECT_TIME: Moment = SECOND;

impl World {
    /// Handles a daemon's request for a link.
    pub(super) fn want_link(&mut self, from: Slot, host: HostId, address: &str) {
        let now = self.queue.now();
        let Some(to) = slot_of(address).filter(|to| *to != from && *to < self.nodes.len()) else {
            self.queue
                .after(1, Event::Input(from, Input::LinkDown(host)));
            return;
        };
        let me = self.nodes[from].host;
        self.trace(|| format!("{me} wants a link to {host}"));
        let delay = self.random.between(3 * LATENCY_MIN, 2 * MS);
        let (link, end) = self.network.link(from, to);
        if link.alive && link.ends[end].up {
            return;
        }
        link.ends[end].asked = Some(host);
        if !link.making {
            link.making = true;
            let give_up = now + CONNECT_TIME;
            self.queue
                .after(delay, Event::Connect { from, to, give_up });
        }
    }

    /// Completes a connection, or tries it a little longer, or lets it fail.
    pub(super) fn connect(&mut self, from: Slot, to: Slot, give_up: Moment) -> Result<(), String> {
        let now = self.queue.now();
        let states = (self.nodes[from].state, self.nodes[to].state);
        let hosts = (self.nodes[from].host, self.nodes[to].host);
        let (link, _) = self.network.link(from, to);
        if states == (State::Running, State::Running) && !link.is_blocked() {
            link.make();
            link.ends[0].up = true;
            link.ends[1].up = true;
            let generation = link.generation;
            self.trace(|| format!("{} <-> {} link {generation} is up", hosts.0, hosts.1));
            self.feed(to, Input::LinkUp(hosts.0))?;
            return self.feed(from, Input::LinkUp(hosts.1));
        }
        let gone = [states.0, states.1]
            .iter()
            .any(|state| matches!(state, State::Down | State::Joining));
        // The kernel of a stopped daemon accepts the connection, but the daemon makes no handshake.
        let give_up = if states.1 == State::Stopped {
            give_up + limits::HANDSHAKE_TIME.as_micros() as u64
        } else {
            give_up
        };
        if !gone && now < give_up {
            self.queue
                .after(50 * MS, Event::Connect { from, to, give_up });
            return Ok(());
        }
        self.trace(|| format!("{} cannot connect to {}", hosts.0, hosts.1));
        let (link, _) = self.network.link(from, to);
        link.making = false;
        let told = [0, 1].map(|end| {
            let other = [from.max(to), from.min(to)][end];
            let up = link.ends[end].up.then_some(self.nodes[other].host);
            link.ends[end].asked.or(up)
        });
        for end in &mut link.ends {
            end.asked = None;
            end.up = false;
        }
        link.destroy();
        for (slot, other) in [from.min(to), from.max(to)].into_iter().zip(told) {
            if let Some(other) = other {
                self.feed(slot, Input::LinkDown(other))?;
            }
        }
        Ok(())
    }

    /// Sends a frame from one daemon to another.
    pub(super) fn send_peer(&mut self, from: Slot, host: HostId, frame: Frame) {
        let Some(to) = self.slot_of_host(host) else {
            return;
        };
        let now = self.queue.now();
        let latency = LATENCY_MIN + self.random.below(300);
        let (link, end) = self.network.link(from, to);
        let generation = link.generation;
        if let Fate::Arrives(at, frame) = link.send(end, now, latency, frame) {
            self.queue.at(
                at,
                Event::Frame {
                    from,
                    to,
                    generation,
                    frame,
                },
            );
        }
    }

    /// Delivers a frame, if its connection still exists and its receiver was told of the
    /// connection.
    pub(super) fn arrive(
        &mut self,
        from: Slot,
        to: Slot,
        generation: u64,
        frame: Frame,
    ) -> Result<(), String> {
        let host = self.nodes[from].host;
        let (link, end) = self.network.link(to, from);
        if link.generation != generation || !link.ends[end].up {
            return Ok(());
        }
        if link.is_blocked() {
            let (link, end) = self.network.link(from, to);
            link.hold(end, frame);
            return Ok(());
        }
        if self.options.trace {
            let me = self.nodes[to].host;
            self.trace(|| format!("{host} -> {me} {}", describe(&frame)));
        }
        self.feed(to, Input::Peer(host, frame))
    }

    /// Destroys the connection between two slots. Each end notices after its delay.
    pub(super) fn destroy(&mut self, pair: (Slot, Slot), notice: [Moment; 2]) {
        let (link, _) = self.network.link(pair.0, pair.1);
        if !link.alive {
            return;
        }
        link.destroy();
        let generation = link.generation;
        for (at, other, delay) in [(pair.0, pair.1, notice[0]), (pair.1, pair.0, notice[1])] {
            self.queue.after(
                delay,
                Event::Broken {
                    at,
                    other,
                    generation,
                },
            );
        }
    }

    /// Reports the broken connection to one end, unless there is a new connection.
    pub(super) fn notice(&mut self, at: Slot, other: Slot, generation: u64) -> Result<(), String> {
        let (link, end) = self.network.link(at, other);
        if link.generation != generation || link.alive || !link.ends[end].up {
            return Ok(());
        }
        link.ends[end].up = false;
        let host = self.nodes[other].host;
        self.feed(at, Input::LinkDown(host))
    }

    /// A daemon closes its link: the other end reads an end of file.
    pub(super) fn close_link(&mut self, from: Slot, host: HostId) {
        let Some(to) = self.slot_of_host(host) else {
            return;
        };
        let (link, end) = self.network.link(from, to);
        link.ends[end].up = false;
        let pair = (from.min(to), from.max(to));
        self.destroy(pair, [MS, MS]);
    }

    /// Closes all links of a process that has ended, as its kernel does.
    pub(super) fn close_links(&mut self, slot: Slot) {
        let pairs: Vec<(Slot, Slot)> = self
            .network
            .iter_mut()
            .filter(|((a, b), link)| link.alive && (*a == slot || *b == slot))
            .map(|(pair, _)| pair)
            .collect();
        for pair in pairs {
            // If packets are lost, the other end notices only after a long time.
            let (link, _) = self.network.link(pair.0, pair.1);
            let delay = if link.is_blocked() { 5 * SECOND } else { 0 };
            let notice = delay + self.random.between(100, 3 * MS);
            self.destroy(pair, [notice, notice]);
        }
    }

    /// Ends one of the reasons for lost packets. The held frames arrive once no reason is left.
    pub(super) fn release(&mut self, pair: (Slot, Slot)) {
        let (link, _) = self.network.link(pair.0, pair.1);
        let generation = link.generation;
        let held = link.unblock();
        for (frames, (from, to)) in held.into_iter().zip([pair, (pair.1, pair.0)]) {
            for frame in frames {
                self.queue.after(
                    0,
                    Event::Frame {
                        from,
                        to,
                        generation,
                        frame,
                    },
                );
            }
        }
    }
}

/// One line about a frame, for the trace.
pub(super) fn describe(frame: &Frame) -> String {
    let header = &frame.header;
    let mut line = format!("{:?} {} bytes", header.op, frame.body.len());
    if !header.from.is_none() {
        line += &format!(" {} -> {}", header.from, header.to);
    }
    if header.seq != 0 {
        line += &format!(" seq={} {}/{}", header.seq, header.offset, header.total);
    }
    if header.ack != 0 || header.credit != 0 {
        line += &format!(" ack={} credit={}", header.ack, header.credit);
    }
    if header.request != 0 {
        line += &format!(" request={}", header.request);
    }
    let bad = |_| " unreadable".to_owned();
    match header.op {
        Op::Located => line += &Located::read(frame).map_or_else(bad, |it| format!(" {it:?}")),
        Op::Ended => line += &Ended::read(frame).map_or_else(bad, |it| format!(" {it:?}")),
        _ => {}
    }
    line
}
