//! A task of another host, or of the store, that is on its way to this host.

use vm_wire::{HostId, peer::Belongings};

/// A task of another host that is on its way here.
#[derive(Debug)]
pub(in crate::daemon) struct Arriving {
    /// Where it was; none if it comes from the store.
    pub from: HostId,
    pub incarnation: u32,
    /// What belongs to it, once the source has released it.
    pub belongings: Option<Belongings>,
    /// Its process has ended before it could go on.
    pub lost: bool,
    /// What that process has said on its standard error: why it could not become the task.
    pub said: Vec<u8>,
}
