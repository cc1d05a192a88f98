//! The receives of a simulated task. A receive that waits posts a buffer, and withdraws it when it leaves.

use super::{Program, Sabotage, Scene};
use crate::sim::ledger::MESSAGE_LEN_MAX;
use vm_endpoint::{Buffer, Filter, Posted, Received};

/// Lengths of the buffers. Not every message fits into the shorter one.
const BUFFERS: [usize; 2] = [MESSAGE_LEN_MAX, 40_000];

impl Program {
    /// Receives one message if there is one.
    pub(super) fn receive(&mut self, filter: &Filter, scene: &mut Scene) -> Result<bool, String> {
        let landed = self.claim();
        let (filter, message) = match landed {
            Some((ref filter, message)) => (filter, message),
            None => match self.endpoint.take(scene.now, filter, scene.out) {
                Some(message) => (filter, message),
                None => return Ok(false),
            },
        };
        self.received += 1;
        let struck = self.received.is_multiple_of(50);
        if struck && scene.sabotage == Some(Sabotage::Lose) {
            return Ok(true);
        }
        scene.ledger.receive(self.me, filter, &message)?;
        if struck && scene.sabotage == Some(Sabotage::DeliverTwice) {
            scene.ledger.receive(self.me, filter, &message)?;
        }
        Ok(true)
    }

    /// Posts a buffer for the receive that waits.
    pub(super) fn post(&mut self, filter: Filter) {
        if self.posted.is_none() {
            let len = BUFFERS[self.received as usize % BUFFERS.len()];
            let buffer = Buffer::Own(vec![0; len].into());
            self.endpoint.post(Posted::new(filter, 1, buffer));
            self.posted = Some(filter);
        }
    }

    /// The receive leaves.
    pub(super) fn withdraw(&mut self) {
        self.posted = None;
        self.endpoint.withdraw();
    }

    /// The message in the posted buffer, and what the receive selects.
    fn claim(&mut self) -> Option<(Filter, Received)> {
        let (found, buffer) = self.endpoint.claim_posted()?;
        let message = Received {
            from: found.from,
            context: found.context,
            tag: found.tag,
            body: buffer.bytes()[..found.len].to_vec().into(),
        };
        self.posted.take().map(|filter| (filter, message))
    }
}
