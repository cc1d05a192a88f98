//! Images that were cut, damaged, or written by other programs.

use std::io::{self, Read};

use vm_image::{
    format::{
        Codec, Damage, END, ImageError, ImageReader, Location, Plain, Prefix, Section, VERSION,
    },
    inspect::Summary,
};

use crate::made::{Made, Short, read, reseal};

#[test]
fn a_written_image_is_read_unchanged() {
    let made = Made::small();
    for codec in [Codec::Plain, Codec::Lz4] {
        let sections = read(&made.write(codec)[..]).unwrap();
        let body: Vec<_> = sections[5..]
            .iter()
            .map(|(section, content)| (section.kind, section.address, content.clone()))
            .collect();
        assert_eq!(body, made.body);
        let codecs: Vec<_> = sections.iter().map(|(section, _)| section.codec).collect();
        assert_eq!(codecs[5], u16::from(codec == Codec::Lz4));
    }
}

#[test]
fn short_and_interrupted_reads_make_no_difference() {
    for codec in [Codec::Plain, Codec::Lz4] {
        let bytes = Made::small().write(codec);
        let turn = 0;
        let bytes = &bytes[..];
        assert_eq!(read(Short { bytes, turn }).unwrap(), read(bytes).unwrap());
    }
}

#[test]
fn nothing_behind_the_end_is_read() {
    let mut bytes = Made::small().write(Codec::Plain);
    let len = bytes.len();
    bytes.extend_from_slice(b"the next thing on this socket");
    let mut source = &bytes[..];
    read(&mut source).unwrap();
    assert_eq!(source, &bytes[len..]);
}

#[test]
fn an_image_cut_anywhere_is_truncated_there() {
    for codec in [Codec::Plain, Codec::Lz4] {
        let bytes = Made::small().write(codec);
        for len in 0..bytes.len() {
            match read(&bytes[..len]).unwrap_err() {
                ImageError::Truncated { at, .. } => assert_eq!(at, len as u64),
                error => panic!("{len}: {error}"),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_plain_image_is_an_error() {
    let mut bytes = Made::small().write(Codec::Plain);
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = verify(&bytes).expect_err("a flipped bit");
        bytes[bit / 8] ^= 1 << (bit % 8);
        let good = match &error {
            ImageError::NotAnImage => bit < 64,
            ImageError::Damaged {
                at,
                what: Damage::NoSection,
                ..
            } => (*at..at + 4).contains(&(bit as u64 / 8)),
            ImageError::Damaged { at, .. } => *at <= bit as u64 / 8,
            _ => false,
        };
        assert!(good, "bit {bit}: {error}");
    }
}

/// Two LZ4 blocks may decode to the same content; the checksum covers the content, not the block.
#[test]
fn every_flipped_bit_of_a_compressed_image_is_an_error_or_changes_no_content() {
    let mut bytes = Made::small().write(Codec::Lz4);
    let content = |bytes: &[u8]| -> Result<Vec<_>, ImageError> {
        Ok(read(bytes)?
            .into_iter()
            .map(|(_, content)| content)
            .collect())
    };
    let good = content(&bytes).unwrap();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(same) = content(&bytes) {
            assert_eq!(same, good, "bit {bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn lost_duplicated_and_foreign_sections_are_errors() {
    let bytes = Made::small().write(Codec::Plain);
    let spans = spans(&bytes);
    let (pages, content) = (spans[5].clone(), spans[6].clone());
    let without = [&bytes[..pages.start], &bytes[pages.end..]].concat();
    let displaced = |error| match error {
        ImageError::Damaged {
            place,
            what: Damage::Displaced { found },
            ..
        } => (place, found),
        error => panic!("{error}"),
    };
    let error = read(&without[..]).unwrap_err();
    assert_eq!(displaced(error), (Location::Head(5), 6));
    let doubled = [&bytes[..pages.end], &bytes[pages.start..]].concat();
    let error = read(&doubled[..]).unwrap_err();
    assert_eq!(displaced(error), (Location::Head(6), 5));

    let mut other = Made::small();
    other.body[1].2 = b"sleeping".to_vec();
    let other = other.write(Codec::Plain);
    let mut mixed = bytes.clone();
    mixed[content.clone()].copy_from_slice(&other[content]);
    match read(&mixed[..]).unwrap_err() {
        ImageError::Damaged { what, place, .. } => {
            assert_eq!(what, Damage::OtherSections);
            let (section, kind) = (7, END);
            assert_eq!(place, Location::Payload { section, kind });
        }
        error => panic!("{error}"),
    }
}

#[test]
fn bytes_without_a_section_and_a_damaged_section_are_different_errors() {
    let mut bytes = Made::small().write(Codec::Plain);
    bytes[Prefix::LEN] ^= 1;
    match read(&bytes[..]).unwrap_err() {
        ImageError::Damaged { what, .. } => assert_eq!(what, Damage::NoSection),
        error => panic!("{error}"),
    }
}

#[test]
fn foreign_files_versions_and_architectures_are_named() {
    for other in [
        &b"\x7fELF\x02\x01\x01 and so on and so on"[..],
        b"VMIMAGE\r\n",
        b"x",
    ] {
        let error = read(other).unwrap_err();
        assert!(matches!(error, ImageError::NotAnImage), "{error}");
    }
    let good = Made::small().write(Codec::Plain);
    let with = |version, machine| {
        let mut bytes = good.clone();
        bytes[8..12].copy_from_slice(&u32::to_le_bytes(version));
        bytes[12..16].copy_from_slice(&u32::to_le_bytes(machine));
        reseal(&mut bytes);
        read(&bytes[..]).unwrap_err()
    };
    let error = with(VERSION + 1, 62);
    assert!(
        matches!(error, ImageError::OtherVersion { found } if found == VERSION + 1),
        "{error}"
    );
    let error = with(VERSION, 183);
    assert!(
        matches!(error, ImageError::OtherMachine { found: 183 }),
        "{error}"
    );
}

#[test]
fn a_failing_source_is_an_error_of_its_own_and_ends_the_reading() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the cable"))
        }
    }
    let bytes = Made::small().write(Codec::Plain);
    for len in [10, Prefix::LEN + 10, Prefix::LEN + Section::LEN + 10] {
        let outcome = ImageReader::new(bytes[..len].chain(Failing)).and_then(|mut image| {
            let error = image.next_section().unwrap_err();
            let again = image.next_section().unwrap_err();
            assert!(matches!(again, ImageError::Stopped), "{again}");
            Err::<(), _>(error)
        });
        match outcome.unwrap_err() {
            ImageError::Io { at, .. } => assert_eq!(at, len as u64),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn errors_name_place_cause_and_remedy() {
    let mut bytes = Made::small().write(Codec::Plain);
    let pages = spans(&bytes)[5].clone();
    bytes[pages.start + Section::LEN + 99] ^= 1;
    assert_eq!(
        Summary::read(&bytes[..]).unwrap_err().to_string(),
        format!(
            "the image is damaged in section 5 (PAGES) at byte {}: the content's checksum is \
             wrong; copy it again, or use another image",
            pages.start + Section::LEN
        )
    );
    // The first sections are undamaged.
    Summary::read_heads(&bytes[..]).unwrap();
}

/// Reads an image without keeping its content.
fn verify(bytes: &[u8]) -> Result<(), ImageError> {
    let mut image = ImageReader::new(bytes)?;
    while image.next_section()?.is_some() {}
    Ok(())
}

/// The positions of the sections.
fn spans(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut all, mut at) = (Vec::new(), Prefix::LEN);
    while let Some(head) = Section::from_prefix(&bytes[at..]) {
        let behind = at + Section::LEN + head.stored_len as usize;
        all.push(at..behind);
        at = behind;
    }
    all
}
