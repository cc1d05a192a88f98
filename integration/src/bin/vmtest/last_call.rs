//! A task that sends a message in its last call of the library, and a receiver that is moved before it
//! takes the message.

use super::shared::{GO, NUMBERED, RESULT, STOP, host_name, host_names, me};
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use vm_wire::Tid;
use vmlib::{Callbacks, Task};

/// The files by which the test and the tasks know of each other, in one folder. Each waits for a file
/// without a call of the library.
struct Signs(PathBuf);

impl Signs {
    fn give(&self, name: &str) -> anyhow::Result<()> {
        fs::write(self.0.join(name), "").with_context(|| format!("writing {name}"))
    }

    fn is_given(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    fn compute_until(&self, name: &str) {
        while !self.is_given(name) {
            thread::yield_now();
        }
    }
}

/// Callbacks that do nothing: a task that has some is stopped in calls of the library alone.
struct Nothing;

impl Callbacks for Nothing {}

/// Starts the two tasks on different hosts. With `around-saves` the sender has
/// callbacks.
pub fn last_call(vm: &Task, folder: &str, how: &str) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let hosts = host_names(vm)?;
    let there = hosts.iter().find(|name| **name != here);
    let there = there.context("a second host")?;
    let receiver = vm.spawn(&me(&["last-call-receiver", folder])?.on(there))?[0];
    let sender = me(&["last-call-sender", folder, &receiver.0.to_string(), how])?;
    let sender = vm.spawn(&sender.on(&here))?[0];
    vm.send(receiver, GO, &sender.0)?;
    let count: u64 = vm.recv(receiver, RESULT)?.value()?;
    println!("last-call: {count} messages, and the last one");
    Ok(())
}

/// Talks until there is the file `talked`; sends the last message when the receiver computes; then
/// computes until there is the file `end`.
pub fn sender(vm: &Task, folder: &str, receiver: Tid, how: &str) -> anyhow::Result<()> {
    if how == "around-saves" {
        vm.around_saves(Box::new(Nothing));
    }
    let signs = Signs(Path::new(folder).to_owned());
    let mut number = 0u64;
    while !signs.is_given("talked") {
        vm.send(receiver, NUMBERED, &number)?;
        let answer: u64 = vm.recv(receiver, NUMBERED)?.value()?;
        ensure!(answer == number, "{answer} instead of {number}");
        number += 1;
    }
    vm.send(receiver, STOP, &())?;
    signs.compute_until("computes");
    vm.send(receiver, NUMBERED, &number)?;
    signs.give("said")?;
    signs.compute_until("end");
    Ok(())
}

/// Answers the sender; computes until there is the file `hears`; then receives the last message.
pub fn receiver(vm: &Task, folder: &str) -> anyhow::Result<()> {
    let signs = Signs(Path::new(folder).to_owned());
    let parent = vm.parent().context("a receiver has a parent")?;
    let sender = Tid(vm.recv(parent, GO)?.value()?);
    let mut count = 0u64;
    while vm.try_recv(sender, STOP)?.is_none() {
        if let Some(message) = vm.recv_timeout(sender, NUMBERED, Duration::from_millis(10))? {
            let number: u64 = message.value()?;
            vm.send(sender, NUMBERED, &number)?;
            count += 1;
        }
    }
    signs.give("computes")?;
    signs.compute_until("hears");
    let number: u64 = vm.recv(sender, NUMBERED)?.value()?;
    ensure!(number == count, "{number} instead of {count}");
    println!("heard the last message");
    vm.send(parent, RESULT, &count)?;
    Ok(())
}
