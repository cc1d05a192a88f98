//! Frames that wait: for a local task that has no data socket yet or is frozen, and for a host to
//! which a link is being made.
//!
//! Only the sender of a dropped frame can send the frame again, and the sender's program may not
//! call the library for hours.

use std::collections::{BTreeSet, VecDeque};
use vm_wire::{Frame, Op, Tid, limits};

/// Limit of the senders whose frames found no room.
const MISSED_MAX: usize = 65_536;

/// The frames that wait for one task, or for one link.
#[derive(Debug, Default)]
pub(super) struct Absent {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The senders whose frames found no room; they are asked to send these frames again.
    missed: BTreeSet<Tid>,
    /// Number of chunks that found no room.
    missed_chunks: u64,
}

impl Absent {
    /// Keeps a frame, if there is room. `all` is the number of bytes in all `Absent` of this
    /// daemon.
    pub fn take(&mut self, frame: &Frame, all: &mut usize) {
        let len = frame.len();
        let fits = self.bytes + len <= limits::QUEUE_BYTES && *all + len <= limits::ABSENT_BYTES;
        if fits {
            (self.bytes, *all) = (self.bytes + len, *all + len);
            self.frames.push_back(frame.clone());
        } else if frame.header.op == Op::Data && self.missed.len() < MISSED_MAX {
            self.missed.insert(frame.header.from);
            self.missed_chunks += 1;
        }
    }

    /// Number of chunks that found no room.
    pub fn missed_chunks(&self) -> u64 {
        self.missed_chunks
    }

    /// Removes and returns the waiting frames, in the order of their arrival, and the senders whose
    /// frames found no room.
    pub fn leave(&mut self, all: &mut usize) -> (VecDeque<Frame>, BTreeSet<Tid>) {
        let waited = std::mem::take(self);
        *all -= waited.bytes;
        (waited.frames, waited.missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vm_wire::{Header, HostId, MachineId};

    #[test]
    fn chunks_that_find_no_room_are_counted_and_their_senders_known() {
        let machine = MachineId::from_bits(1);
        let sender = |host| Tid::daemon(machine, HostId(host));
        let to = Tid::daemon(machine, HostId(9));
        let body = Bytes::from(vec![0; limits::CHUNK_MAX]);
        let chunk =
            |from| Frame::new(Header::new(Op::Data), body.clone()).between(sender(from), to);
        let (mut absent, mut all) = (Absent::default(), 0);
        let fit = limits::QUEUE_BYTES / chunk(1).len();
        for number in 0..fit + 3 {
            let from = 1 + (number % 2) as u16;
            absent.take(&chunk(from), &mut all);
        }
        assert_eq!(absent.missed_chunks(), 3);
        let (waited, missed) = absent.leave(&mut all);
        assert_eq!((waited.len(), all), (fit, 0));
        assert!(missed.into_iter().eq([sender(1), sender(2)]));
        assert_eq!(absent.missed_chunks(), 0);
    }
}
