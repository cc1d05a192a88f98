//! A task that moves from another host, or from the store, to this host.

use vm_wire::{HostId, peer::Belongings};

/// A task that moves from another host, or from the store, to this host.
#[derive(Debug)]
pub(in crate::daemon) struct Arriving {
    /// The source; [`HostId::NONE`] if the image is in the store.
    pub from: HostId,
    pub incarnation: u32,
    /// The state of the task beside its image, once the source has released the task.
    pub belongings: Option<Belongings>,
    /// The process of the task ended before it could resume.
    pub lost: bool,
    /// Standard error of that process, at most `limits::MOVE_WORDS_MAX` bytes: the reason why it
    /// could not become the task.
    pub said: Vec<u8>,
}
