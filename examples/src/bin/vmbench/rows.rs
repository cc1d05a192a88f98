//! Rows of figures, and their output.

use crate::plans::{Goal, Plan, Unit};
use serde::{Deserialize, Serialize};
use vm_examples::align::report::table;

/// A measured row. Times are microseconds for each round trip, message or task, or in each second;
/// memory is KiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The name of the row's plan.
    pub name: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The figure of two tasks with vmlib, or of an application that is saved.
    pub ours: f64,
    /// The figure of the same hops with bare relays in the place of the daemons; none for spawn.
    pub relay: Option<f64>,
    /// The figure without the machine: one socket; fork and exec by the measuring process; the
    /// transfer of a move's bytes alone; round trips of others without moves, and the longest of
    /// them beside a plain process; files of the same size, written or read; a stretch without
    /// checkpoints.
    pub raw: Option<f64>,
    /// The figure of another message-passing system, in rows that compare with one.
    pub peer: Option<f64>,
    /// Ours divided by relay, or by raw if there is no relay; in rows about a peer, by the peer.
    pub ratio: Option<f64>,
    /// Ours divided by raw.
    pub ratio_raw: Option<f64>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
    /// Whether the goal is met, if there is one.
    pub ok: bool,
}

/// The measured fields of a [`Row`] in JSON.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Figures {
    ours: f64,
    relay: Option<f64>,
    raw: Option<f64>,
}

impl Figures {
    /// The row with these figures.
    pub fn row(self, plan: &Plan) -> Row {
        Row::new(plan, self.ours, self.relay, self.raw)
    }
}

impl Row {
    /// Makes a row of the medians.
    pub fn new(plan: &Plan, ours: f64, relay: Option<f64>, raw: Option<f64>) -> Self {
        let ratio = relay.or(raw).map(|other| ours / other);
        Row {
            name: plan.name.clone(),
            unit: plan.unit(),
            ours,
            relay,
            raw,
            peer: None,
            ratio,
            ratio_raw: raw.map(|raw| ours / raw),
            goal: plan.goal,
            ok: is_met(plan.goal, ours, ratio, raw),
        }
    }

    /// Makes a row of the medians of ours and of a peer. A peer that failed has none, and its goal
    /// is missed.
    pub fn with_peer(name: String, ours: f64, peer: Option<f64>, goal: Option<Goal>) -> Self {
        let ratio = peer.map(|peer| ours / peer);
        Row {
            name,
            unit: Unit::Micros,
            ours,
            relay: None,
            raw: None,
            peer,
            ratio,
            ratio_raw: None,
            goal,
            ok: is_met(goal, ours, ratio, peer),
        }
    }
}

/// Whether a goal is met, if there is one. `raw` is the figure without the machine, or the peer's.
fn is_met(goal: Option<Goal>, ours: f64, ratio: Option<f64>, raw: Option<f64>) -> bool {
    goal.is_none_or(|goal| match goal {
        Goal::Ratio(most) => ratio.is_some_and(|ratio| ratio <= most),
        Goal::Micros(most) | Goal::Kib(most) => ours <= most,
        Goal::More(most) => raw.is_some_and(|raw| ours <= raw + most),
        Goal::Rate(least) => raw.is_some_and(|raw| raw / ours >= least),
    })
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
        vec![
            row.name.clone(),
            match row.unit {
                Unit::Micros => format!("{:.2}", row.ours),
                Unit::Kib => format!("{:.0} KiB", row.ours),
            },
            or_dash(row.relay.map(|relay| format!("{relay:.2}"))),
            or_dash(row.raw.map(|raw| format!("{raw:.2}"))),
            or_dash(row.relay.map(|relay| format!("{:.2}", row.ours / relay))),
            or_dash(row.ratio_raw.map(|ratio| format!("{ratio:.2}"))),
            or_dash(row.goal.map(|goal| goal_text(goal, "raw"))),
            if row.ok { "" } else { "missed" }.to_owned(),
        ]
    });
    table(&heads, cells).to_string()
}

/// The rows about peers for people.
pub fn show_peers(rows: &[Row]) -> String {
    let heads = ["row", "ours µs", "peer µs", "to peer", "goal", ""];
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            format!("{:.2}", row.ours),
            or_dash(row.peer.map(|peer| format!("{peer:.2}"))),
            or_dash(row.ratio.map(|ratio| format!("{ratio:.2}"))),
            or_dash(row.goal.map(|goal| goal_text(goal, "peer"))),
            if row.ok { "" } else { "missed" }.to_owned(),
        ]
    });
    table(&heads, cells).to_string()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// A goal for people; `other` is the side that ours is compared with.
fn goal_text(goal: Goal, other: &str) -> String {
    match goal {
        Goal::Ratio(most) => format!("<= {most}"),
        Goal::Micros(most) => format!("<= {most} µs"),
        Goal::Kib(most) => format!("<= {most} KiB"),
        Goal::More(most) => format!("<= {other} + {most} µs"),
        Goal::Rate(least) => format!(">= {least} of {other}'s rate"),
    }
}

/// The median; of an even number of values, the lower of the two in the middle.
///
/// # Panics
/// If there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans::plans;

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
        plan.goal = Some(Goal::Rate(0.5));
        assert!(Row::new(&plan, 8.0, None, Some(4.0)).ok);
        assert!(!Row::new(&plan, 8.1, None, Some(4.0)).ok);
        plan.goal = None;
        assert!(Row::new(&plan, 99.0, None, Some(1.0)).ok);
    }

    #[test]
    fn one_slow_turn_does_not_change_the_median() {
        assert_eq!(median(vec![3.0, 900.0, 1.0]), 3.0);
        assert_eq!(median(vec![2.0]), 2.0);
    }
}
