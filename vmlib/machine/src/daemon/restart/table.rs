//! The restarts in which this daemon has a part.

use super::query::{Holders, InventoryQuery};
use crate::{Time, daemon::requester::Requester};
use std::collections::BTreeMap;
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Checkpoint, KeptChunks},
    task::Failed,
};

/// The restarts in which this daemon has a part.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Restarts {
    /// Restarts that were requested here, by the number that this daemon gave them.
    pub(super) requests: BTreeMap<u64, RestartRequest>,
    /// Applications that are being restarted with tasks here.
    pub(super) restoring: BTreeMap<Tid, Restoring>,
    /// Requests that wait for what hosts have in their stores, by question.
    pub(super) queries: BTreeMap<u64, InventoryQuery>,
    /// Manifests that other hosts were asked for, by question.
    pub(super) manifests: BTreeMap<u64, HostId>,
    /// Applications that recover from a loss, since when.
    pub(super) recoveries: BTreeMap<Tid, Time>,
    /// The last restart of each application.
    pub(super) last: BTreeMap<Tid, LastRestart>,
}

impl Restarts {
    /// An application is forgotten by the log.
    pub fn forget(&mut self, app: Tid) {
        self.last.remove(&app);
    }
}

/// How an application is to be restarted.
#[derive(Debug, Clone, Copy)]
pub struct Restart {
    pub app: Tid,
    /// Generation and epoch of the checkpoint; none: the last checkpoint that is whole.
    pub from: Option<CheckpointId>,
    /// The requester's console is the application's console from then on.
    pub attach: bool,
    /// Files that its tasks write are used as they are.
    pub keep_files: bool,
    /// Checkpoints are read and verified to find the last whole one: the choice by lengths has failed.
    pub verify: bool,
    /// Only if it is suspended with that checkpoint.
    pub resumes: bool,
}

impl Restart {
    /// The restart of a recovery, after that many failures.
    pub fn of(app: Tid, failures: u32) -> Self {
        Restart {
            app,
            from: None,
            attach: false,
            keep_files: false,
            verify: failures > 0,
            resumes: false,
        }
    }

    /// A resumption from the checkpoint with which the application was suspended.
    pub fn suspended(app: Tid, from: CheckpointId) -> Self {
        Restart {
            app,
            from: Some(from),
            attach: false,
            keep_files: false,
            verify: false,
            resumes: true,
        }
    }
}

/// A request for a restart.
#[derive(Debug)]
pub struct RestartRequest {
    pub(super) asker: Requester,
    pub(super) wish: Restart,
    pub(super) began: Time,
    /// Newer checkpoints that are not whole.
    pub(super) passed_over: Vec<String>,
    /// The checkpoint that was chosen, and, if hosts have stores of their own, on which of them the image
    /// of each task is read.
    pub(super) chosen: Option<(CheckpointId, Vec<HostId>)>,
    /// If hosts have stores of their own: what they have of it, and its manifest.
    pub(super) holders: Holders,
    pub(super) manifest: Option<(Checkpoint, u64)>,
    /// Why the chosen checkpoint failed, while it is read and verified.
    pub(super) failed: Option<Failed>,
    /// The restart was proposed to the log.
    pub(super) proposed: bool,
}

impl RestartRequest {
    /// Whether another checkpoint may be chosen after a failure. A recovery does so with its next
    /// request.
    pub(super) fn may_choose_again(&self) -> bool {
        let by_itself = matches!(self.asker, Requester::Recovery(..));
        !by_itself && self.wish.from.is_none() && !self.wish.verify
    }
}

/// An application that is being restarted, as an owner of some of its tasks sees it.
#[derive(Debug)]
pub struct Restoring {
    pub(super) generation: u32,
    pub(super) from: CheckpointId,
    pub(super) keep_files: bool,
    /// The tasks that are to live here, and whether they stand.
    pub(super) tasks: BTreeMap<Tid, bool>,
    /// The manifest was asked for; of another host.
    pub(super) loads: bool,
    pub(super) asked: bool,
    /// Messages that ended tasks had left for these tasks.
    pub(super) kept: Vec<KeptChunks>,
}

/// When an application was last brought back.
#[derive(Debug)]
pub struct LastRestart {
    pub at: Time,
    /// It was not a person who wanted that.
    pub by_itself: bool,
}
