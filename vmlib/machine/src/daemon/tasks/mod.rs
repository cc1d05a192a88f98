//! The tasks of this host: how a process becomes a task, its requests, its end.
//!
//! | file | concern |
//! |---|---|
//! | `enrol` | a process proves that it is a task, or becomes a master |
//! | `spawning`, `spawn` | spawns that are not complete: the table, and the steps |
//! | `requests` | requests of tasks; each is carried out once, and a repeated request gets the same reply |
//! | `past_daemon` | routes past the daemon: rings and direct connections |
//! | `exit` | the ends of tasks |
//! | `watching`, `notify` | the watches of tasks, and the notifications of ends, hosts and groups |
//! | `signals` | signals that tasks and consoles send |
//! | `groups`, `contexts` | requests about groups, and for contexts |

mod contexts;
mod enrol;
mod exit;
mod groups;
mod notify;
mod past_daemon;
mod requests;
mod signals;
mod spawn;
mod spawning;
mod watching;

pub(super) use spawning::{Births, SpawnRequester};
pub(super) use watching::Watching;

use std::collections::{BTreeMap, BTreeSet};
use vm_wire::Tid;

/// The local tasks whose requests wait for the log.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// Tasks that wait for a change of a group, by the name of the group.
    pub by_group: BTreeMap<String, BTreeSet<Tid>>,
    /// Tasks that wait for a new context.
    pub for_context: BTreeSet<Tid>,
    /// Tasks that wait for the birth of the task that their request is about.
    pub by_task: BTreeSet<Tid>,
}
