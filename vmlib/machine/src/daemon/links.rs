//! The links to other hosts: made on demand, made again while both hosts are in the machine.
//!
//! Whatever was in a link when it broke is lost. So when one is made, everybody here who may
//! retain something for that host is told ([`Located`] with the host alone): the two ends of each
//! channel say where they stand and go on from there. That is all that a broken link costs. What
//! tasks here send while there is none waits for it, as far as there is room.

use super::{Daemon, context::Timer};
use crate::{ConnId, Output};
use std::time::Duration;
use vm_wire::{
    Frame, HostId, Message, Op, limits,
    peer::{Join, Refused},
    task::{FailKind, Failed, Located},
};

/// A link that is there, or is being made.
#[derive(Debug)]
pub(super) struct Link {
    state: LinkState,
    /// How long to wait when it breaks.
    retry: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum LinkState {
    /// The shell was asked to make it.
    Asked,
    Up,
    /// It is made again when its time comes.
    Waiting,
}

impl Daemon {
    /// Has a link made unless there is one, or one is under way.
    pub(super) fn want_link(&mut self, host: HostId) {
        if !self.links.contains_key(&host) {
            self.connect(host, self.first_retry(host));
        }
    }

    /// The host of the lower number tries first: mostly both ends see a link break.
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
            .emit(Output::Connect(host, found.facts.addr.clone()));
        let state = LinkState::Asked;
        self.links.insert(host, Link { state, retry });
    }

    pub(super) fn on_link_up(&mut self, host: HostId) {
        let state = self.cx.agreement.state();
        if host == self.cx.me || !state.may_be_present(host) {
            self.cx.emit(Output::Disconnect(host));
            return;
        }
        let retry = self.first_retry(host);
        let state = LinkState::Up;
        self.links.insert(host, Link { state, retry });
        self.links_lost.remove(&host);
        self.on_link_again(host);
        self.cx.routes.set_link(host, true);
        let located = Located {
            peer: None,
            host,
            incarnation: 0,
        };
        let frame = located.frame();
        for (tid, task) in &self.tasks {
            if task.connected {
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
        if let Some(mut absent) = self.absent_links.remove(&host) {
            // Those without room hear that the link is there, as all do.
            let (waited, _) = absent.leave(&mut self.absent_bytes);
            for frame in waited {
                self.forward(frame, false);
            }
        }
        self.review_arrival();
    }

    pub(super) fn on_link_down(&mut self, host: HostId) {
        self.cx.routes.set_link(host, false);
        self.cx.agreement.link_down(host);
        if self.cx.routes.links().next().is_none() {
            self.on_last_link_down();
        }
        if !self.cx.agreement.state().is_present(host) {
            self.links.remove(&host);
            self.links_lost.remove(&host);
            return;
        }
        if !self.links_lost.contains_key(&host) {
            self.links_lost.insert(host, self.cx.now);
            self.await_link(host);
            self.await_link_again(host);
        }
        let first = self.first_retry(host);
        let link = self.links.entry(host).or_insert(Link {
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

    pub(super) fn on_reconnect(&mut self, host: HostId) {
        if let Some(link) = self.links.get(&host)
            && link.state == LinkState::Waiting
        {
            let retry = link.retry;
            self.links.remove(&host);
            self.connect(host, retry);
        }
    }

    /// A host is no longer in the machine.
    pub(super) fn cut_link(&mut self, host: HostId) {
        self.cx.routes.set_link(host, false);
        self.links_lost.remove(&host);
        self.forget_links_of(host);
        if let Some(mut absent) = self.absent_links.remove(&host) {
            absent.leave(&mut self.absent_bytes);
        }
        if self.links.remove(&host).is_some() {
            self.cx.agreement.link_down(host);
            self.cx.emit(Output::Disconnect(host));
        }
    }

    /// A frame came from a daemon that is not in the machine.
    pub(super) fn on_joiner(&mut self, conn: ConnId, frame: &Frame) {
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
