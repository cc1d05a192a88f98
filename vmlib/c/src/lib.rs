//! The task library for C, C++ and Fortran: the functions that `include/vm.h` declares.
//!
//! Each function is a call of [`vmlib`] with the manners of a C library: it checks its arguments,
//! returns a code ([`code`]), and leaves the words about its failure in [`error`] for
//! `vm_last_error`. A panic of the library ends at this border as `VM_EINTERNAL`.
//!
//! A handle is no address but a number in the form of a pointer, which [`handle`] looks up. So a
//! handle that was freed, or is of another kind, is an error and never a crash, and every thread may
//! use every handle. A call takes what it needs out of the table, and waits without the table's lock.
//!
//! Arguments that are addresses have the types of [`border`], where the `unsafe` code is: these
//! types alone read and write the memory of the program. The attribute `unsafe(no_mangle)`, which
//! exports a function, stands in all files.

pub mod fortran;
pub mod header;
pub mod man;

mod border;
mod code;
mod error;
mod failures;
mod forked;
mod handle;
mod interruption;
mod number;
mod select;

mod tid;

mod hosts;
mod spawn;
mod task;

mod message;
mod receive;
mod send;

mod events;

mod requests;

mod blocks;
mod exchanges;
mod groups;
mod reductions;

mod around_saves;
mod checkpoints;
mod moves;
