//! Processes. This folder owns the children of the daemon: how a task's process is started, what its
//! standard streams carry, how it ends; the processes of coordinators; the guardian; the kernel's
//! timer that enforces the lease; and what the kernel says of processes and memory.

pub mod coordinators;
pub mod format;
pub mod guardian;
pub mod launches;
pub mod lease;
pub mod lines;
pub mod portable;
pub mod processes;
pub mod program;
pub mod signals;
pub mod spare;
pub mod spawn;
pub mod starter;
pub mod streams;
pub mod tokens;
pub mod usage;
