//! Checkpoints of applications whose tasks exchange numbered messages.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use vm_integration::cluster::{
    Cluster, Node, PATIENCE, binaries,
    client::{Client, NONE_LOST},
    disk::{flip_a_bit, last_image},
    end_with_us, wait_for,
};
use vm_store::{CheckpointId, State, Store, name};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    checkpoint::Policy,
    console::{Answer, Request},
    task::Failed,
};

/// Runs a caller on the first host and its callee on the second, and stops both.
fn stopped(cluster: &Cluster) -> Tid {
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    master
}

/// The checkpoints in the store, each read whole: epoch, tasks, bytes.
fn stored(folder: &Path) -> Vec<(u32, usize, u64)> {
    let store = Store::open(folder).expect("a store");
    let entries = store.list().expect("it can be listed");
    let entry = |entry: vm_store::Entry| {
        let State::Committed(summary) = &entry.state else {
            panic!("{entry:?}");
        };
        store.verify(entry.app, entry.id).expect("it is whole");
        (entry.id.epoch, summary.tasks, summary.bytes)
    };
    entries.into_iter().map(entry).collect()
}

#[test]
fn repeated_checkpoints_of_an_application_lose_and_double_no_message() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[2].client();
    for epoch in 1..=5 {
        // Copies of the tasks write the images, or the tasks write them themselves.
        let policy = Policy {
            blocking: epoch % 2 == 0,
            ..Policy::default()
        };
        let answer = console.ask(&Request::Policy(master, policy));
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        let report = console.save(master, false).expect("it can be saved");
        assert_eq!((report.epoch, report.tasks), (epoch, 2));
        let last = *stored(&cluster.store()).last().expect("a checkpoint");
        assert_eq!(last, (epoch, 2, report.bytes));
        // The bytes include the memory of the callee.
        assert!(report.bytes > 8 << 20, "{report:?}");
        assert!(report.freeze_us <= report.total_us, "{report:?}");
    }
    // The last three are kept, and the ones that their increments refer to.
    let epochs: Vec<u32> = stored(&cluster.store()).iter().map(|it| it.0).collect();
    assert_eq!(epochs, [1, 3, 4, 5]);
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

#[test]
fn checkpoints_are_removed_once_and_a_second_removal_is_an_error() {
    let cluster = Cluster::on_loopback(2);
    let master = stopped(&cluster);
    let remove = || {
        let mut command = Command::new(binaries::binary("vm"));
        command.arg("--dir").arg(&cluster.nodes[0].dir);
        command.args(["checkpoints", "--remove", &name::app(master)]);
        end_with_us(&mut command);
        command.output().expect("vm runs")
    };
    assert!(remove().status.success());
    assert_eq!(stored(&cluster.store()), []);
    let again = remove();
    let said = String::from_utf8_lossy(&again.stderr);
    let expected = format!("no checkpoint of {}", name::app(master));
    assert_eq!(again.status.code(), Some(1));
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_failed_checkpoint_is_explained_and_the_next_one_is_made() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    // A file blocks the name of the next checkpoint.
    let app = fs::read_dir(cluster.store()).expect("a store").flatten();
    let folder = app
        .map(|entry| entry.path())
        .next()
        .expect("an application");
    fs::write(folder.join("g0-e2"), "").expect("a file");
    let failed = console
        .save(master, false)
        .expect_err("there is no room for it");
    assert!(failed.text.contains("cannot be saved"), "{failed}");
    assert!(failed.text.contains("g0-e2"), "{failed}");
    let report = console.save(master, false).expect("the next one is made");
    assert!(report.epoch >= 3, "{report:?}");
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

/// Gives the first writer on one of two hosts a fault, under a policy: the checkpoint must fail
/// with a report, and the next one must be made.
fn a_writer_fails(fault: &str, policy: Policy) -> Failed {
    let mut cluster = Cluster::on_loopback(1);
    let mut command = cluster.command("n2", &[]);
    command.env("VM_FAULT", fault);
    cluster.add_node("n2".to_owned(), command);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let answer = console.ask(&Request::Policy(master, policy));
    assert_eq!(answer, Answer::Done);
    let failed = console.save(master, false).expect_err("it was not stored");
    let report = console.save(master, false).expect("the next one is made");
    assert_eq!(stored(&cluster.store()), [(report.epoch, 2, report.bytes)]);
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
    failed
}

#[test]
fn a_writer_that_dies_costs_the_checkpoint_and_nothing_else() {
    for policy in [Policy::default(), blocking()] {
        let failed = a_writer_fails("writer:kill", policy);
        assert!(failed.text.contains("on 'n2' cannot be saved"), "{failed}");
        assert!(failed.text.contains("stores its image"), "{failed}");
    }
}

#[test]
fn a_writer_that_hangs_over_an_image_in_memory_costs_the_checkpoint_and_nothing_else() {
    let failed = a_writer_fails("writer:stop", blocking());
    assert!(failed.text.contains("hangs"), "{failed}");
}

#[test]
fn a_stopped_application_is_restarted_on_the_hosts_that_are_left() {
    let mut cluster = Cluster::on_loopback(3);
    let master = stopped(&cluster);
    let mut late = cluster.nodes[2].client();
    let answer = late.ask(&Request::Delete("n2".to_owned()));
    assert_eq!(answer, Answer::Done);
    cluster.nodes[1].wait_end(std::time::Duration::from_secs(30));
    let report = late.restart(master).expect("it can be brought back");
    assert_eq!(
        (report.app, report.from, report.generation),
        (master, CheckpointId::new(0, 1), 1)
    );
    assert_eq!(report.hosts.iter().map(|(_, count)| count).sum::<u32>(), 2);
    late.ends_well(NONE_LOST);
    // The master has ended; the other task is about to.
    wait_for("the end of all tasks", PATIENCE, || {
        (late.ask(&Request::Ps(None)) == Answer::Ps(Vec::new())).then_some(())
    });
}

#[test]
fn an_application_is_restarted_in_another_machine_from_a_copy_of_the_store() {
    let before = Cluster::on_loopback(2);
    let master = stopped(&before);
    let after = Cluster::on_loopback(1);
    before.copy_store_to(&after);
    drop(before);
    let mut console = after.nodes[0].client();
    let report = console.restart(master).expect("it can be brought back");
    assert_eq!(report.app, master);
    console.ends_well(NONE_LOST);
}

#[test]
fn an_application_that_another_machine_has_restarted_is_not_saved_any_more() {
    let former = Cluster::on_loopback(1);
    let mut run = former.nodes[0].client();
    let master = run.run("vmtest", &["idle"]);
    let mut requester = former.nodes[0].client();
    wait_for("a checkpoint", PATIENCE, || {
        requester.save(master, false).ok()
    });
    let mut later = Cluster::on_loopback(0);
    std::os::unix::fs::symlink(former.store(), later.store()).expect("a link");
    later.add(&[]);
    // The second machine takes the first one for lost, so the application runs twice.
    let mut console = later.nodes[0].client();
    console.restart(master).expect("it can be brought back");
    let mut other = later.nodes[0].client();
    let report = other.save(master, false).expect("it can be saved there");
    let listed = || {
        let entries = Store::open(former.store()).and_then(|store| store.list());
        let entries = entries.expect("a store").into_iter();
        entries.map(|entry| entry.id).collect::<Vec<_>>()
    };
    let before = listed();
    let failed = requester
        .save(master, false)
        .expect_err("it is the other's");
    assert!(
        failed.text.contains("has restarted the application"),
        "{failed}"
    );
    wait_for("no files of the failed checkpoint", PATIENCE, || {
        (listed() == before).then_some(())
    });
    let next = other.save(master, false).expect("it can be saved there");
    assert_eq!(next.generation, report.generation);
}

/// The folder of a checkpoint of an application's generation 0.
fn folder_of(cluster: &Cluster, app: Tid, epoch: u32) -> PathBuf {
    let id = CheckpointId::new(0, epoch).to_string();
    cluster.store().join(name::app(app)).join(id)
}

/// Flips a bit in the middle of the last image of a checkpoint. Returns the path of the image, and
/// its content before.
fn damage(folder: &Path) -> (PathBuf, Vec<u8>) {
    let image = last_image(folder);
    let whole = flip_a_bit(&image);
    (image, whole)
}

#[test]
fn a_damaged_image_is_not_restored() {
    let cluster = Cluster::on_loopback(2);
    let master = stopped(&cluster);
    let (image, whole) = damage(&folder_of(&cluster, master, 1));
    let mut console = cluster.nodes[0].client();
    let failed = console.restart(master).expect_err("none is whole");
    assert!(failed.text.contains("none of"), "{failed}");
    // The manifest is whole, so the damage of the image is found only when the image is read.
    let failed = console
        .restart_from(master, Some(CheckpointId::new(0, 1)), false)
        .expect_err("it is damaged");
    let names = failed.text.contains("on 'n") && failed.text.contains("damaged");
    assert!(names, "{failed}");
    let answer = console.ask(&Request::Ps(None));
    assert_eq!(answer, Answer::Ps(Vec::new()));
    fs::write(&image, &whole).expect("it can be written");
    console.restart(master).expect("it can be brought back");
    console.ends_well(NONE_LOST);
}

#[test]
fn the_image_of_a_task_that_is_run_without_a_machine_ends_with_the_reason() {
    let cluster = Cluster::on_loopback(2);
    let image = last_image(&folder_of(&cluster, stopped(&cluster), 1));
    let mut console = Command::new(binaries::binary("vm"));
    console.args(["image", "run"]).arg(image);
    end_with_us(&mut console);
    let mut process = console.stderr(Stdio::piped()).spawn().expect("vm runs");
    let status = wait_for("the end of the process", PATIENCE, || {
        process.try_wait().expect("a child")
    });
    let mut text = String::new();
    let stderr = process.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut text).expect("text");
    assert_eq!(status.code(), Some(vmlib::STATUS_DAEMON_LOST), "{text}");
    assert!(text.contains("vm restart"), "{text}");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_the_one_before_is_restarted() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    damage(&folder_of(&cluster, master, 2));
    let report = console.restart_past_damaged(master, "g0-e2: ");
    assert_eq!(report.from, CheckpointId::new(0, 1));
    console.ends_well(NONE_LOST);
}

#[test]
fn a_whole_image_that_does_not_match_its_manifest_is_not_restored() {
    let cluster = Cluster::on_loopback(2);
    let master = stopped(&cluster);
    // The image is replaced by another whole image, which the restorer would accept.
    let store = Store::open(cluster.store()).expect("a store");
    let id = CheckpointId::new(0, 1);
    let whole = store.read(master, id).expect("a manifest");
    let commit = |manifest: &vm_store::Manifest| {
        let path = folder_of(&cluster, master, 1).join(name::MANIFEST);
        fs::remove_file(path).expect("a manifest");
        let writer = store.begin(master, id).expect("none is there");
        writer.commit(manifest).expect("all lengths are right");
    };
    let mut other = whole.clone();
    other.tasks[1].image.hash[7] ^= 1;
    commit(&other);
    let mut console = cluster.nodes[0].client();
    let failed = console
        .restart_from(master, Some(CheckpointId::new(0, 1)), false)
        .expect_err("it is another one");
    assert!(failed.text.contains("on 'n"), "{failed}");
    let found = format!("{}: the part is damaged", other.tasks[1].image.name);
    wait_for("the damage in a log", PATIENCE, || {
        let mut logs = cluster.nodes.iter().map(|node| node.log());
        logs.any(|log| log.contains(&found)).then_some(())
    });
    let failed = console.restart(master).expect_err("none is whole");
    assert!(failed.text.contains("none of"), "{failed}");
    assert!(failed.text.contains("the part is damaged"), "{failed}");
    let answer = console.ask(&Request::Ps(None));
    assert_eq!(answer, Answer::Ps(Vec::new()));
    commit(&whole);
    console.restart(master).expect("it can be brought back");
    console.ends_well(NONE_LOST);
}

#[test]
fn a_reader_that_dies_costs_the_restart_and_nothing_else() {
    let mut cluster = Cluster::on_loopback(1);
    let mut command = cluster.command("n2", &[]);
    command.env("VM_FAULT", "reader:kill");
    cluster.add_node("n2".to_owned(), command);
    let master = stopped(&cluster);
    let mut console = cluster.nodes[0].client();
    let failed = console.restart(master).expect_err("a part is missing");
    assert!(failed.text.contains("on 'n2'"), "{failed}");
    let report = console.restart(master).expect("it can be brought back");
    assert!(report.generation >= 2, "{report:?}");
    console.ends_well(NONE_LOST);
}

#[test]
fn a_policy_makes_checkpoints_automatically_and_bounds_their_number() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    let policy = |every_ms| Policy {
        every_ms,
        keep: 2,
        ..Policy::default()
    };
    let answer = console.ask(&Request::Policy(master, policy(1_000)));
    assert_eq!(answer, Answer::Done);
    let limit = std::time::Duration::from_secs(60);
    let epochs = wait_for("the fourth checkpoint", limit, || {
        // The next checkpoint may be in progress.
        let store = Store::open(cluster.store()).expect("a store");
        let entries = store.list().expect("it can be listed").into_iter();
        let committed = entries.filter(|entry| matches!(entry.state, State::Committed(_)));
        let epochs: Vec<u32> = committed.map(|entry| entry.id.epoch).collect();
        epochs.contains(&4).then_some(epochs)
    });
    // Older checkpoints are removed just after a new one is committed; the ones that increments
    // refer to stay.
    assert!(epochs.len() <= 4, "{epochs:?}");
    assert_eq!(
        console.ask(&Request::Policy(master, policy(0))),
        Answer::Done
    );
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

#[test]
fn an_application_that_loses_a_host_recovers_at_the_same_console() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[2].client();
    console.save(master, false).expect("it can be saved");
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    run.output_until("host 'n2' is lost");
    run.output_until("runs again on");
    // The output comes to the same console, without a request.
    run.ends_well(NONE_LOST);
}

/// Number of images of tasks for which a daemon keeps memory.
fn memories(node: &Node) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", node.pid())).expect("it runs");
    let paths = files.flatten().map(|file| file.path());
    let is_memory = |path: &PathBuf| {
        let name = fs::read_link(path);
        name.is_ok_and(|name| name.to_string_lossy().contains("memfd:vm-image"))
    };
    // A thread may have the same file open for a moment.
    let numbers = paths.filter(is_memory).flat_map(fs::metadata);
    numbers
        .map(|file| file.ino())
        .collect::<BTreeSet<_>>()
        .len()
}

/// The policy under which tasks write their images themselves.
fn blocking() -> Policy {
    Policy {
        blocking: true,
        ..Policy::default()
    }
}

#[test]
fn an_application_is_restarted_from_images_that_tasks_wrote_into_memory() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[2].client();
    let answer = console.ask(&Request::Policy(master, blocking()));
    assert_eq!(answer, Answer::Done);
    let kept = || cluster.nodes.iter().map(memories).collect::<Vec<usize>>();
    // The reply to a policy comes when the policy is proposed: one more checkpoint may come before
    // it in the log.
    wait_for("images in memory", PATIENCE, || {
        console.save(master, false).expect("it can be saved");
        (kept() == [1, 1, 0]).then_some(())
    });
    for _ in 0..2 {
        let report = console.save(master, false).expect("it can be saved");
        let last = *stored(&cluster.store()).last().expect("a checkpoint");
        assert_eq!(last, (report.epoch, 2, report.bytes));
        // The same memory is used again.
        assert_eq!(kept(), [1, 1, 0]);
    }
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    run.output_until("host 'n2' is lost");
    run.output_until("runs again on");
    run.ends_well(NONE_LOST);
    wait_for("no memory of tasks that have ended", PATIENCE, || {
        (memories(&cluster.nodes[0]) == 0).then_some(())
    });
}

#[test]
fn a_task_that_rewrites_its_memory_beside_its_copy_leaves_its_next_image_in_memory() {
    let cluster = Cluster::on_loopback(1);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["rewriter", "64"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let policy = Policy {
        every_ms: 60_000,
        ..Policy::default()
    };
    let answer = console.ask(&Request::Policy(master, policy));
    assert_eq!(answer, Answer::Done);
    // How much the task writes while its copy runs depends on the processors.
    wait_for("an image in memory", PATIENCE, || {
        console.save(master, false).expect("it can be saved");
        (memories(&cluster.nodes[0]) == 1).then_some(())
    });
    let report = console.save(master, false).expect("it can be saved");
    assert_eq!(memories(&cluster.nodes[0]), 1);
    let last = *stored(&cluster.store()).last().expect("a checkpoint");
    assert_eq!(last, (report.epoch, 1, report.bytes));
    run.input(b"end\n");
    run.output_until("all of it is of one round");
}

#[test]
fn an_application_whose_last_checkpoint_is_damaged_recovers_from_the_one_before() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[2].client();
    for _ in 0..2 {
        console.save(master, false).expect("it can be saved");
    }
    damage(&folder_of(&cluster, master, 2));
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    run.output_until("host 'n2' is lost");
    run.output_until("runs again on");
    run.ends_well(NONE_LOST);
}

#[test]
fn a_program_makes_a_checkpoint_and_notices_its_restart() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    run.run("vmtest", &["saver", "n2"]);
    run.output_until("it goes");
    for epoch in 1..=2 {
        run.input(b"\n");
        run.output_until(&format!("2 tasks saved as e{epoch}"));
        let last = stored(&cluster.store()).pop().expect("a checkpoint");
        assert_eq!((last.0, last.1), (epoch, 2));
    }
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    run.output_until("runs again on");
    run.output_until("brought back");
    // The restart itself makes no checkpoint; the end of the input does.
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    assert!(
        finished.stdout.contains("2 tasks saved as e3"),
        "{finished:?}"
    );
    let epochs: Vec<u32> = stored(&cluster.store()).iter().map(|it| it.0).collect();
    assert_eq!(epochs, [1, 2, 3]);
}

/// A bookkeeper that was saved after ten steps, made ten more steps, and was killed.
fn kept_books(cluster: &Cluster) -> (Tid, [Vec<u8>; 3]) {
    let folder = books(cluster);
    fs::create_dir(&folder).expect("a folder");
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["bookkeeper", &folder.display().to_string()]);
    run.input(b"10\n");
    run.output_until("step 10");
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    let before = contents(&folder);
    run.input(b"10\n");
    run.output_until("step 20");
    assert_ne!(before, contents(&folder));
    let Answer::Ps(rows) = console.ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    for row in rows {
        console.ask(&Request::Signal(row.tid, 9));
    }
    assert_eq!(run.finish().status, ExitStatus::Signal(9));
    let limit = std::time::Duration::from_secs(30);
    wait_for("the end of all tasks", limit, || {
        let answer = console.ask(&Request::Ps(None));
        (answer == Answer::Ps(Vec::new())).then_some(())
    });
    (master, before)
}

fn books(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("books")
}

fn contents(folder: &Path) -> [Vec<u8>; 3] {
    ["log", "table", "board"].map(|name| fs::read(folder.join(name)).expect("it is there"))
}

/// Checks that a restarted bookkeeper repeats all steps since the checkpoint, and that each step
/// finds the files as the step before left them.
fn goes_on(cluster: &Cluster, run: &mut Client) {
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{finished:?}");
    let [log, table, board] = contents(&books(cluster));
    let lines: Vec<String> = (1..=100).map(|step| format!("step {step}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&log), lines.concat());
    let mut numbers = vec![0; 5 << 20];
    for step in 1..=100_u64 {
        let at = step as usize * 40_961;
        numbers[at..at + 8].copy_from_slice(&step.to_le_bytes());
    }
    assert!(table == numbers, "the table");
    assert_eq!(board, b"100: ##");
}

#[test]
fn files_that_tasks_write_are_rolled_back_at_a_restart() {
    let cluster = Cluster::on_loopback(2);
    let (master, _) = kept_books(&cluster);
    let mut console = cluster.nodes[0].client();
    console.restart(master).expect("it can be brought back");
    goes_on(&cluster, &mut console);
    // A second time, after many more writes and the removal of a file.
    fs::remove_file(books(&cluster).join("table")).expect("it is there");
    let mut console = cluster.nodes[1].client();
    console.restart(master).expect("it can be brought back");
    goes_on(&cluster, &mut console);
}

#[test]
fn files_are_not_rolled_back_if_the_request_says_so() {
    let cluster = Cluster::on_loopback(2);
    let (master, before) = kept_books(&cluster);
    let folder = books(&cluster);
    let after = contents(&folder);
    let mut console = cluster.nodes[0].client();
    let failed = console
        .restart_from(master, None, true)
        .expect_err("files have changed");
    assert!(failed.text.contains("has changed: "), "{failed}");
    assert!(contents(&folder) == after);
    // If only the log has grown, the bookkeeper continues with that log.
    for (name, content) in ["table", "board"].iter().zip(&before[1..]) {
        fs::write(folder.join(name), content).expect("it can be written");
    }
    console
        .restart_from(master, None, true)
        .expect("it can be brought back");
    let finished = console.finish();
    let text = format!("{finished:?}");
    let found = format!("the log has {} bytes", after[0].len());
    assert!(text.contains(&found), "{text}");
    assert_eq!(contents(&folder)[0], after[0]);
}

#[test]
fn an_increment_stores_only_changed_blocks_and_is_restored_whole() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["ledger", "64"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    let full = console.save(master, false).expect("it can be saved");
    assert!(full.bytes > 64 << 20, "{full:?}");
    assert_eq!(full.stored, full.bytes);
    let policy = Policy {
        every_ms: 3_600_000,
        keep: 1,
        ..Policy::default()
    };
    let answer = console.ask(&Request::Policy(master, policy));
    assert_eq!(answer, Answer::Done);
    for change in 1..=3 {
        run.input(b"\n");
        run.output_until(&format!("change {change} is made"));
        let report = console.save(master, change == 3).expect("it can be saved");
        assert!(report.bytes > 64 << 20, "{report:?}");
        // Each change touches another hundredth of the pages; the increments cover one, two and
        // three changes.
        let percent = 3 * change;
        assert!(report.stored * 100 < full.stored * percent, "{report:?}");
        // The policy keeps one checkpoint, and the one that it refers to.
        let epochs: Vec<u32> = stored(&cluster.store()).iter().map(|it| it.0).collect();
        assert_eq!(epochs, [full.epoch, report.epoch]);
    }
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    console.restart(master).expect("it can be brought back");
    let finished = console.finish();
    let text = format!("{finished:?}");
    assert!(
        text.contains("the ledger is right after 3 changes"),
        "{text}"
    );
}

#[test]
fn a_store_that_has_reached_its_quota_costs_the_checkpoint_and_nothing_else() {
    let mut cluster = Cluster::on_loopback(1);
    let command = cluster.command("n2", &["--store-quota", "9000000"]);
    cluster.add_node("n2".to_owned(), command);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let failed = console.save(master, false).expect_err("it does not fit");
    assert!(failed.text.contains("on 'n2' cannot be saved"), "{failed}");
    assert!(failed.text.contains("quota"), "{failed}");
    wait_for("nothing is left of it", PATIENCE, || {
        let store = Store::open(cluster.store()).expect("a store");
        store.list().is_ok_and(|left| left.is_empty()).then_some(())
    });
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}
