//! The processes on this host that are coordinators of applications.

use crate::Time;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{RequestKey, Tid, peer::Order};

/// The process of an application's coordinator on this host.
#[derive(Debug)]
pub(super) struct Process {
    /// By which the shell knows it; of the last one if there is none.
    pub(super) number: u64,
    /// The generation of the application that it was started for.
    pub(super) generation: u32,
    pub(super) started: Time,
    pub(super) stage: Life,
    /// Number of the last frame to it, and of the last that it acted on.
    pub(super) sent: u64,
    pub(super) heard: u64,
    /// Since when it has been silent about one.
    pub(super) silent: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// It is gone; the next one is started in a moment.
    Gone,
    /// It is being started.
    Starting,
    /// It is there.
    Ready,
    /// The log was asked to make it the coordinator under that term.
    Proposed(u32),
    /// It is the coordinator.
    Serving(u32),
}

/// All that this daemon knows of coordinators.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Coordinators {
    /// By application.
    pub(super) processes: BTreeMap<Tid, Process>,
    /// Number of the last process.
    pub(super) last: u64,
    /// Applications of which a term was proposed and is not applied yet.
    pub(super) proposed: BTreeSet<Tid>,
    /// Wishes that wait until a coordinator here serves, with their applications, since when, and in
    /// which life of the application.
    pub(super) waiting: BTreeMap<(Tid, RequestKey), (Time, u32, Order)>,
}
