//! Values of the library as plain values of Python, and back.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use vmlib::{
    ANY, CheckpointReport, Checkpointed, DrainReport, Event, ExitStatus, Host, MoveReport,
    RestartReport, Source, Tag, Tid,
};

/// `None` selects every source.
pub(crate) fn source(source: Option<u64>) -> Source {
    source.map_or(ANY.into(), |tid| Tid(tid).into())
}

/// `None` selects every tag.
pub(crate) fn tag(tag: Option<i32>) -> Tag {
    tag.map_or(ANY.into(), Into::into)
}

pub(crate) fn tids(tids: &[u64]) -> Vec<Tid> {
    tids.iter().copied().map(Tid).collect()
}

pub(crate) fn numbers(tids: impl IntoIterator<Item = Tid>) -> Vec<u64> {
    tids.into_iter().map(|tid| tid.0).collect()
}

/// The way in which a task ended: its kind, its number if it has one, and its text.
pub(crate) fn status(status: ExitStatus) -> (&'static str, Option<i32>, String) {
    let (kind, number) = match status {
        ExitStatus::Left(number) => ("left", Some(number)),
        ExitStatus::Code(number) => ("code", Some(number)),
        ExitStatus::Signal(number) => ("signal", Some(number)),
        ExitStatus::NotStarted => ("not-started", None),
        ExitStatus::HostLost => ("host-lost", None),
        ExitStatus::Suspended => ("suspended", None),
        ExitStatus::RolledBack => ("rolled-back", None),
        ExitStatus::Unknown => ("unknown", None),
    };
    (kind, number, status.to_string())
}

/// An event: its kind, and the values of that kind.
pub(crate) fn event(py: Python<'_>, event: Event) -> PyResult<Bound<'_, PyAny>> {
    let event = match event {
        Event::TaskEnded { tid, status: how } => {
            ("task-ended", tid.0, status(how)).into_pyobject(py)?
        }
        Event::HostAdded { host, name } => ("host-added", host.0, name).into_pyobject(py)?,
        Event::HostDeleted { host, name } => ("host-deleted", host.0, name).into_pyobject(py)?,
    };
    Ok(event.into_any())
}

/// A dictionary with these names.
macro_rules! dict {
    ($py:expr, { $($name:ident : $value:expr),* $(,)? }) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $value)?;)*
        Ok(dict)
    }};
}

pub(crate) fn host(py: Python<'_>, host: Host) -> PyResult<Bound<'_, PyDict>> {
    let Host { id, facts, tasks } = host;
    dict!(py, {
        id: id.0,
        name: facts.name,
        addr: facts.addr,
        cpus: facts.cpus,
        tasks_max: facts.tasks_max,
        arch: facts.arch,
        tasks: tasks,
    })
}

pub(crate) fn move_report<'py>(
    py: Python<'py>,
    report: &MoveReport,
) -> PyResult<Bound<'py, PyDict>> {
    dict!(py, {
        source: report.from.0,
        target: report.to.0,
        bytes: report.bytes,
        copied: report.copied,
        rounds: report.rounds,
        freeze: seconds(report.freeze_us()),
        total: seconds(report.total_us),
    })
}

pub(crate) fn drain_report(py: Python<'_>, report: DrainReport) -> PyResult<Bound<'_, PyDict>> {
    let moved = PyList::empty(py);
    for (tid, report) in &report.moved {
        moved.append((tid.0, move_report(py, report)?))?;
    }
    let refused = report.refused.into_iter();
    let refused: Vec<(u64, String)> = refused.map(|(tid, why)| (tid.0, why.text)).collect();
    dict!(py, {
        host: report.host.0,
        total: seconds(report.total_us),
        moved_count: report.moved_count,
        refused_count: report.refused_count,
        saved_count: report.saved_count,
        moved: moved,
        refused: refused,
        suspended: numbers(report.suspended),
    })
}

/// `None`: the process was restored from the checkpoint.
pub(crate) fn checkpointed(
    py: Python<'_>,
    result: Checkpointed,
) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Checkpointed::Saved(report) = result else {
        return Ok(None);
    };
    let CheckpointReport {
        generation,
        epoch,
        tasks,
        bytes,
        stored,
        freeze_us,
        total_us,
        in_transit,
    } = report;
    let report: PyResult<_> = dict!(py, {
        generation: generation,
        epoch: epoch,
        tasks: tasks,
        bytes: bytes,
        stored: stored,
        freeze: seconds(freeze_us),
        total: seconds(total_us),
        in_transit: in_transit,
    });
    report.map(Some)
}

pub(crate) fn restart_report(py: Python<'_>, report: RestartReport) -> PyResult<Bound<'_, PyDict>> {
    let hosts: Vec<(u16, u32)> = report.hosts.iter().map(|(id, n)| (id.0, *n)).collect();
    dict!(py, {
        app: report.app.0,
        checkpoint: report.from.to_string(),
        generation: report.generation,
        hosts: hosts,
        total: seconds(report.total_us),
        passed_over: report.passed_over,
    })
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
