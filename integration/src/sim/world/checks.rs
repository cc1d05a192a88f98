//! Rules that hold at every moment.

use super::state::World;
use crate::sim::network::Slot;
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hasher},
};
use vm_machine::{Agreed, HostPhase};
use vm_wire::HostId;

impl World {
    /// Checks that a daemon has refused no message of another daemon after a step: the simulator's
    /// links change no bytes.
    pub(super) fn check_peers(&self, slot: Slot) -> Result<(), String> {
        let node = &self.nodes[slot];
        let daemon = node.daemon.as_ref();
        match daemon.map_or(0, |daemon| daemon.counters().refused_peer) {
            0 => Ok(()),
            _ => Err(format!("{} refuses a message of another daemon", node.host)),
        }
    }

    /// Checks the agreed state of a daemon after a step, if it changed.
    ///
    /// Daemons at the same index hold the same state; the index never decreases; a host that was
    /// declared dead runs no process any more; no task is in a group twice.
    pub(super) fn check_agreed(&mut self, slot: Slot) -> Result<(), String> {
        let node = &mut self.nodes[slot];
        let Some(agreed) = node
            .daemon
            .as_ref()
            .map(|daemon| daemon.agreement().state())
        else {
            return Ok(());
        };
        let (index, host) = (agreed.index(), node.host);
        if index == node.checked {
            return Ok(());
        }
        if index < node.checked {
            return Err(format!(
                "{host} went back from index {} to {index}",
                node.checked
            ));
        }
        node.checked = index;
        let digest = digest(agreed);
        match self.history.digests.get(&index) {
            Some(known) if *known != digest => {
                return Err(format!(
                    "{host} holds another state than others at index {index}"
                ));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.history.digests.insert(index, digest);
        check_groups(agreed)?;
        self.history.draining.check(index, agreed)?;
        let dead: Vec<HostId> = agreed
            .hosts()
            .filter(|(host, facts)| {
                facts.phase == HostPhase::Dead && !self.history.dead.contains(host)
            })
            .map(|(host, _)| host)
            .collect();
        for host in dead {
            self.check_dead(host)?;
        }
        Ok(())
    }

    /// Handles a host that was declared dead: none of its processes may run.
    fn check_dead(&mut self, host: HostId) -> Result<(), String> {
        self.history.dead.insert(host);
        self.trace(|| format!("{host} is declared dead"));
        let runs = self.processes.iter().find(|process| {
            process.alive && !process.tid.is_none() && self.nodes[process.slot].host == host
        });
        match runs {
            Some(process) => Err(format!(
                "{} still runs on {host}, which was declared dead",
                process.tid
            )),
            None => Ok(()),
        }
    }
}

/// Checks that no task has two instance numbers in a group, and that no ended task has one.
fn check_groups(agreed: &Agreed) -> Result<(), String> {
    for (name, group) in agreed.groups() {
        let members: BTreeSet<_> = group.members.values().collect();
        if members.len() != group.members.len() {
            return Err(format!(
                "somebody is twice in group {name}: {:?}",
                group.members
            ));
        }
        if let Some(ended) = members
            .iter()
            .find(|tid| agreed.living_task(***tid).is_none())
        {
            return Err(format!("{ended} has ended and is in group {name}"));
        }
    }
    Ok(())
}

/// A hash of an agreed state, for comparisons.
pub(super) fn digest(agreed: &Agreed) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&agreed.encode());
    hasher.finish()
}
