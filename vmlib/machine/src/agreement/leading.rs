//! What a leader knows, from its election to its end.

use crate::{Time, lease::GivenLeases};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use vm_wire::HostId;

/// What a leader knows, from its election to its end.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) term: u64,
    pub(super) given: GivenLeases,
    /// The last entry of each host that is in the log of this term.
    pub(super) taken: BTreeMap<HostId, u64>,
    /// When the death of a host was last proposed.
    pub(super) declared: BTreeMap<HostId, Time>,
    /// The voters that were wanted last, and since when.
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

    /// Whether most of those voters have been heard since they are wanted. In half a second a host
    /// that answered may have got out of reach, and with a majority of such voters this leader would
    /// have none: a change of raft's configuration cannot be taken back.
    pub(super) fn hears(&mut self, now: Time, me: HostId, wanted: &BTreeSet<HostId>) -> bool {
        let same = self.wanted.take().filter(|(before, _)| before == wanted);
        let (_, since) = self
            .wanted
            .insert(same.unwrap_or_else(|| (wanted.clone(), now)));
        let heard = |host: &&HostId| **host == me || self.given.heard_after(*since, **host);
        2 * wanted.iter().filter(heard).count() > wanted.len()
    }

    /// This host's loop stood still for `gap`: see [`GivenLeases::stalled`].
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
