//! The lanes that a thread looks at while it waits, without the library's lock.
//!
//! The memory of a lane stays mapped when another thread closes the ring, so a look is never wrong:
//! at most it finds nothing, and the thread that closed the ring has woken this one.

use super::lane::Lane;
use crate::two_phase::{FOR_DAEMON, FOR_RINGS, Patience};
use std::sync::atomic::{
    Ordering::{Acquire, SeqCst},
    fence,
};

/// The lanes that a wait watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Lanes, and the slots that were read of each.
    incoming: Vec<(Lane, u64)>,
    /// Lanes to peers to which a message is half sent, and what was known of them.
    outgoing: Vec<(Lane, u64, u64)>,
}

impl Watch {
    /// Watches nothing.
    pub fn clear(&mut self) {
        self.incoming.clear();
        self.outgoing.clear();
    }

    /// Watches for the next chunk of a lane.
    pub(super) fn incoming(&mut self, lane: Lane, tail: u64) {
        self.incoming.push((lane, tail));
    }

    /// Watches for room in a lane, and for acknowledgements.
    pub(super) fn outgoing(&mut self, lane: Lane, tail: u64, taken: u64) {
        self.outgoing.push((lane, tail, taken));
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.incoming.is_empty() && self.outgoing.is_empty()
    }

    /// How long a wait looks.
    pub fn patience(&self) -> &'static Patience {
        match self.is_empty() {
            true => &FOR_DAEMON,
            false => &FOR_RINGS,
        }
    }

    /// Whether something has come.
    pub fn is_ready(&self) -> bool {
        let written = |(lane, tail): &(Lane, u64)| lane.number(*tail).load(Acquire) == tail + 1;
        let read = |(lane, tail, taken): &(Lane, u64, u64)| {
            lane.tail().load(Acquire) != *tail || lane.taken().load(Acquire) != *taken
        };
        self.incoming.iter().any(written) || self.outgoing.iter().any(read)
    }

    /// Says in each lane that this task sleeps. Returns whether something has come meanwhile.
    pub fn sleep(&self) -> bool {
        for (lane, _) in &self.incoming {
            lane.reader_sleeps().store(1, SeqCst);
        }
        for (lane, ..) in &self.outgoing {
            lane.writer_sleeps().store(1, SeqCst);
        }
        fence(SeqCst);
        self.is_ready()
    }

    /// Says in each lane that this task is awake.
    pub fn awake(&self) {
        for (lane, _) in &self.incoming {
            lane.reader_sleeps().store(0, SeqCst);
        }
        for (lane, ..) in &self.outgoing {
            lane.writer_sleeps().store(0, SeqCst);
        }
    }
}
