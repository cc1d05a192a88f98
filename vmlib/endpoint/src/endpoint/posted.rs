//! The buffer that a receive call has posted. See [`crate::posted`].

use super::Endpoint;
use crate::{
    message::Envelope,
    posted::{Buffer, Posted},
};

impl Endpoint {
    /// Posts the buffer of a receive call, for the next message that the call selects. `false` if another
    /// call has posted one: then the message comes into the inbox.
    pub fn post(&mut self, posted: Posted) -> bool {
        self.inbox.post(posted)
    }

    /// Whether the posted buffer holds a whole message.
    pub fn has_landed(&self) -> bool {
        self.inbox.has_landed()
    }

    /// Ends the post if the buffer holds a whole message: the message was received.
    pub fn claim_posted(&mut self) -> Option<(Envelope, Buffer)> {
        self.inbox.claim_posted()
    }

    /// Ends the post. The content of the buffer moves into the inbox.
    pub fn withdraw(&mut self) {
        self.inbox.withdraw();
    }
}
