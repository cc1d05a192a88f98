//! Receiving.

use crate::{
    border::{Out, Place, Room},
    code::Status,
    error::{Error, call},
    handle::Handle,
    message::Envelope,
    number::with_numbers,
    select::{self, source},
    task::task,
};
use std::{
    ffi::{c_int, c_void},
    time::Duration,
};
use vmlib::{Message, Number, Task};

/// Puts a message into its place, or says that there is none.
fn received(mut place: Place<'_, Handle<Message>>, message: Option<Message>) -> Status {
    let Some(message) = message else {
        return Status::Nothing;
    };
    place.put(Handle::keep(message));
    Status::Done
}

/// Receives a message, and waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn vm_recv(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    vm_recv_timeout(vm, from, tag, -1, message)
}

/// Receives a message if one is there.
#[unsafe(no_mangle)]
pub extern "C" fn vm_try_recv(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    vm_recv_timeout(vm, from, tag, 0, message)
}

/// Receives a message, and waits for it no longer than a time.
#[unsafe(no_mangle)]
pub extern "C" fn vm_recv_timeout(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    timeout_ms: i64,
    message: Out<'_, Handle<Message>>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let place = message.place_with(Handle::NULL, "the place for the message")?;
        let (from, tag) = (source(from)?, select::tag(tag));
        let message = match select::time(timeout_ms) {
            Some(time) => task.recv_timeout(from, tag, time)?,
            None => Some(task.recv(from, tag)?),
        };
        Ok(received(place, message))
    })
}

/// Looks whether a message is there, and leaves it there.
#[unsafe(no_mangle)]
pub extern "C" fn vm_probe(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    envelope: Out<'_, Envelope>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let envelope = envelope.optional("the place for the envelope")?;
        let found = task.probe(source(from)?, select::tag(tag))?;
        Ok(found_or_not(envelope, found, 1))
    })
}

/// Tells of a message in the program's memory, or in the inbox.
fn found_or_not(
    place: Option<Place<'_, Envelope>>,
    found: Option<vmlib::Envelope>,
    unit: usize,
) -> Status {
    let Some(found) = found else {
        return Status::Nothing;
    };
    if let Some(mut place) = place {
        place.put(Envelope::new(found, unit));
    }
    Status::Done
}

/// Receives numbers into memory of the program.
fn receive_into<T: Number>(
    task: &Task,
    (from, tag): (u64, i32),
    values: &mut [T],
    time: Option<Duration>,
    envelope: Option<Place<'_, Envelope>>,
) -> Result<Status, Error> {
    let (from, tag) = (source(from)?, select::tag(tag));
    let found = match time {
        Some(time) => task.recv_slice_into_timeout(from, tag, values, time)?,
        None => Some(task.recv_slice_into(from, tag, values)?),
    };
    Ok(found_or_not(envelope, found, size_of::<T>()))
}

/// Receives a message into memory of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_recv_into(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    buffer: Room<'_, c_void>,
    room: usize,
    timeout_ms: i64,
    envelope: Out<'_, Envelope>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let envelope = envelope.optional("the place for the envelope")?;
        let buffer = buffer.numbers::<u8>(room, "the buffer")?;
        receive_into(
            &task,
            (from, tag),
            buffer,
            select::time(timeout_ms),
            envelope,
        )
    })
}

/// Receives numbers into an array of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vm_recv_array(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    values: Room<'_, c_void>,
    room: usize,
    r#type: c_int,
    timeout_ms: i64,
    envelope: Out<'_, Envelope>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let envelope = envelope.optional("the place for the envelope")?;
        let time = select::time(timeout_ms);
        with_numbers!(r#type, T => {
            let values = values.numbers::<T>(room, "the array")?;
            receive_into(&task, (from, tag), values, time, envelope)
        })
    })
}
