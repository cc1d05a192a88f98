//! The direct connections of a simulated task. The endpoint is the production code.

use super::{
    Program, Scene,
    rings::{given_up, take},
};
use crate::sim::{
    pipe::{Pipe, PipeEnd},
    random::Random,
};
use vm_endpoint::{EndpointError, RingRead, SendProgress, Sending};
use vm_wire::{
    Frame, Header, Message, Op, Tid,
    task::{DirectDial, DirectOpen, RingClosed, RouteEnd},
};

impl Program {
    /// The process of the task is frozen to be moved, or has ended: its connections are closed.
    pub fn close_directs(&mut self, random: &mut Random) {
        for (peer, end) in std::mem::take(&mut self.directs) {
            end.close(random);
            self.endpoint.ring_closed(peer);
            self.lost.push(peer);
        }
    }

    /// The task was made of an image: its connections are those of another process.
    pub fn lose_directs(&mut self) {
        for peer in std::mem::take(&mut self.directs).into_keys() {
            self.endpoint.ring_closed(peer);
            self.lost.push(peer);
        }
    }

    /// The daemon interrupts the task: the connection of that number is closed. Returns the frames that
    /// the signal handler writes. `false`: the task stands, and does it when it goes on.
    pub fn nudged(&mut self, id: u64, runs: bool) -> Vec<Frame> {
        let of_id = |(peer, end): (&Tid, &PipeEnd)| (end.id == id).then_some(*peer);
        let Some(peer) = self.directs.iter().find_map(of_id) else {
            return Vec::new();
        };
        if !runs {
            self.lost.push(peer);
            return Vec::new();
        }
        let (me, mut frames) = (self.me, Vec::new());
        let mut write = |header: &Header, body: &[u8]| {
            let frame = Frame::new(*header, body.to_vec().into());
            frames.push(frame.between(me, peer));
        };
        self.endpoint.resend_in_handler(peer, &mut write);
        frames
    }

    /// Sends again what closed connections may have lost.
    pub(super) fn heed_lost(&mut self, scene: &mut Scene) {
        for peer in std::mem::take(&mut self.lost) {
            let (endpoint, out) = (&mut self.endpoint, &mut *scene.out);
            endpoint.resend_by_daemon(scene.now, peer, 1, out);
        }
    }

    pub(super) fn dial(&mut self, order: &DirectDial, scene: &mut Scene) {
        self.close_direct_to(order.peer, scene);
        if self.random.percent(1) {
            let (peer, id, why) = (order.peer, order.id, RouteEnd::NotMade);
            let closed = RingClosed { peer, id, why }.frame();
            return scene.out.push_back(closed.between(self.me, Tid::NONE));
        }
        let pipe = Pipe::default();
        scene.dialled.push((order.id, pipe.clone()));
        let end = PipeEnd {
            id: order.id,
            end: 0,
            pipe,
            open: false,
        };
        self.directs.insert(order.peer, end);
    }

    pub(super) fn accept(&mut self, open: &DirectOpen, scene: &mut Scene) -> Result<(), String> {
        let pipe = scene.pipes.pop_front();
        let pipe = pipe.ok_or("a direct connection came without its descriptor")?;
        let DirectOpen { peer, id, .. } = *open;
        self.close_direct_to(peer, scene);
        let end = PipeEnd {
            id,
            end: 1,
            pipe,
            open: true,
        };
        if self.random.percent(5) {
            end.close(&mut self.random);
            let closed = given_up(peer, id);
            scene.out.push_back(closed.between(self.me, Tid::NONE));
            return Ok(());
        }
        self.directs.insert(peer, end);
        self.endpoint.ring_opened(peer);
        scene.directs.opened += 1;
        self.acknowledge_on(peer, scene);
        Ok(())
    }

    /// Writes a frame with the acknowledgement for a peer.
    fn acknowledge_on(&mut self, peer: Tid, scene: &mut Scene) {
        let Some(end) = self.directs.get(&peer) else {
            return;
        };
        let mut header = Header::new(Op::Ack);
        (header.ack, header.credit) = self.endpoint.ring_ack(peer);
        header.generation = self.endpoint.generation();
        let ack = Frame::new(header, Vec::new().into()).between(self.me, peer);
        let mut stream = &mut end.pipe.borrow_mut()[end.end];
        // If there is no room, the sender repeats a chunk and gets the acknowledgement by the daemon.
        let _ = vm_endpoint::Ring::push(&mut stream, &ack);
        scene.woken_far.push(peer);
    }

    /// Takes what has come: all, or what the network has brought so far. Nothing is taken while the
    /// inbox is full.
    pub(super) fn read_directs(&mut self, scene: &mut Scene) {
        let peers: Vec<Tid> = self.directs.keys().copied().collect();
        for peer in peers {
            if self.endpoint.inbox_full().is_none() {
                let there = self.directs.get(&peer).map_or(0, |end| {
                    let streams = end.pipe.borrow();
                    streams[1 - end.end].frames.len()
                });
                let most = self.random.below(there as u64 + 1) as usize;
                if most < there {
                    scene.woken_far.push(self.me);
                }
                self.read_direct(peer, most, scene);
                self.close_ended(peer, scene);
            }
        }
    }

    /// Takes at most so many frames that a peer has written.
    pub(super) fn read_direct(&mut self, peer: Tid, most: usize, scene: &mut Scene) {
        let Some(end) = self.directs.get_mut(&peer) else {
            return;
        };
        let stream = &mut end.pipe.borrow_mut()[1 - end.end];
        let mut taken = 0;
        while taken < most
            && let Some(frame) = stream.frames.front()
        {
            let header = &frame.header;
            if !std::mem::replace(&mut end.open, true) {
                self.endpoint.ring_opened(peer);
            }
            if header.generation == self.endpoint.generation() {
                let (ack, credit) = (header.ack, header.credit);
                self.endpoint
                    .ring_acknowledged(scene.now, peer, ack, credit);
            }
            if header.op == Op::Data && take(&mut self.endpoint, frame) == RingRead::Early {
                break;
            }
            stream.frames.pop_front();
            taken += 1;
        }
        self.endpoint.acknowledge_soon(scene.now, peer);
        if taken > 0 {
            scene.woken_far.push(peer);
        }
    }

    /// Forgets the connection to a peer, if the peer has closed it and all was read.
    fn close_ended(&mut self, peer: Tid, scene: &mut Scene) {
        let Some(end) = self.directs.get(&peer) else {
            return;
        };
        let id = end.id;
        let has_ended = {
            let stream = &end.pipe.borrow()[1 - end.end];
            stream.ended && stream.frames.is_empty()
        };
        if has_ended {
            self.close_direct_to(peer, scene);
            let closed = given_up(peer, id);
            scene.out.push_back(closed.between(self.me, Tid::NONE));
        }
    }

    /// Sends the acknowledgements that are due on connections.
    pub(super) fn acknowledge_directs(&mut self, scene: &mut Scene) {
        let peers: Vec<Tid> = self.directs.keys().copied().collect();
        for peer in peers {
            if self.directs[&peer].open && self.endpoint.is_ack_due(scene.now, peer) {
                self.acknowledge_on(peer, scene);
            }
        }
    }

    /// Sends as much of a message as the connection to its receiver, or else the daemon, takes.
    pub(super) fn send_direct(
        &mut self,
        sending: &mut Sending,
        overflows: bool,
        scene: &mut Scene,
    ) -> Result<SendProgress, EndpointError> {
        let (now, to) = (scene.now, sending.to());
        let Some(end) = self.directs.get_mut(&to).filter(|end| end.open) else {
            let none = &mut vm_endpoint::NoRing;
            let out = &mut *scene.out;
            return self.endpoint.poll_send_by(now, sending, (none, true), out);
        };
        let mut stream = &mut end.pipe.borrow_mut()[end.end];
        let before = stream.frames.len();
        let ring = (&mut stream, overflows);
        let sent = self.endpoint.poll_send_by(now, sending, ring, scene.out);
        if stream.frames.len() > before {
            scene.woken_far.push(to);
            scene.directs.sends += 1;
        }
        if stream.ended {
            self.lost.push(to);
        }
        sent
    }

    pub(super) fn close_direct(&mut self, closed: &RingClosed, scene: &mut Scene) {
        if self.directs.get(&closed.peer).map(|end| end.id) == Some(closed.id) {
            self.close_direct_to(closed.peer, scene);
        }
    }

    /// Closes or breaks a connection now and then.
    pub(super) fn give_up_direct(&mut self, scene: &mut Scene) {
        if self.directs.is_empty() || !self.random.percent(1) {
            return;
        }
        let index = self.random.below(self.directs.len() as u64) as usize;
        let Some((&peer, end)) = self.directs.iter().nth(index) else {
            return;
        };
        let (id, end) = (end.id, end.clone());
        if self.random.percent(50) {
            end.break_off(&mut self.random);
            scene.directs.broken += 1;
            scene.woken_far.extend([peer, self.me]);
            return;
        }
        self.close_direct_to(peer, scene);
        let closed = given_up(peer, id);
        scene.out.push_back(closed.between(self.me, Tid::NONE));
        scene.directs.given_up += 1;
    }

    fn close_direct_to(&mut self, peer: Tid, scene: &mut Scene) {
        self.read_direct(peer, usize::MAX, scene);
        if let Some(end) = self.directs.remove(&peer) {
            end.close(&mut self.random);
            scene.woken_far.push(peer);
            self.endpoint.ring_closed(peer);
            let (endpoint, out) = (&mut self.endpoint, &mut *scene.out);
            endpoint.resend_by_daemon(scene.now, peer, 1, out);
        }
    }

    /// The task leaves: it closes all connections first.
    pub(super) fn leave_directs(&mut self, scene: &mut Scene) {
        let peers: Vec<Tid> = self.directs.keys().copied().collect();
        for peer in peers {
            self.close_direct_to(peer, scene);
        }
    }
}
