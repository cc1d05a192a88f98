//! How a coordinator makes a checkpoint of its application: all tasks stand still for a moment, and
//! go on while copies of them are written.
//!
//! ```text
//! asker              coordinator              its daemon               owners
//! CheckpointAsk  ->  CutAsk               ->  Cut into the log
//!                                         <-  CutMade      (applied)  each stops its tasks and copies them
//!                    <------------------------------------- PartStands, one for each task
//!                    <------------------------------------- KeptSaved, one of each host
//!                    CutGo                ->  CutGo into the log
//!                                         <-  CutGone      (applied)  tasks go on, the copies write
//!                    <------------------------------------- PartSaved, one for each task
//!                    CommitAsk            ->  manifest into the store
//!                                         <-  Committed
//!                    CutClose             ->  CutEnd into the log
//! CheckpointEnd  <-                       <-  CutClosed    (applied)
//! ```
//!
//! The phases are those of TotalCheckpoint (Kovács 2008): initialisation until `CutMade`, interruption
//! and draining until the last `PartStands`, saving until the last `PartSaved`, resumption from `CutGo`
//! on. Each task's own cut is the moment of its freeze, and no task resumes before all are frozen. So no
//! task receives a message that was sent after the cut, and an in-transit message is in its sender's
//! image (`docs/protocol.md`, "Checkpoints").
//!
//! If the application is stopped with the checkpoint, there is no CutGo: its tasks stay frozen, write
//! their images themselves, and end with CutEnd.
//!
//! Either a checkpoint is committed, or the cut is closed without one and all tasks resume. A
//! coordinator that replaces another closes a cut that it finds, and the requesters repeat their
//! requests.

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

/// A checkpoint that is being made.
#[derive(Debug)]
pub struct Checkpointing {
    key: RequestKey,
    app: Tid,
    stop: Option<Stop>,
    begun: Time,
    /// How often it was begun.
    tries: u32,
    stage: Stage,
    /// What owners have said that knew of the cut before this one's daemon.
    early: Vec<Order>,
    /// When what was said last is said again, if it was not answered.
    again: Time,
}

#[derive(Debug)]
enum Stage {
    /// The cut is wanted.
    Cutting,
    /// The tasks stand, or are about to, and are saved.
    Saving(Saving),
    /// All are saved; what the application has lost for that.
    Committing(Checkpoint, Duration),
    /// It is decided how it ends.
    Closing {
        epoch: u32,
        cost: Duration,
        result: Result<CheckpointReport, Failed>,
    },
}

/// What has come of the tasks, and what hosts keep.
#[derive(Debug)]
struct Saving {
    /// When the log had made the cut.
    since: Time,
    agreed: AgreedPart,
    /// Tasks that stand, or have stood, and where.
    stand: BTreeMap<Tid, HostId>,
    /// They have gone on.
    gone: bool,
    parts: BTreeMap<Tid, SavedPart>,
    kept: BTreeMap<HostId, Vec<KeptChunks>>,
}

impl Saving {
    /// Takes what a member says of this cut.
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
            // What is saved is saved, whatever becomes of the task.
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

    /// Whether all tasks stand, and nothing is missing but their images.
    fn is_cut(&self) -> bool {
        let all = self.stand.len() == self.agreed.tasks.len();
        all && self.kept.len() == self.agreed.keepers.len()
    }

    /// What the application has lost, now that all is saved: the time for which its tasks stood, and what
    /// it lost while copies of them wrote.
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

    /// The checkpoint, once all have said what they had to.
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

/// What is to be done next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// To the coordinator's own daemon.
    Own(Box<Order>),
    /// It is over: to whoever asked.
    End(HostId, CheckpointEnd),
}

impl Checkpointing {
    /// Begins one.
    pub fn new(now: Time, asker: HostId, ask: &CheckpointAsk) -> Self {
        Checkpointing {
            key: RequestKey::new(asker, ask.request),
            app: ask.app,
            stop: ask.stop,
            begun: now,
            tries: 1,
            stage: Stage::Cutting,
            early: Vec::new(),
            again: now,
        }
    }

    /// Whose wish it is.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    /// When [`Checkpointing::tick`] has something to do.
    pub fn deadline(&self) -> Time {
        self.again
    }

    /// Says what is to be said now, or again.
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

    /// The log has made the cut.
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

    /// Its own daemon says why the log would not make the cut.
    pub fn on_cut_refused(&mut self, refused: CheckpointEnd, out: &mut VecDeque<Step>) {
        if matches!(self.stage, Stage::Cutting) {
            out.push_back(Step::End(self.key.host, self.end(refused.result)));
        }
    }

    /// The log lets the tasks go on.
    pub fn on_cut_gone(&mut self, now: Time, gone: CutGone) {
        if let Stage::Saving(saving) = &mut self.stage
            && saving.agreed.epoch == gone.epoch
        {
            saving.gone = true;
            self.review(now);
        }
    }

    /// A task stands or was saved, or what a host keeps; or it was not, or a host is lost.
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

    /// All may have said what they had to.
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
        // Of what is saved the parts are taken.
        let cost = saving.lost(now);
        if let Some(checkpoint) = saving.whole(now.since(self.begun)) {
            (self.stage, self.again) = (Stage::Committing(checkpoint, cost), now);
        }
    }

    /// The checkpoint is in the store, or is not.
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

    /// The log has ended the cut. The checkpoint is over, or begins again.
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
        // One that ends meanwhile, or cannot be saved just now, is no reason to give up.
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

    /// Somebody else has come to wait for the end of this one: if it is about to end, that is said again.
    pub fn also_for(&mut self, now: Time) {
        if matches!(self.stage, Stage::Closing { .. }) {
            self.again = now;
        }
    }

    /// What somebody is told who waits for the end of this one, if the application ends with it.
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
            // A drain is content with any suspension; for somebody it is to be as he said.
            (Stop::Suspend(made), Some(Stop::Suspend(wished)))
                if wished.drained != HostId::NONE
                    || (made.drained, made.for_ms) == (wished.drained, wished.for_ms) =>
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
