//! Tags of messages, and functions that several roles need.

use anyhow::Context;
use vmlib::{Spawn, Task};

/// Tag of messages that carry a number.
pub const NUMBERED: i32 = 1;
/// Tag of the message by which a task reports that it can begin.
pub const READY: i32 = 2;
/// Tag of the message that lets a task begin.
pub const GO: i32 = 3;
/// Tag of the message with which a task reports its result.
pub const RESULT: i32 = 4;
/// Tag of the message that ends a task.
pub const STOP: i32 = 5;

/// This program, to be spawned with `args`.
pub fn me(args: &[&str]) -> anyhow::Result<Spawn> {
    let program = std::env::current_exe()?;
    Ok(Spawn::new(program.to_string_lossy()).args(args.iter().copied()))
}

/// The name of the host on which this task runs.
pub fn host_name(vm: &Task) -> anyhow::Result<String> {
    let here = vm.hosts()?.into_iter().find(|host| host.id == vm.host());
    Ok(here.context("this host is in the machine")?.facts.name)
}

/// The names of all hosts.
pub fn host_names(vm: &Task) -> anyhow::Result<Vec<String>> {
    let hosts = vm.hosts()?.into_iter();
    Ok(hosts.map(|host| host.facts.name).collect())
}

/// A body of `len` bytes that is different for every number, and can be checked.
pub fn body(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len.max(8)];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let last = bytes.len() - 1;
    bytes[last] = (number >> if last < 8 { 56 } else { 0 }) as u8;
    bytes
}

/// Sizes from 8 B to `largest`, most of them small, the large ones rare.
pub fn size(number: u64, largest: u64) -> usize {
    let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let bits = 64 - largest.leading_zeros() as u64;
    let exponent = 3 + if scrambled.is_multiple_of(97) {
        scrambled / 97 % (bits - 3)
    } else {
        scrambled % 10
    };
    (1u64 << exponent).min(largest).max(8) as usize
}
