//! The pages in `docs/` agree with the code: opcodes, limits, fields, versions, names of files and
//! functions.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use vm_wire::{Op, frame::HEADER_LEN, limits, version};

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
        ("OPEN_REQUESTS_MAX", limits::OPEN_REQUESTS_MAX as u64),
        ("HANDLERS_MAX", limits::HANDLERS_MAX as u64),
        ("QUEUE_BYTES", limits::QUEUE_BYTES as u64),
        ("QUEUES_BYTES_ALL", limits::QUEUES_BYTES_ALL as u64),
        ("ABSENT_BYTES", limits::ABSENT_BYTES as u64),
        ("KEEPER_BYTES", limits::KEEPER_BYTES),
        ("RINGS_PER_TASK", limits::RINGS_PER_TASK as u64),
        ("RING_IDLE", limits::RING_IDLE.as_secs()),
        ("RINGS_PER_HOST", limits::RINGS_PER_HOST as u64),
        ("RING_BYTES", limits::RING_BYTES as u64),
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

/// The number that follows `before` where it first stands in a text.
fn number_after(text: &str, before: &str) -> Option<u16> {
    let (_, rest) = text.split_once(before)?;
    let digits = rest.split(|next: char| !next.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[test]
fn the_protocol_page_and_the_next_release_state_the_current_protocol_version() {
    let page = read("docs/protocol.md");
    let stated = number_after(&page, "\nVersion ");
    assert_eq!(stated, Some(version::CURRENT), "docs/protocol.md");
    let changelog = read("CHANGELOG.md");
    let release = changelog.split("\n## ").nth(1).expect("a release");
    let stated = number_after(release, "\nProtocol version ");
    assert_eq!(stated, Some(version::CURRENT), "CHANGELOG.md");
}

/// The place of a path in the architecture page. A path that begins with no folder of the
/// repository is below `vmlib/machine/src`.
fn place(path: &str) -> PathBuf {
    match path.split_once('/') {
        Some((folder, _)) if workspace().join(folder).is_dir() => workspace().join(path),
        _ => workspace().join("vmlib/machine/src").join(path),
    }
}

/// Checks the paths to sources in the architecture page, such as `vmlib/src/send.rs`.
#[test]
fn the_architecture_page_names_files_that_exist() {
    let text = read("docs/architecture.md");
    for word in text.split('`').skip(1).step_by(2) {
        if word.contains('/') && word.ends_with(".rs") {
            assert!(place(word).is_file(), "no {word}");
        }
    }
}

/// The code that a row of a table names: each file or folder, and each name in parentheses with the
/// file that is named last before it.
fn code_in(row: &str) -> Vec<(&str, Option<&str>)> {
    let mut code = Vec::new();
    let mut path = "";
    let mut in_parentheses = false;
    for (index, text) in row.split('`').enumerate() {
        if index % 2 == 0 {
            let (open, close) = (text.rfind('('), text.rfind(')'));
            if open != close {
                in_parentheses = open > close;
            }
        } else if text.ends_with(".rs") || text.ends_with('/') {
            path = text;
            code.push((path, None));
        } else if in_parentheses && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            code.push((path, Some(text)));
        }
    }
    code
}

#[test]
fn each_way_in_the_architecture_page_names_files_and_functions_of_the_code() {
    let page = read("docs/architecture.md");
    let (_, section) = page.split_once("\n## Ways\n").expect("a section of ways");
    let section = section.split("\n## ").next().unwrap_or_default();
    let ways: Vec<&str> = section.split("\n### ").skip(1).collect();
    assert!(!ways.is_empty(), "no way");
    for way in ways {
        let title = way.lines().next().unwrap_or_default();
        let rows = way.lines().filter(|line| line.starts_with("| "));
        let code: Vec<(&str, Option<&str>)> = rows.flat_map(code_in).collect();
        assert!(!code.is_empty(), "{title}: no code");
        for (path, function) in code {
            let file = place(path);
            assert!(file.exists(), "{title}: no {path}");
            let Some(name) = function else {
                continue;
            };
            assert!(file.is_file(), "{title}: no file before {name}");
            let source = fs::read_to_string(file).expect("a source");
            let is_defined = ["(", "<"]
                .iter()
                .any(|next| source.contains(&format!("fn {name}{next}")));
            assert!(is_defined, "{title}: no function {name} in {path}");
        }
    }
}
