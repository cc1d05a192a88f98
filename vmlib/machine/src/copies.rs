//! The choice of the writer of a task's image in frequent checkpoints: a forked save, or the task
//! itself, into memory.
//!
//! Each page that the task writes to during a forked save is copied by the kernel. That costs twice
//! as much as a copy of the page during the freeze. So a task that wrote to most of its saved
//! memory during a forked save writes its next images itself, into memory, if it is small enough
//! for so long a freeze. After [`limits::IMAGE_MEMORY_TURNS`] such images a forked save is tried
//! again.
//!
//! The pages that the kernel copies need memory: at most as much as the task has. A forked save is
//! made only where there is room for them ([`Copies::may_copy`]). Otherwise the task stays frozen
//! until its image is stored.

use crate::SavedBy;
use std::collections::BTreeMap;
use vm_wire::{Tid, limits};

/// Free memory. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Free memory of the host.
    pub host: u64,
    /// Free memory within the limits of control groups.
    pub groups: u64,
}

impl Room {
    /// The smaller of the two amounts: no task can have more.
    pub fn least(self) -> u64 {
        self.host.min(self.groups)
    }
}

/// The observed cost of forked saves of a host's tasks.
#[derive(Debug, Default)]
pub struct Copies {
    /// Tasks with a forked save that is being made or writes, and the memory that it may need.
    promised: BTreeMap<Tid, Room>,
    /// Memory that each task wrote to during its last forked save. Bytes.
    rewritten: BTreeMap<Tid, u64>,
    /// Tasks whose copies write: the writer chosen for them, and the task's page faults at the
    /// start.
    writing: BTreeMap<Tid, (SavedBy, u64)>,
    /// Tasks that wrote to most of their saved memory, and the number of images that each one may
    /// still write into memory before the next forked save.
    rewriters: BTreeMap<Tid, u32>,
}

impl Copies {
    /// A copy of a task begins to write. `faults`: page faults of the task so far, if known.
    pub fn begun(&mut self, tid: Tid, by: SavedBy, faults: Option<u64>) {
        self.rewriters.remove(&tid);
        self.writing.remove(&tid);
        self.writing
            .extend(faults.map(|faults| (tid, (by, faults))));
    }

    /// Whether there is room for the pages that a task may write to during a forked save, of at
    /// most `bytes`, which is the memory of the task. The estimate is twice the amount of the last
    /// forked save. Without one it is `bytes` within control groups, because the kernel may end all
    /// processes of a group that exceeds its limit, and half of `bytes` on the host, because there
    /// the kernel ends the copy alone.
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

    /// The forked save of a task is over.
    pub fn over(&mut self, tid: Tid) {
        self.promised.remove(&tid);
    }

    /// The image of a task was not stored. The kernel may have ended a copy that wrote it, for want
    /// of memory.
    pub fn lost(&mut self, tid: Tid) {
        self.over(tid);
        if self.writing.remove(&tid).is_some() {
            self.rewritten.insert(tid, u64::MAX);
        }
    }

    /// The image of a task was stored: `pages` pages of `page` bytes. `faults`: page faults of the
    /// task so far, if known. Whether the next image is to be written into memory.
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

    /// Whether a task with `bytes` of memory writes its next image into memory, if there is room.
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

    /// Forgets the tasks that have ended or left.
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
    fn tasks_that_rewrite_most_of_their_memory_write_into_memory_until_the_next_forked_save() {
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
    fn a_fixed_choice_of_the_writer_is_obeyed() {
        let mut copies = Copies::default();
        copies.begun(TASK, SavedBy::Copy, Some(0));
        assert!(!copies.ended(TASK, Some(100), (100, 4096)));
        assert!(!copies.wants_memory(TASK, SavedBy::Copy, 1));
        assert!(!copies.wants_memory(TASK, SavedBy::Standing, 1));
        assert!(copies.wants_memory(TASK, SavedBy::Memory, u64::MAX));
        // The forked save was observed nevertheless.
        assert!(copies.wants_memory(TASK, SavedBy::CopyOrMemory, 1));
    }

    #[test]
    fn a_copy_is_made_where_there_is_room_for_what_its_task_may_write_to() {
        let mut copies = Copies::default();
        let room = |host, groups| Room { host, groups };
        // Without an observation, the need is all memory in a group and half of it on a host.
        assert!(!copies.may_copy(TASK, 100, room(1000, 99)));
        assert!(!copies.may_copy(TASK, 100, room(49, 1000)));
        assert!(copies.may_copy(TASK, 100, room(50, 100)));
        // Memory promised to another task is not promised again.
        let other = Tid(2);
        assert!(!copies.may_copy(other, 100, room(1000, 199)));
        assert!(!copies.may_copy(other, 100, room(99, 1000)));
        assert!(copies.may_copy(other, 100, room(100, 200)));
        copies.over(other);
        // The task wrote to a tenth of its memory.
        copies.begun(TASK, SavedBy::Copy, Some(0));
        copies.ended(TASK, Some(1), (10, 10));
        assert!(!copies.may_copy(TASK, 100, room(1000, 19)));
        assert!(copies.may_copy(TASK, 100, room(20, 20)));
        // The copy was ended, perhaps for want of memory.
        copies.begun(TASK, SavedBy::Copy, Some(0));
        copies.lost(TASK);
        assert!(!copies.may_copy(TASK, 100, room(99, 1000)));
        assert!(copies.may_copy(TASK, 100, room(100, 100)));
        copies.forget(|tid| tid == TASK);
        assert!(copies.may_copy(TASK, 100, room(50, 100)));
    }

    #[test]
    fn a_large_task_never_writes_into_memory() {
        let mut copies = Copies::default();
        let pages = limits::IMAGE_MEMORY_UNASKED / 4096;
        for (pages, will) in [(pages, true), (pages + 1, false)] {
            copies.begun(TASK, SavedBy::CopyOrMemory, Some(0));
            let ended = copies.ended(TASK, Some(pages), (pages, 4096));
            assert_eq!(ended, will);
        }
    }
}
