//! Images stored as increments. An image that is read equals the image that was written, little is
//! stored, and all damage is found and reported.

use super::{
    APP, MACHINE, TASKS,
    disk::Dice,
    folder::store,
    id,
    image::{Image, bytes_of},
};
use crate::{
    CheckpointId, Depth, Disk, Flaw, Manifest, Part, Policy, SavedTask, State, Store, StoreError,
    limits::{BLOCK, BUFFER, INCREMENTS_MAX},
    name,
};
use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};
use vm_wire::{Body, HostId, Tid};

/// Gives a random number of bytes with each read.
struct Trickle<'a>(&'a [u8], Dice);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let some = 1 + self.1.below(buffer.len().min(70_000));
        self.0.read(&mut buffer[..some])
    }
}

/// Saves a checkpoint whose tasks have these images.
pub fn save_images<D: Disk>(
    store: &Store<D>,
    id: CheckpointId,
    images: &[(Tid, &[u8])],
) -> Result<Manifest, StoreError> {
    let writer = store.begin(APP, id)?;
    let mut tasks = Vec::new();
    for (tid, bytes) in images {
        let mut image = writer.image(*tid, "alpha", None)?;
        image.copy(&mut Trickle(bytes, Dice(bytes.len() as u64)))?;
        tasks.push(SavedTask {
            tid: *tid,
            host: "alpha".to_owned(),
            arch: "x86_64".to_owned(),
            incarnation: 0,
            requester: Tid::daemon(MACHINE, HostId(1)),
            request: 1,
            index: 0,
            program: "hello".to_owned(),
            image: image.finish()?,
            freeze_us: 0,
            unacknowledged: 0,
            belongings: Body::default(),
        });
    }
    let manifest = Manifest {
        machine: MACHINE,
        app: APP,
        program: "hello".to_owned(),
        generation: id.generation,
        epoch: id.epoch,
        index: 0,
        taken_ms: 0,
        took_us: 0,
        policy: Policy::default(),
        tasks,
        groups: Vec::new(),
        kept: Vec::new(),
        context: 0,
    };
    writer.commit(&manifest)?;
    Ok(manifest)
}

fn save(store: &Store, id: CheckpointId, image: &[u8]) -> Part {
    let mut manifest = save_images(store, id, &[(APP, image)]).expect("a checkpoint");
    manifest.tasks.remove(0).image
}

/// The content of a part, read in random pieces.
fn read(store: &Store, id: CheckpointId, part: &Part) -> Vec<u8> {
    let mut bytes = Vec::new();
    let reader = store.open_part(APP, id, part).expect("it is there");
    let mut reader = io::BufReader::with_capacity(1_000, reader);
    reader.read_to_end(&mut bytes).expect("it can be read");
    bytes
}

/// Memory of `count` pages that look random.
fn pages(count: usize, seed: u64) -> Vec<u8> {
    bytes_of(count * BLOCK, seed)
}

/// An image of this memory, in sections of different lengths.
fn image(memory: &[u8]) -> Vec<u8> {
    let mut image = Image::new().section(b"facts of the process");
    for (number, section) in memory.chunks(37 * BLOCK).enumerate() {
        image = image.section(section);
        if number % 3 == 0 {
            image = image.section(&[number as u8; 555]);
        }
    }
    image.bytes()
}

fn path(store: &Store, epoch: u32, file: &str) -> PathBuf {
    store.folder(APP, id(epoch)).join(file)
}

/// Checkpoint 1 in full, and checkpoint 2 with two other pages.
fn full_and_increment() -> (tempfile::TempDir, Store) {
    let (folder, store) = store();
    let mut memory = pages(40, 1);
    save(&store, id(1), &image(&memory));
    memory[7 * BLOCK] ^= 1;
    memory[30 * BLOCK + 99] ^= 1;
    let part = save(&store, id(2), &image(&memory));
    assert!(part.base.is_some());
    (folder, store)
}

#[test]
fn an_image_comes_back_byte_for_byte_whatever_has_changed() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (_folder, store) = store();
        let mut memory = pages(dice.below(200), seed);
        let before = image(&memory);
        let full = save(&store, id(1), &before);
        assert_eq!((full.base, full.stored), (None, full.bytes));
        for _ in 0..dice.below(30) {
            let page = dice.below(memory.len() / BLOCK) * BLOCK;
            let new = pages(1 + dice.below(3), dice.below(1_000) as u64);
            match dice.below(6) {
                // Pages are added, removed, moved, and doubled; or one byte of a page changes.
                0 => drop(memory.splice(page..page, new)),
                1 => drop(memory.drain(..page)),
                2 => memory.rotate_left(page),
                3 => memory.extend_from_within(page..),
                4 if page < memory.len() => memory[page + dice.below(BLOCK)] ^= 1,
                _ => memory.truncate(page),
            }
        }
        let mut after = image(&memory);
        if seed % 7 == 0 {
            // The stream is no image, or ends in the middle.
            after.truncate(dice.below(after.len()));
            after.drain(..dice.below(50).min(after.len()));
        }
        let part = save(&store, id(2), &after);
        assert!(part.base.is_some());
        assert_eq!(part.bytes, after.len() as u64);
        assert_eq!(part.hash, crate::hash::of(&after));
        assert!(read(&store, id(2), &part) == after, "seed {seed}");
        assert!(read(&store, id(1), &full) == before, "seed {seed}");
        store.verify(APP, id(2)).expect("whole");
        // Even an increment in which everything changed is hardly longer than its image.
        assert!(part.stored <= part.bytes * 101 / 100 + 200, "seed {seed}");
    }
}

#[test]
fn an_increment_with_one_page_of_a_hundred_changed_has_less_than_3_percent() {
    let (_folder, store) = store();
    let mut memory = pages(5_000, 1);
    save(&store, id(1), &image(&memory));
    for page in 0..50 {
        memory[page * 100 * BLOCK + page] ^= 0x55;
    }
    let part = save(&store, id(2), &image(&memory));
    assert!(part.stored * 100 < part.bytes * 3, "{part:?}");
    // The 50 changed pages are stored.
    assert!(part.stored > 50 * BLOCK as u64);
    // Nothing changed.
    let part = save(&store, id(3), &image(&memory));
    assert_eq!(part.base.map(|base| base.epoch), Some(1));
    let file = fs::metadata(path(&store, 3, &part.name)).expect("a file");
    assert_eq!(file.len(), part.stored);
    let reader = store.open_part(APP, id(3), &part).expect("a part");
    assert!(reader.is_increment(), "it is put together");
}

#[test]
fn a_full_one_is_stored_after_so_many_increments_and_in_each_generation() {
    let (_folder, store) = store();
    let image = image(&pages(20, 1));
    let bases: Vec<u32> = (1..=INCREMENTS_MAX + 3)
        .map(|epoch| {
            save(&store, id(epoch), &image)
                .base
                .map_or(0, |it| it.epoch)
        })
        .collect();
    assert_eq!(bases[0], 0);
    let last = INCREMENTS_MAX as usize;
    assert!(bases[1..=last].iter().all(|base| *base == 1), "{bases:?}");
    assert_eq!(bases[last + 1..], [0, INCREMENTS_MAX + 2]);
    let next = INCREMENTS_MAX + 4;
    let part = save(&store, CheckpointId::new(2, next), &image);
    assert_eq!(part.base, None);
}

#[test]
fn a_full_one_is_stored_when_increments_save_less_than_half() {
    let (_folder, store) = store();
    save(&store, id(1), &image(&pages(20, 1)));
    // Everything changed, which is known only after the increment was written.
    let part = save(&store, id(2), &image(&pages(20, 2)));
    assert!(part.base.is_some() && part.stored > part.bytes);
    let has_index = |epoch| path(&store, epoch, "t3.1.index").exists();
    for epoch in [3, 4] {
        let part = save(&store, id(epoch), &image(&pages(20, epoch.into())));
        assert_eq!(part.base, None);
        assert!(!has_index(epoch), "nobody reads it");
    }
    // After enough epochs increments are tried again, beginning with a full image with an index;
    // also if the earlier checkpoints are gone.
    let first = INCREMENTS_MAX + 1;
    for epoch in 5..3 * first {
        let pruned = store.prune(APP, 1 + epoch as usize % 2, Depth::Lengths);
        pruned.expect("it is pruned");
        let part = save(&store, id(epoch), &image(&pages(20, epoch.into())));
        let expected = (epoch % first == 1).then_some(epoch - 1);
        assert_eq!(part.base.map(|base| base.epoch), expected, "{epoch}");
        assert_eq!(has_index(epoch), epoch % first == 0, "{epoch}");
    }
}

#[test]
fn a_task_that_the_base_has_not_is_stored_in_full() {
    let (_folder, store) = store();
    let image = image(&pages(20, 1));
    save(&store, id(1), &image);
    let both = [(TASKS[0], &image[..]), (TASKS[1], &image[..])];
    let increments = |epoch| {
        let manifest = save_images(&store, id(epoch), &both).expect("a checkpoint");
        store.verify(APP, id(epoch)).expect("whole");
        let bases = manifest.parts().map(|part| part.base.map(|it| it.epoch));
        Vec::from_iter(bases)
    };
    assert_eq!(increments(2), [Some(1), None]);
    // The increments saved less than half. The next full checkpoint has both tasks.
    assert_eq!(increments(3), [None, None]);
    assert_eq!(increments(4), [Some(3), Some(3)]);
}

#[test]
fn an_index_that_is_damaged_costs_room_and_nothing_else() {
    let (_folder, store) = store();
    let image = image(&pages(3, 1));
    save(&store, id(1), &image);
    let index = path(&store, 1, "t3.1.index");
    let whole = fs::read(&index).expect("an index");
    let again = || {
        let writer = store.begin(APP, id(2)).expect("a checkpoint");
        let mut part = writer.image(APP, "alpha", None).expect("an image");
        part.copy(&mut &image[..]).expect("room");
        let part = part.finish().expect("a part");
        writer.abort().expect("it is given up");
        part.base.is_some()
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&index, &bytes).expect("an index");
        assert!(!again(), "byte {at}");
        fs::write(&index, &whole[..at]).expect("an index");
        assert!(!again(), "{at} bytes");
    }
    // A length for which the index would take all memory.
    let file = fs::File::options().write(true).open(&index);
    file.and_then(|it| it.set_len(1 << 40)).expect("a hole");
    assert!(!again());
    fs::remove_file(&index).expect("an index");
    assert!(!again());
    store.verify(APP, id(1)).expect("it is not part of it");
    fs::write(&index, &whole).expect("an index");
    assert!(again());
}

#[test]
fn whatever_byte_of_an_increment_changes_is_found() {
    let (_folder, store) = full_and_increment();
    let path = path(&store, 2, "t3.1.image");
    let whole = fs::read(&path).expect("an increment");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).expect("an increment");
        let why = store.verify(APP, id(2)).expect_err("it is damaged");
        let StoreError::Part { path: named, flaw } = &why else {
            panic!("byte {at}: {why}");
        };
        assert_eq!(*named, path);
        assert!(matches!(flaw, Flaw::Increment { .. }), "byte {at}: {why}");
        if at % 64 == 0 {
            fs::write(&path, &whole[..at]).expect("an increment");
            let why = store.verify(APP, id(2)).expect_err("it is cut");
            let StoreError::Part { flaw, .. } = &why else {
                panic!("{at} bytes: {why}");
            };
            assert!(matches!(flaw, Flaw::Length { .. }), "{at} bytes: {why}");
        }
    }
    fs::write(&path, &whole).expect("an increment");
    store.verify(APP, id(2)).expect("all as it was");
}

/// An increment with these steps and a right hash.
fn sealed(steps: &[(u64, u64)], tail: &[u8]) -> Vec<u8> {
    let mut bytes = b"VMDELTA\n\x02\0\0\0".to_vec();
    for (at, len) in steps {
        bytes.extend(at.to_le_bytes());
        bytes.extend(len.to_le_bytes());
    }
    bytes.extend(tail);
    let hash = crate::hash::of(&bytes);
    bytes.extend(hash);
    bytes
}

#[test]
fn an_increment_with_absurd_steps_is_refused() {
    const END: u64 = u64::MAX - 1;
    let (_folder, store) = full_and_increment();
    let path = path(&store, 2, "t3.1.image");
    let mut part = store.read(APP, id(2)).expect("a manifest").tasks[0]
        .image
        .clone();
    let base = part.base.expect("an increment").bytes;
    let wrongs = [
        sealed(&[], &[]),
        sealed(&[(END, 0)], &[]),
        sealed(&[(0, part.bytes)], &[]),
        sealed(&[(0, part.bytes), (END, 0)], b"more"),
        sealed(&[(0, part.bytes), (0, 1), (END, 0)], &[]),
        sealed(&[(1, base), (END, 0)], &[]),
        sealed(&[(base, 1), (END, 0)], &[]),
        sealed(&[(END - 1, 2), (END, 0)], &[]),
        sealed(&[(u64::MAX, u64::MAX), (END, 0)], &[]),
        sealed(&[(u64::MAX, part.bytes)], b"not so many"),
        sealed(&[(0, 0), (0, part.bytes), (END, 0)], &[]),
    ];
    for (number, bytes) in wrongs.iter().enumerate() {
        fs::write(&path, bytes).expect("an increment");
        part.stored = bytes.len() as u64;
        let mut reader = store.open_part(APP, id(2), &part).expect("its length");
        let why = io::copy(&mut reader, &mut io::sink()).expect_err("nonsense");
        let text = why.to_string();
        assert!(
            text.contains("the increment is damaged"),
            "{number}: {text}"
        );
    }
    for len in 0..32 {
        fs::write(&path, vec![0; len]).expect("an increment");
        part.stored = len as u64;
        let mut reader = store.open_part(APP, id(2), &part).expect("its length");
        io::copy(&mut reader, &mut io::sink()).expect_err("too short");
    }
}

#[test]
fn a_base_that_is_damaged_is_named_and_an_older_checkpoint_is_offered() {
    let (_folder, store) = store();
    let image = image(&pages(BUFFER / BLOCK + 9, 1));
    save(&store, id(1), &image);
    save(&store, CheckpointId::new(2, 2), &image);
    let last = CheckpointId::new(2, 3);
    save(&store, last, &image);
    let base = store
        .folder(APP, CheckpointId::new(2, 2))
        .join("t3.1.image");
    let whole = fs::read(&base).expect("an image");
    let why = || match store.verify(APP, last).expect_err("its base is bad") {
        StoreError::Base {
            path,
            base: named,
            flaw,
        } => {
            assert_eq!(named, base);
            assert_eq!(path, store.folder(APP, last).join("t3.1.image"));
            flaw
        }
        why => panic!("{why}"),
    };
    for at in [4_000, whole.len() / 2, whole.len() - 5_000] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&base, &bytes).expect("an image");
        assert_eq!(why(), Flaw::Changed, "byte {at}");
        let found = store.last_good(APP, Depth::Hashes).expect("a store");
        assert_eq!(found.good.map(|(good, _)| good), Some(id(1)));
        let text = found.passed_over[0].1.to_string();
        assert!(
            text.contains("g2-e2/t3.1.image: the part is damaged"),
            "{text}"
        );
    }
    // The reader of the increment gets all bytes but the last.
    let manifest = store.read(APP, last).expect("a manifest");
    let part = &manifest.tasks[0].image;
    let mut reader = store.open_part(APP, last, part).expect("its length");
    let mut buffer = vec![0; part.bytes as usize - 1];
    let before = reader.fill(&mut buffer).expect("all but the last byte");
    assert_eq!(before, buffer.len());
    let bad = reader.fill(&mut buffer).expect_err("its base is bad");
    assert!(matches!(bad, StoreError::Base { .. }), "{bad}");
    fs::write(&base, &whole[1..]).expect("an image");
    assert!(matches!(why(), Flaw::Length { .. }));
    let states = store.list().expect("a store").into_iter();
    let damaged = states.filter(|entry| matches!(entry.state, State::Damaged(_)));
    assert_eq!(damaged.count(), 2, "no part is read for that");
    fs::remove_file(&base).expect("an image");
    assert!(matches!(why(), Flaw::Missing { .. }));
    fs::write(&base, &whole).expect("an image");
    store.verify(APP, last).expect("all as it was");
}

fn ids(store: &Store) -> Vec<u32> {
    let ids = store.ids(APP).expect("a store");
    ids.into_iter().map(|id| id.epoch).collect()
}

#[test]
fn what_an_increment_needs_stays_and_goes_with_the_last_of_them() {
    let (_folder, store) = store();
    let image = image(&pages(20, 1));
    for epoch in 1..=4 {
        save(&store, id(epoch), &image);
    }
    let pruned = store.prune(APP, 1, Depth::Hashes).expect("a store");
    assert_eq!(pruned.removed, [id(3), id(2)]);
    assert_eq!(ids(&store), [1, 4]);
    let summaries = store.list().expect("a store").into_iter();
    let bases = summaries.map(|entry| match entry.state {
        State::Committed(summary) => summary.base,
        state => panic!("{state:?}"),
    });
    assert_eq!(Vec::from_iter(bases), [None, Some(id(1))]);
    // A full checkpoint needs no base.
    save(&store, CheckpointId::new(2, 5), &image);
    let pruned = store.prune(APP, 1, Depth::Hashes).expect("a store");
    assert_eq!(pruned.removed, [id(4), id(1)]);
    assert_eq!(ids(&store), [5]);
    store.verify(APP, CheckpointId::new(2, 5)).expect("whole");
    store.forget(APP).expect("all can be removed");
    assert_eq!(fs::read_dir(store.root()).expect("the store").count(), 0);
}

#[test]
fn an_increment_whose_base_is_gone_is_not_committed() {
    let (_folder, store) = store();
    let image = image(&pages(20, 1));
    let first = save_images(&store, id(1), &[(APP, &image)]).expect("a checkpoint");
    let writer = store.begin(APP, id(2)).expect("a checkpoint");
    let mut part = writer.image(APP, "alpha", None).expect("an image");
    part.copy(&mut &image[..]).expect("room");
    let mut manifest = first;
    manifest.epoch = 2;
    manifest.tasks[0].image = part.finish().expect("a part");
    assert!(manifest.base().is_some());
    // As a prune that has just begun does.
    let first = path(&store, 1, name::MANIFEST);
    let whole = fs::read(&first).expect("a manifest");
    fs::remove_file(&first).expect("a manifest");
    let refused = writer.commit(&manifest).expect_err("the base is going");
    assert!(
        matches!(refused, StoreError::Unfinished { .. }),
        "{refused}"
    );
    let found = store.read(APP, id(2));
    assert!(matches!(found, Err(StoreError::Unfinished { .. })));
    fs::write(&first, whole).expect("a manifest");
    writer.commit(&manifest).expect("the base is there");
    store.verify(APP, id(2)).expect("whole");
}

#[test]
fn a_store_has_room_up_to_its_quota() {
    let (_folder, store) = store();
    let image = image(&pages(20, 1));
    save(&store, id(1), &image);
    let files = fs::read_dir(store.folder(APP, id(1))).expect("a folder");
    let used: u64 = files
        .map(|file| file.and_then(|it| it.metadata()).expect("a file").len())
        .sum();
    assert!(used > image.len() as u64);
    assert_eq!(store.room(used + 7).expect("a store"), 7);
    let refused = store.room(used).expect_err("it is full");
    assert!(matches!(refused, StoreError::Full { used: said, .. } if said == used));
    save(&store, id(2), &image);
    assert!(store.room(used).is_err());
}

#[test]
fn within_its_quota_a_store_gives_up_its_oldest_checkpoints_and_never_the_last_good_one() {
    let (_folder, store) = store();
    let tid = TASKS[0];
    let bytes = |seed| Image::new().section(&bytes_of(4 * BUFFER, seed)).bytes();
    let full = store.clone().in_full(true);
    let save = |store: &Store, epoch: u32| {
        let image = bytes(u64::from(epoch));
        save_images(store, id(epoch), &[(tid, &image)])
    };
    save(&full, 1).expect("there is no quota");
    let used = u64::MAX - store.room(u64::MAX).expect("a store");
    // Two checkpoints and some bytes more fit.
    let narrow = full.clone().within(used * 5 / 2);
    for epoch in 2..=5 {
        save(&narrow, epoch).expect("older ones go");
        assert_eq!(
            store.ids(APP).expect("a folder"),
            [id(epoch - 1), id(epoch)]
        );
        store.verify(APP, id(epoch - 1)).expect("whole");
        store.verify(APP, id(epoch)).expect("whole");
    }
    // An unfinished checkpoint is no reason to remove the checkpoint before it.
    let narrow = full.clone().within(used * 3 / 2);
    let refused = save(&narrow, 6).expect_err("there is room for one");
    assert!(matches!(refused, StoreError::Quota { .. }), "{refused}");
    store.verify(APP, id(5)).expect("whole");
    assert_eq!(
        store
            .last_good(APP, Depth::Hashes)
            .expect("a folder")
            .good
            .expect("one")
            .0,
        id(5)
    );
}

#[test]
fn what_others_are_increments_of_goes_for_want_of_room_only_with_them() {
    let (_folder, store) = store();
    let image = |seed| Image::new().section(&bytes_of(4 * BUFFER, seed)).bytes();
    let tid = TASKS[0];
    let mut changed = image(1);
    save_images(&store, id(1), &[(tid, &changed)]).expect("room");
    let used = u64::MAX - store.room(u64::MAX).expect("a store");
    for epoch in [2, 3] {
        let last = changed.len() - 1 - 64 * 1024 * epoch as usize;
        changed[last] ^= 1;
        let manifest = save_images(&store, id(epoch), &[(tid, &changed)]).expect("room");
        assert_eq!(manifest.base(), Some(id(1)));
    }
    let narrow = store.clone().within(used * 5 / 2);
    let full = narrow.clone().in_full(true);
    save_images(&full, id(4), &[(tid, &image(4))]).expect("room");
    // The increments needed the base, and were removed first.
    assert_eq!(store.ids(APP).expect("a folder").last(), Some(&id(4)));
    save_images(&full, id(5), &[(tid, &image(5))]).expect("room");
    for left in store.ids(APP).expect("a folder") {
        store
            .verify(APP, left)
            .expect("nothing that stays lacks its base");
    }
    store.verify(APP, id(5)).expect("whole");
}

#[test]
fn an_image_that_lies_in_memory_is_stored_as_one_that_comes_in_pieces() {
    for compress in [false, true] {
        for blocks in [0, 15, 16, 17, 128, 300] {
            let (_folder, copied) = store();
            let (_other, lying) = store();
            let (copied, lying) = (copied.compressed(compress), lying.compressed(compress));
            let tid = TASKS[0];
            // Full with an index, an increment, full without an index.
            for (epoch, full) in (1..).zip([false, false, true]) {
                let mut payload = bytes_of(blocks * BLOCK + 777, 5);
                payload[5] = epoch as u8;
                let bytes = Image::new().section(&payload).bytes();
                let mut memory = memmap2::MmapMut::map_anon(bytes.len()).expect("memory");
                memory.copy_from_slice(&bytes);
                let copied = copied.clone().in_full(full);
                let manifest = save_images(&copied, id(epoch), &[(tid, &bytes)]).expect("room");
                let writer = lying.clone().in_full(full).begin(APP, id(epoch));
                let writer = writer.expect("a folder");
                let mut image = writer.image(tid, "alpha", None).expect("a file");
                image.write(&memory).expect("room");
                let part = image.finish().expect("room");
                let what = format!("{compress}, {blocks} blocks, {epoch}");
                assert_eq!(part, manifest.tasks[0].image, "{what}");
                assert_eq!(part.base.is_some(), epoch == 2, "{what}");
                writer.commit(&manifest).expect("room");
                let file = |store: &Store| {
                    let folder = store.folder(APP, id(epoch));
                    fs::read(folder.join(name::image(APP, tid))).expect("a file")
                };
                assert!(file(&copied) == file(&lying), "{what}");
            }
        }
    }
}
