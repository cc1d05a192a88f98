//! What ended tasks have left: chunks not yet acknowledged, last numbers.

use crate::Time;
use std::collections::VecDeque;
use vm_wire::{Frame, Tid, peer::KeepOrder, task::Located};

/// There is no room for more chunks of ended tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {} bytes of ended tasks are not acknowledged yet",
    vm_wire::limits::KEEPER_BYTES
)]
pub struct KeeperFull;

/// The keeper of all tasks that ended on one host.
#[derive(Debug, Default)]
pub struct Keeper {}

#[allow(unused_variables)]
impl Keeper {
    /// A keeper of nothing.
    pub fn new() -> Self {
        Keeper {}
    }
    /// Keeps a Data frame that has the flag KEEP and sends it on to its receiver.
    pub fn keep(
        &mut self,
        now: Time,
        frame: Frame,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), KeeperFull> {
        todo!()
    }
    /// Remembers the last numbers of a task that left in order.
    pub fn left(&mut self, tid: Tid, last: Vec<(Tid, u64)>) {
        todo!()
    }
    /// Number of the last chunk of `ended` to `watcher`, 0 for none; `None` if not known.
    pub fn last(&self, ended: Tid, watcher: Tid) -> Option<u64> {
        todo!()
    }
    /// Takes a frame addressed to an ended task: its acknowledgement, or Resend.
    pub fn handle(&mut self, now: Time, frame: &Frame, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// A receiver moved or ended, or the link to a host is new.
    pub fn located(&mut self, now: Time, located: &Located, out: &mut VecDeque<Frame>) {
        todo!()
    }
    /// Hands everything over, as this host leaves: for each pair the order and the chunks (with
    /// KEEP) for the daemon of the receiver's host.
    pub fn hand_over(&mut self) -> Vec<(KeepOrder, Vec<Frame>)> {
        todo!()
    }
    /// A pair is handed over to this keeper: the order's number is remembered.
    pub fn take_over(&mut self, order: &KeepOrder) {
        todo!()
    }
    /// Whether nothing waits for an acknowledgement.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// When [`Keeper::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        todo!()
    }
    /// Repeats what was not acknowledged for too long.
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        todo!()
    }
}
