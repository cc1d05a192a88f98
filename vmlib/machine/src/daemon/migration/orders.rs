//! Orders of coordinators to this host, and what became of them.

use crate::Time;
use std::collections::{BTreeMap, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid,
    peer::{MoveOrder, MoveReport, MoveReported, Order},
    task::Failed,
};

/// Orders, and what became of them.
#[derive(Debug, Default)]
pub(in crate::daemon) struct MoveOrders {
    /// Orders of terms that the log here does not know yet, with their senders.
    pub early: BTreeMap<RequestKey, (HostId, Order)>,
    /// Orders that wait for the end of a checkpoint, with their senders, and since when.
    pub held: BTreeMap<RequestKey, (Time, HostId, MoveOrder)>,
    /// How moves from here ended, and in which order.
    pub(super) ended: BTreeMap<RequestKey, (Tid, Result<MoveReport, Failed>)>,
    pub(super) ended_order: VecDeque<RequestKey>,
    /// What is to be reported.
    pub(super) reports: VecDeque<MoveReported>,
}

impl MoveOrders {
    /// Whether something is to be reported.
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }
}
