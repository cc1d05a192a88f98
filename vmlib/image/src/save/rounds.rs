//! Saves a process while it runs, in rounds: each sends what was written since the one before, and
//! only the last needs the process to stand still.
//!
//! **Runs in signal handlers, and in the thread that sends** ([`precopy`](crate::save::precopy)):
//! everything here allocates nothing and locks nothing.
//!
//! The first rounds hold memory alone, of the mappings that programs write most: private, without a
//! file. Everything else is written in the last one, like a save of its own. What vanished in the
//! meantime is told there too, so that it does not come back.

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

/// Pieces of memory that lie apart and that all rounds together have sent, at most; those of the
/// last round count on their own.
const SENT_MAX: usize = 1 << 21;
/// Pieces of memory of one round, at most.
const PIECES_MAX: usize = 1 << 20;

/// The memory that is sent before the next look whether the save was cancelled. Bytes.
const STEP: usize = 64 << 20;

/// The early rounds of a save.
pub struct Rounds {
    watch: WriteWatch,
    /// Taken by the last round.
    out: Option<ImageWriter>,
    sent: List<[u64; 2]>,
    /// What was to be sent and could not be read then, or could not be watched: if it is still
    /// there in the last round, it is sent then, for nobody has to have written it since.
    missed: List<[u64; 2]>,
    /// Where the memory of the next round's tables begins.
    mark: usize,
}

impl Rounds {
    /// Begins an image; `None` if the kernel cannot tell what is written, or is not allowed to.
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

    /// Sends what was written since the last round, as long as the image is wanted, but no zeros
    /// where nothing was sent before: there are zeros in the new process. Returns its bytes.
    pub fn round(&mut self, is_wanted: &dyn Fn() -> bool) -> Outcome<u64> {
        // SAFETY: what the last round kept there is not used any more.
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
            // The table was read in parts, while it changed.
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

    /// The last round is written to this descriptor of the program's, which has to be that of the
    /// image.
    pub fn go_on_at(&mut self, image: i32) -> Outcome<()> {
        match &mut self.out {
            Some(out) => out.go_on_at(image),
            None => Ok(()),
        }
    }

    /// What the last round needs. It changes while the image is written, so it is not to stay in
    /// memory that the image holds.
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

/// Notes memory: what was sent in a round, or is left for the last one.
fn note(list: &mut List<[u64; 2]>, range: Range<u64>) -> Outcome<()> {
    match list.all_mut().last_mut() {
        Some([_, end]) if *end == range.start => {
            *end = range.end;
            Ok(())
        }
        _ => list.push([range.start, range.end], "pieces of memory that changed"),
    }
}

/// What the last round needs of those before.
pub struct Taken<'a> {
    /// The image.
    pub out: ImageWriter,
    /// What was sent, by address; no two touch.
    pub sent: &'a mut [[u64; 2]],
    /// What could not be, by address; no two touch.
    pub missed: &'a [[u64; 2]],
}

/// What was sent and has no content any more, as a list of ranges. `present` is in order.
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
    fn what_was_sent_and_is_not_there_is_gone() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("tables");
        let mut sent = [[40, 50], [0, 10], [5, 20], [60, 70]];
        let present = [[2, 4], [8, 12], [45, 65]];
        let gone = gone(&mut sent, &present).expect("a list");
        assert_eq!(gone.all(), [[0, 2], [4, 8], [12, 20], [40, 45], [65, 70]]);
    }
}
