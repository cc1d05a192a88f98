//! Memory for a save: reserved once, by the kernel, given out by counting up, all taken back at
//! the next save. It needs no lock and no allocator, and being ordinary memory of the process it is
//! in the image: what was put here is there when the process resumes elsewhere.

use crate::{
    frozen::fault::{Outcome, Step as _, refuse},
    raw::sys,
};
use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that are reserved. Only what is used becomes memory.
const ARENA_BYTES: usize = 256 << 20;
/// All that is given out is aligned so.
const ALIGN: usize = 64;

static BASE: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
/// Above it all is zeros.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Tests that use this memory run one after the other.
#[cfg(test)]
pub static ONE_TEST: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Takes everything back; reserves the memory if there is none.
pub fn reset() -> Outcome<()> {
    if BASE.load(Relaxed) == 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = sys::map(0, ARENA_BYTES, prot, flags).step("reserving memory for the save")?;
        BASE.store(base, Relaxed);
    }
    // SAFETY: the last save is over.
    unsafe { discard(0) };
    Ok(())
}

/// Takes back what was given out since `mark`, and gives the memory back to the system.
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn discard(mark: usize) {
    let (base, from) = (BASE.load(Relaxed), mark.next_multiple_of(4096));
    // SAFETY: nobody uses that part.
    unsafe {
        let advice = libc::MADV_DONTNEED as usize;
        sys::call3(sys::nr::MADVISE, base + from, ARENA_BYTES - from, advice)
    };
    USED.store(mark, Relaxed);
    HIGH.store(from, Relaxed);
}

/// Where the memory is.
pub fn range() -> std::ops::Range<usize> {
    let base = BASE.load(Relaxed);
    base..base + ARENA_BYTES
}

/// How much is given out, to come back to with [`release`].
pub fn mark() -> usize {
    USED.load(Relaxed)
}

/// Takes back what was given out since `mark`.
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn release(mark: usize) {
    USED.store(mark, Relaxed);
}

/// Zeroed records.
///
/// # Safety
/// All zeros must be a value of `T`, and the records are used by one thread at a time. They live
/// until the next [`reset`].
pub unsafe fn take<T: Copy>(count: usize) -> Outcome<&'static mut [T]> {
    let bytes = (count * size_of::<T>()).next_multiple_of(ALIGN);
    let at = USED.load(Relaxed);
    if bytes > ARENA_BYTES - at {
        return refuse!("the tables of this process take more than {ARENA_BYTES} bytes");
    }
    USED.store(at + bytes, Relaxed);
    let start = (BASE.load(Relaxed) + at) as *mut T;
    let dirty = HIGH
        .fetch_max(at + bytes, Relaxed)
        .saturating_sub(at)
        .min(bytes);
    // SAFETY: reserved, aligned, given to nobody else; the caller says that zeros are values.
    unsafe {
        ptr::write_bytes(start.cast::<u8>(), 0, dirty);
        Ok(std::slice::from_raw_parts_mut(start, count))
    }
}

/// Bytes at the place that was just released, with what is in them.
///
/// # Safety
/// They were taken before, and nobody uses them.
pub unsafe fn take_again(len: usize) -> Outcome<&'static mut [u8]> {
    let at = USED.load(Relaxed);
    USED.store((at + len).next_multiple_of(ALIGN), Relaxed);
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut((BASE.load(Relaxed) + at) as *mut u8, len) })
}

/// A list that is filled one by one, up to a limit.
pub struct List<T: 'static> {
    room: &'static mut [T],
    len: usize,
}

impl<T: Copy> List<T> {
    /// An empty list with room for `max`.
    ///
    /// # Safety
    /// As for [`take`].
    pub unsafe fn new(max: usize) -> Outcome<Self> {
        // SAFETY: promised by the caller.
        let room = unsafe { take(max)? };
        Ok(List { room, len: 0 })
    }

    /// Adds one; `what` names the list in the error.
    pub fn push(&mut self, value: T, what: &str) -> Outcome<()> {
        let Some(place) = self.room.get_mut(self.len) else {
            return refuse!("more than {} {what}", self.room.len());
        };
        *place = value;
        self.len += 1;
        Ok(())
    }

    /// What is in it.
    pub fn all(&self) -> &[T] {
        &self.room[..self.len]
    }

    /// What is in it.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.room[..self.len]
    }

    /// What is in it, for as long as the memory lives.
    pub fn into_static(self) -> &'static mut [T] {
        &mut self.room[..self.len]
    }
}

impl List<[u64; 2]> {
    /// Puts the ranges from `first` on in order, and those that overlap or touch together.
    pub fn join(&mut self, first: usize) {
        self.merge(first, true);
    }

    /// Adds a range to a list in order. Those that overlap are put together; what only touches
    /// stays apart, for it may be of another mapping.
    pub fn insert(&mut self, range: [u64; 2], what: &str) -> Outcome<()> {
        self.push(range, what)?;
        self.merge(0, false);
        Ok(())
    }

    fn merge(&mut self, first: usize, if_they_touch: bool) {
        let all = &mut self.room[first..self.len];
        all.sort_unstable();
        let mut last = 0;
        for index in 1..all.len() {
            let end = all[last][1];
            if all[index][0] < end || if_they_touch && all[index][0] == end {
                all[last][1] = all[last][1].max(all[index][1]);
            } else {
                last += 1;
                all[last] = all[index];
            }
        }
        self.len = self.len.min(first + last + 1);
    }
}

impl List<u8> {
    /// Adds bytes.
    pub fn extend(&mut self, bytes: &[u8], what: &str) -> Outcome<()> {
        let Some(room) = self.room[self.len..].get_mut(..bytes.len()) else {
            return refuse!("more than {} bytes of {what}", self.room.len());
        };
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }
}
