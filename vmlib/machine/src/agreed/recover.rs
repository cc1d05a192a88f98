//! Recovery: applications restart from their last checkpoint by themselves
//! (`docs/failure-model.md`).
//!
//! When a host is lost or leaves, each application that had tasks there and has a checkpoint
//! recovers, unless its policy forbids recovery. In the same entry all tasks of the application end
//! ([`ExitStatus::RolledBack`]), and the application gets the next generation: requests, messages
//! and proposals of the previous generation are void. The application's epochs, policy, console and
//! coordinator term stay. A daemon then restarts the application
//! ([`Change::Revive`](vm_wire::agreed::Change)), as for a user's request. A failed restart is
//! tried again, [`limits::RECOVERIES_MAX`] times. The death of a task by a signal from outside has
//! the same effect, if the policy demands it.

use super::{Agreed, Applied, Lost, Recovering, lives::Failure};
use std::collections::BTreeSet;
use vm_wire::{HostId, Tid, agreed::ExitStatus, checkpoint::Recover, limits};

impl Agreed {
    /// Record of an application that recovers.
    pub fn recovering(&self, app: Tid) -> Option<&Recovering> {
        self.recovering.get(&app)
    }

    /// All applications that recover.
    pub fn all_recovering(&self) -> impl Iterator<Item = Tid> {
        self.recovering.keys().copied()
    }

    /// The host whose daemon is to restart an application. Each failure selects another host, which
    /// may have a checkpoint that the previous host did not have.
    pub fn recovering_host(&self, app: Tid) -> Option<HostId> {
        let failures = self.recovering(app)?.failures as usize;
        let hosts = self.hosts().map(|(host, _)| host);
        let staying: Vec<HostId> = hosts.filter(|host| self.is_staying(*host)).collect();
        staying.get(failures % staying.len().max(1)).copied()
    }

    /// The host of an application's console, or [`HostId::NONE`].
    pub fn console_of(&self, app: Tid) -> HostId {
        let console = self.consoles.get(&app).copied();
        console.unwrap_or(HostId::NONE)
    }

    /// The applications that recover when this host is lost or leaves.
    pub(super) fn going_back(&self, host: HostId) -> BTreeSet<Tid> {
        let apps = self
            .tasks_on(host)
            .filter_map(|tid| Some(self.task(tid)?.app));
        apps.filter(|app| self.can_go_back(*app)).collect()
    }

    /// Whether an application recovers when one of its tasks is killed. The number of recoveries
    /// from one checkpoint is bounded, because the program itself may be the cause.
    pub(super) fn goes_back_after_kill(&self, app: Tid) -> bool {
        let epochs = self.epochs(app);
        let wanted = epochs.policy.recover == Recover::Kill;
        wanted && epochs.kills < limits::RECOVERIES_MAX && self.can_go_back(app)
    }

    /// Whether an application has a checkpoint and may recover from it. An application that is
    /// being restarted may not: a failed restart of a recovery is tried again, another failed
    /// restart is not. An application whose master failed is being ended.
    fn can_go_back(&self, app: Tid) -> bool {
        let epochs = self.epochs(app);
        let wanted = epochs.saved != 0 && epochs.policy.recover != Recover::Never;
        wanted && !self.is_forsaken(app) && !self.reviving.contains_key(&app)
    }

    /// Ends the tasks of an application and begins its recovery.
    pub(super) fn roll_back(&mut self, app: Tid, lost: Lost, applied: &mut Vec<Applied>) {
        let tids: Vec<Tid> = self.tasks_of(app).collect();
        let hosts = tids.iter().filter_map(|tid| Some(self.task(*tid)?.host));
        let recovering = Recovering {
            lost,
            failures: 0,
            lingering: hosts.filter(|host| self.is_present(*host)).collect(),
        };
        self.recovering.insert(app, recovering);
        for tid in tids {
            self.end(tid, ExitStatus::RolledBack, applied);
        }
        // Orders of the coordinator of the previous generation are fenced.
        if let Some(coordinated) = self.coordinators.get_mut(&app) {
            coordinated.term = coordinated.term.saturating_add(1);
        }
        let epochs = self.epochs(app);
        if epochs.cut.is_some() {
            applied.push(Applied::CutEnded {
                app,
                epoch: epochs.epoch,
                saved: false,
            });
        }
        if let Some(epochs) = self.epochs.get_mut(&app) {
            epochs.cut = None;
            epochs.kills += u32::from(matches!(lost, Lost::Task(_)));
        }
        self.next_generation(app);
        applied.push(Applied::RolledBack(app));
    }

    /// Gives an application the next generation: earlier proposals for it are void.
    fn next_generation(&mut self, app: Tid) {
        self.generation = self.generation.saturating_add(1);
        if let Some(epochs) = self.epochs.get_mut(&app) {
            epochs.generation = self.generation;
        }
    }

    /// Counts a failed restart of a recovery, and tries again or ends the recovery.
    pub(super) fn try_again(
        &mut self,
        app: Tid,
        failure: Failure,
        why: &str,
        applied: &mut Vec<Applied>,
    ) {
        self.next_generation(app);
        let Some(recovering) = self.recovering.get_mut(&app) else {
            return;
        };
        recovering.failures += u32::from(failure == Failure::Failed);
        if failure == Failure::ForGood || recovering.failures >= limits::RECOVERIES_MAX {
            self.recovering.remove(&app);
            self.forget_app(app, applied);
            applied.push(Applied::GivenUp {
                app,
                why: why.to_owned(),
            });
        } else {
            applied.push(Applied::RolledBack(app));
        }
    }

    /// Forgets the records of an application that has ended, unless the application recovers. Its
    /// cut ends as well: a restarted application must not be frozen for it.
    pub(super) fn forget_app(&mut self, app: Tid, applied: &mut Vec<Applied>) {
        if !self.recovering.contains_key(&app) && !self.in_app.contains_key(&app) {
            let coordinator = self.coordinators.remove(&app);
            self.consoles.remove(&app);
            let epochs = self.epochs.remove(&app);
            self.epoch = self.epoch.max(epochs.map_or(0, |it| it.epoch));
            let finished = epochs.is_some_and(|it| it.finished && it.saved > 0);
            if finished && !self.suspended.contains_key(&app) {
                let host = coordinator
                    .map(|it| it.host)
                    .filter(|it| self.is_present(*it));
                let host = host.or_else(|| self.hosts().map(|(host, _)| host).next());
                applied.extend(host.map(|host| Applied::Finished { app, host }));
            }
            if let Some(epochs) = epochs.filter(|it| it.cut.is_some()) {
                applied.push(Applied::CutEnded {
                    app,
                    epoch: epochs.epoch,
                    saved: false,
                });
            }
        }
    }
}
