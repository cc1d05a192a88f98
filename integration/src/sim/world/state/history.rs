//! Agreed states that the checkers have seen.

use std::collections::{BTreeMap, BTreeSet};
use vm_machine::Agreed;
use vm_wire::{HostId, Tid};

/// Agreed states that any daemon has reached so far.
#[derive(Debug, Default)]
pub struct History {
    /// Digest of the agreed state at each index at which some daemon was seen.
    pub digests: BTreeMap<u64, u64>,
    /// Hosts that any daemon has declared dead.
    pub dead: BTreeSet<HostId>,
    /// Tasks that were on draining hosts.
    pub draining: Draining,
}

/// The tasks on the hosts that drain, at the last index that was seen.
#[derive(Debug, Default)]
pub struct Draining {
    pub index: u64,
    pub tasks: BTreeMap<HostId, BTreeSet<Tid>>,
}

impl Draining {
    /// Checks that, from one index to the next, no task comes to a host that drains before and
    /// after.
    pub fn check(&mut self, index: u64, agreed: &Agreed) -> Result<(), String> {
        if index <= self.index {
            return Ok(());
        }
        let hosts = agreed.hosts().map(|(host, _)| host);
        let tasks: BTreeMap<HostId, BTreeSet<Tid>> = hosts
            .filter(|host| agreed.is_draining(*host))
            .map(|host| (host, agreed.tasks_on(host).collect()))
            .collect();
        for (host, now) in tasks.iter().filter(|_| index == self.index + 1) {
            if let Some(before) = self.tasks.get(host)
                && let Some(came) = now.difference(before).next()
            {
                return Err(format!("{came} came to {host}, which drains"));
            }
        }
        *self = Draining { index, tasks };
        Ok(())
    }
}
