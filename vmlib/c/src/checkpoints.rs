//! Checkpoints of the application, and applications that are suspended and resumed.

use crate::{
    border::{Out, Place},
    code::Status,
    error::{Error, call},
    handle::Handle,
    select,
    task::task,
};
use std::ffi::c_int;
use vmlib::{Checkpointed, RequestError, Task, Tid};

/// `vm_checkpoint_report`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CheckpointReport {
    generation: u32,
    epoch: u32,
    tasks: u32,
    reserved: u32,
    bytes: u64,
    stored: u64,
    freeze_us: u64,
    total_us: u64,
}

/// Whether the checkpoint was made, or this process was made of it.
fn saved(
    place: Option<Place<'_, CheckpointReport>>,
    result: Result<Checkpointed, RequestError>,
) -> Result<Status, Error> {
    let Checkpointed::Saved(report) = result? else {
        return Ok(Status::Restored);
    };
    if let Some(mut place) = place {
        place.put(CheckpointReport {
            generation: report.generation,
            epoch: report.epoch,
            tasks: report.tasks,
            reserved: 0,
            bytes: report.bytes,
            stored: report.stored,
            freeze_us: report.freeze_us,
            total_us: report.total_us,
        });
    }
    Ok(Status::Done)
}

/// Saves all tasks of this application.
#[unsafe(no_mangle)]
pub extern "C" fn vm_checkpoint(vm: Handle<Task>, report: Out<'_, CheckpointReport>) -> c_int {
    call(|| {
        let task = task(vm)?;
        let place = report.optional("the place for the report")?;
        saved(place, task.checkpoint())
    })
}

/// Suspends an application.
#[unsafe(no_mangle)]
pub extern "C" fn vm_suspend(
    vm: Handle<Task>,
    app: u64,
    time_ms: i64,
    report: Out<'_, CheckpointReport>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let place = report.optional("the place for the report")?;
        saved(place, task.suspend(Tid(app), select::time(time_ms)))
    })
}

/// Resumes an application that is suspended.
#[unsafe(no_mangle)]
pub extern "C" fn vm_resume(vm: Handle<Task>, app: u64) -> c_int {
    call(|| {
        task(vm)?.resume(Tid(app))?;
        Ok(Status::Done)
    })
}
