//! Which hosts can be reached, and asking for links to those that are needed.

use super::output::AgreementOutput;
use crate::{Agreed, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{Frame, HostId, limits};

/// The links as the agreement knows them.
#[derive(Debug, Default)]
pub(super) struct Links {
    up: BTreeSet<HostId>,
    /// When a link was last asked for.
    asked: BTreeMap<HostId, Time>,
}

impl Links {
    pub(super) fn up(&mut self, host: HostId) {
        self.up.insert(host);
        self.asked.remove(&host);
    }

    pub(super) fn down(&mut self, host: HostId) {
        self.up.remove(&host);
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.up.remove(&host);
        self.asked.remove(&host);
    }

    pub(super) fn is_up(&self, host: HostId) -> bool {
        self.up.contains(&host)
    }

    /// Sends, or asks for a link: then the frame is lost, and whoever wanted it sent repeats it.
    pub(super) fn send(
        &mut self,
        now: Time,
        state: &Agreed,
        host: HostId,
        frame: Frame,
        out: &mut VecDeque<AgreementOutput>,
    ) {
        if self.is_up(host) {
            out.push_back(AgreementOutput::Send(host, frame));
            return;
        }
        let Some(known) = state.host(host).filter(|host| host.is_present()) else {
            return;
        };
        let asked = self.asked.get(&host);
        if asked.is_none_or(|asked| now.since(*asked) >= limits::REPEAT) {
            self.asked.insert(host, now);
            out.push_back(AgreementOutput::Connect(host, known.facts.addr.clone()));
        }
    }
}
