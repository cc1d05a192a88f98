//! The rings of a simulated task. The endpoint is the production code.

use super::{Program, Scene};
use crate::sim::ring_memory::{End, Reader};
use vm_endpoint::{Endpoint, RingRead, Room};
use vm_wire::{
    Frame, Message, Tid,
    task::{RingClosed, RingOpen, RouteEnd},
};

/// The report of a task that it cannot use a route, or does not use it any more.
pub(super) fn given_up(peer: Tid, id: u64) -> Frame {
    let why = RouteEnd::GivenUp;
    RingClosed { peer, id, why }.frame()
}

/// Gives a chunk to an endpoint.
pub(super) fn take(endpoint: &mut Endpoint, chunk: &Frame) -> RingRead {
    let fill = |room: Room<'_>| {
        room.put(&chunk.body);
        true
    };
    endpoint.read_ring(&chunk.header, chunk.body.len(), None, fill)
}

impl Program {
    /// The task is frozen to be moved: it closes all rings, and keeps what is unread.
    /// Returns how many chunks that is.
    pub fn close_rings(&mut self) -> u64 {
        for (peer, end) in std::mem::take(&mut self.rings) {
            let lane = &mut end.memory.borrow_mut()[1 - end.end];
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
        let lane = &mut end.memory.borrow_mut()[1 - end.end];
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
            let lane = &end.memory.borrow()[end.end];
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
            return self.send_direct(sending, overflows, scene);
        };
        let lane = &mut end.memory.borrow_mut()[end.end];
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
            scene.rings.sends += 1;
        }
        sent
    }

    pub(super) fn open_ring(&mut self, open: &RingOpen, scene: &mut Scene) -> Result<(), String> {
        let memory = scene.memory.pop_front();
        let memory = memory.ok_or("a ring came without its memory")?;
        let RingOpen { peer, id, end, .. } = *open;
        if self.random.percent(5) {
            let closed = given_up(peer, id);
            scene.out.push_back(closed.between(self.me, Tid::NONE));
            return Ok(());
        }
        let end = usize::from(end);
        memory.borrow_mut()[1 - end].reader = Reader::Reads;
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

    /// Closes a ring now and then, as the library closes one that was unused for long. The library
    /// awaits all acknowledgements before; a ring may be closed without them, too.
    pub(super) fn give_up_ring(&mut self, scene: &mut Scene) {
        if self.rings.is_empty() || !self.random.percent(1) {
            return;
        }
        let index = self.random.below(self.rings.len() as u64) as usize;
        let Some((&peer, &End { id, .. })) = self.rings.iter().nth(index) else {
            return;
        };
        self.close_ring_to(peer, scene);
        let closed = given_up(peer, id);
        scene.out.push_back(closed.between(self.me, Tid::NONE));
        scene.rings.given_up += 1;
    }

    fn close_ring_to(&mut self, peer: Tid, scene: &mut Scene) {
        if let Some(end) = self.rings.get(&peer) {
            end.memory.borrow_mut()[1 - end.end].reader = Reader::Closed;
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
