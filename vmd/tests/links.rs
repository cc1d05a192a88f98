//! Two daemons: they find each other, keep their link, and refuse peers that do not belong to the
//! machine.

mod common;

use common::{Daemon, ask, receive, wait_for};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
};
use vm_wire::{
    Message,
    console::{Answer, HostState, Request},
    direct, place,
    version::Offer,
};

/// The living hosts, as a daemon sees them.
fn hosts(daemon: &Daemon) -> Vec<String> {
    let mut console = daemon.connect();
    ask(&mut console, &Request::Version(Offer::OURS));
    match ask(&mut console, &Request::Conf) {
        Answer::Conf(conf) => conf
            .hosts
            .into_iter()
            .filter(|row| row.state == HostState::Live)
            .map(|row| row.facts.name)
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn wait_hosts(daemon: &Daemon, names: &[&str]) {
    wait_for(&format!("{names:?}"), || {
        (hosts(daemon) == names).then_some(())
    });
}

fn with_debug_log(command: &mut Command) {
    command.env("RUST_LOG", "debug");
}

#[test]
fn two_daemons_become_one_machine_and_one_may_leave() {
    let founder = Daemon::start();
    let mut second = founder.start_joined("second", |_| {});
    for daemon in [&founder, &second] {
        wait_hosts(daemon, &["lone", "second"]);
    }
    second.signal("TERM");
    assert!(second.wait_end().success());
    wait_hosts(&founder, &["lone"]);
}

#[test]
fn links_that_are_destroyed_are_made_again() {
    let founder = Daemon::start();
    let second = founder.start_joined("second", |command| {
        with_debug_log(command);
        command.env("VM_FAULT", "link-cut");
    });
    for _ in 0..3 {
        second.wait_log("is up");
        second.signal("USR1");
        second.wait_log("all links are cut");
    }
    second.wait_log("is up");
    for daemon in [&founder, &second] {
        wait_hosts(daemon, &["lone", "second"]);
    }
}

/// The error text of a daemon of that name that the founder's machine refuses.
fn refusal(founder: &Daemon, name: &str) -> String {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let address = founder.address().expect("listening");
    let output = Daemon::command(&temp.path().join("vm"))
        .args(["--name", name, "--join", &address, "--secret-file"])
        .arg(founder.dir().join(place::SECRET_FILE))
        .output()
        .expect("vmd runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    text.into_owned()
}

#[test]
fn a_second_daemon_of_a_name_is_refused() {
    let founder = Daemon::start();
    let text = refusal(&founder, "lone");
    assert!(text.contains("lone"), "{text}");
    wait_hosts(&founder, &["lone"]);
}

#[test]
fn links_are_plain_only_if_both_ends_want_it() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let founder = Daemon::start_with(temp, |command| {
        command.args(["--name", "lone", "--unencrypted-links"]);
    });
    let second = founder.start_joined("second", |command| {
        command.arg("--unencrypted-links");
    });
    wait_hosts(&second, &["lone", "second"]);

    let text = refusal(&founder, "third");
    assert!(text.contains("--unencrypted-links"), "{text}");
}

#[test]
fn at_the_limit_of_open_files_new_connections_are_refused_and_old_ones_work() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let mut founder = Daemon::start_with(temp, |command| {
        // The shell lowers the limit, and becomes the daemon.
        let vmd = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("/bin/sh");
        command
            .args(["-c", "ulimit -n 40; exec \"$@\"", "sh"])
            .arg(vmd)
            .args(args)
            .args(["--name", "lone"]);
    });
    let mut first = founder.connect();
    ask(&mut first, &Request::Version(Offer::OURS));
    // The daemon has fewer descriptors left than that: the last connection gets a refusal, and is
    // closed.
    let mut others: Vec<_> = (0..40).map(|_| founder.connect()).collect();
    let mut last = others.pop().expect("forty");
    let frame = receive(&mut last).expect("an answer before the end");
    match Answer::read(&frame).expect("an answer") {
        Answer::Failed(failed) => assert!(failed.text.contains("open files"), "{failed}"),
        other => panic!("{other:?}"),
    }
    drop(others);
    ask(&mut first, &Request::Version(Offer::OURS));
    let mut late = wait_for("room again", || {
        let mut stream = founder.connect();
        common::send(&mut stream, &Request::Version(Offer::OURS).frame().asked(1)).ok()?;
        let frame = receive(&mut stream)?;
        match Answer::read(&frame).ok()? {
            Answer::Version { .. } => Some(stream),
            _ => None,
        }
    });
    assert!(matches!(ask(&mut late, &Request::Conf), Answer::Conf(_)));
    founder.signal("TERM");
    assert!(founder.wait_end().success());
    // One line for each refused connection: the daemon did not try again and again while no
    // connection waited.
    let refused = founder.count_log("the limit of open files is reached");
    assert!((1..=40).contains(&refused), "{refused}");
}

#[test]
fn a_direct_connection_that_is_not_expected_is_closed() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let founder = Daemon::start_with(temp, |command| {
        with_debug_log(command.args(["--name", "lone"]));
    });
    let address = founder.address().expect("listening");
    let opening = [&direct::MAGIC[..], &[7; direct::OPENING - 8]].concat();
    let mut stream = TcpStream::connect(address).expect("it listens");
    // The opening comes in two parts.
    for part in opening.chunks(20) {
        stream.write_all(part).expect("it is written");
    }
    let mut answer = Vec::new();
    // Either the end of file or a reset.
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    founder.wait_log("was closed: it is not expected");
}

#[test]
fn a_daemon_founds_no_machine_in_a_folder_whose_last_daemon_had_joined_one() {
    let founder = Daemon::start();
    let mut second = founder.start_joined("second", |_| {});
    let target = founder.address().expect("listening");
    second.signal("KILL");
    second.wait_end();
    let found = |words: &[&str]| {
        let mut command = Daemon::command(&second.dir());
        let output = command
            .args(["--detach", "--name", "second"])
            .args(words)
            .output();
        let output = output.expect("vmd runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (done, said) = found(&[]);
    assert!(
        !done && said.contains(&format!("--join {target}")),
        "{said}"
    );
    let (done, said) = found(&["--found"]);
    assert!(done, "{said}");
    let end = |dir: &std::path::Path| {
        let pid = std::fs::read_to_string(dir.join("pid")).expect("it runs");
        let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
        assert!(killed.expect("kill runs").success());
    };
    end(&second.dir());
    // From then on there is no machine to rejoin.
    let (done, said) = found(&[]);
    assert!(done, "{said}");
    end(&second.dir());
}

#[test]
fn a_halted_machine_leaves_no_note_of_a_joined_machine() {
    let founder = Daemon::start();
    let mut second = founder.start_joined("second", |_| {});
    let mut console = founder.connect();
    ask(&mut console, &Request::Version(Offer::OURS));
    ask(&mut console, &Request::Halt);
    assert!(second.wait_end().success());
    assert!(!second.dir().join("joined").exists());
}
