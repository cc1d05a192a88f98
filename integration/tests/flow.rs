//! Flow control and last messages between real processes.

use vm_integration::cluster::{Cluster, PATIENCE, client::Client, wait_for};
use vm_wire::agreed::ExitStatus;

fn run_to_the_end(client: &mut Client, args: &[&str]) -> String {
    client.run("vmtest", args);
    let finished = client.finish();
    assert_eq!(
        finished.status,
        ExitStatus::Code(0),
        "{args:?}: {}",
        finished.stderr
    );
    finished.stdout
}

/// Resident memory of a process. Bytes.
fn memory(pid: i32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process lives");
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .expect("the second field")
        .parse()
        .expect("a number");
    pages * rustix::param::page_size() as u64
}

#[test]
fn two_tasks_that_send_each_other_100_mb_before_they_receive_do_not_deadlock() {
    let cluster = Cluster::on_loopback(2);
    let output = run_to_the_end(&mut cluster.nodes[0].client(), &["exchange", "100000000"]);
    assert!(output.contains("both received 100000000 bytes"), "{output}");
}

#[test]
fn what_is_sent_to_a_task_that_has_hardly_started_needs_no_second_call_of_the_sender() {
    let cluster = Cluster::on_loopback(3);
    let mut client = cluster.nodes[0].client();
    client.run("vmtest", &["early"]);
    let mut output = String::new();
    while output.matches("received").count() < 12 {
        output += &client.output_until("received");
    }
    client.input(b"end\n");
    let finished = client.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
}

#[test]
fn messages_sent_just_before_the_end_arrive_whole_and_before_the_notify() {
    let cluster = Cluster::on_loopback(2);
    let output = run_to_the_end(&mut cluster.nodes[0].client(), &["last-word", "8"]);
    assert!(output.contains("last-word: 8 messages"), "{output}");
}

#[test]
fn a_task_killed_in_the_middle_of_a_send_delivers_no_partial_message() {
    let cluster = Cluster::on_loopback(2);
    let output = run_to_the_end(&mut cluster.nodes[0].client(), &["cut-off"]);
    assert!(output.contains("nothing was delivered in part"), "{output}");
}

#[test]
fn a_receiver_that_reads_nothing_stops_only_its_own_senders() {
    let cluster = Cluster::on_loopback(2);
    let mut client = cluster.nodes[0].client();
    client.run("vmtest", &["flood", "1000000000"]);
    let output = client.output_until("round trip flooded");
    println!("{output}");
    for node in &cluster.nodes {
        let used = memory(node.pid());
        println!("{}: {} MB", node.name, used / 1_000_000);
        // The bytes that a daemon holds for a task that does not read are bounded.
        assert!(
            used < vm_wire::limits::QUEUE_BYTES as u64 + 64_000_000,
            "{used} bytes"
        );
    }
    client.input(b"go on\n");
    let finished = client.finish();
    assert_eq!(finished.status, ExitStatus::Code(0), "{}", finished.stderr);
    assert!(
        finished.stdout.contains("1000000000 bytes received"),
        "{}",
        finished.stdout
    );
}

#[test]
fn five_hundred_tasks_live_on_one_host() {
    let cluster = Cluster::on_loopback(1);
    let output = run_to_the_end(&mut cluster.nodes[0].client(), &["crowd", "500"]);
    assert!(output.contains("crowd: 500 tasks answered"), "{output}");
}

#[test]
fn sixteen_daemons_on_one_computer_form_one_machine() {
    let cluster = Cluster::on_loopback(16);
    for node in &cluster.nodes {
        wait_for("all see sixteen hosts", PATIENCE, || {
            (node.conf().hosts.len() == 16).then_some(())
        });
    }
    wait_for("five of them vote", PATIENCE, || {
        let conf = cluster.nodes[0].conf();
        let voters = conf.hosts.iter().filter(|row| row.voter).count();
        (voters == 5).then_some(())
    });
    let output = run_to_the_end(&mut cluster.nodes[15].client(), &["last-word", "16"]);
    assert!(output.contains("last-word: 16 messages"), "{output}");
}
