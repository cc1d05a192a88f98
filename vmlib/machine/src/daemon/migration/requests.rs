//! Requests for moves, drains and checks that were made on this host.

use crate::{Time, daemon::requester::Requester};
use vm_wire::{
    HostId, Tid,
    peer::{MoveAsk, MovePhase, MoveReport, Sent},
};

/// A wish for a move, a drain or a check, by the number that this daemon gave it.
#[derive(Debug)]
pub(in crate::daemon) struct MoveAsked {
    pub asker: Requester,
    /// When it was asked for first, and how often since.
    pub since: Time,
    pub tries: u32,
    /// Whose daemon answers: the owner of the task, or the host itself.
    pub host: HostId,
    /// The task, unless it is all of a host.
    pub tid: Option<Tid>,
    /// What its coordinator needs, if it is a move.
    pub driven: Option<Driven>,
}

impl MoveAsked {
    /// Whether it is known how it ended, and only the log here is behind.
    pub fn has_ended(&self) -> bool {
        let driven = self.driven.as_ref();
        driven.is_some_and(|driven| driven.ended.is_some())
    }
}

/// How a move that is wanted here stands with the coordinator that drives it.
#[derive(Debug)]
pub(in crate::daemon) struct Driven {
    /// As it is asked.
    pub ask: MoveAsk,
    /// When it was last asked.
    pub asked_at: Time,
    /// How it ended, while the log here does not know it yet.
    pub ended: Option<MoveReport>,
    /// How far it is, as the coordinator says.
    pub phase: Option<MovePhase>,
    /// How much was sent, as the source says.
    pub sent: Option<Sent>,
}
