//! A daemon as a process, and the requests of a test to it.

#![allow(dead_code, missing_docs)] // Each test uses its part of this.

pub mod console;

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use vm_wire::{
    Frame, FrameReader, Message, Op,
    console::{Answer, Request},
    place,
};

/// Bound on every wait of these tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon in a folder of its own; killed at the latest with the test.
pub struct Daemon {
    pub process: Child,
    pub temp: TempDir,
    log: mpsc::Receiver<String>,
}

impl Daemon {
    pub fn command(dir: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmd"));
        command
            .args(["--listen", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .env_remove("VM_SECRET")
            .stdin(Stdio::null());
        command
    }

    pub fn start() -> Daemon {
        Daemon::start_in(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn start_in(temp: TempDir) -> Daemon {
        Daemon::start_with(temp, |command| {
            command.args(["--name", "lone"]);
        })
    }

    /// A daemon of the same machine, with the name given, changed as `change` says.
    pub fn start_joined(&self, name: &str, change: impl FnOnce(&mut Command)) -> Daemon {
        let address = self.address().expect("listening");
        let secret = self.dir().join(place::SECRET_FILE);
        let temp = tempfile::tempdir().expect("a temporary folder");
        Daemon::start_with(temp, |command| {
            command.args(["--name", name, "--join", &address]);
            command.arg("--secret-file").arg(secret);
            change(command);
        })
    }

    pub fn start_with(temp: TempDir, change: impl FnOnce(&mut Command)) -> Daemon {
        Daemon::start_as(temp, |mut command| {
            change(&mut command);
            command
        })
    }

    /// A daemon that runs in the place of another command, which `change` makes.
    pub fn start_as(temp: TempDir, change: impl FnOnce(Command) -> Command) -> Daemon {
        let mut command = change(Daemon::command(&temp.path().join("vm")));
        let mut process = command.stderr(Stdio::piped()).spawn().expect("vmd starts");
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

    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("vm")
    }

    pub fn address(&self) -> Option<String> {
        let text = fs::read_to_string(self.dir().join("address")).ok()?;
        Some(text.trim().to_owned())
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(place::socket(&self.dir())).expect("the daemon listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    pub fn connect_as_peer(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address().expect("listening")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }

    /// Waits for a log line that contains `text`.
    pub fn wait_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        let mut seen = String::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) if line.contains(text) => return,
                Ok(line) => seen = seen + &line + "\n",
                Err(error) => panic!("'{text}' is not in the log ({error}):\n{seen}"),
            }
        }
    }

    /// Number of the remaining log lines that contain `text`. To be called after the daemon has
    /// ended.
    pub fn count_log(&self, text: &str) -> usize {
        self.log.iter().filter(|line| line.contains(text)).count()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.process.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    pub fn wait_end(&mut self) -> ExitStatus {
        wait_for("the daemon's end", || {
            self.process.try_wait().expect("it is our child")
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        wait_free(&self.dir());
    }
}

/// Waits until neither a daemon nor its guardian has the folder, for a limited time. It does not
/// panic: it also runs when a test fails.
pub fn wait_free(dir: &Path) {
    let end = Instant::now() + PATIENCE;
    let folder = File::open(dir);
    let has = |folder: &File| matches!(folder.try_lock(), Err(TryLockError::WouldBlock));
    while folder.as_ref().is_ok_and(has) && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "no sign of {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn send(stream: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.write_to(&mut bytes);
    stream.write_all(&bytes)
}

/// The next frame, or `None` at the end of the stream.
pub fn receive(stream: &mut impl Read) -> Option<Frame> {
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

/// Numbers requests: a request with the number of an earlier one would count as a repetition.
static ASKED: AtomicU64 = AtomicU64::new(0);

pub fn ask(stream: &mut UnixStream, request: &Request) -> Answer {
    let number = ASKED.fetch_add(1, Ordering::Relaxed) + 1;
    send(stream, &request.frame().asked(number)).expect("sent");
    let frame = receive(stream).expect("an answer");
    let answers = (frame.header.op, frame.header.request);
    assert_eq!(answers, (Op::ConsoleAnswer, number));
    Answer::read(&frame).expect("an answer")
}
