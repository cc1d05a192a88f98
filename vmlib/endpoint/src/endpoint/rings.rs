//! The rings and direct connections of an endpoint: open, read, acknowledge, close. See
//! [`crate::ring`].

use super::{Endpoint, Pair, pair};
use crate::{message::Filter, posted::Room, ring::RingRead, time::Time};
use std::collections::VecDeque;
use vm_wire::{Frame, Header, Tid};

impl Endpoint {
    /// A ring to the peer was opened. It is used once the peer has acknowledged all chunks that went
    /// by the daemon.
    pub fn ring_opened(&mut self, peer: Tid) {
        let pair = pair(&mut self.pairs, &self.config, peer);
        if !pair.ended {
            pair.ring.open();
        }
    }

    /// The ring to the peer was closed: later chunks go by the daemon.
    pub fn ring_closed(&mut self, peer: Tid) {
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.ring.close();
        }
    }

    /// Takes a chunk that the peer put into its ring. `fill` puts the `len` bytes of its payload
    /// into their room, and returns whether that succeeded; it is not called for a chunk that is dropped.
    /// If the chunk completes a message that `wanted` selects, and that does not land in a posted buffer,
    /// the message is returned; the caller has seen that the inbox has no such message.
    pub fn read_ring(
        &mut self,
        header: &Header,
        len: usize,
        wanted: Option<&Filter>,
        fill: impl FnOnce(Room<'_>) -> bool,
    ) -> RingRead {
        if header.generation != self.config.generation {
            return RingRead::Taken(None);
        }
        let pair = pair(&mut self.pairs, &self.config, header.from);
        let taken = pair.receiver.taken();
        if header.seq <= taken || pair.receiver.is_closed() {
            return RingRead::Taken(None);
        }
        if header.seq > taken + 1 {
            return RingRead::Early;
        }
        let Ok(direct) = self.inbox.accept_filled(header, len, wanted, fill) else {
            return RingRead::Unread;
        };
        pair.receiver.took(len);
        while let Some(chunk) = pair.receiver.next_ahead() {
            self.inbox.accept(chunk);
        }
        if !self.inbox.is_open() {
            self.withheld.insert(header.from);
        }
        if pair.awaits_last.is_some() {
            self.settle_if_last(header.from);
        }
        RingRead::Taken(direct)
    }

    /// Sends by the daemon, from chunk `from` on, all chunks that went past it and that the peer has not
    /// acknowledged: the peer does not read its ring in time, or a direct connection is closed.
    pub fn resend_by_daemon(&mut self, now: Time, peer: Tid, from: u64, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        if let Some(pair) = self.pairs.get_mut(&peer)
            && !pair.ended
        {
            pair.resend_past_daemon(now, stamp, from, out);
            self.due.note(pair);
        }
    }

    /// For a signal handler, which interrupts no call: the direct connection to a peer is closed. All
    /// chunks that went by it and that the peer has not acknowledged go to `write`. Nothing is allocated
    /// or freed.
    pub fn resend_in_handler(&mut self, peer: Tid, write: &mut impl FnMut(&Header, &[u8])) {
        let stamp = self.stamp();
        if let Some(pair) = self.pairs.get_mut(&peer).filter(|pair| !pair.ended) {
            pair.resend_in_handler(stamp, false, write);
        }
    }

    /// For a signal handler of a process that was made of an image: all unacknowledged chunks to all peers
    /// go to `write`. Nothing is allocated or freed.
    pub fn resend_all_in_handler(&mut self, write: &mut impl FnMut(&Header, &[u8])) {
        let stamp = self.stamp();
        for pair in self.pairs.values_mut().filter(|pair| !pair.ended) {
            pair.resend_in_handler(stamp, true, write);
        }
    }

    /// A peer gets an acknowledgement of what was taken from its direct connection, soon.
    pub fn acknowledge_soon(&mut self, now: Time, peer: Tid) {
        if let Some(pair) = self.pairs.get_mut(&peer)
            && self.inbox.is_open()
        {
            pair.receiver.tell_soon(now);
            self.due.note(pair);
        }
    }

    /// Whether a peer is to get an acknowledgement now: half a window was taken, or the time of the
    /// acknowledgement has come.
    pub fn is_ack_due(&self, now: Time, peer: Tid) -> bool {
        let is_due = |pair: &Pair| {
            let receiver = &pair.receiver;
            receiver.is_urgent() || receiver.due().is_some_and(|due| due <= now)
        };
        self.inbox.is_open() && self.pairs.get(&peer).is_some_and(is_due)
    }

    /// Whether the peer has no acknowledgement yet for a chunk that was taken.
    pub fn withholds(&self, peer: Tid) -> bool {
        let pair = self.pairs.get(&peer);
        pair.is_some_and(|pair| pair.receiver.withholds())
    }

    /// Whether all chunks to and from the peer are acknowledged.
    pub fn is_settled(&self, peer: Tid) -> bool {
        let pair = self.pairs.get(&peer);
        pair.is_none_or(|pair| pair.sender.retained_count() == 0 && !pair.receiver.withholds())
    }

    /// The acknowledgement and the credit for the peer, to be stated in the ring or sent on the direct
    /// connection.
    pub fn ring_ack(&mut self, peer: Tid) -> (u64, u64) {
        let open = self.inbox.is_open();
        match self.pairs.get_mut(&peer) {
            Some(pair) => pair.receiver.tell(open),
            None => (0, 0),
        }
    }

    /// Takes the acknowledgement and the credit that the peer has stated in the ring, or in a frame on
    /// the direct connection.
    pub fn ring_acknowledged(&mut self, now: Time, peer: Tid, ack: u64, credit: u64) {
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.sender.acknowledge(now, ack, credit);
            self.due.note(pair);
        }
    }
}
