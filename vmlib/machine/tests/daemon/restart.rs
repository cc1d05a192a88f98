//! Restarts of applications from their checkpoints: all tasks are restored, or none.

use crate::{
    checkpoints::{check, setting, setting_in},
    world::{World, on, tid},
};
use std::time::Duration;
use vm_machine::{ConnId, Input, MoveInput, StoreInput};
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Loaded, RestartReport},
    console::{Answer, Request},
    limits,
    task::{FailKind, Failed, GroupAsk, GroupChange, GroupView},
};

impl World {
    /// Reads the manifest of a checkpoint. Damage in the middle of an image is found only by
    /// `verify`.
    pub fn load(
        &mut self,
        host: HostId,
        question: u64,
        (app, from): (Tid, Option<CheckpointId>),
        verify: bool,
    ) {
        if from.is_none() {
            self.store.verified.push(verify);
        }
        let mut passed_over = Vec::new();
        let mut committed = self.store.committed.iter().rev();
        let found = committed.find(|checkpoint| {
            let agreed = &checkpoint.agreed;
            let id = CheckpointId::new(agreed.generation, agreed.epoch);
            let seen = verify && self.store.damaged.contains(&id);
            if seen {
                passed_over.push(format!("{id}: it is damaged"));
            }
            !seen && agreed.app == app && from.is_none_or(|from| from == id)
        });
        let none = || Failed::new(FailKind::System, "no checkpoint of it is in the store");
        let loaded = found.cloned().map(|checkpoint| {
            Box::new(Loaded {
                age_ms: 3_000 + self.store.older_ms,
                checkpoint,
                passed_over,
            })
        });
        let result = loaded.ok_or_else(none);
        self.input(host, StoreInput::Loaded(question, result));
    }

    /// Restores a process from an image in the store.
    pub fn restore(&mut self, host: HostId, tid: Tid, from: CheckpointId) {
        let broken = self.store.broken.contains(&tid) || self.store.damaged.contains(&from);
        let image = self.store.images[&tid].clone();
        self.standing.insert((host, tid), image);
        if broken {
            let failed = Failed::new(FailKind::System, "the image is damaged");
            self.input(host, MoveInput::Arrived(tid, Err(failed)));
        } else if !self.store.held.contains(&tid) {
            self.input(host, MoveInput::Arrived(tid, Ok(())));
        }
    }

    pub fn request_restart(&mut self, host: u16, app: Tid) -> (ConnId, u64) {
        self.request_restart_with(host, app, false)
    }

    fn request_restart_with(&mut self, host: u16, app: Tid, keep_files: bool) -> (ConnId, u64) {
        let conn = self.conn();
        let request = Request::Restart {
            app,
            from: None,
            attach: false,
            keep_files,
        };
        (conn, self.console_request(host, conn, &request))
    }

    pub fn restarted(&mut self, (conn, number): (ConnId, u64)) -> Result<RestartReport, Failed> {
        self.run_until("the restart", |world| {
            world.console_answer(conn, number).is_some()
        });
        match self.console_answer(conn, number) {
            Some(Answer::Restarted(report)) => Ok(report),
            Some(Answer::Failed(failed)) => Err(failed),
            other => panic!("{other:?}"),
        }
    }

    /// Stops an application with a checkpoint.
    pub fn stop(&mut self, app: Tid) {
        let request = self.request_checkpoint(app, true);
        self.checkpointed(request).expect("it can be saved");
        self.run_for(Duration::from_secs(1));
        assert!(!self.is_alive(app));
    }

    fn lives_on(&self, tid: Tid) -> Option<HostId> {
        let state = self.daemon(1).agreement().state();
        state.living_task(tid).map(|task| task.host)
    }
}

#[test]
fn an_application_restarts_where_it_was_stopped_with_its_groups_and_in_transit_messages() {
    let (mut world, master, workers) = setting();
    let join = GroupChange {
        group: "g".to_owned(),
        join: true,
    };
    let other = world.master(2, "other");
    for tid in [other, workers[1], master] {
        world.ask::<GroupView>(tid, &join).expect("it may join");
    }
    let leave = GroupChange {
        join: false,
        ..join
    };
    world.ask::<GroupView>(other, &leave).expect("it may leave");
    world.cut(4, 2, true);
    world.run_for(Duration::from_millis(10));
    world.send(workers[0], master, "on its way");
    let request = world.request_checkpoint(master, true);
    world.heal(4, 2);
    world.checkpointed(request).expect("it can be saved");
    world.run_for(Duration::from_secs(1));

    let request = world.request_restart(1, master);
    let report = world.restarted(request).expect("it can be brought back");
    assert_eq!((report.app, report.from), (master, CheckpointId::new(0, 1)));
    assert_eq!(report.generation, 1);
    let hosts = [2, 3, 4].map(|host| (HostId(host), 1));
    assert_eq!(report.hosts, hosts);
    world.run_for(Duration::from_secs(2));
    let told = [(workers[0], "on its way".to_owned())];
    assert_eq!(world.received(master), told);
    check(&mut world, &[master, workers[0], workers[1]]);
    let ask = GroupAsk {
        group: "g".to_owned(),
        version: 0,
    };
    let view: GroupView = world.ask(workers[0], &ask).expect("it is there");
    assert_eq!(view.members, [(1, workers[1]), (2, master)]);

    // The application can be saved and restarted again.
    world.stop(master);
    let id = |world: &World| {
        let last = world.store.committed.last().expect("a checkpoint");
        (last.agreed.generation, last.agreed.epoch)
    };
    assert_eq!(id(&world), (1, 2));
    let request = world.request_restart(3, master);
    let report = world.restarted(request).expect("it can be brought back");
    assert_eq!(
        (report.from, report.generation),
        (CheckpointId::new(1, 2), 2)
    );
    check(&mut world, &[master, workers[0], workers[1]]);
    // New tasks can be spawned as before.
    let late = world.spawn(master, "worker", 1, on(2)).tids[0];
    check(&mut world, &[master, workers[0], workers[1], late]);
}

#[test]
fn every_owner_learns_whether_files_are_used_as_they_are() {
    let (mut world, master, workers) = setting();
    for keep_files in [true, false] {
        world.stop(master);
        world.store.keep_files.clear();
        let request = world.request_restart_with(1, master, keep_files);
        world.restarted(request).expect("it can be brought back");
        let told = [master, workers[0], workers[1]].map(|tid| (tid, keep_files));
        assert_eq!(world.store.keep_files, told.into());
    }
}

#[test]
fn tasks_of_a_host_that_has_left_are_restored_elsewhere() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.crash(3);
    world.run_until("its end in the log", |world| {
        let state = world.daemon(1).agreement().state();
        !state.is_present(HostId(3))
    });
    let request = world.request_restart(2, master);
    let report = world.restarted(request).expect("it can be brought back");
    assert_eq!(report.hosts, [1, 2, 4].map(|host| (HostId(host), 1)));
    assert_eq!(world.lives_on(workers[1]), Some(HostId(1)));
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_running_application_is_not_restarted() {
    let (mut world, master, workers) = setting();
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("it can be saved");
    let request = world.request_restart(2, master);
    let failed = world.restarted(request).expect_err("it runs");
    assert!(failed.text.contains("runs in this machine"), "{failed}");
    let request = world.request_restart(2, tid(1, 77));
    let failed = world.restarted(request).expect_err("there is none");
    assert!(failed.text.contains("no checkpoint"), "{failed}");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn two_requests_for_one_restart_restart_the_application_once() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    let requests = [2, 3].map(|host| world.request_restart(host, master));
    let results = requests.map(|request| world.restarted(request));
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1);
    let failed = results
        .into_iter()
        .find_map(Result::err)
        .expect("the other");
    assert!(failed.text.contains("alive"), "{failed}");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_restart_with_a_damaged_image_has_no_effect() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.store.broken.insert(workers[1]);
    let request = world.request_restart(2, master);
    let failed = world.restarted(request).expect_err("one is damaged");
    let names = failed.text.contains("t3.1 on 'n3'") && failed.text.contains("damaged");
    assert!(names, "{failed}");
    // After the failure all data was read without a result, so there was no second attempt.
    assert_eq!(world.store.verified, [false, true]);
    world.run_for(Duration::from_secs(1));
    for tid in [master, workers[0], workers[1]] {
        assert_eq!(world.lives_on(tid), None);
        assert!(!world.is_alive(tid), "{tid}");
    }
    assert!(world.standing.is_empty());
    world.store.broken.clear();
    let request = world.request_restart(2, master);
    let report = world.restarted(request).expect("it can be brought back");
    assert_eq!(report.generation, 2);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_checkpoint_that_proves_damaged_is_passed_over_for_the_one_before() {
    let (mut world, master, workers) = setting();
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("it can be saved");
    world.stop(master);
    world.store.damaged.insert(CheckpointId::new(0, 2));
    let request = world.request_restart(2, master);
    let report = world.restarted(request).expect("the one before is whole");
    assert_eq!(
        (report.from, report.generation),
        (CheckpointId::new(0, 1), 2)
    );
    assert_eq!(report.passed_over, ["g0-e2: it is damaged"]);
    assert_eq!(world.store.verified, [false, true]);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_restart_from_a_named_checkpoint_uses_no_other() {
    let (mut world, master, _) = setting();
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("it can be saved");
    world.stop(master);
    world.store.damaged.insert(CheckpointId::new(0, 2));
    let conn = world.conn();
    let request = Request::Restart {
        app: master,
        from: Some(CheckpointId::new(0, 2)),
        attach: false,
        keep_files: false,
    };
    let number = world.console_request(2, conn, &request);
    let failed = world.restarted((conn, number)).expect_err("it is damaged");
    assert!(failed.text.contains("the image is damaged"), "{failed}");
    assert_eq!(world.store.verified, [], "no other one is looked for");
}

#[test]
fn a_restart_without_a_whole_checkpoint_fails_with_the_reason() {
    let (mut world, master, _) = setting();
    world.stop(master);
    world.store.damaged.insert(CheckpointId::new(0, 1));
    let request = world.request_restart(2, master);
    let failed = world
        .restarted(request)
        .expect_err("the only one is damaged");
    assert!(failed.text.contains("no checkpoint"), "{failed}");
    assert_eq!(world.lives_on(master), None);
}

#[test]
fn a_restart_that_loses_a_host_before_all_tasks_are_restored_has_no_effect() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.store.held.insert(workers[1]);
    let request = world.request_restart(2, master);
    world.run_until("they stand", |world| world.standing.len() == 3);
    world.run_for(Duration::from_secs(1));
    assert!(!world.is_alive(master), "it runs before all are there");
    world.crash(3);
    let failed = world.restarted(request).expect_err("a host is gone");
    assert!(failed.text.contains("lost with its host"), "{failed}");
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.lives_on(master), None);
    world.store.held.clear();
    let request = world.request_restart(2, master);
    world.restarted(request).expect("it can be brought back");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_message_for_a_restored_task_waits_until_the_log_of_its_host_resumes_the_task() {
    let (mut world, master, workers) = setting();
    world.cut(4, 2, true);
    world.run_for(Duration::from_millis(10));
    world.send(workers[0], master, "on its way");
    let request = world.request_checkpoint(master, true);
    world.heal(4, 2);
    world.checkpointed(request).expect("it can be saved");
    world.run_for(Duration::from_secs(1));
    world.store.held.insert(master);
    world.request_restart(2, master);
    world.run_until("they stand", |world| world.standing.len() == 3);
    world.run_for(Duration::from_secs(1));
    // All daemons but the master's learn that all tasks are restored.
    world.behind = Some(HostId(4));
    world.input(HostId(4), MoveInput::Arrived(master, Ok(())));
    world.run_for(Duration::from_millis(50));
    assert!(world.is_alive(workers[0]) && !world.is_alive(master));
    world.behind = None;
    // Less than the time after which a sender repeats.
    world.run_for(limits::REQUEST_RETRY / 2);
    let told = [(workers[0], "on its way".to_owned())];
    assert_eq!(world.received(master), told);
}

#[test]
fn a_restart_continues_though_its_console_is_gone() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.store.held.insert(workers[1]);
    let request = world.request_restart(1, master);
    world.run_until("they stand", |world| world.standing.len() == 3);
    world.input(HostId(1), Input::ConnGone(request.0));
    world.input(HostId(3), MoveInput::Arrived(workers[1], Ok(())));
    world.run_until("it runs", |world| world.is_alive(master));
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_restart_waits_for_a_former_process_that_is_slow_to_end() {
    let (mut world, master, workers) = setting();
    world.linger = true;
    world.stop(master);
    let request = world.request_restart(1, master);
    world.run_for(Duration::from_secs(1));
    assert!(world.standing.is_empty(), "two processes are one task");
    assert_eq!(world.lives_on(workers[0]), Some(HostId(2)));
    world.linger = false;
    world.end_lingering();
    world.restarted(request).expect("it can be brought back");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_restored_process_that_ends_when_the_log_resumes_the_tasks_is_an_ended_task() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.store.held.insert(workers[1]);
    world.request_restart(1, master);
    world.run_until("they stand", |world| world.standing.len() == 3);
    world.run_for(Duration::from_secs(1));
    // The report of its end is on its way when the last host reports its task as restored.
    world.input(HostId(3), MoveInput::Arrived(workers[1], Ok(())));
    let gone = Failed::new(FailKind::System, "it was killed");
    world.standing.remove(&(HostId(2), workers[0]));
    world.input(HostId(2), MoveInput::Arrived(workers[0], Err(gone)));
    world.run_for(Duration::from_secs(5));
    let lives = world.lives_on(workers[0]).is_some();
    assert!(!lives, "it is alive in the log and does not run");
}

#[test]
fn a_restart_whose_end_the_daemon_skipped_by_a_snapshot_gets_a_reply() {
    let (mut world, master, workers) = setting_in(World::with_log(4, 8));
    world.stop(master);
    let other = world.master(4, "other");
    world.store.broken.insert(workers[1]);
    world.behind = Some(HostId(2));
    let (conn, number) = world.request_restart(2, master);
    world.run_for(Duration::from_millis(300));
    assert!(world.agreed().reviving(master).is_none());
    for _ in 0..15 {
        world.spawn(other, "worker", 1, on(4));
        world.run_for(Duration::from_millis(20));
    }
    world.behind = None;
    world.run_for(Duration::from_secs(10));
    assert!(matches!(
        world.console_answer(conn, number),
        Some(Answer::Failed(failed)) if failed.text.contains("this daemon was behind")
    ));
    world.store.broken.clear();
    let request = world.request_restart(2, master);
    world.restarted(request).expect("it is whole now");
}
