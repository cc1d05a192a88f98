//! Suspended applications: the end of the cut sets the mark, and the end of the restart removes it.

use super::*;
use vm_wire::{
    CheckpointId, HostId,
    agreed::{Change, ExitStatus},
    checkpoint::{Stop, Suspend},
};

/// Begins the cut that suspends the application of [`Machine::new`], because of a drained host or
/// at a request.
fn cut(machine: &mut Machine, drained: HostId) {
    let (app, host) = (t(1, 1), HostId(1));
    let term = machine.state.coordinator(app).map_or(0, |it| it.term) + 1;
    machine.apply(Change::Coordinator { app, host, term });
    let how = Suspend {
        asked_ms: 5_000,
        for_ms: 60_000,
        drained,
    };
    let applied = machine.apply(Change::Cut {
        app,
        epoch: machine.state.epochs(app).epoch + 1,
        term,
        stop: Some(Stop::Suspend(how)),
    });
    assert!(matches!(applied[..], [Applied::Cut { .. }]), "{applied:?}");
}

fn end_cut(machine: &mut Machine, saved: bool) -> Vec<Applied> {
    let app = t(1, 1);
    let epoch = machine.state.epochs(app).epoch;
    machine.apply(Change::CutEnd {
        app,
        epoch,
        saved,
        cost_us: 7,
    })
}

/// The machine of [`Machine::new`] with its application suspended at g0-e1.
fn suspended(drained: HostId) -> Machine {
    let mut machine = Machine::new();
    cut(&mut machine, drained);
    end_cut(&mut machine, true);
    assert_eq!(
        Agreed::decode(&machine.state.encode()),
        Ok(machine.state.clone())
    );
    machine
}

fn resumption() -> Change {
    let mut change = revival();
    if let Change::Revive(revival) = &mut change {
        (revival.from, revival.resumes) = (CheckpointId::new(0, 1), true);
    }
    change
}

fn abandon(generation: u32, for_good: bool) -> Change {
    Change::Abandon {
        app: t(1, 1),
        generation,
        for_good,
        why: "no room".to_owned(),
    }
}

fn unsuspend(from: CheckpointId) -> Change {
    let (app, over) = (t(1, 1), true);
    Change::Unsuspend { app, from, over }
}

#[test]
fn the_entry_that_ends_the_tasks_marks_the_application() {
    let mut machine = Machine::new();
    cut(&mut machine, HostId::NONE);
    // Without a checkpoint the application runs on and is not marked.
    end_cut(&mut machine, false);
    assert_eq!(machine.state.suspended(t(1, 1)), None);
    assert_eq!(machine.state.tasks_of(t(1, 1)).count(), 3);
    cut(&mut machine, HostId::NONE);
    let applied = end_cut(&mut machine, true);
    let status = ExitStatus::Suspended;
    let ends = |it: &&Applied| matches!(it, Applied::Exited { status: its, .. } if *its == status);
    assert_eq!(applied.iter().filter(ends).count(), 3, "{applied:?}");
    assert_eq!(applied.last(), Some(&Applied::Suspended(t(1, 1))));
    let it = machine.state.suspended(t(1, 1)).expect("it is");
    assert_eq!(
        (it.from, it.tasks, &*it.program),
        (CheckpointId::new(0, 2), 3, "work")
    );
    assert_eq!(it.until_ms(), Some(65_000));
    // The application is not resumed automatically, because a user requested the suspension.
    assert!(!machine.state.resumes_by_itself(t(1, 1)));
}

/// Suspends or resumes one task on the first host.
fn relocate(tid: Tid, incarnation: u32, suspended: bool) -> Change {
    let (from, to) = (HostId(1), HostId(1));
    Change::Relocate {
        tid,
        from,
        to,
        incarnation,
        suspended,
    }
}

#[test]
fn no_task_is_suspended_while_its_application_is_cut_or_brought_back_nor_the_other_way_round() {
    let mut machine = Machine::new();
    let app = t(1, 1);
    cut(&mut machine, HostId::NONE);
    // The task would be in the cut without a process that could write its image.
    assert_eq!(machine.void(relocate(t(1, 2), 1, true)), Void::Cut);
    assert_eq!(machine.state.suspended_task(app), None);
    end_cut(&mut machine, false);
    machine.apply(relocate(t(1, 2), 1, true));
    assert_eq!(machine.state.suspended_task(app), Some(t(1, 2)));
    let (epoch, term) = (machine.state.epochs(app).epoch + 1, 1);
    let next = Change::Cut {
        app,
        epoch,
        term,
        stop: None,
    };
    assert_eq!(machine.void(next.clone()), Void::Cut);
    machine.apply(relocate(t(1, 2), 2, false));
    let applied = machine.apply(next);
    assert!(matches!(applied[..], [Applied::Cut { .. }]), "{applied:?}");
    // The tasks of a restarted application are where the log has put them.
    let mut machine = suspended(HostId::NONE);
    machine.apply(resumption());
    let task = machine.state.living_task(t(2, 1)).expect("it is to stand");
    assert_eq!(task.host, HostId(1));
    let incarnation = task.incarnation;
    let change = relocate(t(2, 1), incarnation, true);
    assert_eq!(machine.void(change), Void::Cut);
}

#[test]
fn the_mark_goes_when_the_application_stands_whoever_brought_it_back() {
    for change in [resumption(), revival()] {
        let mut machine = suspended(HostId::NONE);
        machine.apply(change);
        assert!(machine.state.suspended(t(1, 1)).is_some());
        assert_eq!(
            machine.void(unsuspend(CheckpointId::new(0, 1))),
            Void::Suspension
        );
        let generation = machine.state.epochs(t(1, 1)).generation;
        let copy = Agreed::decode(&machine.state.encode());
        assert_eq!(copy.as_ref(), Ok(&machine.state));
        machine.apply(standing(1, generation));
        let applied = machine.apply(standing(2, generation));
        let (app, why) = (t(1, 1), Unsuspended::Resumed);
        assert_eq!(applied.last(), Some(&Applied::Unsuspended { app, why }));
        assert_eq!(machine.state.suspended(app), None);
    }
    // An application that is not suspended, or another checkpoint.
    assert_eq!(stopped().void(resumption()), Void::Suspension);
    let mut machine = suspended(HostId::NONE);
    let mut other = resumption();
    if let Change::Revive(revival) = &mut other {
        revival.from = CheckpointId::new(0, 2);
    }
    assert_eq!(machine.void(other), Void::Suspension);
}

#[test]
fn one_that_could_not_be_resumed_stays_suspended_until_somebody_ends_it() {
    let mut machine = suspended(HostId::NONE);
    let app = t(1, 1);
    let before = machine.state.suspended(app).expect("it is").generation;
    // Before any task was restored.
    let applied = machine.apply(abandon(before, false));
    let told = |it: &Applied| matches!(it, Applied::NotResumed { .. });
    assert!(applied.iter().any(told), "{applied:?}");
    assert_eq!(machine.void(abandon(before, false)), Void::Revival);
    // While the tasks are being restarted. A change for another attempt has no effect.
    machine.apply(resumption());
    let last = machine.state.suspended(app).expect("it is").generation;
    assert_eq!(machine.void(abandon(last, false)), Void::Revival);
    let applied = machine.apply(exit(t(2, 1), 1, 4));
    assert!(applied.iter().any(told), "{applied:?}");
    assert_eq!(machine.state.apps().count(), 0);
    assert_eq!(machine.state.suspended(app).expect("it is").failures, 2);
    machine.apply(resumption());
    let generation = machine.state.epochs(app).generation;
    let applied = machine.apply(abandon(generation, true));
    let why = Unsuspended::Ended;
    assert_eq!(applied.last(), Some(&Applied::Unsuspended { app, why }));

    let mut machine = suspended(HostId::NONE);
    assert_eq!(
        machine.void(unsuspend(CheckpointId::new(0, 2))),
        Void::Suspension
    );
    let (why, over) = (Unsuspended::Over, unsuspend(CheckpointId::new(0, 1)));
    assert_eq!(machine.apply(over), [Applied::Unsuspended { app, why }]);
    assert_eq!(
        machine.void(unsuspend(CheckpointId::new(0, 1))),
        Void::Suspension
    );
}

#[test]
fn one_that_a_drain_suspended_is_resumed_where_there_is_room_and_not_for_ever_in_vain() {
    let mut machine = suspended(HostId(2));
    let app = t(1, 1);
    let drains = |suspend| Change::HostDraining {
        host: HostId(2),
        suspend,
    };
    assert!(machine.state.resumes_by_itself(app));
    // Room for twenty tasks at first; then room for two tasks on one host, for three tasks.
    machine.apply(drains(false));
    machine.apply(spawn(1, 10, 8, Tid::NONE));
    assert!(!machine.state.resumes_by_itself(app));
    machine.apply(Change::HostResumed(HostId(2)));
    assert!(machine.state.resumes_by_itself(app));
    for failures in 1..=limits::RECOVERIES_MAX {
        assert!(machine.state.resumes_by_itself(app));
        let generation = machine.state.suspended(app).expect("it is").generation;
        machine.apply(abandon(generation, false));
        // Each failure selects another host.
        let turn = HostId(1 + (failures % 2) as u16);
        assert_eq!(machine.state.suspension_host(app), Some(turn));
    }
    assert!(!machine.state.resumes_by_itself(app));
    machine.join(7, "new");
    assert!(machine.state.resumes_by_itself(app));
}

#[test]
fn the_last_host_that_takes_tasks_drains_only_if_they_may_be_suspended() {
    let mut machine = Machine::new();
    let drains = |host, suspend| Change::HostDraining {
        host: HostId(host),
        suspend,
    };
    machine.apply(drains(2, false));
    assert_eq!(machine.void(drains(1, false)), Void::Draining(HostId(1)));
    let applied = machine.apply(drains(1, true));
    assert_eq!(applied, [Applied::HostDraining(HostId(1))]);
}

#[test]
fn who_is_given_a_later_state_learns_what_was_suspended_and_what_became_of_it() {
    let running = Machine::new();
    let mut machine = suspended(HostId::NONE);
    let app = t(1, 1);
    let before = machine.state.clone();
    let changes = running.state.changes_to(&before);
    assert!(changes.contains(&Applied::Suspended(app)), "{changes:?}");
    assert_eq!(before.changes_to(&before), []);
    let generation = before.suspended(app).expect("it is").generation;
    machine.apply(abandon(generation, false));
    let changes = before.changes_to(&machine.state);
    let told = |it: &Applied| matches!(it, Applied::NotResumed { .. });
    assert!(changes.iter().any(told), "{changes:?}");
    let mut ended = machine.state.clone();
    let entry = Entry {
        proposer: HostId(1),
        number: 99,
        changes: vec![unsuspend(CheckpointId::new(0, 1))],
    };
    ended.apply(ended.index() + 1, &entry);
    let why = Unsuspended::Ended;
    let gone = Applied::Unsuspended { app, why };
    assert_eq!(before.changes_to(&ended), [gone]);
    machine.apply(resumption());
    let generation = machine.state.epochs(app).generation;
    for host in [1, 2] {
        machine.apply(standing(host, generation));
    }
    let why = Unsuspended::Resumed;
    let back = Applied::Unsuspended { app, why };
    let changes = before.changes_to(&machine.state);
    assert_eq!(
        changes.iter().filter(|it| **it == back).count(),
        1,
        "{changes:?}"
    );
}

#[test]
fn so_many_may_be_suspended_and_what_is_being_saved_for_it_counts() {
    let mut machine = suspended(HostId::NONE);
    let like = machine.state.suspended(t(1, 1)).expect("it is").clone();
    let others = (2..limits::APPS_SUSPENDED_MAX as u32).map(|own| (t(9, own), like.clone()));
    machine.state.suspended.extend(others);
    assert!(!machine.state.suspends_too_many());
    assert!(machine.state.encode().len() < limits::SNAPSHOT_MAX);
    machine.apply(spawn(1, 20, 1, Tid::NONE));
    let (app, host, term) = (t(1, 20), HostId(1), 1);
    machine.apply(Change::Coordinator { app, host, term });
    let cut = Change::Cut {
        app,
        epoch: 1,
        term,
        stop: Some(Stop::Suspend(like.how)),
    };
    machine.apply(cut);
    assert!(machine.state.suspends_too_many());
    machine.apply(spawn(1, 21, 1, Tid::NONE));
    let app = t(1, 21);
    machine.apply(Change::Coordinator { app, host, term });
    let cut = Change::Cut {
        app,
        epoch: 1,
        term,
        stop: Some(Stop::Suspend(like.how)),
    };
    assert_eq!(machine.void(cut), Void::Limit);
}

#[test]
fn nothing_is_born_late_into_an_application_that_has_no_tasks() {
    let mut machine = suspended(HostId::NONE);
    let app = t(1, 1);
    assert_eq!(machine.void(spawn(2, 7, 1, app)), Void::NoTask(app));
    assert_eq!(
        Agreed::decode(&machine.state.encode()),
        Ok(machine.state.clone())
    );
}
