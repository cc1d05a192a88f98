//! The life of a daemon: what ends it, what does not, what it leaves, and what the next daemon in
//! its folder reports.

mod common;

use common::{
    Daemon, PATIENCE, ask,
    console::{Console, children, is_alive, spawn, wait_pid},
    wait_for, wait_free,
};
use std::{
    fs::{self, File},
    io::Read,
    os::unix::{fs::DirBuilderExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};
use vm_wire::{
    HostId,
    agreed::ExitStatus,
    console::{Answer, Request},
    place,
    task::{Place, Spawn},
    version::Offer,
};

/// Has a program run by another command, which becomes the program.
fn within(words: &[&str], program: &Command) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command.arg(program.get_program()).args(program.get_args());
    command.env_remove("VM_SECRET").stdin(Stdio::null());
    command
}

/// Has a shell run `script`, with the words of a program as its arguments.
fn shell(program: &Command, script: &str) -> Command {
    within(&["sh", "-c", script, "sh"], program)
}

/// A daemon that ignores no signal, even if this test was started to ignore some.
fn start_heeding() -> Daemon {
    let temp = tempfile::tempdir().expect("a temporary folder");
    Daemon::start_as(temp, |program| {
        within(&["env", "--default-signal"], &program)
    })
}

fn answers(dir: &Path) -> bool {
    let stream = UnixStream::connect(place::socket(dir));
    stream.is_ok_and(|mut stream| {
        ask(&mut stream, &Request::Version(Offer::OURS));
        true
    })
}

fn kill(signal: &str, pid: u32) {
    let words = [format!("-{signal}"), pid.to_string()];
    let status = Command::new("kill").args(words).status();
    assert!(status.expect("kill runs").success());
}

/// The guardian of a daemon, if it is another one than `before`.
fn guardian(daemon: &Daemon, before: Option<u32>) -> u32 {
    wait_for("a guardian", || {
        let named = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "vm-guardian")
        };
        let mut children = children(daemon.process.id()).into_iter();
        children.find(|pid| Some(*pid) != before && named(pid))
    })
}

/// A script that writes its process number into a file and then sleeps.
fn sleeper(file: &Path) -> String {
    format!("echo $$ > {}; exec sleep 1000", file.display())
}

/// A program with three descendants: one in its session, one in a session of its own, and one in a
/// session of its own whose parent has ended. Returns the program, and the files in which the three
/// write their process numbers.
fn family(daemon: &Daemon) -> (String, [PathBuf; 3]) {
    let files = [1, 2, 3].map(|number| daemon.temp.path().join(format!("pid{number}")));
    let [own, session, orphan] = files.each_ref().map(|file| sleeper(file));
    let script = format!(
        "set -m; (set +m; sh -c '{own}' & wait) &
         setsid sh -c '{session}' &
         (setsid sh -c '{orphan}' &) ;"
    );
    (script, files)
}

#[test]
fn after_a_daemon_is_killed_all_processes_that_its_tasks_started_end() {
    let mut daemon = Daemon::start();
    let (script, files) = family(&daemon);
    let mut console = Console::connect(&daemon);
    console.run(&format!("{script} exec sleep 1000"), None);
    let pids = files.each_ref().map(|file| wait_pid(file));
    daemon.signal("KILL");
    daemon.wait_end();
    wait_for("their end", || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    // The next daemon begins after the guardian is done, and reports the end of this one.
    let temp = std::mem::replace(&mut daemon.temp, tempfile::tempdir().expect("a folder"));
    let next = Daemon::start_in(temp);
    next.wait_log("was killed by a signal, or crashed");
}

#[test]
fn after_a_task_ends_all_processes_that_it_started_end() {
    let daemon = Daemon::start();
    let (script, files) = family(&daemon);
    let mut console = Console::connect(&daemon);
    let go = daemon.temp.path().join("go");
    console.run(
        &format!(
            "{script} until test -e {}; do sleep 0.01; done",
            go.display()
        ),
        None,
    );
    let pids = files.each_ref().map(|file| wait_pid(file));
    File::create(&go).expect("a file");
    assert_eq!(console.finish().0, ExitStatus::Code(0));
    wait_for("their end", || {
        (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
    });
    assert!(answers(&daemon.dir()));
}

#[test]
fn a_guardian_that_was_killed_is_replaced() {
    let mut daemon = Daemon::start();
    let first = guardian(&daemon, None);
    kill("KILL", first);
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    console.run(&format!("sh -c '{}' & wait", sleeper(&file)), None);
    let pid = wait_pid(&file);
    assert_ne!(guardian(&daemon, Some(first)), first);
    daemon.signal("KILL");
    daemon.wait_end();
    wait_for("the end of the sleeper", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_folder_that_was_made_again_has_a_guardian_too() {
    let mut daemon = Daemon::start();
    let first = guardian(&daemon, None);
    fs::remove_dir_all(daemon.dir()).expect("it was there");
    daemon.wait_log("was removed: it is made again");
    let second = guardian(&daemon, Some(first));
    wait_for("the first guardian's end", || {
        (!is_alive(first)).then_some(())
    });
    let place = fs::read_link(format!("/proc/{second}/cwd")).expect("it runs");
    assert_eq!(place, daemon.dir().canonicalize().expect("there again"));
    let mut console = wait_for("a socket", || {
        UnixStream::connect(place::socket(&daemon.dir())).ok()
    });
    ask(&mut console, &Request::Version(Offer::OURS));
    drop(console);
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    console.run(&format!("setsid sh -c '{}' & wait", sleeper(&file)), None);
    let pid = wait_pid(&file);
    daemon.signal("KILL");
    daemon.wait_end();
    // The next daemon waits for the guardian, and reads its note.
    let temp = std::mem::replace(&mut daemon.temp, tempfile::tempdir().expect("a folder"));
    let next = Daemon::start_in(temp);
    next.wait_log("was killed by a signal, or crashed; 1 processes");
    assert!(!is_alive(pid));
}

#[test]
fn a_process_whose_memory_cannot_be_read_delays_nothing_else() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let mut daemon = Daemon::start_with(temp, |command| {
        command.env("VM_FAULT", "token:delay-1000000000");
    });
    let files = [1, 2].map(|number| daemon.temp.path().join(format!("pid{number}")));
    let [first, second] = files.each_ref().map(|file| sleeper(file));
    let go = daemon.temp.path().join("go");
    let mut console = Console::connect(&daemon);
    console.run(
        &format!(
            "(setsid sh -c '{first}' &) ; (setsid sh -c '{second}' &) ;
             until test -e {}; do sleep 0.01; done",
            go.display()
        ),
        None,
    );
    let pids = files.each_ref().map(|file| wait_pid(file));
    File::create(&go).expect("a file");
    assert_eq!(console.finish().0, ExitStatus::Code(0));
    daemon.wait_log("fault at token");
    let alive = || pids.iter().filter(|pid| is_alive(**pid)).count();
    // All but the process whose memory cannot be read.
    wait_for("the other one's end", || (alive() == 1).then_some(()));
    assert!(answers(&daemon.dir()));
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
    assert_eq!(alive(), 0);
}

/// A daemon that is process 1 of a namespace of processes.
struct Contained {
    /// The command that made the namespace. The namespace ends with it.
    unshare: Child,
    temp: tempfile::TempDir,
}

impl Contained {
    fn join(founder: &Daemon) -> Contained {
        let temp = tempfile::tempdir().expect("a temporary folder");
        let dir = temp.path().join("vm");
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--fork", "--pid", "--mount-proc", "--kill-child"]);
        unshare.arg(env!("CARGO_BIN_EXE_vmd"));
        unshare
            .args(["--listen", "127.0.0.1:0", "--name", "inner", "--dir"])
            .arg(&dir);
        unshare.args(["--join", &founder.address().expect("listening")]);
        unshare
            .arg("--secret-file")
            .arg(founder.dir().join(place::SECRET_FILE));
        let unshare = unshare.stdin(Stdio::null()).spawn().expect("unshare runs");
        let contained = Contained { unshare, temp };
        wait_for("a daemon in a namespace", || {
            UnixStream::connect(place::socket(&dir)).ok()
        });
        contained
    }

    /// Process 1 and the daemon, by their numbers outside of the namespace.
    fn processes(&self) -> (u32, u32) {
        let first = children(self.unshare.id())[0];
        (first, children(first)[0])
    }

    fn wait_end(&mut self) -> Option<i32> {
        let unshare = &mut self.unshare;
        let end = wait_for("the end of the namespace", || {
            unshare.try_wait().expect("it is our child")
        });
        end.code()
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

#[test]
fn the_lease_ends_a_daemon_that_is_process_1_of_its_namespace() {
    let founder = Daemon::start();
    let mut contained = Contained::join(&founder);
    let mut console = Console::connect(&founder);
    let mark = contained.temp.path().join("alive");
    // Process numbers in the namespace mean nothing outside of it; the file that the task writes
    // shows that it lives.
    let script = format!("while :; do echo >> {}; sleep 0.01; done", mark.display());
    let spawn = Spawn {
        place: Place::Host("inner".to_owned()),
        ..spawn("/bin/sh", &["-c", &script])
    };
    let answer = console.ask(&Request::Spawn(spawn));
    assert!(!matches!(answer, Answer::Failed(_)), "{answer:?}");
    let size = || fs::metadata(&mark).map_or(0, |found| found.len());
    wait_for("the task", || (size() > 0).then_some(()));
    let (first, daemon) = contained.processes();
    kill("STOP", daemon);
    assert_eq!(contained.wait_end(), Some(128 + 9));
    assert!(!is_alive(first) && !is_alive(daemon));
    let last = size();
    founder.wait_log("lost");
    assert_eq!(size(), last, "the task outlived the lease");
}

#[test]
fn process_1_passes_signals_on_and_ends_as_the_daemon_did() {
    let founder = Daemon::start();
    let mut contained = Contained::join(&founder);
    // The console is outside of the namespace, so it has no process number in it.
    assert!(answers(&contained.temp.path().join("vm")));
    let (first, _) = contained.processes();
    kill("TERM", first);
    assert_eq!(contained.wait_end(), Some(0));
    assert!(!place::socket(&contained.temp.path().join("vm")).exists());
}

#[test]
fn process_1_waits_for_the_guardian_of_a_daemon_that_was_killed() {
    let founder = Daemon::start();
    let mut contained = Contained::join(&founder);
    let (_, daemon) = contained.processes();
    kill("KILL", daemon);
    assert_eq!(contained.wait_end(), Some(128 + 9));
    let ended = fs::read_to_string(contained.temp.path().join("vm/ended"));
    assert!(ended.expect("word of its end").contains("was killed"));
}

#[test]
fn the_next_daemon_reports_that_the_lease_ended_a_stopped_one() {
    let founder = Daemon::start();
    let mut joined = founder.start_joined("second", |_| ());
    // A task that runs shows that the daemon has a lease.
    let mut console = Console::connect(&joined);
    console.run("exit 0", None);
    assert_eq!(console.finish().0, ExitStatus::Code(0));
    joined.signal("STOP");
    joined.wait_end();
    let temp = std::mem::replace(&mut joined.temp, tempfile::tempdir().expect("a folder"));
    let next = Daemon::start_with(temp, |command| {
        command.args(["--name", "lone", "--found"]);
    });
    next.wait_log("at the end of its lease");
}

#[test]
fn signals_without_a_meaning_are_logged_and_end_nothing() {
    let mut daemon = start_heeding();
    for signal in ["ALRM", "VTALRM", "PROF", "IO", "XFSZ", "40"] {
        daemon.signal(signal);
        daemon.wait_log("which means nothing here");
    }
    assert!(answers(&daemon.dir()));
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
}

#[test]
fn warnings_of_batch_systems_make_the_host_leave_in_order() {
    for signal in ["XCPU", "USR1", "USR2", "PWR", "QUIT"] {
        let mut daemon = start_heeding();
        daemon.signal(signal);
        daemon.wait_log(&format!("SIG{signal} came"));
        assert!(daemon.wait_end().success(), "{signal}");
        assert!(!place::socket(&daemon.dir()).exists());
    }
}

#[test]
fn signals_at_one_time_count_as_one() {
    let mut daemon = start_heeding();
    let mut console = Console::connect(&daemon);
    // The task takes its time to end when its host leaves.
    console.run(
        "trap 'sleep 0.3; exit 5' TERM; echo ready; sleep 1000 & wait",
        None,
    );
    console.wait_output("ready");
    let pid = daemon.process.id();
    let kills = format!("kill -TERM {pid}; kill -INT {pid}; kill -TERM {pid}; kill -HUP {pid}");
    let sent = Command::new("sh").args(["-c", &kills]).status();
    assert!(sent.expect("sh runs").success());
    assert_eq!(console.finish().0, ExitStatus::Code(5));
    assert!(daemon.wait_end().success());
    assert_eq!(daemon.count_log("at once"), 0);
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let mut daemon = Daemon::start_as(temp, |program| shell(&program, r#"trap '' HUP; exec "$@""#));
    daemon.signal("HUP");
    daemon.signal("ALRM");
    daemon.wait_log("SIGALRM came");
    assert!(answers(&daemon.dir()));
    // Tasks of the daemon do not ignore it.
    let mut console = Console::connect(&daemon);
    console.run("kill -HUP $$; exit 5", None);
    assert_eq!(console.finish().0, ExitStatus::Signal(1));
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
}

#[test]
fn a_daemon_in_the_background_keeps_nothing_that_its_command_had_open() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let dir = temp.path().join("vm");
    let mut program = Daemon::command(&dir);
    program.arg("--detach");
    // The test holds a pipe that is open as descriptor 7: its end comes when all processes that
    // have it have closed it.
    let mut command = shell(&program, r#"exec 7>&1 "$@""#);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = command.spawn().expect("sh runs");
    let guard = InBackground(dir.clone());
    let output = command.stdout.take().expect("a pipe");
    assert_eq!(read_to_end(output), "");
    assert!(command.wait().expect("our child").success());
    assert!(answers(&dir), "the daemon runs");
    drop(guard);
    // The next daemon reports on its terminal how this one ended.
    let mut program = Daemon::command(&dir);
    let next = program.arg("--detach").stderr(Stdio::piped()).spawn();
    let mut next = next.expect("vmd runs");
    let _guard = InBackground(dir);
    let said = read_to_end(next.stderr.take().expect("piped"));
    assert!(next.wait().expect("our child").success());
    assert!(said.contains("was killed by a signal"), "{said}");
}

/// Everything that comes before the end of the stream. The end is awaited for a limited time.
fn read_to_end(mut from: impl Read + Send + 'static) -> String {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = from.read_to_string(&mut text);
        // The test may have failed.
        let _ = tell.send(read.map(|_| text));
    });
    let read = told.recv_timeout(PATIENCE).expect("an end");
    read.expect("text")
}

/// The daemon in the background of a folder. It is killed at the end of the test.
struct InBackground(PathBuf);

impl Drop for InBackground {
    /// Does not panic: it also runs when a test fails.
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.0.join("pid")).unwrap_or_default();
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.trim()));
        if name.is_ok_and(|name| name.trim() == "vmd") {
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
        }
        wait_free(&self.0);
    }
}

#[test]
fn a_log_may_be_standard_error_that_is_a_pipe() {
    let temp = tempfile::tempdir().expect("a temporary folder");
    let daemon = Daemon::start_with(temp, |command| {
        command.args(["--log-file", "/dev/stderr"]);
    });
    daemon.wait_log("founds machine");
    assert!(answers(&daemon.dir()));
}

#[test]
fn a_daemon_makes_its_socket_again_but_not_in_another_daemons_folder() {
    let mut first = Daemon::start();
    fs::remove_file(place::socket(&first.dir())).expect("it was there");
    first.wait_log("it is made again");
    wait_for("a socket", || answers(&first.dir()).then_some(()));
    // Without the file `pid`, the folder is still locked.
    fs::remove_file(first.dir().join("pid")).expect("it was there");
    let output = Daemon::command(&first.dir()).output().expect("vmd runs");
    assert_eq!(output.status.code(), Some(1));
    // Another daemon takes a folder that was removed and made again.
    let other = first.temp.path().join("other");
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&other)
        .expect("a folder");
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(cwd, &other, cwd, first.dir(), flags).expect("exchanged");
    let temp = tempfile::TempDir::new().expect("a folder");
    let temp = std::mem::replace(&mut first.temp, temp);
    let second = Daemon::start_in(temp);
    first.wait_log("is not the folder any more");
    first.signal("TERM");
    assert!(first.wait_end().success());
    assert!(answers(&second.dir()) && second.dir().join("pid").exists());
    let mut console = second.connect();
    match ask(&mut console, &Request::Version(Offer::OURS)) {
        vm_wire::console::Answer::Version { host, .. } => assert_eq!(host, HostId::FOUNDER),
        other => panic!("{other:?}"),
    }
}
