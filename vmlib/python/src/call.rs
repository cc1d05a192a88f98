//! Calls of the library from Python.

use crate::failures::Failure;
use pyo3::prelude::*;
use std::{
    cell::{Cell, RefCell},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

/// Longest wait that is told to the library. Seconds: a hundred years.
const SECONDS_MAX: f64 = 3.2e9;

thread_local! {
    /// The exception for which this thread has left a call.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether this is Python's main thread, which alone calls handlers of signals.
    static IS_MAIN: Cell<Option<bool>> = const { Cell::new(None) };
}

/// This process was forked from a task.
static FORKED: AtomicBool = AtomicBool::new(false);

/// In a forked child: it has the sockets of its parent, and must not use them.
#[pyfunction]
pub fn forked() {
    FORKED.store(true, Relaxed);
}

/// Makes a call of the library. Meanwhile other threads of the program run, and handlers of signals are
/// called: an exception of a handler, such as `KeyboardInterrupt`, ends the call.
pub(crate) fn call<T, E>(py: Python<'_>, make: impl FnOnce() -> Result<T, E> + Send) -> PyResult<T>
where
    T: Send,
    E: Into<Failure> + Send,
{
    if FORKED.load(Relaxed) {
        let text = "this process was forked from a task, and is none: start tasks with `spawn`, or use a pool";
        return Err(Failure::forked(text).raise(py));
    }
    // Other threads look again as often, for messages of this task to itself.
    let leave = match handles_signals(py)? {
        true => raises,
        false => never,
    };
    let result = py.detach(|| vmlib::interruptible(leave, make));
    match (result, RAISED.take()) {
        (_, Some(raised)) => Err(raised),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(error.into().raise(py)),
    }
}

/// Whether this thread calls the handlers of signals.
fn handles_signals(py: Python<'_>) -> PyResult<bool> {
    if let Some(is_main) = IS_MAIN.get() {
        return Ok(is_main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    IS_MAIN.set(Some(is_main));
    Ok(is_main)
}

fn never() -> bool {
    false
}

/// Calls the handlers of signals that have come. Whether one of them has raised an exception.
fn raises() -> bool {
    match Python::try_attach(|py| py.check_signals()) {
        Some(Ok(())) => false,
        Some(Err(raised)) => {
            // The call fails now, whatever it has reached.
            RAISED.set(Some(raised));
            true
        }
        // The interpreter ends.
        None => true,
    }
}

/// A time limit in seconds.
pub(crate) fn time(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds.is_nan() => {
            Err(Failure::value("a time limit is a number of seconds, not NaN").raise(py))
        }
        seconds => Ok(seconds.map(|it| Duration::from_secs_f64(it.clamp(0.0, SECONDS_MAX)))),
    }
}
