//! Hosts with stores of their own: images are on two disks, and are found on the one that remains.

use crate::{
    checkpoints::{check, setting_in},
    world::{Disks, World, damaged, on},
};
use std::{collections::BTreeSet, time::Duration};
use vm_machine::{MoveInput, MoveOutput, Output, StoreInput, StoreOutput};
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Committed, Loaded},
    console::{Answer, Request},
    task::{FailKind, Failed},
};

impl World {
    fn disks(&mut self) -> &mut Disks {
        self.disks.as_mut().expect("hosts have stores of their own")
    }

    /// The image of a task is whole in the store of its host.
    pub fn put_on_disk(&mut self, host: HostId, tid: Tid, epoch: u32) {
        if let Some(disks) = &mut self.disks {
            let generation = disks.ways[&tid].0;
            disks
                .of(host.0)
                .parts
                .insert((tid, CheckpointId::new(generation, epoch)));
        }
    }

    /// Carries out an output about a host's own store. Returns all other outputs.
    pub fn use_disk(&mut self, host: HostId, output: Output) -> Option<Output> {
        let Some(disks) = &mut self.disks else {
            return Some(output);
        };
        match output {
            Output::Store(StoreOutput::Part {
                tid,
                generation,
                ref second,
                ..
            }) => {
                disks.ways.insert(tid, (generation, second.clone()));
                return Some(output);
            }
            Output::Store(StoreOutput::Commit(checkpoint)) if disks.late.contains(&host) => {
                let disk = disks.of(host.0);
                let agreed = &checkpoint.agreed;
                let id = CheckpointId::new(agreed.generation, agreed.epoch);
                disk.manifests.insert(id, *checkpoint);
            }
            Output::Store(StoreOutput::Commit(checkpoint)) => {
                let agreed = checkpoint.agreed.clone();
                let id = CheckpointId::new(agreed.generation, agreed.epoch);
                let name = format!("n{}", host.0);
                for (task, part) in agreed.tasks.iter().zip(&checkpoint.parts) {
                    let own = part.image.place == name || part.image.copy.as_ref() == Some(&name);
                    assert!(!own || disks.of(host.0).parts.contains(&(task.tid, id)));
                }
                disks.of(host.0).manifests.insert(id, *checkpoint);
                let (app, epoch) = (agreed.app, agreed.epoch);
                let result = Ok(());
                self.input(
                    host,
                    StoreInput::Committed(Committed { app, epoch, result }),
                );
            }
            Output::Store(StoreOutput::Drop {
                generation, epoch, ..
            }) => {
                let (disk, id) = (disks.of(host.0), CheckpointId::new(generation, epoch));
                if !disk.manifests.contains_key(&id) {
                    disk.parts.retain(|(_, of)| *of != id);
                }
            }
            Output::Store(StoreOutput::ExpectCopy {
                ticket, tid, from, ..
            }) => {
                disks.copies.insert(ticket, (host, tid, from));
            }
            Output::Store(StoreOutput::CancelPart(ticket)) => {
                disks.copies.remove(&ticket);
            }
            Output::Store(StoreOutput::SendPart {
                ticket, file: true, ..
            }) => {
                disks.waiting.push((host, ticket));
                if !disks.slow {
                    self.send_copies();
                }
            }
            Output::Store(StoreOutput::SendPart { ticket, from, .. }) => {
                let (to, tid) = self.expected.remove(&ticket).expect("it is awaited");
                self.bring(host, (tid, from), to);
                let whole = self.disks().is_whole(host, tid, from);
                let result = if whole { Ok(()) } else { Err(damaged()) };
                self.input(host, StoreInput::PartSent(ticket, result));
            }
            Output::Store(StoreOutput::Inventory {
                question,
                from,
                verify,
                ..
            }) => {
                disks.asked.push((host, verify));
                let rows = disks.rows(host, from, verify);
                self.input(host, StoreInput::Inventory(question, Ok(rows)));
            }
            Output::Store(StoreOutput::Load { question, from, .. }) => {
                let id = from.expect("one that was chosen");
                let found = disks.of(host.0).manifests.get(&id).cloned();
                let none = || Failed::new(FailKind::System, "it is not in this store");
                let loaded = found.map(|checkpoint| {
                    Box::new(Loaded {
                        checkpoint,
                        passed_over: Vec::new(),
                        age_ms: 3_000,
                    })
                });
                let result = loaded.ok_or_else(none);
                self.input(host, StoreInput::Loaded(question, result));
            }
            Output::Move(MoveOutput::Restore { tid, from, .. }) => {
                self.bring(host, (tid, from), host)
            }
            Output::Store(StoreOutput::Forget(_)) => drop(disks.disks.remove(&host)),
            other => return Some(other),
        }
        None
    }

    /// The waiting second copies arrive.
    fn send_copies(&mut self) {
        for (host, ticket) in std::mem::take(&mut self.disks().waiting) {
            self.input(host, StoreInput::PartSent(ticket, Ok(())));
            let disks = self.disks();
            let Some((to, tid, id)) = disks.copies.remove(&ticket) else {
                continue;
            };
            if !self.is_up(to) {
                continue;
            }
            let disks = self.disks();
            assert!(disks.of(host.0).parts.contains(&(tid, id)), "no such part");
            let result = match disks.full.contains(&to) {
                true => Err(Failed::new(FailKind::System, "no space left on device")),
                false => {
                    disks.of(to.0).parts.insert((tid, id));
                    Ok(())
                }
            };
            self.input(to, StoreInput::CopyTaken(ticket, result));
        }
    }

    /// Restores a process from an image in the store of `host`.
    fn bring(&mut self, host: HostId, (tid, from): (Tid, CheckpointId), to: HostId) {
        let disks = self.disks();
        assert!(
            disks.of(host.0).parts.contains(&(tid, from)),
            "no such part"
        );
        disks.read.push((host, tid, to));
        if disks.is_whole(host, tid, from) {
            self.restore(to, tid, from);
        } else {
            self.input(to, MoveInput::Arrived(tid, Err(damaged())));
        }
    }
}

fn setting() -> (World, Tid, [Tid; 2]) {
    setting_in(World::with_own_stores(4))
}

fn lives_on(world: &World, asked: u16, tid: Tid) -> Option<u16> {
    let state = world.daemon(asked).agreement().state();
    state.living_task(tid).map(|task| task.host.0)
}

#[test]
fn each_image_is_on_two_disks_and_every_host_has_the_manifest() {
    let (mut world, master, workers) = setting();
    world.save(master);
    world.run_for(Duration::from_secs(1));
    let disks = world.disks();
    let holders =
        [workers[0], workers[1], master].map(|tid| disks.holders(tid, CheckpointId::new(0, 1)));
    assert_eq!(holders, [vec![2, 3], vec![3, 4], vec![1, 4]]);
    for host in 1..=4 {
        let manifest = &disks.of(host).manifests[&CheckpointId::new(0, 1)];
        let parts = manifest.parts.iter().map(|part| &part.image);
        let places = parts.map(|part| (part.place.as_str(), part.copy.as_deref()));
        let expected = [("n2", "n3"), ("n3", "n4"), ("n4", "n1")];
        let expected = expected.map(|(place, copy)| (place, Some(copy)));
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn the_only_host_saves_without_a_second_copy_and_reports_that() {
    let mut world = World::with_own_stores(1);
    let master = world.master(1, "master");
    world.save(master);
    assert_eq!(world.disks().holders(master, CheckpointId::new(0, 1)), [1]);
    let part = &world.disks().of(1).manifests[&CheckpointId::new(0, 1)].parts[0].image;
    assert_eq!(part.copy, None);
    let noted = world.noted.iter();
    let noted: Vec<_> = noted
        .filter(|text| text.contains("this host alone"))
        .collect();
    assert_eq!(noted.len(), 1, "{:?}", world.noted);
}

#[test]
fn tasks_of_a_lost_disk_restart_from_the_second_copies() {
    let (mut world, master, workers) = setting();
    world.save(master);
    world.crash(3);
    world.disks().disks.remove(&HostId(3));
    world.until_back(master, 2);
    // The task is restored on the host with its image.
    let n = HostId;
    let read = world.disks().read.clone();
    let expected = [
        (n(2), workers[0], n(2)),
        (n(4), workers[1], n(4)),
        (n(4), master, n(4)),
    ];
    assert_eq!(BTreeSet::from_iter(read), BTreeSet::from(expected));
    check(&mut world, &[master, workers[0], workers[1]]);
    // The next checkpoint is on two disks again.
    world.save(master);
    let disks = world.disks();
    let holders = [workers[0], workers[1]].map(|tid| disks.holders(tid, CheckpointId::new(2, 2)));
    assert_eq!(holders, [vec![2, 4], vec![1, 4]]);
}

/// The request of a console that restarts an application from its last checkpoint, and shows its
/// output.
fn attached_restart(app: Tid) -> Request {
    Request::Restart {
        app,
        from: None,
        attach: true,
        keep_files: false,
    }
}

#[test]
fn an_image_is_sent_to_the_host_of_its_restored_task() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    // The master is restored on the host of its console.
    let conn = world.conn();
    let request = attached_restart(master);
    let answer = world.console(2, conn, &request);
    assert!(matches!(answer, Answer::Restarted(_)), "{answer:?}");
    assert_eq!(lives_on(&world, 1, master), Some(2));
    let read = world.disks().read.clone();
    let of_master = read.iter().find(|(_, tid, _)| *tid == master);
    assert_eq!(of_master, Some(&(HostId(1), master, HostId(2))));
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn the_loss_of_a_host_that_has_sent_an_image_does_not_fail_the_restart() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    world.store.held.insert(workers[0]);
    let conn = world.conn();
    let request = attached_restart(master);
    let number = world.console_request(2, conn, &request);
    let sent = (HostId(1), master, HostId(2));
    world.run_until("the image", |world| {
        let disks = world.disks.as_ref().expect("own stores");
        disks.read.contains(&sent)
    });
    // The host that sent the image is lost before the other tasks are restored.
    world.crash(1);
    world.run_until("the loss", |world| {
        let state = world.daemon(2).agreement().state();
        !state.is_present(HostId(1))
    });
    world.store.held.clear();
    world.input(HostId(2), MoveInput::Arrived(workers[0], Ok(())));
    world.run_until("the restart", |world| {
        world.console_answer(conn, number).is_some()
    });
    let Some(Answer::Restarted(report)) = world.console_answer(conn, number) else {
        panic!("it restarts");
    };
    // The first attempt has succeeded.
    assert_eq!(report.generation, 1);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_damaged_image_is_taken_from_the_other_disk() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    let bad = (HostId(3), workers[1], CheckpointId::new(0, 1));
    world.disks().damaged.insert(bad);
    let request = world.request_restart(1, master);
    let report = world.restarted(request).expect("there is another copy");
    assert_eq!(
        (report.from, report.passed_over),
        (CheckpointId::new(0, 1), Vec::new())
    );
    let read = world.disks().read.clone();
    let of_it = read.iter().filter(|(_, tid, _)| *tid == workers[1]);
    let from: Vec<u16> = of_it.map(|(host, ..)| host.0).collect();
    assert_eq!(from, [3, 4]);
    let verified = |(_, verify): &&(HostId, bool)| *verify;
    assert_eq!(world.disks().asked.iter().filter(verified).count(), 4);
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_checkpoint_without_an_image_on_any_disk_is_passed_over() {
    let (mut world, master, workers) = setting();
    world.save(master);
    world.save(master);
    world.crash(3);
    let disks = world.disks();
    disks.disks.remove(&HostId(3));
    disks
        .damaged
        .insert((HostId(4), workers[1], CheckpointId::new(0, 2)));
    world.until_back(master, 2);
    // Damage is found only when all data is read, in the second attempt.
    let state = world.daemon(4).agreement().state();
    assert_eq!(state.epochs(master).saved, 1);
    check(&mut world, &[master, workers[0], workers[1]]);
    // No image of the last checkpoint is left on any disk.
    world.stop(master);
    let disks = world.disks();
    disks.disks.values_mut().for_each(|disk| disk.parts.clear());
    let request = world.request_restart(1, master);
    let failed = world.restarted(request).expect_err("no image is left");
    assert!(failed.text.contains("of its 3 images"), "{failed}");
}

#[test]
fn a_host_that_joined_later_learns_of_the_checkpoints_from_the_others() {
    let (mut world, master, workers) = setting();
    world.stop(master);
    let late = world.join(HostId(1), "n5").expect("there is room");
    world.run_for(Duration::from_secs(1));
    let request = world.request_restart(late.0, master);
    let report = world.restarted(request).expect("others have it");
    assert_eq!(report.from, CheckpointId::new(0, 1));
    check(&mut world, &[master, workers[0], workers[1]]);
}

#[test]
fn a_host_without_room_for_a_second_copy_fails_only_the_checkpoint() {
    let (mut world, master, workers) = setting();
    world.disks().full.insert(HostId(4));
    let request = world.request_checkpoint(master, false);
    let failed = world.checkpointed(request).expect_err("there is no room");
    for part in ["copied to host 'n4'", "no space left"] {
        assert!(failed.text.contains(part), "{failed}");
    }
    check(&mut world, &[master, workers[0], workers[1]]);
    let disks = world.disks();
    assert!(
        disks.disks.values().all(|disk| disk.parts.is_empty()),
        "{disks:?}"
    );
    disks.full.clear();
    world.save(master);
}

/// A task on n2 and its master on n4; n3 is to have the second copy of one of them.
fn without_third() -> (World, Tid, Tid) {
    let mut world = World::with_own_stores(4);
    let master = world.master(4, "master");
    let worker = world.spawn(master, "worker", 1, on(2)).tids[0];
    (world, master, worker)
}

#[test]
fn the_loss_of_a_host_that_was_to_take_a_second_copy_begins_the_checkpoint_again() {
    let (mut world, master, worker) = without_third();
    world.disks().slow = true;
    let request = world.request_checkpoint(master, false);
    world.run_until("copies are on their way", |world| {
        let disks = world.disks.as_ref().expect("disks");
        disks.waiting.len() == 2
    });
    world.disks().slow = false;
    world.crash(3);
    let report = world.checkpointed(request).expect("there is another host");
    assert_eq!(report.epoch, 2);
    assert_eq!(
        world.disks().holders(worker, CheckpointId::new(0, 2)),
        [2, 4]
    );
    assert_eq!(
        world.disks().holders(worker, CheckpointId::new(0, 1)),
        [],
        "nothing of it is left"
    );
    check(&mut world, &[master, worker]);
}

#[test]
fn the_loss_of_a_host_that_was_to_commit_does_not_fail_the_checkpoint() {
    let (mut world, master, worker) = without_third();
    world.disks().late.insert(HostId(3));
    let request = world.request_checkpoint(master, false);
    world.run_until("the others have committed", |world| {
        let disks = world.disks.as_ref().expect("disks");
        let has = |host: &u16| {
            let disk = disks.disks.get(&HostId(*host));
            disk.is_some_and(|disk| disk.manifests.contains_key(&CheckpointId::new(0, 1)))
        };
        [1, 2, 3, 4].iter().all(has)
    });
    world.run_for(Duration::from_millis(500));
    assert!(
        world.console_answer(request.0, request.1).is_none(),
        "n3 has not said so"
    );
    world.crash(3);
    let report = world.checkpointed(request).expect("the others have it");
    assert_eq!(report.epoch, 1);
    check(&mut world, &[master, worker]);
}

#[test]
fn all_hosts_have_stores_of_their_own_or_none() {
    let mut world = World::with_own_stores(1);
    world.disks = None;
    let refused = world.join(HostId(1), "n2").expect_err("it shares one");
    assert!(refused.contains("--store-local here too"), "{refused}");
    let mut world = World::new(1);
    world.disks = Some(Disks::default());
    let refused = world.join(HostId(1), "n2").expect_err("it has its own");
    assert!(refused.contains("or none"), "{refused}");
}
