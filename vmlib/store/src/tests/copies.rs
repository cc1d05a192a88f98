//! Two hosts with a folder each: the second host has the parts of the first host byte for byte, or
//! not at all.

use super::{APP, MACHINE, id, image::Image, image::bytes_of};
use crate::{
    CheckpointId, Depth, Flaw, Manifest, Part, Policy, SavedTask, Store, StoreError, limits::BLOCK,
    name,
};
use std::{fs, io::Read as _, path::PathBuf};
use tempfile::TempDir;
use vm_wire::{Body, HostId, Tid};

/// The folders of hosts alpha and beta; alpha's images are copied to beta.
fn two() -> (TempDir, Store, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |host: &str| Store::open(folder.path().join(host)).map(|it| it.of_host(host));
    let (alpha, beta) = (of("alpha").expect("a store"), of("beta").expect("a store"));
    (folder, alpha.copied_to(Some("beta")), beta)
}

fn image(seed: u64) -> Vec<u8> {
    let memory = bytes_of(50 * BLOCK, 1);
    Image::new()
        .section(&memory)
        .section(&bytes_of(BLOCK, seed))
        .bytes()
}

fn manifest(id: CheckpointId, image: Part) -> Manifest {
    let task = SavedTask {
        tid: APP,
        host: "alpha".to_owned(),
        arch: "x86_64".to_owned(),
        incarnation: 0,
        requester: Tid::daemon(MACHINE, HostId(1)),
        request: 1,
        index: 0,
        program: "hello".to_owned(),
        image,
        freeze_us: 0,
        unacknowledged: 0,
        belongings: Body::default(),
    };
    Manifest {
        machine: MACHINE,
        app: APP,
        program: "hello".to_owned(),
        generation: id.generation,
        epoch: id.epoch,
        index: 0,
        taken_ms: 0,
        took_us: 0,
        policy: Policy::default(),
        tasks: vec![task],
        groups: Vec::new(),
        kept: Vec::new(),
        context: 0,
    }
}

/// Writes an image on alpha.
fn write(alpha: &Store, id: CheckpointId, bytes: &[u8]) -> Part {
    let writer = alpha.begin(APP, id).expect("a checkpoint");
    let mut image = writer.image(APP, "alpha", None).expect("an image");
    image.copy(&mut &bytes[..]).expect("room");
    image.finish().expect("an image")
}

/// Copies a part of alpha to beta.
fn copy(alpha: &Store, beta: &Store, id: CheckpointId, part: &Part) -> Result<(), StoreError> {
    let mut file = alpha.open_file(APP, id, part)?;
    beta.begin(APP, id)?.take_copy(part, &mut file, None)
}

/// Saves a whole checkpoint on both hosts.
fn save(alpha: &Store, beta: &Store, id: CheckpointId, bytes: &[u8]) -> Part {
    let mut part = write(alpha, id, bytes);
    copy(alpha, beta, id, &part).expect("a copy");
    part.copy = Some("beta".to_owned());
    for store in [alpha, beta] {
        let writer = store.begin(APP, id).expect("a checkpoint");
        let manifest = manifest(id, part.clone());
        writer
            .commit(&manifest)
            .expect("all of its own parts are there");
    }
    part
}

fn read(store: &Store, id: CheckpointId, part: &Part) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reader = store.open_part(APP, id, part).expect("it is there");
    reader.read_to_end(&mut bytes).expect("it is whole");
    bytes
}

fn path(store: &Store, id: CheckpointId) -> PathBuf {
    store.folder(APP, id).join(name::image(APP, APP))
}

#[test]
fn a_copy_is_the_same_in_full_or_as_an_increment() {
    let (_folder, alpha, beta) = two();
    let first = save(&alpha, &beta, id(1), &image(1));
    let second = save(&alpha, &beta, id(2), &image(2));
    let compressed = alpha.clone().compressed(true);
    let third = save(&compressed, &beta, id(3), &image(3));
    let fourth = save(&compressed.in_full(true), &beta, id(4), &image(4));
    let is_increment = |part: &Part| (part.base.is_some(), part.packed.is_some());
    assert_eq!(
        [&first, &second, &third, &fourth].map(is_increment),
        [(false, false), (true, false), (true, true), (false, true)]
    );
    for (epoch, part) in [(1, &first), (2, &second), (3, &third), (4, &fourth)] {
        let id = id(epoch);
        let files = [&alpha, &beta].map(|store| fs::read(path(store, id)).expect("a file"));
        assert!(files[0] == files[1]);
        assert!(read(&beta, id, part) == image(epoch.into()));
        beta.verify(APP, id).expect("all that is beta's");
    }
    // A host without the part and its copy has no part to look for.
    let gamma = Store::open(alpha.root().with_file_name("gamma")).expect("a store");
    let gamma = gamma.of_host("gamma");
    let commit = |epoch, part: &Part| {
        let writer = gamma.begin(APP, id(epoch))?;
        writer.commit(&manifest(id(epoch), part.clone()))
    };
    commit(2, &second).expect("it has no increment, and needs no base");
}

#[test]
fn an_increment_is_written_only_where_its_base_is_on_both_disks() {
    let (_folder, alpha, beta) = two();
    save(&alpha, &beta, id(1), &image(1));
    let full = |store: Store, epoch| {
        let part = write(&store, id(epoch), &image(2));
        part.base.is_none()
    };
    let to = |host| alpha.clone().copied_to(host);
    assert!(full(to(Some("gamma")), 2), "gamma does not have it");
    assert!(full(to(None), 3), "it is not to be copied");
    assert!(full(alpha.clone().in_full(true), 4), "that is wanted");
    assert!(!full(alpha.clone(), 5), "beta has it");
    // Beta has the whole image, but another host wrote it.
    let writer = beta.begin(APP, id(6)).expect("a checkpoint");
    let mut image_there = writer.image(APP, "beta", None).expect("an image");
    image_there.copy(&mut image(3).as_slice()).expect("room");
    assert!(image_there.finish().expect("an image").base.is_none());
}

#[test]
fn what_is_not_that_part_is_not_taken() {
    let (_folder, alpha, beta) = two();
    save(&alpha, &beta, id(1), &image(1));
    for epoch in 2..=5 {
        let alpha = alpha.clone().in_full(epoch % 2 == 1);
        let alpha = alpha.compressed(epoch > 3);
        let part = write(&alpha, id(epoch), &image(epoch.into()));
        let whole = fs::read(path(&alpha, id(epoch))).expect("a file");
        let take = |bytes: &[u8]| {
            let writer = beta.begin(APP, id(epoch)).expect("a checkpoint");
            writer.take_copy(&part, &mut &bytes[..], None)
        };
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            let refused = take(&damaged).expect_err("a bit differs");
            assert!(matches!(refused, StoreError::Part { .. }), "{refused}");
        }
        let longer = [&whole[..], b"x"].concat();
        for bytes in [&[][..], &whole[..whole.len() - 1], &longer] {
            let refused = take(bytes).expect_err("another length");
            let StoreError::Part { flaw, .. } = refused else {
                panic!("{refused}")
            };
            assert!(matches!(flaw, Flaw::Length { .. }), "{flaw}");
        }
        let left = fs::read_dir(beta.folder(APP, id(epoch))).expect("a folder");
        assert_eq!(left.count(), 0, "nothing of it stays");
        take(&whole).expect("the part itself");
    }
}

#[test]
fn an_increment_without_its_base_is_not_taken() {
    let (_folder, alpha, beta) = two();
    save(&alpha, &beta, id(1), &image(1));
    let part = write(&alpha, id(2), &image(2));
    fs::remove_file(path(&beta, id(1))).expect("it is there");
    let refused = copy(&alpha, &beta, id(2), &part).expect_err("no base");
    assert!(matches!(refused, StoreError::Base { .. }), "{refused}");
}

#[test]
fn a_store_says_what_it_has_of_each_checkpoint() {
    let (_folder, alpha, beta) = two();
    for epoch in 1..=3 {
        save(&alpha, &beta, id(epoch), &image(epoch.into()));
    }
    // Increment 2 is damaged in the middle, increment 3 is lost, checkpoint 4 is not committed.
    let file = path(&beta, id(2));
    let mut bytes = fs::read(&file).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("a file");
    fs::remove_file(path(&beta, id(3))).expect("a file");
    write(&alpha, id(4), &image(4));
    let here = |store: &Store, only, depth| {
        let stock = store.stock(APP, only, depth, 9).expect("a store");
        let row = |it: crate::Stocked| {
            assert!(it.manifest.is_ok());
            (it.id.epoch, it.here.len(), it.flaws.len())
        };
        stock.into_iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(
        here(&alpha, None, Depth::Hashes),
        [(3, 1, 0), (2, 1, 0), (1, 1, 0)]
    );
    assert_eq!(
        here(&beta, None, Depth::Lengths),
        [(3, 0, 1), (2, 1, 0), (1, 1, 0)]
    );
    assert_eq!(
        here(&beta, None, Depth::Hashes),
        [(3, 0, 1), (2, 0, 1), (1, 1, 0)]
    );
    assert_eq!(here(&beta, Some(id(2)), Depth::Hashes), [(2, 0, 1)]);
    assert_eq!(
        alpha
            .stock(APP, None, Depth::Lengths, 2)
            .expect("a store")
            .len(),
        2
    );
    // In another machine hosts have other names. The parts that are here count.
    let moved = Store::open(beta.root()).expect("a store").of_host("delta");
    assert_eq!(
        here(&moved, None, Depth::Hashes),
        [(3, 0, 0), (2, 0, 1), (1, 1, 0)]
    );
}

#[test]
fn what_was_given_up_goes_unless_it_is_committed_here() {
    let (_folder, alpha, beta) = two();
    let part = write(&alpha, id(1), &image(1));
    copy(&alpha, &beta, id(1), &part).expect("a copy");
    beta.give_up(APP, id(1)).expect("it can be removed");
    assert!(!beta.folder(APP, id(1)).exists());
    beta.give_up(APP, id(1)).expect("nothing is there");
    assert!(!beta.folder(APP, id(1)).exists());
    save(&alpha, &beta, id(2), &image(2));
    let refused = beta.give_up(APP, id(2)).expect_err("it is committed");
    assert!(matches!(refused, StoreError::Committed { .. }), "{refused}");
}

#[test]
fn a_part_is_sent_to_its_end_only_if_it_is_whole_and_mended_by_nothing_else() {
    let (_folder, alpha, beta) = two();
    let parts = [1, 2].map(|epoch| save(&alpha, &beta, id(epoch), &image(epoch.into())));
    assert!(parts[1].base.is_some());
    for (epoch, part) in [(1, &parts[0]), (2, &parts[1])] {
        let id = id(epoch);
        // The pieces end in the middle of the hash at the end of the file.
        let sent = || {
            let mut file = alpha.open_verified(APP, id, part)?;
            let mut bytes = Vec::new();
            let mut piece = [0; 7];
            loop {
                match file.read(&mut piece) {
                    Ok(0) => return Ok(Ok(bytes)),
                    Ok(read) => bytes.extend_from_slice(&piece[..read]),
                    Err(why) => return Ok(Err((bytes, why.to_string()))),
                }
            }
        };
        let sent = || sent().map_err(|why: StoreError| why.to_string());
        let whole = fs::read(path(&alpha, id)).expect("a file");
        assert!(sent() == Ok(Ok(whole.clone())));
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        fs::write(path(&alpha, id), &damaged).expect("room");
        let (bytes, why) = sent().expect("it is there").expect_err("it is damaged");
        assert!(bytes.len() < whole.len());
        assert!(why.contains("damaged"), "{why}");

        let mend = |bytes: &[u8]| alpha.mend(APP, id, part, &mut &bytes[..]);
        for wrong in [&damaged[..], &whole[1..], &[]] {
            mend(wrong).expect_err("it is another one");
            let there = fs::read(path(&alpha, id)).expect("a file");
            assert!(there == damaged);
        }
        // An interrupted call has left a file.
        let new = path(&alpha, id).with_extension("image.new");
        fs::write(&new, "half").expect("room");
        mend(&whole).expect("it is that part");
        assert!(!new.exists());
        alpha.verify(APP, id).expect("it is whole again");
        fs::remove_file(path(&alpha, id)).expect("a file");
        mend(&whole).expect("it is that part");
        alpha.verify(APP, id).expect("it is there again");
    }
}
