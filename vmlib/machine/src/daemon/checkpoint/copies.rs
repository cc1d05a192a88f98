//! Parts of checkpoints on the disks of two hosts, where each host has a store of its own.
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
//! The second host is the next one by number ([`crate::Agreed::second_host`]). A host sends a part of
//! its store to any daemon that requests it (PartAsk), for a copy as for a task that is restarted
//! elsewhere; PartLost reports a part that cannot be sent. A checkpoint is committed on all hosts
//! ([`super::commits`]).

use crate::{
    MoveOutput, Output, StoreOutput,
    daemon::{context::Context, effect::Effect},
};
use std::collections::BTreeMap;
use vm_wire::{
    CheckpointId, HostId, Tid,
    checkpoint::{Committed, Part},
    interrupt::Folders,
    limits,
    peer::Order,
    stores::{CommitHere, CopyAsk, CopyEnd, PartAsk, PartLost},
    task::{FailKind, Failed},
};

/// Parts that are on their way between this host's store and those of others, and commits here.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Copies {
    /// Parts that other hosts send here, by ticket.
    incoming: BTreeMap<u64, Incoming>,
    /// The hosts to which this host sends parts, by ticket.
    outgoing: BTreeMap<u64, HostId>,
    /// The hosts whose daemons wait for commits here, by application and epoch.
    commits: BTreeMap<(Tid, u32), HostId>,
}

/// A part that another host sends here.
#[derive(Debug)]
struct Incoming {
    from: HostId,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A copy of the part for the store here.
    Store(CopyOf),
    /// That task is restored from the part here.
    Restore(Tid),
}

/// Of which image a copy is: of that task in the checkpoint of that epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyOf {
    app: Tid,
    epoch: u32,
    tid: Tid,
}

/// How a task is restored from a part: the part, whether files keep their present content, and
/// the folder that takes the place of the saved one.
pub(in crate::daemon) type Restored = (Part, bool, Option<Folders>);

impl Copies {
    /// Asks the second host for a copy of an image that is in the store here.
    pub fn ask(cx: &mut Context, host: HostId, ask: CopyAsk) -> Result<(), Failed> {
        match cx.send_order(host, &Order::CopyAsk(ask)) {
            true => Ok(()),
            false => {
                let name = cx.host_name(host);
                let text = format!(
                    "the queue of orders to host '{name}' is full: no copy can be requested there"
                );
                Err(Failed::new(FailKind::Limit, text))
            }
        }
    }

    /// An owner requests that the store here copies an image.
    pub fn on_copy_ask(&mut self, cx: &mut Context, host: HostId, ask: CopyAsk) {
        let CopyAsk {
            app,
            generation,
            epoch,
            tid,
            part,
        } = ask;
        let copy = CopyOf { app, epoch, tid };
        let refused = if !cx.has_own_stores() || is_over(cx, app, epoch) {
            Some((FailKind::Refused, "that checkpoint is not being made"))
        } else if self.incoming.len() >= limits::PARTS_MAX {
            Some((FailKind::Limit, "it takes too many copies at the moment"))
        } else {
            None
        };
        if let Some((kind, text)) = refused {
            let result = Err(Failed::new(kind, text));
            return end_copy(cx, host, copy, result);
        }
        let from = CheckpointId::new(generation, epoch);
        let ticket = self.expect(cx, host, Purpose::Store(copy));
        cx.emit(StoreOutput::ExpectCopy {
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
        self.ask_part(cx, host, ask);
    }

    /// Restores a task from its part in the store of another host.
    pub fn fetch(
        &mut self,
        cx: &mut Context,
        host: HostId,
        tid: Tid,
        (app, from): (Tid, CheckpointId),
        (part, keep_files, folders): Restored,
    ) {
        let ticket = self.expect(cx, host, Purpose::Restore(tid));
        cx.emit(MoveOutput::Expect {
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
        self.ask_part(cx, host, ask);
    }

    fn expect(&mut self, cx: &mut Context, from: HostId, purpose: Purpose) -> u64 {
        let ticket = cx.token();
        self.incoming.insert(ticket, Incoming { from, purpose });
        ticket
    }

    fn ask_part(&mut self, cx: &mut Context, host: HostId, ask: PartAsk) {
        let ticket = ask.ticket;
        let present = cx.agreement.state().may_be_present(host);
        if !present || !cx.send_order(host, &Order::PartAsk(ask)) {
            let name = cx.host_name(host);
            let text = format!("host '{name}' cannot be asked for it");
            self.lose_part(cx, ticket, Failed::new(FailKind::HostLost, text));
        }
    }

    /// Another host requests a part of the store here.
    pub fn on_part_ask(&mut self, cx: &mut Context, host: HostId, ask: PartAsk) {
        let found = cx.agreement.state().host(host);
        let Some(addr) = found.map(|host| host.facts.addr.clone()) else {
            return;
        };
        let ticket = ask.ticket;
        if self.outgoing.len() >= limits::PARTS_MAX {
            let text = "it sends too many parts of checkpoints at the moment";
            let why = Failed::new(FailKind::Limit, text);
            cx.send_order(host, &Order::PartLost(PartLost { ticket, why }));
            return;
        }
        self.outgoing.insert(ticket, host);
        cx.emit(StoreOutput::SendPart {
            ticket,
            addr,
            app: ask.app,
            from: ask.from,
            part: ask.part,
            file: ask.file,
        });
    }

    /// A part was sent to another host, or not as a whole.
    pub fn on_part_sent(&mut self, cx: &mut Context, ticket: u64, result: Result<(), Failed>) {
        if let Some(host) = self.outgoing.remove(&ticket)
            && let Err(why) = result
        {
            cx.send_order(host, &Order::PartLost(PartLost { ticket, why }));
        }
    }

    /// The host that was to send a part cannot send it.
    pub fn on_part_lost(&mut self, cx: &mut Context, host: HostId, lost: PartLost) {
        let incoming = self.incoming.get(&lost.ticket);
        if incoming.is_some_and(|incoming| incoming.from == host) {
            let name = cx.host_name(host);
            let text = format!("host '{name}' cannot send it: {}", lost.why.text);
            self.lose_part(cx, lost.ticket, Failed::new(lost.why.kind, text));
        }
    }

    fn lose_part(&mut self, cx: &mut Context, ticket: u64, why: Failed) {
        let Some(Incoming { from, purpose }) = self.incoming.remove(&ticket) else {
            return;
        };
        match purpose {
            Purpose::Store(copy) => {
                cx.emit(StoreOutput::CancelPart(ticket));
                end_copy(cx, from, copy, Err(why));
            }
            Purpose::Restore(tid) => cx.effect(Effect::PartLost(tid, why)),
        }
    }

    /// A copy is complete and on the disk here, or is not.
    pub fn on_copy_taken(&mut self, cx: &mut Context, ticket: u64, result: Result<(), Failed>) {
        if let Some(Incoming { from, purpose }) = self.incoming.remove(&ticket)
            && let Purpose::Store(copy) = purpose
        {
            end_copy(cx, from, copy, result);
        }
    }

    /// A cut has ended without a checkpoint: its copies are not needed.
    pub fn cancel(&mut self, cx: &mut Context, app: Tid, epoch: u32) {
        let of_cut = |_: &u64, incoming: &mut Incoming| matches!(incoming.purpose, Purpose::Store(of) if (of.app, of.epoch) == (app, epoch));
        let gone = self.incoming.extract_if(.., of_cut);
        cx.out
            .extend(gone.map(|(ticket, _)| Output::Store(StoreOutput::CancelPart(ticket))));
    }

    /// The restore of a task is over: its part is not awaited any more.
    pub fn forget_fetched(&mut self, tid: Tid) {
        self.incoming
            .retain(|_, incoming| incoming.purpose != Purpose::Restore(tid));
    }

    /// A host is lost: none of its daemon's requests waits any more. Returned are the tickets of the
    /// parts that were to come from the host.
    pub fn forget_host(&mut self, host: HostId) -> Vec<u64> {
        self.outgoing.retain(|_, to| *to != host);
        self.commits.retain(|_, requester| *requester != host);
        let from = self.incoming.iter().filter(|(_, it)| it.from == host);
        from.map(|(ticket, _)| *ticket).collect()
    }

    /// A part does not come, since its host is lost.
    pub fn lose_with_host(&mut self, cx: &mut Context, host: HostId, ticket: u64) {
        let name = cx.host_name(host);
        let text = format!("host '{name}' is lost, which was to send it");
        self.lose_part(cx, ticket, Failed::new(FailKind::HostLost, text));
    }

    /// The daemon of a coordinator requests that the store here commits a checkpoint, too.
    pub fn on_commit_here(&mut self, cx: &mut Context, host: HostId, order: CommitHere) {
        let agreed = &order.checkpoint.agreed;
        let (app, epoch) = (agreed.app, agreed.epoch);
        if !cx.has_own_stores() || is_over(cx, app, epoch) {
            let text = "that checkpoint is not being made";
            let result = Err(Failed::new(FailKind::Refused, text));
            let committed = Committed { app, epoch, result };
            cx.send_order(host, &Order::Committed(committed));
            return;
        }
        self.commits.insert((app, epoch), host);
        cx.emit(StoreOutput::Commit(Box::new(order.checkpoint)));
    }

    /// A checkpoint is in the store here, or is not: the host whose daemon waits for that.
    pub fn take_commit(&mut self, app: Tid, epoch: u32) -> Option<HostId> {
        self.commits.remove(&(app, epoch))
    }
}

/// Whether the cut of that epoch has ended. The log here may be behind that of the requester.
fn is_over(cx: &Context, app: Tid, epoch: u32) -> bool {
    let epochs = cx.agreement.state().epochs(app);
    epochs.epoch > epoch || epochs.epoch == epoch && epochs.cut.is_none()
}

fn end_copy(cx: &mut Context, owner: HostId, copy: CopyOf, result: Result<(), Failed>) {
    let CopyOf { app, epoch, tid } = copy;
    let end = CopyEnd {
        app,
        epoch,
        tid,
        result,
    };
    cx.send_order(owner, &Order::CopyEnd(end));
}
