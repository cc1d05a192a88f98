//! Moves of tasks from host to host (`docs/failure-model.md`, "Moves").
//!
//! ```text
//! source                                   target
//! MoveOffer                            ->  is there room?
//!                                      <-  MoveReady(ticket)
//! task runs, memory  -> transfer       ->  restorer
//! task frozen, rest  -> transfer       ->  verified, frozen
//!                                      <-  MoveLoaded
//! MoveRelease (belongings)             ->  proposes Relocate
//!            Relocate applied: the source ends its copy, the target lets its own go on
//! ```
//!
//! | file | concern |
//! |---|---|
//! | `requests`, `request_steps` | moves and checks that were requested on this host: the table, and the steps |
//! | `coordinators`, `coordinator_steps` | the processes here that coordinate applications, and their mail |
//! | `orders`, `order_steps` | orders of coordinators to this host, fenced by their term, and the reports |
//! | `check` | the reasons against a move of a task |
//! | `outgoing`, `source` | a task that leaves this host: its state, and the steps of the source |
//! | `incoming`, `target` | a task that comes to this host: its state, and the steps of the target |
//! | `applied` | what the log says of a task that moves |
//! | `forwarded_replies` | replies to tasks that have moved since their request |
//! | `suspended_tasks` | single tasks that are suspended into the store, and resumed |
//! | `progress` | what people see of the moves under way |
//!
//! The coordinator of the task's application orders a move and is told of each phase; no step of the
//! source or the target waits for the coordinator.
//!
//! Until `MoveRelease` the source alone may take everything back: the task runs on where it is.
//! After it the log decides: `Relocate`, proposed by the target, or `Stay`, proposed by the source
//! once it is in doubt, or the death of the target. Whichever comes first holds, so the task runs
//! exactly once.
//!
//! While a task is frozen, what comes for it waits here, and follows it; a sender whose frames find no
//! room is asked to send them again. When it moves, every daemon tells its tasks.
//!
//! What is unread in the task's socket does not move: its request under way is answered before the
//! release, or asked anew at the target; what it was told and has not acknowledged goes along. An
//! offer that is ahead of the target's log waits until that has caught up: a task may come back
//! before its old host knows that it went.

mod applied;
mod check;
mod coordinator_steps;
mod coordinators;
mod forwarded_replies;
mod incoming;
mod order_steps;
mod orders;
mod outgoing;
mod progress;
mod request_steps;
mod requests;
mod source;
mod suspended_tasks;
mod target;

use coordinators::Coordinators;
use incoming::Arriving;
use orders::MoveOrders;
use outgoing::Leaving;
use requests::MoveAsked;
use std::collections::BTreeMap;
use vm_wire::{
    HostId, Tid,
    peer::{Belongings, MoveOffer, TaskAnswer},
};

/// What this daemon knows of moves: as their requester, as their source, as their target, and as the
/// host of coordinators.
#[derive(Debug, Default)]
pub(super) struct Migration {
    /// Moves, drains and checks that were requested here, by their number.
    pub requests: BTreeMap<u64, MoveAsked>,
    /// The coordinators that run here.
    pub coordinators: Coordinators,
    /// Orders of coordinators to this host as a source.
    pub orders: MoveOrders,
    /// Tasks here that are on their way to other hosts.
    pub leaving: BTreeMap<Tid, Leaving>,
    /// Tasks of other hosts that are on their way here.
    pub arriving: BTreeMap<Tid, Arriving>,
    /// Offers of tasks of which the log here does not know yet that they are at the source, with the
    /// source.
    pub early_offers: BTreeMap<Tid, (HostId, MoveOffer)>,
    /// Replies to tasks of which the log here does not know yet that they are here.
    pub early_answers: BTreeMap<Tid, TaskAnswer>,
}

impl Migration {
    /// The image of a task of a checkpoint is about to be restored here.
    pub fn expect_restored(&mut self, tid: Tid, incarnation: u32, belongings: Belongings) {
        let arriving = Arriving {
            from: HostId::NONE,
            incarnation,
            belongings: Some(belongings),
            lost: false,
            said: Vec::new(),
        };
        self.arriving.insert(tid, arriving);
    }
}

/// What of moves is under way at a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesUnderway {
    /// Tasks here that are on their way elsewhere.
    pub leaving: Vec<Tid>,
    /// Tasks from elsewhere that are on their way here.
    pub arriving: Vec<Tid>,
    /// Tasks here that stand still.
    pub frozen: Vec<Tid>,
    /// Wishes here that were not answered.
    pub asked: usize,
}

impl MovesUnderway {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
