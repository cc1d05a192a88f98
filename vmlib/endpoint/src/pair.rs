//! Both channels between a task and one peer: what goes out of one half acknowledges the other.

use crate::{
    channel::{Receiver, ReceiverState, Sender, SenderState},
    sending::{EndpointError, SendProgress, Sending},
    time::Time,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vm_wire::{Frame, Header, HostId, Op, Tid, agreed::ExitStatus, limits::CHUNK_MAX, task::Ended};

/// What every frame of an endpoint says of it at this moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub me: Tid,
    pub epoch: u32,
    pub generation: u32,
    /// Whether the inbox takes more, so that acknowledgements may go out.
    pub open: bool,
}

/// All that an endpoint knows of one peer.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub peer: Tid,
    /// Where the peer is believed to be: where it was born, until told otherwise.
    pub host: HostId,
    /// The peer's incarnation there.
    pub incarnation: u32,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The peer has ended: nothing is sent to it any more.
    pub ended: bool,
    /// A notify that waits for the peer's last chunk.
    pub awaits_last: Option<Ended>,
    /// How the peer ended, once all that it sent was taken: nothing will come from it.
    pub over: Option<ExitStatus>,
    /// The time under which the endpoint has this pair in its timers.
    pub timer: Option<Time>,
    /// So many of its chunks the endpoint has among those that are not acknowledged.
    pub counted: u64,
    /// Messages that were begun.
    messages: u64,
    /// Messages that wait for credit, and their cost.
    backlog: VecDeque<Sending>,
    backlog_bytes: u64,
}

/// What has to be kept of a [`Pair`].
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
            messages: 0,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
        }
    }

    /// What has to be kept of it. A task has no backlog, and no message of it is half sent.
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

    /// A pair that goes on with that.
    pub fn of(now: Time, state: PairState, window_bytes: u64) -> Self {
        Pair {
            host: state.host,
            incarnation: state.incarnation,
            sender: Sender::of(now, &state.sender, window_bytes),
            receiver: Receiver::of(&state.receiver, window_bytes),
            ended: state.ended,
            awaits_last: state.awaits_last,
            over: state.over,
            ..Pair::new(state.peer, window_bytes)
        }
    }

    /// Gives as many chunks of the message to the channel as credit and window allow.
    pub fn advance(
        &mut self,
        now: Time,
        stamp: Stamp,
        sending: &mut Sending,
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        if sending.number.is_some_and(|number| number != self.messages) {
            return Err(EndpointError::Superseded { to: self.peer });
        }
        while !self.ended && !sending.done {
            let len = CHUNK_MAX.min(sending.body.len() - sending.offset);
            if !self.sender.has_room(len) {
                return Ok(SendProgress::NeedsCredit);
            }
            if sending.number.is_none() {
                self.messages += 1;
                sending.number = Some(self.messages);
            }
            let mut header = Header::new(Op::Data);
            header.offset = sending.offset as u64;
            header.total = sending.body.len() as u64;
            header.context = sending.context;
            header.tag = sending.tag;
            let end = sending.offset + len;
            let chunk = Frame::new(header, sending.body.slice(sending.offset..end));
            let chunk = self.sender.number(now, chunk);
            out.push_back(self.stamped(stamp, chunk));
            sending.offset = end;
            sending.done = end == sending.body.len();
        }
        sending.done = true;
        Ok(SendProgress::Done)
    }

    /// Adds a message to the backlog and sends what may go. False if the backlog would exceed
    /// `limit_bytes`.
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

    /// Whether nothing waits to be sent or acknowledged.
    pub fn is_drained(&self) -> bool {
        self.backlog.is_empty() && self.sender.retained_bytes() == 0
    }

    /// Sends of the backlog what may go.
    pub fn pump(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        while let Some(mut sending) = self.backlog.pop_front() {
            match self.advance(now, stamp, &mut sending, out) {
                Ok(SendProgress::NeedsCredit) => {
                    self.backlog.push_front(sending);
                    return;
                }
                Ok(SendProgress::Done) | Err(_) => self.backlog_bytes -= sending.cost(),
            }
        }
    }

    /// Tells the peer where this end stands.
    pub fn announce(&mut self, stamp: Stamp, out: &mut VecDeque<Frame>) {
        let ack = Frame::new(Header::new(Op::Ack), Bytes::new());
        out.push_back(self.stamped(stamp, ack));
    }

    /// Sends everything again that is not acknowledged.
    pub fn resend(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        let retained: Vec<Frame> = self.sender.retained().cloned().collect();
        self.sender.resent(now);
        for chunk in retained {
            out.push_back(self.stamped(stamp, chunk));
        }
    }

    /// On a new route both ends say where they stand and send again from the first chunk that is
    /// not acknowledged.
    pub fn renew(&mut self, now: Time, stamp: Stamp, out: &mut VecDeque<Frame>) {
        if self.receiver.taken() > 0 {
            self.announce(stamp, out);
        }
        self.resend(now, stamp, out);
    }

    /// The peer has ended: what is retained for it is released.
    pub fn end(&mut self) {
        self.ended = true;
        self.sender.forget();
        self.backlog = VecDeque::new();
        self.backlog_bytes = 0;
    }

    /// When something is to be sent unasked.
    pub fn due(&self) -> Option<Time> {
        let repeat = self.sender.repeat_due();
        self.receiver.due().into_iter().chain(repeat).min()
    }

    /// Sends what is due.
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

    /// The frame with every field that depends on this moment.
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
