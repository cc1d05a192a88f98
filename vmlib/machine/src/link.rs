//! The choice between two connections between two hosts: which one is their link.
//!
//! A daemon connects to another one when it has a frame to send. Both may do so at once, and one
//! end may notice a broken connection long before the other. So two hosts can have two connections
//! for a while: one made by this host ("ours") and one made by the other host ("theirs"). The
//! rules:
//!
//! - A host never has two connections of its own making: it connects only when it has none. So a
//!   second connection *of theirs* means that the other host saw its first one break, and the
//!   second one replaces the first.
//! - If there is one connection of each kind, the connection made by the host with the lower number
//!   stays. The host that made the other connection closes it, as soon as it sees both up. Only
//!   that host closes it. If the lower host's connection is in truth broken and only the lower host
//!   has not noticed, the higher host does not see it up, and keeps its own.
//! - A host sends on the connection that came up last among those that it has.
//!
//! Frames under way on a connection that is closed are lost. So each change of the connection in
//! use is a new link: [`Change::Up`] is reported again.

use crate::ConnId;
use std::collections::BTreeMap;
use vm_wire::HostId;

/// The host that made a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// This host.
    Us,
    /// The other host.
    Them,
}

/// A change that the shell reports to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is a new link.
    Up,
    /// The link is gone, or could not be made.
    Down,
}

/// The connections to one host.
#[derive(Debug, Default)]
struct Pair {
    /// A connection of this host that is not up yet.
    attempt: Option<ConnId>,
    ours: Option<ConnId>,
    theirs: Option<ConnId>,
    /// The connection for sending: `ours` or `theirs`.
    used: Option<ConnId>,
}

impl Pair {
    fn is_empty(&self) -> bool {
        self.attempt.is_none() && self.ours.is_none() && self.theirs.is_none()
    }
}

/// The connections to all other hosts.
#[derive(Debug)]
pub struct Links {
    me: HostId,
    pairs: BTreeMap<HostId, Pair>,
}

/// The consequences of a connection that came up.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Connections to close.
    pub close: Vec<ConnId>,
    /// The change to report to the daemon, if any.
    pub change: Option<Change>,
}

impl Links {
    /// The table of host `me`, without connections.
    pub fn new(me: HostId) -> Self {
        Links {
            me,
            pairs: BTreeMap::new(),
        }
    }

    /// Whether a link to `host` needs a new connection: none is up or being made.
    pub fn is_free(&self, host: HostId) -> bool {
        self.pairs.get(&host).is_none_or(Pair::is_empty)
    }

    /// A connection to `host` is being made. [`Links::is_free`] was true before.
    pub fn attempt(&mut self, host: HostId, conn: ConnId) {
        let pair = self.pairs.entry(host).or_default();
        debug_assert!(pair.is_empty());
        pair.attempt = Some(conn);
    }

    /// A connection to `host` is up: both ends have proved the secret and sent Hello.
    pub fn up(&mut self, host: HostId, conn: ConnId, maker: Maker) -> Verdict {
        let pair = self.pairs.entry(host).or_default();
        let mut close = Vec::new();
        let before = pair.used;
        match maker {
            Maker::Us => {
                // A connection of this host whose attempt was given up meanwhile.
                if pair.attempt != Some(conn) {
                    return Verdict {
                        close: vec![conn],
                        change: None,
                    };
                }
                pair.attempt = None;
                pair.ours = Some(conn);
            }
            Maker::Them => close.extend(pair.theirs.replace(conn)),
        }
        pair.used = Some(conn);
        if self.me > host && pair.theirs.is_some() {
            // Their connection stays. Ours, and the attempt at one, are closed.
            close.extend(pair.ours.take());
            close.extend(pair.attempt.take());
            pair.used = pair.theirs;
        }
        Verdict {
            close,
            change: (pair.used != before).then_some(Change::Up),
        }
    }

    /// A connection to `host`, up or being made, is gone. Returns the change to report.
    pub fn gone(&mut self, host: HostId, conn: ConnId) -> Option<Change> {
        let pair = self.pairs.get_mut(&host)?;
        let was_attempt = pair.attempt == Some(conn);
        for slot in [&mut pair.attempt, &mut pair.ours, &mut pair.theirs] {
            if *slot == Some(conn) {
                *slot = None;
            }
        }
        let change = if pair.used == Some(conn) {
            pair.used = pair.ours.or(pair.theirs);
            match pair.used {
                Some(_) => Some(Change::Up),
                // While an attempt is under way, its outcome will be reported, too.
                None => Some(Change::Down),
            }
        } else {
            (was_attempt && pair.used.is_none()).then_some(Change::Down)
        };
        if pair.is_empty() {
            self.pairs.remove(&host);
        }
        change
    }

    /// The daemon needs no link to `host`. Returns the connections to close; no change is reported.
    pub fn forget(&mut self, host: HostId) -> Vec<ConnId> {
        let Some(pair) = self.pairs.remove(&host) else {
            return Vec::new();
        };
        [pair.attempt, pair.ours, pair.theirs]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The connection for frames to `host`.
    pub fn used(&self, host: HostId) -> Option<ConnId> {
        self.pairs.get(&host)?.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: HostId = HostId(1);
    const HIGH: HostId = HostId(2);

    fn up(links: &mut Links, host: HostId, conn: u64, maker: Maker) -> (Vec<u64>, Option<Change>) {
        let verdict = links.up(host, ConnId(conn), maker);
        (
            verdict.close.iter().map(|conn| conn.0).collect(),
            verdict.change,
        )
    }

    #[test]
    fn one_attempt_is_made_at_a_time() {
        let mut links = Links::new(LOW);
        assert!(links.is_free(HIGH));
        links.attempt(HIGH, ConnId(1));
        assert!(!links.is_free(HIGH));
        assert_eq!(
            up(&mut links, HIGH, 1, Maker::Us),
            (vec![], Some(Change::Up))
        );
        assert!(!links.is_free(HIGH));
        assert_eq!(links.gone(HIGH, ConnId(1)), Some(Change::Down));
        assert!(links.is_free(HIGH));
        links.attempt(HIGH, ConnId(4));
        assert_eq!(links.gone(HIGH, ConnId(4)), Some(Change::Down));
    }

    #[test]
    fn of_two_made_at_once_the_lower_hosts_connection_stays_on_both_sides() {
        // LOW makes connection 1, HIGH makes connection 2. Each end may see them come up in either
        // order.
        for high_sees_own_first in [false, true] {
            let (mut low, mut high) = (Links::new(LOW), Links::new(HIGH));
            low.attempt(HIGH, ConnId(1));
            high.attempt(LOW, ConnId(2));
            if high_sees_own_first {
                assert_eq!(up(&mut high, LOW, 2, Maker::Us), (vec![], Some(Change::Up)));
                assert_eq!(
                    up(&mut high, LOW, 1, Maker::Them),
                    (vec![2], Some(Change::Up))
                );
            } else {
                assert_eq!(
                    up(&mut high, LOW, 1, Maker::Them),
                    (vec![2], Some(Change::Up))
                );
                assert_eq!(up(&mut high, LOW, 2, Maker::Us), (vec![2], None));
            }
            assert_eq!(high.used(LOW), Some(ConnId(1)));

            assert_eq!(up(&mut low, HIGH, 1, Maker::Us), (vec![], Some(Change::Up)));
            assert_eq!(
                up(&mut low, HIGH, 2, Maker::Them),
                (vec![], Some(Change::Up))
            );
            assert_eq!(low.gone(HIGH, ConnId(2)), Some(Change::Up));
            assert_eq!(low.used(HIGH), Some(ConnId(1)));
        }
    }

    #[test]
    fn a_break_that_only_the_higher_host_saw_ends_with_its_new_connection() {
        let mut low = Links::new(LOW);
        low.attempt(HIGH, ConnId(1));
        up(&mut low, HIGH, 1, Maker::Us);
        // The higher host saw 1 break and connects again. At this host 1 ends only by its timeout.
        assert_eq!(
            up(&mut low, HIGH, 2, Maker::Them),
            (vec![], Some(Change::Up))
        );
        assert_eq!(low.used(HIGH), Some(ConnId(2)));
        assert_eq!(low.gone(HIGH, ConnId(1)), None);
        assert_eq!(low.used(HIGH), Some(ConnId(2)));
    }

    #[test]
    fn a_second_connection_of_theirs_replaces_the_first() {
        let mut links = Links::new(LOW);
        up(&mut links, HIGH, 1, Maker::Them);
        assert_eq!(
            up(&mut links, HIGH, 2, Maker::Them),
            (vec![1], Some(Change::Up))
        );
        assert_eq!(links.gone(HIGH, ConnId(1)), None);
        assert_eq!(links.gone(HIGH, ConnId(2)), Some(Change::Down));
    }

    #[test]
    fn an_attempt_that_fails_while_theirs_is_up_changes_nothing() {
        let mut links = Links::new(LOW);
        links.attempt(HIGH, ConnId(1));
        up(&mut links, HIGH, 2, Maker::Them);
        assert_eq!(links.gone(HIGH, ConnId(1)), None);
        assert_eq!(links.used(HIGH), Some(ConnId(2)));
        assert_eq!(links.forget(HIGH), vec![ConnId(2)]);
        assert_eq!(links.used(HIGH), None);
    }
}
