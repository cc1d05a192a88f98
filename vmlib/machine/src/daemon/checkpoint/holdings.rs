//! Tasks of this host that freeze at their safe points before a cut of their application, and stay
//! frozen there until the cut.
//!
//! A task does not stay frozen because an order was lost: it is released [`FORGOTTEN`] after the last
//! moment at which its daemon can report it.

use crate::{
    MoveOutput, Output, Time,
    daemon::context::{Context, Timer},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use vm_wire::{HostId, Tid, limits};

/// How long tasks stay frozen after [`limits::SAFE_POINT`] for a cut that does not come.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Holdings {
    /// By application.
    underway: BTreeMap<Tid, Holding>,
}

/// The tasks of one application.
#[derive(Debug)]
struct Holding {
    of: Prepared,
    since: Time,
    /// Tasks that are on their way to their safe points.
    awaited: BTreeSet<Tid>,
    /// Tasks that are frozen at their safe points.
    held: BTreeSet<Tid>,
    /// The requester was told that no task is awaited.
    told: bool,
}

/// The preparation of a cut that tasks freeze for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) struct Prepared {
    pub app: Tid,
    /// The generation of the application.
    pub generation: u32,
    /// The host whose daemon requested the preparation.
    pub requester: HostId,
}

/// The next step for the tasks of an application that freeze for a cut.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Due {
    /// That task has come to no safe point in time.
    Late(Tid, Prepared),
    /// The cut does not come.
    Forgotten,
}

impl Holdings {
    /// Has those tasks freeze at their safe points. Tasks that freeze for an earlier preparation are
    /// told no second time.
    pub fn begin(&mut self, cx: &mut Context, of: Prepared, mut awaited: BTreeSet<Tid>) {
        let before = self.underway.remove(&of.app);
        let held = before.map_or_else(BTreeSet::new, |before| before.held);
        awaited.retain(|tid| !held.contains(tid));
        cx.out.extend(
            awaited
                .iter()
                .map(|tid| Output::Move(MoveOutput::Hold(*tid))),
        );
        let holding = Holding {
            of,
            since: cx.now,
            awaited,
            held,
            told: false,
        };
        self.underway.insert(of.app, holding);
        for wait in [limits::SAFE_POINT, limits::SAFE_POINT + FORGOTTEN] {
            cx.set_timer(cx.now + wait, Timer::Hold(of.app));
        }
    }

    /// A task is frozen at its safe point: its application, if a cut awaited the task.
    pub fn on_held(&mut self, tid: Tid) -> Option<Tid> {
        let mut all = self.underway.iter_mut();
        let (app, holding) = all.find(|(_, it)| it.awaited.contains(&tid))?;
        holding.awaited.remove(&tid);
        holding.held.insert(tid);
        Some(*app)
    }

    /// Whether a task is frozen for a cut.
    pub fn is_held(&self, tid: Tid) -> bool {
        self.underway.values().any(|it| it.held.contains(&tid))
    }

    /// A task has ended, or belongs to another host: its application, if the task froze for a cut.
    pub fn forget(&mut self, tid: Tid) -> Option<Tid> {
        let mut all = self.underway.iter_mut();
        let (app, holding) =
            all.find(|(_, it)| it.awaited.contains(&tid) || it.held.contains(&tid))?;
        holding.held.remove(&tid);
        holding.awaited.remove(&tid);
        Some(*app)
    }

    /// The preparation of an application's cut, if no task of it is awaited any more. It is returned
    /// once.
    pub fn take_complete(&mut self, app: Tid) -> Option<Prepared> {
        let holding = self.underway.get_mut(&app);
        let holding = holding.filter(|it| it.awaited.is_empty() && !it.told)?;
        holding.told = true;
        let of = holding.of;
        if holding.held.is_empty() {
            self.underway.remove(&app);
        }
        Some(of)
    }

    /// The next step for the tasks of an application, if its time has come.
    pub fn due(&self, now: Time, app: Tid) -> Option<Due> {
        let holding = self.underway.get(&app)?;
        let waited = now.since(holding.since);
        match holding.awaited.first() {
            Some(tid) if waited >= limits::SAFE_POINT => Some(Due::Late(*tid, holding.of)),
            _ if waited >= limits::SAFE_POINT + FORGOTTEN => Some(Due::Forgotten),
            _ => None,
        }
    }

    /// The tasks of an application freeze for no preparation any more. Returned are those that are
    /// frozen, and then those that were on their way to it.
    pub fn end(&mut self, app: Tid) -> impl Iterator<Item = Tid> + use<> {
        let holding = self.underway.remove(&app).into_iter();
        holding.flat_map(|holding| holding.held.into_iter().chain(holding.awaited))
    }
}
