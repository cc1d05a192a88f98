//! Aligns two genomes on all hosts of the machine.
//!
//! Run it with `vm run align`. The master reads the genomes, starts a worker per core, gives each
//! the whole problem, and afterwards puts the results together ([`master`]). The workers share the
//! matrix by [`vm_examples::align::wavefront`] and send each other the edges of their blocks
//! ([`worker`]). `align-serial` does the same in one process and finds the same alignments.

mod master;
mod messages;
mod worker;

use anyhow::Result;
use clap::Parser;
use vm_examples::align::job::Options;

/// Find the best local alignments of two genomes, on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "align", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Workers, in turn over the hosts [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let vm = vmlib::init()?;
    match vm.parent() {
        None => master::run(&vm, &arguments.options, arguments.workers),
        Some(master) => worker::run(&vm, master),
    }
}
