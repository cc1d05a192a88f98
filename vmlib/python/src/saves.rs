//! Functions of the program that are called around each save of its task.

use crate::task::Task;
use pyo3::prelude::*;
use vmlib::Callbacks;

/// The functions of one registration.
struct Functions {
    before: Option<Py<PyAny>>,
    after: Option<Py<PyAny>>,
    resumed: Option<Py<PyAny>>,
}

impl Callbacks for Functions {
    fn before_save(&mut self) -> Result<(), String> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        match Python::try_attach(|py| before.call0(py).map(drop)) {
            Some(called) => called.map_err(|error| error.to_string()),
            None => Err("the interpreter of the task ends".to_owned()),
        }
    }

    fn after_save(&mut self) {
        report(self.after.as_ref());
    }

    fn after_resume(&mut self) {
        report(self.resumed.as_ref());
    }
}

/// Calls a function, whose exception nobody is waiting for: Python reports it.
fn report(function: Option<&Py<PyAny>>) {
    let Some(function) = function else {
        return;
    };
    Python::try_attach(|py| {
        if let Err(error) = function.call0(py) {
            error.write_unraisable(py, Some(function.bind(py)));
        }
    });
}

/// Has functions called around each save of the task.
#[pyfunction]
#[pyo3(signature = (task, before, after, resumed))]
pub fn around_saves(
    task: &Bound<'_, Task>,
    before: Option<Py<PyAny>>,
    after: Option<Py<PyAny>>,
    resumed: Option<Py<PyAny>>,
) {
    let functions = Functions {
        before,
        after,
        resumed,
    };
    let vm = task.get().handle();
    task.py()
        .detach(move || vm.around_saves(Box::new(functions)));
}
