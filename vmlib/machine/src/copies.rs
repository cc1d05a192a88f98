//! Who writes the image of a task whose checkpoints follow each other: a copy of it, or the task itself,
//! into memory.
//!
//! Each page that a task writes to while its copy writes is copied by the kernel, which costs twice what
//! it costs to copy it while the task stands. So a task that was seen to write to most of what was saved
//! of it writes its next images itself, if it is small enough to stand for so long; after some of them a
//! copy is tried again.
//!
//! Those pages need memory, too: up to as much again as the task has. A copy is made only where there is
//! room for that ([`Copies::may_copy`]); else the task stands until its image is stored.

use crate::SavedBy;
use std::collections::BTreeMap;
use vm_wire::{Tid, limits};

/// What there is to spare of memory. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// On the host.
    pub host: u64,
    /// Of the limits of control groups.
    pub groups: u64,
}

impl Room {
    /// The least of it: nobody gets more.
    pub fn least(self) -> u64 {
        self.host.min(self.groups)
    }
}

/// What copies of the tasks of a host have cost.
#[derive(Debug, Default)]
pub struct Copies {
    /// Tasks of which copies are made, or write, and what that may need.
    promised: BTreeMap<Tid, Room>,
    /// What tasks wrote to the last time while copies of them wrote. Bytes.
    rewritten: BTreeMap<Tid, u64>,
    /// Tasks whose copies write: by whom they are saved, and how many faults the task had before.
    writing: BTreeMap<Tid, (SavedBy, u64)>,
    /// Tasks that have written to most of what was saved of them, and how many images they may still
    /// write into memory before that is looked at again.
    rewriters: BTreeMap<Tid, u32>,
}

impl Copies {
    /// A copy of a task begins to write, when it has had so many page faults, if that is known.
    pub fn begun(&mut self, tid: Tid, by: SavedBy, faults: Option<u64>) {
        self.rewriters.remove(&tid);
        self.writing.remove(&tid);
        self.writing
            .extend(faults.map(|faults| (tid, (by, faults))));
    }

    /// Whether there is room for what a task, which has so many bytes of its own, may write to while a
    /// copy of it writes: twice what it did the last time. If that is not known, all of it where control
    /// groups set the limit, for who exceeds that may be ended together with all others of the group; on
    /// a host half of it, because if need be the copy alone is ended.
    pub fn may_copy(&mut self, tid: Tid, bytes: u64, room: Room) -> bool {
        self.promised.remove(&tid);
        let seen = self.rewritten.get(&tid).map(|it| it.saturating_mul(2));
        let needs = Room {
            host: seen.unwrap_or(bytes / 2).min(bytes),
            groups: seen.unwrap_or(bytes).min(bytes),
        };
        let sum = |of: fn(&Room) -> u64| {
            let others = self.promised.values().map(of);
            others.fold(of(&needs), u64::saturating_add)
        };
        let may = sum(|it| it.host) <= room.host && sum(|it| it.groups) <= room.groups;
        if may {
            self.promised.insert(tid, needs);
        }
        may
    }

    /// No copy of a task writes any more.
    pub fn over(&mut self, tid: Tid) {
        self.promised.remove(&tid);
    }

    /// The image of a task was not stored; if a copy wrote it, that may have been ended because there
    /// was no memory.
    pub fn lost(&mut self, tid: Tid) {
        self.over(tid);
        if self.writing.remove(&tid).is_some() {
            self.rewritten.insert(tid, u64::MAX);
        }
    }

    /// The image of a task was stored, when it has had so many page faults: so many pages of so many
    /// bytes. Whether memory is to be found for the next one.
    pub fn ended(&mut self, tid: Tid, faults: Option<u64>, (pages, page): (u64, u64)) -> bool {
        self.over(tid);
        let Some(((by, before), after)) = self.writing.remove(&tid).zip(faults) else {
            return false;
        };
        let written = after.saturating_sub(before);
        self.rewritten.insert(tid, written.saturating_mul(page));
        let rewrites = written > pages / 2;
        if rewrites {
            self.rewriters.insert(tid, limits::IMAGE_MEMORY_TURNS);
        }
        let is_small = pages.saturating_mul(page) <= limits::IMAGE_MEMORY_UNASKED;
        rewrites && is_small && by == SavedBy::CopyOrMemory
    }

    /// Whether a task of so many bytes writes its next image into memory, if there is some.
    pub fn wants_memory(&mut self, tid: Tid, by: SavedBy, bytes: u64) -> bool {
        let turns = match by {
            SavedBy::Memory => return true,
            SavedBy::CopyOrMemory => self.rewriters.get_mut(&tid),
            SavedBy::Copy | SavedBy::Standing => None,
        };
        turns.is_some_and(|turns| {
            let wants = bytes <= limits::IMAGE_MEMORY_UNASKED && *turns > 0;
            *turns = turns.saturating_sub(1);
            wants
        })
    }

    /// Forgets tasks that have gone.
    pub fn forget(&mut self, is_gone: impl Fn(Tid) -> bool) {
        self.promised.retain(|tid, _| !is_gone(*tid));
        self.rewritten.retain(|tid, _| !is_gone(*tid));
        self.writing.retain(|tid, _| !is_gone(*tid));
        self.rewriters.retain(|tid, _| !is_gone(*tid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Tid = Tid(1);

    #[test]
    fn tasks_that_rewrite_most_of_their_memory_write_into_memory_until_it_is_looked_at_again() {
        let mut copies = Copies::default();
        let wants = |copies: &mut Copies| copies.wants_memory(TASK, SavedBy::CopyOrMemory, 1 << 20);
        assert!(!wants(&mut copies));
        let copied = |copies: &mut Copies, faults: u64| {
            copies.begun(TASK, SavedBy::CopyOrMemory, Some(1000));
            let will = copies.ended(TASK, Some(1000 + faults), (100, 4096));
            assert_eq!(wants(copies), will);
            will
        };
        assert!(!copied(&mut copies, 50));
        assert!(copied(&mut copies, 51));
        let large = limits::IMAGE_MEMORY_UNASKED + 1;
        assert!(!copies.wants_memory(TASK, SavedBy::CopyOrMemory, large));
        let left = (2..limits::IMAGE_MEMORY_TURNS).filter(|_| wants(&mut copies));
        assert_eq!(left.count() as u32, limits::IMAGE_MEMORY_TURNS - 2);
        assert!(!wants(&mut copies));
        assert!(!copied(&mut copies, 50));
        assert!(copied(&mut copies, 51));
        copies.forget(|tid| tid == TASK);
        assert!(!wants(&mut copies));
    }

    #[test]
    fn who_is_told_to_does_as_told() {
        let mut copies = Copies::default();
        copies.begun(TASK, SavedBy::Copy, Some(0));
        assert!(!copies.ended(TASK, Some(100), (100, 4096)));
        assert!(!copies.wants_memory(TASK, SavedBy::Copy, 1));
        assert!(!copies.wants_memory(TASK, SavedBy::Standing, 1));
        assert!(copies.wants_memory(TASK, SavedBy::Memory, u64::MAX));
        // It was seen all the same what the task does.
        assert!(copies.wants_memory(TASK, SavedBy::CopyOrMemory, 1));
    }

    #[test]
    fn a_copy_is_made_where_there_is_room_for_what_its_task_may_write_to() {
        let mut copies = Copies::default();
        let room = |host, groups| Room { host, groups };
        // Nothing is known: all of it in a group, half of it on a host.
        assert!(!copies.may_copy(TASK, 100, room(1000, 99)));
        assert!(!copies.may_copy(TASK, 100, room(49, 1000)));
        assert!(copies.may_copy(TASK, 100, room(50, 100)));
        // What was promised for another one is not there twice.
        let other = Tid(2);
        assert!(!copies.may_copy(other, 100, room(1000, 199)));
        assert!(!copies.may_copy(other, 100, room(99, 1000)));
        assert!(copies.may_copy(other, 100, room(100, 200)));
        copies.over(other);
        // It wrote to a tenth.
        copies.begun(TASK, SavedBy::Copy, Some(0));
        copies.ended(TASK, Some(1), (10, 10));
        assert!(!copies.may_copy(TASK, 100, room(1000, 19)));
        assert!(copies.may_copy(TASK, 100, room(20, 20)));
        // The copy was ended: perhaps for want of memory.
        copies.begun(TASK, SavedBy::Copy, Some(0));
        copies.lost(TASK);
        assert!(!copies.may_copy(TASK, 100, room(99, 1000)));
        assert!(copies.may_copy(TASK, 100, room(100, 100)));
        copies.forget(|tid| tid == TASK);
        assert!(copies.may_copy(TASK, 100, room(50, 100)));
    }

    #[test]
    fn no_memory_is_found_for_a_large_task() {
        let mut copies = Copies::default();
        let pages = limits::IMAGE_MEMORY_UNASKED / 4096;
        for (pages, will) in [(pages, true), (pages + 1, false)] {
            copies.begun(TASK, SavedBy::CopyOrMemory, Some(0));
            let ended = copies.ended(TASK, Some(pages), (pages, 4096));
            assert_eq!(ended, will);
        }
    }
}
