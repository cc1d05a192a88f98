//! Errors of the library as exceptions of `vmachine.errors`.
//!
//! Each error becomes the exception of its name there, with its text and, as attributes, the values that
//! a program may want to know.

use crate::values;
use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::PyOnceLock, types::PyDict};
use vmlib::{
    ExitError, ExitStatus, FailKind, Failed, GroupError, InitError, PortableError, RecvError,
    RecvIntoError, RequestError, SendError, SpawnError, StartError, TaskError, Tid, WaitError,
};

/// The module with the exceptions.
static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// An exception that is to be raised.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exception's name in `vmachine.errors`.
    name: &'static str,
    text: String,
    values: Vec<(&'static str, Value)>,
}

/// The value of an attribute.
#[derive(Debug)]
enum Value {
    Tid(Tid),
    Tids(Vec<Tid>),
    Status(ExitStatus),
    Text(String),
    Failures(Vec<(String, String)>),
}

impl Failure {
    fn new(name: &'static str, error: impl ToString) -> Self {
        Failure {
            name,
            text: error.to_string(),
            values: Vec::new(),
        }
    }

    /// An argument that cannot be used.
    pub(crate) fn value(text: impl ToString) -> Self {
        Failure::new("ArgumentError", text)
    }

    /// A handle that another thread is using, or that is of no use any more.
    pub(crate) fn handle(text: impl ToString) -> Self {
        Failure::new("HandleError", text)
    }

    /// A call in a process that is no task.
    pub(crate) fn forked(text: impl ToString) -> Self {
        Failure::new("LeftError", text)
    }

    fn with(mut self, name: &'static str, value: Value) -> Self {
        self.values.push((name, value));
        self
    }

    /// The exception.
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self.exception(py) {
            Ok(exception) => PyErr::from_value(exception),
            // The package is incomplete.
            Err(error) => PyRuntimeError::new_err(format!("{} ({error})", self.text)),
        }
    }

    fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let import = || Ok::<_, PyErr>(py.import("vmachine.errors")?.unbind());
        let errors = ERRORS.get_or_try_init(py, import)?.bind(py);
        let values = PyDict::new(py);
        for (name, value) in &self.values {
            match value {
                Value::Tid(tid) => values.set_item(name, tid.0)?,
                Value::Tids(tids) => values.set_item(name, values::numbers(tids.clone()))?,
                Value::Status(status) => values.set_item(name, values::status(*status))?,
                Value::Text(text) => values.set_item(name, text)?,
                Value::Failures(failures) => values.set_item(name, failures.clone())?,
            }
        }
        errors.call_method1("_make", (self.name, &self.text, values))
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let name = match &error {
            TaskError::Left => "LeftError",
            TaskError::InCallback => "CallbackError",
            TaskError::Interrupted => "TaskError",
            TaskError::Link(_) => "LinkError",
        };
        Failure::new(name, error)
    }
}

impl From<Failed> for Failure {
    fn from(error: Failed) -> Self {
        refused("RefusedError", &error)
    }
}

fn refused(name: &'static str, failed: &Failed) -> Failure {
    let kind = match failed.kind {
        FailKind::NoSuchHost => "no-such-host",
        FailKind::NoSuchTask => "no-such-task",
        FailKind::NoSuchGroup => "no-such-group",
        FailKind::NotMember => "not-member",
        FailKind::NoSuchProgram => "no-such-program",
        FailKind::Limit => "limit",
        FailKind::BadRequest => "bad-request",
        FailKind::Version => "version",
        FailKind::Refused => "refused",
        FailKind::Busy => "busy",
        FailKind::HostLost => "host-lost",
        FailKind::System => "system",
        FailKind::NotExecutable => "not-executable",
    };
    Failure::new(name, failed).with("kind", Value::Text(kind.to_owned()))
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Self {
        let mut text = error.to_string();
        if let InitError::System { cause, .. } = &error {
            text = format!("{text}: {cause}");
        }
        Failure::new("InitError", text)
    }
}

impl From<PortableError> for Failure {
    fn from(error: PortableError) -> Self {
        match error {
            PortableError::Task(error) => error.into(),
            error => Failure::new("PortableError", error),
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(failed) => failed.into(),
            RequestError::Task(error) => error.into(),
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        let text = error.to_string();
        match error {
            SpawnError::Refused { cause, .. } => Failure {
                text,
                ..refused("SpawnError", &cause)
            },
            SpawnError::Partly {
                started, failures, ..
            } => {
                let name = "PartlySpawnedError";
                let failure = match failures.first() {
                    Some((_, first)) => refused(name, first),
                    None => Failure::new(name, ""),
                };
                let failures = failures.into_iter();
                let failures = failures.map(|(host, why)| (host, why.text)).collect();
                Failure { text, ..failure }
                    .with("started", Value::Tids(started))
                    .with("failures", Value::Failures(failures))
            }
            SpawnError::Task(error) => error.into(),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let text = error.to_string();
        match error {
            SendError::Task(error) => error.into(),
            SendError::InboxFull { from, .. } => {
                Failure::new("InboxFullError", text).with("source", Value::Tid(from))
            }
            SendError::NoTask { to } => {
                Failure::new("NoTaskError", text).with("tid", Value::Tid(to))
            }
            SendError::TooLong { .. } | SendError::Value(_) => Failure::new("SendError", text),
        }
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        let text = error.to_string();
        match error {
            RecvError::Task(error) => error.into(),
            RecvError::InboxFull { from, .. } => {
                Failure::new("InboxFullError", text).with("source", Value::Tid(from))
            }
            RecvError::Ended { from, status } => Failure::new("EndedError", text)
                .with("tid", Value::Tid(from))
                .with("status", Value::Status(status)),
        }
    }
}

impl From<RecvIntoError> for Failure {
    fn from(error: RecvIntoError) -> Self {
        let text = error.to_string();
        match error {
            RecvIntoError::Recv(error) => error.into(),
            RecvIntoError::TooLong { from, .. } | RecvIntoError::NoNumbers { from, .. } => {
                Failure::new("BufferTooShortError", text).with("source", Value::Tid(from))
            }
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Send(error) => error.into(),
            StartError::Task(error) => error.into(),
            error @ (StartError::TooMany | StartError::TooManyHandlers) => {
                Failure::new("TooManyRequestsError", error)
            }
        }
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Send(error) => error.into(),
            WaitError::Recv(error) => error.into(),
            WaitError::Task(error) => error.into(),
            error @ WaitError::NotOpen => Failure::handle(error),
        }
    }
}

impl From<ExitError> for Failure {
    fn from(error: ExitError) -> Self {
        match error {
            ExitError::Refused(failed) => failed.into(),
            ExitError::Task(error) => error.into(),
            error => Failure::new("ExitError", error),
        }
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        let text = error.to_string();
        let of_member = |name, member| Failure::new(name, &text).with("tid", Value::Tid(member));
        match error {
            GroupError::Refused(failed) => refused("GroupRefusedError", &failed),
            GroupError::Send(error) => error.into(),
            GroupError::Recv(error) => error.into(),
            GroupError::Task(error) => error.into(),
            GroupError::NotMember { .. } => Failure::new("NotMemberError", text),
            GroupError::NoInstance { .. } => Failure::new("NoInstanceError", text),
            GroupError::Version { .. } => Failure::new("VersionError", text),
            GroupError::Shape { .. } => Failure::new("ShapeError", text),
            GroupError::Value { from, .. } => of_member("GroupValueError", from),
            GroupError::Left { member, .. } => of_member("MemberLeftError", member),
            GroupError::OutOfStep { member, .. } => of_member("OutOfStepError", member),
            GroupError::Failed { member, .. } => of_member("MemberFailedError", member),
        }
    }
}
