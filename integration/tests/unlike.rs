//! Portable tasks move from one architecture to another, and back.

use std::{fs, path::Path};
use vm_integration::cluster::{Cluster, client::Client, foreign};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request, TaskRow},
    peer::MoveWay,
};

/// The result for numbers below 2,000,000.
const LONGEST: &str = "the chain of 1723519 has 556 steps";
const WORK: [&str; 4] = ["--below", "2000000", "--pieces", "100"];

fn stop(client: &mut Client, run: &mut Client, tid: Tid) {
    client.save(tid, true).expect("it can be saved");
    assert_eq!(run.finish().status, ExitStatus::Suspended);
}

/// Restarts an application in a machine that has a copy of another machine's store.
fn go_on(from: &Cluster, to: &Cluster, app: Tid) -> Client {
    from.copy_store_to(to);
    let mut run = to.nodes[0].client();
    run.restart(app).expect("it can be brought back");
    run
}

fn tasks(client: &mut Client) -> Vec<TaskRow> {
    match client.ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// Whether the process of a task is emulated.
fn is_emulated(row: &TaskRow) -> bool {
    let pid = row.usage.as_ref().expect("its host has answered").pid;
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    let program = program.expect("the process lives");
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("qemu-aarch64"))
}

fn machine_of(programs: &Path) -> Cluster {
    let mut cluster = Cluster::on_loopback(0);
    cluster.add_foreign(programs);
    cluster
}

#[test]
fn an_application_is_restarted_on_another_architecture_and_back() {
    let Some(programs) = foreign::programs() else {
        return;
    };
    let here = Cluster::on_loopback(2);
    let mut run = here.nodes[0].client();
    let master = run.run("collatz", &WORK);
    run.output_until("1 of 100 pieces");
    stop(&mut here.nodes[1].client(), &mut run, master);

    let there = machine_of(programs);
    assert_eq!(there.nodes[0].conf().hosts[0].facts.arch, foreign::ARCH);
    let mut run = go_on(&here, &there, master);
    drop(here);
    let mut console = there.nodes[0].client();
    let rows = tasks(&mut console);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(is_emulated), "{rows:?}");
    run.output_until("of 100 pieces");
    stop(&mut console, &mut run, master);

    let back = Cluster::on_loopback(1);
    let mut run = go_on(&there, &back, master);
    drop(there);
    let rows = tasks(&mut back.nodes[0].client());
    assert!(!rows.iter().any(is_emulated), "{rows:?}");
    run.ends_well(LONGEST);
}

#[test]
fn a_task_moves_between_hosts_of_two_architectures() {
    let Some(programs) = foreign::programs() else {
        return;
    };
    let mut cluster = Cluster::on_loopback(1);
    cluster.add_foreign(programs);
    let mut run = cluster.nodes[0].client();
    let master = run.run("collatz", &[&WORK[..], &["--workers", "1"]].concat());
    run.output_until("1 of 100 pieces");
    let mut console = cluster.nodes[0].client();
    let worker = tasks(&mut console)
        .into_iter()
        .find(|row| row.tid != master);
    let worker = worker.expect("a worker").tid;
    for (to, emulated) in [("n2", true), ("n1", false)] {
        let way = MoveWay::default();
        let answer = console.ask(&Request::Move(worker, Some(to.to_owned()), way));
        assert!(matches!(answer, Answer::Moved(_)), "{answer:?}");
        let rows = tasks(&mut console);
        let row = rows.iter().find(|row| row.tid == worker);
        assert_eq!(row.map(is_emulated), Some(emulated));
    }
    run.ends_well(LONGEST);
}
