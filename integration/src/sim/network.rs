//! The network between the simulated hosts: one link per pair, as TCP would have it.
//!
//! A link delivers in order and loses nothing while it lives, however bad the network is: lost
//! packets only make it late ([`Link::block`]). When it dies, everything in it is lost, in both
//! directions, and the two ends may notice at different times: the daemon that connects anew may
//! be told of the new link before the other one noticed the end of the old.

use super::queue::Moment;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{Frame, HostId, Op, Tid};

/// A daemon's process, numbered from 0 in the order of starting.
pub type Slot = usize;

/// The least delay of a frame between two hosts.
pub const LATENCY_MIN: Moment = 60;

/// State of one end of a link.
#[derive(Debug, Default)]
pub struct End {
    /// It was told that the link is up, and not yet that it is down.
    pub up: bool,
    /// It asked for the link, to this host, and waits for an answer.
    pub asked: Option<HostId>,
    /// No frame that it sent arrives before this.
    arrival: Moment,
    /// Frames that it sent and that would have arrived while packets were lost, in order.
    held: Vec<Frame>,
    /// Its queue is full: frames of data are dropped.
    pub full: bool,
    /// Pairs of which frames were dropped.
    pub dropped: BTreeSet<(Tid, Tid)>,
}

/// One link, or the place of one.
#[derive(Debug, Default)]
pub struct Link {
    /// Counts the connections: frames of an older one never arrive.
    pub generation: u64,
    /// A connection is there.
    pub alive: bool,
    /// A connection is being made.
    pub making: bool,
    /// How many faults keep packets from crossing.
    blocked: u32,
    /// Additional delay of each frame.
    pub delay: Moment,
    /// The end of the lower slot, then that of the higher.
    pub ends: [End; 2],
}

/// The fate of a frame that is sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives then, unless the link dies before.
    Arrives(Moment, Frame),
    /// There is no link, or its queue is full.
    Dropped,
}

impl Link {
    /// Sends a frame from one end, `latency` being drawn for it.
    pub fn send(&mut self, from: usize, now: Moment, latency: Moment, frame: Frame) -> Fate {
        if !self.alive || !self.ends[from].up {
            return Fate::Dropped;
        }
        let end = &mut self.ends[from];
        if end.full && matches!(frame.header.op, Op::Data | Op::Ack) {
            end.dropped.insert((frame.header.from, frame.header.to));
            return Fate::Dropped;
        }
        end.arrival = end.arrival.max(now + latency + self.delay);
        Fate::Arrives(end.arrival, frame)
    }

    /// A frame that one end sent was lost on its way: it goes with the next that cross.
    pub fn hold(&mut self, from: usize, frame: Frame) {
        self.ends[from].held.push(frame);
    }

    /// Whether packets are lost.
    pub fn is_blocked(&self) -> bool {
        self.blocked > 0
    }

    /// From now on packets are lost; counted, for faults that overlap.
    pub fn block(&mut self) {
        self.blocked += 1;
    }

    /// Ends one [`Link::block`]. When packets cross again, what was held is returned, by the end
    /// that sent it: it arrives now, before all that is still on its way.
    pub fn unblock(&mut self) -> [Vec<Frame>; 2] {
        self.blocked = self.blocked.saturating_sub(1);
        if self.blocked > 0 {
            return Default::default();
        }
        [
            std::mem::take(&mut self.ends[0].held),
            std::mem::take(&mut self.ends[1].held),
        ]
    }

    /// The connection ends, and all that is in it. Its ends still believe that it is up.
    pub fn destroy(&mut self) {
        self.alive = false;
        self.generation += 1;
        for end in &mut self.ends {
            end.held.clear();
            end.arrival = 0;
        }
    }

    /// Replaces the link by a new connection.
    pub fn make(&mut self) {
        self.destroy();
        self.alive = true;
        self.making = false;
        for end in &mut self.ends {
            end.asked = None;
            end.dropped.clear();
        }
    }
}

/// The links between all pairs of hosts.
#[derive(Debug, Default)]
pub struct Network {
    links: BTreeMap<(Slot, Slot), Link>,
}

impl Network {
    /// The link between two slots, and which of its ends `from` is.
    pub fn link(&mut self, from: Slot, to: Slot) -> (&mut Link, usize) {
        let key = (from.min(to), from.max(to));
        (self.links.entry(key).or_default(), usize::from(from > to))
    }

    /// All links with the slots that they join.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = ((Slot, Slot), &mut Link)> {
        self.links.iter_mut().map(|(&key, link)| (key, link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_wire::Header;

    fn frame() -> Frame {
        Frame::new(Header::new(Op::Data), bytes::Bytes::new())
    }

    fn link() -> Link {
        let mut link = Link::default();
        link.make();
        link.ends[0].up = true;
        link.ends[1].up = true;
        link
    }

    #[test]
    fn frames_of_one_end_arrive_in_order() {
        let mut link = link();
        assert_eq!(link.send(0, 100, 90, frame()), Fate::Arrives(190, frame()));
        assert_eq!(link.send(0, 110, 20, frame()), Fate::Arrives(190, frame()));
        assert_eq!(link.send(1, 110, 20, frame()), Fate::Arrives(130, frame()));
    }

    #[test]
    fn frames_are_held_while_packets_are_lost() {
        let mut link = link();
        link.block();
        link.block();
        link.hold(1, frame());
        assert_eq!(link.unblock(), [vec![], vec![]]);
        assert_eq!(link.unblock(), [vec![], vec![frame()]]);
    }

    #[test]
    fn a_full_queue_drops_data_and_remembers_whose() {
        let mut link = link();
        link.ends[0].full = true;
        assert_eq!(link.send(0, 0, 1, frame()), Fate::Dropped);
        assert_eq!(link.ends[0].dropped.len(), 1);
    }
}
