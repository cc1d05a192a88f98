//! The feed: committed entries for followers.
//!
//! Committed entries are final, so followers need no raft. A follower requests from a voter the
//! entries after an index ([`FeedAsk`](vm_wire::peer::FeedAsk)), and then receives entries as they
//! are committed. Frames may be lost. A follower that sees a gap, or receives nothing for a while,
//! repeats the request. Each request tells the voter the follower's position. A follower whose
//! position was compacted away receives the agreed state itself.

use crate::{Time, storage::Log};
use std::{collections::BTreeMap, time::Duration};
use vm_wire::{Body, HostId, limits, peer::Feed};

/// Time without a request after which a voter stops serving a follower.
const FORGET: Duration = Duration::from_secs(3);
/// Most frames for one follower in one turn.
const FRAMES_MAX: usize = 4;

/// The next part of the feed for one follower.
#[derive(Debug)]
pub enum Portion {
    /// Committed entries.
    Feed(Feed),
    /// The agreed state: the entries were compacted away.
    Snapshot,
}

#[derive(Debug)]
struct Follower {
    /// Index of the last entry that was sent.
    sent: u64,
    until: Time,
    /// A request came: it gets a reply even if there are no new entries.
    asked: bool,
}

/// The feed at a voter.
#[derive(Debug, Default)]
pub struct FeedServer {
    followers: BTreeMap<HostId, Follower>,
}

impl FeedServer {
    /// A follower requests the entries after index `after`.
    pub fn asked(&mut self, now: Time, host: HostId, after: u64) {
        let follower = Follower {
            sent: after,
            until: now + FORGET,
            asked: true,
        };
        self.followers.insert(host, follower);
    }

    /// The feed of a host ends.
    pub fn forget(&mut self, host: HostId) {
        self.followers.remove(&host);
    }

    /// The parts to send now, given the log and the index of the last applied entry.
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

/// The feed at a follower: the voter for the next request, and its time.
#[derive(Debug)]
pub struct FeedClient {
    server: HostId,
    answered: bool,
    next_ask: Time,
}

impl FeedClient {
    /// The first request is due at once.
    pub fn new(now: Time) -> Self {
        FeedClient {
            server: HostId::NONE,
            answered: false,
            next_ask: now,
        }
    }

    /// The voter for the next request, if the request is due. The voters take turns if one does not
    /// reply.
    pub fn ask(&mut self, now: Time, me: HostId, voters: &[HostId]) -> Option<HostId> {
        if now < self.next_ask || voters.is_empty() {
            return None;
        }
        let place = voters.iter().position(|host| *host == self.server);
        self.server = match place {
            Some(_) if self.answered => self.server,
            Some(place) => voters[(place + 1) % voters.len()],
            // The followers spread over the voters, so that not all of them load the leader.
            None => voters[usize::from(me.0) % voters.len()],
        };
        self.answered = false;
        self.next_ask = now + limits::REPEAT;
        Some(self.server)
    }

    /// There is a link to `host`. A request to that host is repeated now: it was lost without the
    /// link.
    pub fn linked(&mut self, now: Time, host: HostId) {
        if host == self.server && !self.answered {
            self.answered = true;
            self.next_ask = now;
        }
    }

    /// A frame of the feed came. After a `gap` the missing entries are requested soon.
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
