//! One message that is being sent: the receiver, the bytes and how many of them the channel has;
//! the progress of a poll; the reasons why a poll fails.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use vm_wire::{
    Body, Tid,
    limits::{self, CHUNK_OVERHEAD},
};

/// A message that is being sent; see [`Endpoint::start_send`](crate::Endpoint::start_send).
#[derive(Debug, Clone)]
pub struct Sending {
    pub(crate) to: Tid,
    pub(crate) context: u32,
    pub(crate) tag: i32,
    pub(crate) body: Bytes,
    /// Bytes of the body that were given to the channel.
    pub(crate) offset: usize,
    /// Number of the message in its pair, once its first chunk was sent.
    pub(crate) number: Option<u64>,
    pub(crate) done: bool,
}

impl Sending {
    /// A message for [`Endpoint::poll_send`](crate::Endpoint::poll_send); see
    /// [`Endpoint::start_send`](crate::Endpoint::start_send).
    pub fn new(to: Tid, context: u32, tag: i32, body: Bytes) -> Self {
        Sending {
            to,
            context,
            tag,
            body,
            offset: 0,
            number: None,
            done: false,
        }
    }

    /// Task id of the receiver.
    pub fn to(&self) -> Tid {
        self.to
    }

    /// The message as an image records it, with how far it was sent.
    pub fn state(&self) -> SendingState {
        SendingState {
            to: self.to,
            context: self.context,
            tag: self.tag,
            body: Body::from(self.body.to_vec()),
            offset: self.offset as u64,
        }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.body.len() as u64 + CHUNK_OVERHEAD
    }
}

/// A message that is not sent to its end, as an image records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendingState {
    to: Tid,
    context: u32,
    tag: i32,
    body: Body,
    /// Bytes of the body that were given to the channel.
    offset: u64,
}

impl From<SendingState> for Sending {
    /// The rest is sent by the endpoint that was made of the state of the same moment, before another
    /// message to the same receiver.
    fn from(state: SendingState) -> Self {
        let offset = state.offset as usize;
        Sending {
            offset,
            // The first number of a pair that was made of its state.
            number: (offset > 0).then_some(0),
            ..Sending::new(
                state.to,
                state.context,
                state.tag,
                state.body.into_vec().into(),
            )
        }
    }
}

/// The state of a message that is being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendProgress {
    /// The whole message was given to the channel; the caller may drop it.
    Done,
    /// The channel has no credit for the rest: poll again when frames have arrived.
    NeedsCredit,
    /// The ring to the receiver is full: poll again when the receiver has read some of it, or let
    /// the rest go by the daemon.
    NeedsRoom,
}

/// Reasons why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The message is longer than [`limits::MESSAGE_MAX`].
    #[error(
        "a message of {len} bytes; at most {} are possible",
        limits::MESSAGE_MAX
    )]
    TooLong {
        /// Length of the message. Bytes.
        len: u64,
    },
    /// The sender needs credit, and its own inbox is full: the peer may wait in the same way. The
    /// message can be polled again after messages were received.
    #[error(
        "the inbox is full ({unread} bytes unread, {bytes} of them from {from}): receive before sending more"
    )]
    InboxFull {
        /// The sender of most of the unread bytes.
        from: Tid,
        /// Unread bytes of that sender.
        bytes: u64,
        /// Unread bytes of all senders.
        unread: u64,
    },
    /// Another message to the same peer was begun before this one was complete. The receiver will
    /// see only the other message.
    #[error("the message to {to} was given up for another one")]
    Superseded {
        /// Receiver of the message.
        to: Tid,
    },
    /// The backlog for the receiver is full.
    #[error("more than {} bytes wait to be sent to {to}", limits::QUEUE_BYTES)]
    Backlog {
        /// Receiver of the message.
        to: Tid,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, EndpointConfig, Filter, Time};
    use std::collections::VecDeque;

    const WINDOW: u64 = 256 * 1024;

    fn config(me: u64) -> EndpointConfig {
        EndpointConfig {
            me: Tid(me),
            window_bytes: WINDOW,
            inbox_bytes: WINDOW,
            epoch: 0,
            generation: 0,
            ring_after: None,
        }
    }

    #[test]
    fn a_half_sent_message_goes_on_from_the_recorded_state() {
        let now = Time(1);
        let body: Bytes = (0..WINDOW as usize * 3).map(|n| (n % 251) as u8).collect();
        let (mut a, mut b) = (Endpoint::new(config(1)), Endpoint::new(config(2)));
        let (mut from_a, mut from_b) = (VecDeque::new(), VecDeque::new());
        let mut sending = a.start_send(Tid(2), 0, 7, body.clone());
        let progress = a.poll_send(now, &mut sending, &mut from_a);
        assert_eq!(progress, Ok(SendProgress::NeedsCredit));

        // The frames on their way are lost with the first process.
        from_a.clear();
        let mut a = Endpoint::of(now, a.state(), config(1));
        let mut sending = Sending::from(sending.state());
        a.renew(now, &mut from_a);
        for _ in 0..100 {
            a.poll_send(now, &mut sending, &mut from_a).unwrap();
            while let Some(frame) = from_a.pop_front() {
                b.handle(now, frame, &mut from_b);
            }
            while let Some(frame) = from_b.pop_front() {
                a.handle(now, frame, &mut from_a);
            }
        }
        let any = Filter::ANY;
        let received = b.take(now, &any, &mut from_b).expect("it is whole");
        assert_eq!((received.tag, received.body), (7, body));
    }
}
