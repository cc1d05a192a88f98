//! The pages of this process: which have content, which are guard pages, which were written.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        guards::{self, Guards},
        memory::{FROM_FILE, OF_FILE, Opened, PAGE, advise, hides},
        proc, vdso,
    },
    frozen::{
        arena,
        fault::{Outcome, Step as _, refuse},
        scratch,
    },
    raw::{
        records::{FILE, Mapping, PRIVATE, SHARED},
        sys::{self, Errno, nr},
    },
};
use std::ops::Range;

/// The number of ranges that one call returns.
const RANGES: usize = 512;

/// `struct pm_scan_arg` of Linux.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any: u64,
    told: u64,
}

/// Flags of a scan: protect the reported pages, and fail where a mapping is not watched.
const PROTECT_AND_CHECK: u64 = 1 | 1 << 1;

const CHECK: u64 = 1 << 1;

const PAGEMAP_SCAN: usize = 0xc060_6610;

const WRITTEN: u64 = 1 << 1;

const GUARD: u64 = 1 << 8;

const PRESENT: u64 = 1 << 3;

const SWAPPED: u64 = 1 << 4;

const ZERO: u64 = 1 << 5;

/// Which pages of a watched mapping are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFilter {
    /// Pages that were written since they were last reported.
    Written,
    /// All pages with content.
    All,
}

/// The interface by which the kernel reports pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// PAGEMAP_SCAN, with guard pages (Linux 6.15).
    Guards,
    /// PAGEMAP_SCAN (Linux 6.7).
    Ranges,
    /// Words of `/proc/self/pagemap`.
    Words,
}

/// The kind of a reported page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageKind {
    Content,
    Guard,
}

/// Finds pages that have content.
pub struct Pages {
    fd: i32,
    source: Source,
    /// Collects the guard pages that are found, if they are wanted.
    guards: Option<Guards>,
}

impl Pages {
    /// Opens the page table, and determines what the kernel can report.
    pub fn open() -> Outcome<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = sys::open(b"/proc/self/pagemap\0", flags, 0).step("looking at the page table")?;
        let mut pages = Pages {
            fd,
            source: Source::Guards,
            guards: None,
        };
        for source in [Source::Guards, Source::Ranges] {
            pages.source = source;
            let own = scratch::range();
            let own = own.start as u64..own.end as u64;
            if matches!(pages.scan(own, (0, 0), &mut |_, _| Ok(())), Ok(Ok(()))) {
                return Ok(pages);
            }
        }
        pages.source = Source::Words;
        Ok(pages)
    }

    /// As [`open`](Self::open), and collects guard pages.
    pub fn open_to_note() -> Outcome<Self> {
        let mut pages = Self::open()?;
        pages.guards = Some(Guards::new()?);
        Ok(pages)
    }

    /// Whether the kernel has PAGEMAP_SCAN and allows it.
    pub fn can_scan(&self) -> bool {
        self.source != Source::Words
    }

    /// The guard pages that were collected.
    pub fn guards(&mut self) -> &'static [[u64; 2]] {
        self.guards.take().map_or(&[], Guards::into_static)
    }

    /// Calls `with` for each range of pages of `mapping` that is to be saved, ascending by address.
    pub fn for_each(
        &mut self,
        mapping: &Mapping,
        mut with: impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<()> {
        let range = mapping.start..mapping.end;
        match mapping.kind {
            FILE if self.guards.is_none() => Ok(()),
            FILE => self.look(mapping, &mut |_| Ok(())),
            _ if mapping.flags & OF_FILE != 0 => {
                self.look(mapping, &mut |_| Ok(()))?;
                let _opened = Opened::new(mapping);
                readable(range, &mut with)
            }
            PRIVATE if mapping.object_len == FROM_FILE => {
                // The threads are stopped, because early rounds skip mappings of files.
                self.look(mapping, &mut |_| Ok(()))?;
                let _opened = Opened::new(mapping);
                readable(range, &mut with)
            }
            SHARED => {
                self.look(mapping, &mut |_| Ok(()))?;
                match is_swapped(&range)? {
                    true => {
                        let _opened = Opened::new(mapping);
                        readable(range, &mut with)
                    }
                    false => in_core(range, &mut with),
                }
            }
            _ => self.look(mapping, &mut with),
        }
    }

    /// Refuses guard pages in memory that may have content below them.
    pub fn refuse_guards(&mut self, mapping: &Mapping) -> Outcome<()> {
        match hides(mapping) {
            true => self.look(mapping, &mut |_| Ok(())),
            false => Ok(()),
        }
    }

    /// Calls `with` for the pages of `mapping` that are present or swapped out, and collects guard
    /// pages.
    fn look(
        &mut self,
        mapping: &Mapping,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<()> {
        let is_hidden = hides(mapping);
        let mut guards = self.guards.take();
        let range = mapping.start..mapping.end;
        let mut each = |range: Range<u64>, kind| match (kind, &mut guards) {
            (PageKind::Content, _) => with(range),
            (PageKind::Guard, _) if is_hidden => guards::refuse_in(mapping, &range),
            (PageKind::Guard, Some(guards)) => guards.note(range),
            (PageKind::Guard, None) => Ok(()),
        };
        let looked = match self.source {
            Source::Words => self.read(range, &mut each),
            _ => match self.scan(range, (0, 0), &mut each) {
                Err(error) => Err(error).step("looking for pages"),
                Ok(told) => told,
            },
        };
        self.guards = guards;
        looked
    }

    /// Calls `with` for the pages of a watched mapping that have content and were written. Fails
    /// with EPERM if the mapping is not watched.
    pub fn written(
        &self,
        mapping: &Mapping,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let range = mapping.start..mapping.end;
        self.scan(range, (CHECK, WRITTEN), &mut |range, _| with(range))
    }

    /// Calls `with` for pages with content of a watched mapping, and protects them: until they are
    /// written again, they do not count as written. Fails with EPERM if the mapping is not watched.
    pub fn protect(
        &self,
        mapping: &Mapping,
        told: PageFilter,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let category = match told {
            PageFilter::Written => WRITTEN,
            PageFilter::All => 0,
        };
        let range = mapping.start..mapping.end;
        let each = &mut |range, _| with(range);
        self.scan(range, (PROTECT_AND_CHECK, category), each)
    }

    /// Scans the page table. Without flags, guard pages are reported, too.
    fn scan(
        &self,
        range: Range<u64>,
        (flags, category): (u64, u64),
        with: &mut impl FnMut(Range<u64>, PageKind) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let (known, left_out) = match (self.source, flags) {
            (Source::Guards, 0) => (GUARD, 0),
            (Source::Guards, _) => (0, GUARD),
            _ => (0, 0),
        };
        let mut found = [[0u64; 3]; RANGES];
        let mut start = range.start;
        // Ranges that touch are joined.
        let mut last = (0..0, PageKind::Content);
        while start < range.end {
            let scan = Scan {
                size: size_of::<Scan>() as u64,
                flags,
                start,
                end: range.end,
                ranges: found.as_mut_ptr() as u64,
                ranges_len: RANGES as u64,
                inverted: ZERO | left_out,
                mask: ZERO | left_out | category,
                any: PRESENT | SWAPPED,
                told: PRESENT | known,
                ..Scan::default()
            };
            let argument = &raw const scan as usize;
            // SAFETY: the kernel reads the argument and writes the ranges.
            let count = unsafe { sys::call3(nr::IOCTL, self.fd as usize, PAGEMAP_SCAN, argument) };
            let count = sys::check(count)?;
            for [from, to, categories] in &found[..count] {
                let kind = match categories & GUARD != 0 {
                    true => PageKind::Guard,
                    false => PageKind::Content,
                };
                if (*from, kind) == (last.0.end, last.1) {
                    last.0.end = *to;
                } else {
                    let (whole, kind) = std::mem::replace(&mut last, (*from..*to, kind));
                    if !whole.is_empty()
                        && let Err(fault) = with(whole, kind)
                    {
                        return Ok(Err(fault));
                    }
                }
            }
            // If the kernel returned as many ranges as there was room for, `walk_end` is stale, and
            // the scan continues behind the last range.
            match count {
                RANGES => start = found[RANGES - 1][1],
                _ => break,
            }
        }
        match last.0.is_empty() {
            true => Ok(Ok(())),
            false => Ok(with(last.0, last.1)),
        }
    }

    /// Reads the page table word by word, for kernels before 6.7.
    fn read(
        &self,
        range: Range<u64>,
        with: &mut impl FnMut(Range<u64>, PageKind) -> Outcome<()>,
    ) -> Outcome<()> {
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        const IS_GUARD: u64 = 1 << 58;
        let mut words = [0u64; RANGES];
        let mut last = (0..0, PageKind::Content);
        let mut page = range.start;
        while page < range.end {
            let wanted = RANGES.min(((range.end - page) / PAGE) as usize);
            let (to, at) = (words.as_mut_ptr() as usize, (page / PAGE * 8) as usize);
            // SAFETY: the kernel writes into `words`.
            let read = unsafe { sys::call4(nr::PREAD64, self.fd as usize, to, 8 * wanted, at) };
            let count = sys::check(read).step("reading the page table")? / 8;
            if count == 0 {
                return refuse!("the page table ends before {:#x}", range.end);
            }
            for word in &words[..count] {
                let kind = match word & IS_GUARD != 0 {
                    true => PageKind::Guard,
                    false => PageKind::Content,
                };
                if word & (PRESENT_OR_SWAPPED | IS_GUARD) != 0 {
                    if (page, kind) == (last.0.end, last.1) {
                        last.0.end += PAGE;
                    } else {
                        let (whole, kind) = std::mem::replace(&mut last, (page..page + PAGE, kind));
                        if !whole.is_empty() {
                            with(whole, kind)?;
                        }
                    }
                }
                page += PAGE;
            }
        }
        match last.0.is_empty() {
            true => Ok(()),
            false => with(last.0, last.1),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// The pages of shared memory that are in memory. That includes pages that this process has not
/// touched, which are not in its page table: another process may have written them, or this process
/// through a descriptor.
fn in_core(range: Range<u64>, with: &mut impl FnMut(Range<u64>) -> Outcome<()>) -> Outcome<()> {
    const MINCORE: usize = 27;
    let mut pages = [0u8; 4096];
    let mut last: Range<u64> = 0..0;
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(pages.len() as u64 * PAGE);
        let to = pages.as_mut_ptr() as usize;
        // SAFETY: the kernel writes one byte for each page.
        let told = unsafe { sys::call3(MINCORE, at as usize, len as usize, to) };
        sys::check(told).step("looking at shared memory")?;
        for (index, _) in (0u64..)
            .zip(&pages[..(len / PAGE) as usize])
            .filter(|(_, page)| *page & 1 != 0)
        {
            let page = at + index * PAGE;
            if page == last.end {
                last.end += PAGE;
                continue;
            }
            let whole = std::mem::replace(&mut last, page..page + PAGE);
            if !whole.is_empty() {
                with(whole)?;
            }
        }
        at += len;
    }
    match last.is_empty() {
        true => Ok(()),
        false => with(last),
    }
}

/// Whether a part of this shared memory is swapped out. The kernel does not report which part.
fn is_swapped(range: &Range<u64>) -> Outcome<bool> {
    const SYSINFO: usize = 99;
    let mut info = [0u64; 16];
    // SAFETY: the kernel writes 112 bytes.
    unsafe { sys::call1(SYSINFO, info.as_mut_ptr() as usize) };
    let (total, free) = (info[8], info[9]);
    if total == free {
        return Ok(false);
    }
    let mark = arena::mark();
    let file = proc::read_file(b"/proc/self/smaps\0", "looking at shared memory")?;
    let mut is_this = false;
    let mut swapped = 0;
    for line in file.split(|byte| *byte == b'\n') {
        if let Some((found, _)) = vdso::range_and_name(line) {
            is_this = found.start as u64 == range.start;
        } else if is_this && line.starts_with(b"Swap:") {
            swapped = proc::field(line, "Swap")
                .and_then(proc::decimal)
                .unwrap_or(0);
        }
    }
    // SAFETY: the file's bytes are not used any more.
    unsafe { arena::release(mark) };
    Ok(swapped > 0)
}

/// The part of a private mapping of a file that can be read, which ends with the file.
fn readable(range: Range<u64>, with: &mut impl FnMut(Range<u64>) -> Outcome<()>) -> Outcome<()> {
    if populate(&range) {
        return with(range);
    }
    let (mut good, mut bad) = (range.start, range.end);
    while bad - good > PAGE {
        let middle = good + (bad - good) / PAGE / 2 * PAGE;
        match populate(&(good..middle)) {
            true => good = middle,
            false => bad = middle,
        }
    }
    if populate(&(good..bad)) {
        good = bad;
    }
    match good > range.start {
        true => with(range.start..good),
        false => Ok(()),
    }
}

fn populate(range: &Range<u64>) -> bool {
    // SAFETY: the call reads pages, as the program could.
    unsafe { advise(range.clone(), libc::MADV_POPULATE_READ).is_ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &mut Pages, mapping: &Mapping) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        pages
            .for_each(mapping, |range| {
                all.push(range);
                Ok(())
            })
            .expect("ranges");
        all
    }

    /// A new mapping of so many pages.
    fn mapped(pages: usize) -> Mapping {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = pages * PAGE as usize;
        let start = sys::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags).expect("memory");
        // SAFETY: the memory is new. Large pages would make untouched pages present.
        unsafe { sys::call3(nr::MADVISE, start, len, libc::MADV_NOHUGEPAGE as usize) };
        Mapping {
            start: start as u64,
            end: (start + len) as u64,
            prot: 3,
            ..Mapping::default()
        }
    }

    #[test]
    fn both_interfaces_find_the_written_pages() {
        let mapping = mapped(100_000);
        let every = 37;
        for page in (0..100_000).step_by(every) {
            // SAFETY: within the new mapping.
            unsafe { ((mapping.start + page * PAGE) as *mut u8).write(1) };
        }
        // SAFETY: as above. Reading an untouched page maps the page of zeros.
        let zero = unsafe { ((mapping.start + PAGE) as *const u8).read_volatile() };
        assert_eq!(zero, 0);
        let mut pages = Pages::open().expect("a page table");
        let quick = found(&mut pages, &mapping);
        assert_eq!(quick.len(), 100_000usize.div_ceil(every));
        assert_eq!(
            quick[1],
            mapping.start + 37 * PAGE..mapping.start + 38 * PAGE
        );
        pages.source = Source::Words;
        let slow = found(&mut pages, &mapping);
        assert!(quick.iter().all(|range| {
            slow.iter()
                .any(|other| other.start <= range.start && range.end <= other.end)
        }));
        // SAFETY: no other code knows the memory.
        unsafe {
            sys::unmap(
                mapping.start as usize,
                (mapping.end - mapping.start) as usize,
            )
        }
        .expect("unmapped");
    }
}
