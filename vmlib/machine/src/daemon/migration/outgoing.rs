//! A task of this host that moves to another host, or into the store.

use crate::{Time, Written};
use vm_wire::{
    HostId, RequestKey,
    checkpoint::Part,
    peer::{MoveReport, MoveWay},
};

/// A task of this host that moves to another host, or into the store (`way.suspended`).
#[derive(Debug)]
pub(in crate::daemon) struct Leaving {
    pub to: HostId,
    pub incarnation: u32,
    pub way: MoveWay,
    /// Number of the offer.
    pub number: u64,
    /// The ticket with which the image of a suspended task is sent to the target.
    pub ticket: Option<u64>,
    /// For a task that is being suspended: the name of its image in the store.
    pub name: Option<String>,
    /// For a task that is being suspended: its image, once it is complete in the store.
    pub image: Option<Part>,
    /// The request: the daemon that made it, and its number there.
    pub requester: RequestKey,
    pub stage: Stage,
    /// When the move began.
    pub begun: Time,
    /// When the target was ready for the image.
    pub prepared: Time,
    /// When pre-copy ended.
    pub copied: Time,
    /// When the task had written its image.
    pub saved: Time,
    /// When the task reached a call of the library, if it can be frozen only in such calls.
    pub held: Option<Time>,
    /// When the transfer process had sent the whole image, if that was observed.
    pub sent: Option<Time>,
    /// When the target had the whole image.
    pub loaded: Option<Time>,
    /// When the source released the task.
    pub released: Time,
    /// Sent by pre-copy: bytes, and pre-copy rounds.
    pub rounds: (u64, u32),
    pub written: Written,
    /// The task was released before its request had a reply; the reply has to follow the task.
    pub unanswered: bool,
    /// After the release, the source was in doubt and proposed that the task stays.
    pub doubted: bool,
}

/// How far the source is with a move. The phase that is reported is derived from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Stage {
    /// The source has sent its offer to the target.
    Offered,
    /// The task writes its image while it runs. This stage ends at once if there is no pre-copy.
    Copying,
    /// The task was ordered to freeze and to write the rest of its image.
    Saving,
    /// The image is written; the source waits until the target reports that it has the image.
    Loading,
    /// The target may propose `Relocate`.
    Released,
}

impl Leaving {
    /// A move at its first stage, with an offer to the target.
    pub fn new(
        now: Time,
        (to, incarnation): (HostId, u32),
        way: MoveWay,
        number: u64,
        requester: RequestKey,
    ) -> Self {
        Leaving {
            to,
            incarnation,
            way,
            number,
            ticket: None,
            name: None,
            image: None,
            requester,
            stage: Stage::Offered,
            begun: now,
            prepared: now,
            copied: now,
            saved: now,
            held: None,
            sent: None,
            loaded: None,
            released: now,
            rounds: (0, 0),
            written: Written::default(),
            unanswered: false,
            doubted: false,
        }
    }

    /// The report of a move that the log has decided. `from` and `to` are its source and target.
    pub fn report(self, now: Time, (from, to): (HostId, HostId), sent_again: u64) -> MoveReport {
        let span = |from: Time, to: Time| to.since(from).as_micros() as u64;
        let loaded = self.loaded.unwrap_or(self.saved).max(self.saved);
        // The target may report the complete image before the source observes the end of its
        // transfer process.
        let sent = self.sent.unwrap_or(loaded).clamp(self.saved, loaded);
        let stopped = span(self.copied, self.saved);
        let save_us = (self.written.time.as_micros() as u64).min(stopped);
        MoveReport {
            from,
            to,
            bytes: self.written.bytes,
            copied: self.rounds.0,
            rounds: self.rounds.1,
            total_us: span(self.begun, now),
            prepare_us: span(self.begun, self.prepared),
            copy_us: span(self.prepared, self.copied),
            interrupt_us: stopped - save_us,
            save_us,
            transfer_us: span(self.saved, sent),
            restore_us: span(sent, loaded),
            drain_us: span(loaded, self.released),
            commit_us: span(self.released, now),
            sent_again,
        }
    }
}
