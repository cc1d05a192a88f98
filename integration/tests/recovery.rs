//! Applications with a checkpoint survive the end of their machine.

use rustix::process::Signal;
use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};
use vm_integration::cluster::{
    Cluster, Node, PATIENCE, binaries, client::NONE_LOST, end_with_us, processes, read_until,
    wait_for,
};
use vm_wire::{
    console::{Answer, HostState, Request},
    limits,
};

/// The same command, as each run of a batch job gives it.
fn job(node: &Node) -> Command {
    let mut command = Command::new(binaries::binary("vm"));
    command.arg("--dir").arg(&node.dir);
    command.args(["run", "--resume-or-start", "vmtest", "caller", "n1"]);
    end_with_us(&mut command);
    command
}

/// The children of a daemon, once there is one.
fn children(daemon: i32) -> Vec<i32> {
    wait_for("a task's process", PATIENCE, || {
        let children = processes::children(daemon);
        (!children.is_empty()).then_some(children)
    })
}

#[test]
fn when_the_voter_of_two_hosts_dies_the_machine_ends_and_the_next_one_restarts_the_job() {
    let mut before = Cluster::on_loopback(2);
    let mut first = job(&before.nodes[1]);
    let mut first = first
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the console runs");
    let mut shown = first.stdout.take().expect("a pipe");
    read_until(&mut shown, "it goes");
    let mut console = before.nodes[0].client();
    let Answer::Ps(rows) = console.ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    console.save(rows[0].tid, false).expect("it can be saved");
    let tasks = children(before.nodes[1].pid());
    before.nodes[0].signal(Signal::KILL);
    // No voter can confirm the lease of the other host: its tasks end, and its daemon logs the
    // reason.
    assert!(!before.nodes[1].wait_end(PATIENCE).success());
    let log = before.nodes[1].log();
    assert!(log.contains("majority"), "{log}");
    for task in tasks {
        wait_for("the end of a task", PATIENCE, || {
            (!processes::is_alive(task)).then_some(())
        });
    }
    assert!(!first.wait().expect("it ends").success());
    let mut after = Cluster::on_loopback(0);
    fs::rename(before.store(), after.store()).expect("the store can be taken along");
    after.add(&[]);
    // The input has ended, so the restarted application ends; it does not begin anew.
    let again = job(&after.nodes[0]).stdin(Stdio::null()).output();
    let again = again.expect("the console runs");
    let out = String::from_utf8_lossy(&again.stdout);
    let err = String::from_utf8_lossy(&again.stderr);
    assert!(err.contains("restarted from g0-e1"), "{out}{err}");
    let well = out.contains("none lost, doubled or out of order") && !out.contains("it goes");
    assert!(well && again.status.success(), "{out}{err}");
}

#[test]
fn after_a_partition_one_side_continues_and_no_task_runs_twice() {
    let Some(mut cluster) = Cluster::in_namespaces(3) else {
        return;
    };
    wait_for("three voters", PATIENCE, || {
        let hosts = cluster.nodes[2].conf().hosts;
        (hosts.iter().filter(|row| row.voter).count() == 3).then_some(())
    });
    let mut run = cluster.nodes[2].client();
    let master = run.run("vmtest", &["caller", "n1"]);
    run.output_until("it goes");
    let mut console = cluster.nodes[1].client();
    console.save(master, false).expect("it can be saved");
    let tasks = children(cluster.nodes[0].pid());
    let network = cluster.network.as_ref().expect("a cluster in namespaces");
    // The founder leads, so the others must elect another leader.
    network.set_cable(0, false);
    let took = cluster.await_state(2, &["n1"], HostState::Dead);
    assert!(took < limits::DETECTION_PROMISE, "{took:?}");
    for task in tasks {
        assert!(
            !processes::is_alive(task),
            "it lives after its host was declared dead"
        );
    }
    run.output_until("host 'n1' is lost");
    run.output_until("runs again on");
    network.set_cable(0, true);
    assert!(!cluster.nodes[0].wait_end(Duration::from_secs(5)).success());
    run.ends_well(NONE_LOST);
}
