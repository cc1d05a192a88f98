//! The workers of a master: their start on the hosts, and their supervision.

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};
use std::ops::Range;
use vmlib::{ANY, Event, ExitStatus, Host, Incoming, Message, Spawn, Task, Tid};

/// How many workers a run has.
#[derive(Debug, Clone, Copy, Args)]
pub struct Count {
    /// Workers, in turn over the hosts [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers: Option<u32>,
}

/// Joins the machine. Runs the master's part, or, in a process that a master started, a worker's
/// part.
///
/// # Errors
/// The error of [`vmlib::init`], or of the part.
pub fn run<A: Parser>(
    master: impl FnOnce(&Task, &A) -> Result<()>,
    worker: impl FnOnce(&Task, Tid) -> Result<()>,
) -> Result<()> {
    let arguments = A::parse();
    let vm = vmlib::init()?;
    match vm.parent() {
        None => master(&vm, &arguments),
        Some(parent) => worker(&vm, parent),
    }
}

/// Starts workers of this program and watches them: the requested number, in turn over the hosts,
/// or one for each core.
///
/// # Errors
/// The error of spawning.
pub fn start(vm: &Task, hosts: &[Host], count: Option<u32>) -> Result<Vec<Tid>> {
    let cores = hosts.iter().map(|host| host.facts.cpus).max().unwrap_or(0);
    // Each host occurs as often as it has cores, and again only after all other hosts had their
    // turn.
    let turns: Vec<&str> = (0..cores)
        .flat_map(|turn| hosts.iter().filter(move |host| host.facts.cpus > turn))
        .map(|host| host.facts.name.as_str())
        .collect();
    let count = count.unwrap_or(turns.len() as u32);
    let program = std::env::current_exe().context("the path of this program")?;
    let program = program
        .to_str()
        .context("the path of this program is not UTF-8")?;
    let workers = vm.spawn(&Spawn::new(program).count(count).on_each(turns))?;
    for &worker in &workers {
        vm.watch_task(worker)?;
    }
    Ok(workers)
}

/// The next message with that tag, from any worker.
///
/// # Errors
/// When a worker has failed. The machine ends the other workers together with the master.
pub fn next(vm: &Task, tag: i32) -> Result<Message> {
    loop {
        match vm.next(ANY, tag, None)? {
            Some(Incoming::Message(message)) => return Ok(message),
            // A worker that has finished its work ends while others still compute.
            Some(Incoming::Event(Event::TaskEnded { tid, status }))
                if status != ExitStatus::Left(0) =>
            {
                bail!("worker {tid} has failed: {status}")
            }
            Some(Incoming::Event(_)) | None => {}
        }
    }
}

/// The part of `rows` for one of `workers` workers: all parts are equal, but the first ones may
/// have one row more.
pub fn share(rows: usize, workers: usize, index: usize) -> Range<usize> {
    let begin = |index: usize| index * (rows / workers) + index.min(rows % workers);
    begin(index)..begin(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_follow_one_another_and_are_alike() {
        for (rows, workers) in [(10, 3), (7, 7), (3, 5), (0, 2), (100, 1)] {
            let shares: Vec<_> = (0..workers).map(|it| share(rows, workers, it)).collect();
            let ends = shares.iter().map(|share| share.end);
            let starts = shares.iter().skip(1).map(|share| share.start);
            assert!(ends.zip(starts).all(|(end, start)| end == start));
            assert_eq!((shares[0].start, shares[workers - 1].end), (0, rows));
            let sizes = shares.iter().map(Range::len);
            assert!(sizes.clone().max().unwrap_or(0) - sizes.min().unwrap_or(0) <= 1);
        }
    }
}
