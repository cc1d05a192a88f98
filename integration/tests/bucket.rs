//! Stores with a bucket in an object store: the copies in the bucket, and restarts from them.
//!
//! The object store is a server process. If it is not installed, these tests are skipped.

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};
use vm_integration::cluster::{
    Cluster, Node, PATIENCE, binaries,
    client::NONE_LOST,
    disk::flip_a_bit,
    end_with_us,
    objects::{ObjectStore, SECRET, wait_for_object},
    wait_for,
};
use vm_store::{CheckpointId, Depth, Manifest, Policy, SavedTask, Store, name};
use vm_wire::{Body, HostId, MachineId, Tid, agreed::ExitStatus};

const MACHINE: MachineId = MachineId::from_bits(0xa1b2c3);
const APP: Tid = Tid::new(MACHINE, HostId(3), 1);
const PREFIX: &str = "of/me";

fn id(epoch: u32) -> CheckpointId {
    CheckpointId::new(0, epoch)
}

/// Saves a checkpoint of two tasks, each with an arbitrary part of `bytes` bytes in the place of an
/// image.
fn save(store: &Store, epoch: u32, keep: u32, bytes: usize) -> Manifest {
    let writer = store.begin(APP, id(epoch)).expect("room");
    let tasks = [APP, Tid::new(MACHINE, HostId(2), 9)].map(|tid| {
        let mut part = writer
            .part(&name::image(APP, tid), "alpha", None)
            .expect("room");
        let content = (0..bytes).map(|at| (at / 7 + epoch as usize) as u8);
        part.write(&content.collect::<Vec<_>>()).expect("room");
        SavedTask {
            tid,
            host: "alpha".to_owned(),
            arch: "x86_64".to_owned(),
            incarnation: 1,
            requester: Tid::daemon(MACHINE, HostId(1)),
            request: 5,
            index: 0,
            program: "hello".to_owned(),
            image: part.finish().expect("a disk"),
            freeze_us: 30_000,
            unacknowledged: 0,
            belongings: Body::from(vec![1]),
        }
    });
    let policy = Policy {
        keep,
        ..Policy::default()
    };
    let manifest = Manifest {
        machine: MACHINE,
        app: APP,
        program: "hello".to_owned(),
        generation: 0,
        epoch,
        index: 7,
        taken_ms: 1_700_000_000_000 + u64::from(epoch),
        took_us: 1_000,
        policy,
        tasks: tasks.into(),
        groups: Vec::new(),
        kept: Vec::new(),
        context: 0,
    };
    writer.commit(&manifest).expect("it is whole");
    let pruned = store.prune(APP, keep as usize, Depth::Lengths);
    assert!(pruned.expect("a folder").failed.is_empty());
    manifest
}

/// A console command on a folder and the bucket.
fn between(objects: &ObjectStore, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binaries::binary("vm"));
    command.args(["--json", "store"]).args(words);
    command.arg("--store").arg(folder);
    command.args(["--bucket", &objects.url(PREFIX)]);
    command.args(["--endpoint", objects.endpoint()]);
    objects.let_in(&mut command);
    end_with_us(&mut command);
    command
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// The JSON output of [`between`].
fn answer(objects: &ObjectStore, folder: &Path, words: &[&str]) -> Value {
    let output = between(objects, folder, words).output().expect("it runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

/// The names of the checkpoints in a reply.
fn names(value: &Value) -> Vec<&str> {
    let rows = value.as_array().expect("a list").iter();
    rows.map(|row| row["checkpoint"].as_str().expect("a name"))
        .collect()
}

#[test]
fn checkpoints_are_copied_once_and_pruned_ones_are_removed_but_never_the_last() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).expect("a store");
    for epoch in 1..=4 {
        save(&store, epoch, 2, 1_000);
        let pushed = answer(&objects, folder.path(), &["push"]);
        assert_eq!(names(&pushed["copied"]), [format!("g0-e{epoch}")]);
    }
    let again = answer(&objects, folder.path(), &["push"]);
    assert_eq!(names(&again["copied"]), [""; 0]);
    let listed = answer(&objects, folder.path(), &["list"]);
    assert_eq!(names(&listed["checkpoints"]), ["g0-e3", "g0-e4"]);
    // No object of a removed checkpoint is left.
    assert_eq!(objects.keys(PREFIX).len(), 2 * 3);

    // A folder that has lost all files, and its record of the bucket.
    let empty = tempfile::tempdir().expect("a folder");
    let pushed = answer(&objects, empty.path(), &["push"]);
    assert_eq!(names(&pushed["removed"]), [""; 0]);
    let pulled = answer(&objects, empty.path(), &["pull", &name::app(APP)]);
    assert_eq!(pulled["checkpoint"], "g0-e4");
    let back = Store::open(empty.path()).expect("a store");
    assert_eq!(back.verify(APP, id(4)).expect("it is whole").epoch, 4);
    // The folder continues with a checkpoint of its own. The ones that were fetched are pruned when
    // they are too old.
    for (epoch, left) in [(5, ["g0-e4", "g0-e5"]), (6, ["g0-e5", "g0-e6"])] {
        save(&back, epoch, 2, 1_000);
        answer(&objects, empty.path(), &["push"]);
        let listed = answer(&objects, empty.path(), &["list"]);
        assert_eq!(names(&listed["checkpoints"]), left);
    }
}

#[test]
fn a_flipped_bit_in_the_bucket_is_found_and_the_checkpoint_before_it_is_taken() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).expect("a store");
    for epoch in 1..=3 {
        save(&store, epoch, 3, 100_000);
    }
    answer(&objects, folder.path(), &["push"]);
    let app = name::app(APP);
    flip_a_bit(&objects.file(PREFIX, &format!("{app}/g0-e3/t3.1.image")));
    flip_a_bit(&objects.file(PREFIX, &format!("{app}/g0-e2/manifest")));
    let empty = tempfile::tempdir().expect("a folder");
    let pulled = answer(&objects, empty.path(), &["pull", &app]);
    assert_eq!(pulled["checkpoint"], "g0-e1");
    let over = pulled["passed_over"].to_string();
    assert!(
        over.contains("g0-e3/t3.1.image: the part is damaged"),
        "{over}"
    );
    assert!(
        over.contains("g0-e2/manifest: the manifest is damaged"),
        "{over}"
    );
    // The folder has none of the damaged checkpoints.
    let back = Store::open(empty.path()).expect("a store");
    assert_eq!(back.ids(APP).expect("a folder"), [id(1)]);
    // A part that is damaged in the folder is fetched from the bucket.
    flip_a_bit(&back.root().join(format!("{app}/g0-e1/t2.9.image")));
    back.verify(APP, id(1)).expect_err("it is damaged");
    let pulled = answer(&objects, empty.path(), &["pull", &app, "--from", "g0-e1"]);
    assert_eq!(pulled["fetched"], true);
    back.verify(APP, id(1)).expect("it is whole again");
}

#[test]
fn a_server_that_dies_in_the_middle_leaves_no_half_checkpoint_and_the_next_push_mends_it() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).expect("a store");
    // The object is sent in several pieces.
    let size = 40 << 20;
    save(&store, 1, 3, size);
    for bytes in [size as i64 / 2, size as i64 * 3 / 2] {
        objects.end_after(bytes);
        let output = between(&objects, folder.path(), &["push"]).output();
        let output = output.expect("it runs");
        let text = said(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(objects.endpoint()), "{text}");
        objects.revive();
        let listed = answer(&objects, folder.path(), &["list"]);
        assert_eq!(names(&listed["checkpoints"]), [""; 0]);
        let empty = tempfile::tempdir().expect("a folder");
        let pulled = answer(&objects, empty.path(), &["pull", &name::app(APP)]);
        assert_eq!(pulled["checkpoint"], Value::Null);
    }
    let pushed = answer(&objects, folder.path(), &["push"]);
    assert_eq!(names(&pushed["copied"]), ["g0-e1"]);
    // A server that dies in the middle of a fetch leaves no half checkpoint either.
    let empty = tempfile::tempdir().expect("a folder");
    let pull = ["pull", &name::app(APP)];
    objects.end_after(size as i64 * 3 / 2);
    let output = between(&objects, empty.path(), &pull).output();
    let text = said(&output.expect("it runs"));
    assert!(text.contains(objects.endpoint()), "{text}");
    let back = Store::open(empty.path()).expect("a store");
    assert_eq!(back.ids(APP).expect("a folder"), []);
    objects.revive();
    let pulled = answer(&objects, empty.path(), &pull);
    assert_eq!(pulled["checkpoint"], "g0-e1");
    back.verify(APP, id(1)).expect("it is whole");
}

#[test]
fn wrong_credentials_are_explained_and_no_secret_is_printed() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    save(&Store::open(folder.path()).expect("a store"), 1, 3, 1_000);
    let push = || between(&objects, folder.path(), &["push"]);
    let failed = |command: &mut Command| {
        let output = command.output().expect("it runs");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(!text.contains("Signature="), "{text}");
        text
    };
    let strange = |command: &mut Command| {
        let command = command.env("AWS_ACCESS_KEY_ID", "a-stranger");
        failed(command.env("AWS_SECRET_ACCESS_KEY", "very-secret"))
    };
    if objects.is_strict() {
        let text = failed(push().env("AWS_SECRET_ACCESS_KEY", "very-secret"));
        assert!(text.contains("403 SignatureDoesNotMatch"), "{text}");
    }
    let text = strange(&mut push());
    let unknown = match objects.is_strict() {
        true => "403 NotSignedUp",
        false => "403 InvalidAccessKeyId",
    };
    assert!(text.contains(unknown), "{text}");
    assert!(text.contains("AWS_SECRET_ACCESS_KEY"), "{text}");
    assert!(!text.contains("very-secret"), "{text}");
    let text = failed(push().env_remove("AWS_SECRET_ACCESS_KEY"));
    assert!(
        text.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET"),
        "{text}"
    );
    let elsewhere = objects.endpoint();
    let text = failed(
        Command::new(binaries::binary("vm"))
            .args(["--json", "store", "push"])
            .arg("--store")
            .arg(folder.path())
            .args(["--bucket", "s3://another", "--endpoint", elsewhere])
            .env("AWS_ACCESS_KEY_ID", SECRET)
            .env("AWS_SECRET_ACCESS_KEY", SECRET),
    );
    assert!(text.contains("404 NoSuchBucket"), "{text}");
    assert!(text.contains("make the bucket first"), "{text}");
    objects.end();
    let text = failed(&mut push());
    assert!(text.contains(elsewhere), "{text}");
    // The folder of the store does not contain the secret.
    for entry in fs::read_dir(folder.path()).expect("a folder").flatten() {
        if let Ok(bytes) = fs::read(entry.path()) {
            assert!(!String::from_utf8_lossy(&bytes).contains(SECRET));
        }
    }
}

/// Adds a host whose store has the bucket.
fn add(cluster: &mut Cluster, objects: &ObjectStore) -> usize {
    let name = format!("n{}", cluster.nodes.len() + 1);
    let (url, endpoint) = (objects.url(PREFIX), objects.endpoint().to_owned());
    let words = ["--store-bucket", &url, "--store-endpoint", &endpoint];
    let mut command = cluster.command(&name, &words);
    objects.let_in(&mut command);
    cluster.add_node(name, command)
}

fn console(objects: &ObjectStore, node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new(binaries::binary("vm"));
    command.arg("--dir").arg(&node.dir).args(words);
    command.stdin(Stdio::null());
    objects.let_in(&mut command);
    end_with_us(&mut command);
    command
}

/// Runs an application, makes `saves` checkpoints of it, and stops it.
fn stopped(cluster: &Cluster, saves: u32) -> Tid {
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n1"]);
    run.output_until("it goes");
    let mut client = cluster.nodes[0].client();
    for _ in 0..saves {
        client.save(master, false).expect("it can be saved");
    }
    client.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    master
}

#[test]
fn an_application_outlives_the_loss_of_its_folder_in_another_machine() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let mut before = Cluster::on_loopback(0);
    add(&mut before, &objects);
    add(&mut before, &objects);
    stopped(&before, 3);
    let push = console(&objects, &before.nodes[1], &["store", "push"]).output();
    let text = said(&push.expect("it runs"));
    let listed = console(&objects, &before.nodes[0], &["--json", "checkpoints"]).output();
    let listed: Value = serde_json::from_slice(&listed.expect("it runs").stdout).expect("JSON");
    let rows = listed["checkpoints"].as_array().expect("a list");
    // The kept checkpoints, and the ones that their increments refer to.
    assert_eq!(rows.len(), 4, "{text}{listed}");
    assert!(
        rows.iter().all(|row| row["in_bucket"] == true),
        "{text}{listed}"
    );
    assert_eq!(listed["bucket"]["failed"], Value::Null);
    drop(before);

    // Another machine, whose folder is empty.
    let mut after = Cluster::on_loopback(0);
    add(&mut after, &objects);
    let job = ["run", "--resume-or-start", "vmtest", "caller", "n1"];
    let output = console(&objects, &after.nodes[0], &job).output();
    let output = output.expect("it runs");
    let text = said(&output);
    assert!(text.contains("g0-e4 fetched from s3://"), "{text}");
    assert!(text.contains("restarted from g0-e4"), "{text}");
    assert!(
        text.contains(NONE_LOST) && output.status.success(),
        "{text}"
    );
    // The application has ended with success, so its checkpoints are removed, in the bucket, too.
    assert_eq!(objects.keys(PREFIX), [""; 0]);
}

#[test]
fn an_image_that_is_damaged_in_the_folder_comes_from_the_bucket_at_a_restart() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let mut cluster = Cluster::on_loopback(0);
    add(&mut cluster, &objects);
    let master = stopped(&cluster, 1);
    let push = console(&objects, &cluster.nodes[0], &["store", "push"]).status();
    assert!(push.expect("it runs").success());
    let app = name::app(master);
    let folder = cluster.store().join(&app).join("g0-e2");
    flip_a_bit(&folder.join(name::image(master, master)));
    let restart = ["restart", &app];
    let output = console(&objects, &cluster.nodes[0], &restart).output();
    let text = said(&output.expect("it runs"));
    assert!(text.contains("g0-e2 fetched from s3://"), "{text}");
    assert!(text.contains("restarted from g0-e2"), "{text}");
    assert!(text.contains(NONE_LOST), "{text}");
}

#[test]
fn checkpoints_made_while_the_bucket_is_unreachable_are_copied_to_it_later() {
    let Some(objects) = ObjectStore::start() else {
        return;
    };
    let mut cluster = Cluster::on_loopback(0);
    add(&mut cluster, &objects);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let master = run.run("vmtest", &["caller", "n1"]);
    run.output_until("it goes");
    objects.end();
    let mut client = node.client();
    client.save(master, false).expect("it can be saved");
    wait_for("a word on the failure", PATIENCE, || {
        node.log()
            .contains("tried again after the next one")
            .then_some(())
    });
    let listed = console(&objects, node, &["checkpoints"]).output();
    let text = said(&listed.expect("it runs"));
    assert!(text.contains("'vm store push' tries it again"), "{text}");
    objects.revive();
    client.save(master, false).expect("it can be saved");
    for manifest in ["g0-e1/manifest", "g0-e2/manifest"] {
        wait_for_object(&objects, PREFIX, manifest);
    }
    run.input(b"end\n");
    run.output_until(NONE_LOST);
}

#[test]
fn a_bucket_takes_credentials_and_a_store_that_all_hosts_share() {
    let mut cluster = Cluster::on_loopback(0);
    let mut refused = |extra: &[&str]| {
        let mut command = cluster.command("n1", extra);
        command.args(["--store-bucket", "s3://saved"]);
        command.env_remove("AWS_ACCESS_KEY_ID");
        let output = command.output().expect("it runs");
        assert!(!output.status.success());
        said(&output)
    };
    let text = refused(&[]);
    assert!(text.contains("AWS_ACCESS_KEY_ID"), "{text}");
    let text = refused(&["--store-local"]);
    assert!(text.contains("cannot be used with"), "{text}");
}
