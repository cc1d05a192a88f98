//! Connections from the network that have proved nothing yet: which stay, and which are closed.
//!
//! Any computer can connect to the port of a daemon, so there are places for [`STRANGERS_MAX`]
//! connections of each [`Standing`]. A new connection is always admitted. If there is one too many,
//! another connection of the same standing is closed: the oldest of the address that holds the most
//! places. A daemon proves the secret within some milliseconds, so silent connections, however
//! many, keep no daemon out.
//!
//! Addresses from which hosts of the machine came have places of their own. No connection from
//! another address takes them.

use crate::ConnId;
use std::collections::BTreeMap;
use vm_wire::{HostId, limits::STRANGERS_MAX};

/// The knowledge about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No host is known at its address.
    Unknown,
    /// A host of the machine has its address.
    Known,
    /// Its first record was sealed with the secret. The record may be a repetition of an earlier
    /// one, so the connection is still a stranger.
    Proved,
}

/// The source of a host's address. Of each source only the latest address is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The host stated the address.
    Told,
    /// The host connected from the address, and proved that it is the host.
    Seen,
}

/// The strangers at one port. `A` is the part of an address by which connections are compared.
#[derive(Debug)]
pub struct Strangers<A> {
    /// A higher number is a younger connection.
    places: BTreeMap<ConnId, (Standing, A)>,
    hosts: BTreeMap<(HostId, Source), A>,
}

impl<A> Default for Strangers<A> {
    fn default() -> Self {
        Strangers {
            places: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }
}

impl<A: Copy + Ord> Strangers<A> {
    /// An address from which `host` connects.
    pub fn knows(&mut self, host: HostId, source: Source, from: A) {
        self.hosts.insert((host, source), from);
    }

    /// The host has left the machine.
    pub fn forget(&mut self, host: HostId) {
        self.hosts.remove(&(host, Source::Told));
        self.hosts.remove(&(host, Source::Seen));
    }

    /// A connection came. Returns the connection to close for it.
    pub fn admit(&mut self, conn: ConnId, from: A) -> Option<ConnId> {
        let standing = match self.hosts.values().any(|known| *known == from) {
            true => Standing::Known,
            false => Standing::Unknown,
        };
        self.place(conn, standing, from)
    }

    /// A connection sent a record sealed with the secret. Returns the connection to close for it.
    pub fn prove(&mut self, conn: ConnId) -> Option<ConnId> {
        let (_, from) = self.places.remove(&conn)?;
        self.place(conn, Standing::Proved, from)
    }

    /// A connection has proved the secret, or is closed.
    pub fn remove(&mut self, conn: ConnId) {
        self.places.remove(&conn);
    }

    /// Whether a connection is a stranger.
    pub fn has(&self, conn: ConnId) -> bool {
        self.places.contains_key(&conn)
    }

    fn place(&mut self, conn: ConnId, standing: Standing, from: A) -> Option<ConnId> {
        self.places.insert(conn, (standing, from));
        let peers = || self.places.iter().filter(|(_, place)| place.0 == standing);
        if peers().count() <= STRANGERS_MAX {
            return None;
        }
        let mut held: BTreeMap<A, usize> = BTreeMap::new();
        for (_, (_, from)) in peers() {
            *held.entry(*from).or_default() += 1;
        }
        let most = held.values().max().copied();
        let oldest = peers().find(|(_, (_, from))| held.get(from).copied() == most);
        let gives_way = oldest.map(|(conn, _)| *conn);
        if let Some(conn) = gives_way {
            self.places.remove(&conn);
        }
        gives_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = STRANGERS_MAX as u64;

    /// Connections `from..to` come from `address`; none is closed.
    fn fill(strangers: &mut Strangers<char>, range: std::ops::Range<u64>, address: char) {
        for conn in range {
            assert_eq!(strangers.admit(ConnId(conn), address), None, "{conn}");
        }
    }

    #[test]
    fn a_connection_is_always_admitted_and_the_oldest_is_closed() {
        let mut strangers = Strangers::default();
        fill(&mut strangers, 0..MAX, 'a');
        for more in 0..3 * MAX {
            let conn = ConnId(MAX + more);
            assert_eq!(strangers.admit(conn, 'a'), Some(ConnId(more)));
            assert!(strangers.has(conn) && !strangers.has(ConnId(more)));
        }
    }

    #[test]
    fn a_place_that_was_left_is_free() {
        let mut strangers = Strangers::default();
        fill(&mut strangers, 0..MAX, 'a');
        strangers.remove(ConnId(7));
        assert_eq!(strangers.admit(ConnId(MAX), 'a'), None);
        assert_eq!(strangers.admit(ConnId(MAX + 1), 'a'), Some(ConnId(0)));
    }

    #[test]
    fn the_address_that_holds_the_most_places_loses_one() {
        let mut strangers = Strangers::default();
        fill(&mut strangers, 0..1, 'b');
        fill(&mut strangers, 1..MAX, 'a');
        for more in 0..MAX - 2 {
            let conn = ConnId(MAX + more);
            assert_eq!(strangers.admit(conn, 'a'), Some(ConnId(1 + more)));
        }
        assert!(strangers.has(ConnId(0)), "it is older than all of 'a'");
    }

    #[test]
    fn hosts_have_places_that_strangers_do_not_take() {
        let mut strangers = Strangers::default();
        strangers.knows(HostId(2), Source::Told, 'h');
        strangers.knows(HostId(2), Source::Seen, 'i');
        fill(&mut strangers, 0..1, 'h');
        fill(&mut strangers, 1..2, 'i');
        fill(&mut strangers, 2..MAX + 2, 'a');
        for conn in MAX + 2..4 * MAX {
            assert!(strangers.admit(ConnId(conn), 'a').is_some());
        }
        assert!(strangers.has(ConnId(0)) && strangers.has(ConnId(1)));
        strangers.forget(HostId(2));
        assert!(
            strangers.admit(ConnId(4 * MAX), 'h').is_some(),
            "the places of all others are taken"
        );
    }

    #[test]
    fn a_connection_that_proved_the_secret_is_closed_only_for_another_such_connection() {
        let mut strangers = Strangers::default();
        strangers.admit(ConnId(0), 'a');
        assert_eq!(strangers.prove(ConnId(0)), None);
        fill(&mut strangers, 1..MAX + 1, 'a');
        for conn in MAX + 1..3 * MAX {
            assert!(strangers.admit(ConnId(conn), 'a').is_some());
        }
        assert!(strangers.has(ConnId(0)));
        let mut gave_way = None;
        for conn in 3 * MAX..4 * MAX {
            strangers.admit(ConnId(conn), 'b');
            gave_way = gave_way.or(strangers.prove(ConnId(conn)));
        }
        assert_eq!(gave_way, Some(ConnId(3 * MAX)), "'b' holds the most");
        assert_eq!(strangers.prove(ConnId(9 * MAX)), None, "nobody's");
    }
}
