//! The works that are measured on both sides, their goals, and the line that reports a result.

use crate::plans::Goal;
use clap::ValueEnum;

/// The bound on our time of a round trip of up to 1 KiB, as a multiple of that of Open MPI 5.
const SMALL_ROUND_TRIP_GOAL: Goal = Goal::Ratio(3.0);
/// The same bound for longer messages.
const LONG_ROUND_TRIP_GOAL: Goal = Goal::Ratio(2.0);
/// The least rate of messages of 8 B, as a part of that of Open MPI 5.
const RATE_GOAL: Goal = Goal::Rate(0.4);
/// The bound on our time of a work of many tasks, as a multiple of that of Open MPI 5.
const TOGETHER_GOAL: Goal = Goal::Ratio(2.0);

/// The first word of the line that reports a result.
pub const RESULT: &str = "result ";

/// The operation that the tasks of a work repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A message from the first task to the second, and back.
    RoundTrip,
    /// Messages from the first task to the second, and one reply at the end.
    Rate,
    /// A barrier of all tasks.
    Barrier,
    /// A message from the first task to all others.
    Broadcast,
    /// The sum of the doubles of all tasks, for all.
    Allreduce,
    /// A token that goes through all tasks and returns to the first.
    Ring,
    /// A message from each task to each other.
    AllToAll,
}

impl Kind {
    /// The word for it in command lines and results.
    pub fn word(self) -> &'static str {
        match self {
            Kind::RoundTrip => "round-trip",
            Kind::Rate => "rate",
            Kind::Barrier => "barrier",
            Kind::Broadcast => "broadcast",
            Kind::Allreduce => "allreduce",
            Kind::Ring => "ring",
            Kind::AllToAll => "all-to-all",
        }
    }
}

/// A work before it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// The name, which is unique.
    pub name: String,
    /// The operation that the tasks repeat.
    pub kind: Kind,
    /// Number of tasks.
    pub tasks: usize,
    /// Size of a message. Bytes.
    pub bytes: usize,
    /// Bound on the operations of one turn.
    pub count_max: usize,
    /// The goal against Open MPI 5, if there is one.
    pub goal: Option<Goal>,
}

impl Work {
    /// This work with a goal.
    fn with(self, goal: Goal) -> Self {
        Work {
            goal: Some(goal),
            ..self
        }
    }

    /// The words that both sides take on their command lines, and repeat in the result.
    pub fn words(&self, count: usize) -> [String; 3] {
        [
            self.kind.word().to_owned(),
            self.bytes.to_string(),
            count.to_string(),
        ]
    }

    /// The line of a result: microseconds for each operation.
    pub fn result(kind: Kind, tasks: usize, bytes: usize, count: usize, micros: f64) -> String {
        format!(
            "{RESULT}{} {tasks} {bytes} {count} {micros:.4}",
            kind.word()
        )
    }

    /// The result in the output of a program: microseconds for each operation. None if no line
    /// reports `count` operations of this work.
    pub fn micros(&self, output: &str, count: usize) -> Option<f64> {
        let (tasks, bytes) = (self.tasks, self.bytes);
        let head = format!("{RESULT}{} {tasks} {bytes} {count} ", self.kind.word());
        let mut lines = output.lines();
        let micros = lines.find_map(|line| line.strip_prefix(&head)?.trim_end().parse().ok());
        micros.filter(|micros: &f64| micros.is_finite() && *micros > 0.0)
    }
}

/// The works in the order in which they are shown.
pub fn works() -> Vec<Work> {
    let mut works = Vec::new();
    for (bytes, text, count_max, goal) in [
        (8, "8 B", 100_000, SMALL_ROUND_TRIP_GOAL),
        (1 << 10, "1 KiB", 100_000, SMALL_ROUND_TRIP_GOAL),
        (64 << 10, "64 KiB", 10_000, LONG_ROUND_TRIP_GOAL),
        (1 << 20, "1 MiB", 1000, LONG_ROUND_TRIP_GOAL),
        (16 << 20, "16 MiB", 50, LONG_ROUND_TRIP_GOAL),
    ] {
        let name = format!("round trip of {text}");
        works.push(work(&name, Kind::RoundTrip, 2, bytes, count_max).with(goal));
    }
    let stream = work("stream of 8 B", Kind::Rate, 2, 8, 500_000);
    works.push(stream.with(RATE_GOAL));
    let together = |name: &str, kind, tasks, bytes, count_max| {
        let name = format!("{name}, {tasks} tasks");
        work(&name, kind, tasks, bytes, count_max)
    };
    let barrier = |tasks| together("barrier", Kind::Barrier, tasks, 0, 10_000);
    let broadcast = |tasks| {
        let name = "broadcast of 1 MiB";
        together(name, Kind::Broadcast, tasks, 1 << 20, 1000)
    };
    let sum = |text: &str, tasks, bytes, count_max| {
        let name = format!("allreduce of {text}");
        together(&name, Kind::Allreduce, tasks, bytes, count_max)
    };
    let ring = |tasks| together("ring of 8 B", Kind::Ring, tasks, 8, 10_000);
    let all_to_all = together("all to all of 1 KiB", Kind::AllToAll, 16, 1 << 10, 2000);
    works.extend([
        barrier(8).with(TOGETHER_GOAL),
        barrier(16),
        broadcast(8).with(TOGETHER_GOAL),
        broadcast(16),
        sum("8 B", 8, 8, 10_000).with(TOGETHER_GOAL),
        sum("8 B", 16, 8, 10_000),
        sum("1 MiB", 8, 1 << 20, 1000).with(TOGETHER_GOAL),
        sum("1 MiB", 16, 1 << 20, 1000),
        ring(8),
        ring(16).with(TOGETHER_GOAL),
        all_to_all.with(TOGETHER_GOAL),
    ]);
    works
}

/// A work without a goal.
fn work(name: &str, kind: Kind, tasks: usize, bytes: usize, count_max: usize) -> Work {
    Work {
        name: format!("peers: {name}"),
        kind,
        tasks,
        bytes,
        count_max,
        goal: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_works_are_unique() {
        let names: BTreeSet<_> = works().into_iter().map(|work| work.name).collect();
        assert_eq!(names.len(), works().len());
    }

    #[test]
    fn a_result_is_read_as_it_is_written_and_no_other_is() {
        let work = &works()[0];
        let line = Work::result(work.kind, 2, 8, 100, 1.25);
        let output = format!("a warning\n{line}\nmore\n");
        assert_eq!(work.micros(&output, 100), Some(1.25));
        assert_eq!(work.micros(&output, 10), None);
        assert_eq!(works()[1].micros(&output, 100), None);
        for micros in ["", "x", "nan", "inf", "0.0", "-1.0"] {
            let output = format!("result round-trip 2 8 100 {micros}\n");
            assert_eq!(work.micros(&output, 100), None, "{micros}");
        }
    }
}
