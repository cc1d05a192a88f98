//! The messages of collective calls.
//!
//! The payload stands first, so that the numbers of a received message lie aligned in memory; the
//! *stamp* follows it: the group's name, the call, and the length of the whole transfer. A message
//! that a member passes on to another one has the same stamp, so it is passed on without a copy.

use crate::message::{decode_value, encode_value};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use vm_wire::{Tid, agreed::ExitStatus};

/// Tag of a part of a call's values.
pub(crate) const DATA: i32 = 4;
/// Tag of a [`Control`].
pub(crate) const CONTROL: i32 = 5;

/// Length of a stamp without the name. Bytes.
const FIXED: usize = 8 + 8 + 8 + 1 + 1;

/// The call to which a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Version of the group in the sender's handle.
    pub(super) version: u64,
    /// Number of the call among those of this version.
    pub(super) number: u64,
    /// Which collective the sender calls.
    pub(super) kind: u8,
    /// Length of the transfer of which the message is a part. Bytes.
    pub(super) total: u64,
}

/// Facts that a member tells the others beside the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    /// The first contact under this version of the group.
    Here,
    /// The call has failed at the sender, which sends no more parts of it.
    Failed(Cause),
    /// The sender has left the group, which made this version.
    Left {
        /// The first version without the sender.
        version: u64,
    },
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cause {
    /// A member has ended.
    Ended { tid: Tid, status: ExitStatus },
    /// A member has left the group.
    Left { tid: Tid },
    /// A member is in a call under a newer version of the group.
    Version { newer: u64 },
    /// A member makes another call.
    OutOfStep { tid: Tid },
    /// The call failed at a member for another reason, which its error tells.
    Failed { tid: Tid },
}

/// A received part of a call's values.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The message as it came, to be passed on.
    pub(super) sealed: Bytes,
    pub(super) payload: Bytes,
    pub(super) stamp: Stamp,
}

/// A message that is written payload first, then sealed.
pub(super) fn begin(group: &str, payload_len: usize) -> BytesMut {
    BytesMut::with_capacity(payload_len + group.len() + FIXED)
}

/// Appends the stamp to a payload.
pub(super) fn seal(group: &str, stamp: Stamp, mut payload: BytesMut) -> Bytes {
    payload.put_slice(group.as_bytes());
    payload.put_u64_le(stamp.total);
    payload.put_u64_le(stamp.version);
    payload.put_u64_le(stamp.number);
    payload.put_u8(stamp.kind);
    // A name has at most 255 bytes: see `check_name`.
    payload.put_u8(group.len() as u8);
    payload.freeze()
}

/// Reads a message of that group; `None` if the message is another group's.
pub(super) fn open(group: &str, sealed: &Bytes) -> Option<Part> {
    let name_len = usize::from(*sealed.last()?);
    let fixed = sealed.len().checked_sub(FIXED)?;
    let payload_len = fixed.checked_sub(name_len)?;
    if &sealed[payload_len..fixed] != group.as_bytes() {
        return None;
    }
    let number = |at: usize| {
        let bytes = &sealed[fixed + at..][..8];
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    };
    Some(Part {
        payload: sealed.slice(..payload_len),
        stamp: Stamp {
            total: number(0),
            version: number(8),
            number: number(16),
            kind: sealed[fixed + 24],
        },
        sealed: sealed.clone(),
    })
}

/// A whole control message.
pub(super) fn control(group: &str, stamp: Stamp, control: Control) -> Bytes {
    let payload = encode_value(&control).unwrap_or_default();
    let mut body = begin(group, payload.len());
    body.put_slice(&payload);
    seal(group, stamp, body)
}

/// The message of a member that has left the group, which made `version`.
pub(crate) fn left(group: &str, version: u64) -> Bytes {
    let stamp = Stamp {
        version,
        number: 0,
        kind: 0,
        total: 0,
    };
    control(group, stamp, Control::Left { version })
}

impl Cause {
    /// Whether the members can only go on together under a newer version of the group.
    pub(super) fn needs_new_version(&self) -> bool {
        match self {
            Cause::Ended { .. } | Cause::Left { .. } | Cause::Version { .. } => true,
            Cause::OutOfStep { .. } | Cause::Failed { .. } => false,
        }
    }
}

impl Part {
    /// The control that the message carries.
    pub(super) fn control(&self) -> Option<Control> {
        decode_value(&self.payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        version: 7,
        number: u64::MAX,
        kind: 3,
        total: 11,
    };

    #[test]
    fn a_message_is_read_only_by_the_group_that_its_stamp_names() {
        let mut body = begin("grid", 7);
        body.put_slice(b"payload");
        let sealed = seal("grid", STAMP, body);
        let part = open("grid", &sealed).unwrap();
        assert_eq!((&part.payload[..], part.stamp), (&b"payload"[..], STAMP));
        assert_eq!(part.sealed, sealed);
        for other in ["", "grip", "id", "payloadgrid"] {
            assert!(open(other, &sealed).is_none(), "{other}");
        }
        for len in 0..sealed.len() {
            assert!(open("grid", &sealed.slice(..len)).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn a_control_is_read_back() {
        let failed = Control::Failed(Cause::Ended {
            tid: Tid(5),
            status: ExitStatus::Signal(9),
        });
        let read = open("g", &control("g", STAMP, failed)).unwrap().control();
        assert_eq!(read, Some(failed));
        let left = open("g", &left("g", 9)).unwrap().control();
        assert_eq!(left, Some(Control::Left { version: 9 }));
    }
}
