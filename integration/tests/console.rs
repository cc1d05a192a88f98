//! A program that the real console runs on a real daemon behaves like a local program.

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};
use vm_integration::cluster::{
    Cluster, Node, PATIENCE, binaries, end_with_us, read_until, wait_for,
};
use vm_wire::console::{Answer, Request};

fn vm(node: &Node, words: &[&str]) -> Command {
    let mut command = Command::new(binaries::binary("vm"));
    command.arg("--dir").arg(&node.dir).args(words);
    end_with_us(&mut command);
    command
}

/// A console in the foreground of a terminal of its own.
struct OnTerminal {
    console: Child,
    terminal: File,
    /// The bytes that the terminal shows, as they come.
    shown: Receiver<Vec<u8>>,
    seen: String,
}

impl OnTerminal {
    fn run(node: &Node, words: &[&str]) -> Self {
        let (vm, dir) = (binaries::binary("vm"), node.dir.to_str().expect("text"));
        let vm = vm.to_str().expect("a path");
        Self::start(&[&[vm, "--dir", dir], words].concat())
    }

    /// Starts another program in the place of the console.
    fn start(words: &[&str]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&ours).expect("a terminal");
        unlockpt(&ours).expect("a terminal");
        let size = Winsize {
            ws_row: 41,
            ws_col: 97,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let theirs = Path::new(name.to_str().expect("a path"));
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(theirs)
                .expect("the other end")
        };
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .args(words)
            .stdin(open())
            .stdout(open())
            .stderr(open());
        end_with_us(&mut command);
        let console = command.spawn().expect("setsid can be run");
        let terminal = File::from(ours);
        let mut reader = terminal.try_clone().expect("a descriptor");
        let (send, shown) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A read fails when the last process has left the terminal.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        OnTerminal {
            console,
            terminal,
            shown,
            seen: String::new(),
        }
    }

    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            match self.shown.recv_timeout(PATIENCE) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(end) => panic!("{end} before '{text}' in {:?}", self.seen),
            }
        }
    }

    fn type_keys(&mut self, keys: &str) {
        self.terminal
            .write_all(keys.as_bytes())
            .expect("a terminal takes keys");
    }

    fn exit_code(&mut self) -> Option<i32> {
        let console = &mut self.console;
        wait_for("the end of the console", PATIENCE, || {
            console.try_wait().expect("a child of ours")
        })
        .code()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.console.kill();
        let _ = self.console.wait();
    }
}

#[test]
fn on_a_terminal_a_program_has_its_size_and_ctrl_c_is_its_own() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let program = "stty size; trap 'echo interrupted; exit 3' INT; echo ready; \
                   while :; do sleep 0.05; done";
    let mut run = OnTerminal::run(node, &["run", "sh", "-c", program]);
    run.wait_for("41 97\r\nready\r\n");
    run.type_keys("\x03");
    run.wait_for("interrupted\r\n");
    assert_eq!(run.exit_code(), Some(3));
}

#[test]
fn a_program_that_a_key_ends_has_the_exit_code_of_a_local_one() {
    let cluster = Cluster::on_loopback(1);
    let mut run = OnTerminal::run(
        &cluster.nodes[0],
        &["run", "sh", "-c", "echo ready; exec sleep 1000"],
    );
    run.wait_for("ready\r\n");
    run.type_keys("\x03");
    assert_eq!(run.exit_code(), Some(128 + Signal::INT.as_raw()));
}

/// A shell with job control that runs `script`, in which `$vm` is the console.
fn shell(node: &Node, script: &str) -> OnTerminal {
    let (vm, dir) = (binaries::binary("vm"), node.dir.display());
    let script = format!("vm='{} --dir {dir}'; {script}", vm.display());
    OnTerminal::start(&["sh", "-mc", &script])
}

#[test]
fn ctrl_z_stops_the_program_and_its_console_and_fg_continues_both() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let program = "echo ready; read word; echo got $word; exit 3";
    let run = format!("$vm run sh -c '{program}'");
    // The console is a job by itself, or part of a script, which stops as well: the shell waits for
    // the script.
    let script = format!("sh -c \"{}; exit \\$?\"", run.replace("$word", "\\$word"));
    for job in [run, script] {
        let after = "echo stopped; stty -a; $vm ps; fg; echo code $?; stty -a; echo end";
        let mut shell = shell(node, &format!("{job}; {after}"));
        shell.wait_for("ready\r\n");
        shell.type_keys("\x1a");
        shell.wait_for("stopped\r\n");
        shell.wait_for(" icanon");
        // The program's state in the output of `ps`.
        shell.wait_for("  T  ");
        shell.type_keys("word\r");
        shell.wait_for("got word\r\n");
        shell.wait_for("code 3\r\n");
        shell.wait_for("\r\nend\r\n");
        let after = shell.seen.rsplit("code 3\r\n").next().unwrap_or_default();
        assert!(after.contains(" icanon"), "{}", shell.seen);
        assert_eq!(shell.exit_code(), Some(0));
    }
}

#[test]
fn without_a_shell_that_could_continue_it_ctrl_z_stops_no_console() {
    let cluster = Cluster::on_loopback(1);
    // The program ends only if it was stopped and continued.
    let program = "trap 'on=yes' CONT; echo ready; \
                   until test \"$on$word\" = yesword; do read word; done; echo got $word; exit 3";
    let mut run = OnTerminal::run(&cluster.nodes[0], &["run", "sh", "-c", program]);
    run.wait_for("ready\r\n");
    run.type_keys("\x1a");
    run.type_keys("word\r");
    run.wait_for("got word\r\n");
    assert_eq!(run.exit_code(), Some(3));
}

#[test]
fn a_run_that_its_only_host_suspends_ends_with_the_code_for_resubmission() {
    let mut cluster = Cluster::on_loopback(0);
    cluster.add(&["--on-term", "suspend", "--grace", "60"]);
    let node = &mut cluster.nodes[0];
    let mut run = vm(node, &["run", "--resume-or-start", "vmtest", "idle"]);
    run.stdin(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().expect("the console runs");
    let mut client = node.client();
    wait_for("the program, which can be saved", PATIENCE, || {
        let Answer::Ps(rows) = client.ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let tid = rows.first()?.tid;
        let reasons = match client.ask(&Request::Check(tid)) {
            Answer::Check(reasons) => reasons,
            _ => return None,
        };
        // The only reason left is that there is no other host.
        (reasons.len() == 1).then_some(())
    });
    node.signal(Signal::TERM);
    assert!(node.wait_end(PATIENCE).success());
    let run = run.wait_with_output().expect("a child of ours");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(75), "{said}");
    assert!(
        said.contains("the same command with --resume-or-start"),
        "{said}"
    );
}

/// Ends the machine of a daemon that a console has started.
struct Halted<'a>(&'a Path);

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        let mut command = Command::new(binaries::binary("vm"));
        // The machine may have ended already.
        let _ = command
            .arg("--dir")
            .arg(self.0)
            .args(["halt", "--yes"])
            .output();
    }
}

#[test]
fn a_daemon_that_a_console_starts_by_itself_is_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("vm");
    let _halted = Halted(&dir);
    let vm = |words: &[&str]| {
        let mut command = Command::new(binaries::binary("vm"));
        command
            .arg("--dir")
            .arg(&dir)
            .args(words)
            .stdin(Stdio::null());
        let output = command.output().expect("the console can be run");
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr))
    };
    let (_, said) = vm(&["run", "true"]);
    assert!(said.starts_with("vm: no daemon ran in"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(vm(&["run", "true"]).1, "");
    // The only host of the machine is deleted, which ends the machine. The next daemon founds
    // another one.
    let host = rustix::system::uname();
    vm(&["delete", &host.nodename().to_string_lossy()]);
    let (started, said) = vm(&["--json", "spawn", "true"]);
    assert!(started.starts_with("{\"started\":"), "{started}");
    assert_eq!(started.lines().count(), 1);
    assert!(said.starts_with("{\"notice\":"), "{said}");
    assert!(said.contains("DaemonStarted"), "{said}");
}

#[test]
fn input_output_and_exit_code_pass_through() {
    let cluster = Cluster::on_loopback(1);
    let mut console = vm(&cluster.nodes[0], &["run", "sh", "-c", "md5sum; exit 9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the console can be run");
    let input = vec![b'x'; 5_000_000];
    let mut stdin = console.stdin.take().expect("a pipe");
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = console.wait_with_output().expect("a child of ours");
    writer
        .join()
        .expect("no panic")
        .expect("all of it was read");
    // The md5sum of five million 'x'; a lost or doubled byte would change it.
    let expected = "9dff3479548c346bbeeeab2c23af22fd";
    assert_eq!(output.status.code(), Some(9));
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with(expected),
        "{output:?}"
    );
}

/// A console whose program never reads, with endless input. Half a MiB was accepted; the console
/// accepts more until all buffers on the way are full.
fn fed_without_a_reader(node: &Node) -> (Child, thread::JoinHandle<()>) {
    let mut console = vm(node, &["run", "sh", "-c", "echo ready; exec sleep 1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the console can be run");
    let mut stdin = console.stdin.take().expect("a pipe");
    let (taken, enough) = mpsc::channel();
    let feeder = thread::spawn(move || {
        let block = [b'x'; 32 * 1024];
        // The writes fail once the console has ended.
        while stdin.write_all(&block).is_ok() {
            let _ = taken.send(block.len());
        }
    });
    let mut stdout = console.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).expect("output");
    let mut total = 0;
    while total < 512 * 1024 {
        total += enough.recv_timeout(PATIENCE).expect("input is taken");
    }
    (console, feeder)
}

fn tasks(node: &Node) -> usize {
    let ps = vm(node, &["--json", "ps"])
        .output()
        .expect("the console can be run");
    String::from_utf8_lossy(&ps.stdout)
        .matches("\"tid\"")
        .count()
}

#[test]
fn a_signal_overtakes_input_that_the_program_does_not_read() {
    let cluster = Cluster::on_loopback(1);
    let (mut console, feeder) = fed_without_a_reader(&cluster.nodes[0]);
    kill_process(Pid::from_child(&console), Signal::INT).expect("a child of ours");
    let status = wait_for("the end of the console", PATIENCE, || {
        console.try_wait().expect("a child of ours")
    });
    assert_eq!(status.code(), Some(128 + Signal::INT.as_raw()));
    feeder.join().expect("no panic");
}

#[test]
fn the_end_of_a_console_is_seen_behind_input_that_the_program_does_not_read() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let (mut console, feeder) = fed_without_a_reader(node);
    assert_eq!(tasks(node), 1);
    kill_process(Pid::from_child(&console), Signal::KILL).expect("a child of ours");
    console.wait().expect("a child of ours");
    feeder.join().expect("no panic");
    wait_for("the hangup", PATIENCE, || (tasks(node) == 0).then_some(()));
}

#[test]
fn a_killed_console_hangs_up_its_program_and_nothing_else() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let note = cluster.folder().join("note");
    let program = format!(
        "trap 'echo hangup > {}; exit' HUP; echo ready; while :; do sleep 0.05; done",
        note.display()
    );
    let mut console = vm(node, &["run", "sh", "-c", &program])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the console can be run");
    let mut stdout = console.stdout.take().expect("a pipe");
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).expect("output");
    kill_process(Pid::from_child(&console), Signal::KILL).expect("a child of ours");
    console.wait().expect("a child of ours");
    wait_for("the hangup", PATIENCE, || {
        fs::read_to_string(&note)
            .ok()
            .filter(|text| text == "hangup\n")
    });
    let ps = vm(node, &["--json", "ps"])
        .output()
        .expect("the console can be run");
    assert!(ps.status.success(), "{ps:?}");
}

/// The restorer that a test has stopped at its start.
fn stopped_child(node: &Node) -> Pid {
    wait_for("a stopped process", PATIENCE, || {
        let is_stopped = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        Pid::from_raw(node.children().into_iter().find(is_stopped)?)
    })
}

#[test]
fn on_a_terminal_a_move_shows_its_progress_and_then_its_result() {
    let mut cluster = Cluster::on_loopback(1);
    let mut command = cluster.command("n2", &[]);
    // The image waits there. It is larger than the buffers of the sockets on its way.
    command.env("VM_FAULT", "restorer:stop");
    cluster.add_node("n2".to_owned(), command);
    let node = &cluster.nodes[0];
    let mut run = node.client();
    run.run("vmtest", &["caller", "n1", "128"]);
    run.output_until("it goes");
    let Answer::Ps(rows) = node.client().ask(&Request::Ps(None)) else {
        panic!("ps has no such answer");
    };
    let tid = rows[1].tid.show(node.conf().machine).to_string();
    let mut console = OnTerminal::run(node, &["move", &tid, "n2"]);
    console.wait_for("n1 to n2: copying while it runs");
    // The bar shows the total number of bytes, too.
    console.wait_for("iB of ");
    let mut programs = node.client();
    let Answer::Moves(rows) = programs.ask(&Request::Moves) else {
        panic!("moves has no such answer");
    };
    let sent = rows[0].sent.expect("it was shown");
    assert!(sent.bytes > 100_000 && sent.memory > 128 << 20, "{sent:?}");
    let stopped = stopped_child(&cluster.nodes[1]);
    kill_process(stopped, Signal::CONT).expect("it is stopped");
    console.wait_for("moved from n1 to n2: ");
    for phase in [
        "interrupt",
        "save",
        "transfer",
        "restore",
        "drain",
        "commit",
    ] {
        console.wait_for(phase);
    }
    console.wait_for("commit ");
    assert_eq!(console.exit_code(), Some(0));
    assert_eq!(programs.ask(&Request::Moves), Answer::Moves(Vec::new()));
    run.input(b"end\n");
    run.output_until("none lost, doubled or out of order");
}

#[test]
fn the_same_command_restarts_a_stopped_application_and_leaves_no_checkpoint() {
    let cluster = Cluster::on_loopback(2);
    let command = ["run", "--resume-or-start", "vmtest", "caller", "n2"];
    let mut first = vm(&cluster.nodes[0], &command);
    let mut first = first
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the console runs");
    let mut shown = first.stdout.take().expect("a pipe");
    read_until(&mut shown, "it goes");
    let stopped = vm(&cluster.nodes[1], &["stop", "--checkpoint", "t1.1"]).output();
    assert!(stopped.expect("a console").status.success());
    let status = first.wait().expect("it ends");
    assert_eq!(
        status.code(),
        Some(75),
        "stopped, and to be submitted again"
    );
    // The input has ended, so the restarted application ends; it does not begin anew.
    let again = vm(&cluster.nodes[0], &command)
        .stdin(Stdio::null())
        .output()
        .expect("the console runs");
    let (out, err) = (
        String::from_utf8_lossy(&again.stdout),
        String::from_utf8_lossy(&again.stderr),
    );
    assert!(err.contains("restarted from g0-e1"), "{out}{err}");
    let well = out.contains("none lost, doubled or out of order") && !out.contains("it goes");
    assert!(well && again.status.success(), "{out}{err}");
    let left = fs::read_dir(cluster.store()).expect("a store").count();
    assert_eq!(left, 0, "checkpoints of what has ended well");
}

#[test]
fn the_same_command_with_another_policy_applies_that_policy() {
    let cluster = Cluster::on_loopback(1);
    let node = &cluster.nodes[0];
    let job = |policy: &[&str]| {
        let command = [
            &["run", "--resume-or-start"],
            policy,
            &["vmtest", "ring", "600", "8"],
        ];
        let mut job = vm(node, &command.concat());
        let job = job.stdin(Stdio::null()).stdout(Stdio::null());
        job.stderr(Stdio::null()).spawn().expect("the console runs")
    };
    let mut first = job(&[]);
    let mut client = node.client();
    let app = wait_for("all have begun, and are stopped", PATIENCE, || {
        let Answer::Ps(rows) = client.ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        let app = rows.first().filter(|_| rows.len() == 9)?.tid;
        client.save(app, true).ok().map(|_| app)
    });
    assert_eq!(first.wait().expect("it ends").code(), Some(75));
    let mut again = job(&["--checkpoint-every", "1s"]);
    wait_for("a checkpoint that nobody asked for", PATIENCE, || {
        node.log().contains("the next one in 1s").then_some(())
    });
    assert_eq!(client.ask(&Request::Signal(app, 9)), Answer::Done);
    assert!(!again.wait().expect("it ends").success());
}

#[test]
fn a_master_without_a_terminal_is_moved_and_drained_and_its_output_is_whole() {
    let cluster = Cluster::on_loopback(3);
    let head = &cluster.nodes[0];
    let (out, stop) = (cluster.folder().join("out"), cluster.folder().join("stop"));
    let file = File::create(&out).expect("a file");
    let stop_name = stop.to_str().expect("text");
    let mut run = vm(head, &["run", "vmtest", "writer", stop_name]);
    run.stdin(Stdio::null()).stdout(file);
    let mut run = run.spawn().expect("the console runs");
    let written = || fs::metadata(&out).expect("a file").len();
    let mut client = head.client();
    let mut master = || {
        let Answer::Ps(rows) = client.ask(&Request::Ps(None)) else {
            panic!("ps has no such answer");
        };
        rows.first().map(|row| (row.tid, row.host.clone()))
    };
    let (tid, _) = wait_for("the master", PATIENCE, &mut master);
    head.await_movable(&[tid]);
    let name = tid.show(tid.machine()).to_string();
    let mut more = written();
    for words in [
        &["drain", "n1"][..],
        &["move", &name],
        &["drain", "--undo", "n1"],
        &["move", &name, "n1"],
        &["drain", "n1"],
    ] {
        let told = vm(head, words).output().expect("a console");
        assert!(told.status.success(), "{words:?}: {told:?}");
        wait_for("more output", PATIENCE, || (written() > more).then_some(()));
        more = written();
    }
    assert_ne!(master().expect("it runs").1, "n1");
    File::create(&stop).expect("a file");
    let status = wait_for("the end of the run", PATIENCE, || {
        run.try_wait().expect("a child of ours")
    });
    assert_eq!(status.code(), Some(7));
    let text = fs::read_to_string(&out).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let (last, lines) = lines.split_last().expect("lines");
    assert_eq!((*last, text.ends_with("last")), ("last", true));
    for (number, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("line {number} is whole"));
    }
}
