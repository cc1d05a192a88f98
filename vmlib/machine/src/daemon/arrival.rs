//! The arrival of a host that was let into a machine: it has links to the others, or it is told to
//! which it has none.
//!
//! A host whose address leads elsewhere (to loopback, behind a firewall, to an address that many
//! computers have) would lose its lease, or hang whoever sends to it, long after its daemon was
//! started. So its first seconds decide: whoever has started the daemon hears of it.

use super::{Daemon, Timer};
use crate::{Outbox, Output};
use std::collections::BTreeSet;
use vm_wire::{HostId, agreed::Change, limits};

impl Daemon {
    /// This host has just been let in: makes links, if its shell wants to know.
    pub(super) fn arrive(&mut self, out: &mut Outbox) {
        let Some(time) = self.config.link_time else {
            return;
        };
        let state = self.agreement.state();
        let present = state.hosts().map(|(host, _)| host);
        let others = present.filter(|host| *host != self.me);
        let awaited: BTreeSet<HostId> = others.take(limits::LINKED_AT_START).collect();
        for host in &awaited {
            self.want_link(*host, out);
        }
        self.arrival = Some(awaited);
        self.set_timer(self.now + time, Timer::Arrival);
        self.review_arrival(out);
    }

    /// A link was made, or a host has gone.
    pub(super) fn review_arrival(&mut self, out: &mut Outbox) {
        let Some(awaited) = &mut self.arrival else {
            return;
        };
        let (state, routes) = (self.agreement.state(), &self.routes);
        awaited.retain(|host| state.is_present(*host) && !routes.has_link(*host));
        if awaited.is_empty() {
            self.arrival = None;
            out.push_back(Output::Linked);
        }
    }

    /// Links were made for long enough.
    pub(super) fn on_arrival_due(&mut self, out: &mut Outbox) {
        if let Some(awaited) = self.arrival.take() {
            out.push_back(Output::NotLinked(awaited.into_iter().collect()));
        }
    }

    /// The shell has found a better address of this host.
    pub(super) fn on_address(&mut self, addr: String) {
        let host = self.me;
        self.agreement.propose(Change::HostAddress { host, addr });
    }

    /// A host is reached at another address from now on.
    pub(super) fn on_host_address(&mut self, host: HostId, out: &mut Outbox) {
        let Some(found) = self.agreement.state().host(host) else {
            return;
        };
        let (name, addr) = (&found.facts.name, found.facts.addr.clone());
        out.push_back(Output::Note(format!(
            "host '{name}' is told to others at {addr} from now on"
        )));
        if host == self.me {
            out.push_back(Output::Address(addr));
        } else if !self.routes.has_link(host) && self.links.remove(&host).is_some() {
            out.push_back(Output::Disconnect(host));
            self.want_link(host, out);
        }
    }
}
