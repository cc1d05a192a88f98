//! What tasks that ended on a host have left behind: chunks that were not acknowledged, and the
//! last number that each sent to whom.
//!
//! A task that leaves in order gives its retained chunks to its daemon, in frames with the flag
//! [`Header::KEEP`]. The keeper goes on as the task would have: it sends again on new routes and
//! after a long silence, until the receiver has acknowledged or ended. The last numbers answer the
//! daemons of those who watch the task: their notify waits for that number.
//!
//! When the host itself leaves, what is kept for one receiver goes to the daemon of that
//! receiver's host, which becomes the keeper ([`Keeper::first`], [`Keeper::take_over`]), and
//! goes along when the receiver moves ([`Keeper::kept_for`], [`Keeper::forget`]).

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

/// There is no room for more chunks of ended tasks. The task that leaves has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {KEEPER_BYTES} bytes of ended tasks are not acknowledged yet")]
pub struct KeeperFull;

/// The keeper of all tasks that ended on one host.
#[derive(Debug, Default)]
pub struct Keeper {
    /// What is not acknowledged, by receiver and ended task.
    kept: BTreeMap<(Tid, Tid), Kept>,
    /// Cost of all chunks kept.
    bytes: u64,
    /// Last numbers of ended tasks.
    left: BTreeMap<Tid, Left>,
    /// Those tasks, eldest first, and how many numbers there are of all of them.
    eldest: VecDeque<Tid>,
    numbers: usize,
    /// Not later than anything is due.
    timer: Option<Time>,
}

/// Chunks of one ended task for one receiver.
#[derive(Debug)]
struct Kept {
    /// Where the receiver is believed to be.
    host: HostId,
    incarnation: u32,
    /// In which life of its application the task has left them.
    generation: u32,
    chunks: Sender,
}

/// The last number that a task sent to each peer.
#[derive(Debug, Default)]
struct Left {
    last: BTreeMap<Tid, u64>,
    /// Whether whoever is not in it was sent nothing.
    complete: bool,
}

impl Kept {
    /// Sees to it that the timer is not later than the next repetition.
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
    /// A keeper of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps a chunk that has the flag [`Header::KEEP`] and sends it on to its receiver; one that
    /// it had before is only sent on. Other frames are ignored.
    ///
    /// # Errors
    /// [`KeeperFull`]: it is not kept, and not sent.
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

    /// Remembers the last numbers of a task that left in order.
    pub fn left(&mut self, tid: Tid, last: Vec<(Tid, u64)>) {
        self.remember(tid, last, true);
    }

    /// A task lives again, in another life of its application: what it sent in this one is not known.
    pub fn lives_again(&mut self, tid: Tid) {
        if let Some(left) = self.left.remove(&tid) {
            self.numbers -= left.last.len();
            self.eldest.retain(|ended| *ended != tid);
        }
    }

    /// Number of the last chunk of `ended` to `watcher`, 0 for none; `None` if not known.
    pub fn last(&self, ended: Tid, watcher: Tid) -> Option<u64> {
        let left = self.left.get(&ended)?;
        let none = left.complete.then_some(0);
        left.last.get(&watcher).copied().or(none)
    }

    /// Takes a frame addressed to an ended task: what it acknowledges is kept no longer; on Resend
    /// all that is kept for its sender is sent again. Acknowledgements of another generation are
    /// ignored.
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

    /// A receiver moved or ended, or the link to a host is new. That it has ended is ignored if that
    /// was in another `generation`, which is that of the frame.
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

    /// The log says that a receiver has ended.
    pub fn ended(&mut self, to: Tid) {
        self.drop_kept(to, |_| true);
    }

    fn drop_kept(&mut self, to: Tid, which: impl Fn(&Kept) -> bool) {
        let dropped = self.kept.extract_if(pairs_of(to), |_, kept| which(kept));
        for (_, kept) in dropped {
            self.bytes -= kept.chunks.retained_bytes();
        }
    }

    /// The first pair, to be given away as this host leaves: the order and the chunks, with
    /// [`Header::KEEP`], for the daemon of the receiver's host.
    pub fn first(&self) -> Option<(KeepOrder, Vec<Frame>)> {
        let first = self.kept.iter().next();
        first.map(|(key, kept)| handed(*key, kept))
    }

    /// What is kept for a receiver, as it would be handed over.
    pub fn kept_for(&self, to: Tid) -> impl Iterator<Item = (KeepOrder, Vec<Frame>)> {
        let of_it = self.kept.range(pairs_of(to));
        of_it.map(|(key, kept)| handed(*key, kept))
    }

    /// Another daemon has become the keeper of a pair.
    pub fn forget(&mut self, to: Tid, ended: Tid) {
        if let Some(kept) = self.kept.remove(&(to, ended)) {
            self.bytes -= kept.chunks.retained_bytes();
        }
    }

    /// This daemon becomes the keeper of a pair; its chunks come to [`Keeper::keep`].
    pub fn take_over(&mut self, order: &KeepOrder) {
        self.remember(order.from, vec![(order.to, order.last)], false);
    }

    /// Whether nothing waits for an acknowledgement.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Payload and overhead of all chunks that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When [`Keeper::tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.timer
    }

    /// Repeats what was not acknowledged for too long.
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

/// The keys of all that is kept for one receiver.
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
        // The first one is handed over once more: not all had been on its way.
        for times in [1, 2] {
            other.take_over(&order);
            for frame in &frames[..times] {
                keep(&mut other, frame.clone()).expect("there is room");
            }
        }
        assert_eq!(other.bytes(), 2 * (CHUNK_MAX as u64 + CHUNK_OVERHEAD));
        assert_eq!(other.last(from, to), Some(5));
        // Of others it knows nothing, not even that they were sent nothing.
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
