//! Work of the leader: it takes proposals into the log, grants leases, declares hosts dead, and
//! chooses the voters. Leases are granted in rounds: hosts send beats, the leader has a majority
//! confirm that it still leads, and then grants a lease for each beat before the round.

use super::{Agreement, AgreementOutput};
use crate::{
    Time,
    membership::{Step, View},
};
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{
    HostId, Message,
    agreed::{Change, Entry},
    encode, limits,
    peer::Grant,
};

/// A follower that is behind by at most this may become a voter. Entries.
const CAUGHT_UP: u64 = 256;

impl Agreement {
    /// Takes an entry into the log, unless it is there or must wait.
    pub(super) fn take_entry(&mut self, now: Time, entry: &Entry) {
        let (Some(consensus), Some(leading)) = (&mut self.consensus, &mut self.leading) else {
            return;
        };
        let Entry {
            proposer, number, ..
        } = *entry;
        if number > 0 {
            let applied = self.state.host(proposer).map_or(0, |host| host.entries);
            let taken = leading.taken.get(&proposer).copied().unwrap_or(0);
            if number <= applied.max(taken) {
                return;
            }
        }
        // A join with the name of a silent host waits until that host replies or is dead.
        let waits = |change: &Change| match change {
            Change::HostJoin { nonce, facts } if self.state.host_of_nonce(*nonce).is_none() => {
                let holder = self.state.host_named(&facts.name);
                holder.is_some_and(|host| host != self.me && !leading.given.answers(now, host))
            }
            _ => false,
        };
        if entry.changes.iter().any(waits) {
            return;
        }
        if consensus.propose(encode(entry)) && number > 0 {
            leading.taken.insert(proposer, number);
        }
    }

    /// Grants the leases that were requested before a majority confirmed this host as leader in
    /// `round`.
    pub(super) fn grant(&mut self, now: Time, round: u64, out: &mut VecDeque<AgreementOutput>) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let granted = leading.given.confirmed(round);
        let voters = self.voters();
        for (host, number) in granted {
            if host == self.me {
                let until = self.lease.granted(now, number);
                out.extend(until.map(|until| AgreementOutput::Lease(Some(until))));
            } else if self.state.is_present(host) {
                let grant = Grant {
                    number,
                    leader: self.me,
                    voters: voters.clone(),
                };
                self.links.send(now, &self.state, host, grant.frame(), out);
            }
        }
    }

    /// Begins a round that requests the voters to confirm the leader, if lease requests wait.
    pub(super) fn begin_round(&mut self, now: Time) {
        let (Some(consensus), Some(leading)) = (&mut self.consensus, &mut self.leading) else {
            return;
        };
        let due = leading.given.round_due().is_some_and(|due| due <= now);
        if due && consensus.leads_settled() {
            let round = leading.given.begin_round(now);
            consensus.confirm(round);
        }
    }

    /// Reviews all hosts: declares hosts dead, and takes the next step towards the right voters.
    pub(super) fn review(&mut self, now: Time) {
        let (Some(consensus), Some(leading)) = (&mut self.consensus, &mut self.leading) else {
            return;
        };
        if !consensus.leads_settled() {
            return;
        }
        for (host, _) in self.state.hosts().filter(|(host, _)| *host != self.me) {
            let declared = leading.declared.get(&host);
            let again = declared.is_none_or(|last| now.since(*last) >= limits::REPEAT);
            if leading.given.condemn(now, host) && again {
                leading.declared.insert(host, now);
                consensus.propose(encode(&Entry {
                    proposer: self.me,
                    number: 0,
                    changes: vec![Change::HostDead(host)],
                }));
            }
        }
        if consensus.has_pending_change() {
            return;
        }
        if consensus.is_joint() {
            consensus.leave_joint();
            return;
        }
        let present = || self.state.hosts().map(|(host, _)| host);
        let given = &leading.given;
        let caught_up = |host: &HostId| given.applied(*host) + CAUGHT_UP >= self.state.index();
        let view = View {
            me: self.me,
            staying: &present()
                .filter(|host| self.state.is_staying(*host))
                .collect(),
            draining: &present()
                .filter(|host| self.state.is_draining(*host))
                .collect(),
            voters: &consensus.voters(),
            live: &present().filter(|host| given.is_live(now, *host)).collect(),
            ready: &present()
                .filter(|host| given.answers(now, *host) && caught_up(host))
                .collect::<BTreeSet<_>>(),
        };
        let step = view.step();
        if !matches!(step, Step::Change(_)) {
            leading.wanted = None;
        }
        match step {
            Step::Stay => {}
            Step::Change(wanted) => {
                if leading.hears(now, self.me, &wanted) {
                    consensus.reconfigure(&wanted);
                }
            }
            Step::HandOver(to) => consensus.hand_over(to),
        }
    }
}
