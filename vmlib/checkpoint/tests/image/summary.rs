//! What an image is about.

use vm_checkpoint::{
    format::{PAGES, Section},
    image::{Codec, FileKind, Summary},
};

use crate::made::{CODE, Made, PAGE};

#[test]
fn a_summary_tells_what_was_saved() {
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
fn the_heads_can_be_read_alone_and_the_pages_need_not_be_there() {
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
fn names_that_are_not_utf_8_are_shown_as_far_as_they_are() {
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
