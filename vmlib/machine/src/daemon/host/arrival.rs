//! The arrival of a host that was admitted to a machine. Either the host gets links to the other
//! hosts, or the user who started its daemon is notified which links are missing.
//!
//! A host with a wrong address (loopback, behind a firewall, or an address that many computers
//! have) would lose its lease, or block tasks that send to it, long after its daemon was started.
//! The check in the first seconds of the daemon makes the fault visible at once.

use crate::{
    LinkOutput,
    daemon::context::{Context, Timer},
};
use std::collections::BTreeSet;
use vm_wire::{HostId, limits};

/// The links that this host needs before it has arrived.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Arrival {
    /// The hosts to which this host still needs links; `None` once it has all of them, or once the
    /// time limit is over.
    awaited: Option<BTreeSet<HostId>>,
}

impl Arrival {
    /// Called once when this host is admitted. Returns the hosts to which it makes links; none if
    /// its shell does not need to know of them.
    pub fn begin(&mut self, cx: &mut Context) -> Vec<HostId> {
        let Some(time) = cx.config.link_time else {
            return Vec::new();
        };
        let others = cx.other_hosts().into_iter();
        let awaited: BTreeSet<HostId> = others.take(limits::LINKED_AT_START).collect();
        cx.set_timer(cx.now + time, Timer::Arrival);
        self.awaited.insert(awaited).iter().copied().collect()
    }

    /// A link was made, or a host has left the machine.
    pub fn review(&mut self, cx: &mut Context) {
        let Some(awaited) = &mut self.awaited else {
            return;
        };
        let (state, routes) = (cx.agreement.state(), &cx.routes);
        awaited.retain(|host| state.is_present(*host) && !routes.has_link(*host));
        if awaited.is_empty() {
            self.awaited = None;
            cx.emit(LinkOutput::AllUp);
        }
    }

    /// The time limit for the links is over.
    pub fn on_due(&mut self, cx: &mut Context) {
        if let Some(awaited) = self.awaited.take() {
            cx.emit(LinkOutput::Missing(awaited.into_iter().collect()));
        }
    }
}
