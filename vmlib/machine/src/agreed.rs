//! The agreed state: what every daemon of a machine holds alike.
//!
//! Hosts, tasks with their owners, applications and groups are one deterministic value, changed
//! only by the entries of one log ([`vm_wire::agreed::Entry`]). Every daemon applies the same
//! entries in the same order, so all of them are equal at the same index. How the log comes about
//! is the matter of [`crate::agreement`]; here is only what an entry does.
//!
//! Three rules make it safe to propose a change without knowing what others propose:
//!
//! - A change carries its own conditions ("task t3.17 at host 3, incarnation 1") and is *void* if
//!   they do not hold when it is applied: it changes nothing, and everybody sees so
//!   ([`Applied::Void`]).
//! - A daemon numbers its entries; one that was proposed twice is applied once.
//! - What a host proposed that was declared dead meanwhile is void as a whole.
//!
//! What is absent, on purpose: where a *leader* or a *voter* is (raft knows), leases (the leader
//! knows), who watches whom (the watcher's library knows), barriers (messages among members).
//!
//! Everything is bounded: living hosts and tasks, groups and memberships by the limits of
//! [`vm_wire::limits`]; of what has ended, the last [`limits::ENDED_MAX`] tasks and the last
//! [`limits::DEPARTED_MAX`] hosts are remembered. So a snapshot ([`Agreed::encode`]) always fits
//! its frame.

mod apply;
mod recover;
mod revive;
mod snapshot;
mod suspend;
#[cfg(test)]
mod tests;

pub use recover::{Lost, Recovering};
pub use revive::Reviving;
pub use snapshot::SnapshotError;
pub use suspend::{Suspension, Unsuspended};

use crate::group::{Group, Groups};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};
use vm_wire::{
    HostId, MachineId, Tid,
    agreed::{Change, ExitStatus, HostFacts, SpawnRecord},
    checkpoint::{AgreedPart, AgreedTask, Policy, SavedGroup, Stop},
    limits,
};

/// What an applied change did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// A host is new.
    HostJoined {
        /// The number it was given.
        host: HostId,
        /// What it drew at its start.
        nonce: u64,
    },
    /// A host is reached at another address.
    HostAddress(HostId),
    /// The host's tasks are to leave.
    HostDraining(HostId),
    /// The host takes tasks again.
    HostResumed(HostId),
    /// A planned leave began.
    HostLeaving(HostId),
    /// A planned leave is complete. The ends of tasks that still were there came just before.
    HostGone(HostId),
    /// A host was declared dead. The ends of its tasks came just before.
    HostDead(HostId),
    /// Tasks were born.
    Spawned(SpawnRecord),
    /// A task ended. The groups that it was in follow.
    Exited {
        /// The task.
        tid: Tid,
        /// Where it was.
        host: HostId,
        /// Its incarnation there.
        incarnation: u32,
        /// How it ended.
        status: ExitStatus,
    },
    /// A task moved, was suspended, or was resumed.
    Relocated {
        /// The task.
        tid: Tid,
        /// Its owner before.
        from: HostId,
        /// Its owner now.
        to: HostId,
        /// Its incarnation now.
        incarnation: u32,
        /// Whether it is suspended there.
        suspended: bool,
    },
    /// A task stayed: a move ended in doubt.
    Stayed {
        /// The task.
        tid: Tid,
        /// Its owner.
        host: HostId,
        /// Its incarnation now.
        incarnation: u32,
    },
    /// A group has new members, or fewer.
    Group {
        /// Its name.
        group: String,
        /// Its version now; never used before in this machine.
        version: u64,
    },
    /// An application has another coordinator.
    Coordinator {
        /// The application.
        app: Tid,
        /// Where its process is.
        host: HostId,
        /// Its term.
        term: u32,
    },
    /// A checkpoint of an application begins.
    Cut {
        /// The application.
        app: Tid,
        /// Its epoch from now on.
        epoch: u32,
        /// What was agreed about it then; not known where a later state was given at once.
        agreed: Option<Box<AgreedPart>>,
    },
    /// All its tasks stand, and go on.
    CutGone {
        /// The application.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
    },
    /// It has ended. The ends of the application's tasks came just before if it was stopped.
    CutEnded {
        /// The application.
        app: Tid,
        /// The epoch of the cut.
        epoch: u32,
        /// Whether it left a checkpoint.
        saved: bool,
    },
    /// Checkpoints of an application are made in another way.
    Policy(Tid),
    /// An application is brought back: its tasks are to be where the state says.
    Revived {
        /// The application.
        app: Tid,
        /// Its generation from now on.
        generation: u32,
    },
    /// It is back: all its tasks go on.
    Started {
        /// The application.
        app: Tid,
        /// Its generation.
        generation: u32,
        /// How it was brought back; not known where a later state was given at once.
        reviving: Option<Reviving>,
    },
    /// It is not brought back. The ends of its tasks came just before.
    Abandoned {
        /// The application.
        app: Tid,
        /// The generation that it would have had.
        generation: u32,
        /// Who had asked for it.
        asker: (HostId, u64),
        /// For people.
        why: String,
    },
    /// An application goes back to its last checkpoint, or has to be brought back once more. The ends
    /// of its tasks came just before.
    RolledBack(Tid),
    /// All of an application has ended, its master well: its checkpoints go.
    Finished {
        /// The application.
        app: Tid,
        /// Whose daemon removes them, where all hosts share a store.
        host: HostId,
    },
    /// An application that went back could not be brought back.
    GivenUp {
        /// The application.
        app: Tid,
        /// For people.
        why: String,
    },
    /// An application is suspended. The ends of its tasks and of the cut came just before.
    Suspended(Tid),
    /// It could not be resumed. If processes of its tasks stood, their ends came just before.
    NotResumed {
        /// The application.
        app: Tid,
        /// For people.
        why: String,
    },
    /// It is suspended no more.
    Unsuspended {
        /// The application.
        app: Tid,
        /// Why not.
        why: Unsuspended,
    },
    /// The machine ends.
    Halted,
    /// Nothing: the change's conditions did not hold.
    Void(Change, Void),
}

/// Why a change was void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Void {
    /// The machine has been halted.
    #[error("the machine has been halted")]
    Halted,
    /// The proposer is dead or has left.
    #[error("its proposer is not in the machine any more")]
    Proposer,
    /// A living host has that name.
    #[error("host {0} has that name")]
    NameTaken(HostId),
    /// Its store is not of the kind that this host's is: all share one, or each has its own.
    #[error("{0} has another kind of store")]
    OtherStore(HostId),
    /// The same daemon has joined before.
    #[error("that daemon has joined as {0}")]
    JoinedBefore(HostId),
    /// No such host, or it is not living.
    #[error("{0} takes no tasks")]
    NoHost(HostId),
    /// No such living task.
    #[error("{0} is not alive")]
    NoTask(Tid),
    /// The task is elsewhere, or of another incarnation.
    #[error("the task is on {0} with incarnation {1}")]
    Moved(HostId, u32),
    /// The request bore these tasks before.
    #[error("the request was carried out before")]
    BornBefore,
    /// A name is empty or too long, a number is out of its range.
    #[error("malformed")]
    Malformed,
    /// A limit of the machine or the host is reached.
    #[error("a limit is reached")]
    Limit,
    /// The application has, or had, a coordinator of another term.
    #[error("the coordinator's last term is {0}")]
    Term(u32),
    /// A cut is under way, or the one that is meant is not, or it is not its turn.
    #[error("another checkpoint is under way, or none")]
    Cut,
    /// What is to be brought back lives.
    #[error("{0} is alive")]
    Alive(Tid),
    /// A group that is to be brought back has members.
    #[error("a group of its name has members")]
    GroupTaken,
    /// No such application is being brought back.
    #[error("it is not being brought back, or was again")]
    Revival,
    /// No such application is suspended, or it is just being resumed.
    #[error("it is not suspended, or is just being resumed")]
    Suspension,
    /// It was asked in an earlier generation of the application.
    #[error("its application went back to a checkpoint meanwhile")]
    Generation,
    /// The host does not drain, or is the last one that takes tasks.
    #[error("{0} is not draining, or is the last host that takes tasks")]
    Draining(HostId),
    /// The task is in the group, or is not.
    #[error("no change of membership")]
    Member,
}

/// Where a host is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPhase {
    /// It takes tasks.
    Living,
    /// Its tasks are to leave, and it takes no new ones.
    Draining,
    /// It still runs tasks, but takes no new ones.
    Leaving,
    /// It has left as planned.
    Gone,
    /// It was declared dead.
    Dead,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it said of itself.
    pub facts: HostFacts,
    /// What it drew at its start.
    pub nonce: u64,
    /// Where it is in its life.
    pub phase: HostPhase,
    /// The number of its last entry that was applied.
    pub entries: u64,
}

impl Host {
    /// Whether it is in the machine, leaving or not.
    pub fn is_present(&self) -> bool {
        matches!(
            self.phase,
            HostPhase::Living | HostPhase::Draining | HostPhase::Leaving
        )
    }
}

/// A task, alive or remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its owner; after its end, where it was.
    pub host: HostId,
    /// Its incarnation there, from 1.
    pub incarnation: u32,
    /// Its application, named by its master's tid.
    pub app: Tid,
    /// Who asked for it: a task (its parent), or a daemon (then it is a master).
    pub asker: Tid,
    /// The asker's request number.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Index of the entry that bore it, or brought it back.
    pub born: u64,
    /// Last part of the program's path.
    pub program: Arc<str>,
    /// Whether the process was there before it became a task.
    pub enrolled: bool,
    /// Whether it is suspended alone: it has no process, and its owner knows its image in the store.
    /// Of one that has ended: whether it was.
    pub suspended: bool,
    /// How it ended.
    pub status: Option<ExitStatus>,
}

impl Task {
    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.status.is_none()
    }

    /// The task that spawned it; a master has none.
    pub fn parent(&self) -> Option<Tid> {
        (!self.asker.is_daemon()).then_some(self.asker)
    }
}

/// The coordinator of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coordinated {
    /// Where its process is, or was: that host may be gone.
    pub host: HostId,
    /// From 1; one higher with each that took the place of another.
    pub term: u32,
}

/// A cut that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutUnderWay {
    /// Of the coordinator that wants it.
    pub term: u32,
    /// The application ends with it, and how.
    pub stop: Option<Stop>,
    /// All tasks have stood, and go on.
    pub gone: bool,
}

/// What is agreed about the checkpoints of an application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs {
    /// Goes up when the application is brought back.
    pub generation: u32,
    /// Of the last cut; 0 before the first one.
    pub epoch: u32,
    /// That cut, if it is under way.
    pub cut: Option<CutUnderWay>,
    /// The epoch of the last checkpoint that was committed; 0 if there is none.
    pub saved: u32,
    /// What the application has lost for that, as its coordinator reckoned; 0 before the first one.
    /// Microseconds.
    pub cost_us: u64,
    /// When checkpoints are made by themselves.
    pub policy: Policy,
    /// How often it has gone back because a task was killed, since then.
    pub kills: u32,
    /// Its master has ended well, by itself: its checkpoints are of no use when all of it has ended.
    pub finished: bool,
}

/// The agreed state at one index of the log. See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    machine: MachineId,
    index: u64,
    halted: bool,
    /// The highest host number given so far.
    last_host: HostId,
    hosts: BTreeMap<HostId, Host>,
    /// Hosts that are not present any more, in the order in which they went.
    departed: VecDeque<HostId>,
    tasks: BTreeMap<Tid, Task>,
    /// Tasks that have ended and are remembered, in the order of their ends.
    ended: VecDeque<Tid>,
    groups: Groups,
    /// Of living applications.
    coordinators: BTreeMap<Tid, Coordinated>,
    /// Of living applications that were to be saved, or were brought back.
    epochs: BTreeMap<Tid, Epochs>,
    /// The highest generation that was given to an application.
    generation: u32,
    /// The highest epoch of applications that were forgotten.
    epoch: u32,
    /// Applications that are being brought back.
    reviving: BTreeMap<Tid, Reviving>,
    /// Applications that go back by themselves, until they run again.
    recovering: BTreeMap<Tid, Recovering>,
    /// Applications that are suspended, until they run again.
    suspended: BTreeMap<Tid, Suspension>,
    /// Where the output of living applications goes, of those that have a console.
    consoles: BTreeMap<Tid, HostId>,
    // What follows is derived from the tasks, for looking up.
    born: BTreeMap<(Tid, u64, u32), Tid>,
    on_host: BTreeMap<HostId, BTreeSet<Tid>>,
    in_app: BTreeMap<Tid, BTreeSet<Tid>>,
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

    /// The machine.
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

    /// A host, present or remembered.
    pub fn host(&self, host: HostId) -> Option<&Host> {
        self.hosts.get(&host)
    }

    /// The hosts that are in the machine (living or leaving), by number.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        let present = |(_, host): &(&HostId, &Host)| host.is_present();
        self.hosts
            .iter()
            .filter(present)
            .map(|(id, host)| (*id, host))
    }

    /// All hosts, also those that are gone and remembered, by number.
    pub fn remembered_hosts(&self) -> impl Iterator<Item = (HostId, &Host)> {
        self.hosts.iter().map(|(id, host)| (*id, host))
    }

    /// The highest host number given so far.
    pub fn last_host(&self) -> HostId {
        self.last_host
    }

    /// Whether the host is in the machine (living or leaving).
    pub fn is_present(&self, host: HostId) -> bool {
        self.host(host).is_some_and(Host::is_present)
    }

    /// Whether the host is in the machine, or this state does not know it yet.
    pub fn may_be_present(&self, host: HostId) -> bool {
        self.is_present(host) || host > self.last_host
    }

    /// Whether the host takes tasks.
    pub fn is_living(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| host.phase == HostPhase::Living)
    }

    /// Whether the host is in the machine, and its tasks are to leave.
    pub fn is_draining(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| host.phase == HostPhase::Draining)
    }

    /// Whether the host is in the machine and not on its way out: it may vote.
    pub fn is_staying(&self, host: HostId) -> bool {
        self.host(host)
            .is_some_and(|host| matches!(host.phase, HostPhase::Living | HostPhase::Draining))
    }

    /// The host that gets copies of what another one has in its store of checkpoints: the next one that
    /// takes tasks, by number, and after the last one the first.
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

    /// The present host that somebody means: by its name, or, if none has that, by its number as
    /// people see it (`h3`).
    pub fn host_called(&self, text: &str) -> Option<HostId> {
        let numbered = || HostId::parse(text).filter(|host| self.is_present(*host));
        self.host_named(text).or_else(numbered)
    }

    /// The host that joined with that nonce, present or remembered.
    pub fn host_of_nonce(&self, nonce: u64) -> Option<HostId> {
        let has_it = |(_, host): &(&HostId, &Host)| host.nonce == nonce;
        self.hosts.iter().find(has_it).map(|(id, _)| *id)
    }

    /// A task, alive or remembered.
    pub fn task(&self, tid: Tid) -> Option<&Task> {
        self.tasks.get(&tid)
    }

    /// A task that is alive.
    pub fn living_task(&self, tid: Tid) -> Option<&Task> {
        self.task(tid).filter(|task| task.is_alive())
    }

    /// All tasks that are alive, by tid.
    pub fn living_tasks(&self) -> impl Iterator<Item = (Tid, &Task)> {
        let alive = |(_, task): &(&Tid, &Task)| task.is_alive();
        self.tasks
            .iter()
            .filter(alive)
            .map(|(tid, task)| (*tid, task))
    }

    /// The tasks alive on a host, by tid.
    pub fn tasks_on(&self, host: HostId) -> impl Iterator<Item = Tid> {
        self.on_host.get(&host).into_iter().flatten().copied()
    }

    /// How many tasks are alive on a host.
    pub fn task_count(&self, host: HostId) -> usize {
        self.on_host.get(&host).map_or(0, BTreeSet::len)
    }

    /// The living tasks of an application, by tid; its master is among them while it lives.
    pub fn tasks_of(&self, app: Tid) -> impl Iterator<Item = Tid> {
        self.in_app.get(&app).into_iter().flatten().copied()
    }

    /// A task of the application that is suspended alone: the first one.
    pub fn suspended_task(&self, app: Tid) -> Option<Tid> {
        let suspended = |tid: &Tid| self.living_task(*tid).is_some_and(|task| task.suspended);
        self.tasks_of(app).find(suspended)
    }

    /// The applications that live, by their masters' tids.
    pub fn apps(&self) -> impl Iterator<Item = Tid> {
        self.in_app.keys().copied()
    }

    /// Whether the master of an application has ended, and not well: then all of it ends.
    pub fn is_forsaken(&self, app: Tid) -> bool {
        let status = self.task(app).and_then(|master| master.status);
        status.is_some_and(|status| status != ExitStatus::Left(0))
    }

    /// The last coordinator of a living application.
    pub fn coordinator(&self, app: Tid) -> Option<Coordinated> {
        self.coordinators.get(&app).copied()
    }

    /// What is agreed about the checkpoints of an application.
    pub fn epochs(&self, app: Tid) -> Epochs {
        self.epochs.get(&app).copied().unwrap_or_default()
    }

    /// What is agreed about an application now, to be saved.
    fn part(&self, app: Tid) -> AgreedPart {
        let task = |tid: Tid| {
            let task = self.living_task(tid)?;
            let facts = self.host(task.host).map(|host| &host.facts);
            let place = facts.map(|facts| (facts.name.clone(), facts.arch.clone()));
            Some(AgreedTask {
                tid,
                host: task.host,
                place: place.unwrap_or_default(),
                incarnation: task.incarnation,
                asker: task.asker,
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
        }
    }

    /// Whether a checkpoint of it is being made.
    pub fn is_cut(&self, app: Tid) -> bool {
        self.epochs(app).cut.is_some()
    }

    /// Whether its tasks stand still for that, or are about to.
    pub fn is_standing(&self, app: Tid) -> bool {
        self.epochs(app).cut.is_some_and(|cut| !cut.gone)
    }

    /// The host whose daemon has to see that an application has a coordinator: where the last one
    /// is, or the master if there was none yet; or, if that host is on its way out, where the
    /// application's lowest task is of those on hosts that are not. While there is no such host, one
    /// that leaves will do: its tasks may have to be moved. A host that drains keeps those it has.
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

    /// The tasks that a request bore, by index, also those that have ended and are remembered.
    pub fn born(&self, asker: Tid, request: u64) -> impl Iterator<Item = (u32, Tid)> {
        let range = (asker, request, 0)..=(asker, request, u32::MAX);
        self.born
            .range(range)
            .map(|((_, _, index), tid)| (*index, *tid))
    }

    /// A group, while it has members.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The last version that was given to a group, whichever.
    pub fn group_version(&self) -> u64 {
        self.groups.version()
    }

    /// All groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter()
    }

    /// Puts a task into the tables; it must not be there.
    fn insert_task(&mut self, tid: Tid, task: Task) {
        self.born
            .insert((task.asker, task.request, task.index), tid);
        if task.is_alive() {
            self.on_host.entry(task.host).or_default().insert(tid);
            self.in_app.entry(task.app).or_default().insert(tid);
        }
        let before = self.tasks.insert(tid, task);
        debug_assert!(before.is_none(), "{tid} was born twice");
    }

    /// Remembers that a task ended, and forgets the one that ended longest ago if there are too
    /// many.
    fn remember_ended(&mut self, tid: Tid) {
        self.ended.push_back(tid);
        if self.ended.len() > limits::ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget_task(oldest);
        }
    }

    /// Forgets a task that has ended: nothing is known of it but that it is not alive.
    fn forget_task(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.remove(&tid) {
            self.born.remove(&(task.asker, task.request, task.index));
        }
    }

    /// Likewise for a host that went.
    fn remember_departed(&mut self, host: HostId) {
        self.departed.push_back(host);
        if self.departed.len() > limits::DEPARTED_MAX
            && let Some(oldest) = self.departed.pop_front()
        {
            self.hosts.remove(&oldest);
        }
    }
}

/// Removes `value` from the set at `key`, and the set once it is empty.
fn remove_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: &V) {
    if let Some(set) = sets.get_mut(&key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
