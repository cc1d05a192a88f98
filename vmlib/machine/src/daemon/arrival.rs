//! The arrival of a host that was let into a machine: it has links to the others, or it is told to
//! which it has none.
//!
//! A host whose address leads elsewhere (to loopback, behind a firewall, to an address that many
//! computers have) would lose its lease, or hang whoever sends to it, long after its daemon was
//! started. So its first seconds decide: whoever has started the daemon hears of it.

use super::{Daemon, context::Timer};
use crate::Output;
use std::collections::BTreeSet;
use vm_wire::{HostId, agreed::Change, limits};

impl Daemon {
    /// This host has just been let in: makes links, if its shell wants to know.
    pub(super) fn arrive(&mut self) {
        let Some(time) = self.cx.config.link_time else {
            return;
        };
        let state = self.cx.agreement.state();
        let present = state.hosts().map(|(host, _)| host);
        let others = present.filter(|host| *host != self.cx.me);
        let awaited: BTreeSet<HostId> = others.take(limits::LINKED_AT_START).collect();
        for host in &awaited {
            self.want_link(*host);
        }
        self.arrival = Some(awaited);
        self.cx.set_timer(self.cx.now + time, Timer::Arrival);
        self.review_arrival();
    }

    /// A link was made, or a host has gone.
    pub(super) fn review_arrival(&mut self) {
        let Some(awaited) = &mut self.arrival else {
            return;
        };
        let (state, routes) = (self.cx.agreement.state(), &self.cx.routes);
        awaited.retain(|host| state.is_present(*host) && !routes.has_link(*host));
        if awaited.is_empty() {
            self.arrival = None;
            self.cx.emit(Output::Linked);
        }
    }

    /// Links were made for long enough.
    pub(super) fn on_arrival_due(&mut self) {
        if let Some(awaited) = self.arrival.take() {
            self.cx
                .emit(Output::NotLinked(awaited.into_iter().collect()));
        }
    }

    /// The shell has found a better address of this host.
    pub(super) fn on_address(&mut self, addr: String) {
        let host = self.cx.me;
        self.cx
            .agreement
            .propose(Change::HostAddress { host, addr });
    }

    /// A host is reached at another address from now on.
    pub(super) fn on_host_address(&mut self, host: HostId) {
        let Some(found) = self.cx.agreement.state().host(host) else {
            return;
        };
        let (name, addr) = (&found.facts.name, found.facts.addr.clone());
        self.cx.emit(Output::Note(format!(
            "host '{name}' is told to others at {addr} from now on"
        )));
        if host == self.cx.me {
            self.cx.emit(Output::Address(addr));
        } else if !self.cx.routes.has_link(host) && self.links.remove(&host).is_some() {
            self.cx.emit(Output::Disconnect(host));
            self.want_link(host);
        }
    }
}
