//! Applications that are suspended: they have ended with a checkpoint, and are to go on from it.
//!
//! The same entry that ends a cut, and with it the application's tasks, marks it as suspended
//! ([`Stop::Suspend`]). So either it runs on and is not marked, or it has ended, is marked, and its
//! checkpoint is in the store. The mark goes with the last
//! [`Standing`](vm_wire::agreed::Change::Standing) of its next life, however that came about, or when
//! somebody ends it or its time is over ([`Change::Unsuspend`](vm_wire::agreed::Change)). A resumption
//! that fails leaves it.
//!
//! One that was suspended because its host drained is resumed by itself, by the daemon of one host,
//! with each failure another one: when there is room for all its tasks. After
//! [`limits::RECOVERIES_MAX`] failures that waits until a host joins, or takes tasks again.

use super::{Agreed, Applied, HostPhase, Suspension, Task, Unsuspended, Void, lives::Failure};
use std::sync::Arc;
use vm_wire::{
    CheckpointId, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{Stop, Suspend},
    limits,
};

impl Agreed {
    /// An application that is suspended.
    pub fn suspended(&self, app: Tid) -> Option<&Suspension> {
        self.suspended.get(&app)
    }

    /// Whether an application has ended with a checkpoint, as long as its tasks are remembered.
    pub fn was_stopped(&self, app: Tid) -> bool {
        let last = self.ended.iter().rev();
        let mut tasks = last.filter_map(|tid| self.tasks.get(tid));
        let with_it = |task: &Task| task.app == app && task.status == Some(ExitStatus::Suspended);
        self.suspended.contains_key(&app) || tasks.any(with_it)
    }

    /// All of them, by application.
    pub fn all_suspended(&self) -> impl Iterator<Item = (Tid, &Suspension)> {
        self.suspended.iter().map(|(app, it)| (*app, it))
    }

    /// Whether no more applications may be suspended. Those that are just being saved for it count.
    pub fn suspends_too_many(&self) -> bool {
        let cuts = self.epochs.values().filter_map(|epochs| epochs.cut?.stop);
        let coming = cuts.filter(|stop| matches!(stop, Stop::Suspend(_))).count();
        self.suspended.len() + coming >= limits::APPS_SUSPENDED_MAX
    }

    /// The host whose daemon sees when a suspension is over, and resumes the application if that is to
    /// be done: with each failure another one, which may have the checkpoint that the last one had not.
    pub fn suspension_host(&self, app: Tid) -> Option<HostId> {
        let failures = self.suspended(app)?.failures as usize;
        let hosts = self.hosts().map(|(host, _)| host);
        let staying: Vec<HostId> = hosts.filter(|host| self.is_staying(*host)).collect();
        staying.get(failures % staying.len().max(1)).copied()
    }

    /// Whether an application is to be resumed now, without anybody asking.
    pub fn resumes_by_itself(&self, app: Tid) -> bool {
        self.suspended(app).is_some_and(|it| {
            it.how.drained != HostId::NONE
                && it.failures < limits::RECOVERIES_MAX
                && !self.reviving.contains_key(&app)
                && self.room() >= it.tasks as usize
        })
    }

    /// How many more tasks the hosts take that take any.
    fn room(&self) -> usize {
        let living = self.hosts().filter(|(_, it)| it.phase == HostPhase::Living);
        living
            .map(|(host, it)| (it.facts.tasks_max as usize).saturating_sub(self.task_count(host)))
            .sum()
    }

    /// What is remembered of an application whose tasks are about to end with a checkpoint.
    pub(super) fn suspension(&self, app: Tid, how: Suspend) -> Suspension {
        let epochs = self.epochs(app);
        let master = self.task(app);
        Suspension {
            from: CheckpointId::new(epochs.generation, epochs.epoch),
            how,
            tasks: self.tasks_of(app).count() as u32,
            program: master.map_or_else(|| "".into(), |master| Arc::clone(&master.program)),
            console: self.console_of(app),
            generation: epochs.generation,
            failures: 0,
        }
    }

    /// Whether it may be suspended so.
    pub(super) fn check_suspend(&self, how: Suspend) -> Result<(), Void> {
        if u128::from(how.for_ms) > limits::SUSPENDED_FOR_MAX.as_millis() {
            return Err(Void::Malformed);
        }
        match self.suspends_too_many() {
            true => Err(Void::Limit),
            false => Ok(()),
        }
    }

    /// A host more takes tasks: what could not be resumed is tried again.
    pub(super) fn forget_failures(&mut self) {
        for suspension in self.suspended.values_mut() {
            suspension.failures = 0;
        }
    }

    /// A host is gone, and with it the consoles there.
    pub(super) fn lose_consoles(&mut self, host: HostId) {
        self.consoles.retain(|_, console| *console != host);
        for suspension in self.suspended.values_mut() {
            if suspension.console == host {
                suspension.console = HostId::NONE;
            }
        }
    }

    /// One that is suspended was not resumed.
    pub(super) fn not_resumed(
        &mut self,
        app: Tid,
        failure: Failure,
        why: &str,
        applied: &mut Vec<Applied>,
    ) {
        let Some(suspension) = self.suspended.get_mut(&app) else {
            return;
        };
        self.generation = self.generation.saturating_add(1);
        suspension.generation = self.generation;
        suspension.failures += u32::from(failure == Failure::Failed);
        match failure {
            Failure::ForGood => self.end_suspension(app, Unsuspended::Ended, applied),
            _ => applied.push(Applied::NotResumed {
                app,
                why: why.to_owned(),
            }),
        }
    }

    pub(super) fn unsuspend(
        &mut self,
        app: Tid,
        from: CheckpointId,
        over: bool,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let is_it = self.suspended(app).is_some_and(|it| it.from == from);
        if !is_it || self.reviving.contains_key(&app) {
            return Err(Void::Suspension);
        }
        let why = match over {
            true => Unsuspended::Over,
            false => Unsuspended::Ended,
        };
        self.end_suspension(app, why, applied);
        Ok(())
    }

    /// The mark goes, if there is one.
    pub(super) fn end_suspension(
        &mut self,
        app: Tid,
        why: Unsuspended,
        applied: &mut Vec<Applied>,
    ) {
        if self.suspended.remove(&app).is_some() {
            applied.push(Applied::Unsuspended { app, why });
        }
    }

    /// What became of suspensions between this state and a later one.
    pub(super) fn suspensions_to(&self, later: &Agreed, changes: &mut Vec<Applied>) {
        for (app, now) in later.all_suspended() {
            let before = self.suspended(app);
            if before.is_none_or(|before| before.from != now.from) {
                changes.push(Applied::Suspended(app));
            } else if before.is_some_and(|before| before.generation != now.generation) {
                let why = "this daemon was behind and does not know why".to_owned();
                changes.push(Applied::NotResumed { app, why });
            }
        }
        for (app, _) in self.all_suspended() {
            if later.suspended(app).is_none() {
                let lives = later.in_app.contains_key(&app) || later.recovering(app).is_some();
                let why = match lives {
                    true => Unsuspended::Resumed,
                    false => Unsuspended::Ended,
                };
                changes.push(Applied::Unsuspended { app, why });
            }
        }
    }
}
