//! Tasks with a socket of their own, which cannot be part of an image: their programs close the
//! socket in a callback before each save, and open it again after the save.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    thread,
};
use vm_integration::cluster::{Cluster, PATIENCE, client::Client, wait_for};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::{Answer, Request},
    peer::{MoveReport, MoveWay},
    task::{FailKind, Failed},
};

const MOVED: &str = "before first, before socket, resume socket, resume first";
const SAVED: &str = "before first, before socket, after socket, after first";
const REFUSED: &str = "before first, refused socket, after first";

/// A listener on the first host, and its console.
struct Listener {
    run: Client,
    master: Tid,
    tid: Tid,
    port: u16,
}

impl Listener {
    fn start(cluster: &Cluster, how: &str) -> Listener {
        let mut run = cluster.nodes[0].client();
        let master = run.run("vmtest", &["listening", how, "n1"]);
        let tid = wait_for("the listener", PATIENCE, || {
            let Answer::Ps(rows) = cluster.nodes[0].client().ask(&Request::Ps(None)) else {
                panic!("ps has no such answer");
            };
            let mut of_it = rows.into_iter().filter(|row| row.parent == master);
            of_it.next().map(|row| row.tid)
        });
        let mut listener = Listener {
            run,
            master,
            tid,
            port: 0,
        };
        listener.reopened();
        listener
    }

    /// Waits until the listener has opened a port again.
    fn reopened(&mut self) {
        let output = self.run.output_until("is open");
        let port = output.rsplit_once("port ").expect("it says so").1;
        let port = port.split_whitespace().next().expect("a number");
        self.port = port.parse().expect("a number");
    }

    /// The listener's reply on its own port.
    fn ask(&self, question: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        writeln!(stream, "{question}").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    fn move_to(&self, cluster: &Cluster, host: &str) -> Result<MoveReport, Failed> {
        let asked = Request::Move(self.tid, Some(host.to_owned()), MoveWay::default());
        match cluster.nodes[0].client().ask(&asked) {
            Answer::Moved(report) => Ok(report),
            Answer::Failed(failed) => Err(failed),
            answer => panic!("a move has no such answer: {answer:?}"),
        }
    }

    fn save(&self, cluster: &Cluster, stop: bool) -> Result<u32, Failed> {
        let mut console = cluster.nodes[1].client();
        Ok(console.save(self.master, stop)?.tasks)
    }
}

#[test]
fn a_socket_is_closed_before_each_save_and_opened_again_wherever_the_task_resumes() {
    let cluster = Cluster::on_loopback(2);
    let mut listener = Listener::start(&cluster, "with");
    for host in ["n2", "n1"] {
        listener.move_to(&cluster, host).expect("it can be moved");
        listener.reopened();
        assert_eq!(listener.ask("told"), MOVED);
    }
    // The loop runs twice: a task that was resumed after a checkpoint can be saved again.
    for _ in 0..2 {
        assert_eq!(listener.save(&cluster, false).expect("it can be saved"), 2);
        listener.reopened();
        assert_eq!(listener.ask("told"), SAVED);
    }
    let mut console = cluster.nodes[1].client();
    let suspended = console.ask(&Request::Suspend(listener.tid, 0));
    assert!(matches!(suspended, Answer::Moved(_)), "{suspended:?}");
    let resumed = console.ask(&Request::Resume(listener.tid, Some("n2".to_owned())));
    assert!(matches!(resumed, Answer::Moved(_)), "{resumed:?}");
    listener.reopened();
    assert_eq!(listener.ask("told"), MOVED);
    listener.save(&cluster, true).expect("it can be saved");
    assert_eq!(listener.run.finish().status, ExitStatus::Suspended);
    listener.run = cluster.nodes[1].client();
    let report = listener.run.restart(listener.master);
    assert_eq!(report.expect("it can be brought back").generation, 1);
    listener.reopened();
    assert_eq!(listener.ask("told"), MOVED);
    listener.ask("end");
    listener.run.ends_well("it was opened again 6 times");
}

#[test]
fn a_callback_refuses_a_save_and_the_requester_gets_the_reason() {
    let cluster = Cluster::on_loopback(2);
    let mut listener = Listener::start(&cluster, "with");
    listener.ask("refuse");
    let failed = listener.move_to(&cluster, "n2").expect_err("it refuses");
    assert_eq!(failed.kind, FailKind::Refused);
    assert!(failed.text.contains("its ledger is open"), "{failed}");
    assert_eq!(listener.ask("told"), REFUSED);
    for stop in [false, true] {
        let failed = listener.save(&cluster, stop).expect_err("it refuses");
        assert!(failed.text.contains("its ledger is open"), "{failed}");
        assert_eq!(listener.ask("told"), REFUSED);
    }
    listener.ask("allow");
    listener.ask("panic");
    let failed = listener.move_to(&cluster, "n2").expect_err("it panics");
    assert!(failed.text.contains("has panicked"), "{failed}");
    assert_eq!(listener.ask("told"), "before first");
    listener.move_to(&cluster, "n2").expect("it can be moved");
    listener.reopened();
    assert_eq!(listener.ask("told"), MOVED);
    listener.ask("end");
    listener.run.ends_well("it was opened again 1 times");
}

#[test]
fn without_callbacks_the_socket_is_named_and_the_task_runs_on() {
    let cluster = Cluster::on_loopback(2);
    let mut listener = Listener::start(&cluster, "without");
    let moved = listener.move_to(&cluster, "n2").map(|_| ());
    let saved = listener.save(&cluster, false).map(|_| ());
    for result in [moved, saved] {
        let failed = result.expect_err("it has a socket");
        assert_eq!(failed.kind, FailKind::Refused, "{failed}");
        let names = failed.text.contains("a TCP socket") && failed.text.contains("descriptor ");
        assert!(names, "{failed}");
    }
    listener.ask("end");
    listener.run.ends_well("it was opened again 0 times");
}

#[test]
fn a_task_with_callbacks_that_makes_no_call_is_named_and_can_be_saved_later() {
    let cluster = Cluster::on_loopback(2);
    let mut listeners = [(); 2].map(|()| Listener::start(&cluster, "deaf"));
    // Both listeners get their requests at the same time.
    let [first, second] = &listeners;
    let (moved, saved) = thread::scope(|scope| {
        let moved = scope.spawn(|| first.move_to(&cluster, "n2").map(|_| ()));
        let saved = second.save(&cluster, false).map(|_| ());
        (moved.join().expect("no panic"), saved)
    });
    for result in [moved, saved] {
        let failed = result.expect_err("it makes no call");
        assert_eq!(failed.kind, FailKind::Refused, "{failed}");
        let why = "came to no call of the library";
        assert!(failed.text.contains(why), "{failed}");
    }
    for listener in &mut listeners {
        assert_eq!(listener.ask("told"), "");
        listener.ask("wake");
        listener.move_to(&cluster, "n2").expect("it can be moved");
        listener.reopened();
        assert_eq!(listener.ask("told"), MOVED);
        listener.save(&cluster, false).expect("it can be saved");
        listener.reopened();
        listener.ask("end");
        listener.run.ends_well("it was opened again 2 times");
    }
}
