//! The receives of an endpoint that its program has started. See [`crate::receives`].

use super::Endpoint;
use crate::{
    message::{Filter, Received},
    receives::ReceiveId,
    time::Time,
};
use std::collections::VecDeque;
use vm_wire::Frame;

impl Endpoint {
    /// Starts a receive. It takes the first message that it selects, before later receives.
    pub fn start_receive(
        &mut self,
        now: Time,
        filter: Filter,
        out: &mut VecDeque<Frame>,
    ) -> ReceiveId {
        let id = self.inbox.start_receive(filter);
        self.made_room(now, out);
        id
    }

    /// Whether a started receive has its message.
    pub fn has_received(&self, id: ReceiveId) -> bool {
        self.inbox.has_received(id)
    }

    /// Completes a started receive, if it has its message, and returns the message.
    pub fn claim(&mut self, id: ReceiveId) -> Option<Received> {
        self.inbox.claim(id)
    }

    /// Cancels a started receive: its message is unread again, and later receives may take it.
    pub fn cancel_receive(&mut self, id: ReceiveId) {
        self.inbox.cancel_receive(id);
    }

    /// A number that changes when a message is added which a receive may wait for, started or not.
    pub fn news(&self) -> u64 {
        self.inbox.news()
    }

    /// Number of the receives that were started and neither completed nor cancelled.
    pub fn receives(&self) -> usize {
        self.inbox.receives()
    }
}
