//! The bytes of a manifest, so that a review shows a change of the format.
//!
//! `golden/manifest.txt` holds the file in hexadecimal: magic and version, the body, the hash, one
//! line each. After an intended change, raise the version and write the file anew with
//! `UPDATE_GOLDENFILES=1 cargo test -p vm-store --test golden`.

use std::{fmt::Write, fs, path::PathBuf};
use vm_store::{
    Base, KeptChunks, Manifest, ManifestError, Part, Policy, SavedGroup, SavedTask, limits, name,
};
use vm_wire::{Body, HostId, MachineId, Tid, peer::KeepOrder};

const PREFIX: usize = 12;
const HASH: usize = 32;

fn sample() -> Manifest {
    let machine = MachineId::from_bits(0xa1b2c3);
    let app = Tid::new(machine, HostId(3), 1);
    let part = |name: String, byte: u8| Part {
        name,
        bytes: 1 << 33,
        hash: [byte; 16],
        place: "alpha".to_owned(),
        stored: 1 << 33,
        packed: None,
        base: None,
        copy: None,
    };
    let task = |tid, byte| SavedTask {
        tid,
        host: "alpha".to_owned(),
        arch: "x86_64".to_owned(),
        incarnation: 2,
        requester: Tid::daemon(machine, HostId(1)),
        request: 70_000,
        index: 3,
        program: "hello".to_owned(),
        image: part(name::image(app, tid), byte),
        freeze_us: 30_000,
        unacknowledged: 2,
        belongings: Body::from(vec![1, 2, 3]),
    };
    let other = Tid::new(MachineId::from_bits(0xbeef), HostId(1), 7);
    let mut tasks = vec![task(app, 0x11), task(other, 0x22)];
    tasks[1].image.stored = 70_000;
    tasks[1].image.base = Some(Base {
        generation: 1,
        epoch: 3,
        bytes: 1 << 32,
        packed: Some(1 << 31),
    });
    tasks[1].image.packed = Some(60_000);
    tasks[1].image.copy = Some("beta".to_owned());
    Manifest {
        machine: MachineId::from_bits(0xbeef),
        app,
        program: "hello".to_owned(),
        generation: 1,
        epoch: 5,
        index: 1_234,
        taken_ms: 1_700_000_000_000,
        took_us: 1_500_000,
        policy: Policy {
            recover: vm_wire::checkpoint::Recover::Never,
            every_ms: 300_000,
            mtbf_ms: 0,
            keep: 5,
            compress: true,
            blocking: true,
        },
        tasks,
        groups: vec![SavedGroup {
            name: "all".to_owned(),
            version: 4,
            members: vec![(0, app), (1, other)],
        }],
        kept: vec![KeptChunks {
            host: HostId(2),
            order: KeepOrder {
                from: Tid::new(app.machine(), HostId(2), 9),
                to: app,
                last: 7,
            },
            chunks: vec![Body::from(vec![4, 5, 6])],
        }],
        context: 6,
    }
}

fn bytes(manifest: &Manifest) -> Vec<u8> {
    manifest.to_bytes().expect("a manifest that can be true")
}

/// A file with this body and a right hash.
fn sealed(prefix: &[u8], body: &[u8]) -> Vec<u8> {
    let said = [prefix, body].concat();
    [&said[..], blake3::hash(&said).as_bytes()].concat()
}

#[test]
fn a_manifest_of_an_older_build_has_no_context() {
    let manifest = Manifest {
        context: 0,
        ..sample()
    };
    let bytes = bytes(&manifest);
    let (prefix, body) = bytes[..bytes.len() - HASH].split_at(PREFIX);
    // MessagePack: an array of 13 fields, the last of which is 0.
    assert_eq!((body[0], body.last()), (0x9d, Some(&0)));
    let older = [&[0x9c], &body[1..body.len() - 1]].concat();
    assert_eq!(Manifest::from_bytes(&sealed(prefix, &older)), Ok(manifest));
}

#[test]
fn a_manifest_has_the_bytes_that_it_always_had() {
    let bytes = bytes(&sample());
    let (said, hash) = bytes.split_at(bytes.len() - HASH);
    let (prefix, body) = said.split_at(PREFIX);
    let mut text = String::new();
    for line in [prefix, body, hash] {
        for byte in line {
            write!(text, "{byte:02x}").expect("a string takes all");
        }
        text.push('\n');
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/manifest.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&file, text).expect("the golden file can be written");
        return;
    }
    let golden = fs::read_to_string(&file).expect("the golden file is there");
    assert_eq!(golden, text, "left: as it was, right: as it is");
}

#[test]
fn what_was_written_is_read_back() {
    assert_eq!(Manifest::from_bytes(&bytes(&sample())), Ok(sample()));
}

#[test]
fn another_version_is_told_from_damage() {
    let bytes = bytes(&sample());
    let body = &bytes[PREFIX..bytes.len() - HASH];
    let mut prefix = bytes[..PREFIX].to_vec();
    for found in [1, 2, 3, 5] {
        prefix[8] = found as u8;
        let refused = Manifest::from_bytes(&sealed(&prefix, body));
        assert_eq!(refused, Err(ManifestError::OtherVersion { found }));
    }
    let found = Manifest::from_bytes(&[&prefix[..], body].concat());
    assert_eq!(found, Err(ManifestError::Damaged));
    let found = Manifest::from_bytes(b"VMIMAGE\n");
    assert_eq!(found, Err(ManifestError::NotAManifest));
}

#[test]
fn a_body_that_is_not_exactly_one_manifest_is_refused() {
    let bytes = bytes(&sample());
    let (prefix, body) = bytes[..bytes.len() - HASH].split_at(PREFIX);
    let longer = [body, &[0xc0]].concat();
    // Arrays nested in arrays.
    let deep = [&[0x9a], &[0x91; 1_000_000][..]].concat();
    for wrong in [&longer[..], &body[..body.len() - 1], &[], &[0x9a], &deep] {
        let found = Manifest::from_bytes(&sealed(prefix, wrong));
        assert!(matches!(found, Err(ManifestError::Body(_))), "{found:?}");
    }
}

#[test]
fn a_manifest_has_a_greatest_length() {
    let mut long = sample();
    long.tasks[0].belongings = Body::from(vec![0; limits::MANIFEST_MAX]);
    let found = long.to_bytes();
    assert!(matches!(found, Err(ManifestError::TooLong { .. })));
    let found = Manifest::from_bytes(&vec![0; limits::MANIFEST_MAX + 1]);
    assert!(matches!(found, Err(ManifestError::TooLong { .. })));
}

/// A part of the error text, and the change of the manifest that causes the error.
type Wrong = (&'static str, fn(&mut Manifest));

#[test]
fn what_cannot_be_true_is_neither_written_nor_read() {
    let wrongs: &[Wrong] = &[
        ("machine", |m| {
            m.machine = read_machine(MachineId::MAX + 1);
        }),
        ("is no task", |m| m.app = Tid::NONE),
        ("t3.1 is there twice", |m| m.tasks[1] = m.tasks[0].clone()),
        ("t3.0 is no task", |m| {
            m.tasks[0].tid = Tid::daemon(m.app.machine(), HostId(3));
        }),
        ("not t3.1.image", |m| {
            m.tasks[0].image.name = "t3.2.image".to_owned();
        }),
        ("not 00beef-t1.7.image", |m| {
            m.tasks[1].image.name = "t1.7.image".to_owned();
        }),
        ("host", |m| m.tasks[0].host = "../alpha".to_owned()),
        ("host", |m| m.tasks[0].host.clear()),
        ("host", |m| m.tasks[0].image.place = "a/b".to_owned()),
        ("host", |m| m.tasks[1].image.copy = Some("a/b".to_owned())),
        ("its copy on the same host", |m| {
            m.tasks[1].image.copy = Some("alpha".to_owned());
        }),
        ("architecture", |m| m.tasks[0].arch = "x".repeat(256)),
        ("program", |m| m.tasks[0].program = "/bin/sh".to_owned()),
        ("program", |m| m.program = "/bin/sh".to_owned()),
        ("group", |m| m.groups[0].name.clear()),
        ("group \"all\" is there twice", |m| {
            m.groups.push(m.groups[0].clone());
        }),
        ("a member twice", |m| m.groups[0].members[1].0 = 0),
        ("a member twice", |m| m.groups[0].members[1].1 = m.app),
        ("there twice", |m| {
            m.kept.push(m.kept[0].clone());
        }),
        ("for no task of it", |m| {
            m.kept[0].order.to = Tid::new(m.app.machine(), HostId(7), 7);
        }),
        ("bytes that are kept", |m| {
            let byte = vm_wire::limits::KEPT_SAVED_MAX + 1;
            m.kept[0].chunks[0] = Body::from(vec![0; byte]);
        }),
        ("two lengths and no base", |m| m.tasks[0].image.stored -= 1),
        ("two lengths and no base", |m| m.tasks[0].image.stored = 0),
        ("which is later", |m| set_base(&mut m.tasks[1].image, 1, 5)),
        ("which is later", |m| set_base(&mut m.tasks[1].image, 2, 1)),
        ("not that of the others", |m| {
            set_base(&mut m.tasks[0].image, 1, 4);
        }),
        ("groups", |m| {
            let group = m.groups[0].clone();
            m.groups = vec![group; vm_wire::limits::GROUPS_MAX + 1];
        }),
    ];
    let whole = bytes(&sample());
    for (said, make_wrong) in wrongs {
        let mut wrong = sample();
        make_wrong(&mut wrong);
        let read = Manifest::from_bytes(&sealed(&whole[..PREFIX], &vm_wire::encode(&wrong)));
        for refused in [wrong.to_bytes().map(drop), read.map(drop)] {
            let Err(ManifestError::Impossible { what }) = &refused else {
                panic!("{said}: {refused:?}");
            };
            assert!(what.contains(said), "{said}: {what}");
        }
    }
    let mut right = sample();
    right.program.clear();
    right.groups[0].name = "any/name".to_owned();
    assert_eq!(Manifest::from_bytes(&bytes(&right)), Ok(right));
}

fn set_base(part: &mut Part, generation: u32, epoch: u32) {
    let bytes = 1;
    part.base = Some(Base {
        generation,
        epoch,
        bytes,
        packed: None,
    });
}

/// A machine number as a file may hold it.
fn read_machine(number: u32) -> MachineId {
    vm_wire::decode(&vm_wire::encode(&number)).expect("a number")
}
