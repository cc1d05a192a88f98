//! Orders about the links to other daemons.

use vm_wire::HostId;

/// An order about the links to other daemons.
#[derive(Debug)]
pub enum LinkOutput {
    /// Make a link to a host at an address, if there is none. `LinkUp` or `LinkDown` follows.
    Connect(HostId, String),
    /// Close the link to that host.
    Disconnect(HostId),
    /// This host has links to all other hosts. Sent once, if [`DaemonConfig::link_time`] is set.
    ///
    /// [`DaemonConfig::link_time`]: crate::DaemonConfig::link_time
    AllUp,
    /// After [`DaemonConfig::link_time`](crate::DaemonConfig::link_time), there is no link to these
    /// hosts.
    Missing(Vec<HostId>),
    /// From now on this host is known to the others at that address.
    Address(String),
}
