//! Restarts of applications: all tasks are restarted, or none.
//!
//! The tasks keep their task ids. After [`Change::Revive`](vm_wire::agreed::Change) each task lives
//! again in the agreed state, with a higher incarnation, and stays frozen until every host has
//! reported its tasks as restored. If a task ends before that, all tasks end, and none has run.
//!
//! The generation of a restart is higher than every earlier generation of the machine, so frames of
//! an earlier generation are recognised.

use super::{
    Agreed, Applied, Epochs, Reviving, Task, Unsuspended, Void, apply::check_policy, lives::Failure,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, RequestKey, Tid,
    agreed::{ExitStatus, Revival},
    limits,
};

impl Agreed {
    /// Record of an application that is being restarted.
    pub fn reviving(&self, app: Tid) -> Option<&Reviving> {
        self.reviving.get(&app)
    }

    pub(super) fn revive(
        &mut self,
        revival: &Revival,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let tids = self.check_revival(revival)?;
        let app = revival.app;
        let last = self.generation.max(revival.from.generation);
        let generation = last.checked_add(1).ok_or(Void::Limit)?;
        self.generation = generation;
        let awaited = self.hosts_of(revival);
        self.ended.retain(|tid| !tids.contains(tid));
        self.forget_since(app, revival.cut);
        for task in &revival.tasks {
            let mut last = 0;
            if let Some(before) = self.tasks.remove(&task.tid) {
                let key = (before.requester, before.request, before.index);
                self.born.remove(&key);
                last = before.incarnation;
            }
            let live = Task {
                host: task.host,
                incarnation: last.max(task.incarnation) + 1,
                app,
                requester: task.requester,
                request: task.request,
                index: task.index,
                born: self.index,
                program: task.program.as_str().into(),
                enrolled: false,
                suspended: false,
                status: None,
            };
            self.insert_task(task.tid, live);
        }
        let lost = self.recovering.get(&app).map(|it| it.lost);
        let before = self.epochs(app);
        let (last, policy, kills) = match lost {
            Some(_) => (before.epoch, before.policy, before.kills),
            None => (self.epoch, revival.policy, 0),
        };
        let epochs = Epochs {
            generation,
            // The epoch of a cut is never used again, so a late report about a cut of an earlier
            // generation is not taken for one of this generation.
            epoch: revival.from.epoch.max(last),
            cut: None,
            saved: revival.from.epoch,
            cost_us: before.cost_us,
            policy,
            kills,
            finished: false,
        };
        self.epochs.insert(app, epochs);
        // The console of a suspended application waits for it, unless the request names another
        // console.
        let waits = self.suspended(app).map(|it| it.console);
        let console = match revival.console {
            HostId::NONE => waits.unwrap_or(HostId::NONE),
            console => console,
        };
        if lost.is_none() && console != HostId::NONE {
            self.consoles.insert(app, console);
        }
        let sources = revival.tasks.iter().map(|task| (task.tid, task.source));
        let sources = sources.filter(|(_, source)| *source != HostId::NONE);
        let reviving = Reviving {
            requester: RequestKey::new(revival.requester.0, revival.requester.1),
            from: revival.from,
            keep_files: revival.keep_files,
            age_ms: revival.age_ms,
            lost,
            awaited,
            sources: sources.collect(),
        };
        self.reviving.insert(app, reviving);
        applied.push(Applied::Revived { app, generation });
        self.context = self.context.max(revival.context);
        for group in &revival.groups {
            self.groups.revive(group);
            applied.push(Applied::Group {
                group: group.name.clone(),
                version: group.version,
            });
        }
        Ok(())
    }

    /// The hosts that must report the tasks of an application as restored, or the processes of its
    /// previous generation as ended.
    fn hosts_of(&self, revival: &Revival) -> BTreeSet<HostId> {
        let ended = self.ended.iter().filter_map(|tid| self.task(*tid));
        let before = ended.filter(|task| task.app == revival.app);
        let recovering = self.recovering.get(&revival.app);
        let lingering = recovering.into_iter().flat_map(|it| &it.lingering);
        let before = before.map(|task| task.host).chain(lingering.copied());
        let now = revival.tasks.iter().map(|task| task.host);
        before
            .filter(|host| self.is_present(*host))
            .chain(now)
            .collect()
    }

    /// Forgets the tasks that an application spawned after the cut, because the restarted tasks may
    /// send the same spawn requests under the same numbers. Tasks spawned earlier in the entry of
    /// the cut belong to the checkpoint and are restarted. A checkpoint of another machine has no
    /// `cut`: then all ended tasks of the application are forgotten.
    fn forget_since(&mut self, app: Tid, cut: Option<u64>) {
        let later = |task: &Task| task.app == app && cut.is_none_or(|cut| task.born >= cut);
        let ended = std::mem::take(&mut self.ended);
        let (gone, kept) = ended
            .into_iter()
            .partition::<VecDeque<Tid>, _>(|tid| self.task(*tid).is_some_and(later));
        self.ended = kept;
        for tid in gone {
            self.forget_task(tid);
        }
    }

    /// The ids of the tasks to restart, if the restart is possible.
    fn check_revival(&self, revival: &Revival) -> Result<BTreeSet<Tid>, Void> {
        let tids: BTreeSet<Tid> = revival.tasks.iter().map(|task| task.tid).collect();
        if tids.is_empty() || tids.len() != revival.tasks.len() {
            return Err(Void::Malformed);
        }
        check_policy(revival.policy)?;
        let suspended = self.suspended(revival.app);
        if revival.resumes && suspended.is_none_or(|it| it.from != revival.from) {
            return Err(Void::Suspension);
        }
        if self.in_app.contains_key(&revival.app) {
            return Err(Void::Alive(revival.app));
        }
        let mut counts: BTreeMap<HostId, usize> = BTreeMap::new();
        for task in &revival.tasks {
            *counts.entry(task.host).or_default() += 1;
            if self.living_task(task.tid).is_some() {
                return Err(Void::Alive(task.tid));
            }
            let born = self.born.get(&(task.requester, task.request, task.index));
            let other = born.filter(|other| **other != task.tid);
            let stays = |born: u64| revival.cut.is_some_and(|cut| born < cut);
            let found = other.and_then(|other| self.task(*other));
            if found.is_some_and(|it| it.is_alive() || it.app != revival.app || stays(it.born)) {
                return Err(Void::BornBefore);
            }
            if task.program.len() > limits::NAME_MAX || task.incarnation == u32::MAX {
                return Err(Void::Malformed);
            }
        }
        for (host, count) in counts {
            let found = self.host(host).filter(|_| self.is_living(host));
            let tasks_max = found.ok_or(Void::NoHost(host))?.facts.tasks_max as usize;
            if self.task_count(host) + count > tasks_max {
                return Err(Void::Limit);
            }
        }
        let alive = self.tasks.len() - self.ended.len();
        if alive + tids.len() > limits::TASKS_LIVE_MAX
            || self.epochs.len() >= limits::APPS_SAVED_MAX
        {
            return Err(Void::Limit);
        }
        self.groups.check_revival(&revival.groups, &tids)?;
        Ok(tids)
    }

    pub(super) fn stands(
        &mut self,
        app: Tid,
        generation: u32,
        host: HostId,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        self.check_reviving(app, generation)?;
        let reviving = self.reviving.get_mut(&app).ok_or(Void::Revival)?;
        if !reviving.awaited.remove(&host) {
            return Err(Void::Revival);
        }
        self.start_if_all_stand(app, applied);
        Ok(())
    }

    /// Awaits a departed host no more: no process of a previous generation runs there.
    pub(super) fn await_no_more(&mut self, host: HostId, applied: &mut Vec<Applied>) {
        for recovering in self.recovering.values_mut() {
            recovering.lingering.remove(&host);
        }
        let waited = |(app, it): (&Tid, &mut Reviving)| it.awaited.remove(&host).then_some(*app);
        let apps: Vec<Tid> = self.reviving.iter_mut().filter_map(waited).collect();
        for app in apps {
            self.start_if_all_stand(app, applied);
        }
    }

    fn start_if_all_stand(&mut self, app: Tid, applied: &mut Vec<Applied>) {
        let stand = |it: &Reviving| it.awaited.is_empty();
        if self.reviving.get(&app).is_some_and(stand)
            && let Some(reviving) = self.reviving.remove(&app)
        {
            self.recovering.remove(&app);
            applied.push(Applied::Started {
                app,
                generation: self.epochs(app).generation,
                reviving: Some(reviving),
            });
            self.end_suspension(app, Unsuspended::Resumed, applied);
        }
    }

    pub(super) fn abandon(
        &mut self,
        app: Tid,
        generation: u32,
        for_good: bool,
        why: &str,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let going_back = self.recovering.contains_key(&app);
        let goes_back = going_back && self.epochs(app).generation == generation;
        let suspended = self.suspended(app).filter(|_| self.reviving(app).is_none());
        let resumes = suspended.is_some_and(|it| it.generation == generation);
        if !goes_back && !resumes {
            self.check_reviving(app, generation)?;
        }
        if why.len() > limits::REASON_MAX {
            return Err(Void::Malformed);
        }
        let failure = match for_good {
            true => Failure::ForGood,
            false => Failure::Failed,
        };
        self.end_revival(app, failure, why, applied);
        Ok(())
    }

    /// Ends a failed restart and its tasks. The restart of a recovery is tried again.
    pub(super) fn end_revival(
        &mut self,
        app: Tid,
        failure: Failure,
        why: &str,
        applied: &mut Vec<Applied>,
    ) {
        let generation = self.epochs(app).generation;
        if let Some(reviving) = self.reviving.remove(&app) {
            let status = match self.recovering.get_mut(&app) {
                Some(recovering) => {
                    recovering.lingering.extend(&reviving.awaited);
                    ExitStatus::RolledBack
                }
                None => ExitStatus::Suspended,
            };
            for tid in self.tasks_of(app).collect::<Vec<_>>() {
                self.end(tid, status, applied);
            }
            applied.push(Applied::Abandoned {
                app,
                generation,
                requester: reviving.requester,
                why: why.to_owned(),
            });
        }
        if self.recovering.contains_key(&app) {
            self.try_again(app, failure, why, applied);
        } else {
            self.not_resumed(app, failure, why, applied);
        }
    }

    fn check_reviving(&self, app: Tid, generation: u32) -> Result<(), Void> {
        let is_it = self.reviving.contains_key(&app) && self.epochs(app).generation == generation;
        is_it.then_some(()).ok_or(Void::Revival)
    }

    /// The applications that were restarted between this state and a later state.
    pub(super) fn revived_in(&self, later: &Agreed) -> BTreeSet<Tid> {
        let generation = |state: &Agreed, app| state.epochs(app).generation;
        let new = |app: &Tid| generation(later, *app) > generation(self, *app);
        later.apps().filter(new).collect()
    }

    /// Adds the changes of restarts and recoveries between this state and a later state.
    pub(super) fn revivals_to(&self, later: &Agreed, changes: &mut Vec<Applied>) {
        for app in later.all_recovering() {
            let again = later.epochs(app).generation != self.epochs(app).generation;
            if again && later.reviving(app).is_none() {
                changes.push(Applied::RolledBack(app));
            }
        }
        for app in self.all_recovering() {
            if later.recovering(app).is_none() && !later.in_app.contains_key(&app) {
                changes.push(Applied::GivenUp {
                    app,
                    why: "this daemon was behind and does not know why".to_owned(),
                });
            }
        }
        for (&app, before) in &self.reviving {
            let generation = self.epochs(app).generation;
            if later.epochs(app).generation != generation {
                changes.push(Applied::Abandoned {
                    app,
                    generation,
                    requester: before.requester,
                    why: "this daemon was behind and does not know why".to_owned(),
                });
            } else if !later.reviving.contains_key(&app) {
                changes.push(Applied::Started {
                    app,
                    generation,
                    reviving: Some(before.clone()),
                });
            }
        }
        for app in self.revived_in(later) {
            let generation = later.epochs(app).generation;
            changes.push(Applied::Revived { app, generation });
            if !later.reviving.contains_key(&app) {
                changes.push(Applied::Started {
                    app,
                    generation,
                    reviving: None,
                });
            }
        }
    }
}
