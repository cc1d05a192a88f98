//! Hosts: shown, drained, removed, added.

use super::*;
use crate::screen::{Screen, terminal, vm_on};
use std::{fs, sync::mpsc};
use vm_wire::{
    console::{Answer, Request},
    peer::{DrainReport, DrainWay},
    task::{FailKind, Failed},
};

#[test]
fn former_hosts_are_shown_only_with_all() {
    for (words, left) in [
        (&["conf"][..], false),
        (&["conf", "--all"], true),
        (&["--json", "conf"], false),
        (&["--json", "conf", "--all"], true),
    ] {
        let output = against(words, |mut daemon| {
            let request = daemon.answer_next(&Answer::Conf(conf()));
            assert_eq!(request, Request::Conf);
        });
        let shown = text(&output.stdout);
        assert!(shown.contains("alpha"), "{shown}");
        assert_eq!(shown.contains("left"), left, "{shown}");
        assert_eq!(shown.contains("lost"), left, "{shown}");
    }
}

#[test]
fn a_drain_requests_its_progress_until_its_reply_comes() {
    for refused in [false, true] {
        let output = against(&["drain", "alpha"], move |mut daemon| {
            let (drain, request) = daemon.request();
            assert_eq!(
                request,
                Request::Drain("alpha".to_owned(), DrainWay::default())
            );
            assert_eq!(daemon.answer_next(&Answer::Conf(conf())), Request::Conf);
            // The reply comes before the reply to the request for the progress.
            let (progress, request) = daemon.request();
            assert_eq!(request, Request::Conf);
            let no = Failed::new(FailKind::Refused, "it has no way back");
            let report = DrainReport {
                host: HostId(1),
                total_us: 1_000,
                moved_count: 0,
                refused_count: refused.into(),
                saved_count: 0,
                moved: Vec::new(),
                refused: if refused {
                    vec![(tid(2, 1), no)]
                } else {
                    Vec::new()
                },
                suspended: Vec::new(),
            };
            daemon.answer(drain, &Answer::Drained(report));
            daemon.answer(progress, &Answer::Conf(conf()));
            assert_eq!(daemon.answer_next(&Answer::Conf(conf())), Request::Conf);
        });
        assert_eq!(output.status.code(), Some(refused.into()));
        let said = match refused {
            false => "alpha: 0 tasks have left in 0.001 s\n",
            true => {
                "t2.1 stays: it has no way back\nalpha: 0 tasks have left in 0.001 s, 1 has not\n"
            }
        };
        assert_eq!(text(&output.stdout), said);
        assert_eq!(text(&output.stderr), "");
    }
}

/// Of two hosts with one name, the one that has gone has no tasks.
#[test]
fn on_a_terminal_a_drain_shows_the_tasks_of_the_present_host() {
    let dir = tempfile::tempdir().unwrap();
    let (go_on, told) = mpsc::channel();
    let daemon = fake::listen(dir.path(), 1, move |_, mut daemon| {
        daemon.greet();
        let (drain, _) = daemon.request();
        let mut machine = conf();
        machine.hosts[1].facts.name = "beta".to_owned();
        machine.hosts[2].facts.name = "beta".to_owned();
        (machine.hosts[2].state, machine.hosts[2].tasks) = (HostState::Draining, 7);
        daemon.answer_next(&Answer::Conf(machine));
        told.recv().unwrap();
        let report = DrainReport {
            host: HostId(3),
            total_us: 1_000,
            moved_count: 7,
            refused_count: 0,
            saved_count: 0,
            moved: Vec::new(),
            refused: Vec::new(),
            suspended: Vec::new(),
        };
        daemon.answer(drain, &Answer::Drained(report));
        while let Some(frame) = daemon.frame() {
            daemon.answer(frame.header.request, &Answer::Conf(conf()));
        }
    });
    let (ours, theirs) = terminal();
    let mut console = vm_on(&theirs, dir.path(), &["drain", "beta"]);
    let mut screen = Screen::new(ours);
    screen.wait_for("beta: 7 tasks are left there");
    go_on.send(()).unwrap();
    screen.wait_for("lost: 7 tasks have left");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn a_host_given_by_number_is_shown_by_name() {
    let output = against(&["delete", "h1"], |mut daemon| {
        daemon.answer_next(&Answer::Conf(conf()));
        let request = daemon.answer_next(&Answer::Done);
        // The console is connected to the removed host, so it waits for the end of the daemon.
        assert_eq!(request, Request::Delete("h1".to_owned()));
    });
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "alpha: deleted\n");
}

#[test]
fn halt_returns_when_the_daemon_has_ended() {
    let output = against(&["halt"], |mut daemon| {
        let request = daemon.answer_next(&Answer::Done);
        assert_eq!(request, Request::Halt);
    });
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "the machine has ended\n");
}

#[test]
fn add_hands_the_secret_to_the_launcher_and_waits_for_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    fs::write(dir.path().join("secret"), "the machine's own secret\n").unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        daemon.answer_next(&Answer::Conf(conf()));
        let request = daemon.answer_next(&Answer::Done);
        assert_eq!(request, Request::AwaitHost("beta".to_owned()));
        assert!(daemon.frame().is_none());
    });
    // The host has joined while its launcher still works; the console must not end the launcher.
    let launcher =
        "sh -c 'read secret; sleep 0.2; echo $secret $* > $0' {said} {host} {name} {join}"
            .replace("{said}", said.to_str().unwrap());
    let output = vm(dir.path())
        .args(["add", "--launcher", &launcher, "me@beta"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), "beta: added\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        fs::read_to_string(said).unwrap(),
        "the machine's own secret me@beta beta 192.0.2.1:7170\n"
    );
    daemon.join().unwrap();
}

#[test]
fn a_launcher_that_fails_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "the machine's own secret\n").unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        daemon.answer_next(&Answer::Conf(conf()));
        daemon.request();
        assert!(daemon.frame().is_none());
    });
    let output = vm(dir.path())
        .args([
            "add",
            "--launcher",
            "sh -c 'echo no route to {host} >&2; exit 255'",
        ])
        .args(["beta", "alpha"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("beta: the launcher failed: no route to beta"),
        "{error}"
    );
    assert!(
        error.contains("alpha: a host of that name is already in the machine"),
        "{error}"
    );
    daemon.join().unwrap();
}
