//! Before a cut: the portable tasks of the application come to their safe points, while the others run.
//!
//! ```text
//! coordinator's daemon        owners
//! CutPrepare              ->  each portable task is told to come to a safe point and to stand there
//!                         <-  CutPrepared, when all of that host do
//! Cut into the log
//! ```
//!
//! A portable task may be far from its safe point. If the others stood meanwhile, all of the application
//! would stand for seconds, and what they have yet to send might be what it waits for. So it is cut where
//! it stands then: nothing is handed to it any more, and with the cut in the log it gives its state at
//! once. One that comes to no safe point within [`limits::SAFE_POINT`] is why there is no checkpoint, and
//! nobody else has stood for it. What is said here of portable tasks holds for all that cannot be stopped
//! wherever they are: those with callbacks around saves come to a call of the library.
//!
//! What becomes portable, is born or arrives after that is told by the cut itself, as if there were no
//! preparation ([`super::cut_steps`]). A task does not stand for want of a word: its daemon lets it go on after
//! some time.

use crate::daemon::{Daemon, context::Timer};
use crate::{Output, Time};
use std::{collections::BTreeSet, time::Duration};
use vm_wire::{
    HostId, Tid,
    checkpoint::{CheckpointEnd, CutAsk, CutPrepare, CutPrepared},
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// So long after the last answer that could come tasks still stand for a cut.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// A cut that the coordinator here wants, and for which other hosts prepare.
#[derive(Debug)]
pub(in crate::daemon) struct Preparing {
    ask: CutAsk,
    generation: u32,
    /// Hosts that have not answered.
    awaited: BTreeSet<HostId>,
    /// They are just being asked: who does that looks at the answers.
    asking: bool,
}

/// Portable tasks of this host that are told to stand at safe points.
#[derive(Debug)]
pub(in crate::daemon) struct Holding {
    /// Whose daemon wants to know.
    asker: HostId,
    generation: u32,
    since: Time,
    /// Those that are on their way there, and those that stand.
    awaited: BTreeSet<Tid>,
    held: BTreeSet<Tid>,
    told: bool,
}

impl Daemon {
    /// Whether the portable tasks of an application stand, so that it can be cut; if they were not told to,
    /// they are now. The coordinator asks again and again.
    pub(in crate::daemon) fn is_prepared(&mut self, ask: &CutAsk) -> bool {
        let app = ask.app;
        let generation = self.cx.agreement.state().epochs(app).generation;
        let known = self.preparing.get(&app);
        if !known.is_some_and(|it| it.ask == *ask && it.generation == generation) {
            let state = self.cx.agreement.state();
            let tasks = state.tasks_of(app).filter_map(|tid| state.task(tid));
            let awaited: BTreeSet<HostId> = tasks.map(|task| task.host).collect();
            let preparing = Preparing {
                ask: *ask,
                generation,
                awaited: awaited.clone(),
                asking: true,
            };
            self.preparing.insert(app, preparing);
            self.say_prepare(awaited, (app, generation), false);
        }
        let preparing = self.preparing.get_mut(&app);
        preparing.is_some_and(|preparing| {
            preparing.asking = false;
            preparing.awaited.is_empty()
        })
    }

    fn say_prepare(&mut self, hosts: BTreeSet<HostId>, (app, generation): (Tid, u32), off: bool) {
        let prepare = CutPrepare {
            app,
            generation,
            off,
        };
        for host in hosts {
            match host == self.cx.me {
                true => self.on_cut_prepare(host, prepare),
                false => drop(self.cx.send_order(host, &Order::CutPrepare(prepare))),
            }
        }
    }

    /// The portable tasks of a host stand, or one of them does not come to that.
    pub(in crate::daemon) fn on_cut_prepared(&mut self, host: HostId, prepared: CutPrepared) {
        let app = prepared.app;
        let known = self.preparing.get_mut(&app);
        let Some(preparing) = known.filter(|it| it.generation == prepared.generation) else {
            return;
        };
        let ask = preparing.ask;
        match prepared.result {
            Ok(()) => {
                let last = preparing.awaited.remove(&host) && preparing.awaited.is_empty();
                if last && !preparing.asking {
                    self.on_cut_ask(&ask);
                }
            }
            Err(failed) => {
                self.give_up_preparing(app);
                let end = CheckpointEnd {
                    request: 0,
                    app,
                    result: Err(failed),
                };
                if self.serving_coordinator(app).is_some() {
                    self.mail_to_coordinator(app, self.cx.me, &Order::CheckpointEnd(end));
                }
            }
        }
    }

    /// There will be no such cut.
    pub(in crate::daemon) fn give_up_preparing(&mut self, app: Tid) {
        if let Some(preparing) = self.preparing.remove(&app) {
            let state = self.cx.agreement.state();
            let tasks = state.tasks_of(app).filter_map(|tid| state.task(tid));
            let hosts: BTreeSet<HostId> = tasks.map(|task| task.host).collect();
            self.say_prepare(hosts, (app, preparing.generation), true);
        }
    }

    /// A host is lost that prepares a cut.
    pub(in crate::daemon) fn lose_preparations_of(&mut self, host: HostId) {
        let mut asks = Vec::new();
        for preparing in self.preparing.values_mut() {
            if preparing.awaited.remove(&host) && preparing.awaited.is_empty() {
                asks.push(preparing.ask);
            }
        }
        for ask in asks {
            self.on_cut_ask(&ask);
        }
    }

    /// The portable tasks here of an application are to stand, or need not any more.
    pub(in crate::daemon) fn on_cut_prepare(&mut self, from: HostId, prepare: CutPrepare) {
        let CutPrepare {
            app,
            generation,
            off,
        } = prepare;
        if off {
            return self.release_held_tasks(app);
        }
        let state = self.cx.agreement.state();
        let stands = |(tid, task): &(&Tid, &crate::daemon::LocalTask)| {
            let here = state
                .living_task(**tid)
                .is_some_and(|it| it.host == self.cx.me);
            here && task.app == app && !task.stops.at_once() && task.is_settled() && !task.frozen
        };
        let tids = self.tasks.iter().filter(stands).map(|(tid, _)| *tid);
        let mut awaited: BTreeSet<Tid> =
            tids.filter(|tid| !self.leaving.contains_key(tid)).collect();
        let before = self.holding.remove(&app);
        let held = before.map_or_else(BTreeSet::new, |before| before.held);
        awaited.retain(|tid| !held.contains(tid));
        self.cx
            .out
            .extend(awaited.iter().map(|tid| Output::Hold(*tid)));
        let holding = Holding {
            asker: from,
            generation,
            since: self.cx.now,
            awaited,
            held,
            told: false,
        };
        self.holding.insert(app, holding);
        for wait in [limits::SAFE_POINT, limits::SAFE_POINT + FORGOTTEN] {
            self.cx.set_timer(self.cx.now + wait, Timer::Hold(app));
        }
        self.review_holding(app);
    }

    /// A portable task stands at a safe point.
    pub(in crate::daemon) fn on_held(&mut self, tid: Tid) {
        let mut of_it = self.holding.iter_mut();
        let of_it = of_it.find(|(_, it)| it.awaited.contains(&tid));
        let Some((app, holding)) = of_it.map(|(app, holding)| (*app, holding)) else {
            // It stands now as it was told to, or nobody waits for it any more.
            self.on_held_to_save(tid);
            if !self.on_held_to_move(tid) && !self.is_held(tid) {
                self.cx.emit(Output::CancelCopy(tid));
            }
            return;
        };
        holding.awaited.remove(&tid);
        holding.held.insert(tid);
        self.review_holding(app);
    }

    fn is_held(&self, tid: Tid) -> bool {
        let held = self.holding.values().any(|it| it.held.contains(&tid));
        held || self.tasks.get(&tid).is_some_and(|task| task.frozen)
    }

    /// A task has ended, or is another host's.
    pub(in crate::daemon) fn hold_no_more(&mut self, tid: Tid) {
        let mut of_it = self.holding.iter_mut();
        let of_it = of_it.find(|(_, it)| it.awaited.contains(&tid) || it.held.contains(&tid));
        if let Some((app, holding)) = of_it.map(|(app, holding)| (*app, holding)) {
            holding.held.remove(&tid);
            holding.awaited.remove(&tid);
            self.review_holding(app);
        }
    }

    fn review_holding(&mut self, app: Tid) {
        let holding = self.holding.get_mut(&app);
        let Some(holding) = holding.filter(|it| it.awaited.is_empty() && !it.told) else {
            return;
        };
        holding.told = true;
        let (asker, generation) = (holding.asker, holding.generation);
        if holding.held.is_empty() {
            self.holding.remove(&app);
        }
        self.say_prepared(asker, (app, generation), Ok(()));
    }

    fn say_prepared(
        &mut self,
        asker: HostId,
        (app, generation): (Tid, u32),
        result: Result<(), Failed>,
    ) {
        let prepared = CutPrepared {
            app,
            generation,
            result,
        };
        match asker == self.cx.me {
            true => self.on_cut_prepared(asker, prepared),
            false => drop(self.cx.send_order(asker, &Order::CutPrepared(prepared))),
        }
    }

    /// Tasks have had the time to come to their safe points, or stand for a cut that does not come.
    pub(in crate::daemon) fn on_hold_due(&mut self, app: Tid) {
        let Some(holding) = self.holding.get(&app) else {
            return;
        };
        let waited = self.cx.now.since(holding.since);
        let (asker, generation) = (holding.asker, holding.generation);
        if waited >= limits::SAFE_POINT
            && let Some(tid) = holding.awaited.first()
        {
            let (shown, name) = (tid.show(self.cx.machine), &self.cx.config.facts.name);
            let why = self.stops(*tid).why_late();
            let text = format!("task {shown} on '{name}' cannot be saved: {why}");
            self.release_held_tasks(app);
            let failed = Failed::new(FailKind::Refused, text);
            self.say_prepared(asker, (app, generation), Err(failed));
        } else if waited >= limits::SAFE_POINT + FORGOTTEN {
            self.release_held_tasks(app);
        }
    }

    /// They go on, or need not come to a safe point.
    fn release_held_tasks(&mut self, app: Tid) {
        let Some(holding) = self.holding.remove(&app) else {
            return;
        };
        for tid in holding.held.into_iter().chain(holding.awaited) {
            let task = self.tasks.get(&tid).filter(|task| !task.frozen);
            if task.is_some() && !self.leaving.contains_key(&tid) {
                self.cx.emit(Output::CancelCopy(tid));
            }
        }
    }

    /// The application is cut: those that are saved by it go on with it, the others now.
    pub(in crate::daemon) fn end_holding(&mut self, app: Tid) {
        self.preparing.remove(&app);
        self.release_held_tasks(app);
    }
}
