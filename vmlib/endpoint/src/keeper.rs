//! The keeper of a host: unacknowledged chunks of ended tasks, and the number of the last chunk
//! that each ended task sent to each peer.
//!
//! A task that leaves in order gives its retained chunks to its daemon, in frames with the flag
//! [`Header::KEEP`]. In place of the task the keeper sends the chunks again on new routes and after
//! a long silence, until the receiver has acknowledged them or has ended. The daemons of watchers
//! request the last numbers, because a notification waits for the last chunk.
//!
//! When the host leaves, the chunks for one receiver go to the daemon of the receiver's host, which
//! becomes their keeper ([`Keeper::first`], [`Keeper::take_over`]). When the receiver moves, its
//! chunks move as well ([`Keeper::kept_for`], [`Keeper::forget`]).

use crate::{
    channel::{Sender, is_left},
    time::Time,
};
use std::collections::{BTreeMap, VecDeque};
use vm_wire::{
    Frame, Header, HostId, Op, Tid,
    limits::{CHUNK_OVERHEAD, ENDED_MAX, ENDED_PAIRS_MAX, KEEPER_BYTES},
    peer::KeepOrder,
    task::Located,
};

/// The keeper has no room for more chunks. The leaving task has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {KEEPER_BYTES} bytes of ended tasks are not acknowledged yet")]
pub struct KeeperFull;

/// The keeper of all tasks that ended on one host.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Unacknowledged chunks, by receiver and ended task.
    kept: BTreeMap<(Tid, Tid), Kept>,
    /// Cost of all retained chunks. Bytes.
    bytes: u64,
    /// Last numbers of ended tasks, by task.
    left: BTreeMap<Tid, Left>,
    /// Ended tasks in `left`, oldest first; `numbers` counts the numbers of all of them.
    eldest: VecDeque<Tid>,
    numbers: usize,
    /// Time of the next repetition, or an earlier time.
    timer: Option<Time>,
}

/// Chunks of one ended task for one receiver.
#[derive(Debug)]
struct Kept {
    /// Last known host of the receiver.
    host: HostId,
    incarnation: u32,
    /// Generation of the application when the ended task left the chunks.
    generation: u32,
    chunks: Sender,
}

/// The number of the last chunk that a task sent to each peer.
#[derive(Debug, Default)]
struct Left {
    last: BTreeMap<Tid, u64>,
    /// A peer that is not in `last` was sent no chunk.
    complete: bool,
}

impl Kept {
    /// Sets the timer to the next repetition, if the timer is later.
    fn arm(&self, timer: &mut Option<Time>) {
        *timer = timer.iter().copied().chain(self.chunks.repeat_due()).min();
    }

    fn stamped(&self, mut chunk: Frame) -> Frame {
        chunk.header.incarnation = self.incarnation;
        chunk
    }

    fn resend(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        self.chunks.resent(now);
        out.extend(
            self.chunks
                .retained()
                .map(|chunk| self.stamped(chunk.clone())),
        );
    }
}

impl Keeper {
    /// A keeper without chunks and numbers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Retains a chunk with the flag [`Header::KEEP`] and sends it to its receiver. A chunk that is
    /// already retained is only sent. Other frames are ignored.
    ///
    /// # Errors
    /// [`KeeperFull`]: the chunk is neither retained nor sent.
    pub fn keep(
        &mut self,
        now: Time,
        mut frame: Frame,
        out: &mut VecDeque<Frame>,
    ) -> Result<(), KeeperFull> {
        if frame.header.op != Op::Data || !is_left(&frame.header) {
            return Ok(());
        }
        let (from, to) = (frame.header.from, frame.header.to);
        let cost = frame.body.len() as u64 + CHUNK_OVERHEAD;
        if self.bytes + cost > KEEPER_BYTES {
            return Err(KeeperFull);
        }
        frame.header.flags &= !Header::KEEP;
        frame.header.hops = 0;
        let kept = self.kept.entry((to, from)).or_insert_with(|| Kept {
            host: to.host(),
            incarnation: frame.header.incarnation,
            generation: frame.header.generation,
            chunks: Sender::new(u64::MAX),
        });
        if kept.chunks.adopt(now, frame.clone()) {
            self.bytes += cost;
        }
        out.push_back(frame);
        kept.arm(&mut self.timer);
        Ok(())
    }

    /// Records the last numbers of a task that left in order.
    pub fn left(&mut self, tid: Tid, last: Vec<(Tid, u64)>) {
        self.remember(tid, last, true);
    }

    /// Forgets the last numbers of a task that runs again after a restart: its new generation
    /// counts anew.
    pub fn lives_again(&mut self, tid: Tid) {
        if let Some(left) = self.left.remove(&tid) {
            self.numbers -= left.last.len();
            self.eldest.retain(|ended| *ended != tid);
        }
    }

    /// Number of the last chunk from `ended` to `watcher`, 0 if there was none; `None` if the
    /// number is unknown.
    pub fn last(&self, ended: Tid, watcher: Tid) -> Option<u64> {
        let left = self.left.get(&ended)?;
        let none = left.complete.then_some(0);
        left.last.get(&watcher).copied().or(none)
    }

    /// Takes a frame to an ended task. An acknowledgement releases chunks; a Resend frame sends all
    /// chunks for its sender again. Acknowledgements of another generation are ignored.
    pub fn handle(&mut self, now: Time, frame: &Frame, out: &mut VecDeque<Frame>) {
        let key = (frame.header.from, frame.header.to);
        let Some(kept) = self.kept.get_mut(&key) else {
            return;
        };
        match frame.header.op {
            Op::Data | Op::Ack if frame.header.generation != kept.generation => {}
            Op::Data | Op::Ack => {
                self.bytes -= kept.chunks.retained_bytes();
                let Header { ack, credit, .. } = frame.header;
                kept.chunks.acknowledge(now, ack, credit);
                self.bytes += kept.chunks.retained_bytes();
                kept.arm(&mut self.timer);
                if kept.chunks.retained_bytes() == 0 {
                    self.kept.remove(&key);
                }
            }
            Op::Resend => {
                kept.resend(now, out);
                kept.arm(&mut self.timer);
            }
            _ => {}
        }
    }

    /// Handles the move or end of a receiver, or a new link to a host. `generation` is that of the
    /// frame; an end in another generation is ignored.
    pub fn located(
        &mut self,
        now: Time,
        located: &Located,
        generation: u32,
        out: &mut VecDeque<Frame>,
    ) {
        match located.peer {
            None => {
                for kept in self.kept.values_mut() {
                    if kept.host == located.host {
                        kept.resend(now, out);
                        kept.arm(&mut self.timer);
                    }
                }
            }
            Some(to) if located.host == HostId::NONE => {
                self.drop_kept(to, |kept| kept.generation == generation);
            }
            Some(to) => {
                let of_pair = self.kept.range_mut(pairs_of(to)).map(|(_, kept)| kept);
                for kept in of_pair.filter(|kept| kept.incarnation < located.incarnation) {
                    kept.host = located.host;
                    kept.incarnation = located.incarnation;
                    kept.resend(now, out);
                    kept.arm(&mut self.timer);
                }
            }
        }
    }

    /// Drops the chunks for a receiver that has ended according to the log.
    pub fn ended(&mut self, to: Tid) {
        self.drop_kept(to, |_| true);
    }

    fn drop_kept(&mut self, to: Tid, which: impl Fn(&Kept) -> bool) {
        let dropped = self.kept.extract_if(pairs_of(to), |_, kept| which(kept));
        for (_, kept) in dropped {
            self.bytes -= kept.chunks.retained_bytes();
        }
    }

    /// The first pair to hand over when this host leaves: the order and the chunks, with
    /// [`Header::KEEP`], for the daemon of the receiver's host.
    pub fn first(&self) -> Option<(KeepOrder, Vec<Frame>)> {
        let first = self.kept.iter().next();
        first.map(|(key, kept)| handed(*key, kept))
    }

    /// The chunks for a receiver, in the form in which they are handed over.
    pub fn kept_for(&self, to: Tid) -> impl Iterator<Item = (KeepOrder, Vec<Frame>)> {
        let of_it = self.kept.range(pairs_of(to));
        of_it.map(|(key, kept)| handed(*key, kept))
    }

    /// Drops the chunks of a pair, because another daemon has become their keeper.
    pub fn forget(&mut self, to: Tid, ended: Tid) {
        if let Some(kept) = self.kept.remove(&(to, ended)) {
            self.bytes -= kept.chunks.retained_bytes();
        }
    }

    /// Makes this daemon the keeper of a pair. Its chunks come to [`Keeper::keep`].
    pub fn take_over(&mut self, order: &KeepOrder) {
        self.remember(order.from, vec![(order.to, order.last)], false);
    }

    /// Whether no chunk waits for an acknowledgement.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Cost of all retained chunks: payload and overhead. Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time at which [`Keeper::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.timer
    }

    /// Repeats chunks that were not acknowledged for too long.
    pub fn tick(&mut self, now: Time, out: &mut VecDeque<Frame>) {
        if self.timer.is_none_or(|timer| now < timer) {
            return;
        }
        self.timer = None;
        for kept in self.kept.values_mut() {
            if kept.chunks.repeat_due().is_some_and(|due| due <= now)
                && let Some(chunk) = kept.chunks.repeat(now).cloned()
            {
                out.push_back(kept.stamped(chunk));
            }
            kept.arm(&mut self.timer);
        }
    }

    fn remember(&mut self, tid: Tid, last: Vec<(Tid, u64)>, complete: bool) {
        let left = self.left.entry(tid).or_insert_with(|| {
            self.eldest.push_back(tid);
            Left::default()
        });
        self.numbers -= left.last.len();
        left.complete |= complete;
        left.last.extend(last);
        self.numbers += left.last.len();
        while self.eldest.len() > ENDED_MAX
            || self.numbers > ENDED_PAIRS_MAX && self.eldest.len() > 1
        {
            let eldest = self.eldest.pop_front().expect("there is more than one");
            if let Some(left) = self.left.remove(&eldest) {
                self.numbers -= left.last.len();
            }
        }
    }
}

fn handed((to, from): (Tid, Tid), kept: &Kept) -> (KeepOrder, Vec<Frame>) {
    let order = KeepOrder {
        from,
        to,
        last: kept.chunks.last(),
    };
    let marked = |chunk: &Frame| {
        let mut chunk = kept.stamped(chunk.clone());
        chunk.header.flags |= Header::KEEP;
        chunk
    };
    (order, kept.chunks.retained().map(marked).collect())
}

/// The keys of all chunks for one receiver.
fn pairs_of(to: Tid) -> std::ops::RangeInclusive<(Tid, Tid)> {
    (to, Tid(0))..=(to, Tid(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vm_wire::{MachineId, limits::CHUNK_MAX};

    fn tid(host: u16, sequence: u32) -> Tid {
        Tid::new(MachineId::from_bits(1), HostId(host), sequence)
    }

    fn chunk(from: Tid, to: Tid, seq: u64) -> Frame {
        let mut header = Header::new(Op::Data);
        header.flags = Header::KEEP;
        header.seq = seq;
        header.total = CHUNK_MAX as u64;
        Frame::new(header, Bytes::from(vec![0; CHUNK_MAX])).between(from, to)
    }

    fn ack(from: Tid, to: Tid, ack: u64) -> Frame {
        let mut header = Header::new(Op::Ack);
        header.ack = ack;
        Frame::new(header, Bytes::new()).between(from, to)
    }

    fn keep(keeper: &mut Keeper, frame: Frame) -> Result<VecDeque<Frame>, KeeperFull> {
        let mut out = VecDeque::new();
        keeper.keep(Time(0), frame, &mut out).map(|()| out)
    }

    #[test]
    fn what_is_sent_on_is_an_ordinary_chunk() {
        let mut keeper = Keeper::new();
        let sent = keep(&mut keeper, chunk(tid(1, 1), tid(2, 1), 5)).expect("there is room");
        let mut expected = chunk(tid(1, 1), tid(2, 1), 5);
        expected.header.flags = 0;
        assert_eq!(sent, [expected]);
    }

    #[test]
    fn a_chunk_that_is_left_twice_is_kept_once() {
        let mut keeper = Keeper::new();
        for _ in 0..2 {
            keep(&mut keeper, chunk(tid(1, 1), tid(2, 1), 5)).expect("there is room");
        }
        assert_eq!(keeper.bytes(), CHUNK_MAX as u64 + CHUNK_OVERHEAD);
        keeper.handle(Time(0), &ack(tid(2, 1), tid(1, 1), 5), &mut VecDeque::new());
        assert_eq!((keeper.bytes(), keeper.is_empty()), (0, true));
    }

    #[test]
    fn a_full_keeper_refuses_until_something_is_acknowledged() {
        let mut keeper = Keeper::new();
        let fit = KEEPER_BYTES / (CHUNK_MAX as u64 + CHUNK_OVERHEAD);
        for seq in 1..=fit {
            keep(&mut keeper, chunk(tid(1, 1), tid(2, 1), seq)).expect("there is room");
        }
        let another = chunk(tid(1, 2), tid(2, 1), 1);
        assert_eq!(keep(&mut keeper, another.clone()), Err(KeeperFull));
        keeper.handle(Time(0), &ack(tid(2, 1), tid(1, 1), 1), &mut VecDeque::new());
        assert!(keep(&mut keeper, another).is_ok());
    }

    #[test]
    fn what_is_kept_for_a_task_goes_when_that_task_ends() {
        let mut keeper = Keeper::new();
        for to in [tid(2, 1), tid(2, 2), tid(2, 3)] {
            keep(&mut keeper, chunk(tid(1, 1), to, 1)).expect("there is room");
        }
        let ended = Located {
            peer: Some(tid(2, 2)),
            host: HostId::NONE,
            incarnation: 0,
        };
        keeper.located(Time(0), &ended, 0, &mut VecDeque::new());
        let link = Located {
            peer: None,
            host: HostId(2),
            incarnation: 0,
        };
        let mut out = VecDeque::new();
        keeper.located(Time(0), &link, 0, &mut out);
        let receivers: Vec<Tid> = out.iter().map(|frame| frame.header.to).collect();
        assert_eq!(receivers, [tid(2, 1), tid(2, 3)]);
        assert_eq!(keeper.bytes(), 2 * (CHUNK_MAX as u64 + CHUNK_OVERHEAD));
    }

    #[test]
    fn what_is_said_of_another_life_changes_nothing_of_what_is_kept_in_this_one() {
        let mut keeper = Keeper::new();
        let (from, to) = (tid(1, 1), tid(2, 1));
        let mut left = chunk(from, to, 1);
        left.header.generation = 3;
        keep(&mut keeper, left).expect("there is room");
        let ended = Located {
            peer: Some(to),
            host: HostId::NONE,
            incarnation: 0,
        };
        for generation in [2, 3] {
            assert!(!keeper.is_empty());
            keeper.located(Time(0), &ended, generation, &mut VecDeque::new());
        }
        assert!(keeper.is_empty());
        let mut left = chunk(from, to, 1);
        left.header.generation = 3;
        keep(&mut keeper, left).expect("there is room");
        for generation in [2, 3] {
            assert!(!keeper.is_empty());
            let mut ack = ack(to, from, 1);
            ack.header.generation = generation;
            keeper.handle(Time(0), &ack, &mut VecDeque::new());
        }
        assert!(keeper.is_empty());
    }

    #[test]
    fn repetitions_become_rarer_until_there_is_a_new_route() {
        let mut keeper = Keeper::new();
        keep(&mut keeper, chunk(tid(1, 1), tid(2, 1), 1)).expect("there is room");
        let seconds = |seconds: u64| Time(seconds * 1_000_000);
        for due in [1, 3, 7, 15, 23] {
            assert_eq!(keeper.deadline(), Some(seconds(due)));
            let mut out = VecDeque::new();
            keeper.tick(seconds(due), &mut out);
            assert_eq!(out.len(), 1);
        }
        let moved = Located {
            peer: Some(tid(2, 1)),
            host: HostId(3),
            incarnation: 2,
        };
        let mut out = VecDeque::new();
        keeper.located(seconds(24), &moved, 0, &mut out);
        assert_eq!(out[0].header.incarnation, 2);
        assert_eq!(keeper.deadline(), Some(seconds(25)));
    }

    #[test]
    fn what_is_handed_over_is_kept_by_the_other_keeper() {
        let (from, to) = (tid(1, 1), tid(2, 1));
        let mut leaving = Keeper::new();
        for seq in [4, 5] {
            keep(&mut leaving, chunk(from, to, seq)).expect("there is room");
        }
        leaving.left(from, vec![(to, 5), (tid(3, 1), 9)]);

        let mut other = Keeper::new();
        let (order, frames) = leaving.first().expect("one pair");
        leaving.forget(order.to, order.from);
        assert!(leaving.is_empty() && leaving.bytes() == 0);
        // The first chunk is handed over twice, as after an interrupted hand-over.
        for times in [1, 2] {
            other.take_over(&order);
            for frame in &frames[..times] {
                keep(&mut other, frame.clone()).expect("there is room");
            }
        }
        assert_eq!(other.bytes(), 2 * (CHUNK_MAX as u64 + CHUNK_OVERHEAD));
        assert_eq!(other.last(from, to), Some(5));
        // The new keeper has no numbers for other receivers, not even 0.
        assert_eq!(other.last(from, tid(3, 1)), None);
    }

    #[test]
    fn a_task_that_lives_again_has_sent_nothing_that_is_known() {
        let mut keeper = Keeper::new();
        let watcher = tid(2, 1);
        keeper.left(tid(1, 1), vec![(watcher, 7)]);
        keeper.lives_again(tid(1, 1));
        assert_eq!(keeper.last(tid(1, 1), watcher), None);
        keeper.left(tid(1, 1), Vec::new());
        assert_eq!(keeper.last(tid(1, 1), watcher), Some(0));
    }

    #[test]
    fn the_eldest_numbers_are_forgotten_first() {
        let mut keeper = Keeper::new();
        let watcher = tid(2, 1);
        for sequence in 1..=ENDED_MAX as u32 + 1 {
            keeper.left(tid(1, sequence), vec![(watcher, 7)]);
        }
        assert_eq!(keeper.last(tid(1, 1), watcher), None);
        assert_eq!(keeper.last(tid(1, 2), watcher), Some(7));
        assert_eq!(keeper.last(tid(1, 2), tid(2, 9)), Some(0));
    }
}
