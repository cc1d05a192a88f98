//! The tasks of this host: how a process becomes a task, what it requests, how it ends.
//!
//! | file | concern |
//! |---|---|
//! | `enrol` | a process proves that it is a task, or becomes a master |
//! | `spawning`, `spawn` | births that are under way: the table, and the steps |
//! | `requests` | requests of tasks: each is answered once, a repeated one likewise |
//! | `exit` | the ends of tasks |
//! | `watching`, `notify` | the watches of tasks, and the notices of ends, hosts and groups |
//! | `signals` | signals that tasks and consoles send |
//! | `groups` | requests about groups |

mod enrol;
mod exit;
mod groups;
mod notify;
mod requests;
mod signals;
mod spawn;
mod spawning;
mod watching;

pub(super) use spawning::{Asker, Births};
pub(super) use watching::Watching;

use std::collections::{BTreeMap, BTreeSet};
use vm_wire::Tid;

/// The local tasks whose request waits for the log.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// For a change of that group.
    pub by_group: BTreeMap<String, BTreeSet<Tid>>,
    /// For the birth of the task that the request is about.
    pub by_task: BTreeSet<Tid>,
}
