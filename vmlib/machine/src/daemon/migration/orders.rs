//! Orders of coordinators to this host, and their results.

use crate::Time;
use std::collections::{BTreeMap, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid,
    peer::{MoveOrder, MoveReport, MoveReported, Order},
    task::Failed,
};

/// Orders of coordinators, and their results.
#[derive(Debug, Default)]
pub(in crate::daemon) struct MoveOrders {
    /// Orders of terms that the local log does not know yet, with their senders.
    pub early: BTreeMap<RequestKey, (HostId, Order)>,
    /// Orders that wait for the end of a checkpoint: since when, sender, order.
    pub held: BTreeMap<RequestKey, (Time, HostId, MoveOrder)>,
    /// Results of ended moves from this host, at most `limits::MOVES_ENDED_MAX`.
    pub(super) ended: BTreeMap<RequestKey, (Tid, Result<MoveReport, Failed>)>,
    /// The keys of `ended`, the oldest first.
    pub(super) ended_order: VecDeque<RequestKey>,
    /// Reports to coordinators that are not sent yet.
    pub(super) reports: VecDeque<MoveReported>,
}

impl MoveOrders {
    /// Whether a report is not sent yet.
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }
}
