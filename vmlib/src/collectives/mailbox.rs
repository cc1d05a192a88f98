//! Waiting for a part of a call.
//!
//! A member waits for a part of one other member at a time. Messages of earlier calls are dropped.
//! Messages of later calls, and of other groups whose names have the same hash, are put aside until
//! their call looks for them. The wait ends without the part when it cannot come: its sender has
//! ended, has left the group, is in another call, or has told that the call failed.

use super::wire::{CONTROL, Cause, Control, DATA, Part, Stamp, open};
use crate::{
    barrier_message::{BARRIER, is_late},
    error::GroupError,
    group::context,
    primitive::{Attempt, Core, Shared},
};
use std::{cmp::Ordering, collections::BTreeSet};
use vm_endpoint::{Filter, Received, Time};
use vm_wire::Tid;

/// The part that is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) group: &'a str,
    pub(super) context: u32,
    /// The call; its `total` means nothing.
    pub(super) stamp: Stamp,
    pub(super) from: Tid,
    /// Number of this member's next barrier.
    pub(super) next_barrier: u64,
}

/// The end of a wait.
pub(super) enum Found {
    Part(Part),
    /// The call cannot be completed.
    Broken(Cause),
    /// These members are in calls under an older version: they are to be told the newer one.
    Behind(BTreeSet<Tid>),
    /// Nothing has come until the given time. The awaited member is to be told of this call: it may be in
    /// another one, in which it waits as well.
    Slow,
    /// These members wait in a barrier that is over for this one: they are to be let through.
    Late(Vec<Tid>),
}

/// The meaning of a message for the call that waits.
enum Meaning {
    /// It belongs to a later call.
    Keep,
    /// It belongs to an earlier call, or has no meaning any more.
    Drop,
    /// As `Drop`, and its sender has an older version of the group.
    Behind,
    /// The call cannot be completed. Whether to keep the message.
    Broken(Cause, bool),
}

impl Shared {
    /// Whether a task has ended or left the group, and all that it sent before has come.
    pub(crate) fn has_gone(&self, group: &str, tid: Tid) -> Result<bool, GroupError> {
        let filter = Filter {
            context: context(group),
            from: Some(tid),
            tag: Some(CONTROL),
            handled: false,
        };
        self.run(|core, now| {
            while let Some(received) = core.endpoint.take(now, &filter, &mut core.out) {
                core.strays.push_back(received);
            }
            let left = core.strays.iter().any(|stray| {
                let part = selects(&filter, stray).then(|| open(group, &stray.body));
                let control = part.flatten().and_then(|part| part.control());
                matches!(control, Some(Control::Left { .. }))
            });
            Ok(Attempt::Done(left || core.can_come(&filter, now).is_err()))
        })
    }

    /// Waits for the part, or until it cannot come, or until `slow_at`.
    pub(super) fn await_part(
        &self,
        wanted: &Wanted<'_>,
        slow_at: Option<Time>,
    ) -> Result<Found, GroupError> {
        self.run(|core, now| {
            Ok(match wanted.look(core, now)? {
                Attempt::Wait(_) if slow_at.is_some_and(|at| now >= at) => {
                    Attempt::Done(Found::Slow)
                }
                Attempt::Wait(_) => Attempt::Wait(slow_at),
                done => done,
            })
        })
    }
}

impl Wanted<'_> {
    fn look(&self, core: &mut Core, now: Time) -> Result<Attempt<Found>, GroupError> {
        let mut behind = BTreeSet::new();
        let mut ahead = None;
        while let Some((part, place)) = self.next_data(core, now) {
            match self.order(&part.stamp) {
                Ordering::Equal => {
                    self.remove(core, place);
                    let found = match part.stamp.kind == self.stamp.kind {
                        true => Found::Part(part),
                        false => Found::Broken(Cause::OutOfStep { tid: self.from }),
                    };
                    return Ok(Attempt::Done(found));
                }
                Ordering::Less => {
                    self.remove(core, place);
                    if part.stamp.version < self.stamp.version {
                        behind.insert(self.from);
                    }
                }
                Ordering::Greater => {
                    ahead = Some(part.stamp.version);
                    break;
                }
            }
        }
        // A member that has failed tells so before it goes on to its next call.
        if let Some(cause) = self.look_at_controls(core, now, &mut behind) {
            return Ok(Attempt::Done(Found::Broken(cause)));
        }
        if !behind.is_empty() {
            return Ok(Attempt::Done(Found::Behind(behind)));
        }
        if let Some(version) = ahead {
            return Ok(Attempt::Done(Found::Broken(
                match version > self.stamp.version {
                    true => Cause::Version { newer: version },
                    false => Cause::OutOfStep { tid: self.from },
                },
            )));
        }
        let late = self.late_arrivals(core, now);
        if !late.is_empty() {
            return Ok(Attempt::Done(Found::Late(late)));
        }
        core.room()?;
        core.can_come(&self.filter(DATA, Some(self.from)), now)?;
        core.only = Some(self.from);
        Ok(Attempt::Wait(None))
    }

    /// The first part of the awaited member that is there, and its place among those put aside. It
    /// stays there.
    fn next_data(&self, core: &mut Core, now: Time) -> Option<(Part, usize)> {
        let filter = self.filter(DATA, Some(self.from));
        let found = core.strays.iter().enumerate().find_map(|(place, stray)| {
            let selected = selects(&filter, stray);
            let part = selected.then(|| open(self.group, &stray.body)).flatten()?;
            Some((part, place))
        });
        if found.is_some() {
            return found;
        }
        while let Some(received) = core.endpoint.take(now, &filter, &mut core.out) {
            core.awaited.received(received.from);
            let part = open(self.group, &received.body);
            core.strays.push_back(received);
            if let Some(part) = part {
                return Some((part, core.strays.len() - 1));
            }
        }
        None
    }

    fn remove(&self, core: &mut Core, place: usize) {
        core.strays.remove(place);
    }

    /// Reads what the members tell beside the values; why the call cannot be completed, if so.
    fn look_at_controls(
        &self,
        core: &mut Core,
        now: Time,
        behind: &mut BTreeSet<Tid>,
    ) -> Option<Cause> {
        let filter = self.filter(CONTROL, None);
        while let Some(received) = core.endpoint.take(now, &filter, &mut core.out) {
            core.strays.push_back(received);
        }
        let mut broken = None;
        core.strays.retain(|stray| {
            if broken.is_some() || !selects(&filter, stray) {
                return true;
            }
            let Some(part) = open(self.group, &stray.body) else {
                return true;
            };
            match self.meaning(stray.from, &part) {
                Meaning::Keep => true,
                Meaning::Drop => false,
                Meaning::Behind => {
                    behind.insert(stray.from);
                    false
                }
                Meaning::Broken(cause, keep) => {
                    broken = Some(cause);
                    keep
                }
            }
        });
        broken
    }

    /// Members that missed the go of a barrier, because the member that should have passed it on has
    /// ended. Other messages of barriers are put aside.
    fn late_arrivals(&self, core: &mut Core, now: Time) -> Vec<Tid> {
        let filter = self.filter(BARRIER, None);
        let mut late = Vec::new();
        while let Some(received) = core.endpoint.take(now, &filter, &mut core.out) {
            match is_late(self.group, &received.body, self.next_barrier) {
                true => late.push(received.from),
                false => core.strays.push_back(received),
            }
        }
        late
    }

    fn meaning(&self, from: Tid, part: &Part) -> Meaning {
        let newer = part.stamp.version;
        match (part.control(), self.order(&part.stamp)) {
            (None, _) => Meaning::Drop,
            // The members of this task's handle do not include the one that left, or it is back.
            (Some(Control::Left { version }), _) if version <= self.stamp.version => Meaning::Drop,
            (Some(Control::Left { .. }), _) => match from == self.from {
                true => Meaning::Broken(Cause::Left { tid: from }, true),
                false => Meaning::Keep,
            },
            (Some(control), Ordering::Greater) if newer > self.stamp.version => Meaning::Broken(
                Cause::Version { newer },
                matches!(control, Control::Failed(_)),
            ),
            (Some(Control::Here), Ordering::Equal) if part.stamp.kind != self.stamp.kind => {
                Meaning::Broken(Cause::OutOfStep { tid: from }, false)
            }
            (Some(Control::Here), _) => match newer < self.stamp.version {
                true => Meaning::Behind,
                false => Meaning::Drop,
            },
            (Some(Control::Failed(cause)), Ordering::Equal) => Meaning::Broken(cause, false),
            (Some(Control::Failed(_)), Ordering::Greater) => Meaning::Keep,
            // Its sender makes no more calls under this version.
            (Some(Control::Failed(cause)), Ordering::Less)
                if newer == self.stamp.version && cause.needs_new_version() =>
            {
                Meaning::Broken(cause, false)
            }
            (Some(Control::Failed(_)), Ordering::Less) => Meaning::Drop,
        }
    }

    /// Whether a message is of an earlier call, this one, or a later one.
    fn order(&self, of: &Stamp) -> Ordering {
        (of.version, of.number).cmp(&(self.stamp.version, self.stamp.number))
    }

    fn filter(&self, tag: i32, from: Option<Tid>) -> Filter {
        Filter {
            context: self.context,
            from,
            tag: Some(tag),
            handled: false,
        }
    }
}

fn selects(filter: &Filter, stray: &Received) -> bool {
    stray.context == filter.context
        && Some(stray.tag) == filter.tag
        && filter.from.is_none_or(|from| from == stray.from)
}
