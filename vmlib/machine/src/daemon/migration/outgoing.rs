//! A task of this host that is on its way to another host, or into the store.

use crate::{Time, Written};
use vm_wire::{
    HostId, RequestKey,
    checkpoint::Part,
    peer::{MoveReport, MoveWay},
};

/// A task of this host that is on its way to another, or into the store (`suspended`).
#[derive(Debug)]
pub(in crate::daemon) struct Leaving {
    pub to: HostId,
    pub incarnation: u32,
    pub way: MoveWay,
    /// Of the offer.
    pub number: u64,
    /// The way of the image of a task that is suspended: what the target knows it by.
    pub ticket: Option<u64>,
    /// Of a task that is to be suspended: what its image is called in the store, and that, once it is
    /// whole.
    pub name: Option<String>,
    pub image: Option<Part>,
    /// Whose wish it is: a daemon, and its number for it.
    pub asker: RequestKey,
    pub stage: Stage,
    /// When each stage began, as far as they have.
    pub begun: Time,
    pub prepared: Time,
    pub copied: Time,
    pub saved: Time,
    /// When the task had come to a call of the library, if it stops in these alone.
    pub held: Option<Time>,
    /// When all of the image was sent, if that was seen.
    pub sent: Option<Time>,
    pub loaded: Option<Time>,
    pub released: Time,
    /// What was sent while the task ran: bytes and rounds.
    pub rounds: (u64, u32),
    pub written: Written,
    /// It was released before its request was answered: the answer is to follow it.
    pub unanswered: bool,
    /// It was released, and then proposed that it stays.
    pub doubted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::daemon) enum Stage {
    /// The target was asked.
    Offered,
    /// The task was told to write its image; it runs. Left at once where there is no pre-copy.
    Copying,
    /// The task was told to stop and to write the rest.
    Saving,
    /// The image is written; the target is to say that it has it.
    Loading,
    /// The target may propose.
    Released,
}

impl Leaving {
    /// It begins, and the target is asked.
    pub fn new(
        now: Time,
        (to, incarnation): (HostId, u32),
        way: MoveWay,
        number: u64,
        asker: RequestKey,
    ) -> Self {
        Leaving {
            to,
            incarnation,
            way,
            number,
            ticket: None,
            name: None,
            image: None,
            asker,
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

    /// How it went, now that the log says that it is over: from here to there.
    pub fn report(self, now: Time, (from, to): (HostId, HostId), sent_again: u64) -> MoveReport {
        let span = |from: Time, to: Time| to.since(from).as_micros() as u64;
        let loaded = self.loaded.unwrap_or(self.saved).max(self.saved);
        // Whoever has all of it may be quicker to say so than the end of the sender is seen.
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
