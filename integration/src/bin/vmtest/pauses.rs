//! Two tasks that talk, wait for as long as the test wants, and talk again.

use super::shared::{GO, NUMBERED, RESULT, host_name, me};
use anyhow::{Context, ensure};
use vm_wire::Tid;
use vmlib::Task;

/// Starts two tasks on its own host that talk. With the first line on standard input they wait, with
/// the second they talk again, with the third they end.
pub fn pauses(vm: &Task) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let peer = vm.spawn(&me(&["idle"])?.on(&here))?[0];
    let talker = vm.spawn(&me(&["talker", &peer.0.to_string()])?.on(&here))?[0];
    for _ in 0..3 {
        std::io::stdin().read_line(&mut String::new())?;
        vm.send(talker, GO, &())?;
    }
    let count: u64 = vm.recv(talker, RESULT)?.value()?;
    println!("pauses: {count} messages, each answered in order");
    vm.kill(peer)?;
    Ok(())
}

pub fn talker(vm: &Task, peer: Tid) -> anyhow::Result<()> {
    let parent = vm.parent().context("a talker has a parent")?;
    let mut number = 0u64;
    let mut talk = || -> anyhow::Result<()> {
        while vm.try_recv(parent, GO)?.is_none() {
            vm.send(peer, NUMBERED, &number)?;
            let answer: u64 = vm.recv(peer, NUMBERED)?.value()?;
            ensure!(answer == number, "{answer} instead of {number}");
            number += 1;
        }
        Ok(())
    };
    talk()?;
    vm.recv(parent, GO)?;
    talk()?;
    vm.send(parent, RESULT, &number)?;
    Ok(())
}
