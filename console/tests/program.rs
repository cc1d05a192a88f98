//! The whole program `vm`, against a daemon that says what the test wants.

mod fake;
mod screen;

use fake::{FakeDaemon, tid};
use rustix::{
    process::Signal,
    termios::{LocalModes, tcgetattr},
};
use screen::{Guarded, Screen, terminal, text, vm, vm_on};
use std::{
    fs::{self, File},
    io::{Read, Write},
    process::{Output as ProcessOutput, Stdio},
    sync::mpsc,
};
use tempfile::TempDir;
use vm_wire::{
    HostId, Message, Tid,
    agreed::{ExitStatus, HostFacts},
    console::{
        Answer, Conf, HostRow, HostState, Input, Output, Request, RunEnd, TaskRow, WindowSize,
    },
    peer::{DrainReport, DrainWay},
    task::{FailKind, Failed},
};

/// Runs `vm` with these words against `script`, which answers one connection.
fn against(words: &[&str], script: impl FnMut(FakeDaemon) + Send + 'static) -> ProcessOutput {
    let dir = tempfile::tempdir().unwrap();
    let mut script = script;
    let daemon = fake::listen(dir.path(), 1, move |_, mut daemon| {
        daemon.greet();
        script(daemon);
    });
    let output = vm(dir.path()).args(words).output().unwrap();
    daemon.join().unwrap();
    output
}

fn row(tid: Tid) -> TaskRow {
    TaskRow {
        tid,
        parent: Tid::NONE,
        app: tid,
        host: "alpha".to_owned(),
        incarnation: 0,
        program: "prog".to_owned(),
        usage: None,
        suspended: false,
    }
}

fn conf() -> Conf {
    let host = |number: u16, name: &str, state| HostRow {
        host: HostId(number),
        facts: HostFacts {
            name: name.to_owned(),
            addr: format!("192.0.2.{number}:7170"),
            cpus: 1,
            tasks_max: 10,
            arch: "x86_64".to_owned(),
            store_local: false,
        },
        tasks: 0,
        voter: state == HostState::Live,
        state,
    };
    Conf {
        machine: fake::HERE,
        here: HostId(1),
        leader: HostId(1),
        applied: 9,
        store: "/s".to_owned(),
        hosts: vec![
            host(1, "alpha", HostState::Live),
            host(2, "left", HostState::Gone),
            host(3, "lost", HostState::Dead),
        ],
        links_down: Vec::new(),
    }
}

#[test]
fn hosts_that_are_no_more_are_shown_only_if_asked_for() {
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
fn a_drain_looks_how_far_it_is_until_it_is_answered() {
    for refused in [false, true] {
        let output = against(&["drain", "alpha"], move |mut daemon| {
            let (drain, request) = daemon.request();
            assert_eq!(
                request,
                Request::Drain("alpha".to_owned(), DrainWay::default())
            );
            assert_eq!(daemon.answer_next(&Answer::Conf(conf())), Request::Conf);
            // The answer comes before the one to the question of how far it is.
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

#[test]
fn who_interrupts_a_move_or_drain_is_told_that_it_goes_on() {
    for (words, says) in [
        (
            &["move", "t1.7", "beta"][..],
            "vm: the move of t1.7 goes on: 'vm ps' shows on which host it is\n",
        ),
        (
            &["drain", "beta"],
            "vm: the drain of beta goes on: 'vm conf' shows how many tasks are left\n",
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

/// Of two hosts of one name, the one that is gone has no tasks.
#[test]
fn on_a_terminal_a_drain_shows_the_tasks_of_the_host_that_is_there() {
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

#[test]
fn a_host_that_is_meant_by_its_number_is_named() {
    let output = against(&["delete", "h1"], |mut daemon| {
        daemon.answer_next(&Answer::Conf(conf()));
        let request = daemon.answer_next(&Answer::Done);
        // It is the one that was asked, whose end is awaited.
        assert_eq!(request, Request::Delete("h1".to_owned()));
    });
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "alpha: deleted\n");
}

#[test]
fn halt_returns_when_the_daemon_is_gone() {
    let output = against(&["halt"], |mut daemon| {
        let request = daemon.answer_next(&Answer::Done);
        assert_eq!(request, Request::Halt);
    });
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "the machine has ended\n");
}

#[test]
fn a_script_ends_at_its_first_failure_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        daemon.answer_next(&Answer::Ps(Vec::new()));
        let request = daemon.answer_next(&Answer::Suspended(Vec::new()));
        assert_eq!(request, Request::Suspended);
        let request = daemon.answer_next(&Answer::Check(vec!["it is stopped".to_owned()]));
        assert_eq!(request, Request::Check(tid(1, 1)));
        assert!(daemon.frame().is_none());
    });
    let mut script = tempfile::tempfile().unwrap();
    script
        .write_all(b"# what runs\n\n  ps --json\ncheck 't1.1'\nps\n")
        .unwrap();
    std::io::Seek::rewind(&mut script).unwrap();
    let output = vm(dir.path()).stdin(script).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "{\"suspended\":[],\"tasks\":[]}\nt1.1 cannot be moved: it is stopped\n"
    );
    daemon.join().unwrap();
}

/// A fake machine in which one program is run: the first connection only asks whether there is a
/// daemon, the second is the run's.
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

/// As [`running`], but after `begin` the run's connection is not read any more, and the master ends
/// by the signal that the console asks for on a third connection.
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
        daemon.send(
            &Output {
                tid: tid(1, 7),
                stream: 1,
                bytes: b"ready\n".to_vec().into(),
                dropped: 0,
            }
            .frame(),
        );
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
    // As a daemon whose program reads nothing, this one reads nothing of what is typed.
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
fn a_run_whose_reader_stops_ends_as_a_local_program_would() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = running(&dir, |mut daemon, _| {
        let output = Output {
            tid: tid(1, 7),
            stream: 1,
            bytes: b"nobody reads this\n".to_vec().into(),
            dropped: 0,
        };
        daemon.send(&output.frame());
        // The daemon sees the console go; it will send the master SIGHUP.
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
        let output = Output {
            tid: tid(1, 7),
            stream: 1,
            bytes: b"y\n".to_vec().into(),
            dropped: 0,
        };
        daemon.send(&output.frame());
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
        let output = |tid, bytes: &[u8]| {
            Output {
                tid,
                stream: 1,
                bytes: bytes.to_vec().into(),
                dropped: 0,
            }
            .frame()
        };
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

#[test]
fn the_prompt_completes_from_grammar_and_machine_and_survives_errors() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        // The tab after `check t1.` asks for the tasks.
        let request = daemon.answer_next(&Answer::Ps(vec![row(tid(1, 7))]));
        assert_eq!(request, Request::Ps(None));
        let request = daemon.answer_next(&Answer::Check(Vec::new()));
        assert_eq!(request, Request::Check(tid(1, 7)));
        assert!(daemon.frame().is_none());
    });
    let (ours, theirs) = terminal();
    let mut console = vm_on(&theirs, dir.path(), &[]);
    drop(theirs);
    let mut screen = Screen::new(ours);
    for (keys, shown) in [
        ("", "vm> "),
        ("frobnicate\r", "unrecognized subcommand"),
        ("", "vm> "),
        // As far as all commands go that begin so; then, of one alone, with the blank.
        ("che\t", "check"),
        ("p\t", "checkp"),
        ("\u{15}mo\t", "move "),
        ("\u{15}check t1.\t", "t1.7 "),
        ("\r", "t1.7 can be moved"),
        ("", "vm> "),
    ] {
        screen.type_keys(keys);
        screen.wait_for(shown);
    }
    screen.type_keys("quit\r");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
}

#[test]
fn lines_typed_ahead_at_the_prompt_are_all_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = fake::listen(dir.path(), 1, |_, mut daemon| {
        daemon.greet();
        for number in 1..=3 {
            let request = daemon.answer_next(&Answer::Check(Vec::new()));
            assert_eq!(request, Request::Check(tid(1, number)));
        }
        assert!(daemon.frame().is_none());
    });
    let (ours, theirs) = terminal();
    let mut console = vm_on(&theirs, dir.path(), &[]);
    drop(theirs);
    let mut screen = Screen::new(ours);
    screen.wait_for("vm> ");
    screen.type_keys("check t1.1\rcheck t1.2\rcheck t1.3\rquit\r");
    screen.wait_for("t1.3 can be moved");
    assert_eq!(console.wait().code(), Some(0));
    daemon.join().unwrap();
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
    // The host is there while its launcher still works, which must not be cut short.
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
