//! The state of a leader, from its election to its end: the leases that it gave, the entries that
//! it took, the deaths that it proposed, and the voters that it chose. A new leader begins without
//! this state.

use crate::{Time, lease::GivenLeases};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use vm_wire::HostId;

#[derive(Debug)]
pub(super) struct Leading {
    pub(super) term: u64,
    pub(super) given: GivenLeases,
    /// Number of the last entry of each host in the log of this term.
    pub(super) taken: BTreeMap<HostId, u64>,
    /// Time at which the death of a host was last proposed.
    pub(super) declared: BTreeMap<HostId, Time>,
    /// The voters that were last chosen, and the time since which they are the choice.
    pub(super) wanted: Option<(BTreeSet<HostId>, Time)>,
}

impl Leading {
    pub(super) fn elected(now: Time, term: u64) -> Self {
        Leading {
            term,
            given: GivenLeases::elected(now, term),
            taken: BTreeMap::new(),
            declared: BTreeMap::new(),
            wanted: None,
        }
    }

    /// Whether a majority of the chosen voters has been heard since they were chosen. A host that
    /// replied half a second ago may be out of reach. With a majority of such voters this leader
    /// would have no majority, and a change of raft's configuration cannot be reversed.
    pub(super) fn hears(&mut self, now: Time, me: HostId, wanted: &BTreeSet<HostId>) -> bool {
        let same = self.wanted.take().filter(|(before, _)| before == wanted);
        let (_, since) = self
            .wanted
            .insert(same.unwrap_or_else(|| (wanted.clone(), now)));
        let heard = |host: &&HostId| **host == me || self.given.heard_after(*since, **host);
        2 * wanted.iter().filter(heard).count() > wanted.len()
    }

    /// Notes that the loop of this host was stalled for `gap`: see [`GivenLeases::stalled`].
    pub(super) fn stalled(&mut self, now: Time, gap: Duration) {
        self.given.stalled(now, gap);
        self.wanted = None;
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.given.forget(host);
        self.taken.remove(&host);
        self.declared.remove(&host);
    }
}
