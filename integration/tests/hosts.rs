//! Loss of hosts: real daemons in network namespaces are killed, stopped, cut off and deleted
//! while tasks on all of them exchange messages.

use rustix::process::Signal;
use std::time::Duration;
use vm_integration::cluster::{Cluster, PATIENCE, client::Client, processes, wait_for};
use vm_wire::{
    console::{Answer, HostState, Request},
    limits,
};

/// Runs a sentinel on `master`: four tasks on each host, all watched.
fn sentinel(cluster: &Cluster, master: usize) -> Client {
    let mut client = cluster.nodes[master].client();
    client.run("vmtest", &["sentinel", "4"]);
    client.output_until("watching");
    client
}

/// Waits until the sentinel reports the end of each task of the lost hosts, in any order, and still
/// runs.
fn expect_losses(client: &mut Client, lost: &[usize]) {
    let mut output = String::new();
    let all_told = |output: &str| {
        lost.iter()
            .all(|host| output.matches(&format!("ended t{}.", host + 1)).count() == 4)
    };
    while !all_told(&output) {
        output.push_str(&client.output_until("ended"));
    }
    client.output_until("round");
}

/// Waits until `witness` sees the hosts `lost` as dead, within the promised time.
fn expect_dead(cluster: &Cluster, witness: usize, lost: &[usize]) {
    let names: Vec<&str> = lost
        .iter()
        .map(|host| cluster.nodes[*host].name.as_str())
        .collect();
    let took = cluster.await_state(witness, &names, HostState::Dead);
    println!("{names:?} declared dead after {took:?}");
    assert!(took < limits::DETECTION_PROMISE, "{took:?}");
}

fn await_voters(cluster: &Cluster, witness: usize, count: usize) {
    wait_for(&format!("{count} voters"), PATIENCE, || {
        let voters = cluster.nodes[witness]
            .conf()
            .hosts
            .iter()
            .filter(|row| row.voter)
            .count();
        (voters == count).then_some(())
    });
}

#[test]
fn any_two_of_five_may_die_at_once_the_leader_among_them() {
    let Some(cluster) = Cluster::in_namespaces(5) else {
        return;
    };
    await_voters(&cluster, 4, 5);
    let leader = cluster.leader(4);
    let other = (leader + 1) % 4;
    let master = (0..5)
        .find(|host| ![leader, other].contains(host))
        .expect("three are left");
    let mut client = sentinel(&cluster, master);
    cluster.nodes[leader].signal(Signal::KILL);
    cluster.nodes[other].signal(Signal::KILL);
    expect_dead(&cluster, master, &[leader, other]);
    expect_losses(&mut client, &[leader, other]);
}

#[test]
fn any_two_of_five_may_die_one_after_the_other_the_leader_first() {
    let Some(cluster) = Cluster::in_namespaces(5) else {
        return;
    };
    await_voters(&cluster, 4, 5);
    let leader = cluster.leader(4);
    let master = (0..5).find(|host| *host != leader).expect("four are left");
    let mut client = sentinel(&cluster, master);
    cluster.nodes[leader].signal(Signal::KILL);
    expect_dead(&cluster, master, &[leader]);
    expect_losses(&mut client, &[leader]);
    let next = wait_for(
        "a new leader that is not the master's host",
        PATIENCE,
        || {
            let next = cluster.leader(master);
            (next != leader).then_some(next)
        },
    );
    let second = if next == master {
        (0..5)
            .find(|host| ![leader, master].contains(host))
            .expect("three are left")
    } else {
        next
    };
    cluster.nodes[second].signal(Signal::KILL);
    expect_dead(&cluster, master, &[second]);
    expect_losses(&mut client, &[second]);
}

#[test]
fn the_tasks_of_a_stopped_daemon_end_before_it_is_declared_dead() {
    let Some(cluster) = Cluster::in_namespaces(5) else {
        return;
    };
    let mut client = sentinel(&cluster, 0);
    let victim = 3;
    let tasks = children(cluster.nodes[victim].pid(), 4);
    cluster.nodes[victim].signal(Signal::STOP);
    let name = cluster.nodes[victim].name.as_str();
    let took = cluster.await_state(0, &[name], HostState::Dead);
    for task in tasks {
        assert!(
            !processes::is_alive(task),
            "a task outlived its host's lease"
        );
    }
    println!("declared dead after {took:?}");
    assert!(took < limits::DETECTION_PROMISE, "{took:?}");
    expect_losses(&mut client, &[victim]);
}

#[test]
fn three_hosts_shrunk_to_two_go_on_without_the_non_voter() {
    let Some(cluster) = Cluster::in_namespaces(3) else {
        return;
    };
    await_voters(&cluster, 0, 3);
    let leader = cluster.leader(0);
    let first = (0..3).find(|host| *host != leader).expect("two others");
    cluster.nodes[first].signal(Signal::KILL);
    expect_dead(&cluster, leader, &[first]);
    await_voters(&cluster, leader, 1);
    let conf = cluster.nodes[leader].conf();
    let voter = conf
        .hosts
        .iter()
        .find(|row| row.voter)
        .expect("one voter")
        .facts
        .name
        .clone();
    let voter = cluster
        .nodes
        .iter()
        .position(|node| node.name == voter)
        .expect("one of ours");
    let second = (0..3)
        .find(|host| ![first, voter].contains(host))
        .expect("one is left");
    let mut client = sentinel(&cluster, voter);
    cluster.nodes[second].signal(Signal::KILL);
    expect_dead(&cluster, voter, &[second]);
    expect_losses(&mut client, &[second]);
}

#[test]
fn of_two_against_three_the_two_end_and_the_three_go_on() {
    let Some(mut cluster) = Cluster::in_namespaces(5) else {
        return;
    };
    await_voters(&cluster, 4, 5);
    let leader = cluster.leader(4);
    // The leader is on the smaller side.
    let small = [leader, (leader + 1) % 5];
    let master = (0..5)
        .find(|host| !small.contains(host))
        .expect("three are left");
    let mut client = sentinel(&cluster, master);
    let tasks: Vec<i32> = small
        .iter()
        .flat_map(|host| children(cluster.nodes[*host].pid(), 4))
        .collect();
    let network = cluster.network.as_ref().expect("a cluster in namespaces");
    network.partition(&small);
    expect_dead(&cluster, master, &small);
    for task in tasks {
        assert!(
            !processes::is_alive(task),
            "a task of the minority lives after its host was declared dead"
        );
    }
    expect_losses(&mut client, &small);
    for host in small {
        assert!(
            !cluster.nodes[host]
                .wait_end(Duration::from_secs(5))
                .success()
        );
    }
}

#[test]
fn the_leader_can_be_deleted() {
    let Some(mut cluster) = Cluster::in_namespaces(5) else {
        return;
    };
    await_voters(&cluster, 4, 5);
    let leader = cluster.leader(4);
    let master = (0..5).find(|host| *host != leader).expect("four are left");
    let mut client = sentinel(&cluster, master);
    let name = cluster.nodes[leader].name.clone();
    let answer = cluster.nodes[master]
        .client()
        .ask(&Request::Delete(name.clone()));
    assert_eq!(answer, Answer::Done);
    cluster.await_state(master, &[&name], HostState::Gone);
    expect_losses(&mut client, &[leader]);
    assert!(
        cluster.nodes[leader]
            .wait_end(Duration::from_secs(10))
            .success()
    );
    assert_ne!(cluster.leader(master), leader);
}

/// The children of a process, once there are `count`.
fn children(pid: i32, count: usize) -> Vec<i32> {
    wait_for(&format!("{count} children of {pid}"), PATIENCE, || {
        let children = processes::children(pid);
        (children.len() == count).then_some(children)
    })
}
