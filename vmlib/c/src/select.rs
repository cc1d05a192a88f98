//! The constants that select messages, and times.

use crate::error::Error;
use std::time::Duration;
use vmlib::{ANY, Source, Tag, Tid};

/// `VM_ANY_SOURCE`
const ANY_SOURCE: u64 = u64::MAX;

/// `VM_ANY_TAG`
const ANY_TAG: i32 = i32::MIN;

/// The senders that a receive selects.
pub fn source(from: u64) -> Result<Source, Error> {
    match from {
        ANY_SOURCE => Ok(ANY.into()),
        0 => Err(Error::invalid(
            "VM_TID_NONE is no sender: pass the id of a task, or VM_ANY_SOURCE",
        )),
        from => Ok(Tid(from).into()),
    }
}

/// The tags that a receive selects.
pub fn tag(tag: i32) -> Tag {
    match tag {
        ANY_TAG => ANY.into(),
        tag => tag.into(),
    }
}

/// The tag of a message that is sent.
pub fn sent_tag(tag: i32) -> Result<i32, Error> {
    match tag {
        ANY_TAG => Err(Error::invalid(
            "VM_ANY_TAG is no tag of a message: give it a number above INT32_MIN",
        )),
        tag => Ok(tag),
    }
}

/// A time of so many milliseconds; a negative one is without end.
pub fn time(timeout_ms: i64) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}
