//! Sends a message around a ring of tasks, and measures the time of a step.
//!
//! Run it with `vm run ring`. Each task adds one to every number of the message and sends it on to
//! the next of its siblings, the last task to the first. After the last round the first task checks
//! that no task was left out, and reports that to the master.

use anyhow::{Result, ensure};
use clap::Parser;
use std::time::Instant;
use vmlib::{Spawn, Task, Tid};

const RING: i32 = 1;
const TIME: i32 = 2;

/// Send a message around a ring of tasks on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "ring", version)]
struct Arguments {
    /// Tasks in the ring
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tasks: u32,
    /// Times that the message goes around
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Numbers of 8 bytes in the message
    #[arg(long, default_value_t = 1)]
    numbers: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let vm = vmlib::init()?;
    match vm.parent() {
        None => master(&vm, &arguments),
        Some(master) => member(&vm, master, &arguments),
    }
}

fn master(vm: &Task, arguments: &Arguments) -> Result<()> {
    let hosts = vm.hosts()?;
    let names = hosts.iter().map(|host| host.facts.name.as_str());
    let program = std::env::current_exe()?.display().to_string();
    let ring = Spawn::new(program)
        .args(std::env::args().skip(1))
        .count(arguments.tasks);
    let ring = vm.spawn(&ring.on_each(names))?;
    let seconds: f64 = vm.recv(ring[0], TIME)?.value()?;
    let steps = arguments.rounds * u64::from(arguments.tasks);
    println!(
        "{} tasks on {} hosts, {} rounds: {steps} steps of {} bytes in {seconds:.3} s, {:.1} µs each",
        ring.len(),
        hosts.len(),
        arguments.rounds,
        8 * arguments.numbers,
        1e6 * seconds / steps.max(1) as f64,
    );
    Ok(())
}

fn member(vm: &Task, master: Tid, arguments: &Arguments) -> Result<()> {
    let ring = vm.siblings()?;
    let me = vm.index() as usize;
    let next = ring[(me + 1) % ring.len()];
    let before = ring[(me + ring.len() - 1) % ring.len()];
    let mut numbers = vec![0u64; arguments.numbers];
    let begin = Instant::now();
    for round in 0..arguments.rounds {
        if me == 0 {
            vm.send_slice(next, RING, &numbers)?;
            vm.recv_slice_into(before, RING, &mut numbers)?;
            let steps = (round + 1) * (ring.len() as u64 - 1);
            ensure!(
                numbers.iter().all(|number| *number == steps),
                "round {round}: the message has passed {:?} tasks, not {steps}",
                numbers.first()
            );
        } else {
            vm.recv_slice_into(before, RING, &mut numbers)?;
            for number in &mut numbers {
                *number += 1;
            }
            vm.send_slice(next, RING, &numbers)?;
        }
    }
    if me == 0 {
        vm.send(master, TIME, &begin.elapsed().as_secs_f64())?;
    }
    Ok(())
}
