//! Portable tasks: their program supplies their state.

use super::shared::{GO, NUMBERED, STOP, me};
use anyhow::{Context, bail, ensure};
use std::time::Duration;
use vm_wire::Tid;
use vmlib::{ANY, Callbacks, Checkpointed, Task};

/// Sends numbers to a peer on `host`, many of them ahead of the replies, and offers its state at
/// safe points.
pub fn portable(vm: &Task, count: u64, host: &str) -> anyhow::Result<()> {
    vm.around_saves(Box::new(Teller));
    // The state: the peer, the last number sent to it, the last number that came back.
    let begun = vm.portable(|| (Tid::NONE, 0u64, 0u64))?;
    let mut state = begun.state;
    if begun.restored {
        println!("on from {} of {}", state.2, state.1);
    } else {
        let peer = me(&["portable-peer", &count.to_string()])?;
        state.0 = vm.spawn(&peer.env("PORTABLE_PEER", "yes").on(host))?[0];
    }
    while state.2 < count {
        vm.safe_point(&state)?;
        let (peer, sent, back) = state;
        if sent < count && sent < back + 100 {
            vm.send(peer, NUMBERED, &(sent + 1, vec![7u8; 50]))?;
            state.1 += 1;
            continue;
        }
        let (number, _): (u64, Vec<u8>) = vm.recv_at(&state, peer, NUMBERED)?.value()?;
        ensure!(number == back + 1, "after {back} came {number}");
        state.2 = number;
        if number % 1_000 == 0 {
            println!("{number} came back");
        }
    }
    println!("all came back, none lost, doubled or out of order");
    Ok(())
}

/// Prints which callback was called.
struct Teller;

impl Callbacks for Teller {
    fn before_save(&mut self) -> Result<(), String> {
        println!("before a save");
        Ok(())
    }

    fn after_save(&mut self) {
        println!("after a save");
    }

    fn after_resume(&mut self) {
        println!("resumed");
    }
}

/// Makes a checkpoint of its application after each step. Waits after the third step; after a
/// restart, continues to the fifth step.
pub fn portable_saver(vm: &Task, host: &str) -> anyhow::Result<()> {
    // The state: the number of steps made, and the tid of the other task.
    let begun = vm.portable(|| (0, Tid::NONE))?;
    let mut state: (u32, Tid) = begun.state;
    if !begun.restored {
        state.1 = vm.spawn(&me(&["portable-waiter"])?.on(host))?[0];
    }
    while state.0 < 5 {
        if state.0 == 3 && !begun.restored {
            println!("three steps");
            vm.recv_at(&state, ANY, GO)?;
        }
        state.0 += 1;
        match vm.checkpoint_at(&state)? {
            Checkpointed::Saved(report) => println!("step {} is e{}", state.0, report.epoch),
            Checkpointed::Restored => bail!("the other process says so"),
        }
    }
    vm.send(state.1, STOP, &())?;
    Ok(())
}

pub fn portable_waiter(vm: &Task) -> anyhow::Result<()> {
    vm.portable(|| ())?;
    vm.recv_at(&(), ANY, STOP)?;
    Ok(())
}

pub fn portable_peer(vm: &Task, count: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("no parent")?;
    let mut last = vm.portable(|| 0u64)?.state;
    ensure!(std::env::var("PORTABLE_PEER")? == "yes", "a variable");
    while last < count {
        let message = vm.recv_at(&last, parent, NUMBERED)?;
        let (number, body): (u64, Vec<u8>) = message.value()?;
        ensure!(number == last + 1, "after {last} came {number}");
        vm.send(parent, NUMBERED, &(number, body))?;
        last = number;
    }
    Ok(())
}

/// Is portable, and reaches no safe point.
pub fn portable_deaf(vm: &Task) -> anyhow::Result<()> {
    vm.portable(|| ())?;
    loop {
        println!("it goes");
        vm.recv_timeout(ANY, STOP, Duration::from_millis(200))?;
    }
}
