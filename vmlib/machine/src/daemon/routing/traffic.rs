//! Frames between tasks: the route of each frame, and the handling of frames that cannot be routed.
//!
//! [`Daemon::forward`] is the hot path. All other functions handle frames whose receiver has no
//! data socket yet, is frozen, has ended, is unknown, or is behind a link that is not up.

use crate::{
    Output,
    daemon::Daemon,
    route::{Route, Way},
};
use vm_wire::{Frame, Header, HostId, Message, Op, Tid, limits, task::Located};

impl Daemon {
    /// Routes a frame between tasks. One lookup, no allocation.
    pub(in crate::daemon) fn forward(&mut self, mut frame: Frame, from_peer: bool) {
        let believed = frame.header.incarnation;
        match self.cx.routes.way(&mut frame.header, from_peer) {
            Way::Task => self.cx.emit(Output::Task(frame.header.to, frame)),
            Way::Peer(host) => {
                if believed < frame.header.incarnation && !from_peer {
                    self.tell_moved(&frame);
                }
                self.cx.emit(Output::Peer(host, frame));
            }
            way => self.forward_slowly(way, frame, from_peer),
        }
    }

    /// Notifies the sender of a frame that its receiver has moved. A sender that sends its first
    /// frame after the move, or that was frozen during the move, was not notified. Such a sender
    /// would not know that a new link to the receiver's host concerns it.
    fn tell_moved(&mut self, frame: &Frame) {
        let to = frame.header.to;
        if let Some(Route::There { host, incarnation }) = self.cx.routes.of(to)
            && incarnation > 1
        {
            let located = Located {
                peer: Some(to),
                host,
                incarnation,
            };
            self.tell_sender(frame, &located);
        }
    }

    fn forward_slowly(&mut self, way: Way, frame: Frame, from_peer: bool) {
        match way {
            Way::Task => self.cx.emit(Output::Task(frame.header.to, frame)),
            Way::Peer(host) => self.cx.emit(Output::Peer(host, frame)),
            Way::NoLink(host) => {
                self.want_link(host);
                // Other senders are notified once the link is up (`on_link_up`).
                if !from_peer && self.routing.links.contains_key(&host) {
                    let absent = self.routing.absent_links.entry(host).or_default();
                    absent.take(&frame, &mut self.routing.absent_bytes);
                }
            }
            Way::Absent => self.wait_for_task(frame, from_peer),
            Way::Behind => self.hold(frame, from_peer),
            Way::Circling => self.cx.counters.circling += 1,
            Way::Unknown => self.route_unknown(frame, from_peer),
        }
    }

    fn hold(&mut self, frame: Frame, from_peer: bool) {
        let until = self.cx.now + limits::HELD_TIME;
        if !self.routing.held.hold(until, frame, from_peer) {
            self.cx.counters.behind += 1;
        }
    }

    /// Handles a frame for a local task that takes nothing now: it has no data socket, or it is
    /// frozen.
    fn wait_for_task(&mut self, frame: Frame, from_peer: bool) {
        let Some(task) = self.tasks.get_mut(&frame.header.to) else {
            if self.is_of_next_life(&frame.header) {
                self.hold(frame, from_peer);
            }
            return;
        };
        if task.frozen {
            self.cx.counters.moves.frames_kept += 1;
        }
        if task.end.leaves() {
            self.cx
                .keeper
                .handle(self.cx.now, &frame, &mut self.cx.frames);
        } else if task.token.is_some() || task.frozen {
            task.absent.take(&frame, &mut self.routing.absent_bytes);
        }
    }

    /// Whether a message or acknowledgement is for a restarted task that is still frozen here,
    /// until the log says that all tasks of the application are restored. Other hosts may have
    /// applied that already.
    fn is_of_next_life(&self, header: &Header) -> bool {
        let state = self.cx.agreement.state();
        let task = state.living_task(header.to);
        matches!(header.op, Op::Data | Op::Ack)
            && self.migration.arriving.contains_key(&header.to)
            && task.is_some_and(|task| state.epochs(task.app).generation == header.generation)
    }

    /// Handles a frame whose receiver is no living task of the routes: a daemon, an ended task, or
    /// a task that the local log does not know.
    fn route_unknown(&mut self, mut frame: Frame, from_peer: bool) {
        let to = frame.header.to;
        if to == self.cx.tid {
            return self.deliver_here(frame);
        }
        let state = self.cx.agreement.state();
        let birth = to.host();
        if to.is_daemon() {
            // Only this daemon's own endpoint sends to other daemons.
            if frame.header.from == self.cx.tid && state.may_be_present(birth) {
                let way = self.cx.routes.onward(&mut frame.header, birth, 0);
                self.forward_slowly(way, frame, from_peer);
            }
        } else if let Some(task) = state.task(to) {
            let ended_at = task.host;
            self.divert_ended(frame, ended_at, from_peer);
        } else if self.may_be_born(to) {
            if birth == self.cx.me || birth > state.last_host() || from_peer {
                self.hold(frame, from_peer);
            } else {
                let way = self.cx.routes.onward(&mut frame.header, birth, 0);
                self.forward_slowly(way, frame, from_peer);
            }
        } else {
            self.cx
                .keeper
                .handle(self.cx.now, &frame, &mut self.cx.frames);
            self.tell_ended(&frame);
        }
    }

    /// Whether a task that the local log does not know may exist: it was born on another host; or
    /// it was numbered here, and the log has not decided its birth yet.
    pub(in crate::daemon) fn may_be_born(&self, tid: Tid) -> bool {
        let state = self.cx.agreement.state();
        let birth = tid.host();
        if tid.machine() != self.cx.machine || tid.is_daemon() || birth == HostId::NONE {
            false
        } else if birth == self.cx.me {
            tid.sequence() < self.cx.next_sequence && self.cx.agreement.is_pending()
        } else {
            state.may_be_present(birth)
        }
    }

    /// Handles a frame for this daemon itself.
    pub(in crate::daemon) fn deliver_here(&mut self, frame: Frame) {
        self.routing.mail |= frame.header.op == Op::Data;
        self.cx
            .endpoint
            .handle(self.cx.now, frame, &mut self.cx.frames);
    }

    /// Handles a frame whose receiver has ended. The keeper of the receiver's messages needs the
    /// acknowledgement in the frame, and the sender of a data frame has to drop the chunks that it
    /// retains.
    fn divert_ended(&mut self, frame: Frame, ended_at: HostId, from_peer: bool) {
        self.cx
            .keeper
            .handle(self.cx.now, &frame, &mut self.cx.frames);
        if frame.header.op == Op::Data {
            self.tell_ended(&frame);
        } else if frame.header.op == Op::Located
            && let Ok(located) = Located::read(&frame)
        {
            // The frame concerns a task for which the ended task left messages.
            let generation = frame.header.generation;
            self.cx
                .keeper
                .located(self.cx.now, &located, generation, &mut self.cx.frames);
        }
        if ended_at == self.cx.me || from_peer || !self.cx.agreement.state().is_present(ended_at) {
            return;
        }
        let mut header = Header {
            seq: 0,
            offset: 0,
            total: 0,
            tag: 0,
            context: 0,
            flags: 0,
            ..frame.header
        };
        if header.op == Op::Data {
            header.op = Op::Ack;
        }
        let body = match header.op {
            Op::Located => frame.body,
            _ => bytes::Bytes::new(),
        };
        if let Way::Peer(host) = self.cx.routes.onward(&mut header, ended_at, 0) {
            self.cx.emit(Output::Peer(host, Frame::new(header, body)));
        }
    }

    /// Notifies the sender of a frame that its receiver has ended.
    pub(in crate::daemon) fn tell_ended(&mut self, frame: &Frame) {
        let located = Located {
            peer: Some(frame.header.to),
            host: HostId::NONE,
            incarnation: 0,
        };
        self.tell_sender(frame, &located);
    }

    /// Notifies the sender of a data frame of the location of its receiver.
    fn tell_sender(&mut self, frame: &Frame, located: &Located) {
        let from = frame.header.from;
        let ended = self.cx.agreement.state().task(from);
        let kept_at = ended.filter(|task| !task.is_alive()).map(|task| task.host);
        let mut told = located.frame().between(self.cx.tid, from);
        // The reply to a frame of one generation has no effect in a later one.
        told.header.generation = frame.header.generation;
        if frame.header.op != Op::Data {
        } else if self.cx.routes.of(from).is_some()
            || kept_at.is_some_and(|host| host != self.cx.me)
        {
            self.forward(told, false);
        } else {
            // The sender has ended, and this daemon keeps its message.
            let generation = frame.header.generation;
            self.cx
                .keeper
                .located(self.cx.now, located, generation, &mut self.cx.frames);
        }
    }

    /// The log has applied entries: routes the held frames again.
    pub(in crate::daemon) fn release_held(&mut self) {
        if self.routing.held.is_empty() {
            return;
        }
        for (until, mut frame, from_peer) in self.routing.held.take() {
            match self.cx.routes.way(&mut frame.header, from_peer) {
                Way::Behind => self.hold_until(until, frame, from_peer),
                Way::Unknown if self.may_be_born(frame.header.to) => {
                    self.hold_until(until, frame, from_peer);
                }
                way => self.forward_slowly(way, frame, from_peer),
            }
        }
    }

    fn hold_until(&mut self, until: crate::Time, frame: Frame, from_peer: bool) {
        // There is room, because the frame was held before.
        self.routing.held.hold(until, frame, from_peer);
    }

    /// The local log did not get to know the receivers of these frames in time. A daemon whose log
    /// is not updated for so long has lost its lease, so the receivers do not exist.
    pub(in crate::daemon) fn on_held_expired(&mut self) {
        for frame in self.routing.held.expired(self.cx.now) {
            self.cx.counters.behind += 1;
            if self.cx.routes.of(frame.header.to).is_none() {
                self.tell_ended(&frame);
            }
        }
    }

    /// Handles a frame that arrived over a link.
    pub(in crate::daemon) fn on_peer(&mut self, host: HostId, frame: Frame) {
        match frame.header.op {
            Op::Data | Op::Ack | Op::Resend => {
                if frame.header.to != self.cx.tid {
                    self.forward(frame, true);
                } else if frame.header.from == Tid::daemon(self.cx.machine, host) {
                    self.deliver_here(frame);
                } else {
                    self.cx
                        .refuse_peer(host, "a message to this daemon from no daemon");
                }
            }
            Op::Located => {
                if frame.header.to.is_daemon() {
                    self.cx.refuse_peer(host, "Located to a daemon");
                } else {
                    self.forward(frame, true);
                }
            }
            Op::Raft
            | Op::Propose
            | Op::FeedAsk
            | Op::Feed
            | Op::Snapshot
            | Op::Alive
            | Op::Grant => {
                let read =
                    self.cx
                        .agreement
                        .handle(self.cx.now, host, &frame, &mut self.cx.decisions);
                if let Err(error) = read {
                    self.cx.refuse_peer(host, &error.to_string());
                }
            }
            other => self.cx.refuse_peer(host, &format!("{other:?} over a link")),
        }
    }

    /// Outgoing frames were dropped, and there is room now: asks their senders to send them again.
    pub(in crate::daemon) fn on_dropped(&mut self, pairs: Vec<(Tid, Tid)>) {
        for (from, to) in pairs {
            let resend = Frame::new(Header::new(Op::Resend), bytes::Bytes::new());
            self.forward(resend.between(to, from), false);
        }
    }
}
