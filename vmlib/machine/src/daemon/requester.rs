//! The maker of a request that the daemon of another host may answer.

use vm_wire::{Tid, console::WindowSize};

/// Whose wish it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveAsker {
    /// A console's, by its number.
    Console(crate::ConnId, u64),
    /// A task's, in that life of its application, by its number. It may have moved since.
    Task {
        tid: Tid,
        generation: u32,
        request: u64,
    },
    /// This host's own, whose tasks are to leave.
    Drain,
    /// This daemon's own, since that application's policy says so.
    Policy(Tid),
    /// This daemon's own, since that application goes back, in that generation.
    Recovery(Tid, u32),
    /// This host's own, which is to drain when that application is saved.
    DrainSave(Tid),
    /// This host's own, which drains and from which a task of that application cannot leave.
    DrainSuspend(Tid),
    /// This daemon's own, since there is room for that application, which is suspended under that
    /// number.
    Resume(Tid, u32),
}

/// A request of a console to run a program.
#[derive(Debug, Clone, Copy)]
pub(in crate::daemon) struct RunAsked {
    /// The terminal of the console, if the master shall have one.
    pub terminal: Option<WindowSize>,
}
