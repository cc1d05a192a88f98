//! The rows of the benchmark, and their goals.

use serde::Serialize;

/// The goal for an 8 byte round trip through the daemon, in round trips through a bare relay.
const SMALL_ROUND_TRIP_GOAL: Goal = Goal::Ratio(1.3);
/// Goal for an 8 byte round trip between two hosts, encrypted, as a part of the rate of bare TCP.
const FAR_ROUND_TRIP_GOAL: Goal = Goal::Rate(0.56);
/// Goals for round trips between two hosts whose links are not encrypted, as parts of the rate of bare
/// TCP: of 8 bytes, and of 1 MiB.
const PLAIN_ROUND_TRIP_GOALS: [Goal; 2] = [Goal::Rate(0.71), Goal::Rate(0.85)];
/// Goal for a round trip of 1 MiB between two hosts, encrypted, as a part of the rate at which one thread
/// seals and opens the same bytes.
const SEALED_ROUND_TRIP_GOAL: Goal = Goal::Rate(0.75);
/// Goal for a message of a stream of 64 KiB, in messages through a bare relay.
const STREAM_GOAL: Goal = Goal::Ratio(1.5);
/// Goal for the start of 50 tasks on one host, in starts of plain processes.
const SPAWN_GOAL: Goal = Goal::Ratio(1.6);
/// Goal for the freeze time of a task of 20 MB that moves.
const SMALL_FREEZE_GOAL: Goal = Goal::Micros(30_000.0);
/// Goal for the freeze time of a task of 1 GiB that rewrites a hundredth of its memory in each
/// second.
const LARGE_FREEZE_GOAL: Goal = Goal::Micros(60_000.0);

/// Goal for the freeze time of a task of 1 GiB without pre-copy, as a multiple of the transfer of
/// its bytes alone.
const STOPPED_FREEZE_GOAL: Goal = Goal::Ratio(1.5);
/// Goal for the duration of its whole move, as the same multiple.
const MOVE_GOAL: Goal = Goal::Ratio(1.6);
/// Goals for the cost of moves for other tasks: a number of a thousand round trips, and the ratio
/// of their time to that with nothing beside. The longest one is compared with the longest beside a
/// process that uses as much memory and ends.
const OTHERS: [(&str, usize, Goal); 3] = [
    ("median", 500, Goal::Ratio(1.5)),
    ("99.9%", 999, Goal::Ratio(3.0)),
    ("longest", 1000, Goal::More(5_000.0)),
];

/// Goal for the freeze time of tasks of 20 MB at a checkpoint.
const CHECKPOINT_FREEZE_GOAL: Goal = Goal::Micros(50_000.0);
/// Goal for the rate of a restart, as a part of the rate of plain reads of the same files.
const RESTART_GOAL: Goal = Goal::Rate(0.6);
/// Goals for the time from the kill of a host until its applications compute again, and for the
/// part of it until the loss is noticed.
const RECOVERY_GOAL: Goal = Goal::Micros(10_000_000.0);
const DETECTION_GOAL: Goal = Goal::Micros(5_000_000.0);
/// Goals for the time of a run with checkpoints, and of a run under a policy that makes none, as
/// ratios to a run without a policy.
const CHECKPOINTS_GOAL: Goal = Goal::Ratio(1.03);
const IDLE_GOAL: Goal = Goal::Ratio(1.005);

/// Goal for the processor time of a task that waits. Microseconds in each second: the library looks
/// at its timers a few times in ten seconds.
const WAITING_GOAL: Goal = Goal::Micros(50.0);
/// Goals for the memory that two tasks share ten seconds after their last message, and for all
/// memory of 500 tasks of which each exchanges messages with eight others.
const IDLE_PAIR_GOAL: Goal = Goal::Kib(4.0);
const MANY_TASKS_GOAL: Goal = Goal::Kib(1024.0 * 1024.0);

/// The greatest good value of a figure; for [`Goal::Rate`] the least.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Goal {
    /// Ratio of ours to relay, or to raw if there is no relay.
    Ratio(f64),
    /// Bound for ours. Microseconds.
    Micros(f64),
    /// Bound for ours. KiB.
    Kib(f64),
    /// Bound for ours minus raw. Microseconds.
    More(f64),
    /// The least ratio of the rate of ours to that of raw.
    Rate(f64),
}

/// The hosts of the two ends of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Both ends on one host: UNIX sockets.
    One,
    /// On two hosts: a TCP connection on the loopback address lies between.
    Two,
    /// As before, in a machine whose links are not encrypted.
    TwoPlain,
}

/// The quantity that a row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A message there and one of the same size back.
    RoundTrip,
    /// The same, beside the time in which its bytes are sealed and opened.
    SealedRoundTrip,
    /// Many messages there, and one acknowledgement at the end.
    Stream,
    /// Tasks that are started and report their start.
    Spawn,
    /// The freeze time of a task that moves.
    Freeze {
        /// The part of its memory that it rewrites in each second. Percent.
        percent: u64,
        /// Whether pre-copy is used.
        precopy: bool,
    },
    /// The duration of a move.
    Move,
    /// The time of round trips of other tasks.
    Others(Beside),
    /// The processor time of tasks that wait.
    Waiting,
    /// The memory that two tasks share some time after their last message.
    IdlePair,
    /// The memory of many tasks that exchange messages with several others each.
    ManyTasks,
    /// Measured from outside: applications with a console.
    Saved(Saved),
}

/// The unit of a row's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "µs")]
    Micros,
    /// KiB of memory.
    #[serde(rename = "KiB")]
    Kib,
}

/// The load beside the pair of other tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Moves. The row is the time that this number of a thousand round trips do not exceed.
    Moves(usize),
    /// Plain processes that use memory.
    Processes,
}

/// A quantity of checkpoints, restarts or recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// The freeze time of the slowest task.
    Freeze,
    /// The duration of a restart.
    Restart,
    /// The time from the kill of a host until all tasks compute again.
    Recovery,
    /// The part of that time until the loss is noticed.
    Detection,
    /// The time of a stretch of a program, compared with a stretch without checkpoints.
    Policy(Program, Way),
}

/// A program that computes all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The example heat, with 1 GiB.
    Heat,
    /// The example program `matmul`.
    Matmul,
}

/// The checkpoints that are made while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// One in each stretch, every ten seconds.
    Often,
    /// None; the policy would make one in an hour.
    Idle,
}

/// A row before it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The name of the row, which is unique.
    pub name: String,
    /// The quantity that the row measures.
    pub what: What,
    /// The hosts of the two ends.
    pub hosts: Hosts,
    /// Size of a message, or of the memory of a task that moves or is saved. Bytes.
    pub size: usize,
    /// Number of round trips, messages, tasks or moves in one turn; number of tasks of an
    /// application that is saved.
    pub count: usize,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

impl Plan {
    /// Whether the row is measured by a task.
    pub fn is_inside(&self) -> bool {
        !matches!(self.what, What::Saved(_))
    }

    /// Whether the row is measured in a machine whose links are not encrypted.
    pub fn is_plain(&self) -> bool {
        self.hosts == Hosts::TwoPlain
    }

    /// Whether the row takes minutes or a gigabyte of memory, and is measured only by request.
    fn is_long(&self) -> bool {
        matches!(self.what, What::Saved(Saved::Policy(..)) | What::ManyTasks)
    }

    /// The unit of the row's figures.
    pub fn unit(&self) -> Unit {
        match self.what {
            What::IdlePair | What::ManyTasks => Unit::Kib,
            _ => Unit::Micros,
        }
    }
}

/// The rows whose names contain `only`; if it is empty, all but the long rows.
pub fn chosen(only: &str) -> Vec<Plan> {
    let chosen = |plan: &Plan| plan.name.contains(only) && !(only.is_empty() && plan.is_long());
    plans().into_iter().filter(chosen).collect()
}

/// The rows in the order in which they are shown.
pub fn plans() -> Vec<Plan> {
    let mut plans = messages();
    plans.extend(ciphers());
    plans.extend(waiting());
    plans.extend(moves());
    plans.extend(saved());
    plans
}

/// Messages between two hosts, with and without the cipher.
fn ciphers() -> Vec<Plan> {
    let [small, large] = PLAIN_ROUND_TRIP_GOALS;
    let far = |name: &str, what, hosts, (size, count), goal| Plan {
        name: format!("round trip, two hosts, {name}"),
        what,
        hosts,
        size,
        count,
        goal: Some(goal),
    };
    let (trip, sealed) = (What::RoundTrip, What::SealedRoundTrip);
    vec![
        far(
            "1 MiB, beside the cipher alone",
            sealed,
            Hosts::Two,
            (1 << 20, 40),
            SEALED_ROUND_TRIP_GOAL,
        ),
        far("8 B, unencrypted", trip, Hosts::TwoPlain, (8, 2000), small),
        far(
            "1 MiB, unencrypted",
            trip,
            Hosts::TwoPlain,
            (1 << 20, 40),
            large,
        ),
    ]
}

/// Tasks that wait, and the memory of tasks.
fn waiting() -> Vec<Plan> {
    let plan = |(name, what, count, goal): (&str, What, usize, Goal)| Plan {
        name: name.to_owned(),
        what,
        hosts: Hosts::One,
        size: 0,
        count,
        goal: Some(goal),
    };
    let rows = [
        (
            "processor time of each of 16 waiting tasks in a second",
            What::Waiting,
            16,
            WAITING_GOAL,
        ),
        ("memory of an idle pair", What::IdlePair, 2, IDLE_PAIR_GOAL),
        (
            "memory of 500 tasks, each with 8 busy peers",
            What::ManyTasks,
            500,
            MANY_TASKS_GOAL,
        ),
    ];
    rows.map(plan).into()
}

/// Messages, and tasks that are started.
fn messages() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (hosts, place) in [(Hosts::One, "one host"), (Hosts::Two, "two hosts")] {
        for (size, text, count) in [
            (8, "8 B", 2000),
            (64, "64 B", 2000),
            (1 << 10, "1 KiB", 2000),
            (64 << 10, "64 KiB", 400),
            (1 << 20, "1 MiB", 40),
            (16 << 20, "16 MiB", 4),
        ] {
            let goal = match hosts {
                _ if size != 8 => None,
                Hosts::One => Some(SMALL_ROUND_TRIP_GOAL),
                Hosts::Two | Hosts::TwoPlain => Some(FAR_ROUND_TRIP_GOAL),
            };
            plans.push(Plan {
                name: format!("round trip, {place}, {text}"),
                what: What::RoundTrip,
                hosts,
                size,
                count,
                goal,
            });
        }
        for (size, text, count) in [(8, "8 B", 50_000), (64 << 10, "64 KiB", 2000)] {
            plans.push(Plan {
                name: format!("stream, {place}, {text}"),
                what: What::Stream,
                hosts,
                size,
                count,
                goal: (size > 8).then_some(STREAM_GOAL),
            });
        }
        for count in [1, 16, 50] {
            plans.push(Plan {
                name: format!("spawn, {place}, {count}"),
                what: What::Spawn,
                hosts,
                size: 0,
                count,
                goal: (hosts == Hosts::One && count == 50).then_some(SPAWN_GOAL),
            });
        }
    }
    plans
}

/// Rows about moves.
fn moves() -> Vec<Plan> {
    let freeze = |percent, precopy| What::Freeze { percent, precopy };
    let moves = [
        (
            "freeze, a move of 20 MB",
            freeze(0, true),
            SMALL_FREEZE_GOAL,
        ),
        (
            "freeze, 1 GiB, 1% a second",
            freeze(1, true),
            LARGE_FREEZE_GOAL,
        ),
        (
            "freeze, 1 GiB, no pre-copy",
            freeze(1, false),
            STOPPED_FREEZE_GOAL,
        ),
        ("a move of 1 GiB", What::Move, MOVE_GOAL),
    ];
    let moves = moves.map(|(name, what, goal)| (name.to_owned(), what, Some(goal)));
    let others = OTHERS.map(|(name, of_thousand, goal)| {
        let name = format!("others during moves of 1 GiB, {name}");
        (name, What::Others(Beside::Moves(of_thousand)), Some(goal))
    });
    let processes = (
        "others, a plain process of 1 GiB, longest".to_owned(),
        What::Others(Beside::Processes),
        None,
    );
    let mut plans = Vec::new();
    for (name, what, goal) in moves.into_iter().chain(others).chain([processes]) {
        let small = what == freeze(0, true);
        plans.push(Plan {
            name,
            what,
            hosts: Hosts::Two,
            size: if small { 20 << 20 } else { 1 << 30 },
            count: 1,
            goal,
        });
    }
    plans
}

/// Applications that are saved.
fn saved() -> Vec<Plan> {
    const SMALL: usize = 20 << 20;
    const LARGE: usize = 64 << 20;
    let plan = |(name, saved, size, goal): (&str, Saved, usize, Goal)| Plan {
        name: name.to_owned(),
        what: What::Saved(saved),
        hosts: Hosts::Two,
        size,
        count: 16,
        goal: Some(goal),
    };
    [
        (
            "checkpoint, freeze of the slowest of 16 tasks of 20 MB",
            Saved::Freeze,
            SMALL,
            CHECKPOINT_FREEZE_GOAL,
        ),
        (
            "restart of 1 GiB in all from local disk",
            Saved::Restart,
            LARGE,
            RESTART_GOAL,
        ),
        (
            "recovery, from the kill of a host to all tasks computing again, 16 tasks of 20 MB, 3 hosts",
            Saved::Recovery,
            SMALL,
            RECOVERY_GOAL,
        ),
        (
            "recovery, of that until the host is declared lost",
            Saved::Detection,
            SMALL,
            DETECTION_GOAL,
        ),
        (
            "a checkpoint every 10 s, heat with 16 tasks, 1 GiB in all",
            Saved::Policy(Program::Heat, Way::Often),
            LARGE,
            CHECKPOINTS_GOAL,
        ),
        (
            "checkpointing switched on but idle (policy of an hour), heat",
            Saved::Policy(Program::Heat, Way::Idle),
            LARGE,
            IDLE_GOAL,
        ),
        (
            "checkpointing switched on but idle (policy of an hour), matmul",
            Saved::Policy(Program::Matmul, Way::Idle),
            SMALL,
            IDLE_GOAL,
        ),
    ]
    .map(plan)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_are_unique() {
        let names: std::collections::BTreeSet<_> =
            plans().into_iter().map(|plan| plan.name).collect();
        assert_eq!(names.len(), plans().len());
    }

    #[test]
    fn rows_that_take_minutes_are_measured_when_they_are_named() {
        assert!(!chosen("").iter().any(Plan::is_long));
        assert_eq!(chosen("heat").len(), 2);
        assert_eq!(chosen("matmul").len(), 1);
        assert_eq!(chosen("500 tasks").len(), 1);
        assert!(chosen("no such row").is_empty());
    }
}
