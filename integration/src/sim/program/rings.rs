//! The rings of a simulated task: queues in place of shared memory. The endpoint is the production
//! code.

use super::{Program, Scene};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};
use vm_endpoint::{Endpoint, Ring, RingError, RingRead};
use vm_wire::{
    Frame, Message, Tid, limits,
    task::{RingClosed, RingOpen},
};

/// Chunks that a lane holds.
const ROOM: usize = 12;

/// What the reader of a lane says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reader {
    #[default]
    Absent,
    Reads,
    Closed,
}

/// One direction of a ring.
#[derive(Debug, Default)]
struct Lane {
    reader: Reader,
    chunks: VecDeque<Frame>,
    taken: u64,
    credit: u64,
}

impl Ring for &mut Lane {
    fn chunk_max(&self) -> usize {
        limits::CHUNK_MAX / 4
    }

    fn push(&mut self, chunk: &Frame) -> Result<(), RingError> {
        if self.reader != Reader::Reads {
            return Err(RingError::Closed);
        }
        if self.chunks.len() >= ROOM {
            return Err(RingError::Full);
        }
        self.chunks.push_back(chunk.clone());
        Ok(())
    }
}

/// The memory of a ring, which its two tasks share: the lane that each end writes.
pub type Memory = Rc<RefCell<[LaneMemory; 2]>>;

/// One lane of a [`Memory`].
#[derive(Debug, Default)]
pub struct LaneMemory(Lane);

/// The memory of a new ring.
pub fn memory() -> Memory {
    Memory::default()
}

/// Gives a chunk to an endpoint.
fn take(endpoint: &mut Endpoint, chunk: &Frame) -> RingRead {
    let fill = |into: &mut Vec<u8>| {
        into.extend_from_slice(&chunk.body);
        true
    };
    endpoint.read_ring(&chunk.header, chunk.body.len(), None, fill)
}

/// The end of a ring that a task has.
#[derive(Clone)]
pub(super) struct End {
    id: u64,
    end: usize,
    memory: Memory,
    used: bool,
}

impl Program {
    /// The task is frozen to be moved: it closes all rings, and keeps what is unread.
    /// Returns how many chunks that is.
    pub fn close_rings(&mut self) -> u64 {
        for (peer, end) in std::mem::take(&mut self.rings) {
            let lane = &mut end.memory.borrow_mut()[1 - end.end].0;
            lane.reader = Reader::Closed;
            self.kept.extend(lane.chunks.drain(..));
            self.endpoint.ring_closed(peer);
        }
        self.kept.len() as u64
    }

    /// The task was made of an image: its rings are those of another process.
    pub fn lose_rings(&mut self) {
        for peer in std::mem::take(&mut self.rings).into_keys() {
            self.endpoint.ring_closed(peer);
        }
    }

    /// Takes what a freeze has kept.
    pub(super) fn read_kept(&mut self) {
        for chunk in std::mem::take(&mut self.kept) {
            take(&mut self.endpoint, &chunk);
        }
    }

    /// Takes all chunks in rings; nothing while the inbox is full.
    pub(super) fn read_rings(&mut self, scene: &mut Scene) {
        let peers: Vec<Tid> = self.rings.keys().copied().collect();
        for peer in peers {
            if self.endpoint.inbox_full().is_none() {
                self.read_ring(peer, scene);
            }
        }
    }

    /// Takes all chunks that a peer has written.
    pub(super) fn read_ring(&mut self, peer: Tid, scene: &mut Scene) {
        let Some(end) = self.rings.get(&peer) else {
            return;
        };
        let lane = &mut end.memory.borrow_mut()[1 - end.end].0;
        while let Some(chunk) = lane.chunks.front() {
            if take(&mut self.endpoint, chunk) == RingRead::Early {
                break;
            }
            lane.chunks.pop_front();
            (lane.taken, lane.credit) = self.endpoint.ring_ack(peer);
            scene.woken.push(peer);
        }
    }

    /// Looks what the peers have taken.
    pub(super) fn look_at_rings(&mut self, scene: &Scene) {
        for (peer, end) in &self.rings {
            let lane = &end.memory.borrow()[end.end].0;
            self.endpoint
                .ring_acknowledged(scene.now, *peer, lane.taken, lane.credit);
        }
    }

    /// Sends as much of a message as its ring, or else the daemon, takes.
    pub(super) fn send_some(
        &mut self,
        sending: &mut vm_endpoint::Sending,
        overflows: bool,
        scene: &mut Scene,
    ) -> Result<vm_endpoint::SendProgress, vm_endpoint::EndpointError> {
        let (now, to) = (scene.now, sending.to());
        let Some(end) = self.rings.get_mut(&to) else {
            let none = &mut vm_endpoint::NoRing;
            return self
                .endpoint
                .poll_send_by(now, sending, (none, true), scene.out);
        };
        let lane = &mut end.memory.borrow_mut()[end.end].0;
        if !end.used && lane.reader == Reader::Reads {
            end.used = true;
            self.endpoint.ring_opened(to);
        }
        let before = lane.chunks.len();
        let mut ring = &mut *lane;
        let sent = self
            .endpoint
            .poll_send_by(now, sending, (&mut ring, overflows), scene.out);
        if lane.chunks.len() > before {
            scene.woken.push(to);
            *scene.by_ring += 1;
        }
        sent
    }

    pub(super) fn open_ring(&mut self, open: &RingOpen, scene: &mut Scene) -> Result<(), String> {
        let memory = scene.memory.pop_front();
        let memory = memory.ok_or("a ring came without its memory")?;
        let RingOpen { peer, id, end, .. } = *open;
        if self.random.percent(5) {
            let closed = RingClosed { peer, id }.frame();
            scene.out.push_back(closed.between(self.me, Tid::NONE));
            return Ok(());
        }
        let end = usize::from(end);
        memory.borrow_mut()[1 - end].0.reader = Reader::Reads;
        let used = false;
        let end = End {
            id,
            end,
            memory,
            used,
        };
        self.rings.insert(peer, end);
        Ok(())
    }

    pub(super) fn close_ring(&mut self, closed: &RingClosed, scene: &mut Scene) {
        if self.rings.get(&closed.peer).map(|end| end.id) == Some(closed.id) {
            self.close_ring_to(closed.peer, scene);
        }
    }

    fn close_ring_to(&mut self, peer: Tid, scene: &mut Scene) {
        if let Some(end) = self.rings.get(&peer) {
            end.memory.borrow_mut()[1 - end.end].0.reader = Reader::Closed;
        }
        self.read_ring(peer, scene);
        self.look_at_rings(scene);
        self.rings.remove(&peer);
        self.endpoint.ring_closed(peer);
    }

    /// The task leaves: it closes all rings first.
    pub(super) fn leave_rings(&mut self, scene: &mut Scene) {
        let peers: Vec<Tid> = self.rings.keys().copied().collect();
        for peer in peers {
            self.close_ring_to(peer, scene);
        }
    }
}
