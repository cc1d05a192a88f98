//! Summaries of images.

use std::io::Cursor;

use vm_image::{
    format::{
        CPU, Codec, FD_KERNEL, FileRecord, GONE, ImageError, ImageReader, Impossible, Mapping,
        Name, PAGES, Plain as _, Prefix, RecordWriter, SPACE, Section, X86_64,
    },
    inspect::{FileKind, Needs, Summary},
};

use crate::made::{CODE, Made, PAGE};

#[test]
fn a_summary_has_the_state_of_the_process() {
    let mut made = Made::small();
    made.body.insert(0, (PAGES, CODE, vec![1; PAGE as usize]));
    for codec in [Codec::Plain, Codec::Lz4] {
        let bytes = made.write(codec);
        let summary = Summary::read(&bytes[..]).unwrap();
        assert_eq!(summary.program, "/usr/bin/dream");
        assert_eq!(summary.name, "dream");
        assert_eq!(summary.command, ["dream", "--of", "sheep"]);
        assert_eq!(summary.dir, "/home/\u{e4}\u{f6}");
        assert_eq!(summary.host, "alpha");
        assert_eq!(summary.kernel, "6.18.0");
        assert_eq!(summary.saved_at_s, 1_700_000_000);
        assert_eq!(summary.pid, 4711);
        let threads: Vec<_> = summary
            .threads
            .iter()
            .map(|one| (one.tid, &one.name[..]))
            .collect();
        assert_eq!(threads, [(4711, "dream"), (4712, "sheep")]);
        let files: Vec<_> = summary
            .files
            .iter()
            .map(|one| (one.fd, one.duplicate_of))
            .collect();
        assert_eq!(files, [(0, None), (3, None), (4, Some(3)), (5, None)]);
        let log = &summary.files[1];
        assert_eq!(
            (log.kind, &log.path[..]),
            (FileKind::File, "/var/log/dream")
        );
        assert_eq!((log.offset, log.size, log.flags), (10, 100, 2));
        assert_eq!((summary.mappings, summary.mapped_bytes), (2, 5 * 4096));
        let pages = summary.pages.unwrap();
        assert_eq!((pages.saved_bytes, pages.codec), (2 * 4096, codec));
        assert_eq!(pages.stored_bytes, bytes.len() as u64);
    }
}

#[test]
fn the_first_sections_can_be_read_without_the_pages() {
    let bytes = Made::small().write(Codec::Plain);
    let whole = Summary::read(&bytes[..]).unwrap();
    let behind = size_of::<Section>() + 24 + size_of::<Section>() + 8 + size_of::<Section>() + 4096;
    let heads = Summary::read_heads(&bytes[..bytes.len() - behind]).unwrap();
    assert_eq!(
        heads,
        Summary {
            pages: None,
            ..whole
        }
    );
}

#[test]
fn names_that_are_not_utf_8_are_shown_with_replacements() {
    let mut made = Made::small();
    made.facts.exe = made.names.add(b"/bin/\xff\xfe");
    made.facts.command = made.names.add(b"");
    made.threads[0].name = *b"sixteen bytes\xe2\x82\xac";
    let summary = Summary::read(&made.write(Codec::Plain)[..]).unwrap();
    assert_eq!(summary.program, "/bin/\u{fffd}\u{fffd}");
    assert!(summary.command.is_empty());
    assert_eq!(summary.threads[0].name, "sixteen bytes\u{20ac}");
}

#[test]
fn as_json_a_summary_has_the_names_of_its_fields() {
    let summary = Summary::read(&Made::small().write(Codec::Lz4)[..]).unwrap();
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["program"], "/usr/bin/dream");
    assert_eq!(json["threads"][1]["name"], "sheep");
    assert_eq!(json["files"][3]["kind"], "pipe");
    assert_eq!(json["files"][2]["duplicate_of"], 3);
    assert_eq!(json["pages"]["codec"], "lz4");
}

#[test]
fn skipped_memory_with_lost_bytes_is_an_error() {
    let made = Made::small();
    for codec in [Codec::Plain, Codec::Lz4] {
        let bytes = made.write(codec);
        let whole = Summary::read(&bytes[..]).unwrap();
        assert_eq!(Summary::pass(Cursor::new(&bytes)).unwrap(), whole);
        for len in 0..bytes.len() {
            let error = |error: ImageError| error.to_string();
            let passed = Summary::pass(Cursor::new(&bytes[..len])).map_err(error);
            assert_eq!(passed, Summary::read(&bytes[..len]).map_err(error), "{len}");
        }
    }
}

#[test]
fn memory_of_early_rounds_counts_and_can_be_skipped() {
    let made = Made::small();
    let mut image = RecordWriter::new(Vec::new(), PAGE, Codec::Plain).unwrap();
    let space = [Mapping {
        name: Name::default(),
        ..made.mappings[0]
    }];
    image.section(CPU, 0, made.facts.cpu.bytes()).unwrap();
    image.section(SPACE, 0, Mapping::all_bytes(&space)).unwrap();
    image.pages(CODE, &[3; PAGE as usize]).unwrap();
    image.facts(&made.facts).unwrap();
    image.names(&made.names).unwrap();
    image.threads(&made.threads).unwrap();
    image.files(&made.files).unwrap();
    image.mappings(&made.mappings).unwrap();
    for _ in 0..2 {
        image.section(GONE, 0, &[0; 16]).unwrap();
    }
    image.pages(CODE, &[4; PAGE as usize]).unwrap();
    let bytes = image.end().unwrap();
    let summary = Summary::pass(Cursor::new(&bytes)).unwrap();
    assert_eq!(summary, Summary::read(&bytes[..]).unwrap());
    assert_eq!(summary.pages.unwrap().saved_bytes, 2 * u64::from(PAGE));
    let mut reader = ImageReader::new(Cursor::new(&bytes)).unwrap();
    assert_eq!(reader.pass_heads().unwrap().mappings(), made.mappings);
    assert_eq!(Summary::pass_on(&mut reader).unwrap(), summary);
}

#[test]
fn rounds_are_those_of_one_processor() {
    let made = Made::small();
    let mut other = made.facts.cpu;
    other.leaf_1_ecx += 1;
    let mut image = RecordWriter::new(Vec::new(), PAGE, Codec::Plain).unwrap();
    image.section(CPU, 0, other.bytes()).unwrap();
    image.facts(&made.facts).unwrap();
    let bytes = image.end().unwrap();
    let error = Summary::read(&bytes[..]).unwrap_err();
    let ImageError::Impossible { what, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(what, Impossible::TwoProcessors);
}

#[test]
fn an_image_within_a_file_can_be_skipped() {
    let bytes = Made::small().write(Codec::Plain);
    let mut file = Cursor::new([b"before", &bytes[..], b"behind"].concat());
    file.set_position(6);
    let summary = Summary::pass(&mut file).unwrap();
    assert_eq!(summary.pages.unwrap().stored_bytes, bytes.len() as u64);
    assert_eq!(file.position(), 6 + bytes.len() as u64);
}

#[test]
fn what_a_host_needs_is_named() {
    let mut made = Made::small();
    made.facts.cpu.leaf_80000008_ebx = 1 | 1 << 12;
    (made.facts.cpu.xcr0, made.facts.cpu.xsave_len) = (7, 832);
    (made.facts.user, made.facts.group, made.facts.ordinary) = (1000, 100, 1);
    let name = made.names.add("/proc/self/stat");
    made.files.push(FileRecord {
        fd: 6,
        original: 6,
        kind: FD_KERNEL,
        name,
        ..FileRecord::default()
    });
    let bytes = made.write(Codec::Plain);
    let mut image = ImageReader::new(&bytes[..]).unwrap();
    let needs = Needs::of(&Prefix::new(X86_64, 4096), image.read_heads().unwrap());
    assert_eq!((needs.user, needs.group, needs.any_user), (1000, 100, true));
    // Without the files that the image carries.
    assert_eq!(needs.files, ["/proc/self/stat", "/home/\u{e4}\u{f6}"]);
    assert_eq!(needs.program[0], "/usr/bin/dream");
    assert_eq!(needs.features, ["sse4.2", "clzero"]);
    assert_eq!(needs.states, ["x87", "sse", "avx"]);
    assert_eq!(
        (needs.arch, needs.page_bytes, needs.xsave_bytes),
        ("x86_64", 4096, 832)
    );
}
