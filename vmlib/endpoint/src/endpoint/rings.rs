//! The rings of an endpoint: open, read, acknowledge, close. See [`crate::ring`].

use super::{Endpoint, pair};
use crate::{message::Filter, ring::RingRead, time::Time};
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

    /// Takes a chunk that the peer put into its ring. `fill` appends the `len` bytes of its payload,
    /// and returns whether that succeeded; it is not called for a chunk that is dropped. If the chunk
    /// completes a message that `wanted` selects, the message is returned; the caller has seen that
    /// the inbox has no such message.
    pub fn read_ring(
        &mut self,
        header: &Header,
        len: usize,
        wanted: Option<&Filter>,
        fill: impl FnOnce(&mut Vec<u8>) -> bool,
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

    /// Sends all chunks that a peer has not acknowledged, by the daemon: the peer does not read its
    /// ring in time.
    pub fn resend_by_daemon(&mut self, now: Time, peer: Tid, out: &mut VecDeque<Frame>) {
        let stamp = self.stamp();
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.ring.by_daemon = pair.sender.last();
            pair.resend(now, stamp, out);
            self.due.note(pair);
        }
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

    /// The acknowledgement and the credit for the peer, to be stated in the ring.
    pub fn ring_ack(&mut self, peer: Tid) -> (u64, u64) {
        let open = self.inbox.is_open();
        match self.pairs.get_mut(&peer) {
            Some(pair) => pair.receiver.tell(open),
            None => (0, 0),
        }
    }

    /// Takes the acknowledgement and the credit that the peer has stated in the ring.
    pub fn ring_acknowledged(&mut self, now: Time, peer: Tid, ack: u64, credit: u64) {
        if let Some(pair) = self.pairs.get_mut(&peer) {
            pair.sender.acknowledge(now, ack, credit);
            self.due.note(pair);
        }
    }
}
