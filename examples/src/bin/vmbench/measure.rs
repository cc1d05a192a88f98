//! Measures the rows that are measured inside of the machine.

use crate::{
    arguments::Arguments,
    bare::{self, Bare},
    ours::Ours,
    plans::{Beside, Plan, What, chosen},
    rows::{Row, median},
    sealed,
};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::{fs, time::Instant};
use vmlib::MoveWay;

/// The progress of the rows, on a terminal.
pub fn bar(rows: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("[{bar:20}] {msg}")?;
    Ok(ProgressBar::new(rows as u64).with_style(style))
}

/// Runs the rows that are measured inside of the machine, and writes them to the file for the
/// process that has started it: the rows of a machine with encrypted links, or those of a `plain` one.
pub fn run(arguments: &Arguments, plain: bool) -> Result<()> {
    let vm = vmlib::init()?;
    let plans = chosen(&arguments.only);
    let is_here = |plan: &Plan| plan.is_inside() && plan.is_plain() == plain;
    let plans: Vec<Plan> = plans.into_iter().filter(is_here).collect();
    let ours = Ours::start(vm)?;
    let bar = bar(plans.len())?;
    let mut rows = Vec::new();
    // Measured once for all rows of that kind.
    let mut others = None;
    for plan in &plans {
        bar.set_message(plan.name.clone());
        rows.push(match plan.what {
            What::Freeze { percent, precopy } => {
                let way = MoveWay {
                    precopy,
                    ..MoveWay::default()
                };
                freeze(&ours, plan, percent, way, arguments.turns)?
            }
            What::Move => whole(&ours, plan, arguments.turns)?,
            What::Others(beside) => {
                let others = match &mut others {
                    Some(others) => others,
                    None => others.insert(ours.others(plan.size, &arguments.daemons)?),
                };
                let [time, quiet] = match beside {
                    Beside::Moves(of_thousand) => others.at(of_thousand),
                    Beside::Processes => others.processes(),
                };
                Row::new(plan, time, None, Some(quiet))
            }
            What::Waiting | What::IdlePair | What::ManyTasks => {
                Row::new(plan, ours.waiting(plan)?, None, None)
            }
            _ => row(&ours, plan, arguments.turns)?,
        });
        bar.inc(1);
    }
    ours.stop()?;
    bar.finish_and_clear();
    let out = arguments.out.as_ref().context("no file for the rows")?;
    fs::write(out, serde_json::to_string(&rows)?)?;
    Ok(())
}

/// Measures the freeze time of a task that moves there and back in turn. Without pre-copy, the
/// transfer of its bytes alone is measured between the moves.
fn freeze(ours: &Ours, plan: &Plan, percent: u64, way: MoveWay, turns: u32) -> Result<Row> {
    let mut alone = Alone::of((!way.precopy).then_some(plan.size));
    let reports = ours.moves(plan.size, percent, way, turns, || alone.travel())?;
    let times = reports.iter().map(|report| report.freeze_us() as f64);
    Ok(Row::new(
        plan,
        median(times.collect()),
        None,
        alone.median(),
    ))
}

/// Measures the duration of a move, and the transfer of its bytes alone.
fn whole(ours: &Ours, plan: &Plan, turns: u32) -> Result<Row> {
    let mut alone = Alone::of(Some(plan.size));
    let reports = ours.moves(plan.size, 1, MoveWay::default(), turns, || alone.travel())?;
    let times = reports.iter().map(|report| report.total_us as f64);
    Ok(Row::new(
        plan,
        median(times.collect()),
        None,
        alone.median(),
    ))
}

/// The transfer of bytes alone.
struct Alone {
    memory: Vec<u8>,
    times: Vec<f64>,
}

impl Alone {
    fn of(bytes: Option<usize>) -> Self {
        Alone {
            memory: vec![1; bytes.unwrap_or(0)],
            times: Vec::new(),
        }
    }

    fn travel(&mut self) -> Result<()> {
        if !self.memory.is_empty() {
            sealed::find_memory(self.memory.len())?;
            self.times.push(sealed::send(&self.memory)?);
        }
        Ok(())
    }

    /// The median of the times. The first transfer warms up and does not count.
    fn median(mut self) -> Option<f64> {
        let times = self.times.split_off(self.times.len().min(1));
        (!times.is_empty()).then(|| median(times))
    }
}

/// Measures one row. The ways take turns; the first turn of each warms up and does not count.
fn row(ours: &Ours, plan: &Plan, turns: u32) -> Result<Row> {
    let per_item = |begin: Instant| 1e6 * begin.elapsed().as_secs_f64() / plan.count as f64;
    let (mut our_times, mut relay_times, mut raw_times) = (Vec::new(), Vec::new(), Vec::new());
    let mut wires = match plan.what {
        What::RoundTrip | What::Stream => {
            Some((Bare::relayed(plan.hosts)?, Bare::raw(plan.hosts)?))
        }
        _ => None,
    };
    for turn in 0..=turns {
        let begin = Instant::now();
        ours.run(plan)?;
        let our_time = per_item(begin);
        let mut relay_time = None;
        let raw_time = match &mut wires {
            Some((relay, raw)) => {
                let begin = Instant::now();
                relay.run(plan)?;
                relay_time = Some(per_item(begin));
                let begin = Instant::now();
                raw.run(plan)?;
                per_item(begin)
            }
            None if plan.what == What::SealedRoundTrip => {
                let (mut cipher, message) = (sealed::Cipher::new()?, vec![0; plan.size]);
                let begin = Instant::now();
                for _ in 0..2 * plan.count {
                    cipher.pass(&message)?;
                }
                per_item(begin)
            }
            None => {
                let begin = Instant::now();
                bare::spawn(plan.count)?;
                per_item(begin)
            }
        };
        if turn > 0 {
            our_times.push(our_time);
            relay_times.extend(relay_time);
            raw_times.push(raw_time);
        }
    }
    if let Some((relay, raw)) = wires {
        relay.end()?;
        raw.end()?;
    }
    let relay = (!relay_times.is_empty()).then(|| median(relay_times));
    let raw = Some(median(raw_times));
    Ok(Row::new(plan, median(our_times), relay, raw))
}
