//! Recovery: an application restarts from its last checkpoint when a host is lost.

use crate::{
    checkpoints::{check, setting, setting_in},
    consoles::{ended, run, run_end, shown},
    world::{Carry, World, on, spawn},
};
use std::time::Duration;
use vm_endpoint::Notice;
use vm_wire::{
    CheckpointId, HostId, Message as _, Tid,
    agreed::ExitStatus,
    checkpoint::{Policy, Recover},
    console::{Answer, Request},
    limits,
    task::{GroupChange, GroupView, Place, SaveApp, Spawned, Watched},
};

impl World {
    pub fn save(&mut self, app: Tid) {
        let request = self.request_checkpoint(app, false);
        self.checkpointed(request).expect("it can be saved");
    }

    /// Waits until every living host knows that an application runs in that generation or a later
    /// one.
    pub fn until_back(&mut self, app: Tid, generation: u32) {
        self.run_until("it is back", |world| {
            let living = [1, 2, 3, 4].map(HostId);
            living
                .into_iter()
                .filter(|host| world.is_up(*host))
                .all(|host| {
                    let state = world.daemon(host.0).agreement().state();
                    let is_back = state.epochs(app).generation >= generation;
                    is_back
                        && state.recovering(app).is_none()
                        && state.tasks_of(app).next().is_some()
                })
        });
    }

    /// The agreed state of the last host, which is not lost in these tests.
    pub fn agreed(&self) -> &vm_machine::Agreed {
        self.agreed_on(4)
    }

    fn agreed_on(&self, host: u16) -> &vm_machine::Agreed {
        self.daemon(host).agreement().state()
    }
}

#[test]
fn an_application_that_loses_a_host_recovers_without_a_request() {
    let (mut world, master, workers) = setting();
    let other = world.master(2, "other");
    world.send(workers[0], master, "before");
    world.run_for(Duration::from_secs(1));
    world.save(master);
    // The work from here on is lost.
    world.run_for(Duration::from_secs(1));
    let told = [(workers[0], "before".to_owned())];
    assert_eq!(world.received(master), told);
    let late = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.received(master), told);
    assert!(!world.is_alive(late), "it was not born yet");
    let hosts: Vec<HostId> = world
        .agreed()
        .tasks_of(master)
        .map(|tid| world.processes[&tid].host)
        .collect();
    assert_eq!(hosts, [2, 1, 4].map(HostId));
    check(&mut world, &[master, workers[0], workers[1]]);
    assert!(world.is_alive(other), "it has nothing to do with that");
    // The application recovers from the same checkpoint: there is no later one.
    world.crash(1);
    world.run_until("it is back", |world| {
        world.agreed().epochs(master).generation >= 4
    });
    world.run_for(Duration::from_secs(3));
    check(&mut world, &[master, workers[0], workers[1]]);
    assert_eq!(world.store.committed.len(), 1);
}

#[test]
fn an_application_without_a_checkpoint_does_not_recover() {
    let (mut world, master, workers) = setting();
    world.crash(3);
    world.run_until("its end in the log", |world| {
        world.agreed().living_task(workers[1]).is_none()
    });
    world.run_for(Duration::from_secs(1));
    let lost = |note: &String| note.starts_with("host 'n3' is lost: ");
    // Each remaining host reports it in its log.
    assert_eq!(world.noted.iter().filter(|note| lost(note)).count(), 3);
    assert_eq!(world.agreed().recovering(master), None);
    check(&mut world, &[master, workers[0]]);
}

#[test]
fn a_console_is_informed_of_recoveries_until_its_own_host_is_lost() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.save(master);
    world.crash(2);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(2));
    let lines: Vec<String> = shown(&world, conn)
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    let [first, second] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(first.contains("host 'n2' is lost"), "{first}");
    assert!(second.contains("t1.1 runs again on n1, n3"), "{second}");
    assert!(second.contains("3.0 s were lost"), "{second}");
    assert_eq!(run_end(&world, conn), None);
    check(&mut world, &[master, worker]);

    world.crash(1);
    world.run_until("it is back", |world| {
        world.agreed().epochs(master).generation >= 4
    });
    world.run_for(Duration::from_secs(2));
    check(&mut world, &[master, worker]);
    assert_eq!(world.agreed().console_of(master), HostId::NONE);
    // The application ends as without a recovery.
    world.exit(master, 5).expect("it may leave");
    world.run_for(Duration::from_secs(1));
    assert!(!world.is_alive(worker));
}

#[test]
fn lost_work_is_counted_from_the_last_start_of_the_application() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    world.spawn(master, "worker", 1, on(2));
    world.save(master);
    world.store.older_ms = 87_000;
    for (host, generation) in [(2, 2), (3, 4)] {
        world.crash(host);
        world.until_back(master, generation);
        world.run_for(Duration::from_secs(2));
    }
    let lines = shown(&world, conn).into_iter();
    let lost = lines.filter_map(|(_, line)| {
        let (_, lost) = line.split_once("of its work ")?;
        lost.split_once(" s were lost")?.0.parse().ok()
    });
    let lost: Vec<f64> = lost.collect();
    let [first, second] = lost[..] else {
        panic!("{lost:?}")
    };
    // The second recovery uses the same checkpoint, but the application ran for some seconds only.
    assert!(first == 90.0 && (2.0..8.0).contains(&second), "{lost:?}");
}

#[test]
fn a_request_repeated_in_the_next_generation_is_carried_out_again() {
    let (mut world, master, workers) = setting();
    world.save(master);
    let number = 500;
    let asked = |world: &mut World| {
        let before = world.answers(master, number).len();
        world.request_again(master, &spawn("worker", 1, on(2)), number);
        world.run_until("an answer", |world| {
            world.answers(master, number).len() > before
        });
        let answer = world.answers(master, number).last().expect("an answer");
        Spawned::read(answer).expect("tasks").tids[0]
    };
    let first = asked(&mut world);
    let join = GroupChange {
        group: "g".to_owned(),
        join: true,
    };
    world
        .ask::<GroupView>(workers[0], &join)
        .expect("it may join");
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.agreed().group("g"), None, "nobody has joined");
    let second = asked(&mut world);
    assert_ne!(first, second);
    world.run_for(Duration::from_secs(1));
    check(&mut world, &[master, workers[0], workers[1], second]);
}

#[test]
fn tasks_spawned_before_the_checkpoint_are_not_spawned_again_with_their_siblings() {
    let (mut world, master, workers) = setting();
    let place = Place::Hosts(vec!["n2".to_owned(), "n1".to_owned()]);
    let (question, number) = (spawn("far", 2, place), 500);
    world.request_again(master, &question, number);
    world.run_for(Duration::from_millis(100));
    world.find_far(2);
    world.run_for(Duration::from_millis(100));
    let state = world.agreed();
    let [(0, first)] = state.born(master, number).collect::<Vec<_>>()[..] else {
        panic!("one is born")
    };
    world.save(master);
    // The other task is spawned after the checkpoint.
    world.find_far(1);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.answers(master, number).len(), 1);
    world.crash(3);
    world.until_back(master, 2);
    world.run_for(Duration::from_secs(1));
    world.request_again(master, &question, number);
    world.run_for(Duration::from_millis(100));
    world.find_far(2);
    world.run_until("an answer", |world| world.answers(master, number).len() > 1);
    let answer = Spawned::read(&world.answers(master, number)[1]).expect("tasks");
    assert_eq!(answer.failures, []);
    let [found, second] = answer.tids[..] else {
        panic!("{answer:?}")
    };
    assert_eq!(found, first);
    world.run_for(Duration::from_secs(1));
    check(&mut world, &[master, workers[0], workers[1], first, second]);
}

#[test]
fn a_checkpoint_requested_by_a_task_before_a_recovery_is_not_made_after_it() {
    let (mut world, master, workers) = setting();
    world.save(master);
    world.store.slow = true;
    let number = world.request(workers[0], &SaveApp {});
    let begun = |world: &mut World, epoch| {
        world.run_until("the cut", |world| {
            world.agreed_on(1).epochs(master).epoch == epoch
        });
    };
    begun(&mut world, 2);
    // The coordinator is lost, too, and has not reported the failure of the checkpoint.
    world.crash(4);
    world.store.slow = false;
    let back = |world: &World| {
        let state = world.agreed_on(1);
        state.epochs(master).generation > 0 && state.tasks_of(master).count() == 3
    };
    world.run_until("it is back", back);
    check(&mut world, &[master, workers[0], workers[1]]);
    assert_eq!(world.store.committed.len(), 1);
    assert!(world.answers(workers[0], number).is_empty());
    // The task sends a new request if it still needs a checkpoint.
    world.request_again(workers[0], &SaveApp {}, number);
    world.run_until("an answer", |world| {
        !world.answers(workers[0], number).is_empty()
    });
    assert_eq!(world.store.committed.len(), 2);
}

#[test]
fn a_second_host_may_be_lost_during_a_recovery() {
    for second in [2, 1] {
        let (mut world, master, workers) = setting();
        // With five voters any two may be lost.
        world.join(HostId(1), "n5").expect("it may join");
        world.run_for(Duration::from_secs(5));
        world.save(master);
        world.store.held.insert(workers[0]);
        world.crash(3);
        world.run_until("they stand", |world| world.standing.len() == 3);
        world.crash(second);
        world.store.held.clear();
        world.run_until("it is lost", |world| {
            !world.agreed().is_present(HostId(second))
        });
        for host in world.standing.keys().copied().collect::<Vec<_>>() {
            world.input(host.0, vm_machine::MoveInput::Arrived(host.1, Ok(())));
        }
        world.run_until("it is back", |world| {
            world.agreed().recovering(master).is_none()
        });
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.agreed().tasks_of(master).count(), 3);
        check(&mut world, &[master, workers[0], workers[1]]);
    }
}

#[test]
fn an_application_whose_last_checkpoint_is_damaged_recovers_from_the_one_before() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.save(master);
    world.save(master);
    world.store.damaged.insert(CheckpointId::new(0, 2));
    world.crash(3);
    world.run_until("it runs again", |world| {
        shown(world, conn)
            .iter()
            .any(|(_, line)| line.contains("runs again"))
    });
    // After the first failure another daemon has read all data.
    assert_eq!(world.store.verified, [false, true]);
    assert_eq!(world.agreed().epochs(master).saved, 1);
    check(&mut world, &[master, worker]);
}

#[test]
fn an_application_that_cannot_be_restored_ends_after_some_attempts_with_the_reason() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.save(master);
    world.store.broken.insert(worker);
    world.crash(3);
    world.run_until("its end", |world| run_end(world, conn).is_some());
    assert_eq!(run_end(&world, conn), ended(ExitStatus::RolledBack));
    let lines: Vec<String> = shown(&world, conn)
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    let [_, second] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(second.contains("t1.1 cannot be restarted"), "{second}");
    assert!(second.contains("the image is damaged"), "{second}");
    assert!(second.contains("vm checkpoints"), "{second}");
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.agreed().recovering(master), None);
    assert_eq!(world.agreed().apps().count(), 0);
    assert!(world.standing.is_empty());
    let generation = 2 * limits::RECOVERIES_MAX + 1;
    // A user may restart the application when the cause is gone.
    world.store.broken.clear();
    let conn = world.conn();
    let request = Request::Restart {
        app: master,
        from: None,
        attach: false,
        keep_files: false,
    };
    let Answer::Restarted(report) = world.console(1, conn, &request) else {
        panic!("it can be brought back")
    };
    assert_eq!(report.generation, generation + 1);
    check(&mut world, &[master, worker]);
}

#[test]
fn an_application_can_be_ended_during_its_recovery() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(3)).tids[0];
    world.save(master);
    world.store.held.insert(worker);
    world.crash(3);
    world.run_until("they stand", |world| world.standing.len() == 2);
    let other = world.conn();
    let restart = Request::Restart {
        app: master,
        from: None,
        attach: false,
        keep_files: false,
    };
    let Answer::Failed(failed) = world.console(2, other, &restart) else {
        panic!("it goes back")
    };
    assert!(failed.text.contains("going back by itself"), "{failed}");
    // The restored processes are frozen, and no console is left to notify.
    world.input(HostId(1), vm_machine::Input::ConnGone(conn));
    world.run_until("its end", |world| {
        world.agreed().recovering(master).is_none()
    });
    assert_eq!(world.agreed().apps().count(), 0);
    assert!(!world.is_alive(worker));
}

#[test]
fn an_application_can_be_ended_at_a_daemon_that_does_not_know_of_its_recovery_yet() {
    let (mut world, master, _) = setting();
    world.save(master);
    world.crash(3);
    world.run_until("it goes back", |world| {
        let state = world.daemon(2).agreement().state();
        state.recovering(master).is_some()
    });
    world.behind = Some(HostId(2));
    world.run_for(Duration::from_millis(300));
    let conn = world.conn();
    world.console(2, conn, &Request::Signal(master, 9));
    world.behind = None;
    world.run_for(Duration::from_secs(3));
    assert!(!world.is_alive(master));
    assert_eq!(world.agreed().apps().count(), 0);
}

#[test]
fn a_task_killed_from_outside_makes_the_application_recover_if_the_policy_says_so() {
    for recover in [Recover::Host, Recover::Kill, Recover::Never] {
        let (mut world, master, workers) = setting();
        let policy = Policy {
            recover,
            ..Policy::default()
        };
        let conn = world.conn();
        let answer = world.console(1, conn, &Request::Policy(master, policy));
        assert_eq!(answer, Answer::Done);
        world.save(master);
        // A task that received another signal through the machine was killed from outside
        // nevertheless.
        let answer = world.console(1, conn, &Request::Signal(workers[0], 10));
        assert_eq!(answer, Answer::Done);
        world.die(workers[0], ExitStatus::Signal(9));
        world.run_for(Duration::from_secs(5));
        let is_back = recover == Recover::Kill;
        assert_eq!(world.is_alive(workers[0]), is_back, "{recover:?}");
        if is_back {
            check(&mut world, &[master, workers[0], workers[1]]);
            // A task that a user ended has ended.
            let answer = world.console(1, conn, &Request::Signal(workers[0], 9));
            assert_eq!(answer, Answer::Done);
            world.run_for(Duration::from_secs(5));
            assert!(!world.is_alive(workers[0]));
            check(&mut world, &[master, workers[1]]);
            // Repeated ends may be the program's own fault.
            for _ in 1..limits::RECOVERIES_MAX {
                world.die(workers[1], ExitStatus::Signal(11));
                world.run_for(Duration::from_secs(5));
                assert!(world.is_alive(workers[1]));
            }
            world.die(workers[1], ExitStatus::Signal(11));
            world.run_for(Duration::from_secs(5));
            assert!(!world.is_alive(workers[1]));
        }
        world.crash(3);
        world.run_for(Duration::from_secs(10));
        let generation = world.agreed().epochs(master).generation;
        assert_eq!(generation != 0, recover != Recover::Never);
    }
}

#[test]
fn retained_messages_of_an_ended_task_are_part_of_the_checkpoint() {
    let (mut world, master, workers) = setting();
    world.cut(2, 4, true);
    world.run_for(Duration::from_millis(10));
    world
        .watch(master, Watched::Task(workers[0]))
        .expect("it may");
    world.send(workers[0], master, "its last words");
    world.exit(workers[0], 0).expect("it may leave");
    world.run_for(Duration::from_millis(100));
    world.heal(4, 2);
    // The master computes, and reads nothing before it is saved.
    world.save(master);
    world.run_for(Duration::from_secs(3));
    let words = [(workers[0], "its last words".to_owned())];
    assert_eq!(world.received(master), words);
    assert_eq!(world.store.committed[0].kept.len(), 1);
    // The keeper is lost, and only then the application recovers.
    world.crash(2);
    world.run_for(Duration::from_secs(5));
    world.crash(3);
    world.run_until("it is back", |world| {
        world.agreed().epochs(master).generation >= 2
    });
    world.run_for(Duration::from_secs(3));
    assert_eq!(world.received(master), words);
    let notice = world.notice(master);
    let ended = |it: &Notice| matches!(it, Notice::Ended { tid, .. } if *tid == workers[0]);
    assert!(notice.as_ref().is_some_and(ended), "{notice:?}");
    check(&mut world, &[master, workers[1]]);
}

/// A leaving host hands over a message that it retained for a task, after the task was rolled back.
#[test]
fn a_message_retained_for_an_earlier_generation_and_handed_over_late_is_dropped() {
    let (mut world, master, workers) = setting_in(World::new(5));
    let other = world.spawn(master, "worker", 1, on(5)).tids[0];
    world.save(master);
    world.cut(5, 2, true);
    world.send(other, workers[0], "of no use any more");
    world.exit(other, 0).expect("it may leave");
    assert!(world.daemon(5).kept_bytes() > 0);
    let conn = world.conn();
    world.console_request(1, conn, &Request::Delete("n5".to_owned()));
    world.run_for(Duration::from_millis(500));
    world.crash(3);
    world.until_back(master, 1);
    assert!(world.is_up(HostId(5)), "it has not got rid of it");
    world.heal(5, 2);
    world.run_until("it has left", |world| !world.is_up(HostId(5)));
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.daemon(2).kept_bytes(), 0);
    assert_eq!(world.received(workers[0]), []);
}

#[test]
fn the_requester_of_a_move_learns_that_the_application_recovered_meanwhile() {
    let (mut world, master, workers) = setting();
    world.save(master);
    world.carry = Carry::Held;
    let request = world.request_move(2, workers[0], 3);
    world.run_until("its image is on its way", |world| !world.images.is_empty());
    world.crash(3);
    let failed = world.moved(request).expect_err("its application goes back");
    assert!(
        failed.text.contains("has gone back to a checkpoint"),
        "{failed}"
    );
    world.until_back(master, 1);
    assert!(world.is_alive(workers[0]));
}
