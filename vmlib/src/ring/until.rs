//! How far a read of rings and direct connections goes.

use vm_endpoint::{Endpoint, Filter};

/// The end of a read. What is behind it stays with its sender for a moment: the next receive takes it from
/// there, past the inbox.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until<'a> {
    /// All chunks are taken.
    Empty,
    /// A message that the filter selects; the read returns it.
    Message(&'a Filter),
    /// A whole message in the posted buffer.
    Landed,
}

impl<'a> Until<'a> {
    /// The messages that the read returns.
    pub fn filter(self) -> Option<&'a Filter> {
        match self {
            Until::Message(filter) => Some(filter),
            Until::Empty | Until::Landed => None,
        }
    }

    /// Whether the message is in the posted buffer.
    pub fn has_landed(self, endpoint: &Endpoint) -> bool {
        matches!(self, Until::Landed) && endpoint.has_landed()
    }
}
