//! The handle of this process in the machine.

use crate::{
    buffers::{Lent, body_of, view_of},
    call::{call, time as time_limit},
    values,
};

use pyo3::{
    prelude::*,
    types::{PyDict, PyMemoryView},
};
use std::sync::{Mutex, PoisonError};
use vmlib::{Incoming, Message, Spawn, Tid};

/// This process as a task of the machine.
#[pyclass(frozen, module = "vmachine._vmachine")]
pub struct Task {
    /// A handle belongs to one thread; each call takes one of its own.
    own: Mutex<vmlib::Task>,
}

/// Makes this process a task of the machine.
///
/// # Errors
/// `vmachine.InitError`.
#[pyfunction]
pub fn init(py: Python<'_>) -> PyResult<Task> {
    let own = call(py, vmlib::init)?;
    Ok(Task {
        own: Mutex::new(own),
    })
}

/// A message as Python gets it: the sender, the tag, the bytes.
pub(crate) type Received<'py> = (u64, i32, Bound<'py, PyMemoryView>);

/// A message for Python.
pub(crate) fn received(py: Python<'_>, message: Message) -> PyResult<Received<'_>> {
    let (from, tag) = (message.from().0, message.tag());
    Ok((from, tag, view_of(py, message.into_bytes())?))
}

/// A message, or an event with the text of its kind first.
pub(crate) fn found(
    py: Python<'_>,
    incoming: Option<Incoming>,
) -> PyResult<Option<Bound<'_, PyAny>>> {
    match incoming {
        Some(Incoming::Message(message)) => {
            let message = received(py, message)?.into_pyobject(py)?;
            Ok(Some(message.into_any()))
        }
        Some(Incoming::Event(event)) => values::event(py, event).map(Some),
        None => Ok(None),
    }
}

impl Task {
    pub(crate) fn handle(&self) -> vmlib::Task {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.clone_handle()
    }
}

/// The identity of this task, and its host.
#[pymethods]
impl Task {
    #[getter]
    fn tid(&self) -> u64 {
        self.handle().tid().0
    }

    #[getter]
    fn parent(&self) -> Option<u64> {
        self.handle().parent().map(|tid| tid.0)
    }

    #[getter]
    fn app(&self) -> u64 {
        self.handle().app().0
    }

    #[getter]
    fn index(&self) -> u32 {
        self.handle().index()
    }

    #[getter]
    fn host(&self) -> u16 {
        self.handle().host().0
    }

    #[getter]
    fn machine(&self) -> u32 {
        self.handle().machine().get()
    }

    fn siblings(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let vm = self.handle();
        call(py, move || vm.siblings()).map(values::numbers)
    }

    fn hosts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let vm = self.handle();
        let hosts = call(py, move || vm.hosts())?.into_iter();
        hosts.map(|host| values::host(py, host)).collect()
    }

    fn exit(&self, py: Python<'_>, status: i32) -> PyResult<()> {
        let vm = self.handle();
        call(py, move || vm.exit(status))
    }

    #[allow(clippy::too_many_arguments)]
    fn spawn(
        &self,
        py: Python<'_>,
        program: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        dir: Option<String>,
        count: u32,
        on: Option<Vec<String>>,
    ) -> PyResult<Vec<u64>> {
        let mut spawn = Spawn::new(program).args(args).count(count);
        for (key, value) in env {
            spawn = spawn.env(key, value);
        }
        if let Some(dir) = dir {
            spawn = spawn.dir(dir);
        }
        spawn = match on {
            Some(hosts) if hosts.len() == 1 => spawn.on(&hosts[0]),
            Some(hosts) => spawn.on_each(hosts),
            None => spawn,
        };
        let vm = self.handle();
        call(py, move || vm.spawn(&spawn)).map(values::numbers)
    }

    fn signal(&self, py: Python<'_>, tid: u64, signal: i32) -> PyResult<()> {
        let vm = self.handle();
        call(py, move || vm.signal(Tid(tid), signal))
    }

    fn send(&self, to: Vec<u64>, tag: i32, body: &Bound<'_, PyAny>) -> PyResult<()> {
        let (vm, to) = (self.handle(), values::tids(&to));
        let bytes = body_of(body)?;
        call(body.py(), move || vm.multicast_bytes(&to, tag, bytes))
    }

    /// `None`: no message has come in time.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        source: Option<u64>,
        tag: Option<i32>,
        time: Option<f64>,
    ) -> PyResult<Option<Received<'py>>> {
        let (from, tag) = (values::source(source), values::tag(tag));
        let (vm, time) = (self.handle(), time_limit(py, time)?);
        let message = call(py, move || match time {
            Some(time) => vm.recv_timeout(from, tag, time),
            None => vm.recv(from, tag).map(Some),
        })?;
        message.map(|message| received(py, message)).transpose()
    }

    /// The sender, the tag and the length; `None`: no message has come in time.
    fn recv_into(
        &self,
        buffer: &Bound<'_, PyAny>,
        source: Option<u64>,
        tag: Option<i32>,
        time: Option<f64>,
    ) -> PyResult<Option<(u64, i32, usize)>> {
        let py = buffer.py();
        let (from, tag) = (values::source(source), values::tag(tag));
        let (vm, time) = (self.handle(), time_limit(py, time)?);
        let mut lent = Lent::new(buffer)?;
        let memory = lent.memory();
        let found = call(py, move || match time {
            Some(time) => vm.recv_into_timeout(from, tag, memory, time),
            None => vm.recv_into(from, tag, memory).map(Some),
        })?;
        Ok(found.map(|it| (it.from.0, it.tag, it.len)))
    }

    fn probe(
        &self,
        py: Python<'_>,
        source: Option<u64>,
        tag: Option<i32>,
    ) -> PyResult<Option<(u64, i32, usize)>> {
        let (from, tag) = (values::source(source), values::tag(tag));
        let vm = self.handle();
        let found = call(py, move || vm.probe(from, tag))?;
        Ok(found.map(|it| (it.from.0, it.tag, it.len)))
    }

    /// A message, or an event with the text of its kind first.
    fn next<'py>(
        &self,
        py: Python<'py>,
        source: Option<u64>,
        tag: Option<i32>,
        time: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (from, tag) = (values::source(source), values::tag(tag));
        let (vm, time) = (self.handle(), time_limit(py, time)?);
        found(py, call(py, move || vm.next(from, tag, time))?)
    }

    fn recv_event<'py>(
        &self,
        py: Python<'py>,
        time: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (vm, time) = (self.handle(), time_limit(py, time)?);
        let event = call(py, move || vm.recv_event(time))?;
        event.map(|event| values::event(py, event)).transpose()
    }

    fn watch_task(&self, py: Python<'_>, tid: u64, on: bool) -> PyResult<()> {
        let vm = self.handle();
        call(py, move || match on {
            true => vm.watch_task(Tid(tid)),
            false => vm.unwatch_task(Tid(tid)),
        })
    }

    fn watch_hosts(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        let vm = self.handle();
        call(py, move || match on {
            true => vm.watch_hosts(),
            false => vm.unwatch_hosts(),
        })
    }

    fn move_task<'py>(
        &self,
        py: Python<'py>,
        tid: u64,
        host: Option<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let vm = self.handle();
        let report = call(py, move || vm.move_task(Tid(tid), host.as_deref()))?;
        values::move_report(py, &report)
    }

    fn can_move(&self, py: Python<'_>, tid: u64) -> PyResult<Vec<String>> {
        let vm = self.handle();
        call(py, move || vm.can_move(Tid(tid)))
    }

    fn drain<'py>(&self, py: Python<'py>, host: String) -> PyResult<Bound<'py, PyDict>> {
        let vm = self.handle();
        let report = call(py, move || vm.drain(&host))?;
        values::drain_report(py, report)
    }

    /// `None`: the process was restored from the checkpoint.
    fn checkpoint<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let vm = self.handle();
        let result = call(py, move || vm.checkpoint())?;
        values::checkpointed(py, result)
    }

    /// `None`: the process was restored from the checkpoint.
    fn suspend<'py>(
        &self,
        py: Python<'py>,
        app: u64,
        time: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (vm, time) = (self.handle(), time_limit(py, time)?);
        let result = call(py, move || vm.suspend(Tid(app), time))?;
        values::checkpointed(py, result)
    }

    fn resume<'py>(&self, py: Python<'py>, app: u64) -> PyResult<Bound<'py, PyDict>> {
        let vm = self.handle();
        let report = call(py, move || vm.resume(Tid(app)))?;
        values::restart_report(py, report)
    }
}
