//! All channels of one tid.

use crate::{
    Time,
    inbox::{Envelope, Filter, Received},
};
use bytes::Bytes;
use std::collections::VecDeque;
use vm_wire::{
    Frame, Tid,
    agreed::ExitStatus,
    task::{Ended, HostEvent, Located},
};

/// What an endpoint needs to know of its task.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Whose endpoint it is.
    pub me: Tid,
    /// Unacknowledged bytes towards one receiver.
    pub window_bytes: u64,
    /// Bytes of unread messages at which senders are held back.
    pub inbox_bytes: u64,
    /// Epoch of the task's application.
    pub epoch: u32,
    /// Generation of the task's application.
    pub generation: u32,
}

/// One message on its way into the channel.
#[derive(Debug)]
pub struct Sending {}

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendProgress {
    /// All of it is in the channel's hands.
    Done,
    /// Poll again when frames have come in.
    NeedsCredit,
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Longer than a message may be.
    #[error(
        "a message of {len} bytes; at most {} are possible",
        vm_wire::limits::MESSAGE_MAX
    )]
    TooLong {
        /// Its length.
        len: u64,
    },
    /// The sender's own inbox is full while it waits for credit.
    #[error("the inbox is full ({unread} bytes unread, {bytes} of them from {from})")]
    InboxFull {
        /// Who has most bytes in it.
        from: Tid,
        /// How many.
        bytes: u64,
        /// All unread bytes.
        unread: u64,
    },
    /// Another message to the same peer was begun before this one was complete.
    #[error("the message to {to} was given up for another one")]
    Superseded {
        /// The peer.
        to: Tid,
    },
    /// Too much waits in the backlog for that peer.
    #[error("too much waits to be sent to {to}")]
    Backlog {
        /// The peer.
        to: Tid,
    },
}

/// What a task is told besides messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A task that it watches has ended.
    Ended {
        /// Who.
        tid: Tid,
        /// How.
        status: ExitStatus,
    },
    /// A host was added or is gone.
    Host(HostEvent),
}

/// All channels of one tid, and its inbox.
#[derive(Debug)]
pub struct Endpoint {}

#[allow(unused_variables)]
impl Endpoint {
    /// An endpoint without channels.
    pub fn new(config: EndpointConfig) -> Self {
        todo!()
    }
    /// Whose endpoint this is.
    pub fn me(&self) -> Tid {
        todo!()
    }
    /// A message to be sent by [`Endpoint::poll_send`].
    pub fn start_send(&self, to: Tid, context: u32, tag: i32, body: Bytes) -> Sending {
        todo!()
    }
    /// Sends as much of it as the peer's credit and window allow.
    pub fn poll_send(
        &mut self,
        now: Time,
        sending: &mut Sending,
        out: &mut VecDeque<Frame>,
    ) -> Result<SendProgress, EndpointError> {
        todo!()
    }
    /// Sends a message as soon as credit allows, in a bounded backlog (daemons; context and tag 0).
    pub fn queue(
        &mut self,
        now: Time,
        to: Tid,
        body: Bytes,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), EndpointError> {
        todo!()
    }
    /// Takes a Data, Ack or Resend frame that came for this tid; others are ignored.
    pub fn handle(&mut self, now: Time, frame: Frame, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// A peer moved or ended, or the link to a host is new.
    pub fn located(&mut self, now: Time, located: &Located, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// A task ended: becomes a [`Notice`] after its last message.
    pub fn ended(&mut self, now: Time, ended: Ended, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// A host was added or is gone: becomes a [`Notice`].
    pub fn host_event(&mut self, event: HostEvent) {
        todo!()
    }
    /// The first message that the filter selects; makes room, so it may grant credit.
    pub fn take(
        &mut self,
        now: Time,
        filter: &Filter,
        out: &mut VecDeque<Frame>,
    ) -> Option<Received> {
        todo!()
    }
    /// The message that [`Endpoint::take`] would give.
    pub fn peek(&self, filter: &Filter) -> Option<Envelope> {
        todo!()
    }
    /// The next notice. All messages of a task that ended are in the inbox before its notice.
    pub fn take_notice(&mut self) -> Option<Notice> {
        todo!()
    }
    /// [`EndpointError::InboxFull`] if unread messages hold senders back: a receive that finds no
    /// message that it selects should fail with it rather than wait for one that cannot come.
    pub fn inbox_full(&self) -> Option<EndpointError> {
        todo!()
    }
    /// When [`Endpoint::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }
    /// Sends the acknowledgements and the repetitions that are due.
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// At an exit in order: what is retained, for the daemon, and the last number sent to each peer.
    pub fn leave(&mut self) -> (Vec<Frame>, Vec<(Tid, u64)>) {
        todo!()
    }
}
