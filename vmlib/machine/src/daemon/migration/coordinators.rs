//! The processes on this host that are coordinators of applications.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{RequestKey, Tid, peer::Order};

/// The process of an application's coordinator on this host.
#[derive(Debug)]
pub(super) struct Process {
    /// The number under which the shell knows the process; after its end, the number of the ended
    /// one.
    pub(super) number: u64,
    /// The generation of the application for which it was started.
    pub(super) generation: u32,
    pub(super) started: Time,
    pub(super) stage: Life,
    /// Number of the last frame to the process.
    pub(super) sent: u64,
    /// Number of the last frame that the process has handled.
    pub(super) heard: u64,
    /// Since when it has not handled a frame that was sent to it.
    pub(super) silent: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The process has ended. The next one starts at least `limits::COORDINATOR_PAUSE` after the
    /// start of this one.
    Gone,
    /// The process starts.
    Starting,
    /// The process has reported that it is ready.
    Ready,
    /// This daemon has proposed the process as coordinator, under this term.
    Proposed(u32),
    /// The process is the agreed coordinator, under this term.
    Serving(u32),
}

/// The coordinators of this host.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Coordinators {
    /// The process of each application's coordinator.
    pub(super) processes: BTreeMap<Tid, Process>,
    /// Number of the last process.
    pub(super) last: u64,
    /// Applications for which a term was proposed and is not applied yet.
    pub(super) proposed: BTreeSet<Tid>,
    /// Requests that wait until a coordinator on this host serves, by application and key: since
    /// when, the generation of the application, and the request.
    pub(super) waiting: BTreeMap<(Tid, RequestKey), (Time, u32, Order)>,
}
