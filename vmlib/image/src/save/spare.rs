//! Memory that need not be in an image, and memory that a copy of the process need not keep.
//!
//! Memory that no section brings is zero after a restore, so pages of zeros are left out of the
//! image. While the process and its copy share a page, a write by the process makes the kernel copy
//! the page, which takes longer than writing the page into the image. So the copy gives memory back
//! early: zeros when it has seen them, the rest when it is written. Long runs of zeros are withheld
//! from the copy ([`Withheld`]).
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        memory::{self, PAGE},
        pages::Pages,
    },
    frozen::{
        arena::{self, List},
        fault::Outcome,
        memory_faults,
    },
    raw::records::{GROWS_DOWN, MAPPINGS_MAX, Mapping},
};
use std::{
    arch::x86_64::{_MM_HINT_NTA, _mm_prefetch},
    ops::Range,
};

/// Shorter gaps of zeros are written, because each gap makes another section. Bytes.
const GAP_MIN: u64 = 8 * PAGE;
/// The smallest memory that is given back. Bytes.
const SPARE_MIN: u64 = 1 << 20;
/// How far ahead a page is fetched. A copy of a process accesses each of its pages for the first
/// time, and the processor records that in the page table. Without fetching ahead this takes longer
/// than the search for zeros. (27 GB/s in the process itself; in a copy 6 GB/s without fetching, 31
/// GB/s with it.)
const FETCHED: u64 = 4 * PAGE;

/// The number of pages that are searched for zeros together.
const LOOKED_AT: usize = u64::BITS as usize;

/// Shorter runs of zeros are not withheld: each run makes two more mappings while the copy is made.
/// (Heat, whose plate has runs of all lengths, lost 0.55 s of processor time to a checkpoint with a
/// limit of 8 pages, 0.45 s with 32.)
const WITHHELD_MIN: u64 = 32 * PAGE;
/// The limit of withheld runs: each divides a mapping into three until the copy is made, and the
/// kernel allows 65,530 mappings.
const WITHHELD_MAX: usize = 4096;

/// Private memory of the program that a copy which writes the image does not use itself, ascending
/// by address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spare(&'static [[u64; 2]]);

impl Spare {
    /// The spare memory of a process with these mappings.
    pub fn of(mappings: &[Mapping]) -> Outcome<Self> {
        let own = arena::range();
        let own = own.start as u64..own.end as u64;
        // SAFETY: numbers.
        let mut list = unsafe { List::<[u64; 2]>::new(2 * MAPPINGS_MAX)? };
        let mut end_of_other = 0;
        for mapping in mappings {
            let is_plain = memory::is_anonymous(mapping)
                && mapping.prot as i32 == libc::PROT_READ | libc::PROT_WRITE
                && mapping.flags & GROWS_DOWN == 0;
            // The variables of a program or library lie directly behind its code and constants,
            // which in a restored process are not of a file any more. Some variables are used by
            // this code and by the C library's memcpy, so they are not spare.
            if !is_plain || mapping.start == end_of_other {
                // Memory behind a guard without rights may be spare: it is the stack of a thread,
                // and the copy works on another stack.
                if mapping.prot as i32 != libc::PROT_NONE || mapping.start == end_of_other {
                    end_of_other = mapping.end;
                }
                continue;
            }
            let below = [mapping.start, mapping.end.min(own.start)];
            let above = [mapping.start.max(own.end), mapping.end];
            for [start, end] in [below, above] {
                if start < end && end - start >= SPARE_MIN {
                    list.push([start, end], "mappings")?;
                }
            }
        }
        Ok(Spare(list.into_static()))
    }

    /// Gives back the spare part of these bytes, which are not read any more.
    pub fn give_back(self, range: Range<u64>) {
        for part in self.within(range) {
            // SAFETY: private memory of the program, which does not run in this copy. Memory that
            // the kernel refuses to take stays.
            let _ = unsafe { memory::advise(part, libc::MADV_DONTNEED) };
        }
    }

    /// The spare parts of a range.
    fn within(self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|[_, end]| *end <= range.start);
        let parts = self.0[first..].iter();
        let parts = parts.take_while(move |[start, _]| *start < range.end);
        parts.map(move |[start, end]| range.start.max(*start)..range.end.min(*end))
    }
}

/// Runs of zeros in spare memory that are withheld from a copy. In the copy they are untouched
/// memory, and in the process they stay unshared. Without this, the process would have a page fault
/// for each page of zeros that it writes, although the copy only reads it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Withheld(&'static [[u64; 2]]);

impl Withheld {
    /// The runs worth withholding. All threads are stopped, and this thread uses other memory, so
    /// the runs stay zeros until the copy is made.
    pub fn of(mappings: &[Mapping], spare: Spare) -> Outcome<Self> {
        let mut scan = Pages::open()?;
        // SAFETY: numbers.
        let mut list = unsafe { List::<[u64; 2]>::new(WITHHELD_MAX)? };
        for mapping in mappings {
            for part in spare.within(mapping.start..mapping.end) {
                let part = Mapping {
                    start: part.start,
                    end: part.end,
                    ..*mapping
                };
                let mut keep = |gap: Range<u64>| {
                    if gap.end - gap.start >= WITHHELD_MIN && list.all().len() < WITHHELD_MAX {
                        let _ = list.push([gap.start, gap.end], "runs of zeros");
                    }
                };
                // SAFETY: spare memory can be read.
                scan.for_each(&part, |range| unsafe {
                    split(range, &mut keep, |_| Ok(()))
                })?;
            }
        }
        Ok(Withheld(list.into_static()))
    }

    /// Has a copy that is made from now on not get the runs. To be undone by
    /// [`allow`](Self::allow).
    pub fn withhold(self) {
        self.advise_all(libc::MADV_WIPEONFORK);
    }

    /// Undoes [`withhold`](Self::withhold).
    pub fn allow(self) {
        self.advise_all(libc::MADV_KEEPONFORK);
    }

    fn advise_all(self, advice: i32) {
        for [start, end] in self.0 {
            // SAFETY: the advice changes nothing in this process. A run that the kernel refuses to
            // withhold is copied, and the copy leaves its zeros out.
            let _ = unsafe { memory::advise(*start..*end, advice) };
        }
    }
}

/// Calls `with` for the pieces of a range that must be written, ascending by address. Pages of
/// zeros are left out unless something was `sent` there before. The spare parts of what is left out
/// are given back. The bytes are read at the address `copy`, which may be the range itself.
///
/// # Safety
/// The copy can be read. The range is private memory of no file, so that what is left out is zero
/// after a restore.
pub unsafe fn without_zeros(
    range: Range<u64>,
    copy: u64,
    sent: &[[u64; 2]],
    spare: Spare,
    mut with: impl FnMut(Range<u64>) -> Outcome<()>,
) -> Outcome<()> {
    let away = copy.wrapping_sub(range.start);
    let there = |part: Range<u64>| part.start.wrapping_add(away)..part.end.wrapping_add(away);
    let back = |part: Range<u64>| part.start.wrapping_sub(away)..part.end.wrapping_sub(away);
    parts(range, sent, |part, was_sent| match was_sent {
        true => with(part),
        false => {
            let zeros = |part| spare.give_back(back(part));
            // SAFETY: promised by the caller.
            unsafe { split(there(part), zeros, |part| with(back(part))) }
        }
    })
}

/// Divides a range at the boundaries of a list, whose entries ascend and do not touch. `with` gets
/// each part, and whether the part lies in an entry of the list.
fn parts(
    range: Range<u64>,
    list: &[[u64; 2]],
    mut with: impl FnMut(Range<u64>, bool) -> Outcome<()>,
) -> Outcome<()> {
    let mut at = range.start;
    let first = list.partition_point(|[_, end]| *end <= range.start);
    for &[start, end] in &list[first..] {
        let from = at.max(start);
        if from >= range.end {
            break;
        }
        if at < from {
            with(at..from, false)?;
        }
        at = end.min(range.end);
        with(from..at, true)?;
    }
    match at < range.end {
        true => with(at..range.end, false),
        false => Ok(()),
    }
}

/// Calls `with` for the pieces of a range that hold something, and `zeros` for the gaps before,
/// between and behind them.
///
/// # Errors
/// On the stack of a save: a page that cannot be read.
///
/// # Safety
/// The range can be read, as far as the caller knows.
unsafe fn split(
    range: Range<u64>,
    mut zeros: impl FnMut(Range<u64>),
    mut with: impl FnMut(Range<u64>) -> Outcome<()>,
) -> Outcome<()> {
    let mut piece = range.start..range.start;
    let mut found = 0;
    for (index, page) in range.clone().step_by(PAGE as usize).enumerate() {
        if index % LOOKED_AT == 0 {
            // SAFETY: promised by the caller.
            found = unsafe { zeros_from(page, range.end) }?;
        }
        if found >> (index % LOOKED_AT) & 1 != 0 {
            continue;
        }
        if page - piece.end >= GAP_MIN {
            zeros(piece.end..page);
            if !piece.is_empty() {
                with(piece)?;
            }
            piece = page..page;
        }
        piece.end = page + PAGE;
    }
    zeros(piece.end..range.end);
    match piece.is_empty() {
        true => Ok(()),
        false => with(piece),
    }
}

/// Which pages from an address on are zero, one bit a page: up to [`LOOKED_AT`] pages, or up to
/// `end`.
///
/// # Safety
/// As for [`split`].
unsafe fn zeros_from(start: u64, end: u64) -> Outcome<u64> {
    let pages = (start..end).step_by(PAGE as usize).take(LOOKED_AT);
    let look = || {
        // SAFETY: promised by the caller.
        let bit = |(index, page)| u64::from(unsafe { is_zeros(page) }) << index;
        (0..).zip(pages).map(bit).fold(0, |all, bit| all | bit)
    };
    // SAFETY: the closure only reads bytes.
    unsafe { memory_faults::caught(look) }
}

/// Whether a page is zero.
///
/// # Safety
/// It is a page that can be read.
unsafe fn is_zeros(page: u64) -> bool {
    // SAFETY: promised by the caller. Any bytes are valid numbers.
    let lines = unsafe { &*(page as *const [[u64; 8]; PAGE as usize / 64]) };
    fetch(page + FETCHED);
    lines.iter().zip((page..).step_by(64)).all(|(line, at)| {
        fetch(at + PAGE);
        line.iter().fold(0, |all, word| all | word) == 0
    })
}

/// Has a cache line fetched.
fn fetch(address: u64) {
    // SAFETY: prefetching is a hint, and does nothing where no memory is mapped.
    unsafe { _mm_prefetch::<_MM_HINT_NTA>(address as *const i8) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{records::PRIVATE, sys};

    /// Touched memory of `pages` pages of zeros; each page in `filled` ends with another byte.
    fn memory(pages: u64, filled: &[u64]) -> Range<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let len = (pages * PAGE) as usize;
        let start = sys::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags).expect("memory");
        for page in 0..pages {
            let at = start as u64 + page * PAGE;
            // SAFETY: within the new memory.
            unsafe { (at as *mut u8).write_volatile(0) };
            if filled.contains(&page) {
                // SAFETY: as above; its last byte.
                unsafe { ((at + PAGE - 1) as *mut u8).write_volatile(1) };
            }
        }
        start as u64..start as u64 + pages * PAGE
    }

    fn unmap(range: &Range<u64>) {
        // SAFETY: no other code knows the memory.
        unsafe { sys::unmap(range.start as usize, (range.end - range.start) as usize) }
            .expect("unmapped");
    }

    /// The pieces that are worth writing, in pages.
    fn pieces(range: &Range<u64>, spare: Spare) -> Vec<Range<u64>> {
        let mut pieces = Vec::new();
        let mut push = |piece: Range<u64>| {
            let page = |at: u64| (at - range.start) / PAGE;
            pieces.push(page(piece.start)..page(piece.end));
            Ok(())
        };
        // SAFETY: memory of this test.
        unsafe { without_zeros(range.clone(), range.start, &[], spare, &mut push) }
            .expect("pieces");
        pieces
    }

    #[test]
    fn zeros_are_sent_again_where_something_was_sent_and_left_out_elsewhere() {
        let pages = |count: usize| vec![[0u64; PAGE as usize / 8]; count];
        let mut content = pages(64);
        content[40][7] = 1;
        let found_in = |pages: Range<u64>, sent: &[[u64; 2]]| {
            let mut found = Vec::new();
            let sent: Vec<_> = sent.iter().map(|pair| pair.map(|at| at * PAGE)).collect();
            let add = |piece: Range<u64>| {
                found.push([piece.start / PAGE, piece.end / PAGE]);
                Ok(())
            };
            let range = pages.start * PAGE..pages.end * PAGE;
            let copy = content.as_ptr() as u64;
            // SAFETY: a copy of 64 pages.
            unsafe { without_zeros(range, copy, &sent, Spare::default(), add) }.expect("pieces");
            found
        };
        let found = |sent: &[[u64; 2]]| found_in(100..164, sent);
        assert_eq!(found(&[]), [[140, 141]]);
        assert_eq!(
            found(&[[0, 90], [95, 110], [163, 200]]),
            [[100, 110], [140, 141], [163, 164]]
        );
        assert_eq!(
            found(&[[120, 140], [141, 150]]),
            [[120, 140], [140, 141], [141, 150]]
        );
        assert_eq!(found(&[[0, 100], [164, 170]]), [[140, 141]]);
        // An empty range has no piece.
        assert!(found_in(100..100, &[[0, 200]]).is_empty());
    }

    #[test]
    fn long_gaps_of_zeros_are_left_out_and_short_ones_are_not() {
        let filled = [20, 27, 36, 37, 60];
        let range = memory(80, &filled);
        // The gap from page 28 to 36 has eight pages, the one from 21 to 27 has six.
        let found = pieces(&range, Spare::default());
        assert_eq!(found, [20..28, 36..38, 60..61].to_vec());
        unmap(&range);
        let range = memory(80, &[2, 79]);
        assert_eq!(pieces(&range, Spare::default()), [0..3, 79..80].to_vec());
        unmap(&range);
        let range = memory(80, &[]);
        assert_eq!(pieces(&range, Spare::default()), []);
        unmap(&range);
    }

    #[test]
    fn long_runs_of_zeros_are_withheld_as_far_as_they_are_spare() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("memory");
        // The run from page 41 to 72 has fewer pages than the limit.
        let range = memory(140, &[40, 72, 105]);
        let page = |number: u64| range.start + number * PAGE;
        let mapping = Mapping {
            start: page(0),
            end: page(140),
            kind: PRIVATE,
            prot: 3,
            ..Mapping::default()
        };
        let withheld = |from: u64, to: u64| {
            let spare = Spare(Box::leak(Box::new([[page(from), page(to)]])));
            let list = Withheld::of(&[mapping], spare).expect("a list").0;
            let number = |at: u64| (at - range.start) / PAGE;
            let numbers = list
                .iter()
                .map(|[start, end]| [number(*start), number(*end)]);
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(withheld(0, 140), [[0, 40], [73, 105], [106, 140]].to_vec());
        assert_eq!(withheld(2, 35), [[2, 35]].to_vec());
        assert_eq!(withheld(2, 33), Vec::<[u64; 2]>::new());
        unmap(&range);
    }

    #[test]
    fn withheld_memory_is_zero_in_a_copy_and_whole_in_the_next_one() {
        let range = memory(20, &[0]);
        let withheld = Withheld(Box::leak(Box::new([[range.start, range.end]])));
        // The byte that a copy of the process finds.
        let finds = || {
            // SAFETY: the copy reads a byte and ends.
            match unsafe { crate::raw::clone::fork() } {
                0 => {
                    // SAFETY: within the memory.
                    let byte = unsafe { ((range.start + PAGE - 1) as *const u8).read_volatile() };
                    sys::exit_group(byte.into())
                }
                pid => crate::raw::clone::wait(pid as i32).map(|status| status >> 8 & 0xff),
            }
        };
        assert_eq!(finds(), Some(1));
        withheld.withhold();
        assert_eq!(finds(), Some(0));
        withheld.allow();
        assert_eq!(finds(), Some(1));
        unmap(&range);
    }

    /// The number of pages of the range that are in memory.
    fn resident(range: &Range<u64>) -> usize {
        let mut pages = vec![0u8; ((range.end - range.start) / PAGE) as usize];
        // SAFETY: the kernel writes a byte for each page.
        let told = unsafe {
            libc::mincore(
                range.start as *mut _,
                (range.end - range.start) as usize,
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(told, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn only_spare_memory_is_given_back() {
        let range = memory(100, &[0, 99]);
        let half = range.start + 50 * PAGE;
        let spare = Spare(Box::leak(Box::new([[half, range.end]])));
        assert_eq!(pieces(&range, spare), [0..1, 99..100].to_vec());
        assert_eq!(resident(&range), 51);
        spare.give_back(range.clone());
        assert_eq!(resident(&range), 50);
        unmap(&range);
    }

    #[test]
    fn neither_variables_of_programs_nor_stacks_nor_the_arena_are_spare() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("memory");
        let own = arena::range();
        let mapping = |start: u64, len: u64| Mapping {
            start,
            end: start + len,
            kind: PRIVATE,
            prot: 3,
            ..Mapping::default()
        };
        const MIB: u64 = 1 << 20;
        let mut mappings = [
            mapping(MIB, MIB),     // a program
            mapping(2 * MIB, MIB), // its variables
            mapping(3 * MIB, MIB), // and more of them
            mapping(5 * MIB, 2 * MIB),
            mapping(8 * MIB, MIB / 2),
            mapping(9 * MIB, MIB), // a stack
            // A restored program: code, constants, variables.
            mapping(12 * MIB, MIB),
            mapping(13 * MIB, MIB),
            mapping(14 * MIB, MIB),
            // The gap in a library, and its variables; a thread's stack behind its guard.
            mapping(16 * MIB, MIB),
            mapping(17 * MIB, MIB),
            mapping(18 * MIB, MIB),
            mapping(20 * MIB, MIB),
            mapping(21 * MIB, MIB),
            // The arena within other memory.
            mapping(
                own.start as u64 - 3 * MIB,
                (own.end - own.start) as u64 + 5 * MIB,
            ),
        ];
        mappings[0].object_len = memory::FROM_FILE;
        mappings[5].flags = GROWS_DOWN;
        (mappings[6].prot, mappings[7].prot) = (5, 1);
        (mappings[9].prot, mappings[10].prot, mappings[12].prot) = (5, 0, 0);
        let spare = Spare::of(&mappings).expect("room for the list");
        let (start, end) = (own.start as u64, own.end as u64);
        assert_eq!(
            spare.0,
            [
                [5 * MIB, 7 * MIB],
                [21 * MIB, 22 * MIB],
                [start - 3 * MIB, start],
                [end, end + 2 * MIB]
            ]
        );
    }
}
