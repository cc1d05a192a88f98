//! The request of a task that is under way, and its reply.

use vm_wire::{
    Frame, HostId, Message as _, Tid,
    task::{Done, FailKind, Failed, GroupAsk, GroupChange},
};

/// The event for which the reply to a request waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The reports of the hosts on a spawn.
    Spawn,
    /// The entry with the end of the task.
    Exit,
    /// The entry with a change of a membership.
    Membership(GroupChange),
    /// The entry with a new context.
    Context,
    /// The entry with a version of a group.
    GroupVersion(GroupAsk),
    /// Other daemons carry out a move, a check, a drain or a checkpoint. The task may move
    /// meanwhile.
    Asked,
    /// The daemon of that host owes the reply, because the task made its request there.
    Elsewhere(HostId),
    /// The entry with the birth of the task that the request is about; and the request.
    Task(Tid, Frame),
}

/// The result of the start of a request.
pub(super) enum Reply {
    /// The request is complete, with this reply.
    Now(Frame),
    /// The reply comes after this event.
    Later(Waiting),
}

impl Reply {
    /// The reply to a request that failed.
    pub fn failed(kind: FailKind, text: impl Into<String>) -> Self {
        Reply::Now(Failed::new(kind, text).frame())
    }

    /// The reply to a request without a result.
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
