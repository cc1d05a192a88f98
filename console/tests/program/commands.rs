//! Errors, help, and the output of commands on several tasks.

use super::*;
use crate::screen::Guarded;
use rustix::process::Signal;
use std::{
    io::{Read, Write},
    process::Stdio,
    sync::mpsc,
};
use vm_wire::{
    console::{Answer, Request},
    task::{FailKind, Failed},
};

#[test]
fn without_a_daemon_the_error_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for words in [&["ps"][..], &["kill", "t1.1"], &["halt"], &["delete", "x"]] {
        let output = vm(dir.path()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{words:?}");
        let error = text(&output.stderr);
        assert!(error.contains("no daemon at"), "{error}");
        assert!(error.contains("vmd") && error.contains("--dir"), "{error}");
    }
    let output = vm(dir.path()).args(["--json", "ps"]).output().unwrap();
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "NoDaemon");
    assert!(output.stdout.is_empty());
}

#[test]
fn version_and_help_need_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["version"][..], "protocol"),
        (&["help"], "Usage: vm"),
        (&["help", "run"], "Usage: vm run"),
        (&["--help"], "Usage: vm"),
        (&["image", "help"], "Usage: vm image"),
        (&["image", "help", "run"], "Usage: vm image run"),
        (&["--json", "image", "help"], "{\"help\":"),
        (&["help", "image", "run"], "Usage: vm image run"),
    ] {
        let output = vm(dir.path()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(text(&output.stdout).contains(says), "{words:?}");
    }
}

#[test]
fn a_wrong_command_line_is_exit_code_2_and_json_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    for (words, says) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["help", "frobnicate"], "frobnicate"),
        (&["kill"], "<TID>"),
        (&["sig", "0", "t1.1"], "signal"),
    ] {
        let output = vm(dir.path()).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(says), "{words:?}");

        let output = vm(dir.path()).args(words).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty());
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["kind"], "Usage");
        let said = error["error"]["text"].as_str().unwrap();
        assert!(said.contains(says) && !said.starts_with("error"), "{said}");
    }
    let mut script = tempfile::tempfile().unwrap();
    script.write_all(b"kill --json\n").unwrap();
    std::io::Seek::rewind(&mut script).unwrap();
    let output = vm(dir.path()).stdin(script).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "Usage");
}

#[test]
fn the_daemons_refusal_is_shown_and_is_exit_code_1() {
    let output = against(&["check", "t1.9"], |mut daemon| {
        let no = Failed::new(FailKind::NoSuchTask, "no task t1.9 is alive");
        let request = daemon.answer_next(&Answer::Failed(no));
        assert_eq!(request, Request::Check(tid(1, 9)));
    });
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "vm: no task t1.9 is alive\n");
}

#[test]
fn one_bad_task_does_not_keep_the_others_from_their_signal() {
    let output = against(&["sig", "usr1", "t1.8", "t1.9"], |mut daemon| {
        let no = Failed::new(FailKind::NoSuchTask, "no task t1.8 is alive");
        daemon.answer_next(&Answer::Failed(no));
        let request = daemon.answer_next(&Answer::Done);
        assert_eq!(request, Request::Signal(tid(1, 9), libc::SIGUSR1));
    });
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "t1.9: sent SIGUSR1\n");
    assert_eq!(text(&output.stderr), "vm: no task t1.8 is alive\n");
}

#[test]
fn an_interrupted_move_or_drain_is_reported_as_still_in_progress() {
    for (words, says) in [
        (
            &["move", "t1.7", "beta"][..],
            "vm: the move of t1.7 continues: 'vm ps' shows on which host it is\n",
        ),
        (
            &["drain", "beta"],
            "vm: the drain of beta continues: 'vm conf' shows how many tasks are left\n",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (asked, wait) = mpsc::channel();
        let daemon = fake::listen(dir.path(), 1, move |_, mut daemon| {
            daemon.greet();
            daemon.request();
            asked.send(()).unwrap();
            while daemon.frame().is_some() {}
        });
        let mut console = Guarded::spawn(vm(dir.path()).args(words).stderr(Stdio::piped()));
        wait.recv().unwrap();
        console.signal(Signal::TERM);
        assert_eq!(console.wait().code(), Some(130));
        let mut said = String::new();
        let mut stderr = console.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("{says}vm: interrupted\n"));
        daemon.join().unwrap();
    }
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        let rows = (1..2000).map(|number| row(tid(1, number))).collect();
        daemon.answer_next(&Answer::Ps(rows));
        daemon.answer_next(&Answer::Suspended(Vec::new()));
    });
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = vm(dir.path()).arg("ps").stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
    daemon.join().unwrap();
}
