//! Aligns two genomes in one process: the serial counterpart of `align`, with the same kernel, the
//! same blocks and the same report. The process is one worker whose only neighbour is itself.

use anyhow::Result;
use clap::Parser;
use std::time::Instant;
use vm_examples::align::{
    hits::{Candidate, select},
    job::Options,
    progress::progress_bar,
    report::{Report, Work},
    wavefront::Share,
};

/// Find the best local alignments of two genomes, in one process
#[derive(Debug, Parser)]
#[command(name = "align-serial", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let options = Arguments::parse().options;
    let (job, origin) = options.prepare()?;
    let bar = progress_bar(job.setup.cells());
    let mut work = Work {
        worker: "serial".to_owned(),
        host: "here".to_owned(),
        blocks: 0,
        cells: 0,
        busy_seconds: 0.0,
    };
    let mut candidates = Vec::new();
    let begin = Instant::now();
    for &strand in &job.setup.strands {
        let mut share = Share::new(&job, strand, (0, 1));
        while let Some(task) = share.next_task() {
            let outcome = share.compute(&task, None, None);
            candidates.extend(Candidate::of(&job, strand, &task.block, outcome.peak));
            work.blocks += 1;
            work.cells += task.block.cells();
            bar.inc(task.block.cells());
        }
    }
    work.busy_seconds = begin.elapsed().as_secs_f64();
    let alignments = select(&job, candidates);
    bar.finish_and_clear();
    let report = Report::new(
        &job,
        origin,
        &alignments,
        begin.elapsed().as_secs_f64(),
        vec![work],
    );
    report.print(options.json)
}
