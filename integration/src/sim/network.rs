//! The network between the simulated hosts: one link for each pair, with the properties of TCP.
//!
//! A link delivers in order and loses nothing while it lives: lost packets only delay frames
//! ([`Link::block`]). When a link dies, all frames in it are lost, in both directions. The two ends
//! may notice at different times: the daemon that connects anew may get the new link before the
//! other daemon has noticed the end of the old one.

use super::queue::Moment;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{Frame, HostId, Op, Tid};

/// The number of a daemon's process, from 0, in the order of starting.
pub type Slot = usize;

/// The least delay of a frame between two hosts.
pub const LATENCY_MIN: Moment = 60;

/// State of one end of a link.
#[derive(Debug, Default)]
pub struct End {
    /// Whether the daemon at this end was told that the link is up, and not yet that it is down.
    pub up: bool,
    /// The host to which the daemon at this end has requested the link, until the result.
    pub asked: Option<HostId>,
    /// No frame of this end arrives before this moment.
    arrival: Moment,
    /// Frames of this end that would have arrived while packets were lost, in order.
    held: Vec<Frame>,
    /// The queue of this end is full: data frames are dropped.
    pub full: bool,
    /// Channels of which frames were dropped.
    pub dropped: BTreeSet<(Tid, Tid)>,
}

/// The link of a pair of hosts, whether or not a connection exists.
#[derive(Debug, Default)]
pub struct Link {
    /// Number of the connection: frames of an older connection never arrive.
    pub generation: u64,
    /// Whether a connection exists.
    pub alive: bool,
    /// Whether a connection is being made.
    pub making: bool,
    /// Number of faults that stop packets.
    blocked: u32,
    /// Additional delay of each frame.
    pub delay: Moment,
    /// The end of the lower slot, then the end of the higher slot.
    pub ends: [End; 2],
}

/// The fate of a frame that is sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame arrives at that moment, unless the link dies before.
    Arrives(Moment, Frame),
    /// The frame is dropped: there is no link, or its queue is full.
    Dropped,
}

impl Link {
    /// Sends a frame from one end, with the given random latency.
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

    /// Holds a frame of one end that was lost in transit until packets cross again.
    pub fn hold(&mut self, from: usize, frame: Frame) {
        self.ends[from].held.push(frame);
    }

    /// Whether packets are lost.
    pub fn is_blocked(&self) -> bool {
        self.blocked > 0
    }

    /// Stops packets. Calls are counted, for faults that overlap.
    pub fn block(&mut self) {
        self.blocked += 1;
    }

    /// Ends one [`Link::block`]. When packets cross again, returns the held frames, by the end that
    /// sent them: they arrive now, before all frames that are still in transit.
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

    /// Ends the connection and all frames in it. Its ends still believe that it is up.
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
    /// The link between two slots, and the index of the end of `from`.
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
    fn a_full_queue_drops_data_and_records_the_channel() {
        let mut link = link();
        link.ends[0].full = true;
        assert_eq!(link.send(0, 0, 1, frame()), Fate::Dropped);
        assert_eq!(link.ends[0].dropped.len(), 1);
    }
}
