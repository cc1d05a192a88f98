//! A simulated daemon's process: the production state machine, its clock, its timers.

use super::{clock::Clock, queue::Moment};
use std::collections::VecDeque;
use vm_machine::{Agreed, ConnId, Daemon, HostPhase, Input, Time};
use vm_wire::{HostId, agreed::HostFacts};

/// State of a daemon's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The daemon requests to join.
    Joining,
    /// The process runs, and its host is in the machine.
    Running,
    /// Stopped by SIGSTOP: inputs wait in its sockets.
    Stopped,
    /// The process has ended.
    Down,
}

/// A daemon and its process.
pub struct Node {
    /// Unique among living daemons, unless a fault gives a daemon the name of another.
    pub name: String,
    /// A random number, made at its start.
    pub nonce: u64,
    /// CLOCK_BOOTTIME of its host.
    pub clock: Clock,
    /// State of the daemon's process.
    pub state: State,
    /// The production state machine, once the host is in the machine.
    pub daemon: Option<Daemon>,
    /// The number of the host, once it is in the machine.
    pub host: HostId,
    /// The moment of its next step without another event.
    pub tick_at: Option<Moment>,
    /// The moment at which the kernel kills the process.
    pub lease_at: Option<Moment>,
    /// Inputs that wait in the sockets of a stopped daemon, oldest first.
    pub deferred: VecDeque<Input>,
    /// Index of the agreed state that was checked last.
    pub checked: u64,
    /// Whether the daemon was told to leave. (A host that a console deletes is leaving once the log
    /// says so.)
    pub told_to_leave: bool,
    /// The connection to the daemon that got its join request.
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

    /// Whether the process exists.
    pub fn is_alive(&self) -> bool {
        self.state != State::Down
    }

    /// Whether the daemon runs as a part of the machine.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// The agreed state as the daemon knows it, while its host is in the machine.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.daemon
            .as_ref()
            .map(|daemon| daemon.agreement().state())
    }

    /// Whether the host is leaving in order.
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
