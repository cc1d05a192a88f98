//! The commit of a checkpoint in the stores of all hosts that it needs, as the daemon of the
//! coordinator drives it.
//!
//! A checkpoint counts as committed when the hosts have committed it that have parts of it. Each part
//! is on two disks before the first commit begins, so the other hosts have a whole checkpoint if one
//! of them is lost.

use crate::daemon::context::Context;
use std::collections::BTreeSet;
use vm_wire::{
    HostId,
    checkpoint::Checkpoint,
    peer::Order,
    stores::CommitHere,
    task::{FailKind, Failed},
};

/// A commit that waits for hosts.
#[derive(Debug)]
pub(in crate::daemon) struct Commit {
    awaited: BTreeSet<HostId>,
    failed: Option<Failed>,
}

impl Commit {
    /// Awaits the commits of this host and of the hosts with parts. All other hosts are asked to
    /// commit, too: each knows then which checkpoints there are, and removes old ones.
    pub fn begin(cx: &mut Context, checkpoint: &Checkpoint) -> Self {
        let mut awaited = BTreeSet::from([cx.me]);
        let mut failed = None;
        if cx.has_own_stores() {
            let state = cx.agreement.state();
            let images = checkpoint.parts.iter().map(|part| &part.image);
            let names = images.flat_map(|image| [Some(&image.place), image.copy.as_ref()]);
            let holders = names.flatten().filter_map(|name| state.host_named(name));
            awaited.extend(holders);
            for host in cx.other_hosts() {
                let checkpoint = checkpoint.clone();
                let order = Order::CommitHere(CommitHere { checkpoint });
                if !cx.send_order(host, &order) && awaited.remove(&host) {
                    let name = cx.host_name(host);
                    let text = format!(
                        "the queue of orders to host '{name}' is full: no commit can be requested there"
                    );
                    failed = Some(Failed::new(FailKind::Limit, text));
                }
            }
        }
        Commit { awaited, failed }
    }

    /// A host has committed, has failed to, or is lost. Returned is the result once no host is
    /// awaited any more.
    pub fn end_at(
        &mut self,
        host: HostId,
        result: Result<(), Failed>,
    ) -> Option<Result<(), Failed>> {
        if !self.awaited.remove(&host) {
            return None;
        }
        self.failed = self.failed.take().or(result.err());
        let is_over = self.awaited.is_empty();
        is_over.then(|| self.failed.take().map_or(Ok(()), Err))
    }
}
