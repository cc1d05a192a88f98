//! The tables of the agreed state and their queries. Lookup tables by request, host and application
//! are derived from the table of tasks. Ended tasks and departed hosts stay in the tables for a
//! while, so that late requests get the right reply.

use super::{
    lives::{Recovering, Reviving, Suspension},
    records::{Coordinated, Epochs, Host, HostPhase, Task},
};
use crate::group::{Group, Groups};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_wire::{
    HostId, MachineId, Tid,
    agreed::{ExitStatus, HostFacts},
    checkpoint::{AgreedPart, AgreedTask, SavedGroup},
    limits,
};

/// The agreed state at one index of the log, as [`crate::agreed`] describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    pub(super) machine: MachineId,
    pub(super) index: u64,
    pub(super) halted: bool,
    /// The highest host number that was given to a host.
    pub(super) last_host: HostId,
    pub(super) hosts: BTreeMap<HostId, Host>,
    /// Departed hosts that are remembered, in the order of their departures.
    pub(super) departed: VecDeque<HostId>,
    pub(super) tasks: BTreeMap<Tid, Task>,
    /// Ended tasks that are remembered, in the order of their ends.
    pub(super) ended: VecDeque<Tid>,
    pub(super) groups: Groups,
    /// The last context that was given to a task.
    pub(super) context: u32,
    /// Coordinators of living applications.
    pub(super) coordinators: BTreeMap<Tid, Coordinated>,
    /// Epochs of living applications that had a cut, a policy or a restart.
    pub(super) epochs: BTreeMap<Tid, Epochs>,
    /// The highest generation that was given to an application.
    pub(super) generation: u32,
    /// The highest epoch of forgotten applications.
    pub(super) epoch: u32,
    /// Applications that are being restarted.
    pub(super) reviving: BTreeMap<Tid, Reviving>,
    /// Applications that recover, until they run again.
    pub(super) recovering: BTreeMap<Tid, Recovering>,
    /// Applications that are suspended, until they run again.
    pub(super) suspended: BTreeMap<Tid, Suspension>,
    /// Hosts of the consoles of living applications.
    pub(super) consoles: BTreeMap<Tid, HostId>,
    // Lookup tables, derived from the tasks.
    pub(super) born: BTreeMap<(Tid, u64, u32), Tid>,
    pub(super) on_host: BTreeMap<HostId, BTreeSet<Tid>>,
    pub(super) in_app: BTreeMap<Tid, BTreeSet<Tid>>,
}

impl Agreed {
    /// The state of a machine with its founder as the only host.
    pub fn founded(machine: MachineId, index: u64, facts: HostFacts, nonce: u64) -> Self {
        let founder = Host {
            facts,
            nonce,
            phase: HostPhase::Living,
            entries: 0,
        };
        Agreed {
            machine,
            index,
            halted: false,
            last_host: HostId::FOUNDER,
            hosts: BTreeMap::from([(HostId::FOUNDER, founder)]),
            departed: VecDeque::new(),
            tasks: BTreeMap::new(),
            ended: VecDeque::new(),
            groups: Groups::default(),
            context: 0,
            coordinators: BTreeMap::new(),
            epochs: BTreeMap::new(),
            generation: 0,
            epoch: 0,
            reviving: BTreeMap::new(),
            recovering: BTreeMap::new(),
            suspended: BTreeMap::new(),
            consoles: BTreeMap::new(),
            born: BTreeMap::new(),
            on_host: BTreeMap::new(),
            in_app: BTreeMap::new(),
        }
    }

    /// Id of the machine.
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Index of the last entry that was applied.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Whether the machine has been halted.
    pub fn halted(&self) -> bool {
        self.halted
    }

    /// A host, present or departed and remembered.
    pub fn host(&self, host: HostId) -> Option<&Host> {
        self.hosts.get(&host)
    }

    /// The hosts that are in the machine (living, draining or leaving), by number.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        let present = |(_, host): &(&HostId, &Host)| host.is_present();
        self.hosts
            .iter()
            .filter(present)
            .map(|(id, host)| (*id, host))
    }

    /// All hosts, departed and remembered hosts included, by number.
    pub fn remembered_hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts.iter().map(|(id, host)| (*id, host))
    }

    /// The highest host number that was given to a host.
    pub fn last_host(&self) -> HostId {
        self.last_host
    }

    /// Whether the host is in the machine (living, draining or leaving).
    pub fn is_present(&self, host: HostId) -> bool {
        self.host(host).is_some_and(Host::is_present)
    }

    /// Whether the host is in the machine, or joined after the index of this state.
    pub fn may_be_present(&self, host: HostId) -> bool {
        self.is_present(host) || host > self.last_host
    }

    /// Whether the host takes tasks.
    pub fn is_living(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| host.phase == HostPhase::Living)
    }

    /// Whether the host is in the machine and being drained.
    pub fn is_draining(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| host.phase == HostPhase::Draining)
    }

    /// Whether the host is in the machine and not leaving, so that it may vote.
    pub fn is_staying(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| matches!(host.phase, HostPhase::Living | HostPhase::Draining))
    }

    /// The host that gets second copies of the parts in the store of `host`: the next host that
    /// takes tasks, by number, and the first host after the last.
    pub fn second_host(&self, host: HostId) -> Option<HostId> {
        let living = |other: &HostId| *other != host && self.is_living(*other);
        let mut after = self.hosts.keys().copied().filter(|other| *other > host);
        let next = after.find(living);
        next.or_else(|| self.hosts.keys().copied().find(living))
    }

    /// The present host of that name.
    pub fn host_named(&self, name: &str) -> Option<HostId> {
        self.hosts()
            .find(|(_, host)| host.facts.name == name)
            .map(|(id, _)| id)
    }

    /// The present host that a user names: by its name, or, if no host has that name, by its number
    /// (`h3`).
    pub fn host_called(&self, text: &str) -> Option<HostId> {
        let numbered = || HostId::parse(text).filter(|host| self.is_present(*host));
        self.host_named(text).or_else(numbered)
    }

    /// The host that joined with that nonce, present or departed and remembered.
    pub fn host_of_nonce(&self, nonce: u64) -> Option<HostId> {
        let has_it = |(_, host): &(&HostId, &Host)| host.nonce == nonce;
        self.hosts.iter().find(has_it).map(|(id, _)| *id)
    }

    /// A task, living or ended and remembered.
    pub fn task(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// A living task.
    pub fn living_task(&self, tid: Tid) -> Option<&Task> {
        self.task(tid).filter(|task| task.is_alive())
    }

    /// All living tasks, by task id.
    pub fn living_tasks(&self) -> impl Iterator<Item = (Tid, &Task)> {
        let alive = |(_, task): &(&Tid, &Task)| task.is_alive();
        self.tasks
            .iter()
            .filter(alive)
            .map(|(tid, task)| (*tid, task))
    }

    /// The living tasks of an owner, by task id.
    pub fn tasks_on(&self, host: HostId) -> impl Iterator<Item = Tid> {
        self.on_host.get(&host).into_iter().flatten().copied()
    }

    /// Number of living tasks of an owner.
    pub fn task_count(&self, host: HostId) -> usize {
        self.on_host.get(&host).map_or(0, BTreeSet::len)
    }

    /// The living tasks of an application, by task id. The master is one of them while it lives.
    pub fn tasks_of(&self, app: Tid) -> impl Iterator<Item = Tid> {
        self.in_app.get(&app).into_iter().flatten().copied()
    }

    /// The first task of the application that is suspended alone.
    pub fn suspended_task(&self, app: Tid) -> Option<Tid> {
        let suspended = |tid: &Tid| self.living_task(*tid).is_some_and(|task| task.suspended);
        self.tasks_of(app).find(suspended)
    }

    /// The living applications, by the task ids of their masters.
    pub fn apps(&self) -> impl Iterator<Item = Tid> {
        self.in_app.keys().copied()
    }

    /// Whether the master of an application has failed, so that all its tasks are to end.
    pub fn is_forsaken(&self, app: Tid) -> bool {
        let status = self.task(app).and_then(|master| master.status);
        status.is_some_and(|status| status != ExitStatus::Left(0))
    }

    /// The last coordinator of a living application.
    pub fn coordinator(&self, app: Tid) -> Option<Coordinated> {
        self.coordinators.get(&app).copied()
    }

    /// Record of the checkpoints of an application.
    pub fn epochs(&self, app: Tid) -> Epochs {
        self.epochs.get(&app).copied().unwrap_or_default()
    }

    /// The agreed part of a checkpoint of an application, at this index.
    pub(super) fn part(&self, app: Tid) -> AgreedPart {
        let task = |tid: Tid| {
            let task = self.living_task(tid)?;
            let facts = self.host(task.host).map(|host| &host.facts);
            let place = facts.map(|facts| (facts.name.clone(), facts.arch.clone()));
            Some(AgreedTask {
                tid,
                host: task.host,
                place: place.unwrap_or_default(),
                incarnation: task.incarnation,
                requester: task.requester,
                request: task.request,
                index: task.index,
                program: task.program.to_string(),
            })
        };
        let is_of = |tid: Tid| self.living_task(tid).is_some_and(|task| task.app == app);
        let group = |(name, group): (&str, &Group)| {
            let members = group.members.iter().map(|(index, tid)| (*index, *tid));
            let members: Vec<(u32, Tid)> = members.filter(|(_, tid)| is_of(*tid)).collect();
            let (name, version) = (name.to_owned(), group.version);
            (!members.is_empty()).then_some(SavedGroup {
                name,
                version,
                members,
            })
        };
        let epochs = self.epochs(app);
        AgreedPart {
            machine: self.machine,
            app,
            generation: epochs.generation,
            epoch: epochs.epoch,
            index: self.index,
            tasks: self.tasks_of(app).filter_map(task).collect(),
            keepers: self.hosts().map(|(host, _)| host).collect(),
            groups: self.groups().filter_map(group).collect(),
            policy: epochs.policy,
            context: self.context,
        }
    }

    /// Whether a cut of the application is under way.
    pub fn is_cut(&self, app: Tid) -> bool {
        self.epochs(app).cut.is_some()
    }

    /// Whether the tasks of the application are frozen for a cut, or are being frozen.
    pub fn is_standing(&self, app: Tid) -> bool {
        self.epochs(app).cut.is_some_and(|cut| !cut.gone)
    }

    /// The host whose daemon must give an application a coordinator: the host of the last
    /// coordinator, or of the master if there was none. If that host is leaving or departed, it is
    /// the owner of the application's lowest task on a host that stays. If there is no such host, a
    /// leaving host is taken, because its tasks may have to be moved. A draining host keeps its
    /// coordinators.
    pub fn coordinating_host(&self, app: Tid) -> Option<HostId> {
        let master = || self.living_task(app).map(|master| master.host);
        let last = self.coordinator(app).map(|last| last.host).or_else(master);
        let places = || {
            let tasks = self.tasks_of(app).filter_map(|tid| self.task(tid));
            last.into_iter().chain(tasks.map(|task| task.host))
        };
        places()
            .find(|host| self.is_staying(*host))
            .or_else(|| places().find(|host| self.is_present(*host)))
    }

    /// The tasks that a request spawned, by index; ended and remembered tasks included.
    pub fn born(&self, requester: Tid, request: u64) -> impl Iterator<Item = (u32, Tid)> {
        let range = (requester, request, 0)..=(requester, request, u32::MAX);
        self.born
            .range(range)
            .map(|((_, _, index), tid)| (*index, *tid))
    }

    /// A group that has members.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The last version that was given to any group.
    pub fn group_version(&self) -> u64 {
        self.groups.version()
    }

    /// All groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter()
    }

    /// Adds a task to the tables. The task must not be in them.
    pub(super) fn insert_task(&mut self, tid: Tid, task: Task) {
        self.born
            .insert((task.requester, task.request, task.index), tid);
        if task.is_alive() {
            self.on_host.entry(task.host).or_default().insert(tid);
            self.in_app.entry(task.app).or_default().insert(tid);
        }
        let before = self.tasks.insert(tid, task);
        debug_assert!(before.is_none(), "{tid} was born twice");
    }

    /// Remembers an ended task. If there are too many, the task that ended first is forgotten.
    pub(super) fn remember_ended(&mut self, tid: Tid) {
        self.ended.push_back(tid);
        if self.ended.len() > limits::ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget_task(oldest);
        }
    }

    /// Forgets an ended task.
    pub(super) fn forget_task(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.remove(&tid) {
            self.born
                .remove(&(task.requester, task.request, task.index));
        }
    }

    /// Remembers a departed host. If there are too many, the host that departed first is forgotten.
    pub(super) fn remember_departed(&mut self, host: HostId) {
        self.departed.push_back(host);
        if self.departed.len() > limits::DEPARTED_MAX
            && let Some(oldest) = self.departed.pop_front()
        {
            self.hosts.remove(&oldest);
        }
    }
}

/// Removes `value` from the set at `key`, and the set once it is empty.
pub(super) fn remove_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Some(set) = sets.get_mut(&key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
