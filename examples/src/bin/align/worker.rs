//! One worker: a share of the wavefront whose edges are received and sent as messages.

use crate::messages::{
    COLUMN, ORDER, OUTCOME, Order, Outcome, PROGRESS, QUERY, ROW, TARGET, column_from,
    column_to_numbers, row_from, row_to_numbers,
};
use anyhow::Result;
use std::time::{Duration, Instant};
use vm_examples::align::{
    hits::Candidate,
    job::Job,
    wavefront::{Share, Source},
};
use vmlib::{Task, Tid};

/// Least time between two reports of progress to the master.
const PROGRESS_PACE: Duration = Duration::from_millis(100);

/// Computes the share of this worker, and sends the results to the master.
pub fn run(vm: &Task, master: Tid) -> Result<()> {
    let Order { setup, workers } = vm.recv(master, ORDER)?.value()?;
    let query = vm.recv(master, QUERY)?.bytes().to_vec();
    let target = vm.recv(master, TARGET)?.bytes().to_vec();
    let job = Job::new(setup, query, target);
    let mut outcome = Outcome {
        candidates: Vec::new(),
        host: vm.host(),
        blocks: 0,
        cells: 0,
        busy_seconds: 0.0,
    };
    let mut told = (Instant::now(), 0);
    for &strand in &job.setup.strands {
        let mut share = Share::new(&job, strand, (vm.index() as usize, workers.len()));
        while let Some(task) = share.next_task() {
            let top = match task.top {
                Source::Worker(from) => {
                    let message = vm.recv(workers[from], ROW)?;
                    Some(row_from(&message, task.block.columns.len())?)
                }
                Source::Border | Source::Own => None,
            };
            let left = match task.left {
                Source::Worker(from) => {
                    let message = vm.recv(workers[from], COLUMN)?;
                    Some(column_from(&message, task.block.rows.len())?)
                }
                Source::Border | Source::Own => None,
            };
            let begin = Instant::now();
            let computed = share.compute(&task, top, left);
            outcome.busy_seconds += begin.elapsed().as_secs_f64();
            outcome.blocks += 1;
            outcome.cells += task.block.cells();
            outcome
                .candidates
                .extend(Candidate::of(&job, strand, &task.block, computed.peak));
            if let Some((to, edge)) = computed.bottom {
                vm.send_slice(workers[to], ROW, &row_to_numbers(&edge))?;
            }
            if let Some((to, edge)) = computed.right {
                vm.send_slice(workers[to], COLUMN, &column_to_numbers(&edge))?;
            }
            if told.0.elapsed() >= PROGRESS_PACE {
                vm.send_slice(master, PROGRESS, &[outcome.cells - told.1])?;
                told = (Instant::now(), outcome.cells);
            }
        }
    }
    vm.send(master, OUTCOME, &outcome)?;
    Ok(())
}
