//! Failures of requests: a kind for programs, a text for users.

use serde::{Deserialize, Serialize};

/// The kind of a failure, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailKind {
    /// No living host of that name.
    NoSuchHost,
    /// No living task of that id.
    NoSuchTask,
    /// No group of that name.
    NoSuchGroup,
    /// The task is no member of the group.
    NotMember,
    /// The program, or its working directory, was not found.
    NoSuchProgram,
    /// A limit was reached.
    Limit,
    /// The request is malformed.
    BadRequest,
    /// No version in common.
    Version,
    /// Not allowed in this state or for this caller.
    Refused,
    /// Not now, for a reason that passes by itself; try again.
    Busy,
    /// A host was lost meanwhile.
    HostLost,
    /// A call of the operating system failed.
    System,
    /// The program exists, and this host cannot execute it.
    NotExecutable,
}

/// Reply to a request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failed {
    /// The kind, for programs.
    pub kind: FailKind,
    /// For users: what failed, why, and what to do.
    pub text: String,
}

impl Failed {
    /// Makes a failure of `kind` with `text` for users.
    pub fn new(kind: FailKind, text: impl Into<String>) -> Self {
        Failed {
            kind,
            text: text.into(),
        }
    }
}
