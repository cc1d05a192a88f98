//! Groups, and what their members compute and exchange together.
//!
//! Bodies are pickled objects or bytes of arrays. Only reductions need to know the numbers: their type is
//! named by a code, as in numpy: `f8`, `i4`, `u1`.

use crate::{
    buffers::{Lent, body_of, bytes_of, view_of},
    call::call,
    failures::Failure,
    slot::Slot,
    task::Task,
};
use bytes::Bytes;
use pyo3::{
    prelude::*,
    types::{PyByteArray, PyMemoryView},
};
use std::sync::{Mutex, PoisonError};
use vmlib::{GroupError, Number, Op};

/// Runs a block with the type of number that a code names.
macro_rules! with_numbers {
    ($py:expr, $code:expr, $number:ident => $body:block) => {
        with_numbers!($py, $code, $number => $body,
            "i1" i8, "i2" i16, "i4" i32, "i8" i64, "u1" u8, "u2" u16, "u4" u32, "u8" u64,
            "f4" f32, "f8" f64)
    };
    ($py:expr, $code:expr, $number:ident => $body:block, $($name:literal $type:ty),*) => {
        match $code {
            $($name => {
                type $number = $type;
                $body
            })*
            code => {
                let text = format!(
                    "numbers of type {code} cannot be combined: convert the array to integers of 8 to \
                     64 bits, float32 or float64, or pass an operation of your own"
                );
                Err(Failure::value(text).raise($py))
            }
        }
    };
}

/// A group that this task is a member of.
#[pyclass(frozen, module = "vmachine._vmachine")]
pub struct Group {
    task: Mutex<vmlib::Task>,
    slot: Slot<vmlib::Group>,
    name: String,
}

/// Joins a group.
///
/// # Errors
/// `vmachine.GroupError`.
#[pyfunction]
pub fn join(task: &Bound<'_, Task>, name: &str) -> PyResult<Group> {
    let vm = task.get().handle();
    let (vm, group) = call(task.py(), move || vm.join(name).map(|group| (vm, group)))?;
    Ok(Group {
        task: Mutex::new(vm),
        name: group.name().to_owned(),
        slot: Slot::new(group),
    })
}

/// Version, and instance number and tid of each member, of a group that this task need not be in.
///
/// # Errors
/// `vmachine.GroupError`.
#[pyfunction]
pub fn members(task: &Bound<'_, Task>, name: &str) -> PyResult<(u64, Vec<(u32, u64)>)> {
    let vm = task.get().handle();
    let members = call(task.py(), move || vm.group(name))?;
    Ok((members.version(), listed(&members)))
}

fn listed(members: &vmlib::Members) -> Vec<(u32, u64)> {
    members
        .iter()
        .map(|(number, tid)| (number, tid.0))
        .collect()
}

impl Group {
    fn vm(&self) -> vmlib::Task {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.clone_handle()
    }

    /// Makes a call with the group's handle.
    fn make<T: Send>(
        &self,
        py: Python<'_>,
        make: impl FnOnce(&vmlib::Task, &mut vmlib::Group) -> Result<T, GroupError> + Send,
    ) -> PyResult<T> {
        let vm = self.vm();
        let mut group = self.slot.borrow().map_err(|error| error.raise(py))?;
        let handle = &mut group;
        let made = call(py, move || make(&vm, handle));
        self.slot.put_back(Some(group));
        made
    }

    fn look<R>(&self, py: Python<'_>, look: impl FnOnce(&vmlib::Group) -> R) -> PyResult<R> {
        self.slot.look(look).map_err(|error| error.raise(py))
    }
}

/// A view of each of several bodies.
fn views(py: Python<'_>, all: Vec<Bytes>) -> PyResult<Vec<Bound<'_, PyMemoryView>>> {
    all.into_iter().map(|bytes| view_of(py, bytes)).collect()
}

#[pymethods]
impl Group {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn instance(&self, py: Python<'_>) -> PyResult<u32> {
        self.look(py, vmlib::Group::instance)
    }

    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        self.look(py, |group| group.members().version())
    }

    /// Instance number and tid of each member.
    #[getter]
    fn members(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64)>> {
        self.look(py, |group| listed(group.members()))
    }

    fn await_members(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.make(py, |vm, group| vm.await_members(group, count))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.make(py, |vm, group| vm.refresh(group))
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let vm = self.vm();
        let group = self.slot.borrow().map_err(|error| error.raise(py))?;
        self.slot.put_back(None);
        call(py, move || vm.leave(group))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.make(py, |vm, group| vm.barrier(group))
    }

    fn broadcast<'py>(
        &self,
        root: u32,
        body: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, bytes) = (body.py(), body_of(body)?);
        let given = self.make(py, |vm, group| vm.broadcast_bytes(group, root, bytes))?;
        view_of(py, given)
    }

    /// The memory of the root, into the memory of all others.
    fn broadcast_into(&self, root: u32, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut lent = Lent::new(buffer)?;
        let memory = lent.memory();
        self.make(buffer.py(), move |vm, group| {
            vm.broadcast_slice(group, root, memory)
        })
    }

    fn gather<'py>(
        &self,
        root: u32,
        body: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Vec<Bound<'py, PyMemoryView>>>> {
        let (py, bytes) = (body.py(), body_of(body)?);
        let all = self.make(py, |vm, group| vm.gather_bytes(group, root, bytes))?;
        all.map(|all| views(py, all)).transpose()
    }

    fn scatter<'py>(
        &self,
        py: Python<'py>,
        root: u32,
        bodies: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let blocks = bodies.iter().map(body_of).collect::<PyResult<Vec<_>>>()?;
        let own = self.make(py, |vm, group| vm.scatter_bytes(group, root, &blocks))?;
        view_of(py, own)
    }

    fn allgather<'py>(&self, body: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        let (py, bytes) = (body.py(), body_of(body)?);
        views(
            py,
            self.make(py, |vm, group| vm.allgather_bytes(group, bytes))?,
        )
    }

    fn alltoall<'py>(
        &self,
        py: Python<'py>,
        bodies: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        let blocks = bodies.iter().map(body_of).collect::<PyResult<Vec<_>>>()?;
        views(
            py,
            self.make(py, |vm, group| vm.alltoall_bytes(group, &blocks))?,
        )
    }

    /// Equally many bytes of each member, one after the other.
    fn gather_equal<'py>(
        &self,
        root: u32,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let (py, own) = (data.py(), numbers::<u8>(data)?);
        let all = self.make(py, |vm, group| vm.gather(group, root, &own))?;
        Ok(all.map(|all| PyByteArray::new(py, &all)))
    }

    fn scatter_equal<'py>(
        &self,
        root: u32,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let (py, all) = (data.py(), numbers::<u8>(data)?);
        let own = self.make(py, |vm, group| vm.scatter(group, root, &all))?;
        Ok(PyByteArray::new(py, &own))
    }

    fn allgather_equal<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyByteArray>> {
        let (py, own) = (data.py(), numbers::<u8>(data)?);
        let all = self.make(py, |vm, group| vm.allgather(group, &own))?;
        Ok(PyByteArray::new(py, &all))
    }

    fn alltoall_equal<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyByteArray>> {
        let (py, own) = (data.py(), numbers::<u8>(data)?);
        let all = self.make(py, |vm, group| vm.alltoall(group, &own))?;
        Ok(PyByteArray::new(py, &all))
    }

    fn reduce<'py>(
        &self,
        root: u32,
        op: &str,
        code: &str,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let (py, op) = (data.py(), operation(data.py(), op)?);
        with_numbers!(py, code, T => {
            let own = numbers::<T>(data)?;
            let all = self.make(py, |vm, group| vm.reduce(group, root, op, &own))?;
            Ok(all.map(|all| array(py, &all)))
        })
    }

    fn allreduce<'py>(
        &self,
        op: &str,
        code: &str,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let (py, op) = (data.py(), operation(data.py(), op)?);
        with_numbers!(py, code, T => {
            let mut values = numbers::<T>(data)?;
            let all = &mut values;
            self.make(py, move |vm, group| vm.allreduce_in_place(group, op, all))?;
            Ok(array(py, &values))
        })
    }

    fn scan<'py>(
        &self,
        op: &str,
        code: &str,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let (py, op) = (data.py(), operation(data.py(), op)?);
        with_numbers!(py, code, T => {
            let own = numbers::<T>(data)?;
            let all = self.make(py, |vm, group| vm.scan(group, op, &own))?;
            Ok(array(py, &all))
        })
    }

    fn exclusive_scan<'py>(
        &self,
        op: &str,
        code: &str,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let (py, op) = (data.py(), operation(data.py(), op)?);
        with_numbers!(py, code, T => {
            let own = numbers::<T>(data)?;
            let all = self.make(py, |vm, group| vm.exclusive_scan(group, op, &own))?;
            Ok(all.map(|all| array(py, &all)))
        })
    }

    /// The extreme values, and the instances that have them.
    fn extreme_with_place<'py>(
        &self,
        least: bool,
        code: &str,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyByteArray>, Vec<u32>)> {
        let py = data.py();
        with_numbers!(py, code, T => {
            let own = numbers::<T>(data)?;
            let all = self.make(py, |vm, group| match least {
                true => vm.min_with_place(group, &own),
                false => vm.max_with_place(group, &own),
            })?;
            let (values, places): (Vec<T>, Vec<u32>) = all.into_iter().unzip();
            Ok((array(py, &values), places))
        })
    }
}

fn operation(py: Python<'_>, name: &str) -> PyResult<Op> {
    match name {
        "sum" => Ok(Op::Sum),
        "product" => Ok(Op::Product),
        "min" => Ok(Op::Min),
        "max" => Ok(Op::Max),
        "and" => Ok(Op::And),
        "or" => Ok(Op::Or),
        "xor" => Ok(Op::Xor),
        _ => {
            let text =
                format!("there is no operation '{name}': use sum, product, min, max, and, or, xor");
            Err(Failure::value(text).raise(py))
        }
    }
}

/// The numbers of an array.
fn numbers<T: Number>(data: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let buffer = bytes_of(data)?;
    let mut numbers = vec![T::zeroed(); buffer.len_bytes() / size_of::<T>()];
    buffer.copy_to_slice(data.py(), bytemuck::cast_slice_mut(&mut numbers))?;
    Ok(numbers)
}

fn array<'py, T: Number>(py: Python<'py>, numbers: &[T]) -> Bound<'py, PyByteArray> {
    PyByteArray::new(py, bytemuck::cast_slice(numbers))
}
