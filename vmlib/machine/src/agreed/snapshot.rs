//! The agreed state as bytes, and the changes between two states when entries are missing.
//!
//! The encoded types ([`AgreedState`] and others) are separate from the live types. The encoded
//! types leave out the lookup tables, which are built anew, and hold each program name once.

use super::{
    Agreed, Applied, Coordinated, Epochs, Host, HostPhase, Lost, Recovering, Reviving, Suspension,
    Task,
};
use crate::group::{Group, Groups};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use vm_wire::{
    CheckpointId, CodecError, HostId, MachineId, RequestKey, Tid,
    agreed::{ExitStatus, HostFacts, SpawnRecord},
    checkpoint::Suspend,
    decode, encode, limits,
};

/// Layout of [`AgreedState`]; another number is refused.
const FORMAT: u16 = 10;

// The largest state fits its frame: at most 72 bytes and a program name for a task, 16 for a
// membership, the facts for a host, 24 for a coordinator and 16 for a console (an application has a
// living task), 130 for epochs, 64 for a restart and 32 for a recovery (a recovering application
// has epochs), 4 for each host that these wait for, 80 and a program name for a suspension.
const _: () = assert!(
    (limits::TASKS_LIVE_MAX + limits::ENDED_MAX) * (72 + limits::NAME_MAX)
        + limits::TASKS_LIVE_MAX * (24 + 16)
        + limits::TASKS_LIVE_MAX * 4
        + limits::APPS_SAVED_MAX * (130 + 64 + 32)
        + limits::APPS_SUSPENDED_MAX * (80 + limits::NAME_MAX)
        + limits::MEMBERSHIPS_MAX * 16
        + limits::GROUPS_MAX * (limits::NAME_MAX + 32)
        + (limits::HOSTS_LIVE_MAX + limits::DEPARTED_MAX)
            * (limits::PATH_MAX + 2 * limits::NAME_MAX + 64)
        < limits::SNAPSHOT_MAX
);

/// Reasons why bytes are no agreed state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes cannot be decoded.
    #[error("the snapshot of the agreed state cannot be read: {0}")]
    Codec(#[from] CodecError),
    /// The bytes have another layout.
    #[error("the snapshot of the agreed state has format {0}, this daemon reads {FORMAT}")]
    Format(u16),
    /// The records contradict each other.
    #[error("the snapshot of the agreed state contradicts itself: {0}")]
    Inconsistent(&'static str),
}

#[derive(Serialize, Deserialize)]
struct AgreedState {
    format: u16,
    machine: MachineId,
    index: u64,
    halted: bool,
    last_host: HostId,
    hosts: Vec<HostState>,
    departed: Vec<HostId>,
    programs: Vec<String>,
    tasks: Vec<TaskState>,
    ended: Vec<Tid>,
    group_version: u64,
    groups: Vec<GroupState>,
    context: u32,
    /// Application, host, term.
    coordinators: Vec<(Tid, HostId, u32)>,
    epochs: Vec<(Tid, Epochs)>,
    generation: u32,
    epoch: u32,
    reviving: Vec<RevivingState>,
    /// Application, loss, failures, hosts where processes of the previous generation may run.
    recovering: Vec<(Tid, Lost, u32, Vec<HostId>)>,
    consoles: Vec<(Tid, HostId)>,
    suspended: Vec<SuspensionState>,
}

#[derive(Serialize, Deserialize)]
struct SuspensionState {
    app: Tid,
    from: CheckpointId,
    how: Suspend,
    tasks: u32,
    program: String,
    console: HostId,
    generation: u32,
    failures: u32,
}

#[derive(Serialize, Deserialize)]
struct RevivingState {
    app: Tid,
    requester: (HostId, u64),
    from: CheckpointId,
    keep_files: bool,
    age_ms: u64,
    lost: Option<Lost>,
    awaited: Vec<HostId>,
    sources: Vec<(Tid, HostId)>,
}

#[derive(Serialize, Deserialize)]
struct HostState {
    host: HostId,
    facts: HostFacts,
    nonce: u64,
    phase: u8,
    entries: u64,
}

#[derive(Serialize, Deserialize)]
struct TaskState {
    tid: Tid,
    host: HostId,
    incarnation: u32,
    app: Tid,
    requester: Tid,
    request: u64,
    index: u32,
    born: u64,
    /// Index into `programs`.
    program: u32,
    enrolled: bool,
    suspended: bool,
    status: Option<ExitStatus>,
}

#[derive(Serialize, Deserialize)]
struct GroupState {
    name: String,
    version: u64,
    members: Vec<(u32, Tid)>,
}

/// Phases by the numbers that encode them.
const PHASES: [HostPhase; 5] = [
    HostPhase::Living,
    HostPhase::Leaving,
    HostPhase::Gone,
    HostPhase::Dead,
    HostPhase::Draining,
];

impl Agreed {
    /// Encodes the state, in at most [`limits::SNAPSHOT_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut programs = BTreeMap::new();
        let mut names = Vec::new();
        for task in self.tasks.values() {
            programs
                .entry(Arc::clone(&task.program))
                .or_insert_with(|| {
                    names.push(task.program.to_string());
                    names.len() as u32 - 1
                });
        }
        encode(&AgreedState {
            format: FORMAT,
            machine: self.machine,
            index: self.index,
            halted: self.halted,
            last_host: self.last_host,
            hosts: self
                .hosts
                .iter()
                .map(|(id, host)| host_state(*id, host))
                .collect(),
            departed: self.departed.iter().copied().collect(),
            programs: names,
            tasks: self
                .tasks
                .iter()
                .map(|(tid, task)| task_state(*tid, task, programs[&task.program]))
                .collect(),
            ended: self.ended.iter().copied().collect(),
            group_version: self.groups.version(),
            groups: self
                .groups
                .iter()
                .map(|(name, group)| GroupState {
                    name: name.to_owned(),
                    version: group.version,
                    members: group.members.iter().map(|(i, tid)| (*i, *tid)).collect(),
                })
                .collect(),
            context: self.context,
            coordinators: self
                .coordinators
                .iter()
                .map(|(app, last)| (*app, last.host, last.term))
                .collect(),
            epochs: self.epochs.iter().map(|(app, it)| (*app, *it)).collect(),
            generation: self.generation,
            epoch: self.epoch,
            reviving: self
                .reviving
                .iter()
                .map(|(app, it)| RevivingState {
                    app: *app,
                    requester: (it.requester.host, it.requester.number),
                    from: it.from,
                    keep_files: it.keep_files,
                    age_ms: it.age_ms,
                    lost: it.lost,
                    awaited: it.awaited.iter().copied().collect(),
                    sources: it.sources.iter().map(|(tid, host)| (*tid, *host)).collect(),
                })
                .collect(),
            recovering: self
                .recovering
                .iter()
                .map(|(app, it)| {
                    let lingering = it.lingering.iter().copied().collect();
                    (*app, it.lost, it.failures, lingering)
                })
                .collect(),
            consoles: self.consoles.iter().map(|(app, it)| (*app, *it)).collect(),
            suspended: self
                .suspended
                .iter()
                .map(|(app, it)| suspension_state(*app, it))
                .collect(),
        })
    }

    /// Decodes the bytes of [`Agreed::encode`].
    ///
    /// # Errors
    /// [`SnapshotError`] when the bytes are no agreed state, or records contradict each other.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let state: AgreedState = decode(bytes)?;
        if state.format != FORMAT {
            return Err(SnapshotError::Format(state.format));
        }
        let mut agreed = Agreed {
            machine: state.machine,
            index: state.index,
            halted: state.halted,
            last_host: state.last_host,
            hosts: BTreeMap::new(),
            departed: VecDeque::from(state.departed),
            tasks: BTreeMap::new(),
            ended: VecDeque::from(state.ended),
            groups: Groups::default(),
            context: 0,
            coordinators: BTreeMap::new(),
            epochs: BTreeMap::new(),
            generation: state.generation,
            epoch: state.epoch,
            reviving: BTreeMap::new(),
            recovering: BTreeMap::new(),
            suspended: BTreeMap::new(),
            consoles: BTreeMap::new(),
            born: BTreeMap::new(),
            on_host: BTreeMap::new(),
            in_app: BTreeMap::new(),
        };
        agreed.restore_hosts(state.hosts)?;
        agreed.restore_tasks(state.programs, state.tasks)?;
        agreed.groups = agreed.restored_groups(state.group_version, state.groups)?;
        agreed.context = state.context;
        for (app, lost, failures, lingering) in state.recovering {
            let recovering = Recovering {
                lost,
                failures,
                lingering: lingering.into_iter().collect(),
            };
            agreed.recovering.insert(app, recovering);
        }
        agreed.restore_consoles(state.consoles)?;
        agreed.restore_coordinators(state.coordinators)?;
        agreed.restore_epochs(state.epochs)?;
        agreed.restore_revivals(state.reviving)?;
        agreed.restore_suspensions(state.suspended)?;
        Ok(agreed)
    }

    fn restore_hosts(&mut self, hosts: Vec<HostState>) -> Result<(), SnapshotError> {
        for host in hosts {
            let phase = PHASES.get(usize::from(host.phase));
            let phase = *phase.ok_or(SnapshotError::Inconsistent("a host's phase"))?;
            let (facts, nonce, entries) = (host.facts, host.nonce, host.entries);
            let live = Host {
                facts,
                nonce,
                phase,
                entries,
            };
            self.hosts.insert(host.host, live);
        }
        Ok(())
    }

    fn restore_tasks(
        &mut self,
        programs: Vec<String>,
        tasks: Vec<TaskState>,
    ) -> Result<(), SnapshotError> {
        let programs: Vec<Arc<str>> = programs.into_iter().map(Arc::from).collect();
        for task in tasks {
            let program = programs.get(task.program as usize);
            let program = program.ok_or(SnapshotError::Inconsistent("a task's program"))?;
            if self.tasks.contains_key(&task.tid) {
                return Err(SnapshotError::Inconsistent("a task twice"));
            }
            let live = Task {
                host: task.host,
                incarnation: task.incarnation,
                app: task.app,
                requester: task.requester,
                request: task.request,
                index: task.index,
                born: task.born,
                program: Arc::clone(program),
                enrolled: task.enrolled,
                suspended: task.suspended,
                status: task.status,
            };
            self.insert_task(task.tid, live);
        }
        let has_ended = |tid: &Tid| self.task(*tid).is_some_and(|task| !task.is_alive());
        let ended = self.tasks.values().filter(|task| !task.is_alive()).count();
        if ended != self.ended.len() || !self.ended.iter().all(has_ended) {
            return Err(SnapshotError::Inconsistent("the tasks that have ended"));
        }
        Ok(())
    }

    fn restored_groups(
        &self,
        version: u64,
        states: Vec<GroupState>,
    ) -> Result<Groups, SnapshotError> {
        let mut groups = BTreeMap::new();
        for group in states {
            let members: BTreeMap<u32, Tid> = group.members.into_iter().collect();
            if members.values().any(|tid| self.living_task(*tid).is_none()) {
                return Err(SnapshotError::Inconsistent("a group's members"));
            }
            let version = group.version;
            groups.insert(group.name, Group { version, members });
        }
        Ok(Groups::restored(version, groups))
    }

    /// Whether an application has tasks, or recovers.
    fn is_known(&self, app: Tid) -> bool {
        self.in_app.contains_key(&app) || self.recovering.contains_key(&app)
    }

    fn restore_consoles(&mut self, consoles: Vec<(Tid, HostId)>) -> Result<(), SnapshotError> {
        for (app, console) in consoles {
            if !self.is_known(app) {
                return Err(SnapshotError::Inconsistent("a console's application"));
            }
            self.consoles.insert(app, console);
        }
        Ok(())
    }

    fn restore_coordinators(
        &mut self,
        coordinators: Vec<(Tid, HostId, u32)>,
    ) -> Result<(), SnapshotError> {
        for (app, host, term) in coordinators {
            if !self.is_known(app) {
                return Err(SnapshotError::Inconsistent("a coordinator's application"));
            }
            self.coordinators.insert(app, Coordinated { host, term });
        }
        Ok(())
    }

    fn restore_epochs(&mut self, epochs: Vec<(Tid, Epochs)>) -> Result<(), SnapshotError> {
        for (app, epochs) in epochs {
            if !self.is_known(app) {
                return Err(SnapshotError::Inconsistent("an application's epochs"));
            }
            self.epochs.insert(app, epochs);
        }
        let has_epochs = |app: &Tid| self.epochs.contains_key(app);
        if !self.recovering.keys().all(has_epochs) {
            return Err(SnapshotError::Inconsistent("an application that goes back"));
        }
        Ok(())
    }

    fn restore_revivals(&mut self, revivals: Vec<RevivingState>) -> Result<(), SnapshotError> {
        for it in revivals {
            let known = self.epochs.contains_key(&it.app);
            if !known || it.awaited.is_empty() {
                return Err(SnapshotError::Inconsistent("an application's revival"));
            }
            let reviving = Reviving {
                requester: RequestKey::new(it.requester.0, it.requester.1),
                from: it.from,
                keep_files: it.keep_files,
                age_ms: it.age_ms,
                lost: it.lost,
                awaited: it.awaited.into_iter().collect(),
                sources: it.sources.into_iter().collect(),
            };
            self.reviving.insert(it.app, reviving);
        }
        Ok(())
    }

    fn restore_suspensions(
        &mut self,
        suspensions: Vec<SuspensionState>,
    ) -> Result<(), SnapshotError> {
        for it in suspensions {
            let app = it.app;
            let runs = self.in_app.contains_key(&app) && !self.reviving.contains_key(&app);
            if runs || self.recovering.contains_key(&app) {
                return Err(SnapshotError::Inconsistent("an application's suspension"));
            }
            self.suspended.insert(app, suspension(it));
        }
        Ok(())
    }

    /// The changes between this state and a later state, for a daemon that lacks the entries
    /// between them. Tasks, hosts and cuts that appeared and ended in between are left out. The
    /// order is: hosts that joined, spawns, moves, ends, restarts, groups, coordinators, hosts that
    /// left. The earlier tasks of a restarted application are reported as ended.
    pub fn changes_to(&self, later: &Agreed) -> Vec<Applied> {
        debug_assert!(self.index <= later.index);
        let mut changes = Vec::new();
        self.cuts_ended(later, &mut changes);
        // Cuts come first: the other changes of this list are reported after the cut.
        for (&app, it) in &later.epochs {
            let (before, epoch) = (self.epochs(app), it.epoch);
            let cut = it.cut.is_some() && epoch != before.epoch;
            let agreed = None;
            changes.extend(cut.then_some(Applied::Cut { app, epoch, agreed }));
            let gone = it.cut.is_some_and(|cut| cut.gone);
            let new = epoch != before.epoch || before.cut.is_some_and(|cut| !cut.gone);
            changes.extend((gone && new).then_some(Applied::CutGone { app, epoch }));
        }
        let news = later
            .hosts
            .iter()
            .filter(|(id, _)| !self.hosts.contains_key(id));
        changes.extend(news.map(|(host, new)| Applied::HostJoined {
            host: *host,
            nonce: new.nonce,
        }));
        let moved_to = |(id, host): &(HostId, &Host)| {
            let before = self.host(*id);
            before.is_some_and(|before| before.facts.addr != host.facts.addr)
        };
        let readdressed = later.hosts().filter(moved_to);
        changes.extend(readdressed.map(|(id, _)| Applied::HostAddress(id)));
        let revived = self.revived_in(later);
        let lived_on = |task: &Task| !revived.contains(&task.app);
        for (tid, task) in later
            .tasks
            .iter()
            .filter(|(tid, task)| !self.tasks.contains_key(tid) && lived_on(task))
        {
            changes.push(Applied::Spawned(record_of(later, *tid, task)));
        }
        for (tid, task) in later.tasks.iter().filter(|(_, task)| lived_on(task)) {
            changes.extend(moved(*tid, self.task(*tid), task));
        }
        for (tid, task) in later.tasks.iter().filter(|(_, task)| !task.is_alive()) {
            if self.task(*tid).is_none_or(Task::is_alive) {
                changes.push(exited(*tid, task, task.status));
            }
        }
        let gone = |(tid, task): &(Tid, &Task)| later.task(*tid).is_none() || !lived_on(task);
        for (tid, task) in self.living_tasks().filter(gone) {
            if later.task(tid).is_none_or(Task::is_alive) {
                changes.push(exited(tid, task, None));
            }
        }
        self.revivals_to(later, &mut changes);
        self.suspensions_to(later, &mut changes);
        let policy =
            |(app, it): (&Tid, &Epochs)| (self.epochs(*app).policy != it.policy).then_some(*app);
        let policies = later.epochs.iter().filter_map(policy);
        changes.extend(policies.map(Applied::Policy));
        for (name, group) in later.groups.iter() {
            if self
                .group(name)
                .is_none_or(|before| before.version != group.version)
            {
                let (group, version) = (name.to_owned(), group.version);
                changes.push(Applied::Group { group, version });
            }
        }
        for (name, _) in self
            .groups
            .iter()
            .filter(|(name, _)| later.group(name).is_none())
        {
            let (group, version) = (name.to_owned(), later.groups.version());
            changes.push(Applied::Group { group, version });
        }
        for (&app, &Coordinated { host, term }) in &later.coordinators {
            if self.coordinator(app).is_none_or(|last| last.term != term) {
                changes.push(Applied::Coordinator { app, host, term });
            }
        }
        for (id, host) in &later.hosts {
            let before = self.host(*id).map(|host| host.phase);
            changes.extend(match host.phase {
                phase if Some(phase) == before => None,
                HostPhase::Living if before == Some(HostPhase::Draining) => {
                    Some(Applied::HostResumed(*id))
                }
                HostPhase::Living => None,
                HostPhase::Draining => Some(Applied::HostDraining(*id)),
                HostPhase::Leaving => Some(Applied::HostLeaving(*id)),
                HostPhase::Gone => Some(Applied::HostGone(*id)),
                HostPhase::Dead => Some(Applied::HostDead(*id)),
            });
        }
        let forgotten = self.hosts().filter(|(id, _)| later.host(*id).is_none());
        changes.extend(forgotten.map(|(id, _)| Applied::HostDead(id)));
        if later.halted && !self.halted {
            changes.push(Applied::Halted);
        }
        changes
    }
}

impl Agreed {
    /// The cuts that are under way in this state and not in the later state.
    fn cuts_ended(&self, later: &Agreed, changes: &mut Vec<Applied>) {
        for (&app, before) in &self.epochs {
            let now = later.epochs(app);
            let still = now.cut.is_some() && now.epoch == before.epoch;
            if before.cut.is_some() && !still {
                changes.push(Applied::CutEnded {
                    app,
                    epoch: before.epoch,
                    saved: now.saved == before.epoch,
                });
            }
        }
    }
}

fn host_state(host: HostId, live: &Host) -> HostState {
    let phase = PHASES.iter().position(|phase| *phase == live.phase);
    HostState {
        host,
        facts: live.facts.clone(),
        nonce: live.nonce,
        phase: phase.expect("every phase is in the table") as u8,
        entries: live.entries,
    }
}

fn suspension_state(app: Tid, live: &Suspension) -> SuspensionState {
    SuspensionState {
        app,
        from: live.from,
        how: live.how,
        tasks: live.tasks,
        program: live.program.to_string(),
        console: live.console,
        generation: live.generation,
        failures: live.failures,
    }
}

fn suspension(state: SuspensionState) -> Suspension {
    Suspension {
        from: state.from,
        how: state.how,
        tasks: state.tasks,
        program: state.program.into(),
        console: state.console,
        generation: state.generation,
        failures: state.failures,
    }
}

fn task_state(tid: Tid, task: &Task, program: u32) -> TaskState {
    TaskState {
        tid,
        host: task.host,
        incarnation: task.incarnation,
        app: task.app,
        requester: task.requester,
        request: task.request,
        index: task.index,
        born: task.born,
        program,
        enrolled: task.enrolled,
        suspended: task.suspended,
        status: task.status,
    }
}

/// The spawn record of one task, as an entry of its own would have it.
fn record_of(state: &Agreed, tid: Tid, task: &Task) -> SpawnRecord {
    SpawnRecord {
        requester: task.requester,
        request: task.request,
        host: tid.host(),
        index: task.index,
        first: tid.sequence(),
        count: 1,
        app: if task.app == tid { Tid::NONE } else { task.app },
        program: task.program.to_string(),
        enrolled: task.enrolled,
        generation: state.epochs(task.app).generation,
        console: state.console_of(task.app),
    }
}

/// The change of a task's owner or incarnation; `before` is `None` for a new task.
fn moved(tid: Tid, before: Option<&Task>, now: &Task) -> Option<Applied> {
    let (host, incarnation) = before.map_or((tid.host(), 1), |task| (task.host, task.incarnation));
    if incarnation == now.incarnation {
        return None;
    }
    let incarnation = now.incarnation;
    let suspended = now.suspended;
    let stayed = host == now.host && before.is_some_and(|task| task.suspended) == suspended;
    Some(if stayed {
        Applied::Stayed {
            tid,
            host,
            incarnation,
        }
    } else {
        Applied::Relocated {
            tid,
            from: host,
            to: now.host,
            incarnation,
            suspended,
        }
    })
}

/// The end of a task. The status of a forgotten task is unknown and reported as a lost host.
fn exited(tid: Tid, task: &Task, status: Option<ExitStatus>) -> Applied {
    Applied::Exited {
        tid,
        host: task.host,
        incarnation: task.incarnation,
        status: status.unwrap_or(ExitStatus::HostLost),
    }
}
