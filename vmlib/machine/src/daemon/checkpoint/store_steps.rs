//! Stores: commits in them, and parts that are sent between them.

use super::copies::Restored;
use crate::daemon::Daemon;
use vm_wire::{
    CheckpointId, HostId, Tid, checkpoint::Committed, peer::Order, stores::ForgetStored,
    task::Failed,
};

/// Commits.
impl Daemon {
    /// The store here has a checkpoint, or has failed to commit it.
    pub(in crate::daemon) fn on_committed(&mut self, committed: Committed) {
        let Committed { app, epoch, result } = committed;
        match self.checkpoints.copies.take_commit(app, epoch) {
            Some(requester) => {
                let committed = Committed { app, epoch, result };
                self.cx.send_order(requester, &Order::Committed(committed));
            }
            None => self.end_commit_at(self.cx.me, app, epoch, result),
        }
    }

    /// The store of another host has a checkpoint, or has failed to commit it.
    pub(in crate::daemon) fn on_committed_at(&mut self, host: HostId, end: Committed) {
        let name = self.cx.host_name(host);
        let result = end.result.map_err(|why| {
            let text = format!("on host '{name}': {}", why.text);
            Failed::new(why.kind, text)
        });
        self.end_commit_at(host, end.app, end.epoch, result);
    }

    /// A host is lost: no commit there is awaited any more.
    pub(super) fn end_commits_at(&mut self, host: HostId) {
        for (app, epoch) in self.checkpoints.cuts.epochs() {
            self.end_commit_at(host, app, epoch, Ok(()));
        }
    }

    /// A host has committed, has failed to, or is lost. With the last awaited host, the coordinator
    /// learns the result.
    fn end_commit_at(&mut self, host: HostId, app: Tid, epoch: u32, result: Result<(), Failed>) {
        let cuts = &mut self.checkpoints.cuts;
        if let Some(result) = cuts.end_commit_at(host, app, epoch, result)
            && self.serving_coordinator(app).is_some()
        {
            let order = Order::Committed(Committed { app, epoch, result });
            self.mail_to_coordinator(app, self.cx.me, &order);
        }
    }
}

/// Parts in other stores.
impl Daemon {
    /// Restores a task from its part in the store of another host.
    pub(in crate::daemon) fn fetch_task(
        &mut self,
        host: HostId,
        tid: Tid,
        of: (Tid, CheckpointId),
        restored: Restored,
    ) {
        let copies = &mut self.checkpoints.copies;
        copies.fetch(&mut self.cx, host, tid, of, restored);
        self.deliver_effects();
    }

    /// A part, or the image of a suspended task, was sent to another host, or could not be sent as a
    /// whole.
    pub(in crate::daemon) fn on_part_sent(&mut self, ticket: u64, result: Result<(), Failed>) {
        if let Err(why) = &result {
            self.on_image_not_sent(ticket, why);
        }
        let copies = &mut self.checkpoints.copies;
        copies.on_part_sent(&mut self.cx, ticket, result);
    }

    /// A host is lost, with its store: no part and no commit of it is awaited any more.
    pub(in crate::daemon) fn lose_stores_of(&mut self, host: HostId) {
        for ticket in self.checkpoints.copies.forget_host(host) {
            let copies = &mut self.checkpoints.copies;
            copies.lose_with_host(&mut self.cx, host, ticket);
            self.deliver_effects();
        }
        self.end_commits_at(host);
        self.restarts.lose_stock_of(&mut self.cx, host);
    }

    /// Has the daemons of all other hosts remove the checkpoints of an application.
    pub(in crate::daemon) fn forget_stored(&mut self, app: Tid) {
        for host in self.cx.other_hosts() {
            let order = Order::ForgetStored(ForgetStored { app });
            self.cx.send_order(host, &order);
        }
    }
}
