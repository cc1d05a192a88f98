//! Draining hosts: consoles request drains, and mostly end them after a while.
//!
//! The rules: while a host drains, no task comes to it; every request gets a reply; and when the
//! reply is not a refusal, the host has no task.

use super::state::{Event, World, request::DrainRequest};
use crate::sim::{
    coverage::Turn,
    network::Slot,
    queue::{MS, SECOND},
};
use vm_machine::{ConnId, Input};
use vm_wire::{
    console::{Answer, Request},
    peer::DrainWay,
};

impl World {
    /// A console requests the drain of a host. Returns whether there was a daemon for the request.
    pub(super) fn drain_host(&mut self) -> bool {
        let running = self.running();
        let mut some = running.clone();
        // A draining leader hands over the lead, and a new leader counts anew how long a host was
        // silent. With one drain after the other, no leader would notice a lost host.
        if !self.harsh && self.over_it().is_none() {
            let leader = self.leader();
            some.retain(|slot| Some(*slot) != leader);
        }
        let Some(&slot) = self.random.pick(&some) else {
            return false;
        };
        // In half of the cases the request goes to the host that is to drain, so that the host can
        // be checked at its reply.
        let other = self.random.pick(&running).copied();
        let asked = other.filter(|_| self.random.percent(50)).unwrap_or(slot);
        let (name, host) = (self.nodes[slot].name.clone(), self.nodes[slot].host);
        let conn = self.ask_for(asked, &Request::Drain(name, DrainWay::default()));
        let request = DrainRequest {
            slot: asked,
            host,
            answered: false,
        };
        self.drains.insert(conn, request);
        if self.random.percent(80) {
            let time = self.random.between(10 * MS, 6 * SECOND);
            self.queue.after(time, Event::Undrain(slot));
        }
        true
    }

    /// A console ends the drain of a host.
    pub(super) fn undrain_host(&mut self, slot: Slot) {
        let running = self.running();
        let name = self.nodes[slot].name.clone();
        if let Some(&asked) = self.random.pick(&running) {
            self.ask_console(asked, &Request::Undrain(name));
        }
    }

    /// Handles the reply to the request of a console.
    pub(super) fn drain_answered(&mut self, conn: ConnId, answer: &Answer) -> Result<(), String> {
        let Some(request) = self.drains.get_mut(&conn) else {
            return Ok(());
        };
        let (slot, host) = (request.slot, request.host);
        if std::mem::replace(&mut request.answered, true) {
            return Err(format!("a console was told twice of the drain of {host}"));
        }
        self.queue
            .after(10, Event::Input(slot, Input::ConnGone(conn)));
        self.trace(|| format!("the drain of {host} is answered: {answer:?}"));
        let Answer::Drained(report) = answer else {
            return match answer {
                Answer::Failed(_) => Ok(()),
                other => Err(format!("a drain of {host} was answered with {other:?}")),
            };
        };
        self.turns
            .note_many(Turn::Drained, report.moved_count.into());
        let here = self.nodes[slot].host == host;
        let agreed = self.nodes[slot].agreed().filter(|_| here);
        match agreed.and_then(|agreed| agreed.tasks_on(host).next()) {
            Some(tid) if report.refused_count == 0 => {
                Err(format!("{tid} is on {host}, which says that all have left"))
            }
            _ => Ok(()),
        }
    }

    /// The description of a drain that has not ended, if there is one.
    pub(super) fn unsettled_drains(&self) -> Option<String> {
        let waits =
            |request: &&DrainRequest| !request.answered && self.nodes[request.slot].is_running();
        let request = self.drains.values().find(waits)?;
        Some(format!("a console waits for the drain of {}", request.host))
    }
}
