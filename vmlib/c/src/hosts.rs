//! The hosts of the machine.

use crate::{
    border::{Out, Room, text_field},
    code::Status,
    error::{call, value},
    handle::Handle,
    task::{copy_out, task},
};
use std::ffi::{c_char, c_int};
use vmlib::Task;

/// Bytes of a name as a field, with the zero at its end (`VM_NAME_SIZE`).
pub const NAME_SIZE: usize = vm_wire::limits::NAME_MAX + 1;

/// `vm_host_info`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HostInfo {
    id: u32,
    cpus: u32,
    tasks: u32,
    tasks_max: u32,
    name: [c_char; NAME_SIZE],
    address: [c_char; NAME_SIZE],
    arch: [c_char; 16],
}

/// The number of the host where this task runs now.
#[unsafe(no_mangle)]
pub extern "C" fn vm_host(vm: Handle<Task>) -> c_int {
    let host = || vm.with(|task| task.host());
    value(host, |host| c_int::from(host.0), |code| code)
}

/// The living hosts.
#[unsafe(no_mangle)]
pub extern "C" fn vm_hosts(
    vm: Handle<Task>,
    hosts: Room<'_, HostInfo>,
    room: usize,
    count: Out<'_, usize>,
) -> c_int {
    call(|| {
        let task = task(vm)?;
        let mut count = count.place_with(0, "the place for the count")?;
        let places = hosts.slice(room, "the room for the hosts")?;
        let hosts = task.hosts()?;
        count.put(hosts.len());
        let info = |host: &vmlib::Host| HostInfo {
            id: u32::from(host.id.0),
            cpus: host.facts.cpus,
            tasks: host.tasks,
            tasks_max: host.facts.tasks_max,
            name: text_field(&host.facts.name),
            address: text_field(&host.facts.addr),
            arch: text_field(&host.facts.arch),
        };
        copy_out(hosts.iter().map(info), places, "hosts")?;
        Ok(Status::Done)
    })
}
