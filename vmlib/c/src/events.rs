//! The events that a task watches: ends of tasks, hosts that come and go.

use crate::{
    border::{Out, text_field},
    code::Status,
    error::call,
    handle::Handle,
    hosts::NAME_SIZE,
    select::{self, source},
    task::{request, task},
};
use std::ffi::{c_char, c_int};
use vmlib::{ExitStatus, HostId, Incoming, Message, Task, Tid};

/// `vm_event`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Event {
    kind: i32,
    end: i32,
    status: i32,
    host: u32,
    tid: u64,
    name: [c_char; NAME_SIZE],
}

/// `VM_EVENT_*`
mod kind {
    pub const NONE: i32 = 0;
    pub const TASK_ENDED: i32 = 1;
    pub const HOST_ADDED: i32 = 2;
    pub const HOST_DELETED: i32 = 3;
}

impl Event {
    /// No event.
    const NONE: Event = Event {
        kind: kind::NONE,
        end: 0,
        status: 0,
        host: 0,
        tid: 0,
        name: [0; NAME_SIZE],
    };

    fn of_host(kind: i32, host: HostId, name: &str) -> Self {
        Event {
            kind,
            host: u32::from(host.0),
            name: text_field(name),
            ..Event::NONE
        }
    }
}

impl From<vmlib::Event> for Event {
    fn from(event: vmlib::Event) -> Self {
        match event {
            vmlib::Event::TaskEnded { tid, status } => {
                let (end, status) = end(status);
                Event {
                    kind: kind::TASK_ENDED,
                    end,
                    status,
                    tid: tid.0,
                    ..Event::NONE
                }
            }
            vmlib::Event::HostAdded { host, name } => Event::of_host(kind::HOST_ADDED, host, &name),
            vmlib::Event::HostDeleted { host, name } => {
                Event::of_host(kind::HOST_DELETED, host, &name)
            }
        }
    }
}

/// `VM_END_*`, and the number that belongs to it.
fn end(status: ExitStatus) -> (i32, i32) {
    match status {
        ExitStatus::Left(status) => (1, status),
        ExitStatus::Code(code) => (2, code),
        ExitStatus::Signal(signal) => (3, signal),
        ExitStatus::NotStarted => (4, 0),
        ExitStatus::HostLost => (5, 0),
        ExitStatus::Suspended => (6, 0),
        ExitStatus::RolledBack => (7, 0),
        ExitStatus::Unknown => (8, 0),
    }
}

/// Asks to be told of the end of a task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_watch_task(vm: Handle<Task>, tid: u64) -> c_int {
    request(vm, |task| task.watch_task(Tid(tid)))
}

/// Asks no more to be told of the end of a task.
#[unsafe(no_mangle)]
pub extern "C" fn vm_unwatch_task(vm: Handle<Task>, tid: u64) -> c_int {
    request(vm, |task| task.unwatch_task(Tid(tid)))
}

/// Asks to be told of hosts that come and go.
#[unsafe(no_mangle)]
pub extern "C" fn vm_watch_hosts(vm: Handle<Task>) -> c_int {
    request(vm, |task| task.watch_hosts())
}

/// Asks no more to be told of hosts.
#[unsafe(no_mangle)]
pub extern "C" fn vm_unwatch_hosts(vm: Handle<Task>) -> c_int {
    request(vm, |task| task.unwatch_hosts())
}

/// The next event.
#[unsafe(no_mangle)]
pub extern "C" fn vm_recv_event(vm: Handle<Task>, timeout_ms: i64, event: Out<'_, Event>) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut place = event.place_with(Event::NONE, "the place for the event")?;
        let event = task.recv_event(select::time(timeout_ms))?;
        let Some(event) = event else {
            return Ok(Status::Nothing);
        };
        place.put(event.into());
        Ok(Status::Done)
    })
}

/// The next message that is selected, or event.
#[unsafe(no_mangle)]
pub extern "C" fn vm_next(
    vm: Handle<Task>,
    from: u64,
    tag: i32,
    timeout_ms: i64,
    message: Out<'_, Handle<Message>>,
    event: Out<'_, Event>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut message = message.place_with(Handle::NULL, "the place for the message")?;
        let mut event = event.place_with(Event::NONE, "the place for the event")?;
        let time = select::time(timeout_ms);
        match task.next(source(from)?, select::tag(tag), time)? {
            Some(Incoming::Message(came)) => message.put(Handle::keep(came)),
            Some(Incoming::Event(happened)) => event.put(happened.into()),
            None => return Ok(Status::Nothing),
        }
        Ok(Status::Done)
    })
}
