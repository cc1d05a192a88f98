//! Direct connections between tasks of different hosts, which come to the daemon's port: those that are
//! expected, and those that have proved their numbers and wait for the daemon's decision.

use std::{collections::HashMap, os::fd::OwnedFd};
use vm_wire::direct::{Connection, PROOF};

/// A direct connection to a task of this host.
#[derive(Debug)]
enum Awaited {
    /// It has not come.
    Expected(Box<Connection>),
    /// It has come, and its opening is read.
    Came(OwnedFd),
}

/// The direct connections that tasks of other hosts are to make, by number. The state machine bounds
/// their number and their time.
#[derive(Debug, Default)]
pub struct AwaitedDirects {
    table: HashMap<u64, Awaited>,
}

impl AwaitedDirects {
    /// Expects a connection.
    pub fn expect(&mut self, connection: Box<Connection>) {
        let id = connection.id;
        self.table.insert(id, Awaited::Expected(connection));
    }

    /// Whether the connection of that number is expected, has not come, and is proved.
    pub fn proves(&self, id: u64, proof: &[u8; PROOF]) -> bool {
        match self.table.get(&id) {
            Some(Awaited::Expected(connection)) => connection.is_proved_by(proof),
            Some(Awaited::Came(_)) | None => false,
        }
    }

    /// A connection that is proved has come.
    pub fn came(&mut self, id: u64, socket: OwnedFd) {
        self.table.insert(id, Awaited::Came(socket));
    }

    /// Takes the connection of that number, if it has come.
    pub fn take(&mut self, id: u64) -> Option<OwnedFd> {
        match self.table.remove(&id)? {
            Awaited::Came(socket) => Some(socket),
            Awaited::Expected(_) => None,
        }
    }

    /// Expects the connection of that number no more, and closes it if it has come.
    pub fn forget(&mut self, id: u64) {
        self.table.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::{
        HostId, MachineId, Tid,
        direct::{Secret, read_opening},
    };

    #[test]
    fn a_connection_is_proved_once_and_only_while_it_is_expected() {
        let tid = |host| Tid::new(MachineId::from_bits(1), HostId(host), 7);
        let connection = Connection {
            id: 5,
            ends: [tid(1), tid(2)],
            secret: Secret::new([9; 32]),
        };
        let (id, proof) = read_opening(&connection.opening()).expect("an opening");
        let mut awaited = AwaitedDirects::default();
        assert!(!awaited.proves(id, &proof));
        awaited.expect(Box::new(connection.clone()));
        assert!(awaited.proves(id, &proof));
        assert!(!awaited.proves(id, &[0; PROOF]));
        assert!(!awaited.proves(id + 1, &proof));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        awaited.came(id, socket.into());
        assert!(!awaited.proves(id, &proof));
        assert!(awaited.take(id).is_some());
        assert!(awaited.take(id).is_none());
        awaited.expect(Box::new(connection));
        awaited.forget(id);
        assert!(!awaited.proves(id, &proof));
    }
}
