//! How an application is brought back: all of it, or not at all.
//!
//! Its tasks keep their tids. They live again from [`Change::Revive`](vm_wire::agreed::Change) on,
//! each under a new incarnation, and stand still until every host has said that its own are there.
//! If one of them ends before that, all of them do, and nothing has run.
//!
//! The generation that a revival gives is higher than every other that the machine has given, so
//! frames of an earlier life are told from those of this one.

use super::{Agreed, Applied, Epochs, Task, Void, apply::check_policy};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    agreed::{ExitStatus, Revival},
    limits,
};

/// An application that is being brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviving {
    /// Whose daemon was asked for it, and under which number.
    pub asker: (HostId, u64),
    /// From which checkpoint: its generation and epoch.
    pub from: (u32, u32),
    /// Where the output of its tasks goes.
    pub console: HostId,
    /// Files that its tasks write are used as they are.
    pub keep_files: bool,
    /// The hosts whose tasks do not all stand yet.
    pub awaited: BTreeSet<HostId>,
}

impl Agreed {
    /// An application that is being brought back.
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
        let last = self.generation.max(revival.from.0);
        let generation = last.checked_add(1).ok_or(Void::Limit)?;
        self.generation = generation;
        self.ended.retain(|tid| !tids.contains(tid));
        for task in &revival.tasks {
            let mut last = 0;
            if let Some(before) = self.tasks.remove(&task.tid) {
                let key = (before.asker, before.request, before.index);
                self.born.remove(&key);
                last = before.incarnation;
            }
            let live = Task {
                host: task.host,
                incarnation: last.max(task.incarnation) + 1,
                app,
                asker: task.asker,
                request: task.request,
                index: task.index,
                program: task.program.as_str().into(),
                enrolled: false,
                status: None,
            };
            self.insert_task(task.tid, live);
        }
        let epochs = Epochs {
            generation,
            epoch: revival.from.1,
            cut: None,
            saved: revival.from.1,
            policy: revival.policy,
        };
        self.epochs.insert(app, epochs);
        let reviving = Reviving {
            asker: revival.asker,
            from: revival.from,
            console: revival.console,
            keep_files: revival.keep_files,
            awaited: revival.tasks.iter().map(|task| task.host).collect(),
        };
        self.reviving.insert(app, reviving);
        applied.push(Applied::Revived { app, generation });
        for group in &revival.groups {
            self.groups.revive(group);
            applied.push(Applied::Group {
                group: group.name.clone(),
                version: group.version,
            });
        }
        Ok(())
    }

    /// The tasks that may live again.
    fn check_revival(&self, revival: &Revival) -> Result<BTreeSet<Tid>, Void> {
        let tids: BTreeSet<Tid> = revival.tasks.iter().map(|task| task.tid).collect();
        if tids.is_empty() || tids.len() != revival.tasks.len() {
            return Err(Void::Malformed);
        }
        check_policy(revival.policy)?;
        if self.in_app.contains_key(&revival.app) {
            return Err(Void::Alive(revival.app));
        }
        let mut counts: BTreeMap<HostId, usize> = BTreeMap::new();
        for task in &revival.tasks {
            *counts.entry(task.host).or_default() += 1;
            if self.living_task(task.tid).is_some() {
                return Err(Void::Alive(task.tid));
            }
            let born = self.born.get(&(task.asker, task.request, task.index));
            if born.is_some_and(|other| *other != task.tid) {
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
    ) -> Result<Option<Applied>, Void> {
        self.check_reviving(app, generation)?;
        let reviving = self.reviving.get_mut(&app).ok_or(Void::Revival)?;
        if !reviving.awaited.remove(&host) {
            return Err(Void::Revival);
        }
        if !reviving.awaited.is_empty() {
            return Ok(None);
        }
        let started = self.reviving.remove(&app);
        Ok(started.map(|reviving| Applied::Started {
            app,
            generation,
            reviving: Some(reviving),
        }))
    }

    pub(super) fn abandon(
        &mut self,
        app: Tid,
        generation: u32,
        why: &str,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        self.check_reviving(app, generation)?;
        if why.len() > limits::REASON_MAX {
            return Err(Void::Malformed);
        }
        self.end_revival(app, why, applied);
        Ok(())
    }

    /// Ends what is left of an application that was being brought back.
    pub(super) fn end_revival(&mut self, app: Tid, why: &str, applied: &mut Vec<Applied>) {
        let generation = self.epochs(app).generation;
        if let Some(reviving) = self.reviving.remove(&app) {
            for tid in self.tasks_of(app).collect::<Vec<_>>() {
                self.end(tid, ExitStatus::Suspended, applied);
            }
            applied.push(Applied::Abandoned {
                app,
                generation,
                asker: reviving.asker,
                why: why.to_owned(),
            });
        }
    }

    fn check_reviving(&self, app: Tid, generation: u32) -> Result<(), Void> {
        let is_it = self.reviving.contains_key(&app) && self.epochs(app).generation == generation;
        is_it.then_some(()).ok_or(Void::Revival)
    }

    /// The applications that were brought back between this state and a later one.
    pub(super) fn revived_in(&self, later: &Agreed) -> BTreeSet<Tid> {
        let generation = |state: &Agreed, app| state.epochs(app).generation;
        let new = |app: &Tid| generation(later, *app) > generation(self, *app);
        later.apps().filter(new).collect()
    }

    /// What became of revivals between this state and a later one.
    pub(super) fn revivals_to(&self, later: &Agreed, changes: &mut Vec<Applied>) {
        for (&app, before) in &self.reviving {
            let generation = self.epochs(app).generation;
            if later.epochs(app).generation != generation {
                changes.push(Applied::Abandoned {
                    app,
                    generation,
                    asker: before.asker,
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
