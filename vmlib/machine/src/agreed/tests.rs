mod suspend;

use super::*;
use std::collections::BTreeMap;
use vm_wire::{
    CheckpointId, HostId, MachineId, RequestKey, Tid,
    agreed::{Change, Entry, ExitStatus, HostFacts, Revival, RevivedTask, SpawnRecord},
    checkpoint::{Policy, SavedGroup},
    limits,
};

const MACHINE: MachineId = MachineId::from_bits(0xbeef);

fn facts(name: &str) -> HostFacts {
    HostFacts {
        name: name.to_owned(),
        addr: format!("{name}:1"),
        cpus: 2,
        tasks_max: 10,
        arch: "any".to_owned(),
        store_local: false,
    }
}

/// A machine whose founder applies changes, each in an entry of its own.
struct Machine {
    state: Agreed,
    entries: u64,
}

impl Machine {
    /// Hosts 1 and 2; tasks t1.1, t1.2 (of one request, master t1.1), t2.1.
    fn new() -> Self {
        let mut machine = Machine {
            state: Agreed::founded(MACHINE, 1, facts("a"), 1),
            entries: 0,
        };
        machine.join(2, "b");
        machine.apply(spawn(1, 1, 2, t(1, 1)));
        machine.apply(spawn(2, 1, 1, t(1, 1)));
        machine
    }

    fn join(&mut self, nonce: u64, name: &str) -> Vec<Applied> {
        let facts = facts(name);
        self.apply(Change::HostJoin { nonce, facts })
    }

    fn apply(&mut self, change: Change) -> Vec<Applied> {
        self.entries += 1;
        let entry = Entry {
            proposer: HostId(1),
            number: self.entries,
            changes: vec![change],
        };
        self.state.apply(self.state.index() + 1, &entry)
    }

    fn void(&mut self, change: Change) -> Void {
        match self.apply(change).as_slice() {
            [Applied::Void(_, why)] => *why,
            other => panic!("not void: {other:?}"),
        }
    }
}

fn t(host: u16, sequence: u32) -> Tid {
    Tid::new(MACHINE, HostId(host), sequence)
}

fn spawn(host: u16, first: u32, count: u32, app: Tid) -> Change {
    Change::Spawn(SpawnRecord {
        requester: Tid::daemon(MACHINE, HostId(host)),
        request: u64::from(first),
        host: HostId(host),
        index: 0,
        first,
        count,
        app,
        program: "work".to_owned(),
        enrolled: false,
        generation: 0,
        console: HostId::NONE,
    })
}

fn exit(tid: Tid, host: u16, incarnation: u32) -> Change {
    Change::Exit {
        tid,
        host: HostId(host),
        incarnation,
        status: ExitStatus::Left(0),
        killed: false,
        unasked: true,
    }
}

fn relocate(tid: Tid, from: u16, to: u16, incarnation: u32) -> Change {
    Change::Relocate {
        tid,
        from: HostId(from),
        to: HostId(to),
        incarnation,
        suspended: false,
    }
}

fn group(name: &str, tid: Tid, join: bool) -> Change {
    let group = name.to_owned();
    match join {
        true => Change::GroupJoin {
            group,
            tid,
            generation: 0,
        },
        false => Change::GroupLeave {
            group,
            tid,
            generation: 0,
        },
    }
}

#[test]
fn an_entry_is_applied_once_however_often_it_is_in_the_log() {
    let mut state = Agreed::founded(MACHINE, 1, facts("a"), 1);
    let entry = Entry {
        proposer: HostId(1),
        number: 1,
        changes: vec![spawn(1, 1, 1, Tid::NONE)],
    };
    assert_eq!(state.apply(2, &entry).len(), 1);
    assert_eq!(state.apply(3, &entry), []);
    assert_eq!((state.index(), state.task_count(HostId(1))), (3, 1));
}

#[test]
fn a_void_change_does_not_stop_the_others_of_its_entry() {
    let mut state = Agreed::founded(MACHINE, 1, facts("a"), 1);
    let entry = Entry {
        proposer: HostId(1),
        number: 1,
        changes: vec![exit(t(1, 1), 1, 1), spawn(1, 1, 1, Tid::NONE)],
    };
    let applied = state.apply(2, &entry);
    assert!(matches!(applied[0], Applied::Void(_, Void::NoTask(_))));
    assert!(matches!(applied[1], Applied::Spawned(_)));
}

#[test]
fn a_join_asked_twice_is_one_host_and_a_name_is_held_by_one() {
    let mut machine = Machine::new();
    let join = |nonce, name| Change::HostJoin {
        nonce,
        facts: facts(name),
    };
    assert_eq!(machine.void(join(2, "b")), Void::JoinedBefore(HostId(2)));
    assert_eq!(machine.void(join(3, "b")), Void::NameTaken(HostId(2)));
    machine.apply(Change::HostDead(HostId(2)));
    // Host numbers are never used again.
    let host = HostId(3);
    assert_eq!(
        machine.join(4, "b"),
        [Applied::HostJoined { host, nonce: 4 }]
    );
}

#[test]
fn a_host_is_called_by_its_name_or_else_by_its_number() {
    let mut machine = Machine::new();
    machine.join(3, "h1");
    let called = |machine: &Machine, text: &str| machine.state.host_called(text);
    assert_eq!(called(&machine, "b"), Some(HostId(2)));
    assert_eq!(called(&machine, "h2"), Some(HostId(2)));
    assert_eq!(called(&machine, "h1"), Some(HostId(3)), "the name wins");
    assert_eq!(called(&machine, "h4"), None);
    machine.apply(Change::HostDead(HostId(2)));
    assert_eq!(called(&machine, "h2"), None);
}

#[test]
fn what_a_dead_host_proposed_is_void_as_a_whole() {
    let mut machine = Machine::new();
    machine.apply(Change::HostDead(HostId(2)));
    let entry = Entry {
        proposer: HostId(2),
        number: 1,
        changes: vec![Change::Halt],
    };
    let applied = machine.state.apply(machine.state.index() + 1, &entry);
    assert_eq!(applied, [Applied::Void(Change::Halt, Void::Proposer)]);
    assert!(!machine.state.halted());
}

#[test]
fn with_its_host_a_task_ends_and_leaves_its_groups() {
    let mut machine = Machine::new();
    machine.apply(group("g", t(2, 1), true));
    let applied = machine.apply(Change::HostDead(HostId(2)));
    assert!(matches!(
        applied.as_slice(),
        [
            Applied::Exited {
                status: ExitStatus::HostLost,
                ..
            },
            Applied::Group { .. },
            Applied::HostDead(HostId(2)),
        ]
    ));
    assert!(machine.state.group("g").is_none());
    assert_eq!(
        machine.state.tasks_of(t(1, 1)).collect::<Vec<_>>(),
        [t(1, 1), t(1, 2)]
    );
}

#[test]
fn a_request_bears_its_tasks_once_and_remembers_them_by_index() {
    let mut machine = Machine::new();
    let daemon = Tid::daemon(MACHINE, HostId(1));
    assert_eq!(machine.void(spawn(1, 1, 2, Tid::NONE)), Void::BornBefore);
    machine.apply(exit(t(1, 2), 1, 1));
    let born: Vec<_> = machine.state.born(daemon, 1).collect();
    assert_eq!(born, [(0, t(1, 1)), (1, t(1, 2))]);
    assert_eq!(machine.void(spawn(2, 2, 10, Tid::NONE)), Void::Limit);
    machine.apply(Change::HostLeaving(HostId(2)));
    assert_eq!(
        machine.void(spawn(2, 2, 1, Tid::NONE)),
        Void::NoHost(HostId(2))
    );
}

#[test]
fn of_the_entries_that_end_a_move_the_first_wins() {
    let mut machine = Machine::new();
    machine.apply(relocate(t(1, 2), 1, 2, 1));
    let late = Change::Stay {
        tid: t(1, 2),
        host: HostId(1),
        incarnation: 1,
    };
    assert_eq!(machine.void(late), Void::Moved(HostId(2), 2));
    assert_eq!(machine.void(exit(t(1, 2), 1, 1)), Void::Moved(HostId(2), 2));
    assert_eq!(
        machine.state.tasks_on(HostId(2)).collect::<Vec<_>>(),
        [t(1, 2), t(2, 1)]
    );

    let stay = Change::Stay {
        tid: t(2, 1),
        host: HostId(2),
        incarnation: 1,
    };
    machine.apply(stay);
    assert_eq!(
        machine.void(relocate(t(2, 1), 2, 1, 1)),
        Void::Moved(HostId(2), 2)
    );
    machine.apply(exit(t(2, 1), 2, 2));
    assert_eq!(
        machine.void(relocate(t(2, 1), 2, 1, 2)),
        Void::NoTask(t(2, 1))
    );
}

#[test]
fn members_get_the_lowest_free_instance_and_versions_are_never_used_again() {
    let mut machine = Machine::new();
    for tid in [t(1, 1), t(1, 2), t(2, 1)] {
        machine.apply(group("g", tid, true));
    }
    machine.apply(group("g", t(1, 1), false));
    assert_eq!(machine.void(group("g", t(1, 2), true)), Void::Member);
    machine.apply(group("g", t(1, 1), true));
    let found = machine.state.group("g").expect("it has members");
    assert_eq!(
        found.members,
        BTreeMap::from([(0, t(1, 1)), (1, t(1, 2)), (2, t(2, 1))])
    );
    assert_eq!((found.version, found.instance(t(2, 1))), (5, Some(2)));
    for tid in [t(1, 1), t(1, 2), t(2, 1)] {
        machine.apply(group("g", tid, false));
    }
    machine.apply(group("g", t(1, 1), true));
    assert_eq!(machine.state.group("g").map(|group| group.version), Some(9));
}

#[test]
fn after_a_halt_everything_is_void() {
    let mut machine = Machine::new();
    assert_eq!(machine.apply(Change::Halt), [Applied::Halted]);
    assert_eq!(machine.void(exit(t(1, 1), 1, 1)), Void::Halted);
}

#[test]
fn only_the_last_ended_tasks_are_remembered() {
    let mut machine = Machine::new();
    let last = limits::ENDED_MAX as u32 + 3;
    for sequence in 3..=last {
        machine.apply(spawn(1, sequence, 1, Tid::NONE));
        machine.apply(exit(t(1, sequence), 1, 1));
    }
    assert!(machine.state.task(t(1, 3)).is_none());
    assert!(
        machine
            .state
            .task(t(1, 4))
            .is_some_and(|task| !task.is_alive())
    );
    assert_eq!(machine.state.living_tasks().count(), 3);
}

#[test]
fn a_snapshot_is_the_state() {
    let mut machine = Machine::new();
    machine.apply(group("g", t(2, 1), true));
    machine.apply(relocate(t(1, 2), 1, 2, 1));
    machine.apply(exit(t(1, 1), 1, 1));
    machine.apply(Change::HostLeaving(HostId(2)));
    let bytes = machine.state.encode();
    assert_eq!(Agreed::decode(&bytes), Ok(machine.state));
    assert!(Agreed::decode(&bytes[1..]).is_err());
}

#[test]
fn a_snapshot_in_the_place_of_entries_tells_what_they_did() {
    let mut machine = Machine::new();
    machine.apply(group("old", t(1, 2), true));
    let before = machine.state.clone();
    machine.join(3, "c");
    machine.apply(spawn(2, 2, 1, t(1, 1)));
    machine.apply(relocate(t(1, 2), 1, 2, 1));
    machine.apply(exit(t(1, 1), 1, 1));
    machine.apply(group("old", t(1, 2), false));
    machine.apply(group("new", t(1, 2), true));
    machine.apply(Change::HostDead(HostId(2)));
    let tids = |status| {
        move |applied: &Applied| match applied {
            Applied::Exited {
                tid, status: found, ..
            } if *found == status => Some(*tid),
            _ => None,
        }
    };
    let changes = before.changes_to(&machine.state);
    let lost: Vec<_> = changes
        .iter()
        .filter_map(tids(ExitStatus::HostLost))
        .collect();
    let left: Vec<_> = changes
        .iter()
        .filter_map(tids(ExitStatus::Left(0)))
        .collect();
    assert_eq!(
        (left, lost),
        (vec![t(1, 1)], vec![t(1, 2), t(2, 1), t(2, 2)])
    );
    let (host, nonce) = (HostId(3), 3);
    assert_eq!(changes.first(), Some(&Applied::HostJoined { host, nonce }));
    assert_eq!(changes.last(), Some(&Applied::HostDead(HostId(2))));
    let (tid, from, to) = (t(1, 2), HostId(1), HostId(2));
    let moved = Applied::Relocated {
        tid,
        from,
        to,
        incarnation: 2,
        suspended: false,
    };
    assert!(changes.contains(&moved));
    let gone =
        |applied: &Applied| matches!(applied, Applied::Group { group, .. } if group == "old");
    assert!(changes.iter().any(gone));
    assert_eq!(machine.state.changes_to(&machine.state), []);
}

fn coordinator(host: u16, term: u32) -> Change {
    Change::Coordinator {
        app: t(1, 1),
        host: HostId(host),
        term,
    }
}

#[test]
fn a_coordinator_follows_the_last_one_by_its_term_or_is_void() {
    let mut machine = Machine::new();
    let (app, host, term) = (t(1, 1), HostId(2), 1);
    assert_eq!(machine.void(coordinator(1, 2)), Void::Term(0));
    let applied = machine.apply(coordinator(2, 1));
    assert_eq!(applied, [Applied::Coordinator { app, host, term }]);
    assert_eq!(machine.void(coordinator(1, 1)), Void::Term(1));
    assert_eq!(machine.void(coordinator(1, 3)), Void::Term(1));
    machine.apply(coordinator(1, 2));
    let last = Coordinated {
        host: HostId(1),
        term: 2,
    };
    assert_eq!(machine.state.coordinator(app), Some(last));
    assert_eq!(machine.void(coordinator(9, 3)), Void::NoHost(HostId(9)));
    let no_master = Change::Coordinator {
        app: t(1, 2),
        host: HostId(1),
        term: 1,
    };
    assert_eq!(machine.void(no_master), Void::NoTask(t(1, 2)));
}

#[test]
fn the_host_of_the_lowest_task_has_to_see_to_a_coordinator_whose_host_goes() {
    let mut machine = Machine::new();
    let app = t(1, 1);
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(1)));
    machine.join(3, "c");
    machine.apply(relocate(t(1, 1), 1, 3, 1));
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(3)));
    machine.apply(relocate(t(1, 1), 3, 1, 2));
    machine.apply(coordinator(3, 1));
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(3)));
    // A draining host keeps the coordinator.
    machine.apply(Change::HostDraining {
        host: HostId(3),
        suspend: false,
    });
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(3)));
    machine.apply(Change::HostLeaving(HostId(3)));
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(1)));
    machine.apply(exit(t(1, 1), 1, 3));
    machine.apply(relocate(t(1, 2), 1, 2, 1));
    let mut leaving = machine.state.clone();
    let entry = Entry {
        proposer: HostId(1),
        number: 99,
        changes: vec![Change::HostLeaving(HostId(2))],
    };
    leaving.apply(leaving.index() + 1, &entry);
    assert_eq!(leaving.coordinating_host(app), Some(HostId(3)));
    assert_eq!(machine.state.coordinating_host(app), Some(HostId(2)));
    machine.apply(coordinator(1, 2));
    let before = machine.state.clone();
    machine.apply(exit(t(1, 2), 2, 2));
    machine.apply(exit(t(2, 1), 2, 1));
    assert_eq!(machine.state.coordinator(app), None);
    assert_eq!(machine.state.coordinating_host(app), None);
    let bytes = before.encode();
    assert_eq!(Agreed::decode(&bytes), Ok(before));
}

#[test]
fn a_snapshot_in_the_place_of_entries_tells_of_the_last_coordinator() {
    let mut machine = Machine::new();
    let before = machine.state.clone();
    machine.apply(coordinator(1, 1));
    machine.apply(coordinator(2, 2));
    let (app, host, term) = (t(1, 1), HostId(2), 2);
    let changes = before.changes_to(&machine.state);
    assert_eq!(changes, [Applied::Coordinator { app, host, term }]);
    assert_eq!(machine.state.changes_to(&machine.state), []);
}

/// The restart of a stopped application: tasks t1.1 and t2.1, the second in a group.
fn revival() -> Change {
    let task = |tid: Tid, host: u16, index| RevivedTask {
        tid,
        host: HostId(host),
        incarnation: 3,
        requester: Tid::daemon(MACHINE, HostId(9)),
        request: 1,
        index,
        program: "work".to_owned(),
        source: HostId(if index == 0 { 2 } else { 0 }),
    };
    Change::Revive(Revival {
        app: t(1, 1),
        requester: (HostId(2), 7),
        from: CheckpointId::new(4, 6),
        age_ms: 3_000,
        cut: None,
        console: HostId::NONE,
        tasks: vec![task(t(1, 1), 2, 0), task(t(2, 1), 1, 1)],
        groups: vec![SavedGroup {
            name: "g".to_owned(),
            version: 50,
            members: vec![(3, t(2, 1))],
        }],
        context: 40,
        policy: Policy::default(),
        keep_files: true,
        resumes: false,
    })
}

fn standing(host: u16, generation: u32) -> Change {
    Change::Standing {
        app: t(1, 1),
        generation,
        host: HostId(host),
    }
}

/// The machine of [`Machine::new`] after the end of its application.
fn stopped() -> Machine {
    let mut machine = Machine::new();
    for (tid, host) in [(t(1, 1), 1), (t(1, 2), 1), (t(2, 1), 2)] {
        machine.apply(exit(tid, host, 1));
    }
    machine
}

#[test]
fn an_application_comes_back_as_it_was_and_starts_when_all_stand() {
    let mut machine = stopped();
    let applied = machine.apply(revival());
    let revived = Applied::Revived {
        app: t(1, 1),
        generation: 5,
    };
    assert_eq!(applied[0], revived);
    let task = machine.state.living_task(t(1, 1)).expect("it lives");
    assert_eq!((task.host, task.incarnation), (HostId(2), 4));
    let group = machine.state.group("g").expect("it is there");
    assert_eq!((group.version, group.instance(t(2, 1))), (50, Some(3)));
    assert!(machine.state.group_version() >= 50);
    // The restarted tasks may use the contexts up to 40.
    assert_eq!(machine.state.context, 40);
    let epochs = machine.state.epochs(t(1, 1));
    assert_eq!((epochs.generation, epochs.epoch, epochs.saved), (5, 6, 6));
    assert_eq!(machine.void(standing(1, 4)), Void::Revival);
    assert_eq!(machine.apply(standing(1, 5)), []);
    assert_eq!(machine.void(standing(1, 5)), Void::Revival);
    let copy = Agreed::decode(&machine.state.encode());
    assert_eq!(copy.as_ref(), Ok(&machine.state));
    let started = machine.apply(standing(2, 5));
    assert!(matches!(
        started[..],
        [Applied::Started { generation: 5, .. }]
    ));
    assert_eq!(machine.state.reviving(t(1, 1)), None);
    // The next restart gets a higher generation, whatever checkpoint it uses.
    for (tid, host) in [(t(1, 1), 2), (t(2, 1), 1)] {
        machine.apply(exit(tid, host, 4));
    }
    let again = machine.apply(revival());
    assert!(matches!(again[0], Applied::Revived { generation: 6, .. }));
    let task = machine.state.living_task(t(2, 1)).expect("it lives");
    assert_eq!(task.incarnation, 5);
}

#[test]
fn a_revival_is_void_where_anything_of_it_lives_or_has_no_place() {
    let mut machine = Machine::new();
    assert_eq!(machine.void(revival()), Void::Alive(t(1, 1)));
    let mut machine = stopped();
    machine.apply(spawn(1, 5, 1, Tid::NONE));
    machine.apply(group("g", t(1, 5), true));
    let before = machine.state.clone();
    assert_eq!(machine.void(revival()), Void::GroupTaken);
    machine.apply(group("g", t(1, 5), false));
    let mut hasty = revival();
    if let Change::Revive(revival) = &mut hasty {
        revival.policy.every_ms = 1;
    }
    assert_eq!(machine.void(hasty), Void::Malformed);
    machine.apply(Change::HostLeaving(HostId(2)));
    assert_eq!(machine.void(revival()), Void::NoHost(HostId(2)));
    assert_eq!(machine.state.apps().count(), before.apps().count());
}

#[test]
fn if_one_of_them_ends_before_all_stand_all_end() {
    let ends: [fn(&mut Machine) -> Vec<Applied>; 3] = [
        |machine| machine.apply(exit(t(2, 1), 1, 4)),
        |machine| machine.apply(Change::HostDead(HostId(2))),
        |machine| {
            machine.apply(Change::Abandon {
                app: t(1, 1),
                generation: 5,
                for_good: false,
                why: "no room".to_owned(),
            })
        },
    ];
    for end in ends {
        let mut machine = stopped();
        machine.apply(revival());
        machine.apply(standing(1, 5));
        let applied = end(&mut machine);
        let is_told = |it: &Applied| {
            matches!(
                it,
                Applied::Abandoned {
                    generation: 5,
                    requester: RequestKey {
                        host: HostId(2),
                        number: 7,
                    },
                    ..
                }
            )
        };
        assert!(applied.iter().any(is_told), "{applied:?}");
        assert_eq!(machine.state.apps().count(), 0);
        assert_eq!(machine.state.group("g"), None);
        assert_eq!(machine.state.reviving(t(1, 1)), None);
        assert_eq!(Agreed::decode(&machine.state.encode()), Ok(machine.state));
    }
}

#[test]
fn who_is_given_a_later_state_learns_what_came_back_and_what_did_not() {
    let running = Machine::new();
    let mut machine = stopped();
    machine.apply(revival());
    let reviving = machine.state.clone();
    let changes = running.state.changes_to(&reviving);
    let exits = changes
        .iter()
        .filter(|it| matches!(it, Applied::Exited { .. }));
    assert_eq!(exits.count(), 3);
    let revived = Applied::Revived {
        app: t(1, 1),
        generation: 5,
    };
    assert!(changes.contains(&revived), "{changes:?}");
    let last = changes
        .iter()
        .rposition(|it| matches!(it, Applied::Exited { .. }));
    assert!(last < changes.iter().position(|it| *it == revived));
    for host in [1, 2] {
        machine.apply(standing(host, 5));
    }
    let started = |it: &Applied| matches!(it, Applied::Started { generation: 5, .. });
    let changes = reviving.changes_to(&machine.state);
    assert!(changes.iter().any(started), "{changes:?}");
    let changes = running.state.changes_to(&machine.state);
    assert!(changes.iter().any(started), "{changes:?}");
    machine.apply(exit(t(2, 1), 1, 4));
    machine.apply(exit(t(1, 1), 2, 4));
    let changes = reviving.changes_to(&machine.state);
    let abandoned = |it: &Applied| matches!(it, Applied::Abandoned { generation: 5, .. });
    assert!(changes.iter().any(abandoned), "{changes:?}");
}

#[test]
fn a_host_gets_another_address_while_it_is_in_the_machine() {
    let mut machine = Machine::new();
    let before = machine.state.clone();
    let change = |addr: &str| Change::HostAddress {
        host: HostId(2),
        addr: addr.to_owned(),
    };
    let changed = [Applied::HostAddress(HostId(2))];
    assert_eq!(machine.apply(change("10.0.0.9:1")), changed);
    let facts = |machine: &Machine| {
        machine
            .state
            .host(HostId(2))
            .map(|it| it.facts.addr.clone())
    };
    assert_eq!(facts(&machine).as_deref(), Some("10.0.0.9:1"));
    // A daemon without the entry learns the change from a later state.
    assert!(before.changes_to(&machine.state).contains(&changed[0]));
    assert_eq!(machine.void(change("")), Void::Malformed);
    let long = "1".repeat(limits::PATH_MAX + 1);
    assert_eq!(machine.void(change(&long)), Void::Malformed);
    machine.apply(Change::HostDead(HostId(2)));
    assert_eq!(machine.void(change("10.0.0.8:1")), Void::NoHost(HostId(2)));
}
