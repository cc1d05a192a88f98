//! Ids of tasks as text.

use crate::{
    border::{Out, Room, Text, write_text},
    code::Status,
    error::{Error, call},
    handle::Handle,
};
use std::ffi::{c_char, c_int};
use vmlib::{Task, Tid};

/// Writes an id as the console shows it: `t3.17`, or `t3.17@00beef` of another machine.
#[unsafe(no_mangle)]
pub extern "C" fn vm_tid_format(
    vm: Handle<Task>,
    tid: u64,
    text: Room<'_, c_char>,
    size: usize,
) -> c_int {
    call(|| {
        let here = vm.with(|task| task.machine())?;
        let room = text.slice(size, "the room for the text")?;
        let shown = match Tid(tid) {
            Tid::NONE => "none".to_owned(),
            tid => tid.show(here),
        };
        write_text(&shown, room, "the text of a task's id")?;
        Ok(Status::Done)
    })
}

/// Reads an id that was written by `vm_tid_format`, or by a user.
#[unsafe(no_mangle)]
pub extern "C" fn vm_tid_parse(vm: Handle<Task>, text: Text<'_>, tid: Out<'_, u64>) -> c_int {
    call(|| {
        let here = vm.with(|task| task.machine())?;
        let mut tid = tid.place_with(0, "the place for the id")?;
        let read = Tid::parse(text.get("the text")?, here);
        tid.put(read.map_err(|error| Error::invalid(error.to_string()))?.0);
        Ok(Status::Done)
    })
}

/// Whether two ids are those of one task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_tid_equal(one: u64, other: u64) -> c_int {
    c_int::from(one == other)
}
