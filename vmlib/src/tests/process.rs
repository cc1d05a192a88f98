//! The process of a task at its end, and when its daemon dies.
//!
//! Each test runs this test program again, as the task, with what it shall do in a variable.

use super::relay::{PATIENCE, Relay, tid};
use crate::{ANY, STATUS_DAEMON_LOST, init};
use std::{
    process::{Child, Command, Stdio},
    time::Instant,
};
use vm_wire::task::{ENV_SOCKET, ENV_TOKEN};

const ENV_DO: &str = "VMLIB_TEST_DO";
const ENV_ALONE: &str = "VMLIB_TEST_ALONE";

/// Whether this process runs one test alone. See [`run_alone`].
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ENV_ALONE).is_some()
}

/// Runs a test of this program in a process of its own, for a test that changes state of the process
/// which a task has for itself. `false` in that process, which then runs the body of the test.
pub(crate) fn run_alone(test: &str) -> bool {
    if is_alone() {
        return false;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ENV_ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_passed = output.status.success() && said.contains("1 passed");
    assert!(is_passed, "{said}{errors}");
    true
}

/// A process of a test, ended with it.
struct Process(Child);

impl Process {
    /// A task as its daemon would start it.
    fn start(relay: &Relay, what: &str) -> Self {
        Self::spawn(Self::command(relay, what).env(ENV_TOKEN, "1"))
    }

    fn command(relay: &Relay, what: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["tests::process::as_a_task", "--exact", "--nocapture"])
            .env(ENV_DO, what)
            .env(ENV_SOCKET, relay.socket())
            .env_remove(ENV_TOKEN)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn spawn(command: &mut Command) -> Self {
        Process(command.spawn().unwrap())
    }

    fn status(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::yield_now();
        }
        panic!("the process does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: what the processes of the other tests do.
#[test]
fn as_a_task() {
    let Ok(what) = std::env::var(ENV_DO) else {
        return;
    };
    let vm = init().unwrap();
    assert!(init().is_err(), "one process is one task");
    match what.as_str() {
        "exit" => {
            vm.send(vm.tid(), 1, "unread").unwrap();
            std::process::exit(3)
        }
        "leave, then exit" => {
            vm.exit(5).unwrap();
            std::process::exit(6)
        }
        "wait" => {
            vm.send(tid(1), 1, "ready").unwrap();
            let message = vm.recv(ANY, ANY);
            panic!("{message:?}");
        }
        "compute" => {
            vm.send(tid(1), 1, "ready").unwrap();
            loop {
                std::hint::spin_loop();
            }
        }
        what => panic!("{what}"),
    }
}

#[test]
fn a_process_that_ends_leaves_with_its_own_status() {
    let relay = Relay::new();
    assert_eq!(Process::start(&relay, "exit").status(), Some(3));
    assert_eq!(relay.with(|inner| inner.left(tid(1))), Some(3));
}

#[test]
fn a_task_that_has_left_does_not_leave_again() {
    let relay = Relay::new();
    assert_eq!(Process::start(&relay, "leave, then exit").status(), Some(6));
    assert_eq!(relay.with(|inner| inner.left(tid(1))), Some(5));
}

#[test]
fn a_task_ends_when_its_daemon_dies() {
    let relay = Relay::new();
    let watcher = relay.task();
    let mut process = Process::start(&relay, "wait");
    watcher.recv(ANY, 1).unwrap();
    relay.cut(tid(2));
    assert_eq!(process.status(), Some(STATUS_DAEMON_LOST));
    assert_eq!(relay.with(|inner| inner.left(tid(2))), None);
}

#[test]
fn a_master_from_a_shell_ends_with_its_daemon_even_while_it_computes() {
    let relay = Relay::new();
    let watcher = relay.task();
    let mut process = Process::spawn(&mut Process::command(&relay, "compute"));
    watcher.recv(ANY, 1).unwrap();
    relay.interrupt(tid(2), 1);
    relay.cut(tid(2));
    assert_eq!(process.status(), Some(STATUS_DAEMON_LOST));
}

#[test]
fn a_killed_task_has_not_left() {
    let relay = Relay::new();
    let watcher = relay.task();
    let mut process = Process::start(&relay, "wait");
    watcher.recv(ANY, 1).unwrap();
    process.0.kill().unwrap();
    assert_eq!(process.status(), None);
    assert_eq!(relay.with(|inner| inner.left(tid(2))), None);
}
