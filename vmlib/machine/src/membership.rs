//! The choice of the voters, as a function of the leader's view of the hosts.
//!
//! With `n` hosts that are neither dead nor leaving there is one voter (n up to 2), or three (n up
//! to 4), or five. The leader comes first. Present voters with a lease follow, then other hosts
//! that reply and have caught up, lowest number first. If the number is even, the last host is left
//! out: an even number of voters survives no more deaths than the odd number below it. Draining
//! hosts come last: they vote only if there are not enough other hosts, and lead only if there is
//! no other host.
//!
//! The leader proposes voters after it has heard most of them since it chose them
//! (`agreement/lead.rs`).
//!
//! The rule depends on the present state, not on events. The leader applies it whenever the state
//! may have changed, until the voters are the chosen ones. A leader never proposes a configuration
//! without itself. A leader that leaves hands the lead over to a voter that replies. If there is
//! none, it first makes a host a voter; only then the number of voters is even.

use std::collections::BTreeSet;
use vm_wire::HostId;

/// Number of voters among `n` hosts.
fn voters_of(n: usize) -> usize {
    match n {
        0..=2 => 1,
        3..=4 => 3,
        _ => 5,
    }
}

/// The leader's view of the hosts.
pub struct View<'a> {
    /// The leader.
    pub me: HostId,
    /// The hosts that are neither dead nor leaving.
    pub staying: &'a BTreeSet<HostId>,
    /// The draining hosts among them.
    pub draining: &'a BTreeSet<HostId>,
    /// The present voters.
    pub voters: &'a BTreeSet<HostId>,
    /// The hosts that may hold a lease.
    pub live: &'a BTreeSet<HostId>,
    /// The hosts that reply and have caught up.
    pub ready: &'a BTreeSet<HostId>,
}

/// The leader's next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// No step, or none yet.
    Stay,
    /// Propose these voters to the log.
    Change(BTreeSet<HostId>),
    /// Hand the lead over to this voter.
    HandOver(HostId),
}

impl View<'_> {
    /// The next step towards the chosen voters.
    pub fn step(&self) -> Step {
        let leaves = !self.staying.contains(&self.me);
        let drains = self.draining.contains(&self.me);
        if leaves || drains {
            // A leader that leaves accepts a draining host as its successor. A host that does not
            // reply may be lost, and without a leader nothing can be agreed.
            let may_lead = |host: &HostId| {
                self.ready.contains(host) && (leaves || !self.draining.contains(host))
            };
            let others = self.others().into_iter().filter(may_lead);
            let voter = others.clone().find(|host| self.voters.contains(host));
            match (voter, others.clone().next()) {
                (Some(voter), _) => return Step::HandOver(voter),
                (None, Some(other)) => return Step::Change(BTreeSet::from([self.me, other])),
                (None, None) if leaves => return Step::Stay,
                (None, None) => {}
            }
        }
        let all = std::iter::once(self.me).chain(self.others());
        let mut wanted: Vec<HostId> = all.take(voters_of(self.staying.len())).collect();
        if wanted.len().is_multiple_of(2) {
            wanted.pop();
        }
        let wanted: BTreeSet<HostId> = wanted.into_iter().collect();
        let live = wanted.iter().filter(|host| self.is_live(host)).count();
        if wanted == *self.voters || live * 2 <= wanted.len() {
            return Step::Stay;
        }
        Step::Change(wanted)
    }

    /// The other possible voters, in the order of preference.
    fn others(&self) -> Vec<HostId> {
        let others = self.staying.iter().filter(|host| **host != self.me);
        let present = |host: &HostId| self.voters.contains(host) && self.is_live(host);
        let new = |host: &HostId| !self.voters.contains(host) && self.ready.contains(host);
        let mut others: Vec<HostId> = others
            .copied()
            .filter(|host| present(host) || new(host))
            .collect();
        others.sort_by_key(|host| (self.draining.contains(host), !present(host), *host));
        others
    }

    fn is_live(&self, host: &HostId) -> bool {
        *host == self.me || self.live.contains(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(numbers: &[u16]) -> BTreeSet<HostId> {
        numbers.iter().copied().map(HostId).collect()
    }

    /// The step of leader `me` if all `live` hosts reply and have caught up.
    fn step(me: u16, staying: &[u16], voters: &[u16], live: &[u16]) -> Step {
        step_while(&[], me, staying, voters, live)
    }

    /// The same, with draining hosts.
    fn step_while(drain: &[u16], me: u16, staying: &[u16], voters: &[u16], live: &[u16]) -> Step {
        step_as(drain, me, staying, voters, live, live)
    }

    /// The same, if only the `ready` hosts reply.
    fn step_as(
        drain: &[u16],
        me: u16,
        staying: &[u16],
        voters: &[u16],
        live: &[u16],
        ready: &[u16],
    ) -> Step {
        View {
            me: HostId(me),
            staying: &hosts(staying),
            draining: &hosts(drain),
            voters: &hosts(voters),
            live: &hosts(live),
            ready: &hosts(ready),
        }
        .step()
    }

    #[test]
    fn voters_grow_by_odd_numbers() {
        assert_eq!(step(1, &[1, 2], &[1], &[1, 2]), Step::Stay);
        assert_eq!(step(1, &[1, 2, 3], &[1], &[1, 2]), Step::Stay);
        assert_eq!(
            step(1, &[1, 2, 3], &[1], &[1, 2, 3]),
            Step::Change(hosts(&[1, 2, 3]))
        );
        assert_eq!(
            step(1, &[1, 2, 3, 4], &[1, 2, 3], &[1, 2, 3, 4]),
            Step::Stay
        );
        let five = [1, 2, 3, 4, 5];
        assert_eq!(
            step(1, &five, &[1, 2, 3], &five),
            Step::Change(hosts(&five))
        );
    }

    #[test]
    fn a_voter_without_a_lease_is_replaced_or_left_out() {
        assert_eq!(
            step(1, &[1, 2, 3, 4], &[1, 2, 3], &[1, 3, 4]),
            Step::Change(hosts(&[1, 3, 4]))
        );
        assert_eq!(
            step(1, &[1, 2, 3], &[1, 2, 3], &[1, 3]),
            Step::Change(hosts(&[1]))
        );
        assert_eq!(
            step(2, &[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5], &[2, 3, 4]),
            Step::Change(hosts(&[2, 3, 4]))
        );
    }

    #[test]
    fn a_present_voter_is_preferred_to_a_lower_number() {
        assert_eq!(
            step(4, &[2, 3, 4, 5], &[3, 4, 5], &[2, 3, 4, 5]),
            Step::Stay
        );
    }

    #[test]
    fn a_leader_that_leaves_hands_over_and_proposes_nothing_without_itself() {
        assert_eq!(
            step(1, &[2, 3], &[1, 2, 3], &[2, 3]),
            Step::HandOver(HostId(2))
        );
        assert_eq!(
            step(1, &[2, 3], &[1, 2, 3], &[3]),
            Step::HandOver(HostId(3))
        );
        assert_eq!(step(1, &[2], &[1], &[2]), Step::Change(hosts(&[1, 2])));
        assert_eq!(step(1, &[], &[1], &[]), Step::Stay);
        // The new leader proposes fewer voters.
        assert_eq!(step(2, &[2], &[1, 2], &[1, 2]), Step::Change(hosts(&[2])));
    }
    #[test]
    fn draining_hosts_give_their_votes_to_others_if_there_are_enough() {
        let four = [1, 2, 3, 4];
        let three = [1, 2, 3];
        assert_eq!(
            step_while(&[3], 1, &four, &three, &four),
            Step::Change(hosts(&[1, 2, 4]))
        );
        assert_eq!(step_while(&[3], 1, &three, &three, &three), Step::Stay);
        assert_eq!(step_while(&[2], 1, &[1, 2], &[1], &[1, 2]), Step::Stay);
    }

    #[test]
    fn a_draining_leader_hands_over_to_a_host_that_does_not_drain() {
        let three = [1, 2, 3];
        let hand_over = Step::HandOver(HostId(3));
        assert_eq!(step_while(&[1, 2], 1, &three, &three, &three), hand_over);
        let second = Step::Change(hosts(&[1, 2]));
        assert_eq!(step_while(&[1], 1, &[1, 2], &[1], &[1, 2]), second);
        // Afterwards it votes alone.
        let shrunk = Step::Change(hosts(&[2]));
        assert_eq!(step_while(&[1], 2, &[1, 2], &[1, 2], &[1, 2]), shrunk);
        // No other host can lead.
        assert_eq!(step_while(&[1], 1, &[1], &[1], &[1]), Step::Stay);
        assert_eq!(step_while(&[1, 2], 1, &[1, 2], &[1], &[1, 2]), Step::Stay);
        // A leaving host accepts a draining host as its successor.
        let last = Step::HandOver(HostId(2));
        assert_eq!(step_while(&[2], 1, &[2], &[1, 2], &[1, 2]), last);
    }
    /// A leader has died. Its successor drains, and does not know yet that the first leader is
    /// lost.
    #[test]
    fn the_lead_is_not_handed_to_a_host_that_does_not_answer() {
        let three = [1, 2, 3];
        let third = Step::HandOver(HostId(3));
        assert_eq!(step_as(&[2], 2, &three, &three, &three, &[3]), third);
        let none = step_as(&[2], 2, &three, &three, &three, &[]);
        assert_eq!(none, Step::Stay);
        // A leaving leader does not hand over to such a host either.
        assert_eq!(step_as(&[], 2, &[1, 3], &three, &three, &[3]), third);
        let none = step_as(&[], 2, &[1, 3], &three, &three, &[]);
        assert_eq!(none, Step::Stay);
    }
}
