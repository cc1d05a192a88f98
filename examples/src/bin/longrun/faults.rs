//! Hosts that are lost and return, as a [`Schedule`] says.
//!
//! A host is lost as if it were switched off: its daemon is killed, and all its processes have
//! ended by then. After a while a new daemon of the same name joins the machine, like a host that
//! was switched on again. A loss is put off while the machine would not survive it
//! (`docs/failure-model.md`, "How many hosts may die"): while the greatest allowed number of hosts
//! is away, or while the voters change.

use crate::schedule::{Schedule, Strike};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, Instant};
use vm_examples::cluster::{Cluster, Interrupt, Programs};

/// Names of the hosts of the machine, in order.
pub const NAMES: [&str; 9] = [
    "nodeA", "nodeB", "nodeC", "nodeD", "nodeE", "nodeF", "nodeG", "nodeH", "nodeI",
];
/// How often a daemon that cannot join is started again: the daemon through which it joins may be
/// lost, too.
const TRIALS: u32 = 5;
/// How long a loss that was put off waits until the state of the machine is requested again. Each
/// request starts a console.
const PATIENCE: Duration = Duration::from_millis(500);

/// A host that was lost. Times are seconds since the first loss was possible.
#[derive(Debug, Clone, Serialize)]
pub struct Loss {
    /// When the host was lost.
    pub at_s: f64,
    /// The time for which the loss was put off, because the machine would not have survived it.
    pub waited_s: f64,
    /// The name of the host that was lost.
    pub host: String,
    /// Whether the host led the machine.
    pub leader: bool,
    /// Number of tasks that ended with the host.
    pub tasks: u64,
    /// Time at which the host was in the machine again.
    pub back_s: Option<f64>,
    /// Time from the loss until all tasks ran again, if the application recovered from this loss.
    pub outage_s: Option<f64>,
}

/// A host that is away.
#[derive(Debug)]
struct Away {
    host: usize,
    /// Its index in the list of losses.
    loss: usize,
    since: Instant,
    /// How often its daemon was started since the loss.
    trials: u32,
}

/// The faults of a run: hosts that are lost, and return.
pub struct Faults<'a> {
    programs: &'a Programs,
    interrupt: &'a Interrupt,
    schedule: Schedule,
    next: Option<Strike>,
    /// Bound on the losses that are still to come.
    left: u32,
    hosts: usize,
    back: Duration,
    begin: Instant,
    asked: Instant,
    away: Vec<Away>,
    losses: Vec<Loss>,
}

impl<'a> Faults<'a> {
    /// Begins a sequence of at most `most` losses of these hosts. Each host is away for at least
    /// `back`.
    pub fn new(
        programs: &'a Programs,
        interrupt: &'a Interrupt,
        mut schedule: Schedule,
        hosts: usize,
        back: Duration,
        most: u32,
    ) -> Self {
        let now = Instant::now();
        Faults {
            programs,
            interrupt,
            next: schedule.next(),
            schedule,
            left: most,
            hosts,
            back,
            begin: now,
            asked: now,
            away: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Carries out losses and returns that are due.
    ///
    /// # Errors
    /// When a host does not return, or does not end.
    pub fn turn(&mut self, cluster: &mut Cluster) -> Result<()> {
        self.restart_host(cluster)?;
        let Some(strike) = self.next.filter(|_| self.left > 0) else {
            return Ok(());
        };
        let due = self.begin + strike.at;
        if Instant::now() >= due.max(self.asked) {
            self.asked = Instant::now() + PATIENCE;
            self.strike(cluster, strike)?;
        }
        Ok(())
    }

    /// Ends the losses. Hosts that are away still return.
    pub fn end(&mut self) {
        self.left = 0;
    }

    /// Number of hosts that are away.
    pub fn away(&self) -> usize {
        self.away.len()
    }

    /// All losses so far.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Records that all tasks run again after the loss of a host. Returns the seconds since the
    /// loss.
    pub fn over(&mut self, host: &str) -> Option<f64> {
        let now = self.begin.elapsed().as_secs_f64();
        let mut losses = self.losses.iter_mut().rev();
        let loss = losses.find(|loss| loss.host == host)?;
        loss.outage_s = Some(now - loss.at_s);
        loss.outage_s
    }

    fn strike(&mut self, cluster: &mut Cluster, strike: Strike) -> Result<()> {
        if self.away.len() >= away_max(self.hosts) {
            return Ok(());
        }
        let is_there = |host: &usize| self.away.iter().all(|away| away.host != *host);
        let turns = (strike.host..self.hosts).chain(0..strike.host);
        let host = turns.into_iter().find(is_there);
        let host = host.context("no host is there")?;
        let conf = cluster.ask(&["conf"], self.interrupt)?;
        let away = self.away.iter().map(|away| NAMES[away.host]);
        let gone: Vec<&str> = away.chain([NAMES[host]]).collect();
        if !bears(&conf, &gone) {
            return Ok(());
        }
        let mut rows = conf["hosts"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["name"] == NAMES[host]);
        let since = cluster.lose(host)?;
        let at = since.duration_since(self.begin);
        self.losses.push(Loss {
            at_s: at.as_secs_f64(),
            waited_s: at.saturating_sub(strike.at).as_secs_f64(),
            host: NAMES[host].to_owned(),
            leader: row.is_some_and(|row| row["role"] == "leader"),
            tasks: row.and_then(|row| row["tasks"].as_u64()).unwrap_or(0),
            back_s: None,
            outage_s: None,
        });
        self.away.push(Away {
            host,
            loss: self.losses.len() - 1,
            since,
            trials: 0,
        });
        self.left -= 1;
        self.next = self.schedule.next();
        Ok(())
    }

    fn restart_host(&mut self, cluster: &mut Cluster) -> Result<()> {
        for away in &mut self.away {
            if away.trials == 0 && away.since.elapsed() >= self.back {
                away.trials = 1;
                cluster.bring(self.programs, away.host)?;
            }
            let came = match away.trials {
                0 => continue,
                _ => cluster.has_come(away.host),
            };
            match came {
                Ok(false) => {}
                Ok(true) => {
                    let now = self.begin.elapsed().as_secs_f64();
                    self.losses[away.loss].back_s = Some(now);
                }
                Err(error) if away.trials >= TRIALS => return Err(error),
                Err(_) => {
                    away.trials += 1;
                    cluster.bring(self.programs, away.host)?;
                }
            }
        }
        let losses = &self.losses;
        self.away.retain(|away| losses[away.loss].back_s.is_none());
        Ok(())
    }
}

/// Bound on the hosts that may be away at the same time.
fn away_max(hosts: usize) -> usize {
    if hosts < 5 { 1 } else { 2 }
}

/// Whether the machine, as a console shows it, survives without these hosts: most of its voters are
/// left.
fn bears(conf: &Value, gone: &[&str]) -> bool {
    let rows = conf["hosts"].as_array().into_iter().flatten();
    let voters: Vec<&Value> = rows
        .filter(|row| row["role"] == "leader" || row["role"] == "voter")
        .collect();
    let left = voters.iter().filter(|row| {
        let is_gone = row["name"].as_str().is_none_or(|name| gone.contains(&name));
        row["state"] == "live" && !is_gone
    });
    left.count() * 2 > voters.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_survives_losses_that_leave_most_of_its_voters() {
        let host = |name: &str, role: &str| json!({ "name": name, "role": role, "state": "live" });
        let three = json!({ "hosts": [
            host("a", "leader"), host("b", "voter"), host("c", "voter"), host("d", "follower"),
        ] });
        assert!(bears(&three, &["a"]) && bears(&three, &["b", "d"]));
        assert!(!bears(&three, &["a", "b"]));
        let mut five = three;
        five["hosts"][3] = host("d", "voter");

        let rows = five["hosts"].as_array_mut().expect("hosts");
        rows.push(host("e", "voter"));
        assert!(bears(&five, &["a", "e"]) && !bears(&five, &["a", "b", "c"]));
        // Another host is leaving.
        five["hosts"][2]["state"] = "leaving".into();
        assert!(!bears(&five, &["a", "e"]));
    }
}
