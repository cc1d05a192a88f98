//! Memory for a save: reserved once, given out by counting up, and taken back as a whole at the
//! next save. The arena needs no lock and no allocator. As ordinary memory of the process, the
//! arena is in the image, so what a save has put here is there in the restored process.

use crate::{
    frozen::fault::{Outcome, Step as _, refuse},
    raw::sys,
};
use std::{
    ptr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Reserved bytes. Only used pages take memory.
const ARENA_BYTES: usize = 256 << 20;
/// The alignment of everything that is given out. Bytes.
const ALIGN: usize = 64;

static BASE: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
/// Offset from which on all bytes are zero.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Held by tests that use the arena, because there is one arena.
#[cfg(test)]
pub static ONE_TEST: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Takes everything back. Reserves the memory first if it is not reserved yet.
pub fn reset() -> Outcome<()> {
    if BASE.load(Relaxed) == 0 {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = sys::map(0, ARENA_BYTES, prot, flags).step("reserving memory for the save")?;
        BASE.store(base, Relaxed);
    }
    // SAFETY: the last save has ended.
    unsafe { discard(0) };
    Ok(())
}

/// Takes back everything that was given out since `mark`, and returns the memory to the system.
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn discard(mark: usize) {
    let (base, from) = (BASE.load(Relaxed), mark.next_multiple_of(4096));
    // SAFETY: no code uses that part.
    unsafe {
        let advice = libc::MADV_DONTNEED as usize;
        sys::call3(sys::nr::MADVISE, base + from, ARENA_BYTES - from, advice)
    };
    USED.store(mark, Relaxed);
    HIGH.store(from, Relaxed);
}

/// The addresses of the arena.
pub fn range() -> std::ops::Range<usize> {
    let base = BASE.load(Relaxed);
    base..base + ARENA_BYTES
}

/// The number of bytes given out, for [`release`] and [`discard`].
pub fn mark() -> usize {
    USED.load(Relaxed)
}

/// Takes back everything that was given out since `mark`.
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn release(mark: usize) {
    USED.store(mark, Relaxed);
}

/// Gives out `count` zeroed records, which live until the next [`reset`].
///
/// # Safety
/// All zeros must be a value of `T`, and one thread at a time uses the records.
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
    // SAFETY: reserved, aligned, and given out once; the caller promises that zeros are a value.
    unsafe {
        ptr::write_bytes(start.cast::<u8>(), 0, dirty);
        Ok(std::slice::from_raw_parts_mut(start, count))
    }
}

/// Gives out bytes at the place that was just released, with their content.
///
/// # Safety
/// The bytes were given out before, and no code uses them.
pub unsafe fn take_again(len: usize) -> Outcome<&'static mut [u8]> {
    let at = USED.load(Relaxed);
    USED.store((at + len).next_multiple_of(ALIGN), Relaxed);
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts_mut((BASE.load(Relaxed) + at) as *mut u8, len) })
}

/// A list with a limit.
pub struct List<T: 'static> {
    room: &'static mut [T],
    len: usize,
}

impl<T: Copy> List<T> {
    /// An empty list with room for `max` entries.
    ///
    /// # Safety
    /// As for [`take`].
    pub unsafe fn new(max: usize) -> Outcome<Self> {
        // SAFETY: promised by the caller.
        let room = unsafe { take(max)? };
        Ok(List { room, len: 0 })
    }

    /// Adds an entry; `what` names the entries in the error.
    pub fn push(&mut self, value: T, what: &str) -> Outcome<()> {
        let Some(place) = self.room.get_mut(self.len) else {
            return refuse!("more than {} {what}", self.room.len());
        };
        *place = value;
        self.len += 1;
        Ok(())
    }

    /// The entries.
    pub fn all(&self) -> &[T] {
        &self.room[..self.len]
    }

    /// The entries.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.room[..self.len]
    }

    /// The entries, which live until the next [`reset`].
    pub fn into_static(self) -> &'static mut [T] {
        &mut self.room[..self.len]
    }
}

impl List<[u64; 2]> {
    /// Sorts the ranges from index `first` on, and joins those that overlap or touch.
    pub fn join(&mut self, first: usize) {
        self.merge(first, true);
    }

    /// Adds a range to a sorted list, and joins ranges that overlap. Ranges that only touch stay
    /// separate, because they may be of different mappings.
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
    /// Adds bytes; `what` names the list in the error.
    pub fn extend(&mut self, bytes: &[u8], what: &str) -> Outcome<()> {
        let Some(room) = self.room[self.len..].get_mut(..bytes.len()) else {
            return refuse!("more than {} bytes of {what}", self.room.len());
        };
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }
}
