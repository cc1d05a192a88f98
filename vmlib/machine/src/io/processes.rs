//! The processes of tasks and coordinators on this host: events and orders.

use super::connection::ConnId;
use vm_wire::{Tid, agreed::ExitStatus, console::WindowSize, peer::UsageRow, task::Failed};

/// An event of a process on this host.
#[derive(Debug)]
pub enum ProcessInput {
    /// A task's process has ended and its captured output was read to the end.
    Ended(Tid, ExitStatus),
    /// `ProcessOutput::Launch` failed.
    LaunchFailed(Tid, Failed),
    /// `ProcessOutput::Launch` succeeded.
    Launched(Tid, u32),
    /// A task wrote output: whole lines, or raw bytes for a master with a console.
    Output {
        /// The task.
        tid: Tid,
        /// 1: standard output, 2: standard error.
        stream: u8,
        /// The output, at most about `LINE_MAX` bytes.
        bytes: Vec<u8>,
    },
    /// Reply to `ProcessOutput::MeasureUsage`.
    Usage(u64, Vec<UsageRow>),
    /// Reply to `ProcessOutput::FindProgram`: the absolute path of the program.
    ProgramFound(u64, Result<String, Failed>),
    /// A signal stopped the process of a task (`true`), or the process continues (`false`).
    Stopped(Tid, bool),
    /// The process of a coordinator has ended, or could not be started.
    CoordinatorGone(u64),
}

/// An order about a process on this host.
#[derive(Debug)]
pub enum ProcessOutput {
    /// Find a program in the program path. `ProgramFound` with that number follows.
    FindProgram {
        /// Number of the reply.
        question: u64,
        /// The name or path that the user gave.
        program: String,
        /// The working directory for a relative path.
        dir: Option<String>,
    },
    /// Start a process; `Launched` or `LaunchFailed` follows.
    Launch(Box<LaunchSpec>),
    /// Watch the process of a task that a user has started, and not the daemon.
    Adopt(Tid, u32),
    /// Send a signal to the process of a task, or to its process group.
    Signal(Tid, i32),
    /// Bytes for the standard input of a task; empty: end of file.
    StandardInput(Tid, Vec<u8>),
    /// The size of a task's terminal has changed.
    Resize(Tid, WindowSize),
    /// The standard input of this task comes from that console. While the task does not read it, do
    /// not read the console. Ends when either of the two ends.
    Attach(ConnId, Tid),
    /// Start the process of a coordinator, with that number.
    StartCoordinator {
        /// A number that is never reused.
        number: u64,
        /// The application.
        app: Tid,
    },
    /// Close the socket of a coordinator, end its process, and report no end.
    EndCoordinator(u64),
    /// Stop reading the output of a task, so that the task waits when its pipe is full.
    PauseOutput(Tid),
    /// Read the output of a task again.
    ResumeOutput(Tid),
    /// Output of a task that has no console: write it to the log.
    LogOutput(Tid, u8, Vec<u8>),
    /// Measure the usage of the tasks on this host. `Usage` with that number follows.
    MeasureUsage(u64),
}

/// The data from which the shell starts the process of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The task.
    pub tid: Tid,
    /// The token in the environment with which the process enrols.
    pub token: u64,
    /// Absolute path, from `FindProgram`.
    pub program: String,
    /// Arguments after the name.
    pub args: Vec<String>,
    /// Variables in addition to the daemon's environment.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub dir: Option<String>,
    /// For a master run from a console, whose standard input is open: the size of its terminal, if
    /// it has one. `None`: no console.
    pub console: Option<Option<WindowSize>>,
}
