//! Moves of tasks from host to host (`docs/failure-model.md`, "Moves").
//!
//! ```text
//! source                                   target
//! MoveOffer                            ->  checks its room
//!                                      <-  MoveReady(ticket)
//! task runs, memory  -> transfer       ->  restorer
//! task frozen, rest  -> transfer       ->  verified, frozen
//!                                      <-  MoveLoaded
//! MoveRelease (belongings)             ->  proposes Relocate
//!       Relocate applied: the source ends its copy, the target resumes its own
//! ```
//!
//! | file | concern |
//! |---|---|
//! | `requests`, `request_steps` | moves and checks that were requested on this host: the table, and the steps |
//! | `coordinators`, `coordinator_steps` | the coordinator processes on this host, and their mail |
//! | `orders`, `order_steps` | orders of coordinators to this host, fenced by their term, and the reports |
//! | `check` | the reasons against a move of a task |
//! | `outgoing`, `source` | a task that leaves this host: its state, and the steps of the source |
//! | `incoming`, `target` | a task that comes to this host: its state, and the steps of the target |
//! | `applied` | log entries about a task that moves |
//! | `forwarded_replies` | replies to tasks that have moved since their request |
//! | `suspended_tasks` | single tasks that are suspended into the store, and resumed |
//! | `progress` | the progress of moves, as consoles show it |
//!
//! The coordinator of the task's application orders a move, and the source reports each phase to
//! it. No step of the source or the target waits for the coordinator.
//!
//! Until `MoveRelease` the source alone may abort the move: the task then resumes at the source.
//! After `MoveRelease` the log decides, by the first of these: `Relocate`, which the target
//! proposes; `Stay`, which the source proposes once it is in doubt, and which the target proposes
//! if the restored process has ended; or the loss of either host. The task therefore runs exactly
//! once.
//!
//! While a task is frozen, its daemon holds the frames for the task, and sends them to the target
//! after the move. A sender whose frames found no room is asked to send them again. When the task
//! has moved, every daemon notifies its own tasks of the new owner.
//!
//! Frames that the task has not read from its socket do not move with it. The daemon sends the
//! reply to the task's request before the release; or the task library repeats the request at the
//! target; or the reply follows the task (`forwarded_replies`). Notifications that the task has not
//! acknowledged move with it.
//!
//! An offer can be ahead of the target's log, because a task can return to a host before that host
//! has applied the entry that moved it away. Such an offer waits until the target's log has caught
//! up.

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

/// The moves of a daemon, in each of its roles: as the daemon of the requester, as source, as
/// target, and as host of coordinators.
#[derive(Debug, Default)]
pub(super) struct Migration {
    /// Moves, drains and checks that were requested on this host, by their number.
    pub requests: BTreeMap<u64, MoveAsked>,
    /// The coordinators that run on this host.
    pub coordinators: Coordinators,
    /// Orders of coordinators to this host as a source.
    pub orders: MoveOrders,
    /// Tasks of this host that are moving to other hosts, or into the store.
    pub leaving: BTreeMap<Tid, Leaving>,
    /// Tasks that are moving to this host.
    pub arriving: BTreeMap<Tid, Arriving>,
    /// Offers that are ahead of the local log, each with its source: the local log does not know
    /// yet that the task is at the source.
    pub early_offers: BTreeMap<Tid, (HostId, MoveOffer)>,
    /// Replies to tasks that, by the local log, are not on this host yet.
    pub early_answers: BTreeMap<Tid, TaskAnswer>,
}

impl Migration {
    /// Expects the restore of a task's image from a checkpoint on this host.
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

/// The moves in which a daemon takes part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesUnderway {
    /// Tasks of this host that are moving to other hosts, or into the store.
    pub leaving: Vec<Tid>,
    /// Tasks that are moving to this host.
    pub arriving: Vec<Tid>,
    /// Frozen tasks of this host.
    pub frozen: Vec<Tid>,
    /// Number of requests on this host that have no reply yet.
    pub asked: usize,
}

impl MovesUnderway {
    /// Whether no move is under way, no task is frozen and no request waits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
