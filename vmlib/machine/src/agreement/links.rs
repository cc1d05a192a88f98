//! The hosts that have links, and the requests for missing links. A frame to a host without a link
//! is dropped, because every sender of the agreement repeats its frames.

use super::output::AgreementOutput;
use crate::{Agreed, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{Frame, HostId, limits};

/// The links of this host, as the agreement knows them.
#[derive(Debug, Default)]
pub(super) struct Links {
    up: BTreeSet<HostId>,
    /// Time of the last request for a link.
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

    /// Sends a frame. Without a link the frame is lost and a link is requested; the sender repeats
    /// the frame.
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
