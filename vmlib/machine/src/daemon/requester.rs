//! The maker of a request, and the terms of a console's request to run a program.

use vm_wire::{Tid, console::WindowSize};

/// The console, task or subsystem that made a request and gets the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requester {
    /// A console, and the number of its request.
    Console(crate::ConnId, u64),
    /// A task, which may have moved since the request.
    Task {
        tid: Tid,
        /// The generation of its application at the time of the request.
        generation: u32,
        /// Number of the request.
        request: u64,
    },
    /// The drain of this host, which moves a task.
    Drain,
    /// The policy of that application, which makes a checkpoint.
    Policy(Tid),
    /// The recovery of that application, in that generation.
    Recovery(Tid, u32),
    /// The drain of this host, which makes a checkpoint of that application first.
    DrainSave(Tid),
    /// The drain of this host, which suspends that application because a task of it cannot leave.
    DrainSuspend(Tid),
    /// This daemon, which resumes that suspended application, in that generation.
    Resume(Tid, u32),
}

/// A request of a console to run a program.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct RunAsked {
    /// The size of the console's terminal, if the master gets one.
    pub terminal: Option<WindowSize>,
}
