//! Compares `docs/image-format.md` and `docs/checkpoint.md` with the code.

use std::{fs, mem::offset_of, path::Path};

use vm_image::{
    format::{
        self, Cpu, End, Facts, FileRecord, Mapping, MemoryMap, Prefix, Section, ThreadRecord,
    },
    raw::checksum::{checksum, mixed},
};

const PAGE: &str = include_str!("../../../../docs/image-format.md");

/// The cells of the table whose last column has this title.
fn table(title: &str) -> Vec<Vec<&'static str>> {
    let ends = format!("| {title} |");
    let mut tables = PAGE.split("\n\n").filter(|part| {
        let head = part.lines().next().unwrap_or_default();
        head.starts_with('|') && head.ends_with(&ends)
    });
    let table = tables
        .next()
        .unwrap_or_else(|| panic!("no table of {title}"));
    assert!(tables.next().is_none(), "two tables of {title}");
    let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim).collect();
    table.lines().skip(2).map(cells).collect()
}

/// Compares the fields of a record with its table. Together the fields cover all bytes of the
/// record.
fn compare(record: &str, len: usize, fields: &[(&str, usize)]) {
    let mut end = 0;
    let rows = table(&format!("field of {record}"));
    assert_eq!(rows.len(), fields.len(), "{record}");
    for (row, (field, offset)) in rows.iter().zip(fields) {
        assert!(
            row[2].starts_with(&format!("`{field}`")),
            "{record}: {field}"
        );
        assert_eq!(row[0], offset.to_string(), "{record}: {field}");
        assert_eq!(*offset, end, "{record}: {field}");
        end += row[1].parse::<usize>().unwrap();
    }
    assert_eq!(end, len, "{record}");
}

macro_rules! compare {
    ($record:ident: $($field:ident)*) => {
        compare(
            stringify!($record),
            size_of::<$record>(),
            &[$((stringify!($field), offset_of!($record, $field))),*],
        )
    };
}

#[test]
fn the_tables_of_the_records_are_those_of_the_code() {
    compare!(Prefix: magic version machine page_size reserved check);
    compare!(Section: magic kind codec index reserved address raw_len stored_len content_check
        reserved_too check);
    compare!(Facts: cpu saved_at_ns monotonic_ns pid threads kernel host exe exe_size
        exe_changed_ns library command dir comm vdso_area vdso_area_len vdso vdso_len vdso_check vdso_copy
        entry stack argument memory user group ordinary reserved);
    compare!(Cpu: leaf_1_ecx leaf_1_edx leaf_7_ebx leaf_7_ecx leaf_7_edx leaf_7_1_eax leaf_7_1_edx
        leaf_d_1_eax leaf_80000001_ecx leaf_80000001_edx leaf_80000008_ebx xsave_len xcr0
        xsave_check);
    compare!(MemoryMap: start_code end_code start_data end_data start_brk brk start_stack
        arg_start arg_end env_start env_end auxv auxv_size exe_fd);
    compare!(ThreadRecord: tid reserved name);
    compare!(FileRecord: fd kind flags original offset size check checked device inode name
        content content_len close_on_exec mode carried user group);
    compare!(Mapping: start end prot kind flags object offset object_len name);
    compare!(End: sections bytes sum);
}

#[test]
fn the_kinds_and_limits_are_those_of_the_code() {
    let kinds = [
        ("FACTS", format::FACTS),
        ("NAMES", format::NAMES),
        ("THREADS", format::THREADS),
        ("FILES", format::FILES),
        ("MAPPINGS", format::MAPPINGS),
        ("PAGES", format::PAGES),
        ("CONTENT", format::CONTENT),
        ("END", format::END),
        ("SPACE", format::SPACE),
        ("GONE", format::GONE),
        ("CPU", format::CPU),
    ];
    let rows = table("content");
    assert_eq!(rows.len(), kinds.len());
    for (row, (name, kind)) in rows.iter().zip(kinds) {
        assert_eq!(row[..2], [&kind.to_string()[..], name]);
    }
    let limits = [
        ("64 MiB", "`SECTION_MAX`", format::SECTION_MAX),
        ("1 MiB", "`BLOCK`", format::BLOCK),
        ("4 MiB", "`NAMES_MAX`", format::NAMES_MAX),
        ("4,096", "`THREADS_MAX`", format::THREADS_MAX),
        ("4,096", "`FILES_MAX`", format::FILES_MAX),
        ("65,536", "`MAPPINGS_MAX`", format::MAPPINGS_MAX),
    ];
    let rows = table("name");
    assert_eq!(rows.len(), limits.len());
    for (row, (text, name, value)) in rows.iter().zip(limits) {
        assert_eq!(row[1..], [text, name]);
        let number: usize = text
            .replace([',', ' '], "")
            .trim_end_matches("MiB")
            .parse()
            .unwrap();
        let unit = if text.ends_with("MiB") { 1 << 20 } else { 1 };
        assert_eq!(number * unit, value, "{name}");
    }
    assert!(PAGE.contains(&format!("Version {}.", format::VERSION)));
}

#[test]
fn the_examples_of_the_checksum_are_right() {
    let hundred: Vec<u8> = (0..100).collect();
    let examples = [&b""[..], b"123456789", &hundred];
    let rows = table("checksum");
    assert_eq!(rows.len(), examples.len());
    for (row, data) in rows.iter().zip(examples) {
        assert_eq!(row[1], format!("`{:#018x}`", checksum(data)));
    }
    assert!(PAGE.contains(&format!("`mixed(7, 3)` is `{:#018x}`", mixed(7, 3))));
}

/// All sources below a folder as one text, in which each placeholder of a format is `{}`.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text += &fs::read_to_string(&path).unwrap();
        }
    }
    let mut parts = text.split('{');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += "{";
        plain += match part.split_once('}') {
            Some((inside, _)) if !inside.contains(['"', '\n']) => &part[inside.len()..],
            _ => part,
        };
    }
    plain
}

#[test]
fn the_texts_of_refusals_are_those_of_the_code() {
    let page = include_str!("../../../../docs/checkpoint.md");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(&folder.join("src")) + &sources(&folder.join("restorer"));
    let tables = page.split("\n\n");
    let tables = tables.filter(|part| part.lines().next().unwrap_or("").ends_with("| the text |"));
    let rows = tables.flat_map(|table| table.lines().skip(2));
    let texts: Vec<&str> = rows.filter_map(|row| row.split('`').rev().nth(1)).collect();
    assert!(texts.len() > 15, "{texts:?}");
    for text in texts {
        let is_gap =
            |word: &str| word.len() > 1 && word.chars().all(|one| one.is_ascii_uppercase());
        let mut wanted = String::new();
        for word in text.split_inclusive(|one: char| !one.is_ascii_alphanumeric()) {
            let bare = word.trim_end_matches(|one: char| !one.is_ascii_alphanumeric());
            match bare == "N" || is_gap(bare) {
                true => wanted += &format!("{{}}{}", &word[bare.len()..]),
                false => wanted += word,
            }
        }
        assert!(sources.contains(&wanted), "no '{wanted}'");
    }
}
