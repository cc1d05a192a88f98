//! The master: starts the workers, shows their progress, and combines their results.
//!
//! If a worker ends before it has sent its outcome, the run has failed. The master then ends with
//! an error, and the machine ends the other workers.

use crate::messages::{ORDER, OUTCOME, Order, Outcome, PROGRESS, QUERY, TARGET};
use anyhow::{Result, bail, ensure};
use std::{collections::BTreeMap, iter, time::Instant};
use vm_examples::{
    align::{
        hits::{Candidate, select},
        job::{Job, Options},
        progress::progress_bar,
        report::{Report, Work},
        strand::Strand,
    },
    workers,
};
use vmlib::{ANY, Event, Host, Incoming, Task, Tid};

/// Runs the whole alignment and prints the report.
pub fn run(vm: &Task, options: &Options, workers: Option<u32>) -> Result<()> {
    let (job, origin) = options.prepare()?;
    let hosts = vm.hosts()?;
    let workers = workers::start(vm, &hosts, workers)?;
    let begin = Instant::now();
    let order = Order {
        setup: job.setup.clone(),
        workers: workers.clone(),
    };
    vm.multicast(&workers, ORDER, &order)?;
    vm.multicast_bytes(&workers, QUERY, job.query(Strand::Plus).to_vec())?;
    vm.multicast_bytes(&workers, TARGET, job.target.clone())?;
    let outcomes = gather(vm, &job, &workers)?;
    let (candidates, work) = sort_out(&hosts, &workers, outcomes);
    let alignments = select(&job, candidates);
    let seconds = begin.elapsed().as_secs_f64();
    Report::new(&job, origin, &alignments, seconds, work).print(options.json)
}

/// Waits for the outcome of every worker, in any order; returns them by number.
fn gather(vm: &Task, job: &Job, workers: &[Tid]) -> Result<Vec<Outcome>> {
    let bar = progress_bar(job.setup.cells());
    let mut outcomes: BTreeMap<Tid, Outcome> = BTreeMap::new();
    while outcomes.len() < workers.len() {
        match vm.next(ANY, ANY, None)? {
            Some(Incoming::Message(message)) if message.tag() == PROGRESS => {
                bar.inc(message.slice::<u64>()?.iter().sum());
            }
            Some(Incoming::Message(message)) if message.tag() == OUTCOME => {
                outcomes.insert(message.from(), message.value()?);
            }
            Some(Incoming::Message(message)) => {
                bail!(
                    "{} sent a message of unknown tag {}",
                    message.from(),
                    message.tag()
                );
            }
            Some(Incoming::Event(Event::TaskEnded { tid, status })) => {
                ensure!(
                    outcomes.contains_key(&tid),
                    "worker {tid} has failed: {status}"
                );
            }
            Some(Incoming::Event(_)) | None => {}
        }
    }
    bar.finish_and_clear();
    Ok(workers
        .iter()
        .filter_map(|worker| outcomes.remove(worker))
        .collect())
}

/// All candidates, and the work of each worker.
fn sort_out(
    hosts: &[Host],
    workers: &[Tid],
    outcomes: Vec<Outcome>,
) -> (Vec<Candidate>, Vec<Work>) {
    let mut candidates = Vec::new();
    let mut work = Vec::new();
    for (worker, outcome) in iter::zip(workers, outcomes) {
        candidates.extend(outcome.candidates);
        let host = hosts.iter().find(|host| host.id == outcome.host);
        work.push(Work {
            worker: worker.to_string(),
            host: host.map_or_else(|| outcome.host.to_string(), |host| host.facts.name.clone()),
            blocks: outcome.blocks,
            cells: outcome.cells,
            busy_seconds: outcome.busy_seconds,
        });
    }
    (candidates, work)
}
