//! The arrival of a host that was let into a machine: it has links to the others, or the user who
//! started its daemon is told to which hosts it has none.
//!
//! A host whose address leads elsewhere (to loopback, behind a firewall, to an address that many
//! computers have) would lose its lease, or block tasks that send to it, long after its daemon was
//! started. So the first seconds of the daemon decide.

use crate::{
    Output,
    daemon::context::{Context, Timer},
};
use std::collections::BTreeSet;
use vm_wire::{HostId, limits};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Arrival {
    /// The hosts to which this one has to have links before it has arrived; none once it has, or
    /// once the time for it is over.
    awaited: Option<BTreeSet<HostId>>,
}

impl Arrival {
    /// This host has just been let in: the hosts to which it makes links, if its shell wants to
    /// know of them.
    pub fn begin(&mut self, cx: &mut Context) -> Vec<HostId> {
        let Some(time) = cx.config.link_time else {
            return Vec::new();
        };
        let others = cx.other_hosts().into_iter();
        let awaited: BTreeSet<HostId> = others.take(limits::LINKED_AT_START).collect();
        cx.set_timer(cx.now + time, Timer::Arrival);
        self.awaited.insert(awaited).iter().copied().collect()
    }

    /// A link was made, or a host has gone.
    pub fn review(&mut self, cx: &mut Context) {
        let Some(awaited) = &mut self.awaited else {
            return;
        };
        let (state, routes) = (cx.agreement.state(), &cx.routes);
        awaited.retain(|host| state.is_present(*host) && !routes.has_link(*host));
        if awaited.is_empty() {
            self.awaited = None;
            cx.emit(Output::Linked);
        }
    }

    /// The time for the links is over.
    pub fn on_due(&mut self, cx: &mut Context) {
        if let Some(awaited) = self.awaited.take() {
            cx.emit(Output::NotLinked(awaited.into_iter().collect()));
        }
    }
}
