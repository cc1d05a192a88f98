//! Suspended applications: they have ended with a checkpoint, and are kept for a later restart.
//!
//! The entry that ends the cut, and with it the tasks of the application, also marks the
//! application as suspended ([`Stop::Suspend`]). So the application either runs and is not marked,
//! or has ended, is marked, and has its checkpoint in the store. The last
//! [`Standing`](vm_wire::agreed::Change::Standing) of a restart removes the mark, for whatever
//! reason the application was restarted. A user, or the end of the suspension's time, also removes
//! the mark ([`Change::Unsuspend`](vm_wire::agreed::Change)). A failed resumption leaves the mark.
//!
//! An application that was suspended because its host was drained is resumed automatically once
//! there is room for all its tasks. The daemon of one host resumes it; each failure selects another
//! host. After [`limits::RECOVERIES_MAX`] failures the application waits until a host joins or
//! takes tasks again.

use super::{Agreed, Applied, HostPhase, Suspension, Task, Unsuspended, Void, lives::Failure};
use std::sync::Arc;
use vm_wire::{
    CheckpointId, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{Stop, Suspend},
    limits,
};

impl Agreed {
    /// Record of a suspended application.
    pub fn suspended(&self, app: Tid) -> Option<&Suspension> {
        self.suspended.get(&app)
    }

    /// Whether an application has ended with a checkpoint. The reply is false once its tasks are
    /// forgotten, unless it is suspended.
    pub fn was_stopped(&self, app: Tid) -> bool {
        let last = self.ended.iter().rev();
        let mut tasks = last.filter_map(|tid| self.tasks.get(tid));
        let with_it = |task: &Task| task.app == app && task.status == Some(ExitStatus::Suspended);
        self.suspended.contains_key(&app) || tasks.any(with_it)
    }

    /// All suspended applications.
    pub fn all_suspended(&self) -> impl Iterator<Item = (Tid, &Suspension)> {
        self.suspended.iter().map(|(app, it)| (*app, it))
    }

    /// Whether the bound on suspended applications is reached. Applications with a cut for a
    /// suspension count.
    pub fn suspends_too_many(&self) -> bool {
        let cuts = self.epochs.values().filter_map(|epochs| epochs.cut?.stop);
        let coming = cuts.filter(|stop| matches!(stop, Stop::Suspend(_))).count();
        self.suspended.len() + coming >= limits::APPS_SUSPENDED_MAX
    }

    /// The host whose daemon ends or resumes a suspended application. Each failure selects another
    /// host, which may have a checkpoint that the previous host did not have.
    pub fn suspension_host(&self, app: Tid) -> Option<HostId> {
        let failures = self.suspended(app)?.failures as usize;
        let hosts = self.hosts().map(|(host, _)| host);
        let staying: Vec<HostId> = hosts.filter(|host| self.is_staying(*host)).collect();
        staying.get(failures % staying.len().max(1)).copied()
    }

    /// Whether an application is to be resumed now, without a user's request.
    pub fn resumes_by_itself(&self, app: Tid) -> bool {
        self.suspended(app).is_some_and(|it| {
            it.how.drained != HostId::NONE
                && it.failures < limits::RECOVERIES_MAX
                && !self.reviving.contains_key(&app)
                && self.room() >= it.tasks as usize
        })
    }

    /// Number of tasks that all hosts together can still take.
    fn room(&self) -> usize {
        let living = self.hosts().filter(|(_, it)| it.phase == HostPhase::Living);
        living
            .map(|(host, it)| (it.facts.tasks_max as usize).saturating_sub(self.task_count(host)))
            .sum()
    }

    /// Record of an application whose tasks are about to end with a checkpoint.
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

    /// Checks whether an application may be suspended with these options.
    pub(super) fn check_suspend(&self, how: Suspend) -> Result<(), Void> {
        if u128::from(how.for_ms) > limits::SUSPENDED_FOR_MAX.as_millis() {
            return Err(Void::Malformed);
        }
        match self.suspends_too_many() {
            true => Err(Void::Limit),
            false => Ok(()),
        }
    }

    /// Sets all counts of failed resumptions to 0, because one more host takes tasks.
    pub(super) fn forget_failures(&mut self) {
        for suspension in self.suspended.values_mut() {
            suspension.failures = 0;
        }
    }

    /// Removes the consoles of a departed host.
    pub(super) fn lose_consoles(&mut self, host: HostId) {
        self.consoles.retain(|_, console| *console != host);
        for suspension in self.suspended.values_mut() {
            if suspension.console == host {
                suspension.console = HostId::NONE;
            }
        }
    }

    /// Counts a failed resumption, or ends the suspension.
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

    /// Removes the mark of a suspended application, if it has one.
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

    /// Adds the changes of suspensions between this state and a later state.
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
