//! The task that this process is: its begin and end, who it is, and what it does to other tasks.

use crate::{
    border::{Out, Room},
    code::{Code, Status},
    error::{Error, call, value},
    forked,
    handle::{Handle, Kept, Table},
};
use std::ffi::c_int;
use vmlib::{ContextId, RequestError, Task, Tid};

impl Kept for Task {
    const KIND: u8 = 1;
    fn table() -> &'static Table<Self> {
        static TABLE: Table<Task> = Table::new();
        &TABLE
    }
}

/// The task of a handle, for the time of one call.
pub fn task(vm: Handle<Task>) -> Result<Task, Error> {
    forked::check()?;
    vm.with(|task| task.clone_handle())
}

/// Makes this process a task of the machine.
#[unsafe(no_mangle)]
pub extern "C" fn vm_init(vm: Out<'_, Handle<Task>>) -> c_int {
    call(|| {
        let mut place = vm.place_with(Handle::NULL, "the place for the task")?;
        forked::check()?;
        place.put(Handle::keep(vmlib::init()?));
        forked::begin();
        Ok(Status::Done)
    })
}

/// Leaves the machine; the process goes on.
#[unsafe(no_mangle)]
pub extern "C" fn vm_exit(vm: Handle<Task>, status: c_int) -> c_int {
    call(|| {
        task(vm)?.exit(status)?;
        Ok(Status::Done)
    })
}

/// Frees the handle; the process stays a task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_task_free(vm: Handle<Task>) -> c_int {
    call(|| vm.free().map(|()| Status::Done))
}

/// The id of this task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_mytid(vm: Handle<Task>) -> u64 {
    value(|| vm.with(|task| task.tid()), |tid| tid.0, |_| 0)
}

/// The id of the task that spawned this one.
#[unsafe(no_mangle)]
pub extern "C" fn vm_parent(vm: Handle<Task>) -> u64 {
    let parent = || vm.with(|task| task.parent());
    value(parent, |tid| tid.unwrap_or(Tid::NONE).0, |_| 0)
}

/// The id of the master of its application.
#[unsafe(no_mangle)]
pub extern "C" fn vm_app(vm: Handle<Task>) -> u64 {
    value(|| vm.with(|task| task.app()), |tid| tid.0, |_| 0)
}

/// Which of the tasks that were spawned together it is.
#[unsafe(no_mangle)]
pub extern "C" fn vm_index(vm: Handle<Task>) -> i64 {
    value(|| vm.with(|task| task.index()), i64::from, i64::from)
}

/// The context of that number.
pub fn context(number: u32) -> Result<ContextId, Error> {
    ContextId::from_number(number).ok_or_else(|| {
        let text = format!("{number} is no context: pass a number of vm_context_number");
        Error::invalid(text)
    })
}

/// A handle in a new context.
#[unsafe(no_mangle)]
pub extern "C" fn vm_context(vm: Handle<Task>, other: Out<'_, Handle<Task>>) -> c_int {
    call(|| {
        let mut place = other.place_with(Handle::NULL, "the place for the task")?;
        place.put(Handle::keep(task(vm)?.context()?));
        Ok(Status::Done)
    })
}

/// A handle in the context of that number.
#[unsafe(no_mangle)]
pub extern "C" fn vm_in_context(
    vm: Handle<Task>,
    number: u32,
    other: Out<'_, Handle<Task>>,
) -> c_int {
    call(|| {
        let mut place = other.place_with(Handle::NULL, "the place for the task")?;
        place.put(Handle::keep(task(vm)?.in_context(context(number)?)));
        Ok(Status::Done)
    })
}

/// The number of the handle's context.
#[unsafe(no_mangle)]
pub extern "C" fn vm_context_number(vm: Handle<Task>) -> i64 {
    let number = || vm.with(|task| task.context_id().number());
    value(number, i64::from, i64::from)
}

/// The tasks that were spawned together with this one.
#[unsafe(no_mangle)]
pub extern "C" fn vm_siblings(
    vm: Handle<Task>,
    tids: Room<'_, u64>,
    room: usize,
    count: Out<'_, usize>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut count = count.place_with(0, "the place for the count")?;
        let tids = tids.slice(room, "the room for the ids")?;
        let siblings = task.siblings()?;
        count.put(siblings.len());
        copy_out(siblings.iter().map(|tid| tid.0), tids, "ids")?;
        Ok(Status::Done)
    })
}

/// Ends a task at once.
#[unsafe(no_mangle)]
pub extern "C" fn vm_kill(vm: Handle<Task>, tid: u64) -> c_int {
    request(vm, |task| task.kill(Tid(tid)))
}

/// Sends a signal to a task's process.
#[unsafe(no_mangle)]
pub extern "C" fn vm_signal(vm: Handle<Task>, tid: u64, signal: c_int) -> c_int {
    request(vm, |task| task.signal(Tid(tid), signal))
}

/// Makes a request to the machine that has no result.
pub fn request(vm: Handle<Task>, ask: impl FnOnce(&Task) -> Result<(), RequestError>) -> c_int {
    call(|| {
        ask(&task(vm)?)?;
        Ok(Status::Done)
    })
}

/// Copies results into the program's memory; an error if there is no room for all.
pub fn copy_out<T>(
    from: impl ExactSizeIterator<Item = T>,
    to: &mut [T],
    what: &str,
) -> Result<(), Error> {
    if from.len() > to.len() {
        let text = format!(
            "{} {what}, and room for {}: pass more room",
            from.len(),
            to.len()
        );
        return Err(Error::new(Code::Space, text));
    }
    for (place, value) in to.iter_mut().zip(from) {
        *place = value;
    }
    Ok(())
}
