//! Aligns two genomes on all hosts of the machine.
//!
//! Run it with `vm run align`. The master reads the genomes, starts a worker for each core, gives
//! each the whole problem, and combines the results ([`master`]). The workers share the matrix by
//! [`vm_examples::align::wavefront`] and send each other the edges of their blocks ([`worker`]).
//! `align-serial` does the same in one process and finds the same alignments.

mod master;
mod messages;
mod worker;

use anyhow::Result;
use clap::Parser;
use vm_examples::{align::job::Options, workers};

/// Find the best local alignments of two genomes, on all hosts of the machine
#[derive(Debug, Parser)]
#[command(name = "align", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    count: workers::Count,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let vm = vmlib::init()?;
    match vm.parent() {
        None => master::run(&vm, &arguments.options, arguments.count.workers),
        Some(master) => worker::run(&vm, master),
    }
}
