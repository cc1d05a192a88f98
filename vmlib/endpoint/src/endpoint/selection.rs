//! Receives by lists of sources and tags, and by conditions of the program. See [`Selection`].

use super::Endpoint;
use crate::{
    message::{Envelope, Received, Selection},
    time::Time,
};
use std::collections::VecDeque;
use vm_wire::Frame;

impl Endpoint {
    /// The first message that the selection selects; see [`Endpoint::take`].
    pub fn take_selected(
        &mut self,
        now: Time,
        selection: &Selection<'_>,
        out: &mut VecDeque<Frame>,
    ) -> Option<Received> {
        let message = self.inbox.take_selected(selection)?;
        self.made_room(now, out);
        Some(message)
    }

    /// The envelope of the message that [`Endpoint::take_selected`] would return.
    pub fn peek_selected(&self, selection: &Selection<'_>) -> Option<Envelope> {
        self.inbox.peek_selected(selection)
    }
}
