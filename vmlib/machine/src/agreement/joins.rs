//! Daemons that asked this host to let them in.
//!
//! A join is proposed again and again until the log has it, by whichever host was asked, so it
//! needs no number: the nonce makes it one host. A name that is in use is refused only if the
//! leader put the join into the log nevertheless, which it does when the holder of the name
//! answers; otherwise the joiner waits until the holder is declared dead.

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

/// The joiners that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Joins {
    waiting: BTreeMap<ConnId, Waiting>,
}

impl Joins {
    /// A daemon asks; an answer if there is no room for it.
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

    /// Who leads has changed.
    pub(super) fn try_again(&mut self, now: Time) {
        for waiting in self.waiting.values_mut() {
            waiting.next_try = waiting.next_try.min(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.next_try).min()
    }

    /// What is to be proposed now.
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

    /// The joiners that are in now, and those that can never be, with their answers.
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

    /// The log refused a join.
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
