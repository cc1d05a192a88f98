//! What the agreement has its host do.

use crate::{Applied, ConnId, Time};
use vm_wire::{Frame, HostId};

/// What the agreement wants done or tells.
#[derive(Debug)]
pub enum AgreementOutput {
    /// Send over the link to a host; may be lost.
    Send(HostId, Frame),
    /// Answer a joiner: Joined or Refused.
    Joiner(ConnId, Frame),
    /// The entry at that index did this. [`Agreement::state`](super::Agreement::state) is at that index or later.
    Applied(u64, Applied),
    /// This host's lease ends then: arm the timer that kills the daemon. `None`: the host is alone
    /// and needs no lease, so none is armed.
    Lease(Option<Time>),
    /// A link to that host at that address is wanted.
    Connect(HostId, String),
    /// This host is not part of the machine any more, or no majority is left: end all tasks, say
    /// why, exit. Nothing that may follow is of interest.
    Lost(String),
}
