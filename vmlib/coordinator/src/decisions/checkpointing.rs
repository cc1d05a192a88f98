//! The steps by which a coordinator makes a checkpoint of its application: all tasks are frozen for
//! a moment, and resume while copies of their processes are written.
//!
//! ```text
//! requester          coordinator              its daemon               owners
//! CheckpointAsk  ->  CutAsk               ->  CutPrepare       ->  portable tasks freeze
//!                                                              <-  CutPrepared, one of each host
//!                                             Cut into the log
//!                                         <-  CutMade      (applied)  each owner freezes its tasks
//!                    <------------------------------------- PartStands, one for each task
//!                    <------------------------------------- KeptSaved, one of each host
//!                    CutGo                ->  CutGo into the log
//!                                         <-  CutGone      (applied)  tasks resume, copies write
//!                    <------------------------------------- PartSaved, one for each task
//!                    CommitAsk            ->  manifest into the store
//!                                         <-  Committed
//!                    CutClose             ->  CutEnd into the log
//! CheckpointEnd  <-                       <-  CutClosed    (applied)
//! ```
//!
//! The phases are those of TotalCheckpoint (Kovács 2008): initialisation until `CutMade`,
//! interruption and draining until the last `PartStands`, saving until the last `PartSaved`,
//! resumption from `CutGo` on. The cut of each task is the moment of its freeze, and no task
//! resumes before all are frozen. So no task receives a message that was sent after the cut, and an
//! in-transit message is in the image of its sender (`docs/protocol.md`, "Checkpoints").
//!
//! If the application is stopped with the checkpoint, there is no CutGo: its tasks stay frozen,
//! write their images themselves, and end with CutEnd.
//!
//! Either a checkpoint is committed, or the cut is closed without a checkpoint and all tasks
//! resume. A coordinator that replaces another closes a cut that it finds, and the requesters
//! repeat their requests.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use vm_endpoint::Time;
use vm_wire::{
    HostId, RequestKey, Tid,
    checkpoint::{
        AgreedPart, Checkpoint, CheckpointAsk, CheckpointEnd, CheckpointReport, CommitAsk,
        Committed, CutAsk, CutClose, CutClosed, CutGo, CutGone, CutMade, KeptChunks, SavedPart,
        Stop,
    },
    limits,
    peer::Order,
    task::{FailKind, Failed},
};

/// A checkpoint of the application, from the request until its end is reported.
#[derive(Debug)]
pub struct Checkpointing {
    key: RequestKey,
    app: Tid,
    stop: Option<Stop>,
    begun: Time,
    /// Number of attempts to make the cut, the current attempt included.
    tries: u32,
    stage: Stage,
    /// Reports of owners whose daemons applied the cut before the coordinator's daemon did.
    early: Vec<Order>,
    /// Time at which the order of the current stage is sent again.
    again: Time,
}

#[derive(Debug)]
enum Stage {
    /// The cut was requested.
    Cutting,
    /// The cut is made: tasks are being frozen and saved.
    Saving(Saving),
    /// All tasks are saved. The duration is the cost of the checkpoint for the application.
    Committing(Checkpoint, Duration),
    /// The result is known, and the cut is to be closed.
    Closing {
        epoch: u32,
        cost: Duration,
        result: Result<CheckpointReport, Failed>,
    },
}

/// The parts of tasks and of keepers that have been reported.
#[derive(Debug)]
struct Saving {
    /// Time at which the log had made the cut.
    since: Time,
    agreed: AgreedPart,
    /// Host of each task that was frozen.
    stand: BTreeMap<Tid, HostId>,
    /// The tasks have resumed.
    gone: bool,
    parts: BTreeMap<Tid, SavedPart>,
    kept: BTreeMap<HostId, Vec<KeptChunks>>,
}

impl Saving {
    /// Takes a report about this cut.
    fn put(&mut self, saved: Order) -> Result<(), Failed> {
        let Saving {
            agreed,
            stand,
            parts,
            kept,
            ..
        } = self;
        let is_member = |tid| agreed.tasks.iter().any(|task| task.tid == tid);
        match saved {
            Order::PartStands(it) if it.epoch == agreed.epoch && is_member(it.tid) => {
                stand.insert(it.tid, it.host);
            }
            // The part stays valid if the task ends later.
            Order::PartSaved(saved) if self.gone && parts.contains_key(&saved.tid) => {}
            Order::PartSaved(saved) if saved.epoch == agreed.epoch => {
                let part = saved.result?;
                if is_member(saved.tid) {
                    parts.insert(saved.tid, part);
                }
            }
            Order::KeptSaved(saved) if saved.epoch == agreed.epoch => {
                let chunks = saved.result?;
                if agreed.keepers.contains(&saved.host) {
                    kept.insert(saved.host, chunks);
                }
                let bytes: usize = kept.values().flatten().map(KeptChunks::bytes).sum();
                if bytes > limits::KEPT_SAVED_MAX {
                    return Err(KeptChunks::too_much(bytes));
                }
            }
            Order::CutLost(lost) if lost.epoch == agreed.epoch => {
                let missing =
                    |(tid, host): (&Tid, &HostId)| *host == lost.host && !parts.contains_key(tid);
                if stand.iter().any(missing) {
                    let text = "a host is lost on which a part of it was being written";
                    return Err(Failed::new(FailKind::NoSuchTask, text));
                }
                if agreed.keepers.contains(&lost.host) {
                    kept.entry(lost.host).or_default();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether all tasks are frozen and all keepers have reported, so that only images are missing.
    fn is_cut(&self) -> bool {
        let all = self.stand.len() == self.agreed.tasks.len();
        all && self.kept.len() == self.agreed.keepers.len()
    }

    /// The cost of the checkpoint for the application, once all tasks are saved: the freeze time,
    /// and the time that the tasks lost while copies wrote their images.
    fn lost(&self, now: Time) -> Duration {
        let stood = self.parts.values().map(|part| part.freeze_us).max();
        let stood = Duration::from_micros(stood.unwrap_or(0));
        let writing = now.since(self.since).saturating_sub(stood);
        let mut on_hosts: BTreeMap<&str, u64> = BTreeMap::new();
        for part in self.parts.values() {
            *on_hosts.entry(&part.image.place).or_default() += part.image.bytes;
        }
        let most = on_hosts.into_values().max().unwrap_or(0);
        let slowed = most as f64 / limits::CHECKPOINT_LOSS_BYTES as f64;
        stood + Duration::from_secs_f64(slowed).min(writing / 2)
    }

    /// The checkpoint, once all tasks and all keepers have reported.
    fn whole(&mut self, took: Duration) -> Option<Checkpoint> {
        let Saving {
            agreed,
            parts,
            kept,
            ..
        } = self;
        if parts.len() < agreed.tasks.len() || kept.len() < agreed.keepers.len() {
            return None;
        }
        let kept: Vec<KeptChunks> = std::mem::take(kept).into_values().flatten().collect();
        Some(Checkpoint {
            agreed: agreed.clone(),
            parts: std::mem::take(parts).into_values().collect(),
            kept,
            took_us: micros(took),
        })
    }
}

/// Output of a call: an order or the end of the checkpoint.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// An order to the coordinator's own daemon.
    Own(Box<Order>),
    /// The checkpoint is over: the result for the requester.
    End(HostId, CheckpointEnd),
}

impl Checkpointing {
    /// Begins a checkpoint for requester `requester`.
    pub fn new(now: Time, requester: HostId, ask: &CheckpointAsk) -> Self {
        Checkpointing {
            key: RequestKey::new(requester, ask.request),
            app: ask.app,
            stop: ask.stop,
            begun: now,
            tries: 1,
            stage: Stage::Cutting,
            early: Vec::new(),
            again: now,
        }
    }

    /// The request that began the checkpoint.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    /// Time at which [`Checkpointing::tick`] is due.
    pub fn deadline(&self) -> Time {
        self.again
    }

    /// Sends the order of the current stage, for the first time or again.
    pub fn tick(&mut self, now: Time, term: u32, out: &mut VecDeque<Step>) {
        self.again = now + limits::REQUEST_RETRY;
        let app = self.app;
        let order = match &self.stage {
            Stage::Cutting => Order::CutAsk(CutAsk {
                app,
                term,
                stop: self.stop,
            }),
            Stage::Saving(saving) if self.stop.is_none() && !saving.gone && saving.is_cut() => {
                let epoch = saving.agreed.epoch;
                Order::CutGo(CutGo { app, epoch })
            }
            Stage::Saving(_) => return,
            Stage::Committing(checkpoint, _) => Order::CommitAsk(CommitAsk {
                checkpoint: checkpoint.clone(),
            }),
            Stage::Closing {
                epoch,
                cost,
                result,
            } => Order::CutClose(CutClose {
                app,
                epoch: *epoch,
                saved: result.is_ok(),
                cost_us: micros(*cost),
                ends: match self.stop.is_some() && result.is_ok() {
                    true => vec![(self.key.host, self.end(result.clone()))],
                    false => Vec::new(),
                },
            }),
        };
        out.push_back(Step::Own(Box::new(order)));
    }

    /// Takes the cut that the log has made.
    pub fn on_cut_made(&mut self, now: Time, made: CutMade) {
        if matches!(self.stage, Stage::Cutting) {
            self.stage = Stage::Saving(Saving {
                since: now,
                agreed: made.agreed,
                stand: BTreeMap::new(),
                gone: false,
                parts: BTreeMap::new(),
                kept: BTreeMap::new(),
            });
            for saved in std::mem::take(&mut self.early) {
                self.on_saved(now, saved);
            }
        }
    }

    /// Takes the reason of its own daemon why the log makes no cut.
    pub fn on_cut_refused(&mut self, refused: CheckpointEnd, out: &mut VecDeque<Step>) {
        if matches!(self.stage, Stage::Cutting) {
            out.push_back(Step::End(self.key.host, self.end(refused.result)));
        }
    }

    /// Takes the log's permission for the tasks to resume.
    pub fn on_cut_gone(&mut self, now: Time, gone: CutGone) {
        if let Stage::Saving(saving) = &mut self.stage
            && saving.agreed.epoch == gone.epoch
        {
            saving.gone = true;
            self.review(now);
        }
    }

    /// Takes a report: a task is frozen or saved, or could not be saved; a keeper's chunks; the
    /// loss of a host.
    pub fn on_saved(&mut self, now: Time, saved: Order) {
        let early_max = limits::TASKS_LIVE_MAX + limits::HOSTS_LIVE_MAX;
        if matches!(self.stage, Stage::Cutting) && self.early.len() < early_max {
            return self.early.push(saved);
        }
        let Stage::Saving(saving) = &mut self.stage else {
            return;
        };
        let epoch = saving.agreed.epoch;
        match saving.put(saved) {
            Ok(()) => self.review(now),
            Err(failed) => self.close(now, (epoch, Duration::ZERO), Err(failed)),
        }
    }

    /// Begins the next stage if all reports for it have arrived.
    fn review(&mut self, now: Time) {
        let Stage::Saving(saving) = &mut self.stage else {
            return;
        };
        if self.stop.is_none() && !saving.gone {
            if saving.is_cut() {
                self.again = now;
            }
            return;
        }
        // The cost is computed first, because the checkpoint takes the parts away.
        let cost = saving.lost(now);
        if let Some(checkpoint) = saving.whole(now.since(self.begun)) {
            (self.stage, self.again) = (Stage::Committing(checkpoint, cost), now);
        }
    }

    /// Takes the result of the commit into the store.
    pub fn on_committed(&mut self, now: Time, committed: Committed) {
        let Stage::Committing(checkpoint, cost) = &self.stage else {
            return;
        };
        let cost = *cost;
        let epoch = checkpoint.agreed.epoch;
        if committed.epoch != epoch {
            return;
        }
        let parts = &checkpoint.parts;
        let report = CheckpointReport {
            generation: checkpoint.agreed.generation,
            epoch,
            tasks: parts.len() as u32,
            bytes: parts.iter().map(|part| part.image.bytes).sum(),
            stored: parts.iter().map(|part| part.image.file_bytes()).sum(),
            freeze_us: parts.iter().map(|part| part.freeze_us).max().unwrap_or(0),
            total_us: micros(now.since(self.begun)),
            in_transit: checkpoint.in_transit(),
        };
        self.close(now, (epoch, cost), committed.result.map(|()| report));
    }

    fn close(
        &mut self,
        now: Time,
        (epoch, cost): (u32, Duration),
        result: Result<CheckpointReport, Failed>,
    ) {
        self.stage = Stage::Closing {
            epoch,
            cost,
            result,
        };
        self.again = now;
    }

    /// Takes the end of the cut from the log. The checkpoint is over, or is tried again.
    pub fn on_cut_closed(&mut self, now: Time, closed: CutClosed, out: &mut VecDeque<Step>) {
        let (epoch, result) = match &self.stage {
            Stage::Cutting => return,
            Stage::Saving(saving) => (saving.agreed.epoch, None),
            Stage::Committing(checkpoint, _) => (checkpoint.agreed.epoch, None),
            Stage::Closing { epoch, result, .. } => (*epoch, Some(result.clone())),
        };
        if closed.epoch != epoch {
            return;
        }
        let result = match result {
            Some(result) if result.is_ok() == closed.saved => result,
            _ => {
                let text = "the tasks stood still for too long and were let go";
                Err(Failed::new(FailKind::System, text))
            }
        };
        // A task that ended meanwhile, or that cannot be saved for a moment, is a reason for
        // another attempt.
        let pause = match &result {
            Err(failed) if failed.kind == FailKind::NoSuchTask => Some(Duration::ZERO),
            Err(failed) if failed.kind == FailKind::Busy => Some(limits::busy_pause(self.tries)),
            _ => None,
        };
        if let Some(pause) = pause
            && self.tries < limits::CHECKPOINT_TRIES
            && now + pause < self.begun + limits::CHECKPOINT_PATIENCE
        {
            (self.stage, self.again) = (Stage::Cutting, now + pause);
            self.tries += 1;
            return;
        }
        out.push_back(Step::End(self.key.host, self.end(result)));
    }

    /// Notes that another requester waits for the end. If the end is due, it is sent again.
    pub fn also_for(&mut self, now: Time) {
        if matches!(self.stage, Stage::Closing { .. }) {
            self.again = now;
        }
    }

    /// The result for another requester that waits for the end, if the application ends with this
    /// checkpoint.
    pub fn end_for(&self, ask: &CheckpointAsk) -> Option<CheckpointEnd> {
        let Stage::Closing {
            result: Ok(report), ..
        } = &self.stage
        else {
            return None;
        };
        let other = |how: &str| {
            let text = format!("somebody else has had the application {how}");
            Err(Failed::new(FailKind::NoSuchTask, text))
        };
        let result = match (self.stop?, ask.stop) {
            (Stop::End, Some(Stop::End)) => Ok(report.clone()),
            // A drain accepts any suspension; a user's request needs the same options.
            (Stop::Suspend(made), Some(Stop::Suspend(requested)))
                if requested.drained != HostId::NONE
                    || (made.drained, made.for_ms) == (requested.drained, requested.for_ms) =>
            {
                Ok(report.clone())
            }
            (Stop::End, _) => other("stopped with a checkpoint: 'vm checkpoints' shows it"),
            (Stop::Suspend(_), _) => other("suspended: 'vm ps' shows it"),
        };
        Some(CheckpointEnd {
            request: ask.request,
            app: self.app,
            result,
        })
    }

    fn end(&self, result: Result<CheckpointReport, Failed>) -> CheckpointEnd {
        CheckpointEnd {
            request: self.key.number,
            app: self.app,
            result,
        }
    }
}

fn micros(span: Duration) -> u64 {
    span.as_micros() as u64
}

#[cfg(test)]
mod tests;
