//! Connections whose queues have dropped data frames.

use crate::{context::Context, net::queue::FrameQueue};
use slab::Slab;
use vm_machine::Input;

/// The connections of one table whose queues have dropped data frames, by their places there.
/// Bounded by the table.
#[derive(Debug, Default)]
pub struct Lossy(Vec<usize>);

impl Lossy {
    /// The queue of the connection at `place` has dropped a frame.
    pub fn note(&mut self, place: usize) {
        if !self.0.contains(&place) {
            self.0.push(place);
        }
    }

    /// Reports to the state machine which channels lost chunks, once their queues have room again.
    pub fn report<T>(
        &mut self,
        table: &mut Slab<T>,
        queue: fn(&mut T) -> &mut FrameQueue,
        context: &mut Context,
    ) {
        self.0.retain(|place| {
            let Some(queue) = table.get_mut(*place).map(queue) else {
                return false;
            };
            let losers = queue.take_losers(&context.room);
            if !losers.is_empty() {
                context.inbox.push_back(Input::Dropped(losers));
            }
            queue.has_losers()
        });
    }
}
