//! One daemon alone, as a process: what it says to a console, what it refuses, and that nothing is
//! left of it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use vm_wire::{
    Frame, FrameReader, HostId, Message, Op,
    console::{Answer, Request},
    place,
    version::Offer,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon in a folder of its own; killed at the latest with the test.
struct Daemon {
    process: Child,
    temp: TempDir,
    log: mpsc::Receiver<String>,
}

impl Daemon {
    fn command(dir: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmd"));
        command
            .args(["--name", "lone", "--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .env_remove("VM_SECRET")
            .stdin(Stdio::null());
        command
    }

    fn start() -> Daemon {
        Daemon::start_in(tempfile::tempdir().expect("a temporary folder"))
    }

    fn start_in(temp: TempDir) -> Daemon {
        let mut process = Daemon::command(&temp.path().join("vm"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("vmd starts");
        let stderr = process.stderr.take().expect("piped");
        let (lines, log) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = lines.send(line);
            }
        });
        let daemon = Daemon { process, temp, log };
        wait_for("the daemon's address", || daemon.address());
        daemon
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("vm")
    }

    fn address(&self) -> Option<String> {
        let text = fs::read_to_string(self.dir().join("address")).ok()?;
        Some(text.trim().to_owned())
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(place::socket(&self.dir())).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    fn connect_as_peer(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address().expect("listening")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Waits for a line of the log with that text.
    fn wait_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) if line.contains(text) => return,
                Ok(_) => {}
                Err(error) => panic!("'{text}' is not in the log: {error}"),
            }
        }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.process.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    fn wait_end(&mut self) -> ExitStatus {
        wait_for("the daemon's end", || {
            self.process.try_wait().expect("it is our child")
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "no sign of {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(stream: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.write_to(&mut bytes);
    stream.write_all(&bytes)
}

/// The next frame, or `None` at the end of the stream.
fn receive(stream: &mut impl Read) -> Option<Frame> {
    let mut reader = FrameReader::new();
    loop {
        if let Some(frame) = reader.next_frame().expect("good frames") {
            return Some(frame);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => reader.push(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("the daemon is silent: {error}"),
        }
    }
}

fn ask(stream: &mut UnixStream, request: &Request) -> Answer {
    send(stream, &request.frame().asked(7)).expect("sent");
    let frame = receive(stream).expect("an answer");
    assert_eq!(
        (frame.header.op, frame.header.request),
        (Op::ConsoleAnswer, 7)
    );
    Answer::read(&frame).expect("an answer")
}

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
    // A frame that is no first frame.
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
    // It may be reset, too; what counts is that it ends.
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.len() <= 3, "an alert at most: {answer:?}");
    daemon.wait_log("does not speak this protocol");
    daemon.wait_log("did not prove in time");
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
fn a_joiner_with_another_secret_is_refused_and_told() {
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
fn a_joiner_without_a_secret_is_told_what_to_do() {
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
