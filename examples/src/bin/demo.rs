//! `cargo demo`: a machine of three daemons on this computer aligns two genomes.
//!
//! It builds what it needs, starts the daemons, runs `align` as a person would, with the console,
//! and stops the machine. Its options are those of `align`. It leaves nothing behind, whether it
//! ends well, fails, or is interrupted.

use anyhow::Result;
use clap::Parser;
use std::{env, process::ExitCode};
use vm_examples::{
    align::job::Options,
    cluster::{Cluster, Interrupt, Programs},
};

/// The hosts of the machine.
const NAMES: [&str; 3] = ["nodeA", "nodeB", "nodeC"];

/// Align two genomes on a machine of three daemons on this computer
#[derive(Debug, Parser)]
#[command(name = "demo", bin_name = "cargo demo", version)]
struct Arguments {
    // Parsed here so that a mistake is told before anything is built; passed on as they came.
    #[command(flatten)]
    _options: Options,
}

fn main() -> Result<ExitCode> {
    Arguments::parse();
    let interrupt = Interrupt::catch()?;
    let programs = Programs::build()?;
    eprintln!("starting a machine of {}", NAMES.join(", "));
    let cluster = Cluster::start(&programs, &NAMES, &interrupt)?;
    let mut run = cluster.console();
    run.args(["run", "align", "--workers", &NAMES.len().to_string()]);
    run.args(env::args_os().skip(1));
    let code = cluster.run(run, &interrupt)?;
    cluster.halt()?;
    eprintln!("the machine is stopped");
    Ok(code)
}
