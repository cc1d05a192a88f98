//! Applications that are saved while their tasks exchange numbered messages.

use std::{fs, path::Path};
use vm_integration::cluster::{Cluster, client::Client};
use vm_store::{State, Store};
use vm_wire::{
    Tid,
    checkpoint::CheckpointReport,
    console::{Answer, Request},
    task::Failed,
};

fn checkpoint(client: &mut Client, tid: Tid) -> Result<CheckpointReport, Failed> {
    match client.ask(&Request::Checkpoint(tid, false)) {
        Answer::Checkpointed(report) => Ok(report),
        Answer::Failed(failed) => Err(failed),
        other => panic!("{other:?}"),
    }
}

/// The checkpoints in the store, each read as a whole: epoch, tasks, bytes.
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
fn an_application_is_saved_again_and_again_and_loses_and_doubles_nothing() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[2].client();
    for epoch in 1..=5 {
        let report = checkpoint(&mut console, master).expect("it can be saved");
        assert_eq!((report.epoch, report.tasks), (epoch, 2));
        let last = *stored(&cluster.store()).last().expect("a checkpoint");
        assert_eq!(last, (epoch, 2, report.bytes));
        // The memory that the other one has.
        assert!(report.bytes > 8 << 20, "{report:?}");
        assert!(report.freeze_us <= report.total_us, "{report:?}");
    }
    // The last three are kept.
    let epochs: Vec<u32> = stored(&cluster.store()).iter().map(|it| it.0).collect();
    assert_eq!(epochs, [3, 4, 5]);
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

#[test]
fn what_cannot_be_saved_is_named_and_leaves_nothing_in_the_store() {
    let cluster = Cluster::on_loopback(2);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    checkpoint(&mut console, master).expect("it can be saved");
    // A folder in the way, where the next one is to be.
    let app = fs::read_dir(cluster.store()).expect("a store").flatten();
    let folder = app
        .map(|entry| entry.path())
        .next()
        .expect("an application");
    fs::write(folder.join("g0-e2"), "").expect("a file");
    let failed = checkpoint(&mut console, master).expect_err("there is no room for it");
    assert!(failed.text.contains("cannot be saved"), "{failed}");
    assert!(failed.text.contains("g0-e2"), "{failed}");
    let report = checkpoint(&mut console, master).expect("the next one is made");
    assert!(report.epoch >= 3, "{report:?}");
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

#[test]
fn a_writer_that_dies_costs_the_checkpoint_and_nothing_else() {
    let mut cluster = Cluster::on_loopback(1);
    let mut command = cluster.command("n2", &[]);
    command.env("VM_FAULT", "writer:kill");
    cluster.add_node("n2".to_owned(), command);
    let mut run = cluster.nodes[0].client();
    let master = run.run("vmtest", &["caller", "n2"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[0].client();
    let failed = checkpoint(&mut console, master).expect_err("it was not stored");
    assert!(failed.text.contains("on 'n2' cannot be saved"), "{failed}");
    assert!(failed.text.contains("stores its image"), "{failed}");
    let report = checkpoint(&mut console, master).expect("the next one is made");
    assert_eq!(stored(&cluster.store()), [(report.epoch, 2, report.bytes)]);
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}
