//! The route past the daemon: a ring, which is memory that two tasks of one host share, or a direct
//! connection between tasks of two hosts. What follows says "ring" for both.
//!
//! A ring is an addition to the route by the daemon, which always exists. A chunk has the same
//! number on both routes, and the sender retains the chunk on both. So a ring may lose its content
//! at any time: the sender repeats a chunk without an acknowledgement by the daemon, and the
//! receiver drops the duplicate.
//!
//! A sender uses the ring only if the receiver has acknowledged all chunks that went by the daemon.
//! So the chunks in a ring follow the last chunk that the receiver has taken. A chunk that does not
//! fit into the ring goes by the daemon, and so do the chunks after it, until the receiver has
//! acknowledged them.
//!
//! A ring that is not used is closed after a while ([`RingUse`]), and requested again on demand.
//!
//! **Acknowledgements** are words in the memory of a ring. A direct connection has no such words: there
//! they are in the headers of chunks ([`Ring::carries_acks`]) and in frames of their own.
//!
//! **A direct connection that is closed loses what is under way.** So its sender repeats by the daemon
//! the chunks that went no other way ([`crate::Endpoint::resend_by_daemon`]). A reader of a ring takes or
//! keeps all that was written.
//!
//! The memory and the connection are not here: the task library has them, and the simulator has queues
//! in their place.

use crate::{message::Received, time::Time};
use vm_wire::{Frame, limits};

/// The writing end of the ring to one peer.
pub trait Ring {
    /// Payload of a chunk at most, of a message of `total` bytes. Bytes.
    fn chunk_max(&self, total: usize) -> usize;

    /// Puts a chunk into the ring.
    ///
    /// # Errors
    /// [`RingError`]: the peer may have read the chunk nevertheless.
    fn push(&mut self, chunk: &Frame) -> Result<(), RingError>;

    /// Sends on the chunks that were put into the ring. It may hold them back until then.
    fn flush(&mut self) {}

    /// Whether the header of a chunk carries the acknowledgement: the route has no other place for it.
    fn carries_acks(&self) -> bool {
        false
    }
}

/// Reasons why a chunk does not go into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The peer has not read enough of the earlier chunks.
    #[error("the ring is full")]
    Full,
    /// The peer does not read the ring any more, or does not read it yet.
    #[error("the ring is closed")]
    Closed,
}

/// The ring of a pair that has none.
#[derive(Debug, Clone, Copy)]
pub struct NoRing;

impl Ring for NoRing {
    fn chunk_max(&self, _: usize) -> usize {
        limits::CHUNK_MAX
    }

    fn push(&mut self, _: &Frame) -> Result<(), RingError> {
        Err(RingError::Closed)
    }
}

/// The use of a chunk that was read from a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingRead {
    /// The chunk was taken, or was a duplicate: the ring has no use for it any more. The message
    /// is there if it is whole now and the wanted one; else the chunk is in the inbox or in a posted
    /// buffer.
    Taken(Option<Received>),
    /// Earlier chunks are missing. The chunk stays in the ring until the daemon has brought them.
    Early,
    /// The payload could not be read. The chunk stays in the ring until the daemon has brought it.
    Unread,
}

/// How far both lanes of a ring were used at the last look, from which an unused ring is recognised.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingUse {
    /// Chunks that were written, and chunks that were read.
    counters: [u64; 2],
    /// Time of the first look that found these counters; `None` before the first look.
    since: Option<Time>,
}

impl RingUse {
    /// Looks at the counters. Returns whether the ring was unused for [`limits::RING_IDLE`].
    pub fn is_idle(&mut self, now: Time, counters: [u64; 2]) -> bool {
        match self.since {
            Some(since) if self.counters == counters => now.since(since) >= limits::RING_IDLE,
            _ => {
                let since = Some(now);
                *self = RingUse { counters, since };
                false
            }
        }
    }
}

/// The state of the ring route to one peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct RingRoute {
    /// Whether the ring is open.
    pub is_open: bool,
    /// The last chunk that was sent by the daemon.
    pub by_daemon: u64,
    /// The last chunk that was sent past the daemon, and not by the daemon as well.
    pub past_daemon: u64,
    /// Number of the chunk to the peer after which the next request for a ring is made.
    ask_at: u64,
    /// Chunks between the last two requests.
    ask_after: u64,
    /// A ring was closed since the last chunk: chunks are counted anew.
    counts_anew: bool,
}

/// Bound on the chunks between two requests. The number doubles with each request, because the
/// peer may be on another host for long.
const ASK_MAX: u64 = 4096;

impl RingRoute {
    /// The route of a pair that has a past: chunks are counted anew.
    pub fn restored() -> Self {
        RingRoute {
            counts_anew: true,
            ..RingRoute::default()
        }
    }

    /// Whether a ring is to be requested now, after chunk number `sent`; the first time after `first`
    /// chunks. So a few short messages, or one long one, are worth a ring.
    pub fn asks(&mut self, sent: u64, first: u64) -> bool {
        if std::mem::take(&mut self.counts_anew) {
            self.ask_at = sent + first - 1;
        }
        if self.is_open || sent < self.ask_at.max(first) {
            return false;
        }
        self.ask_after = (self.ask_after * 2).clamp(first, ASK_MAX);
        self.ask_at = sent + self.ask_after;
        true
    }

    /// Opens the ring.
    pub fn open(&mut self) {
        self.is_open = true;
        self.ask_after = 0;
    }

    /// Closes the ring: all later chunks go by the daemon. The next ring is requested after as many
    /// chunks as the first one, because a pair that says little needs none.
    pub fn close(&mut self) {
        self.counts_anew |= std::mem::take(&mut self.is_open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_requested_after_a_few_chunks_and_then_more_and_more_rarely() {
        let mut route = RingRoute::default();
        let asked: Vec<u64> = (1..=100).filter(|chunk| route.asks(*chunk, 8)).collect();
        assert_eq!(asked, [8, 16, 32, 64]);
        route.open();
        assert!((101..=100_000).all(|chunk| !route.asks(chunk, 8)));
        route.close();
        let asked: Vec<u64> = (100_001..=100_100)
            .filter(|chunk| route.asks(*chunk, 8))
            .collect();
        assert_eq!(asked, [100_008, 100_016, 100_032, 100_064]);
    }

    #[test]
    fn one_long_message_is_worth_a_ring_and_a_restored_pair_counts_anew() {
        let mut route = RingRoute::default();
        assert!(route.asks(16, 8));
        let mut route = RingRoute::restored();
        let asked: Vec<u64> = (1001..=1020)
            .filter(|chunk| route.asks(*chunk, 8))
            .collect();
        assert_eq!(asked, [1008, 1016]);
    }

    #[test]
    fn a_ring_is_idle_when_neither_lane_was_used_for_the_whole_time() {
        let start = Time(7);
        let (half, whole) = (limits::RING_IDLE / 2, limits::RING_IDLE);
        let mut used = RingUse::default();
        assert!(!used.is_idle(start, [0, 0]));
        assert!(!used.is_idle(start + half, [0, 0]));
        // The peer has written, then this task.
        assert!(!used.is_idle(start + whole, [0, 1]));
        assert!(!used.is_idle(start + whole + half, [1, 1]));
        assert!(!used.is_idle(start + whole * 2, [1, 1]));
        assert!(used.is_idle(start + whole * 2 + half, [1, 1]));
    }
}
