//! The request of a task that is under way, and its reply.

use vm_wire::{
    Frame, HostId, Message as _, Tid,
    task::{Done, FailKind, Failed, GroupAsk, GroupChange},
};

/// What the answer to a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The other hosts.
    Spawn,
    /// The log.
    Exit,
    /// The log: a membership.
    Membership(GroupChange),
    /// The log: a version of a group.
    GroupVersion(GroupAsk),
    /// Other daemons: a move, a check, a drain or a checkpoint. The task may move meanwhile.
    Asked,
    /// The daemon of that host, where the task was when it asked.
    Elsewhere(HostId),
    /// The log here: a task that it does not know, and the request about it.
    Task(Tid, Frame),
}

/// How a request goes on.
pub(super) enum Reply {
    /// This is the answer.
    Now(Frame),
    /// The answer comes later.
    Later(Waiting),
}

impl Reply {
    /// The request failed.
    pub fn failed(kind: FailKind, text: impl Into<String>) -> Self {
        Reply::Now(Failed::new(kind, text).frame())
    }

    /// It has no result.
    pub fn done() -> Self {
        Reply::Now(Done {}.frame())
    }
}

impl From<Result<(), Failed>> for Reply {
    fn from(result: Result<(), Failed>) -> Self {
        match result {
            Ok(()) => Reply::done(),
            Err(failed) => Reply::Now(failed.frame()),
        }
    }
}
