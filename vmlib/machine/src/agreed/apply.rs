//! The effect of each change on the agreed state. [`Agreed::apply`] passes each change of an entry
//! to the method for its kind. The method first checks the conditions of the change, and returns a
//! [`Void`] before it changes anything; then it changes the tables and reports the effects.

use super::{
    Agreed, Applied, Coordinated, CutUnderWay, Host, HostPhase, Lost, Task, Void, lives::Failure,
    state::remove_from,
};
use crate::group::Groups;
use std::sync::Arc;
use vm_wire::{
    HostId, Tid,
    agreed::{Change, Entry, ExitStatus, HostFacts, SpawnRecord},
    checkpoint::{Policy, Stop},
    limits,
};

impl Agreed {
    /// Applies the entry at `index`, the next entry of the log. Returns its effects in order.
    ///
    /// An entry that its proposer has in the log already has no effect.
    pub fn apply(&mut self, index: u64, entry: &Entry) -> Vec<Applied> {
        self.advance(index);
        let mut applied = Vec::new();
        let proposer = self.hosts.get_mut(&entry.proposer);
        match proposer.filter(|host| host.is_present()) {
            _ if entry.number == 0 => {}
            Some(host) if entry.number <= host.entries => return applied,
            Some(host) => host.entries = entry.number,
            None => {
                let void = |change: &Change| Applied::Void(change.clone(), Void::Proposer);
                return entry.changes.iter().map(void).collect();
            }
        }
        for change in &entry.changes {
            if let Err(why) = self.change(change, &mut applied) {
                applied.push(Applied::Void(change.clone(), why));
            }
        }
        applied
    }

    /// Passes over the entry at `index`, which is raft's own: it has no effect on the agreed state.
    pub fn advance(&mut self, index: u64) {
        debug_assert_eq!(index, self.index + 1, "an entry is missing");
        self.index = index;
    }

    fn change(&mut self, change: &Change, applied: &mut Vec<Applied>) -> Result<(), Void> {
        if self.halted {
            return Err(Void::Halted);
        }
        match change {
            Change::HostJoin { nonce, facts } => applied.push(self.join(*nonce, facts)?),
            Change::HostAddress { host, addr } => applied.push(self.set_address(*host, addr)?),
            Change::HostDraining { host, suspend } => {
                applied.push(self.begin_draining(*host, *suspend)?);
            }
            Change::HostResumed(host) => applied.push(self.end_draining(*host)?),
            Change::HostLeaving(host) => applied.push(self.begin_leaving(*host)?),
            Change::HostGone(host) => self.depart(*host, Applied::HostGone(*host), applied)?,
            Change::HostDead(host) => self.depart(*host, Applied::HostDead(*host), applied)?,
            Change::Spawn(record) => {
                self.spawn(record)?;
                applied.push(Applied::Spawned(record.clone()));
            }
            Change::Exit {
                tid,
                host,
                incarnation,
                status,
                killed,
                unasked,
            } => {
                let owner = (*host, *incarnation);
                self.exit(*tid, owner, *status, (*killed, *unasked), applied)?;
            }
            Change::Relocate {
                tid,
                from,
                to,
                incarnation,
                suspended,
            } => applied.push(self.relocate(*tid, (*from, *to), *incarnation, *suspended)?),
            Change::Stay {
                tid,
                host,
                incarnation,
            } => applied.push(self.stay(*tid, *host, *incarnation)?),
            Change::GroupJoin {
                group,
                tid,
                generation,
            } => {
                applied.push(self.change_member(group, *tid, *generation, Groups::join)?);
            }
            Change::GroupLeave {
                group,
                tid,
                generation,
            } => {
                applied.push(self.change_member(group, *tid, *generation, Groups::leave)?);
            }
            Change::Context { tid, generation } => {
                applied.push(self.give_context(*tid, *generation)?);
            }
            Change::Halt => {
                self.halted = true;
                applied.push(Applied::Halted);
            }
            Change::Coordinator { app, host, term } => {
                applied.push(self.coordinate(*app, *host, *term)?);
            }
            Change::Cut {
                app,
                epoch,
                term,
                stop,
            } => {
                applied.push(self.cut(*app, *epoch, *term, *stop)?);
            }
            Change::CutGo { app, epoch } => applied.push(self.let_go(*app, *epoch)?),
            Change::CutEnd {
                app,
                epoch,
                saved,
                cost_us,
            } => self.end_cut(*app, *epoch, saved.then_some(*cost_us), applied)?,
            Change::Policy { app, policy } => applied.push(self.set_policy(*app, *policy)?),
            Change::Revive(revival) => self.revive(revival, applied)?,
            Change::Standing {
                app,
                generation,
                host,
            } => self.stands(*app, *generation, *host, applied)?,
            Change::Abandon {
                app,
                generation,
                for_good,
                why,
            } => self.abandon(*app, *generation, *for_good, why, applied)?,
            Change::Unsuspend { app, from, over } => {
                self.unsuspend(*app, *from, *over, applied)?;
            }
        }
        Ok(())
    }

    fn set_address(&mut self, host: HostId, addr: &str) -> Result<Applied, Void> {
        if addr.is_empty() || addr.len() > limits::PATH_MAX {
            return Err(Void::Malformed);
        }
        let found = self.hosts.get_mut(&host).filter(|found| found.is_present());
        addr.clone_into(&mut found.ok_or(Void::NoHost(host))?.facts.addr);
        Ok(Applied::HostAddress(host))
    }

    /// A host may be drained only if another host takes tasks, or if its tasks are to be suspended.
    fn begin_draining(&mut self, host: HostId, suspend: bool) -> Result<Applied, Void> {
        let other = |(id, found): (&HostId, &Host)| *id != host && found.phase == HostPhase::Living;
        if !self.is_living(host) || !(suspend || self.hosts.iter().any(other)) {
            return Err(Void::Draining(host));
        }
        self.enter(host, HostPhase::Draining);
        Ok(Applied::HostDraining(host))
    }

    fn end_draining(&mut self, host: HostId) -> Result<Applied, Void> {
        if !self.is_draining(host) {
            return Err(Void::Draining(host));
        }
        self.enter(host, HostPhase::Living);
        self.forget_failures();
        Ok(Applied::HostResumed(host))
    }

    fn begin_leaving(&mut self, host: HostId) -> Result<Applied, Void> {
        if !self.is_staying(host) {
            return Err(Void::NoHost(host));
        }
        self.enter(host, HostPhase::Leaving);
        Ok(Applied::HostLeaving(host))
    }

    /// Ends the task of that host and incarnation. `killed`: the task died of a signal from outside
    /// of the machine. `unasked`: no signal of the machine ended the task, on a host that stays.
    fn exit(
        &mut self,
        tid: Tid,
        (host, incarnation): (HostId, u32),
        status: ExitStatus,
        (killed, unasked): (bool, bool),
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let app = self.owned(tid, host, incarnation)?.app;
        if tid == app
            && let Some(epochs) = self.epochs.get_mut(&app)
        {
            let well = matches!(status, ExitStatus::Left(0) | ExitStatus::Code(0));
            epochs.finished = well && unasked;
        }
        match killed && self.goes_back_after_kill(app) {
            true => self.roll_back(app, Lost::Task(tid), applied),
            false => self.end(tid, status, applied),
        }
        Ok(())
    }

    /// Ends a move that was not committed: the task stays with its owner, in its next incarnation.
    fn stay(&mut self, tid: Tid, host: HostId, incarnation: u32) -> Result<Applied, Void> {
        let task = self.owned(tid, host, incarnation)?;
        task.incarnation += 1;
        let incarnation = task.incarnation;
        Ok(Applied::Stayed {
            tid,
            host,
            incarnation,
        })
    }

    /// Lets a task join or leave a group.
    fn change_member(
        &mut self,
        group: &str,
        tid: Tid,
        generation: u32,
        change: fn(&mut Groups, &str, Tid) -> Result<u64, Void>,
    ) -> Result<Applied, Void> {
        self.check_member(tid, generation)?;
        let version = change(&mut self.groups, group, tid)?;
        let group = group.to_owned();
        Ok(Applied::Group { group, version })
    }

    fn give_context(&mut self, tid: Tid, generation: u32) -> Result<Applied, Void> {
        self.check_member(tid, generation)?;
        if self.context >= limits::CONTEXTS_MAX {
            return Err(Void::Limit);
        }
        self.context += 1;
        let context = self.context;
        Ok(Applied::Context { tid, context })
    }

    fn join(&mut self, nonce: u64, facts: &HostFacts) -> Result<Applied, Void> {
        let fits = |text: &str, max| !text.is_empty() && text.len() <= max;
        if !fits(&facts.name, limits::NAME_MAX)
            || !fits(&facts.addr, limits::PATH_MAX)
            || !fits(&facts.arch, limits::NAME_MAX)
        {
            return Err(Void::Malformed);
        }
        if let Some(host) = self.host_of_nonce(nonce) {
            return Err(Void::JoinedBefore(host));
        }
        if let Some(host) = self.host_named(&facts.name) {
            return Err(Void::NameTaken(host));
        }
        let unlike = |host: &Host| host.facts.store_local != facts.store_local;
        if let Some((host, _)) = self.hosts().find(|(_, host)| unlike(host)) {
            return Err(Void::OtherStore(host));
        }
        let number = self.last_host.0.checked_add(1).ok_or(Void::Limit)?;
        if self.hosts().count() >= limits::HOSTS_LIVE_MAX {
            return Err(Void::Limit);
        }
        let host = HostId(number);
        self.last_host = host;
        let new = Host {
            facts: facts.clone(),
            nonce,
            phase: HostPhase::Living,
            entries: 0,
        };
        self.hosts.insert(host, new);
        self.forget_failures();
        Ok(Applied::HostJoined { host, nonce })
    }

    fn enter(&mut self, host: HostId, phase: HostPhase) {
        if let Some(found) = self.hosts.get_mut(&host) {
            found.phase = phase;
        }
    }

    /// Removes a host and ends its tasks. `how` is reported last.
    fn depart(
        &mut self,
        host: HostId,
        how: Applied,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let found = self.hosts.get_mut(&host).ok_or(Void::NoHost(host))?;
        if !found.is_present() {
            return Err(Void::NoHost(host));
        }
        found.phase = match how {
            Applied::HostDead(_) => HostPhase::Dead,
            _ => HostPhase::Gone,
        };
        self.lose_consoles(host);
        for app in self.going_back(host) {
            self.roll_back(app, Lost::Host(host), applied);
        }
        for tid in self.tasks_on(host).collect::<Vec<_>>() {
            self.end(tid, ExitStatus::HostLost, applied);
        }
        self.await_no_more(host, applied);
        self.remember_departed(host);
        applied.push(how);
        Ok(())
    }

    fn spawn(&mut self, record: &SpawnRecord) -> Result<(), Void> {
        let SpawnRecord {
            requester,
            request,
            host,
            ..
        } = *record;
        let last = record.first.checked_add(record.count.wrapping_sub(1));
        let indices_end = record.index.checked_add(record.count);
        if record.count == 0
            || record.count > limits::SPAWN_COUNT_MAX
            || record.first == 0
            || last.is_none_or(|last| last > Tid::SEQUENCE_MAX)
            || indices_end.is_none()
            || record.program.len() > limits::NAME_MAX
        {
            return Err(Void::Malformed);
        }
        if !self.is_living(host) {
            return Err(Void::NoHost(host));
        }
        if self.epochs(record.app).generation != record.generation {
            return Err(Void::Generation);
        }
        let mut numbered = (0..record.count).map(|i| {
            let tid = Tid::new(self.machine, host, record.first + i);
            (record.index + i, tid)
        });
        let born = |index| self.born.contains_key(&(requester, request, index));
        if numbered
            .clone()
            .any(|(index, tid)| born(index) || self.tasks.contains_key(&tid))
        {
            return Err(Void::BornBefore);
        }
        let app = record.app;
        let is_new = app.is_none() || numbered.clone().any(|(_, tid)| tid == app);
        if !is_new && !self.in_app.contains_key(&app) {
            return Err(Void::NoTask(app));
        }
        let count = record.count as usize;
        let on_host_max = self.hosts[&host].facts.tasks_max as usize;
        let alive = self.tasks.len() - self.ended.len();
        if self.task_count(host) + count > on_host_max || alive + count > limits::TASKS_LIVE_MAX {
            return Err(Void::Limit);
        }
        let program: Arc<str> = record.program.as_str().into();
        let tasks: Vec<_> = numbered.by_ref().collect();
        for (index, tid) in tasks {
            let task = Task {
                host,
                incarnation: 1,
                app: if record.app.is_none() {
                    tid
                } else {
                    record.app
                },
                requester,
                request,
                index,
                born: self.index,
                program: Arc::clone(&program),
                enrolled: record.enrolled,
                suspended: false,
                status: None,
            };
            if record.app.is_none() && record.console != HostId::NONE {
                self.consoles.insert(tid, record.console);
            }
            self.insert_task(tid, task);
        }
        Ok(())
    }

    /// Checks that a task which changes its groups lives, and is of this generation.
    fn check_member(&self, tid: Tid, generation: u32) -> Result<(), Void> {
        let task = self.living_task(tid).ok_or(Void::NoTask(tid))?;
        match self.epochs(task.app).generation == generation {
            true => Ok(()),
            false => Err(Void::Generation),
        }
    }

    /// The living task, if its owner and incarnation are `(host, incarnation)`.
    fn owned(&mut self, tid: Tid, host: HostId, incarnation: u32) -> Result<&mut Task, Void> {
        let task = self.tasks.get_mut(&tid).filter(|task| task.is_alive());
        let task = task.ok_or(Void::NoTask(tid))?;
        if (task.host, task.incarnation) != (host, incarnation) {
            return Err(Void::Moved(task.host, task.incarnation));
        }
        Ok(task)
    }

    /// Commits a move: the task belongs to `to`, in its next incarnation. With `suspended`, commits
    /// a suspension.
    fn relocate(
        &mut self,
        tid: Tid,
        (from, to): (HostId, HostId),
        incarnation: u32,
        suspended: bool,
    ) -> Result<Applied, Void> {
        // A task may be suspended and resumed on its own host, also while the host is being
        // drained.
        if !self.is_living(to) && from != to {
            return Err(Void::NoHost(to));
        }
        let app = self.owned(tid, from, incarnation)?.app;
        if suspended && (self.is_cut(app) || self.reviving.contains_key(&app)) {
            return Err(Void::Cut);
        }
        let task = self.owned(tid, from, incarnation)?;
        task.host = to;
        task.suspended = suspended;
        task.incarnation += 1;
        let incarnation = task.incarnation;
        remove_from(&mut self.on_host, from, &tid);
        self.on_host.entry(to).or_default().insert(tid);
        Ok(Applied::Relocated {
            tid,
            from,
            to,
            incarnation,
            suspended,
        })
    }

    fn coordinate(&mut self, app: Tid, host: HostId, term: u32) -> Result<Applied, Void> {
        if !self.in_app.contains_key(&app) {
            return Err(Void::NoTask(app));
        }
        if !self.is_present(host) {
            return Err(Void::NoHost(host));
        }
        let last = self.coordinator(app).map_or(0, |last| last.term);
        if last.checked_add(1) != Some(term) {
            return Err(Void::Term(last));
        }
        self.coordinators.insert(app, Coordinated { host, term });
        Ok(Applied::Coordinator { app, host, term })
    }

    fn cut(
        &mut self,
        app: Tid,
        epoch: u32,
        term: u32,
        stop: Option<Stop>,
    ) -> Result<Applied, Void> {
        if !self.in_app.contains_key(&app) {
            return Err(Void::NoTask(app));
        }
        let last = self.coordinator(app).map_or(0, |last| last.term);
        if last != term {
            return Err(Void::Term(last));
        }
        if !self.epochs.contains_key(&app) && self.epochs.len() >= limits::APPS_SAVED_MAX {
            return Err(Void::Limit);
        }
        if let Some(Stop::Suspend(how)) = stop {
            self.check_suspend(how)?;
        }
        if self.suspended_task(app).is_some() {
            return Err(Void::Cut);
        }
        let epochs = self.epochs.entry(app).or_default();
        let busy = epochs.cut.is_some() || self.reviving.contains_key(&app);
        if busy || epochs.epoch.checked_add(1) != Some(epoch) {
            return Err(Void::Cut);
        }
        epochs.epoch = epoch;
        epochs.cut = Some(CutUnderWay {
            term,
            stop,
            gone: false,
        });
        Ok(Applied::Cut {
            app,
            epoch,
            agreed: Some(Box::new(self.part(app))),
        })
    }

    fn let_go(&mut self, app: Tid, epoch: u32) -> Result<Applied, Void> {
        let epochs = self.epochs.get_mut(&app).ok_or(Void::Cut)?;
        match &mut epochs.cut {
            Some(cut) if epochs.epoch == epoch && cut.stop.is_none() && !cut.gone => {
                cut.gone = true;
                Ok(Applied::CutGone { app, epoch })
            }
            _ => Err(Void::Cut),
        }
    }

    fn set_policy(&mut self, app: Tid, policy: Policy) -> Result<Applied, Void> {
        if !self.in_app.contains_key(&app) {
            return Err(Void::NoTask(app));
        }
        check_policy(policy)?;
        if !self.epochs.contains_key(&app) && self.epochs.len() >= limits::APPS_SAVED_MAX {
            return Err(Void::Limit);
        }
        self.epochs.entry(app).or_default().policy = policy;
        Ok(Applied::Policy(app))
    }

    fn end_cut(
        &mut self,
        app: Tid,
        epoch: u32,
        saved: Option<u64>,
        applied: &mut Vec<Applied>,
    ) -> Result<(), Void> {
        let epochs = self.epochs.get_mut(&app).ok_or(Void::Cut)?;
        let Some(cut) = epochs.cut.filter(|_| epochs.epoch == epoch) else {
            return Err(Void::Cut);
        };
        epochs.cut = None;
        if let Some(cost_us) = saved {
            (epochs.saved, epochs.kills) = (epoch, 0);
            epochs.cost_us = cost_us;
        }
        let saved = saved.is_some();
        let stop = cut.stop.filter(|_| saved);
        if let Some(Stop::Suspend(how)) = stop {
            // The ends of the tasks remove records that the suspension needs.
            let suspension = self.suspension(app, how);
            self.suspended.insert(app, suspension);
        }
        if stop.is_some() {
            for tid in self.tasks_of(app).collect::<Vec<_>>() {
                self.end(tid, ExitStatus::Suspended, applied);
            }
        }
        applied.push(Applied::CutEnded { app, epoch, saved });
        if matches!(stop, Some(Stop::Suspend(_))) {
            applied.push(Applied::Suspended(app));
        }
        Ok(())
    }

    /// Ends a living task: it leaves its groups and is remembered for a while. If its application
    /// is being restarted, the restart fails and all its tasks end.
    pub(super) fn end(&mut self, tid: Tid, status: ExitStatus, applied: &mut Vec<Applied>) {
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| task.is_alive()) else {
            return;
        };
        task.status = Some(status);
        let (host, incarnation, app) = (task.host, task.incarnation, task.app);
        remove_from(&mut self.on_host, host, &tid);
        remove_from(&mut self.in_app, app, &tid);
        applied.push(Applied::Exited {
            tid,
            host,
            incarnation,
            status,
        });
        let left = self.groups.leave_all(tid).into_iter();
        applied.extend(left.map(|(group, version)| Applied::Group { group, version }));
        self.remember_ended(tid);
        let together = matches!(status, ExitStatus::Suspended | ExitStatus::RolledBack);
        if !together && self.reviving.contains_key(&app) {
            let failure = match status {
                ExitStatus::HostLost => Failure::HostLost,
                _ => Failure::Failed,
            };
            self.end_revival(app, failure, &format!("{tid} {status}"), applied);
        }
        self.forget_app(app, applied);
    }
}

/// Checks the bounds of a checkpoint policy.
pub(super) fn check_policy(policy: Policy) -> Result<(), Void> {
    match policy.refusal() {
        Some(_) => Err(Void::Malformed),
        None => Ok(()),
    }
}
