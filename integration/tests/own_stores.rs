//! Hosts whose stores are on disks of their own: parts of a lost disk are restored from second
//! copies.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use vm_integration::cluster::{
    Cluster, PATIENCE, binaries,
    client::{Client, NONE_LOST},
    disk::flip_a_bit,
    end_with_us, wait_for,
};
use vm_store::{CheckpointId, Manifest, Store, name};
use vm_wire::{Tid, agreed::ExitStatus};

/// A caller on the first host, which is its console's, and its callee on the second one.
fn running(cluster: &Cluster) -> (Client, Tid) {
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    (run, master)
}

fn stopped(cluster: &Cluster) -> Tid {
    let (mut run, master) = running(cluster);
    let mut console = cluster.nodes[1].client();
    console.save(master, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    master
}

/// The parts of a checkpoint of an application's generation 0 on a host, and its manifest, if the
/// host has it.
fn held(cluster: &Cluster, host: &str, app: Tid, epoch: u32) -> (Vec<PathBuf>, Option<Manifest>) {
    let root = cluster.store_of(host);
    let id = CheckpointId::new(0, epoch);
    let folder = root.join(name::app(app)).join(id.to_string());
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let images = files.map(|entry| entry.path());
    let images = images.filter(|path| path.extension().is_some_and(|it| it == "image"));
    let store = Store::open(root).expect("a store").of_host(host);
    (images.collect(), store.verify(app, id).ok())
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_all(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}

#[test]
fn parts_of_a_lost_disk_are_restored_from_their_second_copies() {
    let mut cluster = Cluster::with_own_stores(3);
    let (mut run, master) = running(&cluster);
    let mut console = cluster.nodes[2].client();
    for epoch in 1..=2 {
        console.save(master, false).expect("it can be saved");
        let held = ["n1", "n2", "n3"].map(|host| held(&cluster, host, master, epoch));
        // The caller's part is on n1 and n2, the callee's on n2 and n3.
        assert_eq!(held.each_ref().map(|(images, _)| images.len()), [1, 2, 1]);
        let first = held[0].1.as_ref().expect("it is whole there");
        let copies = first.parts().map(|part| part.copy.as_deref());
        assert_eq!(copies.collect::<Vec<_>>(), [Some("n2"), Some("n3")]);
        assert_eq!(
            first.base().is_some(),
            epoch == 2,
            "the second is an increment"
        );
        assert!(held.iter().all(|(_, manifest)| manifest.is_some()));
    }
    cluster.nodes[1].signal(rustix::process::Signal::KILL);
    cluster.nodes[1].wait_end(PATIENCE);
    fs::remove_dir_all(cluster.store_of("n2")).expect("its disk is lost");
    run.output_until("host 'n2' is lost");
    run.output_until("runs again on");
    run.ends_well(NONE_LOST);
}

/// Damages the callee's image on its own disk.
fn damage(cluster: &Cluster, app: Tid) {
    let (mut images, _) = held(cluster, "n2", app, 1);
    images.sort();
    let image = images.pop().expect("an image");
    flip_a_bit(&image);
}

/// `vm checkpoints` with these words, on the first host.
fn checkpoints(cluster: &Cluster, words: &[&str]) -> Output {
    let mut command = Command::new(binaries::binary("vm"));
    command.arg("--dir").arg(&cluster.nodes[0].dir);
    command.arg("checkpoints").args(words);
    end_with_us(&mut command);
    command.output().expect("vm runs")
}

/// The output of `vm checkpoints` with these words.
fn listed(cluster: &Cluster, words: &[&str]) -> String {
    let output = checkpoints(cluster, words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_listing_tells_what_all_hosts_have_and_a_removal_leaves_nothing_on_any() {
    let cluster = Cluster::with_own_stores(3);
    let master = stopped(&cluster);
    assert!(!listed(&cluster, &[]).contains("one disk"));
    damage(&cluster, master);
    let text = listed(&cluster, &["--verify"]);
    assert!(text.contains("1 of 2 images on one disk alone"), "{text}");
    assert!(!text.contains("damaged"), "{text}");
    listed(&cluster, &["--remove", &name::app(master)]);
    wait_for("nothing is left on any disk", PATIENCE, || {
        let left = ["n1", "n2", "n3"].map(|host| cluster.store_of(host).join(name::app(master)));
        left.iter().all(|folder| !folder.exists()).then_some(())
    });
}

#[test]
fn a_removal_of_the_checkpoints_of_a_running_application_warns_the_user() {
    let cluster = Cluster::with_own_stores(3);
    let (mut run, master) = running(&cluster);
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    let remove = ["--remove", &name::app(master)];
    let output = checkpoints(&cluster, &remove);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(
        said.contains("cannot be restarted until its next checkpoint"),
        "{said}"
    );
    assert!(held(&cluster, "n1", master, 1).1.is_none());
    console.save(master, true).expect("it can be stopped");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
    assert!(!listed(&cluster, &remove).contains("g0-e1"));
}

#[test]
fn a_damaged_image_is_taken_from_the_other_disk() {
    let cluster = Cluster::with_own_stores(3);
    let master = stopped(&cluster);
    damage(&cluster, master);
    let mut console = cluster.nodes[0].client();
    let report = console.restart(master).expect("there is another");
    assert_eq!(report.from, CheckpointId::new(0, 1));
    console.ends_well(NONE_LOST);
}

#[test]
fn an_image_is_sent_to_where_its_task_is_to_live() {
    let cluster = Cluster::with_own_stores(3);
    let master = stopped(&cluster);
    // The caller runs on the host of its console, which has no part of it.
    let mut console = cluster.nodes[2].client();
    let report = console.restart(master).expect("the image can be sent");
    let conf = cluster.nodes[2].conf();
    let mut rows = conf.hosts.iter();
    let third = rows
        .find(|row| row.facts.name == "n3")
        .expect("a host")
        .host;
    assert!(report.hosts.contains(&(third, 1)), "{report:?}");
    console.ends_well(NONE_LOST);
}

#[test]
fn an_application_is_restarted_in_another_machine_from_copies_of_the_folders() {
    let (first, own, shared) = (
        Cluster::with_own_stores(3),
        Cluster::with_own_stores(2),
        Cluster::on_loopback(2),
    );
    let master = stopped(&first);
    // Two of the three folders together have all parts: n1's and n3's.
    for (from, to) in [("n1", own.store_of("n2")), ("n3", own.store_of("n1"))] {
        copy_all(&first.store_of(from), &to);
        copy_all(&first.store_of(from), &shared.store());
    }
    for cluster in [own, shared] {
        let mut console = cluster.nodes[0].client();
        console.restart(master).expect("it can be brought back");
        console.ends_well(NONE_LOST);
    }
}

#[test]
fn a_copy_that_fails_costs_the_checkpoint_and_nothing_else() {
    let mut cluster = Cluster::with_own_stores(2);
    let mut command = cluster.command("n3", &[]);
    command.env("VM_FAULT", "taker:kill");
    cluster.add_node("n3".to_owned(), command);
    let (mut run, master) = running(&cluster);
    let mut console = cluster.nodes[0].client();
    let failed = console.save(master, false).expect_err("the copy fails");
    assert!(failed.text.contains("copied to host 'n3'"), "{failed}");
    wait_for("nothing is left of it", PATIENCE, || {
        let hosts = ["n1", "n2", "n3"];
        let images = hosts.map(|host| held(&cluster, host, master, 1).0.len());
        (images == [0; 3]).then_some(())
    });
    console.save(master, false).expect("it can be saved");
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}
