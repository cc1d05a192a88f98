//! Arbitrary input: a reader neither panics nor uses more memory than the limits allow.

use proptest::prelude::*;
use vm_image::{
    format::{self, Codec, Plain, Prefix, SECTION_MAX, Section},
    inspect::{Host, Summary, compare},
};

use crate::{
    made::{Made, read, reseal},
    memory::peak_of,
};

/// Changes of an image: single bytes, and ranges that are cut out.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
}

/// Numbers at the edges of their ranges.
fn edge() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        (0..64u32).prop_map(|bit| 1 << bit),
        (0..64u32).prop_map(|bit| (1 << bit) - 1),
        Just(u64::MAX),
        Just(u64::MAX - 4095),
        Just(SECTION_MAX as u64),
    ]
}

/// Reads an image in all ways, to find panics.
fn try_all(bytes: &[u8]) {
    let ((), peak) = peak_of(|| {
        if let Ok(summary) = Summary::read(bytes) {
            assert!(serde_json::to_string(&summary).is_ok());
        }
    });
    assert!(peak <= SECTION_MAX, "{peak} bytes");
    drop(Summary::read_heads(bytes));
    drop(read(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        try_all(&bytes);
        let whole = [Prefix::new(format::X86_64, 4096).bytes(), &bytes].concat();
        prop_assert!(read(&whole[..]).is_err());
        try_all(&whole);
        let mut sealed = whole;
        reseal(&mut sealed);
        try_all(&sealed);
    }

    #[test]
    fn changed_images_with_good_checksums_cause_no_panic(
        lz4 in any::<bool>(), changes in changes(),
    ) {
        let codec = if lz4 { Codec::Lz4 } else { Codec::Plain };
        let mut bytes = Made::small().write(codec);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        reseal(&mut bytes);
        try_all(&bytes);
    }

    #[test]
    fn any_number_in_any_head_causes_no_panic(
        section in 0usize..8, field in 0usize..8, value in edge(), lz4 in any::<bool>(),
    ) {
        let codec = if lz4 { Codec::Lz4 } else { Codec::Plain };
        let mut bytes = Made::small().write(codec);
        let mut at = Prefix::LEN;
        for _ in 0..section {
            let head = Section::from_prefix(&bytes[at..]).unwrap();
            at += Section::LEN + head.stored_len as usize;
        }
        let at = at + 8 * field;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        reseal(&mut bytes);
        try_all(&bytes);
    }

    #[test]
    fn any_number_in_any_record_causes_no_panic(at in any::<prop::sample::Index>(), value in edge()) {
        let mut bytes = Made::small().write(Codec::Plain);
        // The records come before the pages.
        let at = at.index(2000) & !7;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        reseal(&mut bytes);
        try_all(&bytes);
    }

    #[test]
    fn any_two_processors_can_be_compared(
        bytes in prop::collection::vec(any::<u8>(), format::Cpu::LEN),
    ) {
        let mut facts = Made::small().facts;
        facts.cpu = format::Cpu::from_prefix(&bytes).expect("as many bytes as it has");
        let mut here = Host::here();
        for obstacle in compare(&Prefix::new(format::X86_64, 16384), &facts, &here) {
            prop_assert!(obstacle.to_string().contains("choose a host"));
        }
        (facts.cpu.xsave_len, facts.cpu.xsave_check) = here.layout.of(facts.cpu.xcr0);
        here.cpu = facts.cpu;
        let prefix = Prefix::new(format::X86_64, here.page_size);
        prop_assert_eq!(compare(&prefix, &facts, &here), vec![]);
    }
}
