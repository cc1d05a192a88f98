//! Both channels between a task and one peer, with the queue of a daemon's messages in front of
//! them. Each frame in one direction carries acknowledgement and credit for the other direction.

use crate::{
    channel::{Receiver, ReceiverState, Sender, SenderState},
    ring::{NoRing, Ring, RingError, RingRoute},
    sending::{EndpointError, SendProgress, Sending},
    time::Time,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vm_wire::{Frame, Header, HostId, Op, Tid, agreed::ExitStatus, limits::CHUNK_MAX, task::Ended};

/// The fields of an endpoint that every frame carries at the time of sending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub me: Tid,
    pub epoch: u32,
    pub generation: u32,
    /// The inbox is open, so acknowledgements may be sent.
    pub open: bool,
}

/// The state of an endpoint for one peer.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub peer: Tid,
    /// Last known host of the peer; at first the host on which it was spawned.
    pub host: HostId,
    /// Last known incarnation of the peer.
    pub incarnation: u32,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The peer has ended: no frame is sent to it any more.
    pub ended: bool,
    /// The end of the peer, while its last chunk has not been taken.
    pub awaits_last: Option<Ended>,
    /// Exit status of the peer, once its last chunk was taken.
    pub over: Option<ExitStatus>,
    /// The entry of this pair in the timers of the endpoint.
    pub timer: Option<Time>,
    /// Number of unacknowledged chunks that the endpoint has counted for this pair.
    pub counted: u64,
    /// The route to the peer past the daemon.
    pub ring: RingRoute,
    /// Number of messages whose first chunk was sent.
    messages: u64,
    /// Messages that wait for credit; `backlog_bytes` is their cost.
    backlog: VecDeque<Sending>,
    backlog_bytes: u64,
}

/// The part of a [`Pair`] that an image records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairState {
    pub peer: Tid,
    host: HostId,
    incarnation: u32,
    sender: SenderState,
    receiver: ReceiverState,
    pub ended: bool,
    awaits_last: Option<Ended>,
    #[serde(default)]
    over: Option<ExitStatus>,
}

impl Pair {
    pub fn new(peer: Tid, window_bytes: u64) -> Self {
        Pair {
            peer,
            host: peer.host(),
            incarnation: 0,
            sender: Sender::new(window_bytes),
            receiver: Receiver::new(window_bytes),
            ended: false,
            awaits_last: None,
            over: None,
            timer: None,
            counted: 0,
            ring: RingRoute::default(),
            messages: 0,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
        }
    }

    /// The state of the pair. A task has no backlog; a message that is half sent has a state of its own.
    pub fn state(&self) -> PairState {
        PairState {
            peer: self.peer,
            host: self.host,
            incarnation: self.incarnation,
            sender: self.sender.state(),
            receiver: self.receiver.state(),
            ended: self.ended,
            awaits_last: self.awaits_last.clone(),
            over: self.over,
        }
    }

    /// A pair with a recorded state.
    pub fn of(now: Time, state: PairState, window_bytes: u64) -> Self {
        Pair {
            host: state.host,
            incarnation: state.incarnation,
            sender: Sender::of(now, &state.sender, window_bytes),
            receiver: Receiver::of(&state.receiver, window_bytes),
            ended: state.ended,
            awaits_last: state.awaits_last,
            over: state.over,
            ring: RingRoute::restored(),
            ..Pair::new(state.peer, window_bytes)
        }
    }

    /// Sends as many chunks of the message as credit and window allow. If the ring is full, the
    /// chunks go by the daemon if `overflows`, and else wait.
    pub fn advance(
        &mut self,
        now: Time,
        stamp: Stamp,
        sending: &mut Sending,
        (ring, overflows): (&mut impl Ring, bool),
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        if sending.number.is_some_and(|number| number != self.messages) {
            return Err(EndpointError::Superseded { to: self.peer });
        }
        while !self.ended && !sending.done {
            let by_ring = self.ring.is_open && self.sender.acknowledged() >= self.ring.by_daemon;
            let max = if by_ring {
                ring.chunk_max(sending.body.len())
            } else {
                CHUNK_MAX
            };
            let len = max.min(sending.body.len() - sending.offset);
            if !self.sender.has_room(len) {
                return Ok(SendProgress::NeedsCredit);
            }
            let mut chunk = self.chunk(stamp, sending, len);
            if by_ring {
                let carries_acks = ring.carries_acks();
                if carries_acks {
                    (chunk.header.ack, chunk.header.credit) = self.receiver.to_tell(stamp.open);
                }
                match ring.push(&chunk) {
                    Ok(()) => {
                        self.ring.past_daemon = chunk.header.seq;
                        if carries_acks {
                            self.receiver.tell(stamp.open);
                        }
                    }
                    Err(RingError::Full) if !overflows => return Ok(SendProgress::NeedsRoom),
                    Err(error) => {
                        if error == RingError::Closed {
                            self.ring.close();
                        }
                        self.send_by_daemon(stamp, chunk.clone(), out);
                    }
                }
            } else {
                self.send_by_daemon(stamp, chunk.clone(), out);
            }
            self.sender.push(now, chunk);
            if sending.number.is_none() {
                self.messages += 1;
                sending.number = Some(self.messages);
            }
            sending.offset += len;
            sending.done = sending.offset == sending.body.len();
        }
        sending.done = true;
        Ok(SendProgress::Done)
    }

    /// The next `len` bytes of the message, with the next number.
    fn chunk(&self, stamp: Stamp, sending: &Sending, len: usize) -> Frame {
        let mut header = Header::new(Op::Data);
        header.seq = self.sender.next();
        header.offset = sending.offset as u64;
        header.total = sending.body.len() as u64;
        header.context = sending.context;
        header.tag = sending.tag;
        header.from = stamp.me;
        header.to = self.peer;
        header.epoch = stamp.epoch;
        header.generation = stamp.generation;
        let body = match len == sending.body.len() {
            true => sending.body.clone(),
            false => sending.body.slice(sending.offset..sending.offset + len),
        };
        Frame::new(header, body)
    }

    fn send_by_daemon(&mut self, stamp: Stamp, chunk: Frame, out: &mut VecDeque<Frame>) {
        self.ring.by_daemon = chunk.header.seq;
        out.push_back(self.stamped(stamp, chunk));
    }

    /// Adds a message to the backlog and sends as much of the backlog as possible. Returns false if
    /// the backlog would exceed `limit_bytes`.
    pub fn queue(
        &mut self,
        now: Time,
        stamp: Stamp,
        sending: Sending,
        limit_bytes: u64,
        out: &mut VecDeque<Frame>,
    ) -> bool {
        if self.ended {
            return true;
        }
        if self.backlog_bytes + sending.cost() > limit_bytes {
            return false;
        }
        self.backlog_bytes += sending.cost();
        self.backlog.push_back(sending);
        self.pump(now, stamp, out);
        true
    }

    /// Whether no message waits for credit and no chunk for an acknowledgement.
    pub fn is_drained(&self) -> bool {
        self.backlog.is_empty() && self.sender.retained_bytes() == 0
    }

    /// Sends as much of the backlog as credit and window allow.
    pub fn pump(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        while let Some(mut sending) = self.backlog.pop_front() {
            match self.advance(now, stamp, &mut sending, (&mut NoRing, true), out) {
                Ok(SendProgress::NeedsCredit | SendProgress::NeedsRoom) => {
                    self.backlog.push_front(sending);
                    return;
                }
                Ok(SendProgress::Done) | Err(_) => self.backlog_bytes -= sending.cost(),
            }
        }
    }

    /// Sends acknowledgement and credit to the peer in a frame of their own.
    pub fn announce(&mut self, stamp: Stamp, out: &mut VecDeque<Frame>) {
        let ack = Frame::new(Header::new(Op::Ack), Bytes::new());
        out.push_back(self.stamped(stamp, ack));
    }

    /// Sends all unacknowledged chunks again.
    pub fn resend(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        let retained: Vec<Frame> = self.sender.retained().cloned().collect();
        self.sender.resent(now);
        for chunk in retained {
            out.push_back(self.stamped(stamp, chunk));
        }
    }

    /// Sends again by the daemon, from chunk `from` on, all unacknowledged chunks that went past it
    /// alone.
    pub fn resend_past_daemon(
        &mut self,
        now: Time,
        stamp: Stamp,
        from: u64,
        out: &mut VecDeque<Frame>,
    ) {
        let chunks = from..=self.ring.past_daemon;
        let past = |chunk: &&Frame| chunks.contains(&chunk.header.seq);
        let again: Vec<Frame> = self.sender.retained().filter(past).cloned().collect();
        self.ring.past_daemon = self.ring.past_daemon.min(from.saturating_sub(1));
        if again.is_empty() {
            return;
        }
        self.ring.by_daemon = self.sender.last();
        self.sender.resent(now);
        for chunk in again {
            out.push_back(self.stamped(stamp, chunk));
        }
    }

    /// Like [`Pair::resend_past_daemon`] from the first chunk on, or of `all` unacknowledged chunks. Each
    /// header and body goes to `write`. Nothing is allocated or freed.
    pub fn resend_in_handler(
        &mut self,
        stamp: Stamp,
        all: bool,
        write: &mut impl FnMut(&Header, &[u8]),
    ) {
        self.ring.close();
        let last = match all {
            true => self.sender.last(),
            false => std::mem::take(&mut self.ring.past_daemon),
        };
        let (ack, credit) = self.receiver.tell(stamp.open);
        for chunk in self.sender.retained() {
            if chunk.header.seq <= last {
                let mut header = chunk.header;
                header.ack = ack;
                header.credit = credit;
                header.epoch = stamp.epoch;
                header.generation = stamp.generation;
                header.incarnation = self.incarnation;
                self.ring.by_daemon = self.sender.last();
                write(&header, &chunk.body);
            }
        }
    }

    /// Acknowledges and sends again from the first unacknowledged chunk, on a new route. The peer
    /// does the same.
    pub fn renew(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        if self.receiver.taken() > 0 {
            self.announce(stamp, out);
        }
        self.resend(now, stamp, out);
    }

    /// Releases the chunks and messages for the peer, because the peer has ended.
    pub fn end(&mut self) {
        self.ended = true;
        self.sender.forget();
        self.backlog = VecDeque::new();
        self.backlog_bytes = 0;
    }

    /// Time at which [`Pair::tick`] has a repetition or acknowledgement to send.
    pub fn due(&self) -> Option<Time> {
        let repeat = self.sender.repeat_due();
        self.receiver.due().into_iter().chain(repeat).min()
    }

    /// Sends the repetition and the acknowledgement that are due at `now`.
    pub fn tick(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        if self.sender.repeat_due().is_some_and(|due| due <= now)
            && let Some(chunk) = self.sender.repeat(now).cloned()
        {
            out.push_back(self.stamped(stamp, chunk));
        }
        if self.receiver.due().is_some_and(|due| due <= now) {
            self.announce(stamp, out);
        }
    }

    /// The frame with all header fields that are set at the time of sending.
    pub fn stamped(&mut self, stamp: Stamp, mut frame: Frame) -> Frame {
        let (ack, credit) = self.receiver.tell(stamp.open);
        let header = &mut frame.header;
        header.from = stamp.me;
        header.to = self.peer;
        header.ack = ack;
        header.credit = credit;
        header.epoch = stamp.epoch;
        header.generation = stamp.generation;
        header.incarnation = self.incarnation;
        frame
    }
}
