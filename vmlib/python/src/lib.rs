//! The task library for Python: the extension module `vmachine._vmachine`.
//!
//! The package `vmachine` has two parts. This module makes the calls of [`vmlib`] with plain values: task
//! ids are integers, bodies are bytes, absent values are `None`. The Python sources beside it
//! (`vmlib/python/vmachine`) are the interface of users: they pickle objects, check arrays, and give
//! values their types.
//!
//! - `call`: every call that may wait releases the interpreter, and is left when the user interrupts the
//!   program.
//! - `buffers`: memory that Python and the library share; the only `unsafe` code.
//! - `slot`: a handle that one call uses at a time, so that two threads never share one.
//! - `failures`: errors of the library become exceptions of `vmachine.errors`, with their values as
//!   attributes.

mod buffers;
mod call;
mod failures;
mod group;
mod portable;
mod requests;
mod saves;
mod slot;
mod task;
mod values;

use pyo3::prelude::*;

/// The calls of the task library, for the package `vmachine`.
#[pymodule]
mod _vmachine {
    #[pymodule_export]
    use crate::{
        buffers::Body,
        call::forked,
        group::{Group, join, members},
        portable::{checkpoint_at, next_at, portable, recv_at, safe_point},
        requests::{Request, start_recv, start_send, wait_all, wait_any},
        saves::around_saves,
        task::{Task, init},
    };
}
