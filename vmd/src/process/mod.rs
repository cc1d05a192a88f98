//! Processes. This folder owns the children of the daemon: how a task's process is started, what its
//! standard streams carry, how it ends; the processes of coordinators; the guardian; the kernel's
//! timer that enforces the lease; and what the kernel says of processes and memory.

pub mod usage;

pub mod spare;

pub mod signals;

pub mod lease;

pub mod format;
pub mod program;

pub mod portable;

pub mod lines;
pub mod streams;

pub mod starter;

pub mod helper_job;

pub mod helper;

pub mod vfork;

pub mod spawn;

pub mod launches;
pub mod tokens;

pub mod guardian;
pub mod processes;

pub mod coordinators;
