//! Requests for moves, drains and checks that were made on this host.

use crate::{Time, daemon::requester::Requester};
use vm_wire::{
    HostId, Tid,
    peer::{MoveAsk, MovePhase, MoveReport, Sent},
};

/// A request for a move, a drain or a check. Its key is the number that this daemon gave it.
#[derive(Debug)]
pub(in crate::daemon) struct MoveAsked {
    pub requester: Requester,
    /// When it was requested first.
    pub since: Time,
    /// Number of attempts.
    pub tries: u32,
    /// The host whose daemon replies: the owner of the task, or the host to drain.
    pub host: HostId,
    /// The task; `None` for a drain.
    pub tid: Option<Tid>,
    /// The request to the coordinator, if it is for a move.
    pub driven: Option<Driven>,
}

impl MoveAsked {
    /// Whether the move has ended and only the local log has not applied its end yet.
    pub fn has_ended(&self) -> bool {
        let driven = self.driven.as_ref();
        driven.is_some_and(|driven| driven.ended.is_some())
    }
}

/// A move that was requested on this host, as its coordinator carries it out.
#[derive(Debug)]
pub(in crate::daemon) struct Driven {
    /// The request to the coordinator.
    pub ask: MoveAsk,
    /// When the request was last sent to the coordinator.
    pub asked_at: Time,
    /// The report of the ended move, until the local log has applied the end.
    pub ended: Option<MoveReport>,
    /// The phase that the coordinator reported last; `None` until a coordinator has accepted the
    /// request.
    pub phase: Option<MovePhase>,
    /// The amount that the source reported last.
    pub sent: Option<Sent>,
}
