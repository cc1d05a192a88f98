//! The reading end of a lane: slots as chunks.

use super::{
    lane::{INLINE_MAX, Lane, Words},
    lent,
};
use std::sync::atomic::Ordering::Relaxed;
use vm_endpoint::Room;
use vm_wire::{Header, Op, Tid, limits};

/// How the body of a chunk is stored: the lowest byte of word 3.
pub(super) const KIND_INLINE: u64 = 0;
pub(super) const KIND_BODY: u64 = 1;

/// A body in the memory of its sender.
pub(super) const KIND_LENT: u64 = 2;

/// Where a task reads its incoming lane.
#[derive(Debug)]
pub(super) struct Reader {
    /// The lane, or its copy in the reserve.
    pub lane: Lane,
    /// Slots that were read.
    pub tail: u64,
    /// The process whose memory long bodies are read from; `None` after a freeze.
    pub pid: Option<u32>,
    /// The peer has written what no task writes: nothing more is read.
    broken: bool,
}

/// A chunk in a lane.
pub(super) struct Slot {
    pub header: Header,
    pub len: usize,
    body: Body,
}

/// Where the bytes of a chunk are.
enum Body {
    /// In the slot.
    Inline([u64; 3]),
    /// Among the bodies, at that place.
    Area(u64),
    /// In the sender's memory, at that address.
    Lent(u64),
}

impl Reader {
    pub fn new(lane: Lane, pid: u32) -> Self {
        Reader {
            lane,
            tail: 0,
            pid: Some(pid),
            broken: false,
        }
    }

    /// Whether nothing more is read.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The next chunk, which stays there. A chunk that breaks the rules ends the lane: what the peer
    /// still says comes by the daemon.
    pub fn peek(&mut self, from: Tid, to: Tid) -> Option<Slot> {
        if self.broken {
            return None;
        }
        let words = self.lane.read(self.tail)?;
        let chunk = slot(&words, from, to);
        if chunk.is_none() {
            self.break_off(from);
        }
        chunk
    }

    fn break_off(&mut self, from: Tid) {
        log::warn!(
            "{from} wrote a chunk into its ring that is none: the ring is not read any more"
        );
        self.broken = true;
    }

    /// Puts the bytes of the chunk that was peeked into their room.
    pub fn fill(&self, slot: &Slot, room: Room<'_>) -> bool {
        match slot.body {
            Body::Inline(words) => {
                let bytes = words.map(u64::to_le_bytes);
                room.put(&bytes.as_flattened()[..slot.len]);
                true
            }
            Body::Area(place) => self.lane.read_body(place, slot.len, room),
            Body::Lent(address) => {
                let cookie = self.lane.cookie(self.tail);
                let filled = self
                    .pid
                    .is_some_and(|pid| lent::read(pid, address, slot.len, cookie, room).is_ok());
                if !filled {
                    self.lane.lends_not().store(1, Relaxed);
                }
                filled
            }
        }
    }
}

/// The words: number, context and tag, generation and epoch, kind and length, then the body or
/// its place, offset and length of the message. `None` if they are no chunk.
fn slot(words: &Words, from: Tid, to: Tid) -> Option<Slot> {
    let [seq, select, life, kind, rest @ ..] = *words;
    let len = (kind >> 32) as usize;
    let mut header = Header::new(Op::Data);
    header.from = from;
    header.to = to;
    header.seq = seq;
    header.context = select as u32;
    header.tag = (select >> 32) as i32;
    header.generation = life as u32;
    header.epoch = (life >> 32) as u32;
    let [place, offset, total] = rest;
    let body = match kind & 0xff {
        KIND_INLINE if len <= INLINE_MAX => {
            header.total = len as u64;
            Body::Inline(rest)
        }
        kind if len <= limits::CHUNK_MAX => {
            (header.offset, header.total) = (offset, total);
            let end = offset.checked_add(len as u64)?;
            if total > limits::MESSAGE_MAX || end > total {
                return None;
            }
            match kind {
                KIND_BODY => Body::Area(place),
                KIND_LENT => Body::Lent(place),
                _ => return None,
            }
        }
        _ => return None,
    };
    (seq != 0).then_some(Slot { header, len, body })
}
