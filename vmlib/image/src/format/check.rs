//! What a prefix and a section's head must be before what follows is read. These checks need
//! nothing but the head itself and the place where it stands.

use crate::{
    format::error::{Damage, ImageError, Impossible, Location},
    raw::records::{
        BLOCK, CONTENT, CPU, Cpu, END, End, FACTS, FILES, FILES_MAX, Facts, FileRecord, GONE, LZ4,
        MAPPINGS, MAPPINGS_MAX, Mapping, NAMES, NAMES_MAX, PAGES, PLAIN, Plain as _, Prefix,
        SECTION_MAGIC, SECTION_MAX, SPACE, Section, THREADS, THREADS_MAX, ThreadRecord, VERSION,
        X86_64,
    },
};

/// Page sizes that any processor has.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65536;
/// One byte of an LZ4 block stands for at most that many.
const LZ4_RATIO_MAX: u64 = 255;

/// What comes first of all that is not the heads: what has gone, or what a body has.
pub(super) const MEMORY: u16 = MAPPINGS + 1;

/// What has to come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// The processor, or the first of the heads.
    Begin,
    /// The first early round, or the first of the heads.
    Rounds,
    /// Memory of an early round, another one, or the first of the heads.
    Early,
    /// The section of this kind.
    Head(u16),
    /// Memory or content, or the end.
    Body,
    /// Nothing: the image is whole.
    Whole,
    /// Nothing: the image is bad.
    Failed,
}

/// Whether this release can read what follows.
pub(super) fn check_prefix(prefix: &Prefix) -> Result<(), ImageError> {
    let place = Location::Prefix;
    // The prefix has one shape and one checksum in all versions: damage shows as damage.
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

/// Whether this head was written as number `index` and has come unharmed.
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

/// Whether this kind may come now.
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

/// Whether memory may be taken for this section.
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
        // No block is longer than one without a repetition, nor shorter than one of nothing else.
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
