//! The maker of a request that the daemon of another host may answer.

use vm_wire::{Tid, console::WindowSize};

/// The maker of a request, which is told the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    /// A console, with its number of the request.
    Console(crate::ConnId, u64),
    /// A task, which may have moved since.
    Task {
        /// The task.
        tid: Tid,
        /// The generation of its application at the request.
        generation: u32,
        /// Its number of the request.
        request: u64,
    },
    /// The drain of this host: a task is to leave.
    Drain,
    /// The policy of that application: a checkpoint is due.
    Policy(Tid),
    /// The recovery of that application, in that generation.
    Recovery(Tid, u32),
    /// The drain of this host, which saves that application first.
    DrainSave(Tid),
    /// The drain of this host, which suspends that application because a task of it cannot leave.
    DrainSuspend(Tid),
    /// This daemon, which resumes that suspended application, in that generation.
    Resume(Tid, u32),
}

/// A request of a console to run a program.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct RunAsked {
    /// The terminal of the console, if the master shall have one.
    pub terminal: Option<WindowSize>,
}
