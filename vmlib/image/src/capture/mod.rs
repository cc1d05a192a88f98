//! Reads the state of this process: `/proc`, mappings and pages, open files and locks, signals,
//! timers, credentials, and the registers of all threads, which are stopped for that.
//!
//! Each module owns one kind of state: how the state is read, which of it is refused and, where a
//! few system calls suffice, how the state is set in the restored process. Nothing here writes an
//! image.

// The files of `/proc/self`, and the kernel's own mappings.
pub mod proc;
pub mod vdso;

// Memory.
pub mod droppable;
pub mod guards;
pub mod mappings;
pub mod memory;
pub mod memory_advice;
pub mod names;
pub mod pages;
pub mod written_pages;

// Open files.
pub mod file_content;
pub mod file_locks;
pub mod files;
pub mod kernel_files;
pub mod socket;
pub mod terminal;

// Threads: their registers, signals and processors.
pub mod affinity;
pub mod blocked_signals;
pub mod rseq;
pub mod stop;
pub mod thread;
pub mod thread_signals;

// The process as a whole.
pub mod cpu_clocks;
pub mod credentials;
pub mod facts;
pub mod kernel_settings;
pub mod limits;
pub mod process;
pub mod program;
pub mod refusals;
