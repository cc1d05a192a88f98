//! The program `vm` as a test starts it: by itself, or at a terminal where a person types.

// Each of the two test programs uses a part of it.
#![allow(dead_code)]

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
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

/// No wait for a terminal lasts longer.
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
    /// Starts it.
    pub fn spawn(command: &mut Command) -> Self {
        Guarded(command.spawn().expect("the console starts"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Waits for its end.
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

/// What was written, which has to be text.
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A terminal: our end, and one to give to a child.
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

/// What a person does at a terminal: types, and waits until something is shown.
pub struct Screen {
    terminal: File,
    unread: Vec<u8>,
}

impl Screen {
    /// The person at our end.
    pub fn new(terminal: OwnedFd) -> Self {
        Screen {
            terminal: terminal.into(),
            unread: Vec::new(),
        }
    }

    /// Types.
    pub fn type_keys(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown.
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
            let ready = poll(&mut fds, Some(&LIMIT)).unwrap();
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

/// `vm` in the foreground of that terminal.
pub fn vm_on(terminal: &File, dir: &Path, words: &[&str]) -> Guarded {
    let end = || Stdio::from(terminal.try_clone().unwrap());
    Guarded::spawn(
        Command::new("setsid")
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_vm"), "--dir"])
            .arg(dir)
            .args(words)
            .env("VM_HISTORY", "")
            // Completion needs a terminal that can move the cursor.
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end()),
    )
}
