//! Applications that are suspended and resumed while their tasks exchange numbered messages.

use rustix::process::Signal;
use vm_integration::cluster::{Cluster, PATIENCE, client::Client, wait_for};
use vm_wire::{
    CheckpointId, Tid,
    agreed::ExitStatus,
    console::{Answer, HostState, Request, SuspendedRow},
    peer::DrainWay,
};

fn suspended(client: &mut Client) -> Vec<SuspendedRow> {
    match client.ask(&Request::Suspended) {
        Answer::Suspended(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// A caller on the first host, as a run of this client, and its callee on the given host.
fn caller(client: &mut Client, callee: &str) -> Tid {
    let master = client.run("vmtest", &["caller", callee]);
    client.output_until("it goes");
    master
}

/// The standard input has ended, so the caller ends, and reports whether it lost messages.
fn ends_well(run: &mut Client) {
    let finished = run.finish();
    let text = format!("{finished:?}");
    let told = "none lost, doubled or out of order";
    assert!(text.contains(told), "{text}");
    let ended = [ExitStatus::Code(0), ExitStatus::Left(0)];
    assert!(ended.contains(&finished.status), "{text}");
}

#[test]
fn a_suspended_application_is_resumed_at_its_console_and_loses_no_message() {
    let cluster = Cluster::on_loopback(3);
    let mut run = cluster.nodes[1].client();
    let master = caller(&mut run, "n3");
    let mut console = cluster.nodes[2].client();
    let answer = console.ask(&Request::Suspend(master, 0));
    assert!(matches!(answer, Answer::Checkpointed(_)), "{answer:?}");
    run.output_until("is suspended with checkpoint g0-e1");
    let answer = console.ask(&Request::Ps(None));
    assert_eq!(answer, Answer::Ps(Vec::new()));
    // The founder, which leads, will be lost; the other hosts must vote before that.
    wait_for("three voters", PATIENCE, || {
        let conf = cluster.nodes[2].conf();
        conf.hosts.iter().all(|row| row.voter).then_some(())
    });
    cluster.nodes[0].signal(Signal::KILL);
    wait_for("its loss", PATIENCE, || {
        let conf = cluster.nodes[2].conf();
        (conf.hosts[0].state == HostState::Dead).then_some(())
    });
    let rows = suspended(&mut console);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(
        (row.app, row.from, row.tasks),
        (master, CheckpointId::new(0, 1), 2)
    );
    assert!(row.since_ms > 1_700_000_000_000, "{row:?}");
    let Answer::Restarted(report) = console.ask(&Request::Resume(master, None)) else {
        panic!("it can be brought back");
    };
    assert_eq!((report.app, report.from), (master, CheckpointId::new(0, 1)));
    assert!(suspended(&mut console).is_empty());
    ends_well(&mut run);
}

#[test]
fn an_application_that_cannot_leave_a_host_is_suspended_until_another_host_joins() {
    let mut cluster = Cluster::on_loopback(1);
    let mut run = cluster.nodes[0].client();
    let master = caller(&mut run, "n1");
    let way = DrainWay {
        checkpoint: true,
        suspend: true,
    };
    let mut console = cluster.nodes[0].client();
    let Answer::Drained(report) = console.ask(&Request::Drain("n1".to_owned(), way)) else {
        panic!("it drains");
    };
    assert_eq!((report.saved_count, report.refused_count), (1, 0));
    assert_eq!(report.suspended, [master]);
    run.output_until("because host 'n1' drains");
    let rows = suspended(&mut console);
    assert_eq!(
        (rows[0].app, rows[0].from),
        (master, CheckpointId::new(0, 2))
    );
    assert_eq!(rows[0].drained.as_deref(), Some("n1"));
    cluster.add(&[]);
    run.output_until("is resumed on n2");
    ends_well(&mut run);
    assert!(suspended(&mut console).is_empty());
}

#[test]
fn a_daemon_that_must_end_suspends_applications_for_the_configured_time() {
    let mut cluster = Cluster::on_loopback(1);
    cluster.add(&[
        "--on-term",
        "suspend",
        "--grace",
        "60",
        "--suspended-for",
        "1000",
    ]);
    let full = cluster.nodes[0]
        .client()
        .ask(&Request::Drain("n1".to_owned(), DrainWay::default()));
    assert!(matches!(full, Answer::Drained(_)), "{full:?}");
    let mut run = cluster.nodes[1].client();
    let master = caller(&mut run, "n2");
    cluster.nodes[1].signal(Signal::TERM);
    assert!(cluster.nodes[1].wait_end(PATIENCE).success());
    let mut console = cluster.nodes[0].client();
    let rows = suspended(&mut console);
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.app, row.until_ms - row.since_ms), (master, 1_000_000));
    // The application has no console any more. It ends once it is resumed, because its standard
    // input has ended.
    let undo = Request::Undrain("n1".to_owned());
    assert_eq!(console.ask(&undo), Answer::Done);
    wait_for("the end of the application", PATIENCE, || {
        let gone = suspended(&mut console).is_empty();
        let none = console.ask(&Request::Ps(None)) == Answer::Ps(Vec::new());
        (gone && none).then_some(())
    });
    let log: String = cluster.nodes[0].log();
    assert!(log.contains("none lost, doubled or out of order"), "{log}");
}
