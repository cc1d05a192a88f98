//! Requests for checkpoints, with the end of the application, by a policy, or by a task; and their
//! replies.

use crate::checkpoints::{check, ended_untold, setting, stand};
use crate::world::World;
use std::time::Duration;
use vm_wire::{
    Message as _, Tid,
    agreed::ExitStatus,
    checkpoint::Policy,
    console::{Answer, Request},
    limits,
    task::{FailKind, Failed, SaveApp, Saved},
};

fn untold(request: impl Fn(Tid) -> Request) -> Failed {
    let (mut world, _, _, request) = ended_untold(request);
    world.run_for(2 * limits::COORDINATOR_WAIT);
    match world.console_answer(request.0, request.1) {
        Some(Answer::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_requester_of_a_stop_or_suspension_gets_a_reply_even_if_the_host_with_the_result_is_lost() {
    let failed = untold(|app| Request::Checkpoint(app, true));
    let told = "application t4.1 has ended with a checkpoint, but";
    assert!(failed.text.contains(told), "{failed}");
    assert!(failed.text.contains("'vm checkpoints'"), "{failed}");
    let failed = untold(|app| Request::Suspend(app, 0));
    let told = "application t4.1 was suspended, but";
    assert!(failed.text.contains(told), "{failed}");
    assert!(failed.text.contains("'vm ps'"), "{failed}");
}

#[test]
fn an_application_stopped_with_a_checkpoint_ends_with_its_commit() {
    let (mut world, master, workers) = setting();
    world.store.slow = true;
    let request = world.request_checkpoint(workers[1], true);
    world.run_for(Duration::from_secs(3));
    assert!(stand(&world, &[master, workers[0], workers[1]]));
    world.store_images();
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!((report.epoch, report.tasks), (1, 3));
    world.run_for(Duration::from_secs(1));
    for tid in [master, workers[0], workers[1]] {
        assert!(!world.is_alive(tid), "{tid}");
        let task = world.daemon(1).agreement().state().task(tid);
        let status = task.and_then(|task| task.status);
        assert_eq!(status, Some(ExitStatus::Suspended));
    }
    assert!((1..=4).all(|host| world.daemon(host).local_tasks().next().is_none()));
}

#[test]
fn a_request_for_a_checkpoint_gets_a_reply_though_no_coordinator_can_be_started() {
    let mut world = World::new(3);
    world.no_coordinators = true;
    let master = world.master(2, "master");
    let asked = world.now;
    let request = world.request_checkpoint(master, false);
    // A coordinator might wait for portable tasks.
    let wait = limits::COORDINATOR_WAIT + limits::SAFE_POINT;
    world.run_for(wait / 2);
    let failed = world.checkpointed(request).expect_err("nobody makes it");
    assert_eq!(failed.kind, FailKind::System);
    assert!(world.now.since(asked) >= wait);
}

#[test]
fn checkpoints_follow_the_policy_under_any_coordinator() {
    let (mut world, master, workers) = setting();
    let policy = |every_ms| Policy {
        every_ms,
        keep: 5,
        ..Policy::default()
    };
    let conn = world.conn();
    let number = world.console_request(2, conn, &Request::Policy(workers[0], policy(10_000)));
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.console_answer(conn, number), Some(Answer::Done));
    world.run_for(Duration::from_secs(35));
    let epochs = |world: &World| {
        let committed = world.store.committed.iter();
        committed.map(|it| it.agreed.epoch).collect::<Vec<_>>()
    };
    assert_eq!(epochs(&world), [1, 2, 3]);
    assert_eq!(world.store.committed[2].agreed.policy, policy(10_000));
    // The host of the coordinator dies. The next coordinator continues.
    let moved = world.request_move(1, master, 1);
    world.moved(moved).expect("it can be moved");
    world.crash(4);
    world.run_for(Duration::from_secs(40));
    let made = epochs(&world).len();
    assert!((5..=7).contains(&made), "{made}");
    check(&mut world, &[master, workers[0], workers[1]]);
    let number = world.console_request(2, conn, &Request::Policy(workers[0], policy(0)));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.console_answer(conn, number), Some(Answer::Done));
    let made = epochs(&world).len();
    world.run_for(Duration::from_secs(30));
    assert_eq!(epochs(&world).len(), made);
    // An impossible policy is refused.
    let number = world.console_request(2, conn, &Request::Policy(workers[0], policy(10)));
    world.run_for(Duration::from_millis(100));
    let answer = world.console_answer(conn, number);
    assert!(matches!(answer, Some(Answer::Failed(_))), "{answer:?}");
}

#[test]
fn tasks_stay_frozen_while_their_images_are_written_if_the_policy_is_blocking() {
    for blocking in [false, true] {
        let (mut world, master, workers) = setting();
        let conn = world.conn();
        let policy = Policy {
            blocking,
            ..Policy::default()
        };
        world.console_request(2, conn, &Request::Policy(master, policy));
        world.run_for(Duration::from_secs(1));
        let request = world.request_checkpoint(master, false);
        let mut copies = false;
        for _ in 0..1_000 {
            world.run_for(Duration::from_millis(1));
            copies |= !world.store.ways.is_empty();
        }
        assert_eq!(copies, !blocking);
        world.checkpointed(request).expect("they can be saved");
        assert_eq!(world.store.committed.len(), 1);
        check(&mut world, &[master, workers[0], workers[1]]);
    }
}

#[test]
fn a_restarted_application_keeps_its_policy() {
    let (mut world, master, workers) = setting();
    let conn = world.conn();
    let policy = Policy {
        every_ms: 20_000,
        keep: 2,
        ..Policy::default()
    };
    world.console_request(2, conn, &Request::Policy(master, policy));
    world.run_for(Duration::from_secs(1));
    let request = world.request_checkpoint(master, true);
    world.checkpointed(request).expect("they can be saved");
    world.run_for(Duration::from_secs(30));
    let request = Request::Restart {
        app: master,
        from: None,
        attach: false,
        keep_files: false,
    };
    world.console_request(1, conn, &request);
    world.run_for(Duration::from_secs(30));
    let last = &world.store.committed.last().expect("one").agreed;
    assert_eq!((last.generation, last.epoch, last.policy), (1, 2, policy));
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_task_requests_a_checkpoint_and_is_saved_with_its_request_pending() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.store.slow = true;
    let number = world.request(workers[0], &SaveApp {});
    world.run_until("the others stand", |world| !world.store.images.is_empty());
    // As a restored task repeats its request.
    world.request_again(workers[0], &SaveApp {}, number);
    world.run_for(Duration::from_secs(1));
    assert!(world.answers(workers[0], number).is_empty());
    world.store_images();
    world.run_for(Duration::from_secs(1));
    let [answer] = world.answers(workers[0], number) else {
        panic!("more or less than one answer")
    };
    let Saved { report } = Saved::read(answer).expect("they can be saved");
    assert_eq!((report.generation, report.epoch, report.tasks), (0, 1, 3));
    let [saved] = &*world.store.committed else {
        panic!("more or less than one checkpoint")
    };
    let mut tasks = saved.agreed.tasks.iter().zip(&saved.parts);
    let requester = tasks.find(|(task, _)| task.tid == workers[0]);
    let (_, part) = requester.expect("it was saved");
    assert_eq!(part.belongings.asked, number - 1);
    assert_eq!(part.belongings.answer, None);
    check(&mut world, &all);
    world.store.slow = false;
    let Saved { report } = world.ask(master, &SaveApp {}).expect("and again");
    assert_eq!(report.epoch, 2);
}

#[test]
fn the_reply_to_a_task_gives_the_reason_why_there_is_no_checkpoint() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.store.full = true;
    let failed = world.ask::<Saved>(master, &SaveApp {});
    let failed = failed.expect_err("there is no room");
    assert!(failed.text.contains("no space left"), "{failed}");
    assert!(world.store.committed.is_empty());
    check(&mut world, &all);
}
