//! A task that sends messages of 8 B to 1 MiB to a task of another host, which sends each of them back.

use super::shared::{NUMBERED, STOP, body, host_name, host_names, me};
use anyhow::{Context, ensure};
use vmlib::{ANY, Task};

/// Makes a round, one message of each size, for each line on standard input, and ends with the line
/// `end`.
pub fn echoes(vm: &Task) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let hosts = host_names(vm)?;
    let there = hosts.iter().find(|name| **name != here);
    let there = there.context("a second host")?;
    let echo = vm.spawn(&me(&["echo"])?.on(there))?[0];
    let mut number = 0u64;
    for (round, line) in std::io::stdin().lines().enumerate() {
        if line? == "end" {
            break;
        }
        for exponent in 3..=20 {
            let bytes = body(number, 1 << exponent);
            vm.send_bytes(echo, NUMBERED, bytes.clone())?;
            let echoed = vm.recv(echo, NUMBERED)?;
            ensure!(echoed.bytes() == bytes, "message {number} is another one");
            number += 1;
        }
        println!("round {round} is over");
    }
    vm.send(echo, STOP, &())?;
    println!("echoes: {number} messages, none lost, doubled or out of order");
    Ok(())
}

/// Sends back what its parent sends, until it is told to stop.
pub fn echo(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("an echo has a parent")?;
    loop {
        let message = vm.recv(parent, ANY)?;
        if message.tag() == STOP {
            return Ok(());
        }
        vm.send_bytes(parent, NUMBERED, message.bytes().to_vec())?;
    }
}
