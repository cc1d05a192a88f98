//! Frames for a task that is here and has no data socket yet, or stands still, and frames for a host to which a link
//! is being made: they wait.
//!
//! Their sender may not enter its library again for hours, and nobody else could send them again.

use std::collections::{BTreeSet, VecDeque};
use vm_wire::{Frame, Op, Tid, limits};

/// Senders of frames that found no room, at most.
const MISSED_MAX: usize = 65_536;

/// What waits for one task, or for one link.
#[derive(Debug, Default)]
pub(super) struct Absent {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Whose frames found no room: they are asked to send again.
    missed: BTreeSet<Tid>,
    /// How many frames those were.
    missed_chunks: u64,
}

impl Absent {
    /// Takes a frame; `all` are the bytes that wait for all of these.
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

    /// How many chunks found no room.
    pub fn missed_chunks(&self) -> u64 {
        self.missed_chunks
    }

    /// All that waited, in the order in which it came, and whose frames found no room.
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
