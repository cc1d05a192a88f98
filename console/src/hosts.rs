//! The rows of hosts in a daemon's reply, and the names of hosts.

use vm_wire::{
    HostId,
    console::{Conf, HostRow, HostState},
};

/// Whether the host is in the machine; the rows of hosts that left or were lost are kept for a while.
pub fn is_present(row: &HostRow) -> bool {
    matches!(
        row.state,
        HostState::Live | HostState::Draining | HostState::Leaving
    )
}

/// The host in the machine that the user means: by its name or, if no host has that name, by its
/// number (`h3`), as the daemon finds it.
pub fn called<'a>(conf: &'a Conf, text: &str) -> Option<&'a HostRow> {
    let find = |is_it: &dyn Fn(&HostRow) -> bool| {
        let mut present = conf.hosts.iter().filter(|row| is_present(row));
        present.find(|row| is_it(row))
    };
    find(&|row| row.facts.name == text)
        .or_else(|| find(&|row| HostId::parse(text) == Some(row.host)))
}

/// A host's name, or its number if the daemon does not know the host any more.
pub fn name(conf: &Conf, host: HostId) -> String {
    let row = conf.hosts.iter().find(|row| row.host == host);
    row.map_or_else(|| host.to_string(), |row| row.facts.name.clone())
}
