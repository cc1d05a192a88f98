//! The feed: committed entries for hosts that do not vote.
//!
//! Committed entries are final, so they need no raft: a host asks a voter for what follows an
//! index ([`FeedAsk`]), and from then on gets entries as they are committed. Frames may be lost on
//! the way. The follower sees a gap, or nothing for a while, and asks again; each question sets
//! the voter's idea of how far the follower is. Whoever is so far behind that the entries are
//! compacted away gets the state itself.

use crate::{Time, storage::Log};
use std::{collections::BTreeMap, time::Duration};
use vm_wire::{Body, HostId, limits, peer::Feed};

/// A follower that did not ask for this time is not served any more.
const FORGET: Duration = Duration::from_secs(3);
/// Frames for one follower in one turn.
const FRAMES_MAX: usize = 4;

/// What a follower is to be sent.
#[derive(Debug)]
pub enum Portion {
    /// Entries.
    Feed(Feed),
    /// The agreed state: the entries are gone.
    Snapshot,
}

#[derive(Debug)]
struct Follower {
    /// Index of the last entry that was sent.
    sent: u64,
    until: Time,
    /// It asked: it gets an answer even if there is nothing new.
    asked: bool,
}

/// A voter's side.
#[derive(Debug, Default)]
pub struct FeedServer {
    followers: BTreeMap<HostId, Follower>,
}

impl FeedServer {
    /// A host asks for what follows `after`.
    pub fn asked(&mut self, now: Time, host: HostId, after: u64) {
        let follower = Follower {
            sent: after,
            until: now + FORGET,
            asked: true,
        };
        self.followers.insert(host, follower);
    }

    /// A host needs no feed any more.
    pub fn forget(&mut self, host: HostId) {
        self.followers.remove(&host);
    }

    /// What is to be sent now, given the log and how far it is applied.
    pub fn portions(
        &mut self,
        now: Time,
        log: &Log,
        applied: u64,
        voters: &[HostId],
    ) -> Vec<(HostId, Portion)> {
        self.followers.retain(|_, follower| now < follower.until);
        let mut portions = Vec::new();
        for (host, follower) in &mut self.followers {
            for _ in 0..FRAMES_MAX {
                if follower.sent >= applied && !follower.asked {
                    break;
                }
                follower.asked = false;
                let Some(data) = log.data(follower.sent, applied, limits::FEED_BYTES) else {
                    follower.sent = applied;
                    portions.push((*host, Portion::Snapshot));
                    break;
                };
                let first = follower.sent + 1;
                follower.sent += data.len() as u64;
                let feed = Feed {
                    first,
                    entries: data.iter().map(|data| Body::from(data.to_vec())).collect(),
                    voters: voters.to_vec(),
                };
                portions.push((*host, Portion::Feed(feed)));
            }
        }
        portions
    }
}

/// A follower's side: whom to ask, and when.
#[derive(Debug)]
pub struct FeedClient {
    server: HostId,
    answered: bool,
    next_ask: Time,
}

impl FeedClient {
    /// Asks at once.
    pub fn new(now: Time) -> Self {
        FeedClient {
            server: HostId::NONE,
            answered: false,
            next_ask: now,
        }
    }

    /// Whom to ask now, if it is time; the next one in turn if the last did not answer.
    pub fn ask(&mut self, now: Time, me: HostId, voters: &[HostId]) -> Option<HostId> {
        if now < self.next_ask || voters.is_empty() {
            return None;
        }
        let place = voters.iter().position(|host| *host == self.server);
        self.server = match place {
            Some(_) if self.answered => self.server,
            Some(place) => voters[(place + 1) % voters.len()],
            // Spread over the voters, so that not all hosts ask the leader.
            None => voters[usize::from(me.0) % voters.len()],
        };
        self.answered = false;
        self.next_ask = now + limits::REPEAT;
        Some(self.server)
    }

    /// There is a link to `host`: if that is who was asked, the question was lost for want of it.
    pub fn linked(&mut self, now: Time, host: HostId) {
        if host == self.server && !self.answered {
            self.answered = true;
            self.next_ask = now;
        }
    }

    /// A frame came; with a `gap` before it, what is missing is asked for again.
    pub fn heard(&mut self, now: Time, from: HostId, gap: bool) {
        if from != self.server {
            return;
        }
        self.answered = true;
        if gap {
            self.next_ask = self.next_ask.min(now + limits::LEASE_ROUND);
        }
    }
}
