//! Outputs of the agreement, which the daemon carries out in their order.

use crate::{Applied, ConnId, Time};
use vm_wire::{Frame, HostId};

/// An output of the agreement.
#[derive(Debug)]
pub enum AgreementOutput {
    /// Send the frame over the link to the host; the frame may be lost.
    Send(HostId, Frame),
    /// Send the reply to the joiner: Joined or Refused.
    Joiner(ConnId, Frame),
    /// Effect of the entry at that index. [`Agreement::state`](super::Agreement::state) is at that
    /// index or later.
    Applied(u64, Applied),
    /// The end of this host's lease: arm the timer that kills the daemon. `None`: the host is alone
    /// and needs no lease, so disarm the timer.
    Lease(Option<Time>),
    /// Make a link to that host at that address.
    Connect(HostId, String),
    /// The host is not part of the machine any more, or no majority is left: end all tasks, report
    /// the reason, exit. Later outputs have no meaning.
    Lost(String),
}
