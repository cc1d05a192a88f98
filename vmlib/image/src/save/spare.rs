//! What need not be in an image, and what a copy of the process that writes it need not keep.
//!
//! Memory that no section brings is zeros, so pages of zeros are left out. And as long as both the
//! process and its copy have a page, the process gets a page of its own when it writes there: that
//! takes longer than to write the page into the image. So the copy gives memory back as soon as it
//! has no more use for it: zeros when it has seen them, the rest when it is written. Long runs of
//! zeros it does not even get ([`Withheld`]).
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

/// Zeros of fewer bytes between other pages are written: each gap makes a section.
const GAP_MIN: u64 = 8 * PAGE;
/// Smaller mappings are not given back. Bytes.
const SPARE_MIN: u64 = 1 << 20;
/// How far ahead a page is fetched. A copy of a process sees each of its pages for the first time,
/// and the processor writes that down in the page table: it takes longer than to look for zeros,
/// if the next pages are not on their way meanwhile. (27 GB/s in the process itself; in a copy 6,
/// fetched 31.)
const FETCHED: u64 = 4 * PAGE;

/// Pages that are looked at in one go.
const LOOKED_AT: usize = u64::BITS as usize;

/// Shorter runs of zeros are not worth two more mappings while the copy is made. (Heat, whose plate
/// has runs of all lengths, lost 0.55 s of processor time to a checkpoint from 8 pages on, 0.45
/// from 32.)
const WITHHELD_MIN: u64 = 32 * PAGE;
/// Runs of zeros that a copy does not get, at most: each cuts a mapping in three meanwhile, and the
/// kernel allows 65,530 mappings.
const WITHHELD_MAX: usize = 4096;

/// Memory of the program alone, which a copy that writes the image does not work with. By address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spare(&'static [[u64; 2]]);

impl Spare {
    /// That of the process whose mappings these are.
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
            // Right behind the code and the constants of a program or library, which are of no file
            // any more in a restored process, lie its variables: this code and the C
            // library's copying of memory use some.
            if !is_plain || mapping.start == end_of_other {
                // Behind the guard of a thread's stack lies just that: the copy works on another
                // one.
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

    /// Gives back what of these bytes is spare. They are not read any more.
    pub fn give_back(self, range: Range<u64>) {
        for part in self.within(range) {
            // SAFETY: private memory of the program, which does not run in this copy. What the
            // kernel refuses to take stays.
            let _ = unsafe { memory::advise(part, libc::MADV_DONTNEED) };
        }
    }

    /// What of these bytes is spare.
    fn within(self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|[_, end]| *end <= range.start);
        let parts = self.0[first..].iter();
        let parts = parts.take_while(move |[start, _]| *start < range.end);
        parts.map(move |[start, end]| range.start.max(*start)..range.end.min(*end))
    }
}

/// Runs of zeros in spare memory that a copy does not get: to it they are memory that nobody has
/// written to, and the process goes on in them as if there had been no copy. Otherwise each page
/// that it writes to would cost it a fault, although the copy only looks at it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Withheld(&'static [[u64; 2]]);

impl Withheld {
    /// What is worth it of these mappings' memory. All threads are stopped, and this one works
    /// elsewhere, so it stays zeros until the copy is made.
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

    /// A copy that is made now does not get them. To be undone by [`allow`](Self::allow).
    pub fn withhold(self) {
        self.advise_all(libc::MADV_WIPEONFORK);
    }

    /// Copies get them again.
    pub fn allow(self) {
        self.advise_all(libc::MADV_KEEPONFORK);
    }

    fn advise_all(self, advice: i32) {
        for [start, end] in self.0 {
            // SAFETY: it changes nothing in this process. What the kernel refuses to withhold is
            // copied, and left out as zeros there.
            let _ = unsafe { memory::advise(*start..*end, advice) };
        }
    }
}

/// Calls `with` for the pieces of a range that are worth writing, by address: zeros only where
/// something was `sent` before. Gives back what lies between them. Looks at a copy of the range
/// that begins at the address `copy`, which may be its own.
///
/// # Safety
/// The copy can be read, and is of private memory of no file: what is left out is zeros where it
/// is restored.
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

/// Cuts a range where those of a list begin and end, which are in order and do not touch, and
/// tells of each part whether it is of one.
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

/// Calls `with` for the pieces of a range that hold something, and `zeros` for what lies before,
/// between and behind them.
///
/// # Errors
/// On the stack of a save: a page that cannot be read.
///
/// # Safety
/// It can be read, as far as is known.
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

/// Which of some pages from an address on hold zeros alone, as bits: as many as a number has, or
/// those up to `end`.
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
    // SAFETY: it reads bytes.
    unsafe { memory_faults::caught(look) }
}

/// Whether a page holds zeros alone.
///
/// # Safety
/// It is a page that can be read.
unsafe fn is_zeros(page: u64) -> bool {
    // SAFETY: promised by the caller. Any bytes are numbers.
    let lines = unsafe { &*(page as *const [[u64; 8]; PAGE as usize / 64]) };
    fetch(page + FETCHED);
    lines.iter().zip((page..).step_by(64)).all(|(line, at)| {
        fetch(at + PAGE);
        line.iter().fold(0, |all, word| all | word) == 0
    })
}

/// Has a line of memory brought into the cache.
fn fetch(address: u64) {
    // SAFETY: a hint. Where nothing is mapped, it does nothing.
    unsafe { _mm_prefetch::<_MM_HINT_NTA>(address as *const i8) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{records::PRIVATE, sys};

    /// So many pages of zeros that were touched; in these is a byte.
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
        // SAFETY: nobody else knows it.
        unsafe { sys::unmap(range.start as usize, (range.end - range.start) as usize) }
            .expect("unmapped");
    }

    /// The pieces that are worth writing, by their pages.
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
        // Nothing is no piece.
        assert!(found_in(100..100, &[[0, 200]]).is_empty());
    }

    #[test]
    fn long_gaps_of_zeros_are_left_out_and_short_ones_are_not() {
        let filled = [20, 27, 36, 37, 60];
        let range = memory(80, &filled);
        // From 28 to 36 there are eight pages, from 21 to 27 six.
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
        // From 41 to 72 there are too few.
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
    fn a_copy_has_zeros_where_it_was_withheld_and_the_next_one_has_all() {
        let range = memory(20, &[0]);
        let withheld = Withheld(Box::leak(Box::new([[range.start, range.end]])));
        // Whether a copy finds the byte.
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

    /// How many pages of it this process has.
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
            // A program that was restored: code, constants, variables.
            mapping(12 * MIB, MIB),
            mapping(13 * MIB, MIB),
            mapping(14 * MIB, MIB),
            // A gap that a library leaves, and its variables; a thread's stack with its guard.
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
