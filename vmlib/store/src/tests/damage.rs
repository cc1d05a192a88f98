//! Every changed byte of a checkpoint is found, and the previous checkpoint is offered.

use super::{APP, THIRD, id, parts, save};
use crate::{Depth, Disk, Flaw, ManifestError, Part, State, Store, StoreError, System, name};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A store with checkpoints 1 and 2, and the folder of checkpoint 2.
fn two() -> (tempfile::TempDir, Store, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path().join("store")).expect("a store");
    for epoch in [1, 2] {
        save(&store, id(epoch)).expect("a checkpoint");
    }
    let second = store.folder(APP, id(2));
    (folder, store, second)
}

fn names(folder: &Path) -> Vec<String> {
    System.list(folder).expect("a folder")
}

/// The flaw of the second checkpoint. The first checkpoint is offered instead.
fn why(store: &Store) -> StoreError {
    let mut found = store.last_good(APP, Depth::Hashes).expect("a store");
    assert_eq!(found.good.map(|(good, _)| good), Some(id(1)));
    assert_eq!(found.passed_over.len(), 1);
    let (passed_over, why) = found.passed_over.remove(0);
    assert_eq!(passed_over, id(2));
    why
}

#[test]
fn a_bit_that_flips_anywhere_is_found() {
    let (_folder, store, second) = two();
    let files = names(&second);
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        let path = second.join(&file);
        let whole = fs::read(&path).expect("a file");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).expect("a file");
            match why(&store) {
                StoreError::Manifest { path: named, .. } => assert_eq!(named, path),
                StoreError::Part {
                    path: named,
                    flaw: Flaw::Content { found, expected },
                } => {
                    assert_eq!(named, path);
                    assert_eq!(found, crate::hash::of(&bytes));
                    assert_eq!(expected, crate::hash::of(&whole));
                }
                other => panic!("{file}, byte {at}: {other}"),
            }
        }
        fs::write(&path, &whole).expect("a file");
    }
    store.verify(APP, id(2)).expect("all as it was");
}

/// Number of bytes that are read before a part is reported as damaged, with reads of `at_a_time`
/// bytes.
fn comes(store: &Store, part: &Part, at_a_time: usize) -> (usize, StoreError) {
    let mut reader = store.open_part(APP, id(2), part).expect("its length");
    let mut buffer = vec![0; at_a_time];
    let mut bytes = 0;
    loop {
        match reader.fill(&mut buffer) {
            Ok(0) => panic!("{bytes} bytes and the end"),
            Ok(read) => bytes += read,
            Err(why) => return (bytes, why),
        }
    }
}

#[test]
fn whoever_reads_a_part_that_is_damaged_does_not_get_its_end() {
    let (_folder, store, second) = two();
    let manifest = store.read(APP, id(2)).expect("a manifest");
    let part = &manifest.tasks[2].image;
    let path = second.join(&part.name);
    let whole = fs::read(&path).expect("a file");
    for at_a_time in [1, 7, whole.len() - 1, whole.len(), whole.len() + 1] {
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("a file");
            let (came, why) = comes(&store, part, at_a_time);
            assert_eq!(came, (whole.len() - 1) / at_a_time * at_a_time);
            let StoreError::Part {
                path: named,
                flaw: Flaw::Content { .. },
            } = why
            else {
                panic!("{why}");
            };
            assert_eq!(named, path);
        }
        fs::write(&path, &whole).expect("a file");
        let mut reader = store.open_part(APP, id(2), part).expect("its length");
        let mut buffer = vec![0; at_a_time];
        let mut read = Vec::new();
        loop {
            match reader.fill(&mut buffer).expect("it is whole") {
                0 => break,
                count => read.extend_from_slice(&buffer[..count]),
            }
        }
        assert!(read == whole, "{at_a_time} at a time");
    }
}

#[test]
fn a_part_that_changes_after_it_was_opened_is_found() {
    let (_folder, store, second) = two();
    let manifest = store.read(APP, id(2)).expect("a manifest");
    let part = &manifest.tasks[2].image;
    let path = second.join(&part.name);
    let whole = fs::read(&path).expect("a file");
    for len in [whole.len() - 1, whole.len() + 1] {
        let mut reader = store.open_part(APP, id(2), part).expect("its length");
        let mut bytes = whole.clone();
        bytes.resize(len, 0);
        fs::write(&path, &bytes).expect("a file");
        let mut buffer = vec![0; whole.len()];
        let why = reader.fill(&mut buffer).expect_err("another length");
        assert!(why.to_string().contains("the part is damaged"), "{why}");
        fs::write(&path, &whole).expect("a file");
    }
}

#[test]
fn a_file_that_is_cut_or_longer_is_found() {
    let (_folder, store, second) = two();
    for file in names(&second) {
        let path = second.join(&file);
        let whole = fs::read(&path).expect("a file");
        for len in (0..whole.len()).chain([whole.len() + 1]) {
            let mut bytes = whole.clone();
            bytes.resize(len, 0);
            fs::write(&path, &bytes).expect("a file");
            match why(&store) {
                StoreError::Manifest { cause, .. } => assert!(
                    matches!(cause, ManifestError::Damaged | ManifestError::NotAManifest),
                    "{cause}"
                ),
                StoreError::Part {
                    flaw: Flaw::Length { found, expected },
                    ..
                } => assert_eq!((found, expected), (len as u64, whole.len() as u64)),
                other => panic!("{file} with {len} bytes: {other}"),
            }
            // A listing reads no part.
            let state = store
                .list()
                .expect("a store")
                .pop()
                .map(|entry| entry.state);
            assert!(matches!(state, Some(State::Damaged(_))), "{state:?}");
        }
        fs::write(&path, &whole).expect("a file");
    }
}

#[test]
fn a_part_that_is_gone_is_named_with_its_host() {
    let (_folder, store, second) = two();
    let path = second.join(name::image(APP, THIRD));
    fs::remove_file(&path).expect("a part");
    let why = why(&store);
    let StoreError::Part {
        path: named,
        flaw: Flaw::Missing { place },
    } = &why
    else {
        panic!("{why}");
    };
    assert_eq!((named, place.as_str()), (&path, "alpha"));
    assert!(why.to_string().contains("t2.9.image"), "{why}");
    // If each host has a disk of its own, the parts of other hosts are not looked for.
    store
        .clone()
        .of_host("beta")
        .verify(APP, id(2))
        .expect("none of beta's");
    assert!(store.of_host("alpha").verify(APP, id(2)).is_err());
}

#[test]
fn a_manifest_of_another_checkpoint_is_refused() {
    let (_folder, store, second) = two();
    let first = store.folder(APP, id(1));
    fs::copy(first.join(name::MANIFEST), second.join(name::MANIFEST)).expect("a copy");
    let why = why(&store).to_string();
    assert!(why.contains("a1b2c3-t3.1/g1-e1"), "{why}");
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let (folder, store, second) = two();
    let part = second.join(name::image(APP, THIRD));
    let away = folder.path().join("away");
    fs::rename(&part, &away).expect("a part");
    std::os::unix::fs::symlink(&away, &part).expect("a link");
    assert!(matches!(why(&store), StoreError::System { .. }));
}

#[test]
fn a_part_that_lacks_or_has_another_length_is_not_committed() {
    let (_folder, store, _) = two();
    let writer = store.begin(APP, id(3)).expect("a checkpoint");
    let mut manifest = parts(&writer, id(3)).expect("parts");
    manifest.tasks[1].image.bytes += 1;
    manifest.tasks[1].image.stored += 1;
    let refused = writer.commit(&manifest).expect_err("another length");
    assert!(matches!(
        refused,
        StoreError::Part {
            flaw: Flaw::Length { .. },
            ..
        }
    ));
    manifest.tasks[1].image.bytes -= 1;
    manifest.tasks[1].image.stored -= 1;

    let part = store.folder(APP, id(3)).join(name::image(APP, THIRD));
    let away = part.with_file_name("away");
    fs::rename(&part, &away).expect("a part");
    let refused = writer.commit(&manifest).expect_err("a part lacks");
    assert!(matches!(
        refused,
        StoreError::Part {
            flaw: Flaw::Missing { .. },
            ..
        }
    ));
    // The part belongs on the disk of another host.
    manifest.tasks[2].image.place = "beta".to_owned();
    let alpha = store.clone().of_host("alpha");
    alpha
        .begin(APP, id(3))
        .expect("the same")
        .commit(&manifest)
        .expect("all of alpha's");
}
