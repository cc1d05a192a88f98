//! Images on the disks of two hosts, where each host has a store of its own.
//!
//! ```text
//! owner                          second host
//! its image is in its store
//! CopyAsk                    ->  Expect a part, under a ticket
//!                            <-  PartAsk (ticket)
//! the file, by a process     ->  written, verified, on the disk
//!                            <-  CopyEnd
//! PartSaved, to the coordinator
//! ```
//!
//! The second host is the next one by number ([`crate::Agreed::second_host`]). What a host has in its
//! store it sends to whoever asks for it (PartAsk), for a copy as for a task that is brought back
//! elsewhere; what cannot be sent is told (PartLost). A checkpoint is committed on all hosts. It counts
//! as committed when those have done so that have parts of it: everything was on two disks before the
//! first of them began, so whichever of them is lost meanwhile, the others have a whole checkpoint.

use crate::Output;
use crate::daemon::Daemon;
use std::collections::BTreeSet;
use vm_wire::{
    HostId, Tid,
    checkpoint::{Checkpoint, Committed, Part},
    interrupt::Folders,
    limits,
    peer::Order,
    stores::{CommitHere, CopyAsk, CopyEnd, ForgetStored, PartAsk, PartLost},
    task::{FailKind, Failed},
};

/// A part that another host sends here.
#[derive(Debug)]
pub(in crate::daemon) struct Coming {
    from: HostId,
    what: What,
}

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A copy of it in the store here, of the image of that task, for that application and epoch.
    Copy(Tid, Tid, u32),
    /// That task, which is brought back here.
    Task(Tid),
}

/// A commit that waits for hosts.
#[derive(Debug)]
pub(in crate::daemon) struct Committing {
    awaited: BTreeSet<HostId>,
    failed: Option<Failed>,
}

impl Daemon {
    /// Asks the second host for a copy of an image that is in the store here.
    pub(in crate::daemon) fn ask_copy(&mut self, host: HostId, ask: CopyAsk) -> Result<(), Failed> {
        match self.cx.send_order(host, &Order::CopyAsk(ask)) {
            true => Ok(()),
            false => {
                let name = self.cx.host_name(host);
                let text = format!("too much waits to be told to '{name}' for a copy there");
                Err(Failed::new(FailKind::Limit, text))
            }
        }
    }

    /// An owner wants a copy of an image to be here, too.
    pub(in crate::daemon) fn on_copy_ask(&mut self, host: HostId, ask: CopyAsk) {
        let CopyAsk {
            app,
            generation,
            epoch,
            tid,
            part,
        } = ask;
        let epochs = self.cx.agreement.state().epochs(app);
        // The log here may be behind the owner's.
        let is_over = epochs.epoch == epoch && epochs.cut.is_none() || epochs.epoch > epoch;
        let refused = if !self.cx.has_own_stores() || is_over {
            Some((FailKind::Refused, "that checkpoint is not being made"))
        } else if self.coming.len() >= limits::PARTS_MAX {
            Some((FailKind::Limit, "it takes too many copies at the moment"))
        } else {
            None
        };
        if let Some((kind, text)) = refused {
            let result = Err(Failed::new(kind, text));
            return self.end_copy(host, (app, tid, epoch), result);
        }
        let from = (generation, epoch);
        let what = What::Copy(app, tid, epoch);
        let ticket = self.expect_part(host, what);
        self.cx.emit(Output::ExpectCopy {
            ticket,
            tid,
            app,
            from,
            part: part.clone(),
        });
        let ask = PartAsk {
            ticket,
            app,
            from,
            part,
            file: true,
        };
        self.ask_part(host, ask);
    }

    /// Brings a task back of its image in the store of another host.
    pub(in crate::daemon) fn fetch_task(
        &mut self,
        host: HostId,
        tid: Tid,
        (app, from): (Tid, (u32, u32)),
        (part, keep_files, folders): (Part, bool, Option<Folders>),
    ) {
        let ticket = self.expect_part(host, What::Task(tid));
        self.cx.emit(Output::Expect {
            tid,
            ticket,
            roll_back: !keep_files,
            folders,
        });
        let ask = PartAsk {
            ticket,
            app,
            from,
            part,
            file: false,
        };
        self.ask_part(host, ask);
    }

    fn expect_part(&mut self, from: HostId, what: What) -> u64 {
        let ticket = self.token();
        self.coming.insert(ticket, Coming { from, what });
        ticket
    }

    fn ask_part(&mut self, host: HostId, ask: PartAsk) {
        let ticket = ask.ticket;
        let present = self.cx.agreement.state().may_be_present(host);
        if !present || !self.cx.send_order(host, &Order::PartAsk(ask)) {
            let name = self.cx.host_name(host);
            let text = format!("host '{name}' cannot be asked for it");
            self.lose_part(ticket, Failed::new(FailKind::HostLost, text));
        }
    }

    /// Another host wants a part that is in the store here.
    pub(in crate::daemon) fn on_part_ask(&mut self, host: HostId, ask: PartAsk) {
        let found = self.cx.agreement.state().host(host);
        let Some(addr) = found.map(|host| host.facts.addr.clone()) else {
            return;
        };
        let ticket = ask.ticket;
        if self.lent.len() >= limits::PARTS_MAX {
            let text = "it sends too many parts of checkpoints at the moment";
            let why = Failed::new(FailKind::Limit, text);
            self.cx
                .send_order(host, &Order::PartLost(PartLost { ticket, why }));
            return;
        }
        self.lent.insert(ticket, host);
        self.cx.emit(Output::SendPart {
            ticket,
            addr,
            app: ask.app,
            from: ask.from,
            part: ask.part,
            file: ask.file,
        });
    }

    /// A part was sent to another host, or not as a whole.
    pub(in crate::daemon) fn on_part_sent(&mut self, ticket: u64, result: Result<(), Failed>) {
        if let Err(why) = &result {
            self.on_image_not_sent(ticket, why);
        }
        if let Some(host) = self.lent.remove(&ticket)
            && let Err(why) = result
        {
            self.cx
                .send_order(host, &Order::PartLost(PartLost { ticket, why }));
        }
    }

    /// The host that was to send a part cannot.
    pub(in crate::daemon) fn on_part_lost(&mut self, host: HostId, lost: PartLost) {
        let coming = self.coming.get(&lost.ticket);
        if coming.is_some_and(|coming| coming.from == host) {
            let name = self.cx.host_name(host);
            let text = format!("host '{name}' cannot send it: {}", lost.why.text);
            self.lose_part(lost.ticket, Failed::new(lost.why.kind, text));
        }
    }

    fn lose_part(&mut self, ticket: u64, why: Failed) {
        let Some(Coming { from, what }) = self.coming.remove(&ticket) else {
            return;
        };
        match what {
            What::Copy(app, tid, epoch) => {
                self.cx.emit(Output::CancelPart(ticket));
                self.end_copy(from, (app, tid, epoch), Err(why));
            }
            What::Task(tid) => self.on_arrived(tid, Err(why)),
        }
    }

    /// A copy is whole and on the disk here, or is not.
    pub(in crate::daemon) fn on_copy_taken(&mut self, ticket: u64, result: Result<(), Failed>) {
        if let Some(Coming { from, what }) = self.coming.remove(&ticket)
            && let What::Copy(app, tid, epoch) = what
        {
            self.end_copy(from, (app, tid, epoch), result);
        }
    }

    fn end_copy(&mut self, owner: HostId, of: (Tid, Tid, u32), result: Result<(), Failed>) {
        let (app, tid, epoch) = of;
        let end = CopyEnd {
            app,
            epoch,
            tid,
            result,
        };
        self.cx.send_order(owner, &Order::CopyEnd(end));
    }

    /// A cut has ended without a checkpoint: nobody needs its copies.
    pub(in crate::daemon) fn cancel_copies(&mut self, app: Tid, epoch: u32) {
        let of_it = |_: &u64, coming: &mut Coming| matches!(coming.what, What::Copy(of, _, at) if (of, at) == (app, epoch));
        let gone = self.coming.extract_if(.., of_it);
        self.cx
            .out
            .extend(gone.map(|(ticket, _)| Output::CancelPart(ticket)));
    }

    /// A task that was brought back goes on, or does not: what was to bring it is nobody's matter.
    pub(in crate::daemon) fn forget_fetched(&mut self, tid: Tid) {
        self.coming
            .retain(|_, coming| coming.what != What::Task(tid));
    }

    /// A host is lost: nothing comes from it, and nobody there waits for anything.
    pub(in crate::daemon) fn lose_stores_of(&mut self, host: HostId) {
        self.lent.retain(|_, to| *to != host);
        self.commits.retain(|_, asker| *asker != host);
        let from = self.coming.iter().filter(|(_, it)| it.from == host);
        for ticket in from.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let name = self.cx.host_name(host);
            let text = format!("host '{name}' is lost, which was to send it");
            self.lose_part(ticket, Failed::new(FailKind::HostLost, text));
        }
        let apps: Vec<_> = self
            .cuts
            .iter()
            .map(|(app, cut)| (*app, cut.epoch))
            .collect();
        for (app, epoch) in apps {
            self.end_commit_at(host, app, epoch, Ok(()));
        }
        self.restarts.lose_stock_of(&mut self.cx, host);
    }

    /// The hosts whose commits a checkpoint needs, this one among them. All others are asked, too: so
    /// each knows what there is, and removes what is old.
    pub(in crate::daemon) fn begin_commit(&mut self, checkpoint: &Checkpoint) -> Committing {
        let mut awaited = BTreeSet::from([self.cx.me]);
        let mut failed = None;
        if self.cx.has_own_stores() {
            let state = self.cx.agreement.state();
            let images = checkpoint.parts.iter().map(|part| &part.image);
            let names = images.flat_map(|image| [Some(&image.place), image.copy.as_ref()]);
            let holders = names.flatten().filter_map(|name| state.host_named(name));
            awaited.extend(holders);
            for host in self.cx.other_hosts() {
                let checkpoint = checkpoint.clone();
                let order = Order::CommitHere(CommitHere { checkpoint });
                if !self.cx.send_order(host, &order) && awaited.remove(&host) {
                    let name = self.cx.host_name(host);
                    let text = format!("too much waits to be told to '{name}' for a commit there");
                    failed = Some(Failed::new(FailKind::Limit, text));
                }
            }
        }
        Committing { awaited, failed }
    }

    /// The daemon of a coordinator wants a checkpoint committed here, too.
    pub(in crate::daemon) fn on_commit_here(&mut self, host: HostId, order: CommitHere) {
        let agreed = &order.checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        let epochs = self.cx.agreement.state().epochs(app);
        let is_over = epochs.epoch > epoch || epochs.epoch == epoch && epochs.cut.is_none();
        if !self.cx.has_own_stores() || is_over {
            let text = "that checkpoint is not being made";
            let result = Err(Failed::new(FailKind::Refused, text));
            let committed = Committed { app, epoch, result };
            self.cx.send_order(host, &Order::Committed(committed));
            return;
        }
        self.commits.insert((app, epoch), host);
        self.cx.emit(Output::Commit(Box::new(order.checkpoint)));
    }

    /// A host has committed a checkpoint, or has not.
    pub(in crate::daemon) fn on_committed_at(&mut self, host: HostId, end: Committed) {
        let name = self.cx.host_name(host);
        let result = end.result.map_err(|why| {
            let text = format!("on host '{name}': {}", why.text);
            Failed::new(why.kind, text)
        });
        self.end_commit_at(host, end.app, end.epoch, result);
    }

    /// One host less is awaited. When none is left, the coordinator hears of it.
    pub(in crate::daemon) fn end_commit_at(
        &mut self,
        host: HostId,
        app: Tid,
        epoch: u32,
        result: Result<(), Failed>,
    ) {
        let cut = self.cuts.get_mut(&app).filter(|cut| cut.epoch == epoch);
        let Some(commit) = cut.and_then(|cut| cut.committing.as_mut()) else {
            return;
        };
        if !commit.awaited.remove(&host) {
            return;
        }
        commit.failed = commit.failed.take().or(result.err());
        if commit.awaited.is_empty() {
            let result = commit.failed.take().map_or(Ok(()), Err);
            self.tell_committed(Committed { app, epoch, result });
        }
    }

    /// Checkpoints of an application are to be removed from the stores of all other hosts. Whoever wants
    /// that does it here.
    pub(in crate::daemon) fn forget_stored(&mut self, app: Tid) {
        for host in self.cx.other_hosts() {
            self.cx
                .send_order(host, &Order::ForgetStored(ForgetStored { app }));
        }
    }
}
