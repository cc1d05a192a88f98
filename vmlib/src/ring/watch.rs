//! The lanes that a thread looks at while it waits, without the library's lock, and the sockets of direct
//! connections that it waits for.
//!
//! The memory of a lane stays mapped when another thread closes the ring, so a look is never wrong:
//! at most it finds nothing, and the thread that closed the ring has woken this one.

use super::lane::{Lane, Sleep};
use crate::two_phase::{FOR_DAEMON, FOR_RINGS, Patience};
use rustix::{event::PollFlags, fd::RawFd};
use std::{
    sync::atomic::{
        Ordering::{Acquire, SeqCst},
        fence,
    },
    time::Duration,
};

/// How long a wait for one task leaves short messages of others where they are. Each of them would wake
/// this task, and would end no wait.
pub(crate) const NARROW: Duration = Duration::from_millis(1);

/// The lanes and sockets that a wait watches.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Lanes, and the slots that were read of each.
    incoming: Vec<(Lane, u64)>,
    /// Lanes to peers to which a message is half sent.
    outgoing: Vec<Outgoing>,
    /// The place among `incoming` of the only lane for which the wait ends at once. Short messages in
    /// the other lanes wait with it, for [`NARROW`] at most.
    only: Option<usize>,
    /// Sockets of direct connections, and what they are watched for.
    sockets: Vec<(RawFd, PollFlags)>,
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
        self.only = None;
        self.sockets.clear();
    }

    /// Watches a socket.
    pub(super) fn socket(&mut self, socket: RawFd, events: PollFlags) {
        self.sockets.push((socket, events));
    }

    /// The sockets that are watched, with their events.
    pub fn sockets(&self) -> &[(RawFd, PollFlags)] {
        &self.sockets
    }

    /// Watches for the next chunk of a lane. `only`: for no other chunk, as far as that harms nobody.
    pub(super) fn incoming(&mut self, lane: Lane, tail: u64, only: bool) {
        if only {
            self.only = Some(self.incoming.len());
        }
        self.incoming.push((lane, tail));
    }

    /// Watches for room in a lane, for acknowledgements, and for a peer that cannot read what is lent.
    pub(super) fn outgoing(&mut self, outgoing: Outgoing) {
        self.outgoing.push(outgoing);
    }

    /// Whether no lane is watched.
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

    /// Whether short messages in some lanes wait with this task.
    pub fn is_narrow(&self) -> bool {
        self.only.is_some()
    }

    /// Whether something has come.
    pub fn is_ready(&self) -> bool {
        self.incoming.iter().any(is_written) || self.outgoing.iter().any(Outgoing::is_ready)
    }

    /// Whether something has come that the wait is for.
    pub fn is_over(&self) -> bool {
        match self.only {
            Some(only) => {
                is_written(&self.incoming[only]) || self.outgoing.iter().any(Outgoing::is_ready)
            }
            None => self.is_ready(),
        }
    }

    /// Says in each lane that this task sleeps. Returns whether something has come meanwhile.
    pub fn sleep(&self) -> bool {
        for (place, (lane, _)) in self.incoming.iter().enumerate() {
            let sleep = match self.only {
                Some(only) if only != place => Sleep::UntilLong,
                _ => Sleep::UntilAny,
            };
            lane.reader_sleeps().store(sleep as u32, SeqCst);
        }
        for Outgoing { lane, .. } in &self.outgoing {
            lane.writer_sleeps().store(Sleep::UntilAny as u32, SeqCst);
        }
        fence(SeqCst);
        self.is_ready()
    }

    /// Says in each lane that this task is awake.
    pub fn awake(&self) {
        for (lane, _) in &self.incoming {
            lane.reader_sleeps().store(Sleep::Awake as u32, SeqCst);
        }
        for Outgoing { lane, .. } in &self.outgoing {
            lane.writer_sleeps().store(Sleep::Awake as u32, SeqCst);
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

/// Whether the next chunk of an incoming lane has come.
fn is_written((lane, tail): &(Lane, u64)) -> bool {
    lane.number(*tail).load(Acquire) == tail + 1
}
