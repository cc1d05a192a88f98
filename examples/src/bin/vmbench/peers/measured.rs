//! Measured works: their rows and their plot.

use super::{
    plot::{self, Line},
    works::{Kind, Work},
};
use crate::rows::Row;
use anyhow::{Result, ensure};

/// A measured work.
pub struct Measured {
    pub work: Work,
    /// Microseconds for each operation.
    pub ours: f64,
    pub peers: Vec<Beside>,
}

/// The figure of a peer beside ours.
pub struct Beside {
    pub name: String,
    /// Microseconds for each operation; none if the peer has failed.
    pub micros: Option<f64>,
    /// Whether the goals of rows are goals against this peer.
    pub has_goals: bool,
}

impl Measured {
    /// A row for each peer.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.peers.iter().map(|peer| {
            let goal = self.work.goal.filter(|_| peer.has_goals);
            let name = row_name(&self.work, &peer.name);
            Row::with_peer(name, self.ours, peer.micros, goal)
        })
    }
}

/// The plot of the round trips, as SVG.
///
/// # Errors
/// When there are none among the measured works.
pub fn plot(measured: &[Measured]) -> Result<String> {
    let trips = || measured.iter().filter(|it| it.work.kind == Kind::RoundTrip);
    let ours = trips().map(|it| (it.work.bytes as f64, it.ours));
    let mut lines = vec![Line {
        name: "vmlib".to_owned(),
        points: ours.collect(),
    }];
    for it in trips() {
        for peer in &it.peers {
            let point = peer.micros.map(|micros| (it.work.bytes as f64, micros));
            match lines.iter_mut().find(|line| line.name == peer.name) {
                Some(line) => line.points.extend(point),
                None => lines.push(Line {
                    name: peer.name.clone(),
                    points: Vec::from_iter(point),
                }),
            }
        }
    }
    ensure!(
        !lines[0].points.is_empty(),
        "--plot: no round trips beside a peer were measured; use --only peers, with an MPI"
    );
    Ok(plot::svg(&lines))
}

/// The name of the row of a work and a peer.
pub fn row_name(work: &Work, peer: &str) -> String {
    format!("{}, {peer}", work.name)
}

#[cfg(test)]
mod tests {
    use super::{super::works::works, *};

    #[test]
    fn a_peer_that_failed_misses_its_goals_and_no_peer_without_goals_misses_any() {
        let beside = |micros, has_goals| Beside {
            name: "an MPI".to_owned(),
            micros,
            has_goals,
        };
        let measured = Measured {
            work: works().remove(0),
            ours: 30.0,
            peers: vec![
                beside(Some(10.0), true),
                beside(Some(9.0), true),
                beside(None, true),
                beside(None, false),
            ],
        };
        let rows = Vec::from_iter(measured.rows());
        assert_eq!(rows[0].name, "peers: round trip of 8 B, an MPI");
        assert_eq!(rows[0].ratio, Some(3.0));
        let met = Vec::from_iter(rows.iter().map(|row| row.ok));
        assert_eq!(met, [true, false, false, true]);
    }
}
