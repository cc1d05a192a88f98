//! The links to other hosts. A link is made on demand, and made again while both hosts are in the
//! machine.
//!
//! Frames in a link are lost when the link breaks. When a link is made, the daemon notifies all
//! local tasks, its endpoint and its keeper, because each may retain chunks for that host
//! ([`Located`] with the host alone). The two ends of each channel then exchange their positions
//! and continue from there, so that a broken link costs only a repetition. Frames of local tasks
//! wait for the link, as far as there is room.

use super::link::{Link, LinkState};
use crate::{
    ConnId, LinkOutput, Output,
    daemon::{Daemon, context::Timer},
};
use std::time::Duration;
use vm_wire::{
    Frame, HostId, Message, Op,
    agreed::Change,
    limits,
    peer::{Join, Refused},
    task::{FailKind, Failed, Located},
};

impl Daemon {
    /// Called once when this host is admitted: makes links, if the shell has to know of them.
    pub(in crate::daemon) fn arrive(&mut self) {
        for host in self.arrival.begin(&mut self.cx) {
            self.want_link(host);
        }
        self.arrival.review(&mut self.cx);
    }

    /// Has a link made unless there is one, or one is under way.
    pub(in crate::daemon) fn want_link(&mut self, host: HostId) {
        if !self.routing.links.contains_key(&host) {
            self.connect(host, self.first_retry(host));
        }
    }

    /// The pause before the first attempt. The host of the lower number tries first, because mostly
    /// both ends see a link break.
    fn first_retry(&self, host: HostId) -> Duration {
        match self.cx.me < host {
            true => limits::RECONNECT.0,
            false => limits::RECONNECT.0 * 4,
        }
    }

    fn connect(&mut self, host: HostId, retry: Duration) {
        if host == self.cx.me || !self.cx.agreement.state().is_present(host) {
            return;
        }
        let Some(found) = self.cx.agreement.state().host(host) else {
            return;
        };
        self.cx
            .emit(LinkOutput::Connect(host, found.facts.addr.clone()));
        let state = LinkState::Asked;
        self.routing.links.insert(host, Link { state, retry });
    }

    pub(in crate::daemon) fn on_link_up(&mut self, host: HostId) {
        let state = self.cx.agreement.state();
        if host == self.cx.me || !state.may_be_present(host) {
            self.cx.emit(LinkOutput::Disconnect(host));
            return;
        }
        let retry = self.first_retry(host);
        let state = LinkState::Up;
        self.routing.links.insert(host, Link { state, retry });
        let (cx, apps) = (&mut self.cx, self.consoles.applications());
        self.unreachable.on_link_up(cx, host, apps);
        self.deliver_effects();
        self.cx.routes.set_link(host, true);
        self.directs.on_link_changed(&mut self.cx, host);
        let located = Located {
            peer: None,
            host,
            incarnation: 0,
        };
        let frame = located.frame();
        for (tid, task) in &self.tasks {
            if task.process.is_connected() {
                let frame = frame.clone().between(self.cx.tid, *tid);
                self.cx.emit(Output::Task(*tid, frame));
            }
        }
        self.cx
            .endpoint
            .located(self.cx.now, &located, 0, &mut self.cx.frames);
        self.cx
            .keeper
            .located(self.cx.now, &located, 0, &mut self.cx.frames);
        self.cx
            .agreement
            .link_up(self.cx.now, host, &mut self.cx.decisions);
        if let Some(mut absent) = self.routing.absent_links.remove(&host) {
            // Senders without room are notified of the link, like all others.
            let (waited, _) = absent.leave(&mut self.routing.absent_bytes);
            for frame in waited {
                self.forward(frame, false);
            }
        }
        self.arrival.review(&mut self.cx);
    }

    pub(in crate::daemon) fn on_link_down(&mut self, host: HostId) {
        self.cx.routes.set_link(host, false);
        self.directs.on_link_changed(&mut self.cx, host);
        self.cx.agreement.link_down(host);
        if self.cx.routes.links().next().is_none() {
            self.on_last_link_down();
        }
        if !self.cx.agreement.state().is_present(host) {
            self.routing.links.remove(&host);
            self.unreachable.forget_link(host);
            return;
        }
        if self.unreachable.on_link_down(&mut self.cx, host) {
            self.await_link(host);
        }
        let first = self.first_retry(host);
        let link = self.routing.links.entry(host).or_insert(Link {
            state: LinkState::Asked,
            retry: first,
        });
        if link.state == LinkState::Waiting {
            return;
        }
        link.state = LinkState::Waiting;
        let due = self.cx.now + link.retry;
        link.retry = (link.retry * 2).min(limits::RECONNECT.1);
        self.cx.set_timer(due, Timer::Reconnect(host));
    }

    pub(in crate::daemon) fn on_reconnect(&mut self, host: HostId) {
        if let Some(link) = self.routing.links.get(&host)
            && link.state == LinkState::Waiting
        {
            let retry = link.retry;
            self.routing.links.remove(&host);
            self.connect(host, retry);
        }
    }

    /// A host is no longer in the machine: removes its link.
    pub(in crate::daemon) fn cut_link(&mut self, host: HostId) {
        self.cx.routes.set_link(host, false);
        let (cx, apps) = (&mut self.cx, self.consoles.applications());
        self.unreachable.on_host_gone(cx, host, apps);
        self.deliver_effects();
        if let Some(mut absent) = self.routing.absent_links.remove(&host) {
            absent.leave(&mut self.routing.absent_bytes);
        }
        if self.routing.links.remove(&host).is_some() {
            self.cx.agreement.link_down(host);
            self.cx.emit(LinkOutput::Disconnect(host));
        }
    }

    /// The shell has found a better address of this host.
    pub(in crate::daemon) fn on_address(&mut self, addr: String) {
        let host = self.cx.me;
        self.cx
            .agreement
            .propose(Change::HostAddress { host, addr });
    }

    /// The log has applied a new address of a host.
    pub(in crate::daemon) fn on_host_address(&mut self, host: HostId) {
        let Some(found) = self.cx.agreement.state().host(host) else {
            return;
        };
        let (name, addr) = (&found.facts.name, found.facts.addr.clone());
        self.cx.emit(Output::Note(format!(
            "host '{name}' is told to others at {addr} from now on"
        )));
        if host == self.cx.me {
            self.cx.emit(LinkOutput::Address(addr));
        } else if !self.cx.routes.has_link(host) && self.routing.links.remove(&host).is_some() {
            self.cx.emit(LinkOutput::Disconnect(host));
            self.want_link(host);
        }
    }

    /// Handles a frame from a daemon that is not in the machine.
    pub(in crate::daemon) fn on_joiner(&mut self, conn: ConnId, frame: &Frame) {
        let join = match frame.header.op {
            Op::Join => Join::read(frame).map_err(|error| error.to_string()),
            other => Err(format!("{other:?} before a Join")),
        };
        match join {
            Ok(join) => self
                .cx
                .agreement
                .join(self.cx.now, conn, join, &mut self.cx.decisions),
            Err(why) => {
                self.cx.counters.refused_peer += 1;
                let why = Failed::new(FailKind::BadRequest, why);
                self.cx.emit(Output::Joiner(conn, Refused { why }.frame()));
            }
        }
    }
}
