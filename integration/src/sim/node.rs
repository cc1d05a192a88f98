//! A simulated daemon's process: the production state machine, its clock, its timers.

use super::{clock::Clock, queue::Moment};
use std::collections::VecDeque;
use vm_machine::{Agreed, ConnId, Daemon, HostPhase, Input, Time};
use vm_wire::{HostId, agreed::HostFacts};

/// State of a daemon's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It asks to be let in.
    Joining,
    /// The process runs, and its daemon is in the machine.
    Running,
    /// SIGSTOP: what comes in waits in its sockets.
    Stopped,
    /// The process has ended.
    Down,
}

/// A daemon and its process.
pub struct Node {
    /// Unique among those that live, except where a fault wants it otherwise.
    pub name: String,
    /// Drawn at its start.
    pub nonce: u64,
    /// CLOCK_BOOTTIME of its host.
    pub clock: Clock,
    /// State of the daemon's process.
    pub state: State,
    /// The production state machine, once it is in the machine.
    pub daemon: Option<Daemon>,
    /// Its number, once it is in the machine.
    pub host: HostId,
    /// When it is stepped next for want of other events.
    pub tick_at: Option<Moment>,
    /// When the kernel ends it.
    pub lease_at: Option<Moment>,
    /// Inputs that wait in the sockets of a stopped daemon, oldest first.
    pub deferred: VecDeque<Input>,
    /// Index of the agreed state that was checked last.
    pub checked: u64,
    /// It was told to leave. (One for which a console asked is leaving once the log says so.)
    pub told_to_leave: bool,
    /// Its connection to the daemon that it asks to be let in.
    pub joining: Option<ConnId>,
}

impl Node {
    /// A daemon's process that is not in a machine yet.
    pub fn new(name: String, nonce: u64, clock: Clock) -> Self {
        Node {
            name,
            nonce,
            clock,
            state: State::Joining,
            daemon: None,
            host: HostId::NONE,
            tick_at: None,
            lease_at: None,
            deferred: VecDeque::new(),
            checked: 0,
            told_to_leave: false,
            joining: None,
        }
    }

    /// The facts with which the daemon joins.
    pub fn facts(&self, slot: usize, store_local: bool) -> HostFacts {
        HostFacts {
            name: self.name.clone(),
            addr: address(slot),
            cpus: 1 + (self.nonce % 4) as u32,
            tasks_max: if self.nonce.is_multiple_of(4) { 8 } else { 64 },
            arch: "x86_64".to_owned(),
            store_local,
        }
    }

    /// Whether its process exists.
    pub fn is_alive(&self) -> bool {
        self.state != State::Down
    }

    /// Whether it runs as a part of the machine.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// The agreed state as it knows it, while it is part of the machine.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.daemon
            .as_ref()
            .map(|daemon| daemon.agreement().state())
    }

    /// Whether it is on its way out in order.
    pub fn is_leaving(&self) -> bool {
        let phase = |agreed: &Agreed| agreed.host(self.host).map(|host| host.phase);
        let agreed = self.agreed().and_then(phase) == Some(HostPhase::Leaving);
        self.is_alive() && (self.told_to_leave || agreed)
    }

    /// The reading of the host's clock at `moment`.
    pub fn time(&self, moment: Moment) -> Time {
        self.clock.read(moment)
    }
}

/// The address of a slot.
pub fn address(slot: usize) -> String {
    format!("sim:{slot}")
}

/// The slot of an address.
pub fn slot_of(address: &str) -> Option<usize> {
    address.strip_prefix("sim:")?.parse().ok()
}
