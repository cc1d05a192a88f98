//! Checkpoints of an application: all its tasks are saved, or the application continues unchanged.

use crate::world::{Carry, World, on};
use std::time::Duration;
use vm_machine::{ConnId, MoveInput, ProcessInput, StoreInput, Written};
use vm_wire::{
    HostId, Tid,
    agreed::ExitStatus,
    checkpoint::{Checkpoint, CheckpointReport, Committed, Part},
    console::{Answer, Request},
    limits,
    task::{FailKind, Failed, GroupChange, GroupView},
};

impl World {
    pub fn freeze_to_store(&mut self, host: HostId, tid: Tid, epoch: u32) {
        let process = self.processes.get_mut(&tid).expect("a process");
        assert_eq!((process.host, process.frozen), (host, false));
        let busy = self.busy.get_mut(&tid).filter(|left| **left > 0);
        if let Some(left) = busy {
            *left -= 1;
            let failed = Failed::new(FailKind::Busy, "it has a child process");
            return self.input(host, MoveInput::Frozen(tid, Err(failed)));
        }
        if self.unsavable.contains_key(&tid) {
            let failed = Failed::new(FailKind::Refused, "it has a strange device open");
            return self.input(host, MoveInput::Frozen(tid, Err(failed)));
        }
        if self.store.late.contains(&tid) {
            self.store.told.insert(tid, (host, epoch));
            return;
        }
        process.frozen = true;
        let image = process.endpoint.clone().expect("it is enrolled");
        self.store.images.insert(tid, image);
        let time = Duration::from_millis(3);
        let written = Written {
            bytes: 1000,
            time,
            unacknowledged: 0,
        };
        self.input(host, MoveInput::Frozen(tid, Ok(written)));
        let part = Part {
            name: format!("{tid}.image"),
            bytes: 1000,
            hash: [7; 16],
            place: format!("n{}", host.0),
            stored: 1000,
            packed: None,
            base: None,
            copy: None,
        };
        self.store.waiting.insert(tid, (host, epoch, part));
        if !self.store.slow {
            self.store_images();
        }
    }

    /// The late tasks freeze.
    pub fn stop_late(&mut self) {
        self.store.late.clear();
        for (tid, host) in std::mem::take(&mut self.store.told_to_hold) {
            self.input(host, MoveInput::Held(tid));
        }
        for (tid, (host, epoch)) in std::mem::take(&mut self.store.told) {
            self.freeze_to_store(host, tid, epoch);
        }
        for (tid, host) in std::mem::take(&mut self.store.told_to_move) {
            self.freeze(host, tid);
        }
    }

    /// The waiting images are whole in the store.
    pub fn store_images(&mut self) {
        for (tid, (host, epoch, part)) in std::mem::take(&mut self.store.waiting) {
            let full = Failed::new(FailKind::System, "no space left on device");
            self.put_on_disk(host, tid, epoch);
            let result = if self.store.full { Err(full) } else { Ok(part) };
            self.input(host, StoreInput::Part(tid, epoch, result));
        }
    }

    pub fn commit(&mut self, host: HostId, checkpoint: Checkpoint) {
        if self.store.holds {
            self.store.held_commit = Some((host, checkpoint));
            return;
        }
        let agreed = &checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        self.store.committed.push(checkpoint);
        let result = Ok(());
        let committed = Committed { app, epoch, result };
        self.input(host, StoreInput::Committed(committed));
    }

    /// Carries out the waiting commit.
    pub fn commit_held(&mut self) {
        self.store.holds = false;
        let (host, checkpoint) = self.store.held_commit.take().expect("a checkpoint");
        self.commit(host, checkpoint);
    }

    pub fn request_checkpoint(&mut self, tid: Tid, stop: bool) -> (ConnId, u64) {
        let conn = self.conn();
        let request = Request::Checkpoint(tid, stop);
        (conn, self.console_request(1, conn, &request))
    }

    pub fn checkpointed(
        &mut self,
        (conn, number): (ConnId, u64),
    ) -> Result<CheckpointReport, Failed> {
        self.run_until("the checkpoint", |world| {
            world.console_answer(conn, number).is_some()
        });
        match self.console_answer(conn, number) {
            Some(Answer::Checkpointed(report)) => Ok(report),
            Some(Answer::Failed(failed)) => Err(failed),
            other => panic!("{other:?}"),
        }
    }
}

/// A master on n4, workers on n2 and n3. The leader's host n1 has no task.
pub fn setting() -> (World, Tid, [Tid; 2]) {
    setting_in(World::new(4))
}

/// The same in a given machine of at least four hosts.
pub fn setting_in(mut world: World) -> (World, Tid, [Tid; 2]) {
    let master = world.master(4, "master");
    let workers = [2, 3].map(|host| world.spawn(master, "worker", 1, on(host)).tids[0]);
    (world, master, workers)
}

pub fn stand(world: &World, tids: &[Tid]) -> bool {
    tids.iter().all(|tid| world.processes[tid].frozen)
}

/// A checkpoint for which all tasks are frozen but `late`, which freezes when the test says so.
pub fn all_but_late(world: &mut World, late: Tid, stand: &[Tid]) -> (ConnId, u64) {
    world.store.late.insert(late);
    let request = world.request_checkpoint(late, false);
    world.run_until("the others stand", |world| self::stand(world, stand));
    request
}

/// A checkpoint whose tasks were frozen and run again, and whose images are not whole yet.
pub fn being_written(world: &mut World, tids: &[Tid]) -> (ConnId, u64) {
    world.store.slow = true;
    let request = all_but_late(world, tids[0], &tids[1..]);
    world.stop_late();
    let goes = |world: &World| tids.iter().all(|tid| !world.processes[tid].frozen);
    world.run_until("they go on", goes);
    assert!(world.console_answer(request.0, request.1).is_none());
    request
}

/// Checks that all tasks run, and that a message between each two of them arrives once.
pub fn check(world: &mut World, tids: &[Tid]) {
    world.run_for(Duration::from_secs(2));
    let mut ways = world.store.ways.iter();
    assert_eq!(ways.find(|(_, host)| world.is_up(**host)), None);
    for tid in tids {
        assert!(!world.processes[tid].frozen, "{tid} stands");
        world.received(*tid);
    }
    for (from, to) in tids.iter().flat_map(|a| tids.iter().map(move |b| (*a, *b))) {
        if from != to {
            world.send(from, to, "hello");
        }
    }
    world.run_for(Duration::from_secs(2));
    for tid in tids {
        assert_eq!(world.received(*tid).len(), tids.len() - 1, "{tid}");
    }
}

/// Otherwise the next request for a restart would be refused, because the application still runs
/// there.
#[test]
fn the_reply_to_a_stop_comes_when_the_log_of_the_daemon_with_the_request_has_it() {
    let (mut world, master, _) = setting();
    world.store.holds = true;
    let conn = world.conn();
    let number = world.console_request(2, conn, &Request::Checkpoint(master, true));
    world.run_until("it is whole", |world| world.store.held_commit.is_some());
    world.behind = Some(HostId(2));
    world.commit_held();
    let runs = |world: &World, host| {
        let state = world.daemon(host).agreement().state();
        state.tasks_of(master).next().is_some()
    };
    world.run_until("it has ended", |world| !runs(world, 4));
    world.run_for(Duration::from_millis(50));
    assert!(runs(&world, 2) && world.console_answer(conn, number).is_none());
    world.behind = None;
    let report = world.checkpointed((conn, number));
    assert_eq!(report.expect("it was saved").tasks, 3);
    assert!(!runs(&world, 2));
}

#[test]
fn all_tasks_of_an_application_are_saved_and_resume() {
    let (mut world, master, workers) = setting();
    let other = world.master(2, "other");
    let change = GroupChange {
        group: "g".to_owned(),
        join: true,
    };
    for tid in [other, workers[1], master] {
        let joined: GroupView = world.ask(tid, &change).expect("it may join");
        assert!(joined.members.iter().any(|(_, member)| *member == tid));
    }
    let request = world.request_checkpoint(workers[0], false);
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!((report.generation, report.epoch, report.tasks), (0, 1, 3));
    assert_eq!(report.bytes, 3000);
    let saved = world.store.committed.pop().expect("a checkpoint");
    let tids = saved.agreed.tasks.iter().map(|task| task.tid);
    assert_eq!(tids.collect::<Vec<_>>(), [workers[0], workers[1], master]);
    let hosts = saved.agreed.tasks.iter().map(|task| task.host.0);
    assert_eq!(hosts.collect::<Vec<_>>(), [2, 3, 4]);
    let group = &saved.agreed.groups[0];
    assert_eq!(group.members, [(1, workers[1]), (2, master)]);
    assert!(!world.store.images.contains_key(&other));
    check(&mut world, &[master, workers[0], workers[1]]);
    let request = world.request_checkpoint(master, false);
    assert_eq!(
        world.checkpointed(request).map(|report| report.epoch),
        Ok(2)
    );
}

#[test]
fn no_task_resumes_before_all_are_frozen_and_no_message_reaches_a_frozen_task() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = all_but_late(&mut world, workers[1], &[master, workers[0]]);
    let other = world.master(2, "other");
    world.send(other, master, "from outside");
    world.run_for(Duration::from_secs(3));
    assert!(stand(&world, &[master, workers[0]]));
    world.stop_late();
    let report = world.checkpointed(request).expect("they can be saved");
    assert!(report.freeze_us >= 3_000_000, "{report:?}");
    world.run_for(Duration::from_millis(500));
    let told = [(other, "from outside".to_owned())];
    assert_eq!(world.received(master), told);
    check(&mut world, &all);
}

#[test]
fn tasks_run_while_their_images_are_written() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = being_written(&mut world, &all);
    check(&mut world, &all);
    let moved = world.request_move(4, workers[0], 1);
    let failed = world.moved(moved).expect_err("not now");
    assert!(failed.text.contains("checkpoint"), "{failed}");
    assert!(world.store.committed.is_empty());
    world.store_images();
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!((report.epoch, report.tasks), (1, 3));
    assert!(report.freeze_us < 1_000_000, "{report:?}");
    // A task that ends meanwhile is in the checkpoint, with its state at the cut.
    let request = being_written(&mut world, &all);
    world.die(workers[0], ExitStatus::Left(0));
    world.run_for(Duration::from_millis(100));
    world.store_images();
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!((report.epoch, report.tasks), (2, 3));
    check(&mut world, &[master, workers[1]]);
}

#[test]
fn a_fault_while_images_are_written_fails_only_the_checkpoint() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = being_written(&mut world, &all);
    world.store.full = true;
    world.store_images();
    let failed = world.checkpointed(request).expect_err("there is no room");
    assert!(failed.text.contains("no space left"), "{failed}");
    check(&mut world, &all);
    world.store.full = false;
    // The next coordinator ends the cut, and makes another checkpoint.
    let request = being_written(&mut world, &all);
    let serving = world.daemon(4).serving_coordinator(master);
    let (number, _) = serving.expect("it serves");
    world.input(HostId(4), ProcessInput::CoordinatorGone(number));
    world.store.slow = false;
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!((report.epoch, report.tasks), (3, 3));
    // A lost host takes its images with it. The images of the other hosts are useless.
    let request = being_written(&mut world, &all);
    world.crash(3);
    world.run_for(Duration::from_secs(10));
    let failed = world.checkpointed(request).expect_err("its tasks go back");
    assert_ne!(failed.kind, FailKind::BadRequest, "{failed}");
    world.store.slow = false;
    check(&mut world, &all);
    let generation = world
        .daemon(1)
        .agreement()
        .state()
        .epochs(master)
        .generation;
    assert_ne!(generation, 0);
}

#[test]
fn an_in_transit_message_is_saved_with_its_sender() {
    let (mut world, master, workers) = setting();
    // The log of the sender's host is behind the log of the receiver's host.
    world.behind = Some(HostId(2));
    let request = world.request_checkpoint(master, false);
    world.run_until("the receiver stands", |world| stand(world, &[master]));
    assert!(!stand(&world, &[workers[0]]));
    world.send(workers[0], master, "on its way");
    world.run_for(Duration::from_millis(10));
    world.behind = None;
    assert!(world.checkpointed(request).is_ok());
    assert!(world.store.images[&workers[0]].retained_bytes() > 0);
    assert_eq!(world.store.images[&master].retained_bytes(), 0);
    world.run_for(Duration::from_secs(2));
    let told = [(workers[0], "on its way".to_owned())];
    assert_eq!(world.received(master), told);
}

#[test]
fn a_task_that_cannot_be_saved_is_named_and_all_tasks_resume() {
    let (mut world, master, workers) = setting();
    world.unsavable.insert(workers[1], 1);
    let request = world.request_checkpoint(master, false);
    let failed = world
        .checkpointed(request)
        .expect_err("one cannot be saved");
    let names = failed.text.contains("t3.1 on 'n3'") && failed.text.contains("strange device");
    assert!(names, "{failed}");
    assert!(world.store.committed.is_empty());
    check(&mut world, &[master, workers[0], workers[1]]);
    world.unsavable.clear();
    world.store.full = true;
    let request = world.request_checkpoint(master, true);
    let failed = world.checkpointed(request).expect_err("there is no room");
    assert!(failed.text.contains("no space left"), "{failed}");
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_save_that_fails_for_a_reason_that_passes_is_tried_again_within_limits() {
    let (mut world, master, workers) = setting();
    world.busy.insert(workers[1], 3);
    let request = world.request_checkpoint(master, false);
    let report = world.checkpointed(request).expect("it passes");
    assert_eq!((report.epoch, report.tasks), (4, 3));
    check(&mut world, &[master, workers[0], workers[1]]);
    world.busy.insert(workers[1], u32::MAX);
    let begin = world.now;
    let request = world.request_checkpoint(master, false);
    let failed = world.checkpointed(request).expect_err("it does not pass");
    assert_eq!(failed.kind, FailKind::Busy);
    assert!(failed.text.contains("child process"), "{failed}");
    let took = world.now.since(begin);
    assert!(took > limits::CHECKPOINT_PATIENCE / 2 && took <= limits::CHECKPOINT_PATIENCE);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn one_host_removes_the_checkpoints_of_an_application_that_ended_well() {
    let (mut world, master, workers) = setting();
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("it can be saved");
    world.exit(master, 0).expect("it may leave");
    world.run_for(2 * limits::FINISHED_PAUSE);
    // The last tasks may still need the checkpoints.
    assert_eq!(world.forgotten, []);
    for worker in workers {
        world.exit(worker, 0).expect("it may leave");
    }
    world.run_for(2 * limits::FINISHED_PAUSE);
    let [(_, app)] = world.forgotten[..] else {
        panic!("{:?}", world.forgotten);
    };
    assert_eq!(app, master);
}

#[test]
fn checkpoints_stay_unless_a_saved_application_ended_well() {
    // Whether the application was saved, how its master ends, and whether the checkpoints are
    // removed.
    for (saved, signal, status, goes) in [
        (true, None, 0, true),
        (true, None, 3, false),
        (true, Some(15), 0, false),
        (false, None, 0, false),
    ] {
        let (mut world, master, workers) = setting();
        if saved {
            let request = world.request_checkpoint(master, false);
            world.checkpointed(request).expect("it can be saved");
        }
        for worker in workers {
            world.exit(worker, 0).expect("it may leave");
        }
        if let Some(signal) = signal {
            world.stubborn = true;
            let conn = world.conn();
            world.console(1, conn, &Request::Signal(master, signal));
        }
        world.exit(master, status).expect("it may leave");
        world.run_for(2 * limits::FINISHED_PAUSE);
        assert_eq!(
            world.forgotten.len(),
            usize::from(goes),
            "{signal:?}, {status}"
        );
    }
}

#[test]
fn a_task_spawned_during_a_cut_starts_when_the_others_resume() {
    let (mut world, master, workers) = setting();
    world.store.slow = true;
    // The log of one host does not have the cut yet, and its task requests a spawn.
    world.behind = Some(HostId(3));
    let request = world.request_checkpoint(master, false);
    world.run_until("two stand", |world| stand(world, &[master, workers[0]]));
    let number = world.request(workers[1], &crate::world::spawn("late", 1, on(2)));
    world.run_for(Duration::from_millis(300));
    let late = crate::world::tid(2, 2);
    assert!(
        world
            .daemon(2)
            .agreement()
            .state()
            .living_task(late)
            .is_some()
    );
    assert!(!world.processes.contains_key(&late));
    world.behind = None;
    world.run_until("it stands", |world| stand(world, &[workers[1]]));
    assert!(world.answers(workers[1], number).is_empty());
    world.store_images();
    let report = world.checkpointed(request).expect("they can be saved");
    world.run_until("the answer", |world| {
        !world.answers(master, number).is_empty()
    });
    assert_eq!(report.tasks, world.store.committed[0].parts.len() as u32);
    check(&mut world, &[master, workers[0], workers[1], late]);
}

#[test]
fn a_task_that_ends_during_a_cut_is_left_out_of_the_next_attempt() {
    let (mut world, master, workers) = setting();
    let request = all_but_late(&mut world, master, &workers);
    world.die(workers[0], ExitStatus::Signal(9));
    world.run_for(Duration::from_millis(100));
    world.stop_late();
    let report = world.checkpointed(request).expect("the others are saved");
    assert_eq!((report.epoch, report.tasks), (2, 2));
    check(&mut world, &[master, workers[1]]);
}

#[test]
fn an_application_that_ends_during_a_cut_is_not_frozen_after_its_restart() {
    let (mut world, master, workers) = setting();
    let request = world.request_checkpoint(master, false);
    world.checkpointed(request).expect("they can be saved");
    let all = [master, workers[0], workers[1]];
    all_but_late(&mut world, master, &workers);
    for tid in all {
        world.die(tid, ExitStatus::Signal(9));
    }
    world.run_for(Duration::from_secs(5));
    // Each host removes its parts of the failed checkpoint: hosts might not share one store.
    let dropped = world.noted.iter().filter(|note| *note == "drop 2");
    assert_eq!(dropped.count(), 3, "{:?}", world.noted);
    world.store.late.clear();
    let conn = world.conn();
    let request = Request::Restart {
        app: master,
        from: None,
        attach: false,
        keep_files: false,
    };
    world.console_request(1, conn, &request);
    world.run_for(Duration::from_secs(5));
    check(&mut world, &all);
}

#[test]
fn a_host_lost_during_a_cut_ends_the_cut_and_the_remaining_tasks_are_saved() {
    let (mut world, master, workers) = setting();
    let request = all_but_late(&mut world, master, &workers);
    world.crash(3);
    world.run_for(Duration::from_millis(100));
    world.stop_late();
    let report = world.checkpointed(request).expect("the others are saved");
    assert_eq!(report.tasks, 2);
    check(&mut world, &[master, workers[0]]);
}

#[test]
fn a_cut_whose_coordinator_is_lost_ends_and_another_one_is_made() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = all_but_late(&mut world, master, &workers);
    let (number, _) = world
        .daemon(4)
        .serving_coordinator(master)
        .expect("it serves");
    world.input(HostId(4), ProcessInput::CoordinatorGone(number));
    world.stop_late();
    world.run_until("they go on", |world| !stand(world, &[workers[0]]));
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!(report.epoch, 2);
    check(&mut world, &all);
}

#[test]
fn a_cut_ends_after_its_time_limit() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    let request = all_but_late(&mut world, master, &workers);
    world.run_for(limits::CUT_TIME + Duration::from_secs(1));
    let failed = world.checkpointed(request).expect_err("it took too long");
    assert!(failed.text.contains("too long"), "{failed}");
    check(&mut world, &all);
}

#[test]
fn a_checkpoint_cancels_a_move_that_is_not_released() {
    let (mut world, master, workers) = setting();
    let all = [master, workers[0], workers[1]];
    world.carry = Carry::Held;
    let moved = world.request_move(4, workers[0], 1);
    world.run_until("the image", |world| world.processes[&workers[0]].frozen);
    let request = world.request_checkpoint(master, false);
    // The checkpoint takes precedence.
    let failed = world.moved(moved).expect_err("it is taken back");
    assert!(failed.text.contains("checkpoint"), "{failed}");
    let report = world.checkpointed(request).expect("they can be saved");
    assert_eq!(report.tasks, 3);
    check(&mut world, &all);
}

/// The application ends with a checkpoint, and the host that would send the reply is lost.
pub fn ended_untold(request: impl Fn(Tid) -> Request) -> (World, Tid, [Tid; 2], (ConnId, u64)) {
    let (mut world, master, workers) = setting();
    let conn = world.conn();
    world.store.slow = true;
    let number = world.console_request(2, conn, &request(master));
    world.run_until("all are saved", |world| world.store.waiting.len() == 3);
    // The log still hears of the coordinator's host, but the requester's host does not.
    world.store.holds = true;
    world.store_images();
    world.run_until("all are stored", |world| world.store.held_commit.is_some());
    world.cut(4, 2, true);
    world.commit_held();
    world.run_until("it has ended", |world| {
        let state = world.daemon(1).agreement().state();
        state.tasks_of(master).next().is_none()
    });
    world.crash(4);
    world.heal(4, 2);
    world.store.slow = false;
    (world, master, workers, (conn, number))
}
