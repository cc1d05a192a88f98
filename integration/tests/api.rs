//! The interface of the task library on a machine of three real daemons. Each test runs one part of
//! `vmapi`, which checks its results.

use std::sync::{Mutex, PoisonError};
use vm_integration::cluster::Cluster;
use vm_wire::{agreed::ExitStatus, console::Answer, console::Request};

/// One machine at a time: the parts measure time limits, and the test computer has few cores.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `vmapi` with these arguments on three hosts. Returns its status and its output.
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
fn a_task_knows_its_tid_and_gets_the_arguments_of_its_spawn() {
    passes("identity");
}

#[test]
fn tasks_start_on_the_requested_hosts() {
    passes("placement");
}

#[test]
fn every_kind_of_message_goes_to_every_host_and_back() {
    passes("messages");
}

#[test]
fn every_kind_of_end_is_reported_after_the_last_message() {
    passes("ends");
}

#[test]
fn groups_work_across_hosts() {
    passes("groups");
}

#[test]
fn a_task_moves_others_and_itself_and_drains_its_own_host() {
    passes("moves");
}

#[test]
fn an_impossible_request_is_refused_with_its_kind() {
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
fn hosts_that_join_and_leave_are_reported() {
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
