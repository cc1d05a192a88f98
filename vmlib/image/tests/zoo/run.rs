//! Runs processes with a time limit, and ends them in any case.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The time limit for the next output of a process.
const LIMIT: Duration = Duration::from_secs(60);
/// A user without rights.
const NOBODY: u32 = 65534;

/// The user that runs a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user of the tests.
    Same,
    /// A user without any capability.
    Ordinary,
}

/// A running process, which is killed when the value is dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    output: String,
}

/// The status and the output of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
}

impl Ended {
    /// Whether the process succeeded and its output is `wanted`, except for notes.
    pub fn is_well(&self, wanted: &str) -> bool {
        let (notes, rest): (Vec<_>, Vec<_>) = self
            .output
            .lines()
            .partition(|line| line.starts_with("note: "));
        notes.iter().for_each(|note| println!("{note}"));
        self.status.success() && self.errors.is_empty() && rest == Vec::from_iter(wanted.lines())
    }
}

/// Starts a process that has only the standard descriptors.
pub fn start(command: &mut Command, user: User) -> Running {
    start_with(command, user, Stdio::null())
}

/// As [`start`], with this standard input.
pub fn start_with(command: &mut Command, user: User, input: Stdio) -> Running {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: bare system calls between fork and exec.
    unsafe { command.pre_exec(move || prepare(user)) };
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (give, lines) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout.expect("a pipe"));
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
            if give.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        // A failed read ends the errors at what was read.
        let _ = stderr.take().expect("a pipe").read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    Running {
        child,
        lines,
        errors: Some(errors),
        output: String::new(),
    }
}

fn prepare(user: User) -> std::io::Result<()> {
    let check = |value: i64| match value {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: each call concerns this new process alone.
    unsafe {
        // A save refuses descriptors that lead to other processes.
        check(libc::close_range(3, !0, libc::CLOSE_RANGE_CLOEXEC as i32).into())?;
        if user == User::Ordinary {
            check(libc::setgroups(0, std::ptr::null()).into())?;
            check(libc::setresgid(NOBODY, NOBODY, NOBODY).into())?;
            check(libc::setresuid(NOBODY, NOBODY, NOBODY).into())?;
        }
        // Ends the process if the tests are killed.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())
    }
}

impl Running {
    /// The next line of output; `None` at the end of the output.
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => {
                self.output.push_str(&line);
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("nothing within {LIMIT:?}, after '{}'", self.output)
            }
        }
    }

    /// Writes a line to its standard input, which is a pipe.
    pub fn say(&mut self, line: &str) {
        let mut input = self.child.stdin.as_ref().expect("a pipe");
        writeln!(input, "{line}").expect("it reads");
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child was not waited for, so the number is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Whether the standard output of the process has ended.
    pub fn has_said_all(&mut self) -> bool {
        loop {
            match self.lines.try_recv() {
                Ok(line) => self.output.push_str(&line),
                Err(error) => return error == TryRecvError::Disconnected,
            }
        }
    }

    /// Closes the input of the process, and waits for its end.
    pub fn end(mut self) -> Ended {
        // It is told no more.
        drop(self.child.stdin.take());
        while self.line().is_some() {}
        let status = self.child.wait().expect("it ends");
        let errors = self.errors.take().expect("waited for once");
        Ended {
            status,
            output: std::mem::take(&mut self.output),
            errors: errors.join().expect("a reader"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of this build, which has the shared library.
pub fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this test has a path");
    own.parent().expect("it is in a folder").to_path_buf()
}

/// The program with the Rust programs of the zoo.
pub fn zoo() -> PathBuf {
    example("zoo")
}

/// The program of an example.
pub fn example(name: &str) -> PathBuf {
    let path = built().join("../examples").join(name);
    assert!(
        path.exists(),
        "build it first: cargo build -p vm-image --example {name}"
    );
    path
}

/// The command that restores the process of an image.
pub fn restore(image: &Path) -> Command {
    let mut command = Command::new(zoo());
    command.arg("restore").arg(image);
    command
}

/// A folder that all users may write to.
pub fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    open_to_all(folder.path());
    folder
}

/// Lets all users write to a folder.
pub fn open_to_all(folder: &Path) {
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder, all).expect("it is our own");
}

/// Whether any user can execute a program at this path.
pub fn is_reachable(path: &Path) -> bool {
    let path = std::fs::canonicalize(path).expect("it is there");
    use std::os::unix::fs::MetadataExt as _;
    path.ancestors()
        .all(|part| std::fs::metadata(part).is_ok_and(|found| found.mode() & 0o001 != 0))
}
