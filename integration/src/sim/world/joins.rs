//! The entry of a daemon into the machine: it founds the machine, or requests to join until it is
//! admitted.

use super::state::{Connection, Event, World, fault::Ambush};
use crate::sim::{
    network::{LATENCY_MIN, Slot},
    node::State,
    queue::{MS, SECOND},
};
use std::time::Duration;
use vm_machine::{AgreementConfig, Daemon, DaemonConfig, Input, Outbox};
use vm_wire::{
    Frame, Message, Op,
    peer::{Join, Joined},
};

impl World {
    /// The configuration of a daemon.
    fn daemon_config(&mut self, slot: Slot) -> DaemonConfig {
        let grace = self.random.between(SECOND, 8 * SECOND);
        let drains = self.random.percent(50);
        DaemonConfig {
            drain_at_stop: drains.then(|| Duration::from_micros(grace)),
            window_bytes: (16 * 1024) << self.random.below(5),
            agreement: AgreementConfig {
                log_entries_max: self.random.between(20, 400),
            },
            ..DaemonConfig::new(
                self.nodes[slot].facts(slot, self.own_stores),
                self.nodes[slot].nonce,
            )
        }
    }

    /// The first daemon founds the machine.
    pub(super) fn found(&mut self, slot: Slot) -> Result<(), String> {
        let config = self.daemon_config(slot);
        let mut outbox = Outbox::new();
        let now = self.nodes[slot].time(self.queue.now());
        let daemon = Daemon::found(now, self.machine, config, &mut outbox);
        self.take_office(slot, daemon, outbox)
    }

    /// Sends the join request of a daemon to some other daemon, and repeats it after a while.
    pub(super) fn ask_join(&mut self, slot: Slot) -> Result<(), String> {
        if self.nodes[slot].state != State::Joining {
            return Ok(());
        }
        self.queue.after(SECOND, Event::AskJoin(slot));
        if let Some(old) = self.nodes[slot].joining.take()
            && let Some(Connection::Joiner(_)) = self.connections.remove(&old)
        {
            for other in 0..self.nodes.len() {
                self.queue
                    .after(MS, Event::Input(other, Input::ConnGone(old)));
            }
        }
        let running: Vec<Slot> = (0..self.nodes.len())
            .filter(|other| self.nodes[*other].is_running() && !self.nodes[*other].is_leaving())
            .collect();
        let Some(&asked) = self.random.pick(&running) else {
            // No daemon is left that could admit it: its user gives up.
            self.nodes[slot].state = State::Down;
            return Ok(());
        };
        let (link, _) = self.network.link(slot, asked);
        if link.is_blocked() {
            return Ok(());
        }
        self.begins(Ambush::Joining);
        let conn = self.new_connection(Connection::Joiner(slot));
        let node = &mut self.nodes[slot];
        node.joining = Some(conn);
        let join = Join {
            nonce: node.nonce,
            facts: node.facts(slot, self.own_stores),
        };
        let delay = self.random.between(4 * LATENCY_MIN, 3 * MS);
        let input = Input::Joiner(conn, join.frame());
        self.queue.after(delay, Event::Input(asked, input));
        Ok(())
    }

    /// A daemon replies to a joining daemon.
    pub(super) fn answer_joiner(&mut self, conn: vm_machine::ConnId, frame: Frame) {
        if let Some(&Connection::Joiner(slot)) = self.connections.get(&conn) {
            self.queue
                .after(5 * LATENCY_MIN, Event::Admitted(slot, frame));
        }
    }

    /// Handles the reply of the machine: admitted, or refused.
    pub(super) fn admitted(&mut self, slot: Slot, frame: &Frame) -> Result<(), String> {
        if self.nodes[slot].state != State::Joining {
            return Ok(());
        }
        if frame.header.op != Op::Joined {
            self.trace(|| format!("slot {slot} is refused"));
            self.nodes[slot].state = State::Down;
            return Ok(());
        }
        let joined = Joined::read(frame).map_err(|error| error.to_string())?;
        let config = self.daemon_config(slot);
        let mut outbox = Outbox::new();
        let now = self.nodes[slot].time(self.queue.now());
        let daemon = Daemon::joined(now, config, &joined, &mut outbox)
            .map_err(|error| format!("slot {slot} cannot join: {error}"))?;
        self.take_office(slot, daemon, outbox)
    }

    fn take_office(&mut self, slot: Slot, daemon: Daemon, outbox: Outbox) -> Result<(), String> {
        let node = &mut self.nodes[slot];
        node.host = daemon.agreement().me();
        node.state = State::Running;
        node.daemon = Some(daemon);
        let host = node.host;
        self.trace(|| format!("slot {slot} is {host}"));
        let twice = self.nodes.iter().filter(|node| node.host == host).count() > 1;
        if twice {
            return Err(format!("two daemons are {host}"));
        }
        self.after_step(slot, outbox)
    }
}
