//! Applications whose checkpoints are compressed: they take fewer bytes on the disk, and are
//! restored whole.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use vm_integration::cluster::{
    Cluster, PATIENCE, binaries,
    client::{Client, NONE_LOST},
    disk::flip_a_bit,
    end_with_us, wait_for,
};
use vm_store::{CheckpointId, Manifest, Store, name};
use vm_wire::{Tid, agreed::ExitStatus, checkpoint::CheckpointReport};

/// The output of `vm` with these words on the first host.
fn vm(cluster: &Cluster, words: &[&str]) -> String {
    let mut command = Command::new(binaries::binary("vm"));
    command.arg("--dir").arg(&cluster.nodes[0].dir).args(words);
    end_with_us(&mut command);
    let output = command.output().expect("vm runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Sets the policy of an application: whether its checkpoints are compressed.
fn set_policy(cluster: &Cluster, app: Tid, compress: bool) {
    let app = app.show(app.machine());
    let mut words = vec!["checkpoint", &app, "--every", "1h", "--keep", "4"];
    words.extend(compress.then_some("--compress"));
    let said = vm(cluster, &words);
    assert!(said.contains(", 4 are kept"), "{said}");
    assert_eq!(said.ends_with(", compressed\n"), compress, "{said}");
}

fn image(root: &Path, app: Tid, id: CheckpointId, image: &str) -> PathBuf {
    root.join(name::app(app)).join(id.to_string()).join(image)
}

/// Checks a whole checkpoint in a shared store, and returns its manifest. If `packed`, its files
/// have less than half the bytes of their content, else as many bytes as their content. Together
/// they have the reported length.
fn looked_at(cluster: &Cluster, app: Tid, report: &CheckpointReport, packed: bool) -> Manifest {
    let id = CheckpointId::new(report.generation, report.epoch);
    let store = Store::open(cluster.store()).expect("a store");
    let manifest = store.verify(app, id).expect("it is whole");
    let mut files = 0;
    for part in manifest.parts() {
        let path = image(&cluster.store(), app, id, &part.name);
        let len = fs::metadata(path).expect("a file").len();
        assert_eq!(part.packed, packed.then_some(len), "{part:?}");
        match packed {
            true => assert!(len * 2 < part.stored, "{part:?}"),
            false => assert_eq!(len, part.stored),
        }
        files += len;
    }
    assert_eq!((report.stored, manifest.stored()), (files, files));
    manifest
}

fn running(cluster: &Cluster) -> (Client, Tid) {
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2", "24"]);
    run.output_until("it goes");
    (run, master)
}

#[test]
fn compressed_full_and_incremental_checkpoints_take_less_room_and_are_restored() {
    let cluster = Cluster::on_loopback(2);
    let (mut run, master) = running(&cluster);
    let mut console = cluster.nodes[1].client();
    // A full checkpoint, and increments of it.
    for (epoch, compressed) in [(1, true), (2, true), (3, false), (4, true)] {
        set_policy(&cluster, master, compressed);
        let report = console.save(master, epoch == 4).expect("it can be saved");
        let manifest = looked_at(&cluster, master, &report, compressed);
        let base = (epoch > 1).then_some(CheckpointId::new(0, 1));
        assert_eq!(manifest.base(), base);
        assert_eq!(manifest.policy.compress, compressed);
        if epoch == 1 {
            // The bytes include the memory of the callee.
            assert!(report.bytes > 24 << 20 && report.stored * 3 < report.bytes * 2);
        }
    }
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    for epoch in 1..=4 {
        let mut console = cluster.nodes[0].client();
        let from = Some(CheckpointId::new(0, epoch));
        // The application that was restarted before may still be ending.
        let report = wait_for("a restart", PATIENCE, || {
            console.restart_from(master, from, false).ok()
        });
        assert_eq!(report.from, CheckpointId::new(0, epoch));
        console.ends_well(NONE_LOST);
    }
}

#[test]
fn a_compressed_checkpoint_that_was_damaged_is_passed_over() {
    let cluster = Cluster::on_loopback(2);
    let (mut run, master) = running(&cluster);
    set_policy(&cluster, master, true);
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    let id = CheckpointId::new(0, 2);
    let last = image(&cluster.store(), master, id, &name::image(master, master));
    flip_a_bit(&last);
    let store = Store::open(cluster.store()).expect("a store");
    let why = store.verify(master, id).expect_err("a bit differs");
    let why = why.to_string();
    assert!(why.contains("the compressed part is damaged"), "{why}");
    let report = console.restart_past_damaged(master, "g0-e2: ");
    assert_eq!(report.from, CheckpointId::new(0, 1));
    console.ends_well(NONE_LOST);
}

#[test]
fn copies_on_a_second_disk_are_the_compressed_files() {
    let mut cluster = Cluster::with_own_stores(3);
    let (mut run, master) = running(&cluster);
    set_policy(&cluster, master, true);
    let mut console = cluster.nodes[2].client();
    for epoch in 1..=2 {
        let report = console.save(master, false).expect("it can be saved");
        assert!(report.stored * 2 < report.bytes, "{report:?}");
        let id = CheckpointId::new(0, epoch);
        let store = Store::open(cluster.store_of("n1")).expect("a store");
        let manifest = store.read(master, id).expect("a manifest");
        assert_eq!(manifest.base().is_some(), epoch == 2);
        for part in manifest.parts() {
            let copy = part.copy.as_deref().expect("there is a second host");
            let files = [&part.place, copy].map(|host| {
                let path = image(&cluster.store_of(host), master, id, &part.name);
                fs::read(path).expect("it is there")
            });
            assert_eq!(part.packed, Some(files[0].len() as u64));
            assert!(files[0] == files[1]);
        }
    }
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    cluster.nodes[1].wait_end(PATIENCE);
    fs::remove_dir_all(cluster.store_of("n2")).expect("its disk is lost");
    run.output_until("host 'n2' is lost");
    run.output_until("runs again on");
    run.ends_well(NONE_LOST);
}
