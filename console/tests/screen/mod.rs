//! The program `vm` as a test starts it: alone, or at a terminal with simulated keys.

// Each of the two test programs uses a part of this module.
#![allow(dead_code)]

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

/// Bound on every wait for a terminal.
const LIMIT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// `vm` for the daemon in `dir`, without input.
pub fn vm(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vm"));
    command.arg("--dir").arg(dir).stdin(Stdio::null());
    command
}

/// A child that does not outlive its test.
pub struct Guarded(pub Child);

impl Guarded {
    /// Starts the command.
    pub fn spawn(command: &mut Command) -> Self {
        Guarded(command.spawn().expect("the console starts"))
    }

    /// Sends the child a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Waits for the end of the child.
    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait().expect("a child of ours")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bytes as text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A terminal: the test's end, and an end for a child.
pub fn terminal() -> (OwnedFd, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 33,
        ws_col: 101,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size).unwrap();
    (ours, theirs)
}

/// The person at a terminal: types, and waits for output.
pub struct Screen {
    terminal: File,
    unread: Vec<u8>,
}

impl Screen {
    /// A person at the test's end of the terminal.
    pub fn new(terminal: OwnedFd) -> Self {
        Screen {
            terminal: terminal.into(),
            unread: Vec::new(),
        }
    }

    /// Types keys.
    pub fn type_keys(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text is shown.
    pub fn wait_for(&mut self, shown: &str) {
        loop {
            let found = self
                .unread
                .windows(shown.len())
                .position(|window| window == shown.as_bytes());
            if let Some(start) = found {
                self.unread.drain(..start + shown.len());
                return;
            }
            let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
            let ready = match poll(&mut fds, Some(&LIMIT)) {
                // The process was stopped, and goes on.
                Err(Errno::INTR) => continue,
                ready => ready.unwrap(),
            };
            let seen = String::from_utf8_lossy(&self.unread);
            assert_eq!(ready, 1, "no '{shown}' in {seen:?}");
            let mut buffer = [0; 4096];
            match self.terminal.read(&mut buffer) {
                Ok(count @ 1..) => self.unread.extend_from_slice(&buffer[..count]),
                end => panic!("{end:?} before '{shown}' in {seen:?}"),
            }
        }
    }
}

/// `vm` in the foreground of that terminal, without files of the user.
pub fn vm_on(terminal: &File, dir: &Path, words: &[&str]) -> Guarded {
    vm_with(terminal, dir, words, Path::new(""))
}

/// `vm` in the foreground of that terminal, which begins with the commands in that file.
pub fn vm_with(terminal: &File, dir: &Path, words: &[&str], start_file: &Path) -> Guarded {
    let end = || Stdio::from(terminal.try_clone().unwrap());
    Guarded::spawn(
        Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_vm"), "--dir"])
            .arg(dir)
            .args(words)
            .env("VM_HISTORY", "")
            .env("VM_RC", start_file)
            // Completion needs a terminal that can move the cursor.
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end()),
    )
}
