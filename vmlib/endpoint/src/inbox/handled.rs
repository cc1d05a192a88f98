//! The handlers of an inbox, and the messages that they select. See [`crate::handlers`].

use super::{Conversation, Inbox};
use crate::{
    handlers::{HandlerId, Handlers},
    message::{Filter, Key, Received},
};

impl Inbox {
    /// Adds a handler: it gets the unread messages that it selects, and all later ones that no earlier
    /// handler selects. Receives select these messages only if they say so ([`Filter::handled`]).
    pub fn add_handler(&mut self, filter: Filter) -> HandlerId {
        self.handlers.add(filter)
    }

    /// Removes a handler. Started receives may take the messages that it did not get.
    pub fn remove_handler(&mut self, id: HandlerId) {
        self.handlers.remove(id);
        let mut receives = std::mem::take(&mut self.receives);
        receives.choose(|filter| self.take_arrived(filter));
        self.receives = receives;
    }

    /// Number of the handlers.
    pub fn handlers(&self) -> usize {
        self.handlers.len()
    }

    /// Removes the first message that a handler selects.
    pub fn take_handled(&mut self) -> Option<(HandlerId, Received)> {
        let find = |context: u32| {
            let conversation = self.conversations.get(&context)?;
            let arrival = conversation.find_handled(context, &self.handlers)?;
            Some((arrival, context))
        };
        let (arrival, context) = self.handlers.contexts().filter_map(find).min()?;
        let message = self.remove(context, arrival);
        let id = self.handlers.of(&message.key())?;
        Some((id, message))
    }
}

impl Conversation {
    /// Arrival number of the first message that a handler selects.
    fn find_handled(&self, context: u32, handlers: &Handlers) -> Option<u64> {
        let all = self.arrivals.iter();
        all.filter(|((from, tag), _)| handlers.select(&Key::new(context, *from, *tag)))
            .filter_map(|(_, arrivals)| arrivals.front().copied())
            .min()
    }
}
