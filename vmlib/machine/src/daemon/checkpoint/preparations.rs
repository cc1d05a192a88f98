//! Cuts that are prepared before the log makes them, at the daemon of the coordinator: the hosts
//! whose tasks have not come to their safe points yet.

use crate::daemon::context::Context;
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{HostId, Tid, checkpoint::CutAsk};

/// The cuts that coordinators on this host have requested, while hosts prepare them.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Preparations {
    /// By application.
    underway: BTreeMap<Tid, Preparation>,
}

/// The preparation of one cut.
#[derive(Debug)]
struct Preparation {
    ask: CutAsk,
    generation: u32,
    /// Hosts that have not replied.
    awaited: BTreeSet<HostId>,
    /// The hosts are being told to prepare. A reply that comes meanwhile makes no cut: the caller
    /// looks at the replies once all hosts are told.
    telling: bool,
}

impl Preparations {
    /// Begins the preparation of a cut: the hosts that are to prepare it. None if the same cut is
    /// under preparation already.
    pub fn begin(&mut self, cx: &Context, ask: CutAsk) -> Option<BTreeSet<HostId>> {
        let generation = cx.agreement.state().epochs(ask.app).generation;
        let known = self.underway.get(&ask.app);
        if known.is_some_and(|it| it.ask == ask && it.generation == generation) {
            return None;
        }
        let hosts = hosts_of(cx, ask.app);
        let preparation = Preparation {
            ask,
            generation,
            awaited: hosts.clone(),
            telling: true,
        };
        self.underway.insert(ask.app, preparation);
        Some(hosts)
    }

    /// All hosts have been told to prepare the cut of an application: whether all have prepared it.
    pub fn end_telling(&mut self, app: Tid) -> bool {
        let preparation = self.underway.get_mut(&app);
        preparation.is_some_and(|preparation| {
            preparation.telling = false;
            preparation.awaited.is_empty()
        })
    }

    /// Whether the cut of an application is prepared in that generation.
    pub fn has(&self, app: Tid, generation: u32) -> bool {
        let preparation = self.underway.get(&app);
        preparation.is_some_and(|it| it.generation == generation)
    }

    /// A host has prepared the cut of an application. Returned is the request for the cut, if no
    /// other host is awaited.
    pub fn on_prepared(&mut self, app: Tid, host: HostId) -> Option<CutAsk> {
        let preparation = self.underway.get_mut(&app)?;
        let is_complete = preparation.no_more(host) && !preparation.telling;
        is_complete.then_some(preparation.ask)
    }

    /// A host is lost. Returned are the requests for the cuts that awaited only this host.
    pub fn on_host_lost(&mut self, host: HostId) -> Vec<CutAsk> {
        let all = self.underway.values_mut();
        let complete = all.filter_map(|it| it.no_more(host).then_some(it.ask));
        complete.collect()
    }

    /// The cut of an application is made, or is not to be made: the generation that it was prepared
    /// in.
    pub fn end(&mut self, app: Tid) -> Option<u32> {
        Some(self.underway.remove(&app)?.generation)
    }
}

impl Preparation {
    /// Awaits a host no more: whether it was the last awaited host.
    fn no_more(&mut self, host: HostId) -> bool {
        self.awaited.remove(&host) && self.awaited.is_empty()
    }
}

/// The hosts of an application's tasks.
pub(super) fn hosts_of(cx: &Context, app: Tid) -> BTreeSet<HostId> {
    let state = cx.agreement.state();
    let tasks = state.tasks_of(app).filter_map(|tid| state.task(tid));
    tasks.map(|task| task.host).collect()
}
