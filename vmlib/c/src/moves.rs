//! Moving tasks, and emptying hosts of them.

use crate::{
    border::{Out, Text},
    code::{Code, Status},
    error::{Error, call},
    handle::Handle,
    task::task,
};
use std::ffi::c_int;
use vmlib::{Task, Tid};

/// `vm_move_report`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MoveReport {
    from: u32,
    to: u32,
    bytes: u64,
    copied: u64,
    freeze_us: u64,
    total_us: u64,
}

/// `vm_drain_report`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DrainReport {
    host: u32,
    moved: u32,
    refused: u32,
    saved: u32,
    total_us: u64,
}

/// Moves a task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_move(
    vm: Handle<Task>,
    tid: u64,
    host: Text<'_>,
    report: Out<'_, MoveReport>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let place = report.optional("the place for the report")?;
        let moved = task.move_task(Tid(tid), host.optional("the host")?)?;
        if let Some(mut place) = place {
            place.put(MoveReport {
                from: u32::from(moved.from.0),
                to: u32::from(moved.to.0),
                bytes: moved.bytes,
                copied: moved.copied,
                freeze_us: moved.freeze_us(),
                total_us: moved.total_us,
            });
        }
        Ok(Status::Done)
    })
}

/// Whether a task can be moved.
#[unsafe(no_mangle)]
pub extern "C" fn vm_can_move(vm: Handle<Task>, tid: u64) -> c_int {
    call(|| {
        let reasons = task(vm)?.can_move(Tid(tid))?;
        match reasons.is_empty() {
            true => Ok(Status::Done),
            false => Err(Error::new(Code::Refused, reasons.join("\n"))),
        }
    })
}

/// Has all tasks of a host move to others.
#[unsafe(no_mangle)]
pub extern "C" fn vm_drain(
    vm: Handle<Task>,
    host: Text<'_>,
    report: Out<'_, DrainReport>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let place = report.optional("the place for the report")?;
        let drained = task.drain(host.get("the host")?)?;
        if let Some(mut place) = place {
            place.put(DrainReport {
                host: u32::from(drained.host.0),
                moved: drained.moved_count,
                refused: drained.refused_count,
                saved: drained.saved_count,
                total_us: drained.total_us,
            });
        }
        Ok(Status::Done)
    })
}
