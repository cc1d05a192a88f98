//! `vm run`: input, output, signals and the terminal of a program.

use super::*;
use crate::screen::{Guarded, Screen, terminal, vm_on};
use rustix::{
    process::Signal,
    termios::{LocalModes, tcgetattr},
};
use std::{fs::File, io::Read, process::Stdio};
use tempfile::TempDir;
use vm_wire::{
    Frame, Message,
    agreed::ExitStatus,
    console::{Answer, Input, Output, Request, RunEnd, WindowSize},
};

/// A fake machine in which one program is run. The first connection only checks whether there is a
/// daemon; the second is the run's.
fn running(
    dir: &TempDir,
    mut script: impl FnMut(FakeDaemon, Request) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    fake::listen(dir.path(), 2, move |console, mut daemon| {
        daemon.greet();
        if console == 1 {
            let request = daemon.answer_next(&Answer::Started(vec![tid(1, 7)]));
            script(daemon, request);
        }
    })
}

fn end(daemon: &mut FakeDaemon, status: ExitStatus) {
    let status = Some(status);
    daemon.send(&RunEnd { status }.frame());
}

/// Bytes that a task wrote to its standard output.
fn output(tid: Tid, bytes: &[u8]) -> Frame {
    Output {
        tid,
        stream: 1,
        bytes: bytes.to_vec().into(),
        dropped: 0,
    }
    .frame()
}

/// As [`running`], but after `begin` the run's connection is not read any more, and the master ends
/// by the signal that the console sends over a third connection.
fn signalled(
    dir: &TempDir,
    mut begin: impl FnMut(&mut FakeDaemon, Request) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let mut run = None;
    fake::listen(dir.path(), 3, move |console, mut daemon| {
        daemon.greet();
        match console {
            0 => {}
            1 => {
                let request = daemon.answer_next(&Answer::Started(vec![tid(1, 7)]));
                begin(&mut daemon, request);
                run = Some(daemon);
            }
            _ => {
                let request = daemon.answer_next(&Answer::Done);
                let Request::Signal(task, signal) = request else {
                    panic!("{request:?}")
                };
                assert_eq!(task, tid(1, 7));
                end(run.as_mut().expect("it runs"), ExitStatus::Signal(signal));
            }
        }
    })
}

#[test]
fn a_signal_to_the_console_reaches_the_program_and_its_end_is_the_consoles() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = signalled(&dir, |daemon, request| {
        let Request::Run { spawn, terminal } = request else {
            panic!("not a run")
        };
        assert_eq!(spawn.args, ["--json", "x"]);
        assert!(spawn.program.starts_with('/') && spawn.program.ends_with("/prog"));
        assert!(spawn.env.contains(&("SHELLS".to_owned(), "own".to_owned())));
        assert_eq!(terminal, None);
        let input: Input = daemon.read();
        assert!(input.bytes.is_empty());
        daemon.send(&output(tid(1, 7), b"ready\n"));
    });
    let mut console = Guarded::spawn(
        vm(dir.path())
            .env("SHELLS", "own")
            .args(["run", "./prog", "--json", "x"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut ready = [0; 6];
    let mut stdout = console.0.stdout.take().unwrap();
    stdout.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    console.signal(Signal::TERM);
    assert_eq!(console.wait().code(), Some(128 + 15));
    daemon.join().unwrap();
}

#[test]
fn a_program_that_does_not_read_its_input_still_gets_signals() {
    let dir = tempfile::tempdir().unwrap();
    // Like a daemon whose program reads nothing, this daemon reads no input.
    let daemon = signalled(&dir, |_, _| {});
    let mut console = Guarded::spawn(
        vm(dir.path())
            .args(["--json", "run", "prog"])
            .stdin(File::open("/dev/zero").unwrap())
            .stdout(Stdio::piped()),
    );
    let mut started = [0; 8];
    let mut stdout = console.0.stdout.take().unwrap();
    stdout.read_exact(&mut started).unwrap();
    console.signal(Signal::USR1);
    assert_eq!(console.wait().code(), Some(128 + libc::SIGUSR1));
    daemon.join().unwrap();
}

#[test]
fn a_run_whose_reader_stops_ends_like_a_local_program() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = running(&dir, |mut daemon, _| {
        daemon.send(&output(tid(1, 7), b"nobody reads this\n"));
        // The daemon sees the connection close; a real daemon then sends the master SIGHUP.
        while daemon.frame().is_some() {}
    });
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = vm(dir.path())
        .args(["run", "prog"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGPIPE));
    assert_eq!(text(&output.stderr), "");
    daemon.join().unwrap();
}

#[test]
fn a_console_killed_while_it_prints_only_closes_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = running(&dir, |mut daemon, _| {
        daemon.send(&output(tid(1, 7), b"y\n"));
        while daemon.frame().is_some() {}
    });
    let mut console = Guarded::spawn(vm(dir.path()).args(["run", "prog"]).stdout(Stdio::piped()));
    let mut stdout = console.0.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    console.signal(Signal::KILL);
    console.wait();
    daemon.join().unwrap();
}

#[test]
fn on_a_terminal_the_program_gets_every_key_and_the_terminal_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = running(&dir, |mut daemon, request| {
        let Request::Run { terminal, .. } = request else {
            panic!("not a run")
        };
        let size = WindowSize {
            rows: 33,
            columns: 101,
        };
        assert_eq!(terminal, Some(size));
        daemon.send(&output(tid(2, 1), b"raw now\n"));
        // Ctrl-C is a key for the program's own terminal, not a signal to the console.
        let input: Input = daemon.read();
        assert_eq!(&input.bytes[..], b"\x03");
        end(&mut daemon, ExitStatus::Code(5));
    });
    let (ours, theirs) = terminal();
    let mut console = vm_on(&theirs, dir.path(), &["run", "prog"]);
    let mut screen = Screen::new(ours);
    screen.wait_for("[t2.1] raw now\r\n");
    assert!(
        !tcgetattr(&theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    );
    screen.type_keys("\x03");
    assert_eq!(console.wait().code(), Some(5));
    assert!(
        tcgetattr(&theirs)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    );
    daemon.join().unwrap();
}
