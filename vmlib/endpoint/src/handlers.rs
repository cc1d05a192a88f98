//! The handlers that the program has added: functions for the messages that they select.
//!
//! A message that a handler selects goes to no started receive and to no posted buffer. It stays in the
//! inbox until the library calls the handler with it. Receives do not select it, except those that the
//! handler itself makes ([`Filter::handled`]).

use crate::message::{Filter, Key};

/// Number of a handler. A later handler has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandlerId(u64);

/// The handlers, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handlers {
    all: Vec<(HandlerId, Filter)>,
    /// Number of the last handler.
    last: u64,
}

impl Handlers {
    /// Number of the handlers.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a handler.
    pub fn add(&mut self, filter: Filter) -> HandlerId {
        self.last += 1;
        let id = HandlerId(self.last);
        self.all.push((id, filter));
        id
    }

    /// Removes a handler.
    pub fn remove(&mut self, id: HandlerId) {
        self.all.retain(|(of, _)| *of != id);
    }

    /// The first handler that selects such messages.
    pub fn of(&self, key: &Key) -> Option<HandlerId> {
        let found = self.all.iter().find(|(_, filter)| filter.admits(key));
        found.map(|(id, _)| *id)
    }

    /// Whether a handler selects such messages.
    pub fn select(&self, key: &Key) -> bool {
        self.of(key).is_some()
    }

    /// The contexts of the handlers; a context may come several times.
    pub fn contexts(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|(_, filter)| filter.context)
    }
}
