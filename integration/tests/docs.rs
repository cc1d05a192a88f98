//! The pages in `docs/` agree with the code: opcodes, limits, fields, names of files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use vm_wire::{Op, frame::HEADER_LEN, limits};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(page: &str) -> String {
    fs::read_to_string(workspace().join(page)).expect("a page")
}

/// The rows of all tables of a page, cell by cell.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|line| line.split(" | ").collect())
        .collect()
}

#[test]
fn the_protocol_page_has_every_opcode_with_its_number_and_no_other() {
    let text = read("docs/protocol.md");
    let documented: BTreeMap<u8, &str> = rows(&text)
        .into_iter()
        .filter(|cells| cells.len() == 4)
        .filter_map(|cells| Some((cells[0].parse().ok()?, cells[1])))
        .collect();
    let names: Vec<(u8, String)> = Op::ALL
        .iter()
        .map(|op| (*op as u8, format!("{op:?}")))
        .collect();
    let real: BTreeMap<u8, &str> = names
        .iter()
        .map(|(number, name)| (*number, name.as_str()))
        .collect();
    assert_eq!(documented, real);
}

#[test]
fn the_protocol_pages_header_has_no_gap() {
    let text = read("docs/protocol.md");
    let mut end = 0;
    for cells in rows(&text) {
        let [offset, bytes, _] = cells.as_slice() else {
            continue;
        };
        let (Ok(offset), Ok(bytes)) = (offset.parse::<usize>(), bytes.parse::<usize>()) else {
            continue;
        };
        assert_eq!(offset, end, "a gap before offset {offset}");
        end = offset + bytes;
    }
    assert_eq!(end, HEADER_LEN);
}

#[test]
fn the_guides_limits_are_those_of_the_code() {
    let text = read("docs/guide/limits.md");
    let mut left = BTreeMap::from([
        ("MESSAGE_MAX", limits::MESSAGE_MAX),
        ("WINDOW_BYTES_DEFAULT", limits::WINDOW_BYTES_DEFAULT),
        ("INBOX_BYTES_DEFAULT", limits::INBOX_BYTES_DEFAULT),
        ("QUEUE_BYTES", limits::QUEUE_BYTES as u64),
        ("QUEUES_BYTES_ALL", limits::QUEUES_BYTES_ALL as u64),
        ("ABSENT_BYTES", limits::ABSENT_BYTES as u64),
        ("KEEPER_BYTES", limits::KEEPER_BYTES),
        ("HOSTS_LIVE_MAX", limits::HOSTS_LIVE_MAX as u64),
        ("TASKS_MAX_DEFAULT", limits::TASKS_MAX_DEFAULT as u64),
        ("TASKS_LIVE_MAX", limits::TASKS_LIVE_MAX as u64),
        ("APPS_SUSPENDED_MAX", limits::APPS_SUSPENDED_MAX as u64),
        ("SPAWN_COUNT_MAX", u64::from(limits::SPAWN_COUNT_MAX)),
        ("SPAWN_TEXT_MAX", limits::SPAWN_TEXT_MAX as u64),
        ("GROUPS_MAX", limits::GROUPS_MAX as u64),
        ("GROUP_MEMBERS_MAX", limits::GROUP_MEMBERS_MAX as u64),
        ("CONSOLES_MAX", limits::CONSOLES_MAX as u64),
        ("LINE_MAX", limits::LINE_MAX as u64),
        ("MOVE_FILES", limits::MOVE_FILES),
        ("CHECKPOINT_FILES", limits::CHECKPOINT_FILES),
        ("SAFE_POINT", limits::SAFE_POINT.as_secs()),
        ("PORTABLE_PART_MAX", limits::PORTABLE_PART_MAX),
        ("OUTPUT_QUEUE_BYTES", limits::OUTPUT_QUEUE_BYTES as u64),
    ]);
    for cells in rows(&text) {
        let [what, amount, constant] = cells.as_slice() else {
            continue;
        };
        let Some(name) = constant
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        else {
            continue;
        };
        let real = left
            .remove(name)
            .unwrap_or_else(|| panic!("{name} is not known to this test"));
        let (number, unit) = amount.split_once(' ').unwrap_or((amount, ""));
        let unit: u64 = match unit {
            "" | "s" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            unit => panic!("{what}: a unit {unit}"),
        };
        let documented = number.parse::<u64>().expect("a number") * unit;
        assert_eq!(documented, real, "{what}: {name}");
    }
    assert!(left.is_empty(), "not in the guide: {left:?}");
}

/// Each struct has a heading with its name, and under it a table of its fields, in their order.
#[test]
fn the_store_pages_fields_are_those_of_the_manifest() {
    let page = read("docs/store.md");
    let manifest = read("vmlib/store/src/manifest.rs");
    // The other structs of the first file are messages, which are on no disk.
    let wire = ["checkpoint.rs", "part.rs"].map(|file| read(&format!("vmlib/wire/src/{file}")));
    let names = [
        "Part {",
        "Base {",
        "SavedGroup {",
        "Policy {",
        "KeptChunks {",
    ];
    let shared = |text: &&str| names.iter().any(|name| text.starts_with(name));
    let own = manifest.split("\npub struct ").skip(1);
    let mut structs = 0;
    let wire = wire.iter().flat_map(|text| text.split("\npub struct "));
    for text in own.chain(wire.filter(shared)) {
        let (name, rest) = text.split_once(" {\n").expect("a struct with fields");
        let fields = rest.split("\n}\n").next().unwrap_or_default();
        let real: Vec<&str> = fields
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next())
            .collect();
        let section = page.split(&format!("\n### {name}\n")).nth(1);
        let section = section.and_then(|rest| rest.split("\n#").next());
        let documented: Vec<&str> = rows(section.unwrap_or_default())
            .into_iter()
            .filter_map(|cells| cells[0].strip_prefix('`')?.strip_suffix('`'))
            .collect();
        assert_eq!(documented, real, "{name}");
        structs += 1;
    }
    assert_eq!(structs, 7);
}

/// Checks the paths to sources in the architecture page, such as `vmlib/src/send.rs`. In that page
/// `machine/`, `endpoint/` and `wire/` are short for folders of `vmlib`, and a path without a crate is below
/// `vmlib/machine/src`.
#[test]
fn the_architecture_page_names_files_that_exist() {
    let text = read("docs/architecture.md");
    for word in text.split('`').skip(1).step_by(2) {
        if !word.contains('/') || !word.ends_with(".rs") {
            continue;
        }
        let places = [
            word.to_owned(),
            format!("vmlib/machine/src/{word}"),
            word.replacen("machine/", "vmlib/machine/src/", 1),
            word.replacen("endpoint/", "vmlib/endpoint/src/", 1),
            word.replacen("wire/", "vmlib/wire/src/", 1),
        ];
        assert!(
            places.iter().any(|place| workspace().join(place).exists()),
            "no {word}"
        );
    }
}
