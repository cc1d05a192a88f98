//! Compares the time of a run with faults with the time of a model.
//!
//! Without faults the plate takes *T*. Each checkpoint takes the freeze time *C*. When a host is
//! lost, the application runs again after the *outage*: the time until the loss is noticed, and all
//! tasks are restored on the remaining hosts. Then it repeats the work since the last checkpoint:
//! half of an interval on average, half of the time *S* that a checkpoint takes from the request to
//! the commit, and the whole of *S* once more, because only a committed checkpoint counts. So
//!
//! ```text
//! total = T + checkpoints * C + recoveries * (outage + interval / 2 + 3/2 S)
//! ```
//!
//! where recoveries are the total time divided by the mean time *up* from one loss that struck the
//! application to the next. *T*, *C*, *S* and the outage are means of the measurements in the same
//! run; the interval is the requested one.

use crate::run::{Happened, Plate};
use serde::Serialize;
use vm_examples::align::report::table;

/// Bound on the difference between the total time and the model's, as a part of the latter.
const TOLERANCE: f64 = 0.15;

/// The terms of the model. Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Terms {
    /// Time without faults and checkpoints.
    pub fault_free_s: f64,
    /// Time from the end of a checkpoint to the next.
    pub interval_s: f64,
    /// Freeze time of a checkpoint.
    pub standstill_s: f64,
    /// Duration of a checkpoint, from the request to the commit.
    pub checkpoint_s: f64,
    /// Number of checkpoints.
    pub checkpoints: usize,
    /// Time from the loss of a host until all tasks run again.
    pub outage_s: f64,
    /// Number of recoveries.
    pub recoveries: usize,
}

impl Terms {
    /// The terms of the model, from the events of a run.
    pub fn new(happened: &Happened, quiet_s: [f64; 2], interval_s: f64) -> Self {
        let checkpoints = &happened.checkpoints;
        let outages = happened.recoveries.iter().map(|it| it.outage_s);
        Terms {
            fault_free_s: mean(quiet_s.into_iter()),
            interval_s,
            standstill_s: mean(checkpoints.iter().map(|it| it.0)),
            checkpoint_s: mean(checkpoints.iter().map(|it| it.1)),
            checkpoints: checkpoints.len(),
            outage_s: mean(outages),
            recoveries: happened.recoveries.len(),
        }
    }

    /// The work that is repeated after a loss. Seconds.
    pub fn again_s(&self) -> f64 {
        self.interval_s / 2.0 + 1.5 * self.checkpoint_s
    }

    /// The time that the model predicts. Seconds.
    pub fn total_s(&self) -> f64 {
        let saving = self.checkpoints as f64 * self.standstill_s;
        let losses = self.recoveries as f64 * (self.outage_s + self.again_s());
        self.fault_free_s + saving + losses
    }
}

/// The report of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The seed, which repeats the losses.
    pub seed: u64,
    /// The hosts of the machine.
    pub hosts: usize,
    /// The size of the computation.
    #[serde(flatten)]
    pub plate: Plate,
    /// Seconds without faults and checkpoints, measured before and after the run.
    pub quiet_s: [f64; 2],
    /// The events of the run.
    #[serde(flatten)]
    pub happened: Happened,
    /// The terms of the model.
    pub terms: Terms,
    /// The time that the model predicts. Seconds.
    pub model_s: f64,
    /// The total time divided by the time of the model.
    pub ratio: f64,
    /// Whether the time is compared with the model.
    pub timed: bool,
    /// The fingerprint that one process computes.
    pub expected: String,
    /// Processes that were left when the machine had been stopped.
    pub left_over: Vec<String>,
}

impl Report {
    /// Whether the result is that of one process, to the last bit.
    pub fn is_right(&self) -> bool {
        self.happened.fingerprint == self.expected
    }

    /// Whether the time is near that of the model, or is not compared.
    pub fn is_in_time(&self) -> bool {
        !self.timed || (self.ratio - 1.0).abs() <= TOLERANCE
    }

    /// Whether the result is right and nothing is left over.
    pub fn is_well(&self) -> bool {
        self.is_right()
            && self.is_in_time()
            && self.left_over.is_empty()
            && self.happened.damaged.is_empty()
    }

    /// The report as lines of text.
    pub fn show(&self) -> String {
        let losses = self.happened.losses.iter().map(|loss| {
            let or_dash = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), second);
            let led = if loss.leader { " (leader)" } else { "" };
            vec![
                second(loss.at_s),
                format!("{}{led}", loss.host),
                loss.tasks.to_string(),
                second(loss.waited_s),
                or_dash(loss.outage_s),
                or_dash(loss.back_s),
            ]
        });
        let heads = [
            "lost at s",
            "host",
            "tasks",
            "waited s",
            "all run again after s",
            "back at s",
        ];
        let losses = table(&heads, losses);
        let recoveries = self.happened.recoveries.iter().map(|it| {
            let times = [it.outage_s, it.restart_s, it.work_s];
            let times = times.map(second);
            [vec![it.host.clone()], times.to_vec()].concat()
        });
        let heads = [
            "went back for",
            "outage s",
            "of it restart s",
            "work lost s",
        ];
        let recoveries = table(&heads, recoveries);
        let terms = &self.terms;
        let row = |name: &str, count: String, each: String, all: f64| {
            vec![name.to_owned(), count, each, format!("{all:.1}")]
        };
        let none = String::new;
        let (made, back) = (terms.checkpoints as f64, terms.recoveries as f64);
        let rows = [
            row(
                "without faults, T, before and after",
                none(),
                self.quiet_s.map(second).join(", "),
                terms.fault_free_s,
            ),
            row(
                "standstill of checkpoints",
                terms.checkpoints.to_string(),
                format!("{:.3}", terms.standstill_s),
                made * terms.standstill_s,
            ),
            row(
                "outage",
                terms.recoveries.to_string(),
                second(terms.outage_s),
                back * terms.outage_s,
            ),
            row(
                "interval / 2 + 3/2 checkpoint",
                terms.recoveries.to_string(),
                second(terms.again_s()),
                back * terms.again_s(),
            ),
            row("model", none(), none(), self.model_s),
            row("measured", none(), none(), self.happened.total_s),
        ];
        let model = table(&["seconds", "times", "each", "all"], rows.into_iter());
        format!("{losses}\n\n{recoveries}\n\n{model}\n\n{}", self.verdict())
    }

    fn verdict(&self) -> String {
        let result = match self.is_right() {
            true => "the result is that of one process, to the last bit".to_owned(),
            false => format!(
                "WRONG RESULT: fingerprint {}, that of one process is {}",
                self.happened.fingerprint, self.expected
            ),
        };
        let left = match &self.left_over[..] {
            [] => "no process is left over".to_owned(),
            left => format!("LEFT OVER: {}", left.join("; ")),
        };
        let stored = match &self.happened.damaged[..] {
            [] => format!("{} checkpoints are whole", self.happened.stored),
            damaged => format!("DAMAGED: {}", damaged.join("; ")),
        };
        let time = match (self.timed, self.is_in_time()) {
            (true, true) => "as the model says",
            (true, false) => "NOT AS THE MODEL SAYS",
            (false, _) => "which was not to be compared",
        };
        format!(
            "seed {}: {result}; {left}; {stored}; {:.3} of the model's time, {time}",
            self.seed, self.ratio
        )
    }
}

fn second(time: f64) -> String {
    format!("{time:.1}")
}

/// The mean; 0 if there are no values.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Recovery;

    #[test]
    fn the_model_adds_up_what_each_loss_and_each_checkpoint_costs() {
        let recovery = |outage_s| Recovery {
            host: "a".to_owned(),
            outage_s,
            restart_s: 0.5,
            work_s: 4.0,
        };
        let happened = Happened {
            checkpoints: vec![(0.1, 0.2), (0.3, 0.6)],
            recoveries: vec![recovery(3.0), recovery(5.0)],
            ..Happened::default()
        };
        let terms = Terms::new(&happened, [90.0, 110.0], 10.0);
        assert!((terms.again_s() - 5.6).abs() < 1e-9);
        assert!((terms.total_s() - (100.0 + 0.4 + 2.0 * 9.6)).abs() < 1e-9);
        let quiet = Terms::new(&Happened::default(), [100.0; 2], 10.0);
        assert_eq!(quiet.total_s(), 100.0);
    }
}
