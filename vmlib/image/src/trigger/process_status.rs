//! The kernel's view of a process whose image is to be requested. The state is read before the
//! signal is sent.

use crate::{
    frozen::signal::{self, TRIGGER},
    trigger::request_error::{LIBRARY, RequestError, not_allowed},
};
use std::fs;

/// The state of a process, from `/proc`.
pub struct ProcessStatus {
    pid: i32,
    pub name: String,
    state: char,
    caught: u64,
    ignored: u64,
    waiting: u64,
    /// The set of blocked signals of each thread.
    blocked: Vec<u64>,
    /// Whether the library is mapped, or the process was started so that it would be.
    has_library: bool,
    /// Whether a loader has loaded the program's libraries.
    has_loader: bool,
}

impl ProcessStatus {
    pub fn at(pid: i32) -> Result<Self, RequestError> {
        let failed = |cause| not_allowed(pid, cause);
        let read = |path: &str| fs::read(format!("/proc/{pid}/{path}"));
        let status = read("status").map_err(failed)?;
        let status = String::from_utf8_lossy(&status).into_owned();
        let mut blocked = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
            // A thread that has just ended has no file.
            if let Ok(status) = thread.and_then(|thread| fs::read(thread.path().join("status"))) {
                blocked.push(set(&String::from_utf8_lossy(&status), "SigBlk"));
            }
        }
        let has = |bytes: &[u8], text: &str| {
            let text = text.as_bytes();
            bytes.windows(text.len()).any(|part| part == text)
        };
        let maps = read("maps").map_err(failed)?;
        // The memory of a restored process has no names of files, so its environment is searched,
        // too.
        let started = read("environ").map_err(failed)?;
        Ok(ProcessStatus {
            pid,
            name: field(&status, "Name").to_owned(),
            state: field(&status, "State").chars().next().unwrap_or('?'),
            caught: set(&status, "SigCgt"),
            ignored: set(&status, "SigIgn"),
            waiting: set(&status, "ShdPnd") | set(&status, "SigPnd"),
            blocked,
            has_library: has(&maps, LIBRARY)
                || has(&started, LIBRARY)
                || has(&started, "VM_IMAGE_FILE="),
            has_loader: has(&maps, "/ld-linux") || has(&maps, "/ld-"),
        })
    }

    /// Whether the process would handle the signal, as far as that shows from outside.
    pub fn check(&self) -> Result<(), RequestError> {
        let bit = signal::bit(TRIGGER);
        let (pid, name) = (self.pid, self.name.clone());
        let does_not_run = |what| {
            let name = self.name.clone();
            Err(RequestError::DoesNotRun { pid, name, what })
        };
        match self.state {
            'Z' | 'X' => return does_not_run("has ended"),
            'T' => return does_not_run("is stopped: continue it first (kill -CONT)"),
            't' => return does_not_run("is stopped by a debugger"),
            _ => {}
        }
        let has_handler = self.caught & bit != 0;
        if !self.has_library && has_handler {
            return Err(RequestError::OwnHandler { pid, name });
        }
        if !has_handler && self.has_library && self.has_loader {
            return does_not_run(match self.ignored & bit != 0 {
                true => "cannot be saved from outside: it ignores signal 61",
                false => {
                    "has no handler for signal 61: it has not begun to run yet, or has taken the \
                     handler away; it was not sent"
                }
            });
        }
        if !has_handler {
            let hint = match self.has_loader {
                true => "Start it with LD_PRELOAD=PATH/libvm_image.so",
                false => {
                    "It is linked statically: link the library into it, and have it save itself"
                }
            };
            return Err(RequestError::NoHandler { pid, name, hint });
        }
        match self.blocked.iter().all(|blocked| blocked & bit != 0) {
            true => Err(RequestError::Blocked { pid, name }),
            false => Ok(()),
        }
    }

    /// Whether the signal is pending.
    pub fn waits(&self) -> bool {
        self.waiting & signal::bit(TRIGGER) != 0
    }
}

/// The value of a line `Name: value` of a status file.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim()
}

/// A set of signals of a status file.
fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(field(status, name), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_would_not_handle_the_signal_is_refused() {
        let mut look = ProcessStatus {
            pid: 1,
            name: "x".to_owned(),
            state: 'S',
            caught: signal::bit(TRIGGER),
            ignored: 0,
            waiting: 0,
            blocked: vec![!0, 0],
            has_library: true,
            has_loader: true,
        };
        let why = |look: &ProcessStatus| look.check().err().map(|error| error.to_string());
        assert_eq!(why(&look), None);
        look.blocked = vec![!0, !0];
        assert!(why(&look).is_some_and(|why| why.contains("block signal 61")));
        look.has_library = false;
        assert!(why(&look).is_some_and(|why| why.contains("handler of its own")));
        look.caught = 0;
        assert!(why(&look).is_some_and(|why| why.contains("LD_PRELOAD")));
        look.has_loader = false;
        assert!(why(&look).is_some_and(|why| why.contains("statically")));
        look.state = 'T';
        assert!(why(&look).is_some_and(|why| why.contains("is stopped")));
    }
}
