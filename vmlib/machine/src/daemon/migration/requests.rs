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
        driven.is_some_and(|driven| matches!(driven.progress, Progress::Ended(_)))
    }
}

/// A move that was requested on this host, as its coordinator carries it out.
#[derive(Debug)]
pub(in crate::daemon) struct Driven {
    /// The request to the coordinator.
    pub ask: MoveAsk,
    pub progress: Progress,
    /// The amount that the source reported last.
    pub sent: Option<Sent>,
}

/// How far a requested move is.
#[derive(Debug)]
pub(in crate::daemon) enum Progress {
    /// The move was refused for a reason that passes. It is requested again when the timer is due;
    /// a new coordinator before that time gets no request.
    Pausing,
    /// The request was sent to the coordinator at this time.
    Asked(Time),
    /// The coordinator has accepted the request, and reported this phase last.
    Accepted(MovePhase),
    /// The move has ended with this report, and the local log has not applied its end yet.
    Ended(MoveReport),
}

impl Progress {
    /// The phase of the move; `None` until a coordinator has accepted the request.
    pub fn phase(&self) -> Option<MovePhase> {
        match self {
            Progress::Pausing | Progress::Asked(_) => None,
            Progress::Accepted(phase) => Some(*phase),
            Progress::Ended(_) => Some(MovePhase::Resumption),
        }
    }
}
