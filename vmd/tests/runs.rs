//! Processes that a daemon runs for a console: their streams, their ends, and the processes that
//! they leave.

mod common;

use common::{
    Daemon,
    console::{Console, children, is_alive, spawn, wait_pid},
    send, wait_for,
};
use std::{
    fs,
    io::{Read, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};
use vm_wire::{
    Message,
    agreed::ExitStatus,
    console::{Answer, Request, RunSignal, WindowSize},
    task::{FailKind, Place, Spawn},
};

/// The size of a terminal.
const SCREEN: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};

/// A process that holds a lease on a file. Until its standard input ends, the execution of the file
/// waits.
struct Holder(Child);

impl Holder {
    fn of(file: &Path) -> Holder {
        // F_SETLEASE and F_WRLCK, which the standard library does not have. The kernel asks the
        // holder by SIGIO to give the lease up.
        let script = r#"$SIG{IO} = "IGNORE"; open(my $file, "+<", $ARGV[0]) or die;
            fcntl($file, 1024, 1) or die; $| = 1; print "held\n"; <STDIN>"#;
        let mut process = Command::new("perl");
        process.args(["-e", script]).arg(file);
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("perl runs");
        let mut said = [0; 5];
        let output = process.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut said).expect("it holds the file");
        Holder(process)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A child of a daemon that still runs the daemon's own program and is not its guardian.
fn beginning(daemon: &Daemon) -> Option<u32> {
    let proc = format!("/proc/{}", daemon.process.id());
    let exe = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = exe(&daemon.process.id().to_string());
    let threads = fs::read_dir(format!("{proc}/task")).expect("it runs");
    threads.into_iter().find_map(|thread| {
        let children = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let mut children = children.split_whitespace();
        let guards = |pid: &&str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "vm-guardian")
        };
        let is_new = |pid: &&str| exe(pid) == own && !guards(pid);
        children.find(is_new)?.parse().ok()
    })
}

/// The console that runs a program that does not begin, the holder that delays the program, and the
/// process that is to become it.
fn slow_to_begin(daemon: &Daemon) -> (Console, Holder, u32) {
    let program = daemon.dir().join("slow");
    fs::write(&program, "#!/bin/sh\necho began\n").expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let holder = Holder::of(&program);
    let mut slow = Console::connect(daemon);
    let run = Request::Run {
        spawn: spawn(program.to_str().expect("a name"), &[]),
        terminal: None,
    };
    send(&mut slow.stream, &run.frame().asked(2)).expect("sent");
    let pid = wait_for("a process that begins", || beginning(daemon));
    (slow, holder, pid)
}

#[test]
fn a_program_that_does_not_begin_can_be_killed() {
    let daemon = Daemon::start();
    let (mut slow, _holder, pid) = slow_to_begin(&daemon);
    let mut other = Console::connect(&daemon);
    let tid = match other.ask(&Request::Ps(None)) {
        Answer::Ps(rows) => rows[0].tid,
        answer => panic!("{answer:?}"),
    };
    assert_eq!(beginning(&daemon), Some(pid));
    assert_eq!(other.ask(&Request::Signal(tid, 9)), Answer::Done);
    let answer = Answer::read(&slow.frame()).expect("an answer");
    assert!(matches!(answer, Answer::Started(_)), "{answer:?}");
    let (status, out, _) = slow.finish();
    assert_eq!((status, &out[..]), (ExitStatus::Signal(9), &b""[..]));
    other.run("echo another", None);
    assert_eq!(other.finish().1, b"another\n");
}

#[test]
fn a_daemon_works_while_a_program_takes_long_to_begin() {
    let daemon = Daemon::start();
    let (mut slow, holder, pid) = slow_to_begin(&daemon);
    let mut other = Console::connect(&daemon);
    assert!(matches!(other.ask(&Request::Conf), Answer::Conf(_)));
    assert_eq!(beginning(&daemon), Some(pid), "it waits no more");
    drop(holder);
    // The next program begins after the delayed one.
    other.run("echo another", None);
    assert_eq!(other.finish().1, b"another\n");
    let answer = Answer::read(&slow.frame()).expect("an answer");
    assert!(matches!(answer, Answer::Started(_)), "{answer:?}");
    let (status, out, _) = slow.finish();
    assert_eq!((status, &out[..]), (ExitStatus::Code(0), &b"began\n"[..]));
}

#[test]
fn the_output_and_status_of_a_program_reach_the_console() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    console.run("echo out; echo err >&2; printf tail; exit 3", None);
    let (status, out, err) = console.finish();
    assert_eq!(status, ExitStatus::Code(3));
    assert_eq!((&out[..], &err[..]), (&b"out\ntail"[..], &b"err\n"[..]));
}

#[test]
fn typed_input_and_its_end_reach_the_program() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    // Far more bytes than the buffers between console and program hold, while the program does not
    // read.
    console.run("sleep 0.3; wc -c; echo ended", None);
    let block = [b'x'; 32 * 1024];
    for _ in 0..64 {
        console.type_in(&block);
    }
    console.type_in(&[]);
    let (status, out, _) = console.finish();
    assert_eq!(status, ExitStatus::Code(0));
    let counted = format!("{}\nended\n", 64 * block.len());
    assert_eq!(String::from_utf8_lossy(&out), counted);
}

#[test]
fn a_slow_console_loses_nothing() {
    const BYTES: usize = 20_000_000;
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    let script = format!("head -c {BYTES} /dev/zero; echo done >&2");
    console.run(&script, None);
    // The program is as far ahead as possible: its process waits for the pipe.
    let (status, out, err) = console.finish();
    assert_eq!((status, out.len()), (ExitStatus::Code(0), BYTES));
    assert_eq!(err, b"done\n");
}

#[test]
fn a_run_with_a_terminal_has_one_of_the_consoles_size() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    let size = |rows, columns| WindowSize { rows, columns };
    let script = "test -t 0 && test -t 1 && stty size; read line; stty size; echo $line";
    console.run(script, Some(size(33, 77)));
    console.wait_output("33 77");
    send(&mut console.stream, &size(40, 100).frame()).expect("sent");
    console.type_in(b"typed\n");
    let (status, out, _) = console.finish();
    assert_eq!(status, ExitStatus::Code(0));
    let out = String::from_utf8_lossy(&out);
    assert!(out.contains("40 100") && out.contains("typed"), "{out}");
}

#[test]
fn a_process_that_closes_its_terminal_is_not_hung_up() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    let folder = tempfile::tempdir().expect("a folder");
    let (closed, go) = (folder.path().join("closed"), folder.path().join("go"));
    let script = format!(
        "mkfifo {go}; exec 0<&- 1>&- 2>&-; echo > {closed}; read line < {go}; \
         echo seen > /dev/tty; exit 3",
        closed = closed.display(),
        go = go.display()
    );
    console.run(&script, Some(SCREEN));
    wait_for("a closed terminal", || closed.exists().then_some(()));
    // When the second reply has come, the daemon has seen that the terminal is closed.
    for _ in 0..2 {
        Console::connect(&daemon).ask(&Request::Ps(None));
    }
    let mut go = fs::File::options()
        .read(true)
        .write(true)
        .open(&go)
        .expect("a pipe");
    go.write_all(b"go\n").expect("it takes a line");
    let (status, out, _) = console.finish();
    let out = String::from_utf8_lossy(&out);
    assert_eq!(status, ExitStatus::Code(3), "{out}");
    assert!(out.contains("seen"), "{out}");
}

#[test]
fn ctrl_c_at_a_terminal_and_a_signal_of_the_console_end_a_run() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    console.run("echo ready; exec sleep 1000", Some(SCREEN));
    console.wait_output("ready");
    console.type_in(b"\x03");
    assert_eq!(console.finish().0, ExitStatus::Signal(2));

    let mut console = Console::connect(&daemon);
    console.run("echo ready; exec sleep 1000", None);
    console.wait_output("ready");
    send(&mut console.stream, &RunSignal { signal: 15 }.frame()).expect("sent");
    assert_eq!(console.finish().0, ExitStatus::Signal(15));
}

#[test]
fn processes_that_a_program_leaves_in_its_session_end_with_it() {
    let daemon = Daemon::start();
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    // The second process is in a process group of its own.
    let script = format!(
        "sleep 1000 & set -m; sleep 1000 & echo $! > {}; exit 0",
        file.display()
    );
    console.run(&script, None);
    assert_eq!(console.finish().0, ExitStatus::Code(0));
    let left = wait_pid(&file);
    wait_for("the end of the process", || (!is_alive(left)).then_some(()));
}

#[test]
fn nothing_that_tasks_started_outlives_the_daemon() {
    let mut daemon = Daemon::start();
    let (escaped, own) = (daemon.temp.path().join("1"), daemon.temp.path().join("2"));
    let mut console = Console::connect(&daemon);
    let script = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 1000' & echo $$ > {}; exec sleep 1000",
        escaped.display(),
        own.display()
    );
    console.run(&script, None);
    let pids = [wait_pid(&escaped), wait_pid(&own)];
    daemon.signal("TERM");
    assert!(daemon.wait_end().success());
    assert_eq!(pids.map(is_alive), [false, false]);
}

#[test]
fn tasks_die_with_a_killed_daemon() {
    let mut daemon = Daemon::start();
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    console.run(
        &format!("echo $$ > {}; exec sleep 1000", file.display()),
        None,
    );
    let pid = wait_pid(&file);
    daemon.signal("KILL");
    daemon.wait_end();
    wait_for("the task's end", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_stopped_daemon_is_killed_by_its_lease() {
    let founder = Daemon::start();
    let mut daemon = founder.start_joined("second", |_| ());
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    console.run(
        &format!("echo $$ > {}; exec sleep 1000", file.display()),
        None,
    );
    let pid = wait_pid(&file);
    daemon.signal("STOP");
    let status = daemon.wait_end();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
    wait_for("the task's end", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_daemon_alone_outlives_any_stop_and_has_a_lease_once_another_one_joins() {
    let mut daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    console.run("echo ready; read -r word; exit 7", None);
    console.wait_output("ready");
    daemon.signal("STOP");
    // The test is that this time passes and ends nothing, so it has to wait.
    std::thread::sleep(vm_wire::limits::LEASE + vm_wire::limits::LEASE_MARGIN);
    assert!(daemon.process.try_wait().expect("our child").is_none());
    daemon.signal("CONT");
    console.type_in(b"go\n");
    assert_eq!(console.finish().0, ExitStatus::Code(7));
    let _second = daemon.start_joined("second", |_| ());
    daemon.signal("STOP");
    let status = daemon.wait_end();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}

#[test]
fn a_lost_console_hangs_up_its_run() {
    let daemon = Daemon::start();
    let file = daemon.temp.path().join("pid");
    let mut console = Console::connect(&daemon);
    console.run(
        &format!("echo $$ > {}; exec sleep 1000", file.display()),
        None,
    );
    let pid = wait_pid(&file);
    drop(console);
    wait_for("the run's end", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_program_that_is_missing_is_named() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    let spawn = Spawn {
        program: "no-such-program".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        dir: None,
        count: 1,
        place: Place::Any,
    };
    match console.ask(&Request::Run {
        spawn,
        terminal: None,
    }) {
        Answer::Failed(failed) => {
            assert_eq!(failed.kind, FailKind::NoSuchProgram);
            assert!(failed.text.contains("no-such-program"), "{failed}");
        }
        other => panic!("{other:?}"),
    }
}

/// An executable file.
fn executable(folder: &Path, name: &str, content: &[u8]) -> String {
    let file = folder.join(name);
    fs::write(&file, content).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).expect("it is ours");
    file.to_str().expect("a name").to_owned()
}

/// How a program ended at a console of its own, and its output.
fn outcome(daemon: &Daemon, spawn: Spawn, terminal: Option<WindowSize>) -> (ExitStatus, String) {
    let mut console = Console::connect(daemon);
    let answer = console.ask(&Request::Run { spawn, terminal });
    assert!(matches!(answer, Answer::Started(_)), "{answer:?}");
    let (status, out, err) = console.finish();
    (status, String::from_utf8_lossy(&[out, err].concat()).into())
}

#[test]
fn a_text_without_an_interpreter_goes_to_the_shell_and_other_refused_files_are_explained() {
    let daemon = Daemon::start();
    let folder = daemon.temp.path();
    for (name, content, code, says) in [
        ("empty", "", 0, ""),
        ("bare", "#!\n", 0, ""),
        ("text", "echo $0 $1; exit 4\n", 4, "/text word\n"),
        ("script", "#!/bin/sh\necho $1\n", 0, "word\n"),
    ] {
        let program = executable(folder, name, content.as_bytes());
        let (status, said) = outcome(&daemon, spawn(&program, &["word"]), None);
        assert_eq!(status, ExitStatus::Code(code), "{name}: {said}");
        assert!(said.ends_with(says), "{name}: {said}");
    }
    let other: u16 = match std::env::consts::ARCH {
        "x86_64" => 183,
        _ => 62,
    };
    let mut foreign = fs::read(env!("CARGO_BIN_EXE_vmd")).expect("a program");
    foreign[18..20].copy_from_slice(&other.to_le_bytes());
    // An interpreter that the kernel would look for in vain is detected before anything is started.
    for (name, content, says) in [
        ("gone", &b"#!/no/such/python\n"[..], "\"/no/such/python\""),
        ("lines", b"#!/bin/sh\r\n", "dos2unix"),
    ] {
        let program = executable(folder, name, content);
        let mut console = Console::connect(&daemon);
        match console.ask(&Request::Spawn(spawn(&program, &[]))) {
            Answer::Failed(failed) => {
                assert_eq!(failed.kind, FailKind::NotExecutable, "{failed}");
                assert!(failed.text.contains(says), "{failed}");
            }
            answer => panic!("{name}: {answer:?}"),
        }
    }
    for (name, content, says) in [
        ("binary", &b"MZ\0\0"[..], "neither a program"),
        ("foreign", &foreign, "it is a program for"),
    ] {
        let program = executable(folder, name, content);
        let (status, said) = outcome(&daemon, spawn(&program, &[]), None);
        if name == "foreign" && status != ExitStatus::NotStarted {
            eprintln!("not looked at: the kernel here executes programs of other processors");
            continue;
        }
        assert_eq!(status, ExitStatus::NotStarted, "{name}: {said}");
        assert!(said.contains(says) && said.contains(name), "{said}");
    }
}

/// The situation in a container: the kernel executes programs of s390x by a handler that it has
/// opened already, and the list of handlers is empty.
const HIDDEN_HANDLER: &str = r#"
    handlers=/proc/sys/fs/binfmt_misc
    mount -t binfmt_misc none $handlers &&
    printf %s ':vmtest:M:18:\x00\x16::/bin/echo:F' > $handlers/register &&
    mount -t tmpfs none $handlers && exec "$@""#;

#[test]
fn a_program_is_executed_by_a_kernel_handler_that_the_daemon_cannot_see() {
    let apart = |command: &Command| {
        let mut apart = Command::new("unshare");
        apart
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .args([HIDDEN_HANDLER, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .env_remove("VM_SECRET")
            .stdin(Stdio::null());
        apart
    };
    let trial = apart(&Command::new("true")).output();
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        eprintln!("skipped: no handlers in user namespaces here: {trial:?}");
        return;
    }
    let temp = tempfile::tempdir().expect("a temporary folder");
    let daemon = Daemon::start_as(temp, |command| apart(&command));
    // The header is in the byte order of s390x.
    let mut head = [0; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x02");
    head[16..20].copy_from_slice(&[0, 2, 0, 22]);
    let program = executable(daemon.temp.path(), "foreign", &head);
    let (status, said) = outcome(&daemon, spawn(&program, &["word"]), None);
    assert_eq!(status, ExitStatus::Code(0), "{said}");
    assert_eq!(said, format!("{program} word\n"));
}

/// The companions of tasks with terminals.
fn companions(daemon: &Daemon) -> usize {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm"));
    let children = children(daemon.process.id()).into_iter();
    let named = children.filter(|pid| name(pid).is_ok_and(|name| name.trim() == "vm-terminal"));
    named.count()
}

#[test]
fn companions_of_a_terminal_have_a_name_and_end_with_its_program_even_if_it_never_begins() {
    let daemon = Daemon::start();
    let mut console = Console::connect(&daemon);
    console.run("echo ready; read line", Some(SCREEN));
    console.wait_output("ready");
    assert_eq!(companions(&daemon), 1);
    console.type_in(b"\n");
    assert_eq!(console.finish().0, ExitStatus::Code(0));
    wait_for("their end", || (companions(&daemon) == 0).then_some(()));
    // One argument is longer than the kernel accepts.
    let argument = "x".repeat(200 * 1024);
    let spawn = spawn("/bin/echo", &[&argument]);
    let (status, said) = outcome(&daemon, spawn, Some(SCREEN));
    assert_eq!(status, ExitStatus::NotStarted, "{said}");
    wait_for("their end", || (companions(&daemon) == 0).then_some(()));
}
