//! The content of pre-copy rounds. Each round sends the pages that were written since the previous
//! one; the process is frozen only for the last round.
//!
//! The early rounds hold memory alone, of the mappings that programs write most: private and
//! without a file. Everything else is written in the last round, as in a save without rounds. The
//! last round also lists memory that an early round has sent and that has no content any more
//! (GONE), so that the restorer clears it.
//!
//! **Runs in signal handlers, and in the thread that sends memory**
//! ([`precopy`](crate::save::precopy)): everything here allocates nothing and locks nothing.

use crate::{
    capture::{
        mappings::{self, Listing},
        memory::{self},
        names::Names,
        pages::Pages,
        written_pages::WriteWatch,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, refuse},
    },
    raw::{
        processor,
        records::{CPU, Mapping, Name, Plain as _, SPACE},
    },
    save::image_writer::{self, ImageWriter},
};
use std::ops::Range;

/// The limit of separate pieces of memory that all early rounds together have sent. The pieces of
/// the last round count separately.
const SENT_MAX: usize = 1 << 21;
/// The limit of pieces of memory in one round.
const PIECES_MAX: usize = 1 << 20;

/// The memory that is sent between two checks whether the save was cancelled. Bytes.
const STEP: usize = 64 << 20;

/// The early rounds of a save.
pub struct Rounds {
    watch: WriteWatch,
    /// The image; `None` after the last round has taken it.
    out: Option<ImageWriter>,
    sent: List<[u64; 2]>,
    /// Memory that a round could not read, or that could not be watched. The last round sends it if
    /// it still exists, because the write watch need not report it.
    missed: List<[u64; 2]>,
    /// The arena's mark: the tables of a round lie above it.
    mark: usize,
}

impl Rounds {
    /// Begins an image. `None` if the kernel cannot tell which pages are written, or does not allow
    /// that.
    pub fn begin(image: i32, compress: bool, lend: bool) -> Outcome<Option<Self>> {
        let Ok(watch) = WriteWatch::begin() else {
            return Ok(None);
        };
        if !Pages::open()?.can_scan() || !image_writer::can_copy() {
            return Ok(None);
        }
        let mut out = ImageWriter::begin(image, compress, lend)?;
        out.section(CPU, 0, processor::known().bytes())?;
        // SAFETY: zeros are a value.
        let (sent, missed) = unsafe { (List::new(SENT_MAX)?, List::new(PIECES_MAX)?) };
        let mark = arena::mark();
        Ok(Some(Rounds {
            watch,
            out: Some(out),
            sent,
            missed,
            mark,
        }))
    }

    /// Sends the pages that were written since the previous round, as long as `is_wanted`. Zeros
    /// are left out where nothing was sent before, because memory of the new process is zero.
    /// Returns the bytes that were sent.
    pub fn round(&mut self, is_wanted: &dyn Fn() -> bool) -> Outcome<u64> {
        // SAFETY: the tables of the previous round are not used any more.
        unsafe { arena::discard(self.mark) };
        let mut names = Names::new(None)?;
        let all = mappings::mappings(&mut names, Listing::Running, &[])?;
        let own = arena::range();
        // SAFETY: zeros are values.
        let (mut space, mut pieces) = unsafe {
            let space = List::<Mapping>::new(all.len())?;
            (space, List::<[u64; 2]>::new(PIECES_MAX)?)
        };
        let mut pages = Pages::open()?;
        let rights = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        let mut last = 0;
        for mapping in all.iter_mut() {
            // The table of mappings was read in parts while it changed, so mappings may overlap.
            let wanted = mapping.start >= last
                && memory::is_anonymous(mapping)
                && mapping.prot & rights == rights
                && !own.contains(&(mapping.start as usize));
            if !wanted {
                continue;
            }
            mapping.name = Name::default();
            let first = pieces.all().len();
            let reliable = self.watch.written(&mut pages, mapping, |range| {
                pieces.push([range.start, range.end], "pieces of memory")
            })?;
            if !reliable {
                note(&mut self.missed, mapping.start..mapping.end)?;
            }
            let found = pieces.all()[first..].iter();
            let bytes = found.map(|[start, end]| end - start).sum();
            mapping.flags |= memory::filling(mapping, bytes);
            last = mapping.end;
            space.push(*mapping, "mappings")?;
        }
        let Some(out) = &mut self.out else {
            return refuse!("the last round is over");
        };
        out.section(SPACE, 0, Mapping::all_bytes(space.all()))?;
        // SAFETY: zeros are a value.
        let mut written = unsafe { List::<[u64; 2]>::new(PIECES_MAX)? };
        for &[start, end] in pieces.all() {
            for at in (start..end).step_by(STEP) {
                if is_wanted() {
                    out.running_memory(
                        at..end.min(at + STEP as u64),
                        self.sent.all(),
                        |range| note(&mut written, range),
                        |page| note(&mut self.missed, page..page + memory::PAGE),
                    )?;
                }
            }
        }
        let mut bytes = 0;
        for &[start, end] in written.all() {
            bytes += end - start;
            self.sent
                .push([start, end], "pieces of memory in all rounds")?;
        }
        self.sent.join(0);
        Ok(bytes)
    }

    /// Has the last round written through this descriptor of the program, which must be one of the
    /// image's file, pipe or socket.
    pub fn go_on_at(&mut self, image: i32) -> Outcome<()> {
        match &mut self.out {
            Some(out) => out.go_on_at(image),
            None => Ok(()),
        }
    }

    /// Hands over what the last round needs. Called once. The value changes while the image is
    /// written, so it must not lie in memory that the image holds.
    pub fn take(&mut self) -> Outcome<Taken<'_>> {
        self.missed.join(0);
        match self.out.take() {
            Some(out) => Ok(Taken {
                out,
                sent: self.sent.all_mut(),
                missed: self.missed.all(),
            }),
            None => refuse!("the last round is over"),
        }
    }
}

/// Adds a range to a list, joined to the last entry if the two touch.
fn note(list: &mut List<[u64; 2]>, range: Range<u64>) -> Outcome<()> {
    match list.all_mut().last_mut() {
        Some([_, end]) if *end == range.start => {
            *end = range.end;
            Ok(())
        }
        _ => list.push([range.start, range.end], "pieces of memory that changed"),
    }
}

/// The results of the early rounds that the last round needs.
pub struct Taken<'a> {
    /// The image, which the last round continues.
    pub out: ImageWriter,
    /// The memory that was sent, ascending by address; no two ranges touch.
    pub sent: &'a mut [[u64; 2]],
    /// The memory that was to be sent and was not, ascending by address; no two ranges touch.
    pub missed: &'a [[u64; 2]],
}

/// The ranges that were sent and have no content any more. `present` is in ascending order.
pub fn gone(sent: &mut [[u64; 2]], present: &[[u64; 2]]) -> Outcome<List<[u64; 2]>> {
    sent.sort_unstable();
    // SAFETY: zeros are a value.
    let mut gone = unsafe { List::<[u64; 2]>::new(PIECES_MAX)? };
    let mut behind = 0;
    for &[start, end] in sent.iter() {
        let mut at = start.max(behind);
        behind = behind.max(end);
        let mut next = present.partition_point(|[_, end]| *end <= at);
        while at < end {
            let here = present.get(next).copied().unwrap_or([u64::MAX; 2]);
            if at < here[0] {
                gone.push([at, end.min(here[0])], "pieces of memory that are gone")?;
            }
            at = here[1];
            next += 1;
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_memory_without_content_is_gone() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("tables");
        let mut sent = [[40, 50], [0, 10], [5, 20], [60, 70]];
        let present = [[2, 4], [8, 12], [45, 65]];
        let gone = gone(&mut sent, &present).expect("a list");
        assert_eq!(gone.all(), [[0, 2], [4, 8], [12, 20], [40, 45], [65, 70]]);
    }
}
