//! The route of frames between tasks.
//!
//! The table holds every living task of the machine: on this host, or on another host with its
//! incarnation there. It follows the log ([`Routes::born`], [`Routes::moved`], [`Routes::ended`]),
//! so two daemons may differ for a moment. The incarnation in the header keeps frames from
//! circling, and frames for living tasks from being dropped:
//!
//! - A daemon that takes a frame from its own task writes the incarnation of the chosen route into
//!   the header.
//! - A daemon that takes a frame from a link and does not own the receiver forwards it only on a
//!   route with a *higher* incarnation than the header's. Otherwise its own log is behind: it holds
//!   the frame ([`Held`]) until the log has caught up.
//! - A receiver that is not in the table is *unknown*. The host that numbered the receiver is the
//!   only one that knows whether it exists, so all other hosts forward the frame there.
//!
//! Caveats: held frames are bounded in bytes and time. Beyond the bounds frames are dropped, and
//! their senders send again. A frame that was forwarded more than [`HOPS_MAX`] times is dropped.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{Frame, Header, HostId, Tid, frame::HOPS_MAX, limits};

/// The place of a living task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// On this host.
    Here {
        /// Whether frames can be written to the task: it has a data socket and is not frozen.
        open: bool,
    },
    /// On another host.
    There {
        /// The owner.
        host: HostId,
        /// The task's incarnation there.
        incarnation: u32,
    },
}

/// The next step of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Write it to the data socket of the receiver.
    Task,
    /// The receiver is on this host and takes nothing now, because it has not enrolled or is frozen:
    /// the frame waits, as far as there is room.
    Absent,
    /// Send it on the link to that host.
    Peer(HostId),
    /// There is no link to that host: the daemon requests a link. A frame of a local task or
    /// of this daemon waits for the link, as far as there is room; a frame from another link is
    /// dropped.
    NoLink(HostId),
    /// The receiver is no living task by this daemon's log.
    Unknown,
    /// This daemon's log is behind the sender's: hold it.
    Behind,
    /// It was forwarded more than [`HOPS_MAX`] times: drop it.
    Circling,
}

/// The places of all living tasks, and the links that are up.
#[derive(Debug)]
pub struct Routes {
    here: HostId,
    tasks: BTreeMap<Tid, Route>,
    links: BTreeSet<HostId>,
}

impl Routes {
    /// The table of host `here`, without tasks and links.
    pub fn new(here: HostId) -> Self {
        Routes {
            here,
            tasks: BTreeMap::new(),
            links: BTreeSet::new(),
        }
    }

    /// A task started on `host`.
    pub fn born(&mut self, tid: Tid, host: HostId) {
        self.moved(tid, host, 1);
    }

    /// A task is on `host` with that incarnation.
    pub fn moved(&mut self, tid: Tid, host: HostId, incarnation: u32) {
        let route = match host == self.here {
            true => Route::Here { open: false },
            false => Route::There { host, incarnation },
        };
        self.tasks.insert(tid, route);
    }

    /// A task ended.
    pub fn ended(&mut self, tid: Tid) {
        self.tasks.remove(&tid);
    }

    /// Frames can be written to a task of this host from now on (`now`), or no longer: its data
    /// socket is gone, or the task is frozen.
    pub fn set_open(&mut self, tid: Tid, now: bool) {
        if let Some(Route::Here { open }) = self.tasks.get_mut(&tid) {
            *open = now;
        }
    }

    /// A link was made (`up`), or is gone.
    pub fn set_link(&mut self, host: HostId, up: bool) {
        match up {
            true => self.links.insert(host),
            false => self.links.remove(&host),
        };
    }

    /// Whether there is a link to that host.
    pub fn has_link(&self, host: HostId) -> bool {
        self.links.contains(&host)
    }

    /// The hosts with a link to this one, ordered by number.
    pub fn links(&self) -> impl Iterator<Item = HostId> {
        self.links.iter().copied()
    }

    /// The place of a living task.
    pub fn of(&self, tid: Tid) -> Option<Route> {
        self.tasks.get(&tid).copied()
    }

    /// The next step of a frame for the task `header.to`. The frame comes from a link
    /// (`from_peer`), or from a task or the daemon of this host. Counts a hop and sets the
    /// incarnation in a header that is forwarded.
    pub fn way(&self, header: &mut Header, from_peer: bool) -> Way {
        match self.tasks.get(&header.to) {
            Some(Route::Here { open: true }) => Way::Task,
            Some(Route::Here { open: false }) => Way::Absent,
            Some(Route::There { host, incarnation }) => {
                if from_peer && *incarnation <= header.incarnation {
                    return Way::Behind;
                }
                self.onward(header, *host, *incarnation)
            }
            None => Way::Unknown,
        }
    }

    /// The next step of a frame that is forwarded to `host`, whatever the table says about its
    /// receiver.
    pub fn onward(&self, header: &mut Header, host: HostId, incarnation: u32) -> Way {
        if header.hops >= HOPS_MAX {
            return Way::Circling;
        }
        if !self.links.contains(&host) {
            return Way::NoLink(host);
        }
        header.hops += 1;
        header.incarnation = incarnation;
        Way::Peer(host)
    }
}

/// Frames that are held until this daemon's log has caught up with their senders' logs.
#[derive(Debug, Default)]
pub struct Held {
    frames: VecDeque<(Time, Frame, bool)>,
    bytes: usize,
}

impl Held {
    /// Holds a frame until `until`. `false`: there is no room, and the frame was dropped.
    pub fn hold(&mut self, until: Time, frame: Frame, from_peer: bool) -> bool {
        if self.bytes + frame.len() > limits::HELD_BYTES {
            return false;
        }
        self.bytes += frame.len();
        self.frames.push_back((until, frame, from_peer));
        true
    }

    /// Takes all held frames, to route them again, each with the arguments of [`Held::hold`].
    pub fn take(&mut self) -> VecDeque<(Time, Frame, bool)> {
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }

    /// Takes the frames whose time is over.
    pub fn expired(&mut self, now: Time) -> Vec<Frame> {
        let mut expired = Vec::new();
        while let Some((until, _, _)) = self.frames.front()
            && *until <= now
            && let Some((_, frame, _)) = self.frames.pop_front()
        {
            self.bytes -= frame.len();
            expired.push(frame);
        }
        expired
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The time at which the first frame's time is over.
    pub fn deadline(&self) -> Option<Time> {
        self.frames.front().map(|(until, _, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vm_wire::{MachineId, Op};

    const HERE: HostId = HostId(1);

    fn tid(host: u16, sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(1), HostId(host), sequence)
    }

    fn to(tid: Tid, incarnation: u32) -> Header {
        Header {
            to: tid,
            incarnation,
            ..Header::new(Op::Data)
        }
    }

    #[test]
    fn a_frame_goes_to_its_task_or_to_the_host_that_owns_it() {
        let mut routes = Routes::new(HERE);
        routes.born(tid(1, 1), HERE);
        routes.moved(tid(1, 2), HostId(2), 3);
        let mut header = to(tid(1, 1), 0);
        assert_eq!(routes.way(&mut header, false), Way::Absent);
        routes.set_open(tid(1, 1), true);
        assert_eq!(routes.way(&mut header, true), Way::Task);
        let mut header = to(tid(1, 2), 0);
        assert_eq!(routes.way(&mut header, false), Way::NoLink(HostId(2)));
        assert_eq!((header.hops, header.incarnation), (0, 0));
        routes.set_link(HostId(2), true);
        assert_eq!(routes.way(&mut header, false), Way::Peer(HostId(2)));
        assert_eq!((header.hops, header.incarnation), (1, 3));
        routes.ended(tid(1, 2));
        assert_eq!(routes.way(&mut header, false), Way::Unknown);
    }

    #[test]
    fn a_frame_from_a_link_is_forwarded_only_along_a_higher_incarnation() {
        let mut routes = Routes::new(HERE);
        routes.set_link(HostId(3), true);
        routes.moved(tid(1, 1), HostId(3), 2);
        for (incarnation, way) in [
            (1, Way::Peer(HostId(3))),
            (2, Way::Behind),
            (3, Way::Behind),
        ] {
            assert_eq!(routes.way(&mut to(tid(1, 1), incarnation), true), way);
        }
    }

    #[test]
    fn a_frame_that_circles_is_dropped() {
        let mut routes = Routes::new(HERE);
        routes.set_link(HostId(3), true);
        routes.born(tid(3, 1), HostId(3));
        let mut header = to(tid(3, 1), 0);
        header.hops = HOPS_MAX;
        assert_eq!(routes.way(&mut header, true), Way::Circling);
    }

    #[test]
    fn held_frames_are_bounded_in_bytes_and_time() {
        let mut held = Held::default();
        let body = Bytes::from(vec![0; limits::CHUNK_MAX]);
        let frame = || Frame::new(to(tid(2, 1), 1), body.clone());
        let fits = limits::HELD_BYTES / frame().len();
        for n in 0..fits as u64 {
            assert!(held.hold(Time(n), frame(), true));
        }
        assert!(!held.hold(Time(0), frame(), true));
        assert_eq!(held.expired(Time(1)).len(), 2);
        assert_eq!(held.deadline(), Some(Time(2)));
        assert!(held.hold(Time(9), frame(), true));
        assert_eq!(held.take().len(), fits - 1);
        assert!(held.is_empty());
    }
}
