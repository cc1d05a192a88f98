//! Portable tasks, whose programs supply their state: saved, stopped, and restarted elsewhere.

use std::{fs, path::Path};
use vm_integration::cluster::{Cluster, PATIENCE, binaries, wait_for};
use vm_store::Store;
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::MoveWay,
    task::FailKind,
};

/// The result for numbers below 20,000,000.
const LONGEST: &str = "the chain of 15733191 has 704 steps";
/// The last line of `vmtest portable`.
const WELL: &str = "all came back, none lost, doubled or out of order";

/// For each task of an application's last checkpoint, the architectures on which it can be
/// restored.
fn arches(store: &Path, app: Tid) -> Vec<String> {
    let store = Store::open(store).expect("a store");
    let (entry, manifest) = store
        .last_good(app, vm_store::Depth::Hashes)
        .expect("it can be read")
        .good
        .expect("a checkpoint");
    store.verify(app, entry).expect("it is whole");
    manifest.tasks.into_iter().map(|task| task.arch).collect()
}

#[test]
fn a_stopped_portable_application_is_restarted_in_another_machine() {
    let before = Cluster::on_loopback(2);
    let mut run = before.nodes[0].client();
    let master = run.run("collatz", &["--workers", "3"]);
    run.output_until("1 of 200 pieces");
    let report = before.nodes[1]
        .client()
        .save(master, true)
        .expect("it can be saved");
    assert_eq!(report.tasks, 4);
    // The checkpoint has no memory of a process.
    assert!(report.bytes < 1 << 20, "{report:?}");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    assert_eq!(arches(&before.store(), master), ["any"; 4]);
    let after = Cluster::on_loopback(3);
    before.copy_store_to(&after);
    drop(before);
    let mut run = after.nodes[2].client();
    let report = run.restart(master).expect("it can be brought back");
    assert_eq!((report.app, report.generation), (master, 1));
    run.ends_well(LONGEST);
}

#[test]
fn in_transit_messages_between_portable_tasks_are_neither_lost_nor_doubled() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["portable", "60000", "n2"]);
    let mut console = cluster.nodes[2].client();
    run.output_until("1000 came back");
    for epoch in 1..=3 {
        let report = console.save(master, false).expect("it can be saved");
        assert_eq!((report.epoch, report.tasks), (epoch, 2));
        let told = run.output_until("after a save");
        assert!(told.contains("before a save"), "{told}");
    }
    // The application is restarted from the last checkpoint.
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    let mut run = cluster.nodes[1].client();
    run.restart(master).expect("it can be brought back");
    let told = run.output_until("on from ");
    assert!(told.contains("resumed"), "{told}");
    // A second restart, from a checkpoint of a process that was itself restored.
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    let mut run = cluster.nodes[2].client();
    assert_eq!(
        run.restart(master)
            .expect("it can be brought back")
            .generation,
        2
    );
    run.ends_well(WELL);
}

#[test]
fn some_tasks_of_an_application_may_be_portable_and_others_images() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("collatz", &["--image"]);
    run.output_until("1 of 200 pieces");
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    let mut arches = arches(&cluster.store(), master);
    arches.sort();
    assert_eq!(arches, ["any", "any", std::env::consts::ARCH]);
    let mut run = cluster.nodes[0].client();
    run.restart(master).expect("it can be brought back");
    run.ends_well(LONGEST);
}

#[test]
fn a_portable_application_that_loses_a_host_recovers() {
    let mut cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["portable", "60000", "n3"]);
    run.output_until("1000 came back");
    cluster.nodes[1]
        .client()
        .save(master, false)
        .expect("it can be saved");
    cluster.nodes[2].signal(rustix::process::Signal::KILL);
    cluster.nodes[2].wait_end(PATIENCE);
    run.output_until("on from ");
    run.ends_well(WELL);
}

#[test]
fn a_portable_program_makes_checkpoints_and_continues_after_a_restart() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    run.run("vmtest", &["portable-saver", "n2"]);
    let told = run.output_until("three steps");
    assert!(told.contains("step 3 is e3"), "{told}");
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    // The application continues after the third step, with the next call.
    let told = run.output_until("step 4 is e");
    assert!(!told.contains("step 3"), "{told}");
    run.ends_well("step 5 is e");
}

#[test]
fn a_portable_task_is_moved_at_a_safe_point() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["portable", "60000", "n2"]);
    run.output_until("1000 came back");
    let mut console = cluster.nodes[1].client();
    let peer = wait_for("the peer", PATIENCE, || {
        let Answer::Ps(rows) = console.ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        rows.into_iter()
            .map(|row| row.tid)
            .find(|tid| *tid != master)
    });
    for to in ["n3", "n1"] {
        let way = MoveWay::default();
        let answer = console.ask(&Request::Move(peer, Some(to.to_owned()), way));
        assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
    }
    run.ends_well(WELL);
}

#[test]
fn a_portable_task_that_comes_to_no_safe_point_is_named_and_runs_on() {
    let cluster = Cluster::on_loopback(1);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["portable-deaf"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let failed = console
        .save(master, false)
        .expect_err("it has no safe point");
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains("came to no safe point"), "{failed}");
    let stored = fs::read_dir(cluster.store())
        .into_iter()
        .flatten()
        .flatten();
    let files = stored.filter_map(|app| fs::read_dir(app.path()).ok());
    assert_eq!(files.flatten().count(), 0, "nothing is left in the store");
    // Output from before the refusal is read first. Output after a second refusal comes from after
    // the first one.
    run.output_until("it goes");
    let failed = console.save(master, true).expect_err("nor later");
    assert!(failed.text.contains("came to no safe point"), "{failed}");
    run.output_until("it goes");
}

#[test]
fn a_missing_program_is_named() {
    let before = Cluster::on_loopback(1);
    let folder = before.folder().join("bin");
    fs::create_dir(&folder).expect("a folder");
    let program = folder.join("their-collatz");
    fs::copy(binaries::binary("collatz"), &program).expect("a copy");
    let path = program.to_str().expect("text").to_owned();
    let mut run = before.nodes[0].client();
    let master = run.run(&path, &[]);
    run.output_until("1 of 200 pieces");
    before.nodes[0]
        .client()
        .save(master, true)
        .expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    fs::remove_file(&program).expect("it was there");
    let request = Request::Restart {
        app: master,
        from: None,
        attach: true,
        keep_files: false,
    };
    let Answer::Failed(failed) = before.nodes[0].client().ask(&request) else {
        panic!("there is no such program");
    };
    assert!(failed.text.contains("their-collatz"), "{failed}");
    assert!(failed.text.contains("--path"), "{failed}");
    // The program is also looked up by its name.
    let elsewhere = before.folder().join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    fs::copy(binaries::binary("collatz"), elsewhere.join("their-collatz")).expect("a copy");
    let mut after = Cluster::on_loopback(0);
    before.copy_store_to(&after);
    let path = elsewhere.to_str().expect("text").to_owned();
    after.add(&["--path", &path]);
    let mut run = after.nodes[0].client();
    run.restart(master).expect("it can be brought back");
    run.ends_well(LONGEST);
}
