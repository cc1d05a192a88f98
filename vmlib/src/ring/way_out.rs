//! The route past the daemon on which a task sends to a peer.

use super::{direct::Direct, writer::Writer};
use vm_endpoint::{Ring, RingError};
use vm_wire::Frame;

/// The writing end of the route to one peer.
#[derive(Debug)]
pub(super) enum WayOut<'a> {
    /// The lane that this task writes.
    Ring(&'a mut Writer),
    /// The direct connection.
    Direct(&'a mut Direct),
}

impl Ring for WayOut<'_> {
    fn chunk_max(&self, total: usize) -> usize {
        match self {
            WayOut::Ring(ring) => ring.chunk_max(total),
            WayOut::Direct(direct) => direct.chunk_max(total),
        }
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        match self {
            WayOut::Ring(ring) => ring.push(chunk),
            WayOut::Direct(direct) => direct.push(chunk),
        }
    }

    fn flush(&mut self) {
        if let WayOut::Direct(direct) = self {
            direct.flush();
        }
    }

    fn carries_acks(&self) -> bool {
        match self {
            WayOut::Ring(ring) => ring.carries_acks(),
            WayOut::Direct(direct) => direct.carries_acks(),
        }
    }
}
