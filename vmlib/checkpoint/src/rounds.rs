//! Saves a process while it runs, in rounds: each sends what was written since the one before, and
//! only the last needs the process to stand still.
//!
//! The first rounds hold memory alone, of the mappings that programs write most: private, without a
//! file. Everything else is written in the last one, like a save of its own. What vanished in the
//! meantime is told there too, so that it does not come back.

use crate::{
    arena::{self, List},
    dirty::Watch,
    fault::{Outcome, refuse},
    memory::{self, Names, Pages},
    out::Out,
    raw::format::{Mapping, Name, PRIVATE, Plain, SPACE},
    save, signal,
};

/// Pieces of memory that all rounds together have sent, at most.
const SENT_MAX: usize = 1 << 21;
/// Pieces of memory of one round, at most.
const PIECES_MAX: usize = 1 << 20;

/// A save in rounds that is under way. No other save of this process can begin meanwhile.
pub struct Rounds {
    watch: Watch,
    /// Taken by the last round.
    out: Option<Out>,
    sent: List<[u64; 2]>,
    /// Where the memory of the next round's tables begins.
    mark: usize,
}

impl Rounds {
    /// Begins an image.
    ///
    /// # Errors
    /// If the kernel has no such watch, or the image cannot be written.
    pub fn begin(image: i32, compress: bool) -> Outcome<Self> {
        save::claim()?;
        let begun = Rounds::begin_claimed(image, compress);
        if begun.is_err() {
            save::release();
        }
        begun
    }

    fn begin_claimed(image: i32, compress: bool) -> Outcome<Self> {
        save::prepare()?;
        let watch = Watch::begin()?;
        let out = Some(quietly(|| Out::begin(image, compress))?);
        // SAFETY: zeros are a value.
        let sent = unsafe { List::new(SENT_MAX)? };
        let mark = arena::mark();
        Ok(Rounds {
            watch,
            out,
            sent,
            mark,
        })
    }

    /// Sends what was written since the last round. Returns its bytes.
    pub fn round(&mut self) -> Outcome<u64> {
        quietly(|| self.send())
    }

    fn send(&mut self) -> Outcome<u64> {
        // SAFETY: what the last round kept there is of no use any more.
        unsafe { arena::discard(self.mark) };
        let mut names = Names::new()?;
        let all = memory::mappings(&mut names)?;
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
                && mapping.kind == PRIVATE
                && mapping.object_len != memory::FROM_FILE
                && mapping.prot & rights == rights
                && !own.contains(&(mapping.start as usize));
            if !wanted {
                continue;
            }
            mapping.name = Name::default();
            self.watch.written(&mut pages, mapping, |range| {
                pieces.push([range.start, range.end], "pieces of memory")
            })?;
            last = mapping.end;
            space.push(*mapping, "mappings")?;
        }
        let Some(out) = &mut self.out else {
            return refuse!("the last round is over");
        };
        out.section(SPACE, 0, Mapping::all_bytes(space.all()))?;
        let mut bytes = 0;
        for &[start, end] in pieces.all() {
            bytes += end - start;
            out.running_memory(start, end)?;
            self.sent
                .push([start, end], "pieces of memory in all rounds")?;
        }
        Ok(bytes)
    }

    /// What the last round needs. It changes while the image is written, so it is not to stay in
    /// memory that the image holds.
    pub(crate) fn take(&mut self) -> Outcome<(Out, &mut [[u64; 2]])> {
        match self.out.take() {
            Some(out) => Ok((out, self.sent.all_mut())),
            None => refuse!("the last round is over"),
        }
    }

    /// Its descriptor, which is in no image.
    pub(crate) fn descriptor(&self) -> i32 {
        self.watch.descriptor()
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        save::release();
    }
}

/// Keeps the signals that a failed write brings from this thread, which is not stopped.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let set = signal::bit(libc::SIGPIPE) | signal::bit(libc::SIGXFSZ);
    let before = signal::mask(libc::SIG_BLOCK, set);
    let result = work();
    signal::mask(libc::SIG_SETMASK, before);
    result
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
    if gone.all().len() * 16 > crate::raw::format::SECTION_MAX {
        return refuse!("too much memory is gone");
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_and_is_not_there_is_gone() {
        let _alone = arena::ONE_TEST.lock();
        save::prepare().expect("tables");
        let mut sent = [[40, 50], [0, 10], [5, 20], [60, 70]];
        let present = [[2, 4], [8, 12], [45, 65]];
        let gone = gone(&mut sent, &present).expect("a list");
        assert_eq!(gone.all(), [[0, 2], [4, 8], [12, 20], [40, 45], [65, 70]]);
    }
}
