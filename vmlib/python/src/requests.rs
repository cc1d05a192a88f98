//! Sends and receives that are started, and completed later.

use crate::{
    buffers::body_of,
    call::call,
    failures::Failure,
    slot::Slot,
    task::{Received, Task, received},
    values,
};
use pyo3::prelude::*;
use vmlib::{Completed, Tid, WaitError};

/// A send or receive that was started.
#[pyclass(frozen, module = "vmachine._vmachine")]
pub struct Request {
    slot: Slot<vmlib::Request>,
}

impl Request {
    fn new(request: vmlib::Request) -> Self {
        Request {
            slot: Slot::new(request),
        }
    }
}

/// Whether it is complete, and the message that was received.
type Result<'py> = (bool, Option<Received<'py>>);

fn result(py: Python<'_>, completed: Option<Completed>) -> PyResult<Result<'_>> {
    let is_complete = completed.is_some();
    let message = completed.and_then(Completed::message);
    let message = message.map(|message| received(py, message)).transpose()?;
    Ok((is_complete, message))
}

#[pymethods]
impl Request {
    #[getter]
    fn is_open(&self) -> bool {
        self.slot.is_open()
    }

    /// Whether the request is complete; does not wait.
    fn test<'py>(&self, py: Python<'py>) -> PyResult<Result<'py>> {
        self.complete(py, vmlib::Request::test)
    }

    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Result<'py>> {
        self.complete(py, |request| request.wait().map(Some))
    }

    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let request = self.slot.borrow().map_err(|error| error.raise(py))?;
        self.slot.put_back(None);
        py.detach(|| request.cancel());
        Ok(())
    }
}

impl Request {
    fn complete<'py>(
        &self,
        py: Python<'py>,
        complete: impl FnOnce(&mut vmlib::Request) -> std::result::Result<Option<Completed>, WaitError>
        + Send,
    ) -> PyResult<Result<'py>> {
        let mut request = self.slot.borrow().map_err(|error| error.raise(py))?;
        let own = &mut request;
        let completed = call(py, move || complete(own));
        self.slot.put_back(request.is_open().then_some(request));
        result(py, completed?)
    }
}

/// Several requests in one call.
struct Borrowed<'a> {
    slots: Vec<&'a Slot<vmlib::Request>>,
    requests: Vec<vmlib::Request>,
}

impl<'a> Borrowed<'a> {
    /// Those that are open, with their places in `requests`.
    fn from(requests: &'a [Py<Request>]) -> std::result::Result<(Self, Vec<usize>), Failure> {
        let mut borrowed = Borrowed {
            slots: Vec::new(),
            requests: Vec::new(),
        };
        let mut places = Vec::new();
        for (place, request) in requests.iter().enumerate() {
            let slot = &request.get().slot;
            if slot.is_open() {
                borrowed.requests.push(slot.borrow()?);
                borrowed.slots.push(slot);
                places.push(place);
            }
        }
        Ok((borrowed, places))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        for (slot, request) in self.slots.iter().zip(self.requests.drain(..)) {
            slot.put_back(request.is_open().then_some(request));
        }
    }
}

/// Starts to send bytes to a task.
///
/// # Errors
/// `vmachine.SendError`, `vmachine.TooManyRequestsError`.
#[pyfunction]
pub fn start_send(
    task: &Bound<'_, Task>,
    to: u64,
    tag: i32,
    body: &Bound<'_, PyAny>,
) -> PyResult<Request> {
    let bytes = body_of(body)?;
    let vm = task.get().handle();
    call(task.py(), move || vm.start_send_bytes(Tid(to), tag, bytes)).map(Request::new)
}

/// Starts to receive.
///
/// # Errors
/// `vmachine.TooManyRequestsError`.
#[pyfunction]
#[pyo3(signature = (task, source, tag))]
pub fn start_recv(
    task: &Bound<'_, Task>,
    source: Option<u64>,
    tag: Option<i32>,
) -> PyResult<Request> {
    let (from, tag) = (values::source(source), values::tag(tag));
    let vm = task.get().handle();
    call(task.py(), move || vm.start_recv(from, tag)).map(Request::new)
}

/// The place of a request, and the message of a receive.
type Placed<'py> = (usize, Option<Received<'py>>);

/// The first complete request of several; `None` if none is open.
///
/// # Errors
/// Those of a request that cannot be completed.
#[pyfunction]
pub fn wait_any<'py>(
    task: &Bound<'py, Task>,
    requests: Vec<Py<Request>>,
) -> PyResult<Option<Placed<'py>>> {
    let (py, vm) = (task.py(), task.get().handle());
    let (mut open, places) = Borrowed::from(&requests).map_err(|error| error.raise(py))?;
    let all = &mut open.requests;
    let Some((index, completed)) = call(py, move || vm.wait_any(all))? else {
        return Ok(None);
    };
    let (_, message) = result(py, Some(completed))?;
    Ok(Some((places[index], message)))
}

/// Those requests of several that were open, once all are complete.
///
/// # Errors
/// Those of a request that cannot be completed.
#[pyfunction]
pub fn wait_all<'py>(
    task: &Bound<'py, Task>,
    requests: Vec<Py<Request>>,
) -> PyResult<Vec<Placed<'py>>> {
    let (py, vm) = (task.py(), task.get().handle());
    let (mut open, places) = Borrowed::from(&requests).map_err(|error| error.raise(py))?;
    let all = &mut open.requests;
    let completed = call(py, move || vm.wait_all(all))?;
    let each = places.into_iter().zip(completed);
    each.map(|(place, completed)| Ok((place, result(py, Some(completed))?.1)))
        .collect()
}
