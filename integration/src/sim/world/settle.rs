//! Rules that hold at the end: after the last fault, all pending work ends.

use super::{
    QUIET_TIME,
    checks::digest,
    state::{Event, World},
};
use crate::sim::{
    network::Slot,
    node::State,
    queue::{Moment, SECOND},
};
use std::collections::{BTreeMap, BTreeSet};
use vm_machine::Agreed;
use vm_wire::{Tid, console::Request};

/// Interval at which the end is checked for.
const LOOK: Moment = SECOND / 2;

impl World {
    /// Ends the time of faults: programs only receive from now on.
    pub(super) fn begin_quiet(&mut self) {
        self.trace(|| "no more faults".to_owned());
        self.quiet_since = Some(self.queue.now());
        self.queue.after(LOOK, Event::Settled);
    }

    /// Checks whether all work has ended. If not, checks again until the time is over.
    pub(super) fn settled(&mut self) -> Result<(), String> {
        let since = self.quiet_since.unwrap_or(0);
        match self.unsettled() {
            None if self.halting || !self.halt() => self.finished = true,
            None => {}
            Some(what) if self.queue.now() > since + QUIET_TIME => {
                return Err(format!("in vain waited for: {what}"));
            }
            Some(_) => {}
        }
        self.queue.after(LOOK, Event::Settled);
        Ok(())
    }

    /// Halts some of the machines in order. Returns whether this one is halted.
    fn halt(&mut self) -> bool {
        let running = self.running();
        let Some(&slot) = self
            .random
            .pick(&running)
            .filter(|_| self.random.clone().percent(50))
        else {
            return false;
        };
        self.halting = true;
        self.quiet_since = Some(self.queue.now());
        self.ask_console(slot, &Request::Halt);
        true
    }

    pub(super) fn running(&self) -> Vec<Slot> {
        (0..self.nodes.len())
            .filter(|slot| self.nodes[*slot].is_running())
            .collect()
    }

    /// The description of an activity that has not ended, if there is one.
    fn unsettled(&self) -> Option<String> {
        if let Some(node) = self.nodes.iter().find(|node| node.state == State::Stopped) {
            return Some(format!("{} is stopped", node.host));
        }
        let running = self.running();
        if running.is_empty() || self.halting {
            return self.unsettled_end(&running);
        }
        if let Some(node) = self.nodes.iter().find(|node| node.state == State::Joining) {
            return Some(format!("{} is not let in", node.name));
        }
        self.unsettled_agreement(&running)
            .or_else(|| self.unsettled_moves())
            .or_else(|| self.unsettled_coordinators(self.nodes[running[0]].agreed()?))
            .or_else(|| self.unsettled_drains())
            .or_else(|| self.unsettled_checkpoints())
            .or_else(|| self.unsettled_tasks(self.nodes[running[0]].agreed()?))
    }

    /// Checks that a machine that ends leaves nothing behind.
    fn unsettled_end(&self, running: &[Slot]) -> Option<String> {
        if let Some(slot) = running.first() {
            return Some(format!(
                "the machine is halted, but {} runs",
                self.nodes[*slot].host
            ));
        }
        if !self.harsh && !self.halting {
            return Some("the machine has ended, though a majority was there".to_owned());
        }
        let living = self.processes.iter().find(|process| process.alive)?;
        Some(format!("the machine has ended, but {} runs", living.tid))
    }

    /// Checks that all daemons agree on one leader, on the log, and on the hosts.
    fn unsettled_agreement(&self, running: &[Slot]) -> Option<String> {
        let agreed = self.nodes[running[0]].agreed()?;
        let leader = self.nodes[running[0]].daemon.as_ref()?.agreement().leader();
        for &slot in running {
            let node = &self.nodes[slot];
            let (daemon, host) = (node.daemon.as_ref()?, node.host);
            let state = daemon.agreement().state();
            if node.is_leaving() {
                return Some(format!("{host} has not left"));
            }
            if daemon.agreement().leader() != leader {
                return Some(format!("{host} follows another leader than {leader}"));
            }
            if state.index() != agreed.index() || digest(state) != digest(agreed) {
                return Some(format!("{host} has not applied what others have"));
            }
            if daemon.agreement().is_pending() {
                return Some(format!("{host} has changes that are not applied"));
            }
        }
        for (host, _) in agreed.hosts() {
            let runs = running.iter().any(|slot| self.nodes[*slot].host == host);
            if agreed.is_present(host) && !runs {
                return Some(format!("{host} is gone and not declared dead"));
            }
        }
        None
    }

    /// Checks that no task still waits.
    fn unsettled_tasks(&self, agreed: &Agreed) -> Option<String> {
        let living: BTreeSet<Tid> = agreed.living_tasks().map(|(tid, _)| tid).collect();
        let mut running = BTreeMap::new();
        for process in self.processes.iter().filter(|process| process.alive) {
            let Some(program) = process.program.as_ref() else {
                return Some(format!("{} is not welcomed", process.tid));
            };
            if running.insert(process.tid, program).is_some() {
                return Some(format!("{} runs twice", process.tid));
            }
            if !living.contains(&process.tid) {
                return Some(format!("{} runs and is not alive in the log", process.tid));
            }
            if let Some(pending) = program.pending() {
                return Some(pending);
            }
            let owed = program.untold().find(|tid| !living.contains(tid));
            if let Some(ended) = owed {
                return Some(format!("{} is not told of the end of {ended}", process.tid));
            }
            if program.endpoint().retained_bytes() > 0 {
                return Some(format!("{} retains what is not acknowledged", process.tid));
            }
        }
        if let Some(gone) = living.iter().find(|tid| !running.contains_key(tid)) {
            return Some(format!("{gone} is alive in the log and does not run"));
        }
        let missing = self.ledger.missing(|from, to| {
            let kept = agreed.task(from).is_some_and(|task| {
                task.status.is_some_and(|status| status.in_order())
                    && !self.crashed.contains(&task.host)
            });
            running.contains_key(&to) && (running.contains_key(&from) || kept)
        });
        missing.or_else(|| {
            running.iter().find_map(|(tid, program)| {
                program.births().iter().find_map(|(request, wanted, tids)| {
                    let born = agreed.born(*tid, *request).count();
                    (born > *wanted as usize || born < tids.len()).then(|| {
                        format!("request {request} of {tid} for {wanted} tasks bore {born}")
                    })
                })
            })
        })
    }
}
