//! Single tasks that are suspended and resumed while the tasks of their application exchange
//! numbered messages.

use std::{fs, path::Path, time::Duration};
use vm_integration::cluster::{Cluster, Node, PATIENCE, client::Client, wait_for};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, HostState, Request, TaskRow},
    peer::{DrainWay, MoveReport},
};

const MEMBERS: usize = 8;

fn rows(node: &Node) -> Vec<TaskRow> {
    match node.client().ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn row_of(node: &Node, tid: Tid) -> Option<TaskRow> {
    rows(node).into_iter().find(|row| row.tid == tid)
}

/// A ring as a run of this client, which ends when it is told to. Returns its master and its
/// members, once they can be moved.
fn ring(run: &mut Client, node: &Node, bytes: &str) -> (Tid, Vec<Tid>) {
    let master = run.run("vmtest", &["ring-until-told", bytes]);
    let members = wait_for("the members of the ring", Duration::from_secs(20), || {
        let tids: Vec<Tid> = rows(node).iter().skip(1).map(|row| row.tid).collect();
        (tids.len() == MEMBERS).then_some(tids)
    });
    node.await_movable(&members);
    (master, members)
}

fn ends_well(mut run: Client) {
    run.input(b"end\n");
    let finished = run.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    let told = "none lost, doubled or out of order";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
}

/// Suspends a task, and checks that it is listed and has no process.
fn suspend(node: &Node, tid: Tid) {
    let answer = node.client().ask(&Request::Suspend(tid, 0));
    let Answer::Moved(report) = answer else {
        panic!("{tid}: {answer:?}");
    };
    assert_eq!(report.from, report.to);
    assert!(report.bytes > 0);
    let row = row_of(node, tid).expect("it is not over");
    assert!(row.suspended && row.usage.is_none(), "{row:?}");
}

fn resume(node: &Node, tid: Tid, host: Option<&str>) -> MoveReport {
    let request = Request::Resume(tid, host.map(str::to_owned));
    let answer = node.client().ask(&request);
    let Answer::Moved(report) = answer else {
        panic!("{tid}: {answer:?}");
    };
    report
}

fn refusal(node: &Node, request: &Request) -> String {
    match node.client().ask(request) {
        Answer::Failed(failed) => failed.text,
        other => panic!("{other:?}"),
    }
}

/// The images of suspended tasks in a store.
fn images(store: &Path) -> Vec<String> {
    let folders = fs::read_dir(store).into_iter().flatten().flatten();
    let files = folders.flat_map(|app| fs::read_dir(app.path().join("suspended")));
    let files = files.flatten().flatten();
    files
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .collect()
}

fn wait_for_no_image(store: &Path) {
    wait_for("no image is left", PATIENCE, || {
        images(store).is_empty().then_some(())
    });
}

#[test]
fn a_ring_loses_and_doubles_nothing_while_its_members_are_suspended() {
    let cluster = Cluster::on_loopback(3);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (_, members) = ring(&mut run, node, "200000");
    for (number, &tid) in members.iter().enumerate() {
        suspend(node, tid);
        assert_eq!(images(&cluster.store()).len(), 1);
        // The task resumes on its last host, or on each host in turn.
        let host = (number % 4 != 3).then(|| format!("n{}", number % 4 + 1));
        resume(node, tid, host.as_deref());
        let row = row_of(node, tid).expect("it is not over");
        assert!(!row.suspended, "{row:?}");
        if let Some(host) = host {
            assert_eq!(row.host, host);
        }
    }
    // Two tasks are suspended at the same time.
    suspend(node, members[0]);
    suspend(node, members[1]);
    let text = refusal(node, &Request::Suspend(members[0], 0));
    assert!(text.contains("is suspended: 'vm resume"), "{text}");
    let text = refusal(node, &Request::Move(members[0], None, Default::default()));
    assert!(text.contains("is suspended: 'vm resume"), "{text}");
    resume(node, members[1], None);
    resume(node, members[0], None);
    wait_for_no_image(&cluster.store());
    ends_well(run);
}

#[test]
fn a_suspended_task_outlives_the_drain_and_the_end_of_its_host() {
    let mut cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[0].client();
    let (_, members) = ring(&mut run, &cluster.nodes[0], "100000");
    let node = &cluster.nodes[0];
    let there = |tid: &&Tid| row_of(node, **tid).is_some_and(|row| row.host == "n3");
    let tid = *members
        .iter()
        .find(there)
        .expect("one is on the third host");
    suspend(node, tid);
    let drain = Request::Drain("n3".to_owned(), DrainWay::default());
    let Answer::Drained(report) = node.client().ask(&drain) else {
        panic!("it drains");
    };
    assert_eq!(report.refused, []);
    let row = row_of(node, tid).expect("it is not over");
    assert!(row.suspended && row.host != "n3", "{row:?}");
    let deleted = node.client().ask(&Request::Delete("n3".to_owned()));
    assert_eq!(deleted, Answer::Done);
    assert!(cluster.nodes[2].wait_end(PATIENCE).success());
    cluster.await_state(0, &["n3"], HostState::Gone);
    let node = &cluster.nodes[0];
    let other = if row.host == "n1" { "n2" } else { "n1" };
    resume(node, tid, Some(other));
    assert_eq!(row_of(node, tid).expect("it is not over").host, other);
    wait_for_no_image(&cluster.store());
    ends_well(run);
}

#[test]
fn a_task_that_is_killed_while_suspended_leaves_nothing() {
    let cluster = Cluster::on_loopback(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (master, members) = ring(&mut run, node, "8");
    suspend(node, members[0]);
    suspend(node, members[1]);
    let text = refusal(node, &Request::Signal(members[0], 10));
    assert!(text.contains("is suspended: resume it first"), "{text}");
    assert_eq!(
        node.client().ask(&Request::Signal(members[0], 9)),
        Answer::Done
    );
    wait_for("the end of the task", PATIENCE, || {
        row_of(node, members[0]).is_none().then_some(())
    });
    let text = refusal(node, &Request::Resume(members[0], None));
    assert!(text.contains("not suspended"), "{text}");
    // The end of the master ends all tasks, including the other suspended one.
    assert_eq!(node.client().ask(&Request::Signal(master, 9)), Answer::Done);
    wait_for("the end of all", PATIENCE, || {
        rows(node).is_empty().then_some(())
    });
    run.finish();
    wait_for_no_image(&cluster.store());
}

#[test]
fn no_checkpoint_is_made_while_a_task_is_suspended_and_its_only_image_is_resumed() {
    let cluster = Cluster::with_own_stores(2);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    let (master, members) = ring(&mut run, node, "1000");
    let there = |tid: &&Tid| row_of(node, **tid).is_some_and(|row| row.host == "n2");
    let tid = *members
        .iter()
        .find(there)
        .expect("one is on the second host");
    suspend(node, tid);
    assert_eq!(images(&cluster.store_of("n2")).len(), 1);
    let name = tid.to_string();
    for request in [
        Request::Checkpoint(master, false),
        Request::Suspend(master, 0),
    ] {
        let text = refusal(node, &request);
        let says = format!("its task {name} is suspended, and is in no checkpoint");
        assert!(text.contains(&says), "{text}");
    }
    let drain = Request::Drain("n2".to_owned(), DrainWay::default());
    let Answer::Drained(report) = node.client().ask(&drain) else {
        panic!("it drains");
    };
    let [(refused, why)] = &report.refused[..] else {
        panic!("{:?}", report.refused);
    };
    assert_eq!(*refused, tid);
    assert!(
        why.text.contains("in the store of host 'n2' alone"),
        "{why}"
    );
    resume(node, tid, Some("n1"));
    wait_for_no_image(&cluster.store_of("n2"));
    let answer = node.client().ask(&Request::Checkpoint(master, false));
    // Only one host takes tasks, so there is no second disk, and the images are on that one disk.
    assert!(matches!(answer, Answer::Checkpointed(_)), "{answer:?}");
    ends_well(run);
}
