//! A run against a fake daemon, whose replies the test chooses.

use super::*;
use crate::{
    fake::{self, FakeDaemon, tid},
    render::{Audience, tests::renderer},
};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    io::Write as _,
    os::{fd::AsFd, unix::net::UnixStream},
};
use vm_wire::{
    Frame, Message as _,
    agreed::ExitStatus,
    console::{Answer, Input, Output, Request, RunEnd, RunSignal},
    task::{Failed, Place},
};

fn spawn() -> Spawn {
    Spawn {
        program: "prog".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        dir: None,
        count: 1,
        place: Place::Any,
    }
}

fn started(daemon: &mut FakeDaemon) {
    daemon.greet();
    let request = daemon.answer_next(&Answer::Started(vec![tid(1, 7)]));
    assert!(matches!(request, Request::Run { terminal: None, .. }));
}

fn output(tid: Tid, stream: u8, bytes: &[u8]) -> Frame {
    Output {
        tid,
        stream,
        bytes: bytes.to_vec().into(),
        dropped: 0,
    }
    .frame()
}

/// Runs against `script`. Returns the result, and the text on standard output and standard error.
fn run_against(
    audience: Audience,
    input: Option<&[u8]>,
    script: impl FnOnce(FakeDaemon) + Send + 'static,
) -> (anyhow::Result<u8>, String, String) {
    run_with(audience, input, &|_, _| Ok(()), script)
}

fn run_with(
    audience: Audience,
    input: Option<&[u8]>,
    signal_past: &SignalPast,
    script: impl FnOnce(FakeDaemon) + Send + 'static,
) -> (anyhow::Result<u8>, String, String) {
    let (stream, daemon) = fake::pair(script);
    let interrupt = Rc::new(Interrupt::none());
    let client = Client::over(stream, interrupt.clone(), None).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(input.unwrap_or_default()).unwrap();
    drop(theirs);
    let (mut renderer, out, errors) = renderer(audience);
    let result = run_over(
        client,
        &interrupt,
        Program {
            spawn: spawn(),
            policy: None,
            with_terminal: false,
            input: input.map(|_| ours.as_fd()),
        },
        signal_past,
        &mut renderer,
    );
    daemon.join().unwrap();
    (result, out.text(), errors.text())
}

#[test]
fn input_goes_to_the_master_and_output_comes_back_before_the_end() {
    let (result, out, errors) = run_against(Audience::People, Some(b"question"), |mut daemon| {
        started(&mut daemon);
        let mut read = Vec::new();
        loop {
            let input: Input = daemon.read();
            if input.bytes.is_empty() {
                break;
            }
            read.extend_from_slice(&input.bytes);
        }
        assert_eq!(read, b"question");
        daemon.send(&output(tid(1, 7), 1, b"answer\n"));
        daemon.send(&output(tid(2, 1), 2, b"a worker\n"));
        let status = Some(ExitStatus::Code(3));
        daemon.send(&RunEnd { status }.frame());
    });
    assert_eq!(result.unwrap(), 3);
    assert_eq!(out, "answer\n");
    assert_eq!(errors, "[t2.1] a worker\n");
}

#[test]
fn a_run_without_input_tells_the_master_so_at_once() {
    let (result, ..) = run_against(Audience::People, None, |mut daemon| {
        started(&mut daemon);
        let input: Input = daemon.read();
        assert!(input.bytes.is_empty());
        let status = Some(ExitStatus::Signal(libc::SIGTERM));
        daemon.send(&RunEnd { status }.frame());
    });
    assert_eq!(result.unwrap(), 128 + 15);
}

#[test]
fn a_signal_goes_behind_the_input_if_no_connection_can_be_had() {
    let none = |_, _| Err(Failed::new(FailKind::Limit, "too many consoles").into());
    let (result, ..) = run_with(Audience::People, None, &none, |mut daemon| {
        started(&mut daemon);
        // The console sends this frame once it handles signals.
        let input: Input = daemon.read();
        assert!(input.bytes.is_empty());
        kill_process(getpid(), Signal::USR2).unwrap();
        let RunSignal { signal } = daemon.read();
        let status = Some(ExitStatus::Signal(signal));
        daemon.send(&RunEnd { status }.frame());
    });
    assert_eq!(result.unwrap(), 128 + libc::SIGUSR2 as u8);
}

#[test]
fn programs_see_a_run_as_events() {
    let (result, out, _) = run_against(Audience::Programs, None, |mut daemon| {
        started(&mut daemon);
        daemon.send(&output(tid(1, 7), 1, b"x"));
        let status = Some(ExitStatus::Code(0));
        daemon.send(&RunEnd { status }.frame());
    });
    assert_eq!(result.unwrap(), 0);
    let events: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["started", "output", "ended"]);
}

#[test]
fn the_end_is_seen_even_if_input_can_no_longer_be_sent() {
    let (result, ..) = run_against(Audience::People, Some(&[7; 100_000]), |mut daemon| {
        started(&mut daemon);
        let status = Some(ExitStatus::Code(0));
        // The daemon does not read most of the input.
        daemon.send(&RunEnd { status }.frame());
    });
    assert_eq!(result.unwrap(), 0);
}

#[test]
fn each_way_to_end_has_its_exit_code() {
    let ends = [
        (Some(ExitStatus::Left(3)), 3),
        (Some(ExitStatus::Code(75)), 75),
        (Some(ExitStatus::Signal(libc::SIGKILL)), 137),
        (Some(ExitStatus::Suspended), 75),
        (None, 122),
        (Some(ExitStatus::RolledBack), 124),
        (Some(ExitStatus::HostLost), 125),
        (Some(ExitStatus::NotStarted), 126),
    ];
    for (status, code) in ends {
        let (result, ..) = run_against(Audience::People, None, move |mut daemon| {
            started(&mut daemon);
            daemon.send(&RunEnd { status }.frame());
        });
        assert_eq!(result.unwrap(), code, "{status:?}");
    }
}

#[test]
fn a_refusal_during_a_run_is_a_failure_of_the_machine() {
    let (result, ..) = run_against(Audience::People, None, |mut daemon| {
        started(&mut daemon);
        let no = Failed::new(FailKind::Limit, "too much is said");
        daemon.send(&Answer::Failed(no).frame());
    });
    let error = result.unwrap_err();
    assert_eq!(exit::of_failed_run(&error, true), 125);
    assert_eq!(crate::failure::kind(&error), "Limit");
}

#[test]
fn a_lost_daemon_and_a_missing_program_have_codes_of_their_own() {
    let (lost, ..) = run_against(Audience::People, None, |mut daemon| started(&mut daemon));
    assert_eq!(exit::of_failed_run(&lost.unwrap_err(), false), 125);
    let (missing, ..) = run_against(Audience::People, None, |mut daemon| {
        daemon.greet();
        let no = Failed::new(FailKind::NoSuchProgram, "no program prog");
        daemon.answer_next(&Answer::Failed(no));
    });
    assert_eq!(exit::of_failed_run(&missing.unwrap_err(), false), 127);
}
