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
    /// Lanes to peers to which a message is half sent.
    outgoing: Vec<Outgoing>,
}

/// A lane to a peer to which a message is half sent, and what was known of the lane.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub lane: Lane,
    /// Slots that the peer had read.
    pub tail: u64,
    /// The last chunk that the peer had taken.
    pub taken: u64,
    /// A body is lent to the peer.
    pub lends: bool,
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

    /// Watches for room in a lane, for acknowledgements, and for a peer that cannot read what is lent.
    pub(super) fn outgoing(&mut self, outgoing: Outgoing) {
        self.outgoing.push(outgoing);
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
        self.incoming.iter().any(written) || self.outgoing.iter().any(Outgoing::is_ready)
    }

    /// Says in each lane that this task sleeps. Returns whether something has come meanwhile.
    pub fn sleep(&self) -> bool {
        for (lane, _) in &self.incoming {
            lane.reader_sleeps().store(1, SeqCst);
        }
        for Outgoing { lane, .. } in &self.outgoing {
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
        for Outgoing { lane, .. } in &self.outgoing {
            lane.writer_sleeps().store(0, SeqCst);
        }
    }
}

impl Outgoing {
    /// Whether the send can go on, or has to take another route.
    fn is_ready(&self) -> bool {
        let lane = self.lane;
        lane.tail().load(Acquire) != self.tail
            || lane.taken().load(Acquire) != self.taken
            || self.lends && lane.lends_not().load(Acquire) != 0
    }
}
