//! How the hosts of a machine agree: the log, the leases, who votes.

use crate::{Agreed, Applied, ConnId, Time, agreed::SnapshotError};
use std::collections::VecDeque;
use vm_wire::{
    Frame, HostId, MachineId,
    agreed::{Change, HostFacts, SnapshotAt},
    limits,
    peer::Join,
};

/// What may be chosen.
#[derive(Debug, Clone)]
pub struct AgreementConfig {
    /// Entries that the log keeps before it is compacted.
    pub log_entries_max: u64,
}

impl Default for AgreementConfig {
    fn default() -> Self {
        AgreementConfig {
            log_entries_max: limits::LOG_ENTRIES_MAX,
        }
    }
}

/// What the agreement wants done or tells.
#[derive(Debug)]
pub enum AgreementOutput {
    /// Send over the link to a host; may be lost.
    Send(HostId, Frame),
    /// Answer a joiner: Joined or Refused.
    Joiner(ConnId, Frame),
    /// The entry at that index did this. [`Agreement::state`] is at that index or later.
    Applied(u64, Applied),
    /// This host's lease ends then: arm the timer that kills the daemon.
    Lease(Time),
    /// A link to that host at that address is wanted.
    Connect(HostId, String),
    /// This host is not part of the machine any more, or no majority is left: end all tasks, say
    /// why, exit. Nothing follows.
    Lost(String),
}

/// One host's part in the agreement. See the module.
#[derive(Debug)]
pub struct Agreement {
    me: HostId,
    state: Agreed,
}

impl Agreement {
    /// The founder of a machine: host 1, the sole voter. Calls [`Agreement::tick`] next.
    pub fn found(
        _now: Time,
        _config: AgreementConfig,
        machine: MachineId,
        facts: HostFacts,
        nonce: u64,
    ) -> Self {
        Agreement {
            me: HostId::FOUNDER,
            state: Agreed::founded(machine, 1, facts, nonce),
        }
    }

    /// A host that was told to be `me` in a [`vm_wire::peer::Joined`].
    ///
    /// # Errors
    /// [`SnapshotError`] when the snapshot cannot be read.
    pub fn joined(
        _now: Time,
        _config: AgreementConfig,
        me: HostId,
        snapshot: &SnapshotAt,
    ) -> Result<Self, SnapshotError> {
        let state = Agreed::decode(&snapshot.state)?;
        Ok(Agreement { me, state })
    }

    /// A Raft, Propose, FeedAsk, Feed, Snapshot, Alive or Grant frame came from another host.
    pub fn handle(
        &mut self,
        _now: Time,
        _from: HostId,
        _frame: &Frame,
        _out: &mut VecDeque<AgreementOutput>,
    ) {
    }

    /// A daemon wants to join; asking again is harmless.
    pub fn join(
        &mut self,
        _now: Time,
        _joiner: ConnId,
        _join: Join,
        _out: &mut VecDeque<AgreementOutput>,
    ) {
    }

    /// The joiner's connection is gone.
    pub fn joiner_gone(&mut self, _joiner: ConnId) {}

    /// Wants `change` in the log. It is proposed until it was applied, in the order of the calls;
    /// then [`AgreementOutput::Applied`] tells what it did.
    pub fn propose(&mut self, _now: Time, _change: Change, _out: &mut VecDeque<AgreementOutput>) {}

    /// There is a link to `host`.
    pub fn link_up(&mut self, _now: Time, _host: HostId, _out: &mut VecDeque<AgreementOutput>) {}

    /// The link to `host` is gone, or could not be made.
    pub fn link_down(&mut self, _host: HostId) {}

    /// Time has come to [`Agreement::deadline`].
    pub fn tick(&mut self, _now: Time, _out: &mut VecDeque<AgreementOutput>) {}

    /// When [`Agreement::tick`] is to be called next; at most a raft tick ahead.
    pub fn deadline(&self) -> Time {
        Time(u64::MAX)
    }

    /// This host.
    pub fn me(&self) -> HostId {
        self.me
    }

    /// The agreed state as far as it is known here.
    pub fn state(&self) -> &Agreed {
        &self.state
    }

    /// The leader as far as known, or [`HostId::NONE`].
    pub fn leader(&self) -> HostId {
        HostId::NONE
    }

    /// The voters as far as known, by number.
    pub fn voters(&self) -> Vec<HostId> {
        Vec::new()
    }

    /// When this host's lease ends; `None` before the first one.
    pub fn lease_until(&self) -> Option<Time> {
        None
    }

    /// Whether a planned leave may be completed (`HostGone` proposed): this host neither leads
    /// nor votes any more.
    pub fn may_go(&self) -> bool {
        false
    }

    /// Whether changes of this daemon still wait to be applied.
    pub fn is_pending(&self) -> bool {
        false
    }
}
