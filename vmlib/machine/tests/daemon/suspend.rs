//! Applications that are suspended and resumed, by a user or because a host drains.

use crate::{
    checkpoints::{check, setting},
    consoles::{ended, run, run_end, run_on, shown},
    world::{World, on, spawn},
};
use std::{collections::BTreeSet, time::Duration};
use vm_machine::{ConnId, HostPhase, Input, ProcessInput};
use vm_wire::{
    CheckpointId, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{CheckpointReport, Policy, RestartReport},
    console::{Answer, Request, SuspendedRow},
    peer::{DrainReport, DrainWay, Order},
    task::{FailKind, Failed, ResumeApp, Resumed, SaveApp, Saved, SuspendApp},
};

const SUSPEND: DrainWay = DrainWay {
    checkpoint: false,
    suspend: true,
};
const SAVE: DrainWay = DrainWay {
    checkpoint: true,
    suspend: false,
};

impl World {
    fn answer_of(&mut self, host: u16, request: &Request) -> Answer {
        let conn = self.conn();
        self.console(host, conn, request)
    }

    fn suspend(&mut self, app: Tid, for_ms: u64) -> Result<CheckpointReport, Failed> {
        let answer = self.answer_of(1, &Request::Suspend(app, for_ms));
        // The processes end.
        self.run_for(Duration::from_millis(500));
        match answer {
            Answer::Checkpointed(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            other => panic!("{other:?}"),
        }
    }

    fn resume_app(&mut self, host: u16, app: Tid) -> Result<RestartReport, Failed> {
        match self.answer_of(host, &Request::Resume(app, None)) {
            Answer::Restarted(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            other => panic!("{other:?}"),
        }
    }

    fn suspended(&mut self, host: u16) -> Vec<SuspendedRow> {
        match self.answer_of(host, &Request::Suspended) {
            Answer::Suspended(rows) => rows,
            other => panic!("{other:?}"),
        }
    }

    fn drain_by(&mut self, host: u16, way: DrainWay) -> Result<DrainReport, Failed> {
        match self.answer_of(1, &Request::Drain(format!("n{host}"), way)) {
            Answer::Drained(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            other => panic!("{other:?}"),
        }
    }

    fn runs_again(&mut self, app: Tid) {
        self.run_until("it runs again", |world| {
            let state = world.daemon(1).agreement().state();
            state.suspended(app).is_none() && state.tasks_of(app).next().is_some()
        });
    }

    fn lines(&self, conn: ConnId) -> String {
        let lines = shown(self, conn).into_iter().map(|(_, line)| line);
        lines.collect()
    }
}

fn phase(world: &World, host: u16) -> HostPhase {
    let state = world.daemon(1).agreement().state();
    state.host(HostId(host)).expect("it is remembered").phase
}

#[test]
fn a_suspended_application_continues_from_its_checkpoint_when_it_is_resumed() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let other = world.master(2, "other");
    world.send(workers[0], master, "before");
    let report = world.suspend(master, 0).expect("it can be saved");
    assert_eq!((report.generation, report.epoch, report.tasks), (0, 1, 3));
    assert!(all.iter().all(|tid| !world.is_alive(*tid)));
    let rows = world.suspended(3);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(
        (row.app, row.from, row.tasks),
        (master, CheckpointId::new(0, 1), 3)
    );
    assert_eq!((&*row.program, &row.drained), ("master", &None));
    assert_eq!((row.until_ms, row.resuming), (0, false));
    // A suspended application cannot be suspended, saved or moved, and the replies give the reason.
    for request in [
        Request::Suspend(master, 0),
        Request::Checkpoint(master, false),
        Request::Move(master, None, Default::default()),
    ] {
        let Answer::Failed(failed) = world.answer_of(2, &request) else {
            panic!("it is suspended")
        };
        assert!(failed.text.contains("'vm resume t4.1'"), "{failed}");
    }
    // The machine remembers the suspension after the loss of the leader and of the master's host.
    world.run_for(Duration::from_secs(30));
    assert!(all.iter().all(|tid| !world.is_alive(*tid)));
    world.crash(4);
    world.run_for(Duration::from_secs(6));
    world.crash(1);
    world.run_for(Duration::from_secs(6));
    let report = world.resume_app(3, master).expect("it can be brought back");
    assert_eq!((report.app, report.from), (master, CheckpointId::new(0, 1)));
    world.run_for(Duration::from_secs(2));
    let told = [(workers[0], "before".to_owned())];
    assert_eq!(world.received(master), told);
    check(&mut world, &all);
    assert!(world.suspended(2).is_empty());
    assert!(world.is_alive(other));
    let failed = world.resume_app(3, master).expect_err("it runs");
    assert!(failed.text.contains("it runs"), "{failed}");
}

#[test]
fn an_application_that_cannot_be_suspended_runs_on_and_is_not_recorded_as_suspended() {
    let (mut world, master, workers) = setting();
    world.unsavable.insert(workers[1], 1);
    let failed = world.suspend(master, 0).expect_err("one cannot be saved");
    assert!(failed.text.contains("strange device"), "{failed}");
    world.unsavable.clear();
    assert!(world.suspended(1).is_empty());
    let failed = world.suspend(workers[0], 9).expect_err("it is one task");
    let says = failed
        .text
        .contains("until it is resumed; ask without a time");
    assert!(says && failed.kind == FailKind::Refused, "{failed}");
    let (app, for_ms) = (workers[0], 0);
    let asked = world.ask::<Saved>(master, &SuspendApp { app, for_ms });
    let failed = asked.expect_err("a task asks");
    let says = failed
        .text
        .contains("a task suspends whole applications only");
    assert!(says && failed.kind == FailKind::Refused, "{failed}");
    let failed = world.suspend(master, u64::MAX).expect_err("too long");
    assert_eq!(failed.kind, FailKind::BadRequest, "{failed}");
    let failed = world.resume_app(2, master).expect_err("it runs");
    assert!(failed.text.contains("not suspended"), "{failed}");
    // The coordinator dies when all images are written. The application is recorded and has ended,
    // or neither.
    world.store.slow = true;
    let conn = world.conn();
    let number = world.console_request(1, conn, &Request::Suspend(master, 0));
    let all = [master, workers[0], workers[1]];
    world.run_until("they stand", |world| {
        all.iter().all(|tid| world.processes[tid].frozen)
    });
    let serving = world.daemon(4).serving_coordinator(master);
    let (number_of, _) = serving.expect("it serves");
    world.input(HostId(4), ProcessInput::CoordinatorGone(number_of));
    world.store.slow = false;
    world.run_until("an answer", |world| {
        world.console_answer(conn, number).is_some()
    });
    let answer = world.console_answer(conn, number);
    assert!(
        matches!(answer, Some(Answer::Checkpointed(_))),
        "{answer:?}"
    );
    assert_eq!(world.suspended(1)[0].from, CheckpointId::new(0, 3));
}

#[test]
fn the_requester_of_a_suspension_gets_a_reply_though_the_daemon_with_the_result_is_lost() {
    let (mut world, master, _) = setting();
    world.lost = Some(|order| matches!(order, Order::CheckpointEnd(_)));
    let conn = world.conn();
    let number = world.console_request(1, conn, &Request::Suspend(master, 0));
    world.run_until("it is suspended", |world| {
        let state = world.daemon(1).agreement().state();
        state.suspended(master).is_some()
    });
    world.crash(4);
    world.lost = None;
    world.run_until("an answer", |world| {
        world.console_answer(conn, number).is_some()
    });
    let Some(Answer::Failed(failed)) = world.console_answer(conn, number) else {
        panic!("nobody knows how it went")
    };
    assert_eq!(failed.kind, FailKind::HostLost);
    assert!(failed.text.contains("was suspended"), "{failed}");
    assert_eq!(world.suspended(1).len(), 1);
}

#[test]
fn the_console_waits_and_is_informed_until_the_suspension_is_over() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    world.suspend(master, 0).expect("it can be saved");
    assert!(
        world
            .lines(conn)
            .contains("t1.1 is suspended with checkpoint g0-e1")
    );
    assert!(world.lines(conn).contains("'vm resume t1.1'"));
    assert_eq!(run_end(&world, conn), None);
    world.resume_app(2, master).expect("it can be brought back");
    world.run_for(Duration::from_secs(1));
    assert!(world.lines(conn).contains("t1.1 is resumed on n1, n2"));
    check(&mut world, &[master, worker]);

    let minute = 60_000;
    world.suspend(master, minute).expect("it can be saved");
    let rows = world.suspended(3);
    assert_eq!(rows[0].until_ms, rows[0].since_ms + minute);
    world.run_for(Duration::from_millis(minute - 10_000));
    assert_eq!(world.suspended(3).len(), 1);
    world.run_for(Duration::from_secs(12));
    assert!(world.suspended(3).is_empty());
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Suspended));
    let lines = world.lines(conn);
    assert!(
        lines.contains("time for which t1.1 was suspended is over"),
        "{lines}"
    );
    // Its checkpoint stays.
    let restart = Request::Restart {
        app: master,
        from: None,
        attach: false,
        keep_files: false,
    };
    let answer = world.answer_of(3, &restart);
    assert!(matches!(answer, Answer::Restarted(_)), "{answer:?}");
    check(&mut world, &[master, worker]);
}

#[test]
fn the_time_of_a_suspension_ends_though_the_host_that_would_end_it_is_lost() {
    let (mut world, master, _) = setting();
    world.suspend(master, 20_000).expect("it can be saved");
    world.crash(1);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.suspended(2).len(), 1);
    world.run_for(Duration::from_secs(15));
    assert!(world.suspended(2).is_empty());
    let failed = world.resume_app(2, master).expect_err("it has ended");
    assert!(failed.text.contains("vm checkpoints"), "{failed}");
}

#[test]
fn a_user_ends_a_suspended_application_or_restarts_it_from_another_checkpoint() {
    let mut world = World::new(4);
    let (conn, master) = run(&mut world);
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("it can be saved");
    world.suspend(master, 0).expect("it can be saved");
    // The hangup of a closed terminal does not end it.
    let signal = |signal| Request::Signal(master, signal);
    assert_eq!(world.answer_of(1, &signal(1)), Answer::Done);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.suspended(1).len(), 1);
    let restart = Request::Restart {
        app: master,
        from: Some(CheckpointId::new(0, 1)),
        attach: false,
        keep_files: false,
    };
    let Answer::Restarted(report) = world.answer_of(3, &restart) else {
        panic!("it can be brought back")
    };
    assert_eq!(report.from, CheckpointId::new(0, 1));
    world.run_for(Duration::from_secs(1));
    assert!(world.suspended(1).is_empty());
    assert_eq!(run_end(&world, conn), None);
    check(&mut world, &[master, worker]);
    world.suspend(master, 0).expect("it can be saved");
    assert_eq!(world.answer_of(3, &signal(9)), Answer::Done);
    world.run_until("the end of the run", |world| run_end(world, conn).is_some());
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Suspended));
    assert!(world.suspended(1).is_empty());
    assert!(!world.is_alive(worker));
    // An application that is being resumed ends, too.
    assert!(matches!(world.answer_of(3, &restart), Answer::Restarted(_)));
    world.suspend(master, 0).expect("it can be saved");
    world.store.held.insert(worker);
    let other = world.conn();
    let number = world.console_request(2, other, &Request::Resume(master, None));
    world.run_until("they stand", |world| world.standing.len() == 2);
    assert!(world.suspended(1)[0].resuming);
    assert_eq!(world.answer_of(3, &signal(15)), Answer::Done);
    world.run_until("an answer", |world| {
        world.console_answer(other, number).is_some()
    });
    let answer = world.console_answer(other, number);
    assert!(matches!(answer, Some(Answer::Failed(_))), "{answer:?}");
    assert!(world.suspended(1).is_empty());
    assert_eq!(world.daemon(1).agreement().state().apps().count(), 0);
}

#[test]
fn an_application_that_cannot_be_resumed_stays_suspended_and_the_reason_is_given() {
    let (mut world, master, workers) = setting();
    world.suspend(master, 0).expect("it can be saved");
    world.store.broken.insert(workers[0]);
    for _ in 0..2 {
        let failed = world.resume_app(2, master).expect_err("it is damaged");
        assert!(failed.text.contains("the image is damaged"), "{failed}");
        assert_eq!(world.suspended(1).len(), 1);
    }
    world.store.broken.clear();
    world.resume_app(2, master).expect("it can be brought back");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_task_suspends_and_resumes_another_application_and_suspends_its_own() {
    let (mut world, master, workers) = setting();
    let other = world.master(2, "other");
    let suspend = |app| SuspendApp { app, for_ms: 0 };
    let Saved { report } = world.ask(other, &suspend(master)).expect("it may");
    assert_eq!(report.tasks, 3);
    world.run_for(Duration::from_secs(1));
    let Resumed { report } = world
        .ask(other, &ResumeApp { app: master })
        .expect("it may");
    assert_eq!(report.from, CheckpointId::new(0, 1));
    check(&mut world, &[master, workers[0], workers[1]]);
    let number = world.request(workers[0], &suspend(master));
    world.run_until("it is suspended", |world| {
        world
            .daemon(2)
            .agreement()
            .state()
            .suspended(master)
            .is_some()
    });
    world.run_for(Duration::from_secs(1));
    world.resume_app(1, master).expect("it can be brought back");
    world.run_for(Duration::from_secs(1));
    // The task sees the suspension by its generation, and uses the number for another request.
    assert!(world.answers(workers[0], number).is_empty());
    world.request_again(workers[0], &SaveApp {}, number);
    world.run_until("an answer", |world| {
        !world.answers(workers[0], number).is_empty()
    });
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_drain_that_saves_first_begins_only_if_all_applications_can_be_saved() {
    let (mut world, master, workers) = setting();
    let other = world.master(3, "other");
    world.unsavable.insert(other, 1);
    let failed = world.drain_by(3, SAVE).expect_err("one cannot be saved");
    let says = failed.text.contains("application t3.2 cannot be saved")
        && failed.text.contains("without --checkpoint");
    assert!(says, "{failed}");
    assert_eq!(phase(&world, 3), HostPhase::Living);
    world.run_for(Duration::from_secs(2));
    world.unsavable.clear();
    world.store.committed.clear();
    let report = world.drain_by(3, SAVE).expect("it drains");
    assert_eq!((report.saved_count, report.moved_count), (2, 2));
    assert_eq!((report.refused_count, report.suspended.len()), (0, 0));
    let saved = world.store.committed.iter().map(|it| it.agreed.app);
    assert_eq!(saved.collect::<BTreeSet<_>>(), [other, master].into());
    check(&mut world, &[master, workers[0], workers[1]]);
    // Work that is under way at the request is awaited.
    let answer = world.answer_of(1, &Request::Undrain("n3".to_owned()));
    assert_eq!(answer, Answer::Done);
    world.store.slow = true;
    let underway = world.request_checkpoint(master, false);
    world.run_until("the cut", |world| {
        world.daemon(2).agreement().state().is_cut(master)
    });
    let conn = world.conn();
    let request = Request::Drain("n2".to_owned(), SAVE);
    let number = world.console_request(1, conn, &request);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.console_answer(conn, number), None);
    world.store.slow = false;
    world.store_images();
    world.checkpointed(underway).expect("it can be saved");
    world.run_until("the drain", |world| {
        world.console_answer(conn, number).is_some()
    });
    let Some(Answer::Drained(report)) = world.console_answer(conn, number) else {
        panic!("it drains")
    };
    assert_eq!(report.refused_count, 0);
    assert!(report.saved_count > 0, "{report:?}");
}

#[test]
fn an_application_without_a_target_is_suspended_and_resumed_when_a_host_joins() {
    let mut world = World::new(1);
    let (conn, master) = run(&mut world);
    let other = world.master(1, "other");
    let request = Request::Drain("n1".to_owned(), DrainWay::default());
    let Answer::Failed(failed) = world.answer_of(1, &request) else {
        panic!("there is nowhere to go")
    };
    assert!(failed.text.contains("run on where they are"), "{failed}");
    assert!(world.is_alive(master) && world.is_alive(other));
    let report = world.drain_by(1, SUSPEND).expect("they are suspended");
    assert_eq!((report.moved_count, report.refused_count), (0, 0));
    assert_eq!(report.suspended, [master, other]);
    world.run_for(Duration::from_secs(5));
    assert!(!world.is_alive(master) && !world.is_alive(other));
    assert_eq!(phase(&world, 1), HostPhase::Draining);
    let rows = world.suspended(1);
    let drained = rows.iter().map(|row| row.drained.as_deref());
    assert_eq!(drained.collect::<Vec<_>>(), [Some("n1"), Some("n1")]);
    assert!(world.lines(conn).contains("because host 'n1' drains"));

    world.join(HostId(1), "n2").expect("it may join");
    world.runs_again(master);
    world.runs_again(other);
    world.run_for(Duration::from_secs(2));
    assert!(world.lines(conn).contains("t1.1 is resumed on n2"));
    assert_eq!(world.processes[&master].host, HostId(2));
    // The master is on another host than its console, which learns of its end nevertheless.
    assert_eq!(run_end(&world, conn), None);
    world.exit(master, 3).expect("it may leave");
    world.run_until("the end of the run", |world| run_end(world, conn).is_some());
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Left(3)));
    assert!(world.is_alive(other));
}

#[test]
fn the_end_of_a_drain_and_the_ends_of_tasks_make_room_for_a_suspended_application() {
    // Each host takes twenty tasks.
    let mut world = World::new(2);
    let master = world.master(2, "master");
    let workers = world.spawn(master, "worker", 2, on(2)).tids;
    let filler = world.master(1, "filler");
    let fill = world.spawn(filler, "filler", 18, on(1)).tids;
    // One task finds room and the application does not: the application is suspended, with the
    // tasks that have left.
    let report = world.drain_by(2, SUSPEND).expect("it drains");
    assert_eq!(report.refused_count, 0, "{report:?}");
    assert_eq!(report.suspended, [master]);
    world.run_for(Duration::from_secs(10));
    let state = world.daemon(1).agreement().state();
    assert_eq!(state.tasks_of(master).count(), 0);
    // Two tasks end.
    world.exit(fill[0], 0).expect("it may leave");
    world.exit(fill[1], 0).expect("it may leave");
    world.runs_again(master);
    check(&mut world, &[master, workers[0], workers[1]]);
    let host = |world: &World, tid: Tid| world.processes[&tid].host;
    assert!(workers.iter().all(|tid| host(&world, *tid) == HostId(1)));

    let answer = world.answer_of(1, &Request::Undrain("n2".to_owned()));
    assert_eq!(answer, Answer::Done);
    let late = world.spawn(filler, "filler", 18, on(2));
    assert_eq!(late.failures, []);
    let report = world.drain_by(1, SUSPEND).expect("it drains");
    assert!(report.suspended.contains(&master), "{report:?}");
    world.run_for(Duration::from_secs(2));
    let answer = world.answer_of(1, &Request::Undrain("n1".to_owned()));
    assert_eq!(answer, Answer::Done);
    world.runs_again(master);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_second_request_for_a_drain_keeps_the_option_of_the_first() {
    let mut world = World::new(2);
    let master = world.master(2, "master");
    // The other host takes no more tasks.
    let filler = world.master(1, "filler");
    world.spawn(filler, "filler", 19, on(1));
    // The log of the host to drain does not apply its proposal yet.
    world.behind = Some(HostId(2));
    let requests = [SUSPEND, DrainWay::default()].map(|way| {
        let conn = world.conn();
        let request = Request::Drain("n2".to_owned(), way);
        let number = world.console_request(1, conn, &request);
        world.run_for(Duration::from_millis(20));
        (conn, number)
    });
    world.behind = None;
    for (conn, number) in requests {
        world.run_until("the drain", |world| {
            world.console_answer(conn, number).is_some()
        });
        let Some(Answer::Drained(report)) = world.console_answer(conn, number) else {
            panic!("it drains");
        };
        assert_eq!(report.suspended, [master]);
    }
}

#[test]
fn a_task_that_can_neither_leave_nor_be_suspended_stays_and_is_named() {
    let (mut world, master, workers) = setting();
    world.unsavable.insert(workers[1], u32::MAX);
    let report = world.drain_by(3, SUSPEND).expect("it drains");
    assert_eq!(report.suspended, []);
    let [(tid, why)] = &report.refused[..] else {
        panic!("{report:?}")
    };
    assert_eq!(*tid, workers[1]);
    assert!(why.text.contains("cannot be suspended"), "{why}");
    world.unsavable.clear();
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_daemon_that_is_to_end_suspends_the_applications_that_cannot_leave() {
    let mut world = World::new(1);
    world.drain_at_stop = Some(Duration::from_secs(10));
    world.suspend_at_stop = true;
    world.join(HostId::FOUNDER, "n2").expect("let in");
    world.run_for(Duration::from_secs(2));
    let master = world.master(2, "master");
    let filler = world.master(1, "filler");
    world.spawn(filler, "filler", 19, on(1));
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_secs(5));
    assert_eq!(phase(&world, 2), HostPhase::Gone);
    let rows = world.suspended(1);
    assert_eq!(
        (rows[0].app, rows[0].until_ms - rows[0].since_ms),
        (master, 90_000)
    );
    // A host joins, and the application is resumed there.
    world.join(HostId::FOUNDER, "n3").expect("let in");
    world.runs_again(master);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[&master].host, HostId(3));
}

#[test]
fn a_console_whose_host_suspends_its_run_and_ends_is_informed() {
    let mut world = World::new(1);
    world.drain_at_stop = Some(Duration::from_secs(10));
    world.suspend_at_stop = true;
    world.join(HostId::FOUNDER, "n2").expect("let in");
    let (conn, master) = run_on(&mut world, 2);
    let filler = world.master(1, "filler");
    world.spawn(filler, "filler", 19, on(1));
    world.input(HostId(2), Input::Stop);
    world.run_for(Duration::from_secs(5));
    assert_eq!(run_end(&world, conn), ended(ExitStatus::Suspended));
    let (_, told) = shown(&world, conn).pop().expect("words");
    let name = format!("{}-{}", master.machine(), master.show(master.machine()));
    assert!(told.contains(&format!("'vm restart {name}'")), "{told}");
}

#[test]
fn a_suspended_application_makes_no_checkpoints_until_it_is_resumed() {
    let (mut world, master, _) = setting();
    let policy = Policy {
        every_ms: 2_000,
        ..Policy::default()
    };
    let answer = world.answer_of(1, &Request::Policy(master, policy));
    assert_eq!(answer, Answer::Done);
    world.suspend(master, 0).expect("it can be saved");
    let count = world.store.committed.len();
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.store.committed.len(), count);
    world.resume_app(1, master).expect("it can be brought back");
    world.run_for(Duration::from_secs(5));
    assert!(world.store.committed.len() > count);
    // A program that is started anew is another application.
    let conn = world.conn();
    let answer = world.console(1, conn, &Request::Spawn(spawn("master", 1, on(2))));
    assert!(matches!(answer, Answer::Started(_)), "{answer:?}");
}
