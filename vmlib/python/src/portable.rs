//! Tasks that give their state as a value, and go on from it on a host of any architecture.
//!
//! The state is an object of Python, which is pickled only when the task is saved.

use crate::{
    call::{call, time as time_limit},
    task::{Received, Task, found, received},
    values,
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};
use serde::{Serialize, Serializer, ser::Error as _};
use serde_bytes::{ByteBuf, Bytes};

/// The state of the program, and the function that pickles it.
struct State {
    object: Py<PyAny>,
    dumps: Py<PyAny>,
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pickled = Python::try_attach(|py| {
            let pickled = self.dumps.call1(py, (&self.object,))?;
            PyResult::Ok(pickled.cast_bound::<PyBytes>(py)?.as_bytes().to_vec())
        });
        match pickled {
            Some(Ok(bytes)) => Bytes::new(&bytes).serialize(serializer),
            Some(Err(error)) => Err(S::Error::custom(error)),
            None => Err(S::Error::custom("the interpreter of the task ends")),
        }
    }
}

/// Makes the task portable. Returns the pickled state that it goes on from; `None` if it is fresh.
///
/// # Errors
/// `vmachine.PortableError`.
#[pyfunction]
pub fn portable<'py>(task: &Bound<'py, Task>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (py, vm) = (task.py(), task.get().handle());
    let begun = call(py, move || vm.portable(|| None::<ByteBuf>))?;
    Ok(begun.state.map(|state| PyBytes::new(py, &state)))
}

/// A point at which `object` is all that the program needs to go on.
///
/// # Errors
/// `vmachine.TaskError`.
#[pyfunction]
pub fn safe_point(task: &Bound<'_, Task>, object: Py<PyAny>, dumps: Py<PyAny>) -> PyResult<()> {
    let (vm, state) = (task.get().handle(), State { object, dumps });
    call(task.py(), move || vm.safe_point(&state))
}

/// Receives at a safe point.
///
/// # Errors
/// As the task's `recv`.
#[pyfunction]
#[pyo3(signature = (task, object, dumps, source, tag))]
pub fn recv_at<'py>(
    task: &Bound<'py, Task>,
    object: Py<PyAny>,
    dumps: Py<PyAny>,
    source: Option<u64>,
    tag: Option<i32>,
) -> PyResult<Received<'py>> {
    let (vm, state) = (task.get().handle(), State { object, dumps });
    let (from, tag) = (values::source(source), values::tag(tag));
    let message = call(task.py(), move || vm.recv_at(&state, from, tag))?;
    received(task.py(), message)
}

/// Waits for a message or an event at a safe point.
///
/// # Errors
/// As the task's `next`.
#[pyfunction]
#[pyo3(signature = (task, object, dumps, source, tag, time))]
pub fn next_at<'py>(
    task: &Bound<'py, Task>,
    object: Py<PyAny>,
    dumps: Py<PyAny>,
    source: Option<u64>,
    tag: Option<i32>,
    time: Option<f64>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (vm, state) = (task.get().handle(), State { object, dumps });
    let (from, tag) = (values::source(source), values::tag(tag));
    let time = time_limit(task.py(), time)?;
    let incoming = call(task.py(), move || vm.next_at(&state, from, tag, time))?;
    found(task.py(), incoming)
}

/// Saves all tasks of the application at a safe point of this one.
///
/// # Errors
/// `vmachine.RefusedError`.
#[pyfunction]
pub fn checkpoint_at<'py>(
    task: &Bound<'py, Task>,
    object: Py<PyAny>,
    dumps: Py<PyAny>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (vm, state) = (task.get().handle(), State { object, dumps });
    let result = call(task.py(), move || vm.checkpoint_at(&state))?;
    values::checkpointed(task.py(), result)
}
