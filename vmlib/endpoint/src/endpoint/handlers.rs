//! The handlers of a program. See [`crate::handlers`].

use super::Endpoint;
use crate::{
    handlers::HandlerId,
    message::{Filter, Received},
    time::Time,
};
use std::collections::VecDeque;
use vm_wire::Frame;

impl Endpoint {
    /// Adds a handler. It gets all messages that it selects, the unread ones first, unless an earlier
    /// handler selects them.
    pub fn add_handler(&mut self, filter: Filter) -> HandlerId {
        self.inbox.add_handler(filter)
    }

    /// Removes a handler: the messages that it did not get are unread.
    pub fn remove_handler(&mut self, id: HandlerId) {
        self.inbox.remove_handler(id);
    }

    /// Number of the handlers.
    pub fn handlers(&self) -> usize {
        self.inbox.handlers()
    }

    /// The first message that a handler selects; see [`Endpoint::take`].
    pub fn take_handled(
        &mut self,
        now: Time,
        out: &mut VecDeque<Frame>,
    ) -> Option<(HandlerId, Received)> {
        let handled = self.inbox.take_handled()?;
        self.made_room(now, out);
        Some(handled)
    }
}
