//! Checks of a prefix and of a section's head, before anything that follows it is read. Each check
//! needs only the head itself and its place in the image.

use crate::{
    format::error::{Damage, ImageError, Impossible, Location},
    raw::records::{
        BLOCK, CONTENT, CPU, Cpu, END, End, FACTS, FILES, FILES_MAX, Facts, FileRecord, GONE, LZ4,
        MAPPINGS, MAPPINGS_MAX, Mapping, NAMES, NAMES_MAX, PAGES, PLAIN, Plain as _, Prefix,
        SECTION_MAGIC, SECTION_MAX, SPACE, Section, THREADS, THREADS_MAX, ThreadRecord, VERSION,
        X86_64,
    },
};

/// Page sizes that any supported processor has. Bytes.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65536;
/// The largest number of bytes that one byte of an LZ4 block can decode to.
const LZ4_RATIO_MAX: u64 = 255;

/// The first kind that may follow the heads. GONE may come in its place, once or several times.
pub(super) const MEMORY: u16 = MAPPINGS + 1;

/// The kind of section that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// CPU or FACTS: the image has only its prefix so far.
    Begin,
    /// SPACE, which begins the first early round, or FACTS.
    Rounds,
    /// PAGES of an early round, SPACE of the next one, or FACTS.
    Early,
    /// A section of this kind.
    Head(u16),
    /// PAGES, CONTENT or END.
    Body,
    /// No section: the image is whole.
    Whole,
    /// No section: an error was found in the image.
    Failed,
}

/// Whether this release can read the image that begins with this prefix.
pub(super) fn check_prefix(prefix: &Prefix) -> Result<(), ImageError> {
    let place = Location::Prefix;
    // The prefix has the same shape and checksum in all versions, so damage is not taken for
    // another version.
    if prefix.check != prefix.sum() {
        let what = Damage::HeadSum;
        return Err(ImageError::Damaged { at: 0, place, what });
    }
    if prefix.version != VERSION {
        let found = prefix.version;
        return Err(ImageError::OtherVersion { found });
    }
    if prefix.machine != X86_64 {
        let found = prefix.machine;
        return Err(ImageError::OtherMachine { found });
    }
    let page_size = prefix.page_size;
    let impossible = |what| Err(ImageError::Impossible { at: 0, place, what });
    if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
        return impossible(Impossible::PageSize(page_size));
    }
    if prefix.reserved != 0 {
        return impossible(Impossible::Reserved);
    }
    Ok(())
}

/// Whether the head is undamaged and is that of section number `index`.
pub(super) fn check_integrity(section: &Section, index: u32) -> Result<(), Damage> {
    if section.magic != SECTION_MAGIC {
        return Err(Damage::NoSection);
    }
    if section.check != section.sum() {
        return Err(Damage::HeadSum);
    }
    if section.index != index {
        let found = section.index;
        return Err(Damage::Displaced { found });
    }
    Ok(())
}

/// Whether a section of kind `found` may come now.
pub(super) fn check_order(found: u16, expected: Expected) -> Result<(), Impossible> {
    if !(FACTS..=CPU).contains(&found) {
        return Err(Impossible::Kind(found));
    }
    match expected {
        Expected::Begin if found == CPU => Ok(()),
        Expected::Rounds if found == SPACE => Ok(()),
        Expected::Early if found == SPACE || found == PAGES => Ok(()),
        Expected::Begin | Expected::Rounds | Expected::Early if found != FACTS => {
            let wanted = FACTS;
            Err(Impossible::Order { found, wanted })
        }
        Expected::Head(MEMORY) if found == GONE => Ok(()),
        Expected::Head(MEMORY) if (PAGES..=END).contains(&found) => Ok(()),
        Expected::Body if found > END => {
            let wanted = PAGES;
            Err(Impossible::Order { found, wanted })
        }
        Expected::Head(wanted) if found != wanted => Err(Impossible::Order { found, wanted }),
        Expected::Body if found < PAGES => {
            let wanted = PAGES;
            Err(Impossible::Order { found, wanted })
        }
        _ => Ok(()),
    }
}

/// Whether the lengths of the section are within its limits, so that memory may be allocated for
/// it.
pub(super) fn check_lengths(section: &Section, page_size: u64) -> Result<(), Impossible> {
    let (raw, stored) = (section.raw_len, section.stored_len);
    let (part, least, most) = match section.kind {
        FACTS => (Facts::LEN, 1, 1),
        NAMES => (1, 0, NAMES_MAX),
        THREADS => (ThreadRecord::LEN, 0, THREADS_MAX),
        FILES => (FileRecord::LEN, 0, FILES_MAX),
        MAPPINGS | SPACE => (Mapping::LEN, 0, MAPPINGS_MAX),
        GONE => (16, 0, BLOCK / 16),
        CPU => (Cpu::LEN, 1, 1),
        PAGES => (page_size as usize, 1, SECTION_MAX / page_size as usize),
        END => (End::LEN, 1, 1),
        CONTENT => (1, 1, BLOCK),
        _ => (1, 0, SECTION_MAX),
    };
    let (part, max) = (part as u64, (part * most) as u64);
    if raw > max {
        return Err(Impossible::TooLong { len: raw, max });
    }
    if raw % part != 0 || raw < part * least {
        return Err(Impossible::Uneven { len: raw, part });
    }
    let good = match section.codec {
        PLAIN => stored == raw,
        // Bounds of LZ4: an incompressible block is the longest, a block of one repetition the
        // shortest.
        LZ4 => stored <= raw + raw / LZ4_RATIO_MAX + 16 && raw <= stored * LZ4_RATIO_MAX,
        codec => return Err(Impossible::Codec(codec)),
    };
    if !good {
        return Err(Impossible::Lengths { stored, raw });
    }
    let max = SECTION_MAX as u64;
    if stored > max {
        return Err(Impossible::TooLong { len: stored, max });
    }
    Ok(())
}
