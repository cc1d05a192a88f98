//! Selects the pieces of memory that an image gets, and writes them.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        memory::{self, Opened},
        pages::Pages,
    },
    frozen::{arena, fault::Outcome},
    raw::records::Mapping,
    save::{
        image_writer::ImageWriter,
        spare::{self, Spare},
    },
};
use std::ops::Range;

/// The limit of separate pieces of memory.
const PIECES_MAX: usize = 1 << 22;

/// All memory that has content, ascending by address.
pub fn present(scan: &mut Pages, mappings: &[Mapping]) -> Outcome<&'static [[u64; 2]]> {
    // SAFETY: zeros are a value.
    let mut list = unsafe { arena::List::<[u64; 2]>::new(PIECES_MAX)? };
    for mapping in mappings {
        scan.for_each(mapping, |range| {
            list.push([range.start, range.end], "pieces of memory")
        })?;
    }
    Ok(list.into_static())
}

/// Results of the early rounds, as far as the last round needs them. Empty in a save without
/// rounds.
#[derive(Clone, Copy, Default)]
pub struct Since<'a> {
    /// The memory that the rounds left to the last one; `None` if the written pages are not known.
    pub missed: Option<&'a [[u64; 2]]>,
    /// The memory that the rounds have sent, ascending by address.
    pub sent: &'a [[u64; 2]],
}

/// The memory to be saved, ascending by address: all memory that has content; after early rounds,
/// the memory that was written since, and the memory that they missed. With `zeros`, pages of zeros
/// that no round has sent are left out, and given back if they are spare. Sets the flags of each
/// mapping that say how much of it is in the image.
pub fn pieces(
    scan: &mut Pages,
    mappings: &mut [Mapping],
    since: Since<'_>,
    zeros: Option<Spare>,
) -> Outcome<arena::List<[u64; 2]>> {
    // SAFETY: zeros are a value.
    let mut list = unsafe { arena::List::<[u64; 2]>::new(PIECES_MAX)? };
    for mapping in mappings {
        let first = list.all().len();
        let mut add = |range: Range<u64>| list.push([range.start, range.end], "pieces of memory");
        let is_anonymous = memory::is_anonymous(mapping);
        let is_open = mapping.prot & libc::PROT_READ as u32 != 0;
        let missed = since.missed.filter(|_| is_anonymous);
        let zeros = zeros.filter(|_| is_anonymous && is_open);
        let mut add_worth = |range: Range<u64>| match zeros {
            // SAFETY: the range is private, readable, and of no file.
            Some(spare) => unsafe {
                spare::without_zeros(range.clone(), range.start, since.sent, spare, &mut add)
            },
            None => add(range),
        };
        match missed.map(|missed| (missed, scan.written(mapping, &mut add_worth))) {
            // The mapping has been watched since it was made.
            Some((missed, Ok(told))) => {
                told?;
                let from = missed.partition_point(|[_, end]| *end <= mapping.start);
                let to = missed.partition_point(|[start, _]| *start < mapping.end);
                for &[start, end] in &missed[from..to] {
                    let part = Mapping {
                        start: start.max(mapping.start),
                        end: end.min(mapping.end),
                        ..*mapping
                    };
                    scan.for_each(&part, &mut add)?;
                }
                if from < to {
                    list.join(first);
                }
            }
            // The mapping is not watched.
            _ => scan.for_each(mapping, add_worth)?,
        }
        let bytes: u64 = list.all()[first..]
            .iter()
            .map(|[start, end]| end - start)
            .sum();
        mapping.flags &= !memory::OF_FILE;
        mapping.flags |= memory::filling(mapping, bytes);
        if mapping.object_len == memory::FROM_FILE {
            mapping.object_len = 0;
        }
    }
    Ok(list)
}

/// Writes the memory of the mappings that are `wanted`. Adjacent entries of the list are written in
/// one go where they are readable, so that a helper has enough to do.
pub fn pages(
    out: &mut ImageWriter,
    mappings: &[Mapping],
    pieces: &[[u64; 2]],
    wanted: impl Fn(&Mapping) -> bool,
) -> Outcome<()> {
    let mut run = 0..0;
    let mut at = 0;
    for mapping in mappings {
        let own = at..pieces.partition_point(|[start, _]| *start < mapping.end);
        at = own.end;
        if own.is_empty() || !wanted(mapping) {
            continue;
        }
        let is_open = mapping.prot & libc::PROT_READ as u32 != 0;
        if is_open && run.end == own.start {
            run.end = own.end;
            continue;
        }
        memory_of(out, &pieces[run])?;
        run = own;
        if !is_open {
            let opened = Opened::new(mapping);
            memory_of(out, &pieces[run])?;
            drop(opened);
            run = at..at;
        }
    }
    memory_of(out, &pieces[run])
}

fn memory_of(out: &mut ImageWriter, ranges: &[[u64; 2]]) -> Outcome<()> {
    // SAFETY: the memory is mapped and readable, and no other thread of the program runs.
    unsafe { out.memory(ranges) }
}
