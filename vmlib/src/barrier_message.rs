//! The messages of a barrier ([`crate::barrier`]).

use crate::{
    group::{Members, payload_of},
    message::{decode_value, encode_value},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use vm_wire::Tid;

/// The tag inside a group's context.
pub(crate) const BARRIER: i32 = 1;

/// A message of the barrier.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Message {
    Arrival(Arrival),
    Go(Go),
}

/// "These members wait in this barrier", towards the gatherer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// The sender, and members of its subtree.
    pub(crate) members: Vec<Tid>,
    /// Number of the barrier; 0: the sender has not been in one of this group yet, and is alone.
    pub(crate) number: u64,
    /// Version of the group that the sender knows.
    pub(crate) version: u64,
}

/// "This barrier is over", from the gatherer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Go {
    pub(crate) number: u64,
    /// Version of the group that the gatherer knows. One from before the receiver joined is meant
    /// for what the receiver was in an earlier membership.
    pub(crate) version: u64,
    /// The members of that version, for a receiver that has another one.
    pub(crate) members: Option<Members>,
}

impl Go {
    /// `other`: the receiver may have another version.
    pub(crate) fn of(number: u64, members: &Members, other: bool) -> Self {
        Go {
            number,
            version: members.version(),
            members: other.then(|| members.clone()),
        }
    }
}

/// Whether a message is an arrival of that group at a barrier before the one with the number `next`.
pub(crate) fn is_late(group: &str, body: &Bytes, next: u64) -> bool {
    let payload = payload_of(group, body);
    let message = payload.and_then(|payload| decode_value(&payload).ok());
    matches!(message, Some(Message::Arrival(arrival)) if (1..next).contains(&arrival.number))
}

/// The payload of the message that lets members through the barrier before the one with the number
/// `next`.
pub(crate) fn go_before(next: u64, members: &Members) -> Result<Bytes, String> {
    encode_value(&Message::Go(Go::of(next.saturating_sub(1), members, true)))
}
