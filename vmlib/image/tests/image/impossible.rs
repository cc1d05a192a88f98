//! Images whose checksums are right, but which no save can have written.

use vm_image::{
    format::{
        self, CONTENT, CPU, Codec, Damage, END, FD_UNNAMED, Facts, GONE, ImageError, Impossible,
        MAPPINGS, NAMES, Name, PAGES, Plain, Prefix, SECTION_MAX, SPACE, Section,
    },
    raw::checksum::checksum,
};

use crate::made::{CODE, Made, PAGE, STACK, read, reseal};

/// The contradiction that a change of records causes in the small image.
fn wrong(change: impl FnOnce(&mut Made)) -> Impossible {
    let mut made = Made::small();
    change(&mut made);
    reason(&made.write(Codec::Plain))
}

fn reason(image: &[u8]) -> Impossible {
    match read(image).unwrap_err() {
        ImageError::Impossible { what, .. } => what,
        error => panic!("{error}"),
    }
}

/// The contradiction that a change of the first section's head causes in the small image.
fn wrong_head(offset: usize, bytes: &[u8]) -> Impossible {
    let mut image = Made::small().write(Codec::Plain);
    let at = Prefix::LEN + offset;
    image[at..at + bytes.len()].copy_from_slice(bytes);
    reseal(&mut image);
    reason(&image)
}

#[test]
fn names_lie_inside_the_names() {
    let outside = Name {
        at: u32::MAX,
        len: 1,
    };
    assert_eq!(wrong(|made| made.facts.dir = outside), Impossible::Name(0));
    assert_eq!(
        wrong(|made| made.files[2].name = outside),
        Impossible::Name(2)
    );
    assert_eq!(
        wrong(|made| made.mappings[1].name = outside),
        Impossible::Name(1)
    );
}

#[test]
fn the_number_of_threads_matches_the_facts() {
    let (said, found) = (3, 2);
    let none = |made: &mut Made| {
        made.facts.threads = 0;
        made.threads.clear();
    };
    assert_eq!(
        wrong(|made| made.facts.threads = 3),
        Impossible::Threads { said, found }
    );
    let (said, found) = (0, 0);
    assert_eq!(wrong(none), Impossible::Threads { said, found });
    assert_eq!(
        wrong(|made| made.threads[0].reserved = 1),
        Impossible::Reserved
    );
}

#[test]
fn files_have_known_kinds_and_duplicates_follow_originals() {
    assert_eq!(wrong(|made| made.files[0].kind = 0), Impossible::File(0));
    assert_eq!(wrong(|made| made.files[0].kind = 7), Impossible::File(0));
    assert_eq!(
        wrong(|made| made.files[0].original = 3),
        Impossible::File(0)
    );
    assert_eq!(
        wrong(|made| made.files[3].original = 4),
        Impossible::File(3)
    );
    assert_eq!(
        wrong(|made| made.files[3].original = 9),
        Impossible::File(3)
    );
    assert_eq!(
        wrong(|made| made.files[1].close_on_exec = 2),
        Impossible::File(1)
    );
    assert_eq!(
        wrong(|made| made.files[1].fd = u32::MAX),
        Impossible::File(1)
    );
    assert_eq!(
        wrong(|made| (made.files[3].fd, made.files[3].original) = (3, 3)),
        Impossible::FileTwice(3)
    );
    assert_eq!(
        wrong(|made| made.files[3].content = CODE - 2),
        Impossible::Pipe(3)
    );
}

#[test]
fn only_regular_files_are_carried_and_a_nameless_one_must_be() {
    assert_eq!(wrong(|made| made.files[0].kind = 5), Impossible::File(0));
    assert_eq!(wrong(|made| made.files[0].carried = 1), Impossible::File(0));
    assert_eq!(wrong(|made| made.files[1].carried = 2), Impossible::File(1));
    assert_eq!(wrong(|made| made.files[2].carried = 1), Impossible::File(2));
    assert_eq!(
        wrong(|made| made.files[1].mode = 0o040_755),
        Impossible::File(1)
    );
    assert_eq!(
        wrong(|made| made.files[1].size = 1 << 48),
        Impossible::File(1)
    );
    let unnamed = |made: &mut Made| {
        (made.files[1].kind, made.files[2].kind) = (FD_UNNAMED, FD_UNNAMED);
        made.files[2].original = 4;
        made.files[2].mode = made.files[1].mode;
    };
    // A file that is open twice is carried once; another file is not carried.
    let mut made = Made::small();
    unnamed(&mut made);
    assert!(read(&made.write(Codec::Plain)[..]).is_ok());
    let other = |made: &mut Made| {
        unnamed(made);
        made.files[2].inode = 9;
    };
    assert_eq!(wrong(other), Impossible::File(2));
}

#[test]
fn content_is_that_of_a_carried_file_in_order() {
    let at = |address: u64, len: usize| {
        move |made: &mut Made| made.body.push((CONTENT, address, vec![1; len]))
    };
    let first = 1 << 48;
    assert_eq!(
        wrong(at(17 + first, 1)),
        Impossible::ContentOrder(17 + first)
    );
    assert_eq!(wrong(at(99 + first, 2)), Impossible::Content(99 + first));
    assert_eq!(wrong(at(2 << 48, 1)), Impossible::Content(2 << 48));
    assert_eq!(wrong(at(9 << 48, 1)), Impossible::Content(9 << 48));
    let (len, part) = (0, 1);
    assert_eq!(wrong(at(18 + first, 0)), Impossible::Uneven { len, part });
    let (len, max) = ((1 << 20) + 1, 1 << 20);
    let long = |made: &mut Made| made.body.push((CONTENT, 18 + first, vec![1; len as usize]));
    assert_eq!(wrong(long), Impossible::TooLong { len, max });
    let mut made = Made::small();
    at(18 + first, 82)(&mut made);
    assert!(read(&made.write(Codec::Lz4)[..]).is_ok());
}

#[test]
fn mappings_are_whole_pages_in_order() {
    assert_eq!(
        wrong(|made| made.mappings[0].start += 1),
        Impossible::Mapping(0)
    );
    assert_eq!(
        wrong(|made| made.mappings[0].end += 1),
        Impossible::Mapping(0)
    );
    assert_eq!(
        wrong(|made| made.mappings[0].end = CODE),
        Impossible::Mapping(0)
    );
    assert_eq!(
        wrong(|made| made.mappings[1].kind = 3),
        Impossible::Mapping(1)
    );
    assert_eq!(
        wrong(|made| made.mappings[1].prot = 8),
        Impossible::Mapping(1)
    );
    assert_eq!(
        wrong(|made| made.mappings[1].flags = 8),
        Impossible::Mapping(1)
    );
    assert_eq!(
        wrong(|made| made.mappings.swap(0, 1)),
        Impossible::MappingOrder(1)
    );
    let overlap = |made: &mut Made| made.mappings[0].end = STACK + u64::from(PAGE);
    assert_eq!(wrong(overlap), Impossible::MappingOrder(1));
}

#[test]
fn pages_lie_inside_one_mapping_and_ascend() {
    let page = u64::from(PAGE);
    let at = |address| move |made: &mut Made| made.body[0].1 = address;
    assert_eq!(wrong(at(STACK + 1)), Impossible::Unaligned(STACK + 1));
    for address in [
        0,
        CODE - page,
        CODE + page,
        STACK + 4 * page,
        page.wrapping_neg(),
    ] {
        assert_eq!(wrong(at(address)), Impossible::Unmapped(address));
    }
    let leaving = |made: &mut Made| made.body[0].2 = vec![0; 4 * PAGE as usize];
    assert_eq!(wrong(leaving), Impossible::Unmapped(STACK + page));
    let twice = |made: &mut Made| made.body.push(made.body[0].clone());
    assert_eq!(wrong(twice), Impossible::PageOrder(STACK + page));
    let part = page;
    let half = |made: &mut Made| made.body[0].2.truncate(100);
    assert_eq!(wrong(half), Impossible::Uneven { len: 100, part });
    let more = |made: &mut Made| made.body[0].2.resize(PAGE as usize + 100, 0);
    let len = page + 100;
    assert_eq!(wrong(more), Impossible::Uneven { len, part });
    let none = |made: &mut Made| made.body[0].2.clear();
    assert_eq!(wrong(none), Impossible::Uneven { len: 0, part });
}

#[test]
fn pages_must_not_cross_from_one_mapping_into_the_next() {
    let page = u64::from(PAGE);
    let touching = |made: &mut Made| {
        made.mappings[0].start = STACK - page;
        made.mappings[0].end = STACK;
        made.body[0].1 = STACK - page;
        made.body[0].2 = vec![0; 2 * PAGE as usize];
    };
    assert_eq!(wrong(touching), Impossible::Unmapped(STACK - page));
}

#[test]
fn content_belongs_to_a_file_of_the_list() {
    let at = |address| move |made: &mut Made| made.body[1].1 = address;
    assert_eq!(wrong(at(4 << 48)), Impossible::Content(4 << 48));
    let last = (2 << 48) - 7;
    assert_eq!(wrong(at(last)), Impossible::Content(last));
}

#[test]
fn sections_come_in_their_order() {
    let more = |kind| move |made: &mut Made| made.body.push((kind, 0, Vec::new()));
    let order = |found| Impossible::Order {
        found,
        wanted: PAGES,
    };
    assert_eq!(wrong(more(NAMES)), order(NAMES));
    assert_eq!(wrong(more(MAPPINGS)), order(MAPPINGS));
    assert_eq!(wrong(more(SPACE)), order(SPACE));
    assert_eq!(wrong(more(GONE)), order(GONE));
    assert_eq!(wrong(more(CPU)), order(CPU));
    assert_eq!(wrong(more(12)), Impossible::Kind(12));
    assert_eq!(wrong(more(0)), Impossible::Kind(0));
    for found in [NAMES, PAGES, CONTENT, END, SPACE, GONE] {
        let wanted = format::FACTS;
        assert_eq!(
            wrong_head(4, &found.to_le_bytes()),
            Impossible::Order { found, wanted }
        );
    }
}

#[test]
fn reserved_fields_of_heads_must_be_zero() {
    assert_eq!(wrong_head(6, &[2, 0]), Impossible::Codec(2));
    assert_eq!(wrong_head(12, &[1]), Impossible::Reserved);
    assert_eq!(wrong_head(48, &[1]), Impossible::Reserved);
    let stored = Facts::LEN as u64;
    assert_eq!(
        wrong_head(32, &[0; 8]),
        Impossible::Lengths {
            stored: 0,
            raw: stored
        }
    );
    let wrong_prefix = |offset: usize, byte| {
        let mut image = Made::small().write(Codec::Plain);
        image[offset] = byte;
        reseal(&mut image);
        reason(&image)
    };
    assert_eq!(wrong_prefix(20, 1), Impossible::Reserved);
    assert_eq!(wrong_prefix(16, 1), Impossible::PageSize(4097));
    let size = |page_size| wrong(|made| made.page_size = page_size);
    assert_eq!(size(0), Impossible::PageSize(0));
    assert_eq!(size(2048), Impossible::PageSize(2048));
    assert_eq!(size(1 << 31), Impossible::PageSize(1 << 31));
}

#[test]
fn lengths_above_their_limits_are_refused_before_memory_is_taken() {
    let huge = u64::MAX.to_le_bytes();
    let max = Facts::LEN as u64;
    assert_eq!(
        wrong_head(24, &huge),
        Impossible::TooLong { len: u64::MAX, max }
    );
    assert_eq!(
        wrong_head(32, &huge),
        Impossible::Lengths {
            stored: u64::MAX,
            raw: max
        }
    );
    let names = |made: &mut Made| {
        made.names.add(vec![b'n'; format::NAMES_MAX]);
    };
    assert!(matches!(wrong(names), Impossible::TooLong { max, .. } if max == 4 << 20));
    let len = SECTION_MAX as u64 + u64::from(PAGE);
    let pages = |made: &mut Made| {
        made.mappings[1].end = STACK + 2 * len;
        made.body[0].2 = vec![1; len as usize];
    };
    assert_eq!(
        wrong(pages),
        Impossible::TooLong {
            len,
            max: SECTION_MAX as u64
        }
    );
}

#[test]
fn the_end_matches_the_sections_before_it() {
    let image = Made::small().write(Codec::Plain);
    let payload = image.len() - 24;
    for (offset, what) in [
        (0, Damage::Sections { said: 6 }),
        (
            8,
            Damage::Bytes {
                said: payload as u64 - 64 - 1,
            },
        ),
        (16, Damage::OtherSections),
    ] {
        let mut image = image.clone();
        let field = payload + offset..payload + offset + 8;
        let value = u64::from_le_bytes(image[field.clone()].try_into().unwrap());
        image[field].copy_from_slice(&value.wrapping_sub(1).to_le_bytes());
        let content = checksum(&image[payload..]);
        image[payload - 24..payload - 16].copy_from_slice(&content.to_le_bytes());
        let head = checksum(&image[payload - 64..payload - 8]);
        image[payload - 8..payload].copy_from_slice(&head.to_le_bytes());
        match read(&image[..]).unwrap_err() {
            ImageError::Damaged { what: found, .. } => assert_eq!(found, what),
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_compressed_section_has_a_length_that_lz4_can_reach() {
    let head = |raw_len, payload: &[u8]| {
        let mut head = Section::new(format::FACTS, 0, 0, &[]);
        (head.codec, head.raw_len) = (format::LZ4, raw_len);
        head.stored_len = payload.len() as u64;
        head.check = head.sum();
        let prefix = Prefix::new(format::X86_64, PAGE);
        [prefix.bytes(), head.bytes(), payload].concat()
    };
    let raw = Facts::LEN as u64;
    assert_eq!(
        reason(&head(raw, &[0])),
        Impossible::Lengths { stored: 1, raw }
    );
    let stored = raw + 1 + 16;
    let lengths = Impossible::Lengths {
        stored: stored + 1,
        raw,
    };
    assert_eq!(reason(&head(raw, &vec![0; stored as usize + 1])), lengths);
    // A block that decodes to fewer bytes than its head says, within the limits of LZ4.
    let short = lz4_flex::block::compress(&[7; Facts::LEN - 1]);
    for payload in [&short[..], &vec![0; stored as usize]] {
        let error = read(&head(raw, payload)[..]).unwrap_err();
        let undecodable = matches!(
            error,
            ImageError::Damaged {
                what: Damage::Undecodable,
                ..
            }
        );
        assert!(undecodable, "{error}");
    }
}

#[test]
fn a_payload_is_no_longer_than_a_content_may_be() {
    let mut made = Made::small();
    made.mappings[1].end = STACK + 2 * SECTION_MAX as u64;
    made.body = vec![(PAGES, STACK, vec![0; SECTION_MAX])];
    let mut image = made.write(Codec::Lz4);
    let last = image
        .windows(4)
        .rposition(|bytes| bytes == b"SECT")
        .unwrap();
    let pages = image[..last].windows(4).rposition(|bytes| bytes == b"SECT");
    let stored_len = pages.unwrap() + 32;
    let len = SECTION_MAX as u64 + 1;
    image[stored_len..stored_len + 8].copy_from_slice(&len.to_le_bytes());
    reseal(&mut image);
    let max = SECTION_MAX as u64;
    assert_eq!(reason(&image), Impossible::TooLong { len, max });
}
