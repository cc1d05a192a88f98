//! The event loop: one turn takes readiness and input from the system, lets the state machine make
//! its steps, and carries out the outputs as system calls. This folder owns the daemon's state
//! machine, the order of work within a turn, and the threads for jobs that may wait for a disk.

mod shell;

mod read;

mod perform;

pub mod turns;

pub mod jobs;

pub use shell::{EventLoop, Parts};
