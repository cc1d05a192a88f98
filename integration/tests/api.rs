//! The task library's interface on a machine of three real daemons: each test runs one part of
//! `vmapi`, which checks itself.

use std::sync::{Mutex, PoisonError};
use vm_integration::cluster::Cluster;
use vm_wire::{agreed::ExitStatus, console::Answer, console::Request};

/// One machine at a time: the parts measure time limits, and there are few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `vmapi` with these arguments on three hosts; its status and its output.
fn run(args: &[&str]) -> (ExitStatus, String) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = Cluster::on_loopback(3);
    let mut console = cluster.nodes[0].client();
    console.run("vmapi", args);
    let finished = console.finish();
    (finished.status, finished.stdout + &finished.stderr)
}

fn passes(part: &str) {
    let (status, output) = run(&[part]);
    assert_eq!(status, ExitStatus::Code(0), "{output}");
}

#[test]
fn a_task_knows_who_it_is_and_gets_what_its_spawn_said() {
    passes("identity");
}

#[test]
fn tasks_start_where_they_shall() {
    passes("placement");
}

#[test]
fn every_kind_of_message_goes_to_every_host_and_back() {
    passes("messages");
}

#[test]
fn every_kind_of_end_is_told_after_the_last_message() {
    passes("ends");
}

#[test]
fn groups_work_across_hosts() {
    passes("groups");
}

#[test]
fn a_task_moves_others_and_itself_and_empties_its_own_host() {
    passes("moves");
}

#[test]
fn what_cannot_be_done_is_refused_by_kind() {
    passes("refusals");
}

#[test]
fn the_masters_status_is_that_of_its_process() {
    assert_eq!(run(&["status", "42"]).0, ExitStatus::Code(42));
    let (status, output) = run(&["error"]);
    assert_eq!(status, ExitStatus::Code(1));
    assert!(output.contains("this master fails"), "{output}");
}

#[test]
fn hosts_that_come_and_go_are_told() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = Cluster::on_loopback(2);
    let mut console = cluster.nodes[0].client();
    console.run("vmapi", &["hosts"]);
    console.output_until("watching");
    cluster.add(&[]);
    console.output_until("added n3");
    let mut other = cluster.nodes[0].client();
    let deleted = other.ask(&Request::Delete("n3".to_owned()));
    assert_eq!(deleted, Answer::Done);
    let finished = console.finish();
    assert!(finished.stdout.contains("deleted n3"), "{finished:?}");
    assert_eq!(finished.status, ExitStatus::Code(0));
}
