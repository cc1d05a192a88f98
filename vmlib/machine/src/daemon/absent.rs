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
        }
    }

    /// All that waited, in the order in which it came, and whose frames found no room.
    pub fn leave(&mut self, all: &mut usize) -> (VecDeque<Frame>, BTreeSet<Tid>) {
        let waited = std::mem::take(self);
        *all -= waited.bytes;
        (waited.frames, waited.missed)
    }
}
