//! Changes that this daemon proposes, until the log has applied them.
//!
//! The changes of one turn go into one entry, and changes that come while an entry is under way go
//! into the next entry. One numbered entry is under way at a time, and is proposed again until it
//! is applied. So changes are applied in the order in which they were pushed, each once.
//!
//! The number of waiting changes is bounded: each task of the daemon has at most one request under
//! way and one end.

use crate::Time;
use std::collections::VecDeque;
use vm_wire::{
    HostId,
    agreed::{Change, Entry},
    encode, limits,
};

/// The changes of one daemon that are not applied yet.
#[derive(Debug)]
pub struct Proposals {
    me: HostId,
    number: u64,
    /// Waiting changes, each with its encoded length in bytes.
    waiting: VecDeque<(Change, usize)>,
    under_way: Option<Entry>,
    /// Earliest time of the next entry, so that a busy daemon gathers changes.
    next_entry: Time,
    /// Time at which the entry under way is proposed (again).
    next_try: Time,
}

impl Proposals {
    /// The proposals of a host without entries so far.
    pub fn new(me: HostId) -> Self {
        Proposals {
            me,
            number: 0,
            waiting: VecDeque::new(),
            under_way: None,
            next_entry: Time(0),
            next_try: Time(0),
        }
    }

    /// Adds a change to the waiting ones.
    pub fn push(&mut self, change: Change) {
        let bytes = encode(&change).len();
        self.waiting.push_back((change, bytes));
    }

    /// Whether a change is not applied yet.
    pub fn is_pending(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// The time at which [`Proposals::due`] returns an entry.
    pub fn deadline(&self) -> Option<Time> {
        match &self.under_way {
            Some(_) => Some(self.next_try),
            None => (!self.waiting.is_empty()).then_some(self.next_entry),
        }
    }

    /// The entry to propose now, if any: a new one, or the one under way again.
    pub fn due(&mut self, now: Time) -> Option<&Entry> {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return None;
        }
        if self.under_way.is_none() {
            self.number += 1;
            self.under_way = Some(Entry {
                proposer: self.me,
                number: self.number,
                changes: self.gather(),
            });
            self.next_entry = now + limits::ENTRY_GATHER;
        }
        self.next_try = now + limits::REPEAT;
        self.under_way.as_ref()
    }

    /// Takes as many changes as fit into one entry, at least one.
    fn gather(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut room = limits::ENTRY_MAX;
        while let Some((_, bytes)) = self.waiting.front() {
            if *bytes > room && !changes.is_empty() {
                break;
            }
            room = room.saturating_sub(*bytes);
            changes.extend(self.waiting.pop_front().map(|(change, _)| change));
        }
        changes
    }

    /// The entries of this daemon up to `number` are applied.
    pub fn applied(&mut self, number: u64) {
        if self
            .under_way
            .as_ref()
            .is_some_and(|entry| entry.number <= number)
        {
            self.under_way = None;
        }
    }

    /// The leader has changed: the entry under way may be lost.
    pub fn try_again(&mut self, now: Time) {
        self.next_try = self.next_try.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str) -> Change {
        Change::GroupLeave {
            group: name.to_owned(),
            tid: vm_wire::Tid::NONE,
            generation: 0,
        }
    }

    fn at(millis: u64) -> Time {
        Time(millis * 1000)
    }

    #[test]
    fn one_entry_is_under_way_and_repeated_until_it_was_applied() {
        let mut proposals = Proposals::new(HostId(1));
        proposals.push(change("a"));
        proposals.push(change("b"));
        let first = proposals.due(at(0)).expect("it is due").clone();
        assert_eq!((first.number, first.changes.len()), (1, 2));
        proposals.push(change("c"));
        assert_eq!(proposals.due(at(10)), None);
        assert_eq!(proposals.due(at(250)), Some(&first));
        proposals.applied(0);
        assert_eq!(proposals.due(at(500)), Some(&first));
        proposals.applied(1);
        let second = proposals.due(at(501)).expect("it is due");
        assert_eq!((second.number, second.changes.len()), (2, 1));
    }

    #[test]
    fn a_busy_daemon_gathers_and_an_idle_one_does_not_wait() {
        let mut proposals = Proposals::new(HostId(1));
        proposals.push(change("a"));
        assert!(proposals.due(at(100)).is_some());
        proposals.applied(1);
        proposals.push(change("b"));
        assert_eq!(proposals.due(at(101)), None);
        assert_eq!(proposals.deadline(), Some(at(100) + limits::ENTRY_GATHER));
    }

    #[test]
    fn an_entry_is_no_larger_than_its_limit() {
        let mut proposals = Proposals::new(HostId(1));
        let name = "x".repeat(200);
        (0..1000).for_each(|_| proposals.push(change(&name)));
        let entry = proposals.due(at(0)).expect("it is due");
        assert!(encode(&entry.changes).len() <= limits::ENTRY_MAX + 8);
        assert!(entry.changes.len() > 100);
    }
}
