//! One collective call of one member: its messages to and from the others, and its failure.
//!
//! Members are named by their *position*: their place in [`Call`]'s order, which is that of the
//! instance numbers.

use super::{
    choice::{Collective, SEGMENT_BYTES},
    item::{Fold, Item, Side},
    mailbox::{Found, Wanted},
    progress::Progress,
    wire::{self, CONTROL, Cause, Control, DATA, Part, Stamp},
};
use crate::{
    Group, SendError, Task,
    barrier_message::{BARRIER, go_before},
    clock::recent,
    error::{GroupError, RecvError},
    group::context,
    primitive::Shared,
};
use bytes::{BufMut, Bytes};
use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Mutex, MutexGuard, PoisonError},
};
use vm_wire::{Tid, limits};

/// The members that may wait for a part of this member: they are told when the call fails here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those at distances 1, 2, 4, ... on both sides.
    Neighbours,
    /// The one at that position.
    One(usize),
    /// All others.
    All,
    Nobody,
}

/// A collective call of this member.
pub(super) struct Call<'a> {
    shared: &'a Shared,
    handle: &'a Group,
    group: &'a str,
    context: u32,
    progress: &'a Mutex<Progress>,
    stamp: Stamp,
    order: Vec<Tid>,
    me: usize,
}

impl Task {
    /// Makes a collective call. If it fails, those that may wait for this member are told why.
    pub(super) fn collective<T>(
        &self,
        group: &Group,
        collective: Collective,
        reach: Reach,
        run: impl FnOnce(&Call<'_>) -> Result<T, GroupError>,
    ) -> Result<T, GroupError> {
        let order = order(group);
        let Some(me) = order.iter().position(|tid| *tid == self.tid()) else {
            return Err(GroupError::NotMember {
                group: group.name().to_owned(),
            });
        };
        let version = group.members().version();
        let call = Call {
            shared: &self.shared,
            handle: group,
            group: group.name(),
            context: context(group.name()),
            progress: &group.progress,
            stamp: Stamp {
                version,
                number: locked(&group.progress).begin(version),
                kind: collective as u8,
                total: 0,
            },
            order,
            me,
        };
        let result = run(&call);
        if let Err(error) = &result {
            call.tell_failure(error, reach);
        }
        result
    }
}

/// The members in the order in which trees and rings are laid over them.
fn order(group: &Group) -> Vec<Tid> {
    group.members().iter().map(|(_, tid)| tid).collect()
}

/// The position of an instance.
pub(super) fn position(group: &Group, instance: u32) -> Result<usize, GroupError> {
    let mut instances = group.members().iter();
    let found = instances.position(|(number, _)| number == instance);
    found.ok_or_else(|| GroupError::NoInstance {
        group: group.name().to_owned(),
        instance,
    })
}

fn locked(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call<'_> {
    /// Number of members.
    pub(super) fn size(&self) -> usize {
        self.order.len()
    }

    /// This member's position.
    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// Whether all members were spawned on one host. All of them answer alike; some may have moved since.
    pub(super) fn is_on_one_host(&self) -> bool {
        self.order
            .windows(2)
            .all(|pair| pair[0].host() == pair[1].host())
    }

    /// The position `distance` further on, around the end.
    pub(super) fn after(&self, distance: usize) -> usize {
        (self.me + distance) % self.size()
    }

    /// The position `distance` further back, around the beginning.
    pub(super) fn before(&self, distance: usize) -> usize {
        (self.me + self.size() - distance % self.size()) % self.size()
    }

    /// An error of the shape of values, which stands for this call.
    pub(super) fn shape(&self, what: impl Into<String>) -> GroupError {
        GroupError::Shape {
            group: self.group.to_owned(),
            what: what.into(),
        }
    }

    /// A message of bytes, which are a part of `total`.
    pub(super) fn seal(&self, total: usize, payload: &[u8]) -> Bytes {
        let mut body = wire::begin(self.group, payload.len());
        body.put_slice(payload);
        wire::seal(self.group, self.stamp_of(total), body)
    }

    /// A message of items, which are a part of `total` bytes.
    pub(super) fn seal_items<T: Item>(&self, total: usize, items: &[T]) -> Bytes {
        let mut body = wire::begin(self.group, items.len() * T::LEN);
        T::put(items, &mut body);
        wire::seal(self.group, self.stamp_of(total), body)
    }

    fn stamp_of(&self, total: usize) -> Stamp {
        Stamp {
            total: total as u64,
            ..self.stamp
        }
    }

    /// Sends a sealed message to each of these positions.
    pub(super) fn send(&self, to: &[usize], sealed: Bytes) -> Result<(), GroupError> {
        let to: Vec<Tid> = to.iter().map(|to| self.order[*to]).collect();
        for tid in &to {
            self.contact(*tid)?;
        }
        Ok(self.shared.send_to(&to, self.context, DATA, sealed)?)
    }

    /// Sends items, in segments.
    pub(super) fn send_items<T: Item>(&self, to: usize, items: &[T]) -> Result<(), GroupError> {
        let total = items.len() * T::LEN;
        for range in segments::<T>(items.len()) {
            self.send(&[to], self.seal_items(total, &items[range]))?;
        }
        Ok(())
    }

    /// Receives the next part from that position.
    pub(super) fn receive(&self, from: usize) -> Result<Part, GroupError> {
        let from = self.order[from];
        self.contact(from)?;
        let wanted = Wanted {
            group: self.group,
            context: self.context,
            stamp: self.stamp,
            from,
            next_barrier: self.handle.next,
        };
        let mut slow_at = Some(recent() + limits::AWAIT_ASK);
        loop {
            match self.shared.await_part(&wanted, slow_at)? {
                Found::Part(part) => return Ok(part),
                Found::Slow => {
                    slow_at = None;
                    self.announce(from)?;
                }
                Found::Broken(cause) => return Err(self.error(cause)),
                Found::Behind(behind) => {
                    behind.into_iter().try_for_each(|tid| self.announce(tid))?;
                }
                Found::Late(late) => {
                    let go = go_before(self.handle.next, self.handle.members());
                    let go = go.map_err(SendError::Value)?;
                    self.shared.group_send(self.group, &late, BARRIER, &go)?;
                }
            }
        }
    }

    /// Receives as many items as `items` has.
    pub(super) fn receive_items<T: Item>(
        &self,
        from: usize,
        items: &mut [T],
    ) -> Result<(), GroupError> {
        let total = items.len() * T::LEN;
        for range in segments::<T>(items.len()) {
            let part = self.receive(from)?;
            self.check(from, &part, total, range.len() * T::LEN)?;
            T::fill(&mut items[range], &part.payload);
        }
        Ok(())
    }

    /// Receives as many items as `own` has, and combines them with those.
    pub(super) fn receive_fold<T: Item>(
        &self,
        from: usize,
        own: &mut [T],
        fold: Fold<'_, T>,
        side: Side,
    ) -> Result<(), GroupError> {
        let total = own.len() * T::LEN;
        for range in segments::<T>(own.len()) {
            let part = self.receive(from)?;
            self.check(from, &part, total, range.len() * T::LEN)?;
            fold(&mut own[range], &part.payload, side);
        }
        Ok(())
    }

    /// An error unless a part, and the whole transfer, have these lengths.
    pub(super) fn check(
        &self,
        from: usize,
        part: &Part,
        total: usize,
        len: usize,
    ) -> Result<(), GroupError> {
        if part.stamp.total == total as u64 && part.payload.len() == len {
            return Ok(());
        }
        Err(self.shape(format!(
            "{} sent {} bytes where this task has {total}",
            self.order[from], part.stamp.total,
        )))
    }

    /// Lets a member know this task's version, once: else one with an older version could wait for
    /// messages that no member sends any more.
    fn contact(&self, tid: Tid) -> Result<(), GroupError> {
        if locked(self.progress).is_first_contact(tid) {
            self.announce(tid)?;
        }
        Ok(())
    }

    fn announce(&self, tid: Tid) -> Result<(), GroupError> {
        self.tell(&[tid], Control::Here)
    }

    fn tell(&self, to: &[Tid], control: Control) -> Result<(), GroupError> {
        let sealed = wire::control(self.group, self.stamp, control);
        Ok(self.shared.send_to(to, self.context, CONTROL, sealed)?)
    }

    fn tell_failure(&self, error: &GroupError, reach: Reach) {
        let me = self.order[self.me];
        let cause = match *error {
            GroupError::Recv(RecvError::Ended { from, status }) => {
                Cause::Ended { tid: from, status }
            }
            GroupError::Left { member, .. } => Cause::Left { tid: member },
            GroupError::Version { newer, .. } => Cause::Version { newer },
            GroupError::OutOfStep { member, .. } => Cause::OutOfStep { tid: member },
            GroupError::Failed { member, .. } => Cause::Failed { tid: member },
            _ => Cause::Failed { tid: me },
        };
        let mut to: BTreeSet<Tid> = match reach {
            Reach::Neighbours => {
                let distances = (0..usize::BITS).map(|bit| 1 << bit);
                let distances = distances.take_while(|distance| *distance < self.size());
                distances
                    .flat_map(|distance| [self.after(distance), self.before(distance)])
                    .map(|at| self.order[at])
                    .collect()
            }
            Reach::One(at) => [self.order[at]].into(),
            Reach::All => self.order.iter().copied().collect(),
            Reach::Nobody => BTreeSet::new(),
        };
        to.remove(&me);
        let to: Vec<Tid> = to.into_iter().collect();
        // The call's own error is the one that the program is to see.
        let _ = self.tell(&to, Control::Failed(cause));
    }

    fn error(&self, cause: Cause) -> GroupError {
        let group = self.group.to_owned();
        match cause {
            Cause::Ended { tid, status } => RecvError::Ended { from: tid, status }.into(),
            Cause::Left { tid } => GroupError::Left { group, member: tid },
            Cause::Version { newer } => {
                locked(self.progress).hear(newer);
                GroupError::Version {
                    group,
                    known: self.stamp.version,
                    newer,
                }
            }
            Cause::OutOfStep { tid } => GroupError::OutOfStep { group, member: tid },
            Cause::Failed { tid } => GroupError::Failed { group, member: tid },
        }
    }
}

/// The ranges of the messages that carry `count` items; one empty range for none.
pub(super) fn segments<T: Item>(count: usize) -> impl Iterator<Item = Range<usize>> {
    let most = (SEGMENT_BYTES / T::LEN).max(1);
    let starts = (0..count.max(1)).step_by(most);
    starts.map(move |start| start..count.min(start + most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_all_items_and_none_have_one_message() {
        let of = |count| {
            let ranges = segments::<f64>(count);
            ranges
                .map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0), [(0, 0)]);
        assert_eq!(of(7680), [(0, 7680)]);
        assert_eq!(of(7681), [(0, 7680), (7680, 7681)]);
    }
}
