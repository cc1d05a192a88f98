//! Which rows there are, their goals, and how they are shown.

use serde::Serialize;
use vm_examples::align::report::table;

/// What an 8 byte round trip through the daemon may cost, in round trips through a bare relay.
const SMALL_ROUND_TRIP_GOAL: Goal = Goal::Ratio(1.3);
/// How long a task of 20 MB may stand still when it moves.
const SMALL_FREEZE_GOAL: Goal = Goal::Micros(30_000.0);
/// How long one of 1 GiB that rewrites a hundredth of it in each second may.
const LARGE_FREEZE_GOAL: Goal = Goal::Micros(60_000.0);

/// How long one of 1 GiB may without pre-copy, in times that its bytes alone take.
const STOPPED_FREEZE_GOAL: Goal = Goal::Ratio(1.5);
/// How long its whole move may take, in the same.
const MOVE_GOAL: Goal = Goal::Ratio(1.6);
/// What moves may cost others: of a thousand round trips of theirs, so many, and how much longer
/// they may take.
const OTHERS: [(&str, usize, Goal); 3] = [
    ("median", 500, Goal::Ratio(1.5)),
    ("99.9%", 999, Goal::Ratio(3.0)),
    ("longest", 1000, Goal::More(5_000.0)),
];

/// The most that is good.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Goal {
    /// Of ours to relay, or to raw where there is no relay.
    Ratio(f64),
    /// Of ours.
    Micros(f64),
    /// Of ours above raw. Microseconds.
    More(f64),
}

/// Where the two ends of a row are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Both on one: UNIX sockets.
    One,
    /// On two: a TCP connection on the loopback address lies between.
    Two,
}

/// What a row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A message there and one of the same size back.
    RoundTrip,
    /// Many messages there, and at the end an answer.
    Stream,
    /// Tasks that are started and say that they are there.
    Spawn,
    /// How long a task stands still that moves.
    Freeze {
        /// Of its memory that it rewrites in each second. Percent.
        percent: u64,
        /// Most of its memory is sent while it runs.
        precopy: bool,
    },
    /// How long a move takes.
    Move,
    /// How long so many of a thousand round trips of others take at most, while a task moves.
    Others(usize),
    /// Likewise the longest of those during which no host of a virtual machine took processors away.
    OthersCalm,
}

/// A row before it is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Unique.
    pub name: String,
    /// What is measured.
    pub what: What,
    /// Where.
    pub hosts: Hosts,
    /// Of a message, or of the memory of a task that moves. Bytes.
    pub size: usize,
    /// Round trips, messages, tasks or moves of one turn.
    pub count: usize,
    /// If there is one.
    pub goal: Option<Goal>,
}

/// All rows.
pub fn plans() -> Vec<Plan> {
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
            let small_and_near = size == 8 && hosts == Hosts::One;
            plans.push(Plan {
                name: format!("round trip, {place}, {text}"),
                what: What::RoundTrip,
                hosts,
                size,
                count,
                goal: small_and_near.then_some(SMALL_ROUND_TRIP_GOAL),
            });
        }
        for (size, text, count) in [(8, "8 B", 50_000), (64 << 10, "64 KiB", 2000)] {
            plans.push(Plan {
                name: format!("stream, {place}, {text}"),
                what: What::Stream,
                hosts,
                size,
                count,
                goal: None,
            });
        }
        for count in [1, 16] {
            plans.push(Plan {
                name: format!("spawn, {place}, {count}"),
                what: What::Spawn,
                hosts,
                size: 0,
                count,
                goal: None,
            });
        }
    }
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
    let moves = moves.map(|(name, what, goal)| (name.to_owned(), what, goal));
    let others = OTHERS.map(|(name, of_thousand, goal)| {
        let name = format!("others during moves of 1 GiB, {name}");
        (name, What::Others(of_thousand), goal)
    });
    for (name, what, goal) in moves.into_iter().chain(others) {
        let small = what == freeze(0, true);
        plans.push(Plan {
            name,
            what,
            hosts: Hosts::Two,
            size: if small { 20 << 20 } else { 1 << 30 },
            count: 1,
            goal: Some(goal),
        });
    }
    plans.push(Plan {
        name: "others during moves of 1 GiB, longest, none stolen".to_owned(),
        what: What::OthersCalm,
        hosts: Hosts::Two,
        size: 1 << 30,
        count: 1,
        goal: None,
    });
    plans
}

/// A row, measured. Times are microseconds per round trip, message or task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// From the plan.
    pub name: String,
    /// Two tasks with vmlib.
    pub ours: f64,
    /// The same hops with bare relays in place of the daemons; there is none for spawn. Of what moves
    /// cost others: what the same bytes do that travel between bare processes.
    pub relay: Option<f64>,
    /// One socket; fork and exec by the measuring process; the bytes of a move alone; others without
    /// moves.
    pub raw: Option<f64>,
    /// Ours to relay, or to raw where there is no relay.
    pub ratio: Option<f64>,
    /// Ours to raw.
    pub ratio_raw: Option<f64>,
    /// If there is one.
    pub goal: Option<Goal>,
    /// Whether the goal is met, if there is one.
    pub ok: bool,
}

impl Row {
    /// Puts a row together from the medians.
    pub fn new(plan: &Plan, ours: f64, relay: Option<f64>, raw: Option<f64>) -> Self {
        let ratio = relay.or(raw).map(|other| ours / other);
        Row {
            name: plan.name.clone(),
            ours,
            relay,
            raw,
            ratio,
            ratio_raw: raw.map(|raw| ours / raw),
            goal: plan.goal,
            ok: plan.goal.is_none_or(|goal| match goal {
                Goal::Ratio(most) => ratio.is_some_and(|ratio| ratio <= most),
                Goal::Micros(most) => ours <= most,
                Goal::More(most) => raw.is_some_and(|raw| ours <= raw + most),
            }),
        }
    }
}

/// The rows for people.
pub fn show(rows: &[Row]) -> String {
    let heads = [
        "row",
        "ours µs",
        "relay µs",
        "raw µs",
        "to relay",
        "to raw",
        "goal",
        "",
    ];
    let cells = rows.iter().map(|row| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            row.name.clone(),
            format!("{:.2}", row.ours),
            or_dash(row.relay.map(|relay| format!("{relay:.2}"))),
            or_dash(row.raw.map(|raw| format!("{raw:.2}"))),
            or_dash(row.relay.map(|relay| format!("{:.2}", row.ours / relay))),
            or_dash(row.ratio_raw.map(|ratio| format!("{ratio:.2}"))),
            or_dash(row.goal.map(|goal| match goal {
                Goal::Ratio(most) => format!("<= {most}"),
                Goal::Micros(most) => format!("<= {most} µs"),
                Goal::More(most) => format!("<= raw + {most} µs"),
            })),
            if row.ok { "" } else { "missed" }.to_owned(),
        ]
    });
    table(&heads, cells).to_string()
}

/// The middle one; of an even number, the lower of the two.
///
/// # Panics
/// If there is none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_good_up_to_its_goal_against_the_relay() {
        let mut plan = plans().remove(0);
        plan.goal = Some(Goal::Ratio(1.3));
        assert!(Row::new(&plan, 13.0, Some(10.0), Some(4.0)).ok);
        assert!(!Row::new(&plan, 13.1, Some(10.0), Some(4.0)).ok);
        plan.goal = Some(Goal::More(5.0));
        assert!(Row::new(&plan, 9.0, None, Some(4.0)).ok);
        assert!(!Row::new(&plan, 9.1, None, Some(4.0)).ok);
        assert!(!Row::new(&plan, 9.1, Some(4.2), Some(4.0)).ok);
        plan.goal = Some(Goal::Micros(30.0));
        assert!(Row::new(&plan, 30.0, None, None).ok);
        assert!(!Row::new(&plan, 30.1, None, None).ok);
        plan.goal = None;
        assert!(Row::new(&plan, 99.0, None, Some(1.0)).ok);
    }

    #[test]
    fn names_of_rows_are_unique() {
        let names: std::collections::BTreeSet<_> =
            plans().into_iter().map(|plan| plan.name).collect();
        assert_eq!(names.len(), plans().len());
    }

    #[test]
    fn the_median_does_not_mind_one_slow_turn() {
        assert_eq!(median(vec![3.0, 900.0, 1.0]), 3.0);
        assert_eq!(median(vec![2.0]), 2.0);
    }
}
