//! Events that a task can watch.

use crate::id::Tid;
use serde::{Deserialize, Serialize};

/// An event that a task can watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Watched {
    /// The end of a task.
    Task(Tid),
    /// Hosts that join.
    HostAdded,
    /// Hosts that leave or are lost.
    HostDeleted,
    /// The end of a task whose messages are awaited ([`Await`](crate::task::Await)).
    Source(Tid),
}
