//! The restarts in which this daemon takes part.

use super::query::{Holders, InventoryQuery};
use crate::{Time, daemon::requester::Requester};
use std::collections::BTreeMap;
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Checkpoint, KeptChunks},
    task::Failed,
};

/// The restarts in which this daemon takes part.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Restarts {
    /// Restarts that were requested on this host, by the number that this daemon gave them.
    pub(super) requests: BTreeMap<u64, RestartRequest>,
    /// Applications that are being restarted with tasks on this host.
    pub(super) restoring: BTreeMap<Tid, Restoring>,
    /// Restart requests and console requests that wait for store inventories, by question.
    pub(super) queries: BTreeMap<u64, InventoryQuery>,
    /// Hosts that were asked for a manifest, by question.
    pub(super) manifests: BTreeMap<u64, HostId>,
    /// Applications that recover from a loss, with the start of the recovery.
    pub(super) recoveries: BTreeMap<Tid, Time>,
    /// The last restart of each application.
    pub(super) last: BTreeMap<Tid, LastRestart>,
}

impl Restarts {
    /// The log has forgotten an application.
    pub fn forget(&mut self, app: Tid) {
        self.last.remove(&app);
    }
}

/// The parameters of a restart.
#[derive(Debug, Clone, Copy)]
pub struct Restart {
    pub app: Tid,
    /// The checkpoint; `None` for the last checkpoint that is whole.
    pub from: Option<CheckpointId>,
    /// The requester's console becomes the application's console.
    pub attach: bool,
    /// Files that the tasks write are used as they are, and not rolled back.
    pub keep_files: bool,
    /// Checkpoints are read and verified to find the last whole one, because the choice by lengths
    /// has failed.
    pub verify: bool,
    /// The restart is a resumption: it is valid only while the application is suspended with that
    /// checkpoint.
    pub resumes: bool,
}

impl Restart {
    /// The restart of a recovery after `failures` failed attempts.
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
    pub(super) requester: Requester,
    pub(super) restart: Restart,
    pub(super) began: Time,
    /// Newer checkpoints that are not whole, with the reasons, for people.
    pub(super) passed_over: Vec<String>,
    /// The chosen checkpoint, and, if hosts have stores of their own, the host that reads each
    /// image.
    pub(super) chosen: Option<(CheckpointId, Vec<HostId>)>,
    /// If hosts have stores of their own: the hosts that have each image of the checkpoint.
    pub(super) holders: Holders,
    /// If hosts have stores of their own: the manifest, and its age in ms.
    pub(super) manifest: Option<(Checkpoint, u64)>,
    /// The failure of the chosen checkpoint, while it is read and verified.
    pub(super) failed: Option<Failed>,
    /// The restart was proposed to the log.
    pub(super) proposed: bool,
}

impl RestartRequest {
    /// Whether another checkpoint may be chosen after a failure. A recovery chooses again with its
    /// next request instead.
    pub(super) fn may_choose_again(&self) -> bool {
        let by_itself = matches!(self.requester, Requester::Recovery(..));
        !by_itself && self.restart.from.is_none() && !self.restart.verify
    }
}

/// An application that is being restarted, from the view of an owner of some of its tasks.
#[derive(Debug)]
pub struct Restoring {
    pub(super) generation: u32,
    pub(super) from: CheckpointId,
    pub(super) keep_files: bool,
    /// The tasks of this host, and whether each is restored and frozen.
    pub(super) tasks: BTreeMap<Tid, bool>,
    /// The shell was asked for the manifest.
    pub(super) loads: bool,
    /// The host of the requester was asked for the manifest.
    pub(super) asked: bool,
    /// Messages that ended tasks had left for these tasks.
    pub(super) kept: Vec<KeptChunks>,
}

/// The last restart of an application.
#[derive(Debug)]
pub struct LastRestart {
    pub at: Time,
    /// It was a recovery, without a request of a user.
    pub by_itself: bool,
}
