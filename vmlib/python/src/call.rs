//! Calls of the library from Python.

use crate::failures::Failure;
use pyo3::prelude::*;
use std::{cell::RefCell, time::Duration};

/// Longest wait that is told to the library. Seconds: a hundred years.
const SECONDS_MAX: f64 = 3.2e9;

thread_local! {
    /// The exception for which this thread has left a call.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Makes a call of the library. Meanwhile other threads of the program run, and handlers of signals are
/// called: an exception of a handler, such as `KeyboardInterrupt`, ends the call.
pub(crate) fn call<T, E>(py: Python<'_>, make: impl FnOnce() -> Result<T, E> + Send) -> PyResult<T>
where
    T: Send,
    E: Into<Failure> + Send,
{
    let result = py.detach(|| vmlib::interruptible(raises, make));
    match (result, RAISED.take()) {
        (_, Some(raised)) => Err(raised),
        (Ok(value), None) => Ok(value),
        (Err(error), None) => Err(error.into().raise(py)),
    }
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
