//! One daemon alone, as a process: its replies to a console, its refusals, and that it leaves
//! nothing behind.

mod common;

use common::{Daemon, ask, receive, send, wait_for};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
};
use vm_wire::{
    HostId, Message,
    console::{Answer, Request},
    place,
    version::Offer,
};

#[test]
fn a_daemon_answers_and_leaves_nothing_behind_after_sigterm() {
    let mut daemon = Daemon::start();
    let mut console = daemon.connect();
    match ask(&mut console, &Request::Version(Offer::OURS)) {
        Answer::Version { host, .. } => assert_eq!(host, HostId::FOUNDER),
        other => panic!("{other:?}"),
    }
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
    assert_eq!(receive(&mut console), None);
    let left: Vec<_> = fs::read_dir(daemon.dir())
        .expect("the folder stays")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, [place::SECRET_FILE]);
}

#[test]
fn garbage_from_a_local_connection_closes_it_alone() {
    let daemon = Daemon::start();
    let mut console = daemon.connect();
    ask(&mut console, &Request::Version(Offer::OURS));
    let huge = [0xff; 96];
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], &huge] {
        let mut stranger = daemon.connect();
        stranger.write_all(&bytes.repeat(10)).expect("sent");
        assert_eq!(receive(&mut stranger), None);
    }
    // A frame that may not be the first one.
    let mut stranger = daemon.connect();
    let hello = vm_wire::task::HostsAsk {}.frame();
    send(&mut stranger, &hello).expect("sent");
    assert_eq!(receive(&mut stranger), None);
    daemon.wait_log("is no first frame");
    ask(&mut console, &Request::Version(Offer::OURS));
}

#[test]
fn garbage_half_a_handshake_and_silence_from_the_network_harm_nothing() {
    let daemon = Daemon::start();
    let silent = daemon.connect_as_peer();
    let mut half = daemon.connect_as_peer();
    half.write_all(b"vm-li").expect("sent");
    let mut garbage = daemon.connect_as_peer();
    garbage.write_all(&[0x7f; 4096]).expect("sent");
    let mut answer = Vec::new();
    // The connection may be reset, too; the test checks only that it ends.
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.len() <= 3, "an alert at most: {answer:?}");
    daemon.wait_log("does not speak this protocol");
    daemon.wait_log("did not finish the handshake in time");
    drop((silent, half));
    ask(&mut daemon.connect(), &Request::Version(Offer::OURS));
}

#[test]
fn the_folder_of_a_killed_daemon_is_taken_over() {
    let mut daemon = Daemon::start();
    daemon.signal("KILL");
    daemon.wait_end();
    let stale = fs::read_to_string(daemon.dir().join("address")).expect("it could not clean up");
    let temp = std::mem::replace(&mut daemon.temp, tempfile::tempdir().expect("a folder"));
    let successor = Daemon::start_in(temp);
    wait_for("another address", || {
        successor
            .address()
            .filter(|address| *address != stale.trim())
    });
    ask(&mut successor.connect(), &Request::Version(Offer::OURS));
}

#[test]
fn a_second_daemon_in_a_folder_is_refused_by_name() {
    let daemon = Daemon::start();
    let output = Daemon::command(&daemon.dir()).output().expect("vmd runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("runs in") && text.contains("another --dir"),
        "{text}"
    );
    ask(&mut daemon.connect(), &Request::Version(Offer::OURS));
}

#[test]
fn a_joining_daemon_with_another_secret_is_refused_with_the_reason() {
    let daemon = Daemon::start();
    let temp = tempfile::tempdir().expect("a temporary folder");
    let output = Daemon::command(&temp.path().join("vm"))
        .args(["--join", &daemon.address().expect("listening")])
        .env("VM_SECRET", "not the secret of that machine")
        .output()
        .expect("vmd runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("another secret"), "{text}");
    daemon.wait_log("another secret");
}

#[test]
fn a_joining_daemon_without_a_secret_gets_advice() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let output = Daemon::command(&temp.path().join("vm"))
        .args(["--join", "127.0.0.1:1"])
        .output()
        .expect("vmd runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("--secret-file"), "{text}");
}

#[test]
fn a_joining_daemon_reports_its_attempt_at_once() {
    // The listener accepts connections and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = silent.local_addr().expect("an address").to_string();
    let temp = tempfile::tempdir().expect("a temporary folder");
    let dir = temp.path().join("vm");
    let mut command = Daemon::command(&dir)
        .args(["--detach", "--join", &target])
        .env("VM_SECRET", "the secret of a machine that is not there")
        .stderr(Stdio::piped())
        .spawn()
        .expect("vmd runs");
    let stderr = command.stderr.take().expect("piped");
    let mut lines = BufReader::new(stderr).lines();
    let first = lines.next().expect("a line").expect("text");
    assert!(first.contains(&target) && first.contains("30s"), "{first}");
    let pid = fs::read_to_string(dir.join("pid")).expect("it runs");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
    assert!(killed.expect("kill runs").success());
    let last = lines.next().expect("a line").expect("text");
    assert!(last.contains("without a word"), "{last}");
    assert!(!command.wait().expect("a child of ours").success());
}

#[test]
fn a_detached_daemon_survives_the_command_that_started_it() {
    let (command, daemon) = io::pipe().expect("a pipe");
    // The command is killed before the daemon is ready.
    drop(command);
    let temp = tempfile::tempdir().expect("a temporary folder");
    let mut daemon = Daemon::start_with(temp, |command| {
        command.arg("--detached").stdout(daemon);
    });
    ask(&mut daemon.connect(), &Request::Version(Offer::OURS));
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
}

#[test]
fn a_detached_daemon_is_ready_when_the_command_ends() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let dir = temp.path().join("vm");
    let output = Daemon::command(&dir)
        .arg("--detach")
        .output()
        .expect("vmd runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let pid = fs::read_to_string(dir.join("pid")).expect("it runs");
    let mut console = UnixStream::connect(place::socket(&dir)).expect("it listens");
    ask(&mut console, &Request::Version(Offer::OURS));
    let killed = Command::new("kill")
        .arg(pid.trim())
        .status()
        .expect("kill runs");
    assert!(killed.success());
    wait_for("the end of the daemon", || {
        (!dir.join("pid").exists()).then_some(())
    });
    assert!(dir.join(place::LOG_FILE).exists());

    let again = Daemon::command(&dir)
        .args(["--detach", "--listen", "192.0.2.1:7170"])
        .output()
        .expect("vmd runs");
    let text = String::from_utf8_lossy(&again.stderr);
    assert!(
        !again.status.success() && text.contains("--listen"),
        "{text}"
    );
}

/// The store of a daemon that is started with these words and this environment. No other setting
/// names its folder.
fn store_of(env: &[(&str, &Path)], words: &[&str], dir: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmd"));
    command.args(["--listen", "127.0.0.1:0", "--name", "lone"]);
    command
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    for name in ["VM_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"] {
        command.env_remove(name);
    }
    let mut process = command
        .envs(env.iter().copied())
        .spawn()
        .expect("vmd starts");
    let answer = wait_for("the daemon", || {
        let mut console = UnixStream::connect(place::socket(dir)).ok()?;
        ask(&mut console, &Request::Version(Offer::OURS));
        Some(ask(&mut console, &Request::Conf))
    });
    process.kill().expect("a child of ours");
    process.wait().expect("a child of ours");
    match answer {
        Answer::Conf(conf) => conf.store,
        other => panic!("{other:?}"),
    }
}

#[test]
fn checkpoints_are_outside_of_the_daemons_folder_unless_the_user_has_chosen_that_folder() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let (run, home) = (temp.path().join("run"), temp.path().join("home"));
    let (state, chosen) = (temp.path().join("state"), temp.path().join("chosen"));
    fs::create_dir(&run).expect("a folder");
    let dir = run.join("vm");
    let at = |path: &Path| path.to_str().expect("text").to_owned();
    let runtime = ("XDG_RUNTIME_DIR", run.as_path());
    let homes = [runtime, ("HOME", &home)];
    let store = store_of(&homes, &[], &dir);
    assert_eq!(store, at(&home.join(".local/state/vm/store")));
    // The store makes only its last folder, when it is needed.
    let above = fs::metadata(home.join(".local/state/vm")).expect("made");
    assert_eq!(above.permissions().mode() & 0o777, 0o700);
    let local = store_of(&homes, &["--store-local"], &dir);
    assert_eq!(local, at(&home.join(".local/state/vm/store-local/lone")));
    let states = [runtime, ("HOME", &home), ("XDG_STATE_HOME", &state)];
    assert_eq!(store_of(&states, &[], &dir), at(&state.join("vm/store")));
    assert_eq!(store_of(&[runtime], &[], &dir), at(&dir.join("store")));
    // The console gives the folder when it starts a daemon.
    let words = ["--dir", dir.to_str().expect("text")];
    assert_eq!(store_of(&homes, &words, &dir), store);
    let own = at(&chosen.join("store"));
    let words = ["--dir", chosen.to_str().expect("text")];
    assert_eq!(store_of(&homes, &words, &chosen), own);
    let named = [runtime, ("HOME", home.as_path()), ("VM_DIR", &chosen)];
    assert_eq!(store_of(&named, &[], &chosen), own);
}
