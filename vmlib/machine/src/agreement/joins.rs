//! Daemons that have requested this host to let them join.
//!
//! A join is proposed again and again until the log has it. Any host may propose it, so its entry
//! has no number: the nonce makes it one host. The leader puts the join of a name that is in use
//! into the log only if the present holder of the name replies; the log then refuses the join. If
//! the holder does not reply, the joiner waits until the holder is declared dead.

use crate::{Agreed, ConnId, Time, Void};
use std::collections::BTreeMap;
use vm_wire::{
    Frame, HostId, Message,
    agreed::{Change, Entry, SnapshotAt},
    limits,
    peer::{Join, Joined, Refused},
    task::{FailKind, Failed},
};

#[derive(Debug)]
struct Waiting {
    join: Join,
    next_try: Time,
}

/// Joiners without a reply.
#[derive(Debug, Default)]
pub(super) struct Joins {
    waiting: BTreeMap<ConnId, Waiting>,
}

impl Joins {
    /// Takes a request to join; a reply if there is no room for it.
    pub(super) fn ask(&mut self, now: Time, joiner: ConnId, join: Join) -> Option<Frame> {
        if self.waiting.contains_key(&joiner) {
            return None;
        }
        if self.waiting.len() >= limits::STRANGERS_MAX {
            return Some(refused(
                FailKind::Limit,
                "too many daemons join at once: try again",
            ));
        }
        let next_try = now;
        self.waiting.insert(joiner, Waiting { join, next_try });
        None
    }

    pub(super) fn gone(&mut self, joiner: ConnId) {
        self.waiting.remove(&joiner);
    }

    /// Makes all joins due, because the leader has changed.
    pub(super) fn try_again(&mut self, now: Time) {
        for waiting in self.waiting.values_mut() {
            waiting.next_try = waiting.next_try.min(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.next_try).min()
    }

    /// The joins that are due, as entries.
    pub(super) fn due(&mut self, now: Time, me: HostId) -> Vec<Entry> {
        let due = self
            .waiting
            .values_mut()
            .filter(|waiting| waiting.next_try <= now);
        due.map(|waiting| {
            waiting.next_try = now + limits::REPEAT;
            Entry {
                proposer: me,
                number: 0,
                changes: vec![Change::HostJoin {
                    nonce: waiting.join.nonce,
                    facts: waiting.join.facts.clone(),
                }],
            }
        })
        .collect()
    }

    /// The replies to the joiners that have become hosts, and to those that never can.
    pub(super) fn answers(&mut self, state: &Agreed, voters: &[HostId]) -> Vec<(ConnId, Frame)> {
        let mut snapshot = None;
        let mut answer = |host| {
            let make = || SnapshotAt {
                machine: state.machine(),
                index: state.index(),
                voters: voters.to_vec(),
                state: state.encode().into(),
            };
            let snapshot = snapshot.get_or_insert_with(make).clone();
            Joined { host, snapshot }.frame()
        };
        let mut answers = Vec::new();
        self.waiting.retain(|conn, waiting| {
            let frame = match state.host_of_nonce(waiting.join.nonce) {
                Some(host) if state.is_present(host) => answer(host),
                Some(_) => refused(
                    FailKind::HostLost,
                    "this daemon was declared dead: start it anew",
                ),
                None if state.halted() => refused(FailKind::Refused, "the machine is halting"),
                None => return true,
            };
            answers.push((*conn, frame));
            false
        });
        answers
    }

    /// The replies to the joiners whose join the log refused.
    pub(super) fn void(&mut self, state: &Agreed, nonce: u64, why: Void) -> Vec<(ConnId, Frame)> {
        let mut answers = Vec::new();
        self.waiting.retain(|conn, waiting| {
            let facts = &waiting.join.facts;
            if waiting.join.nonce != nonce {
                return true;
            }
            let frame = match why {
                Void::NameTaken(host) => {
                    let addr = state.host(host).map_or("?", |host| &host.facts.addr);
                    let text = format!(
                        "the machine has a host named '{}' ({host} at {addr}): choose another name",
                        facts.name
                    );
                    refused(FailKind::Refused, &text)
                }
                Void::OtherStore(_) => {
                    let text = match facts.store_local {
                        true => {
                            "the hosts of this machine share a store, and this one has its own: \
                             start all daemons with --store-local, or none"
                        }
                        false => {
                            "the hosts of this machine have stores of their own: give vmd \
                             --store-local here too"
                        }
                    };
                    refused(FailKind::Refused, text)
                }
                Void::Limit => refused(FailKind::Limit, "the machine has as many hosts as it can"),
                Void::Malformed => refused(
                    FailKind::BadRequest,
                    "the name or the address is empty or too long",
                ),
                _ => return true,
            };
            answers.push((*conn, frame));
            false
        });
        answers
    }
}

fn refused(kind: FailKind, text: &str) -> Frame {
    let why = Failed::new(kind, text);
    Refused { why }.frame()
}
