//! Images whose files are compressed. An image that is read equals the image that was written, in
//! full and as an increment; the files are smaller; all damage is found and reported.

use super::{
    APP, disk::Dice, folder::store, id, image::Image, image::bytes_of, increments::save_images,
};
use crate::{
    Depth, Flaw, Part, State, Store, StoreError,
    compressed::{BaseFile, Compressor, Content},
    hash,
    limits::{BLOCK, BUFFER, FRAME, FRAMES_KEPT},
    name,
};
use proptest::prelude::*;
use std::{
    fs,
    io::{self, Cursor, Read},
    path::PathBuf,
};

/// The compressed file of this content, written in pieces of the size that a part uses.
fn compressed(content: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut compressor = Compressor::new();
    for buffer in content.chunks(BUFFER) {
        compressor.write(buffer, &mut file).expect("memory");
    }
    compressor.finish(&mut file).expect("memory");
    assert_eq!(file.len() as u64, compressor.bytes());
    file
}

/// Expands a compressed file to `bytes` bytes of content.
fn expanded(file: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let packed = Some(file.len() as u64);
    Content::new(file, packed, bytes as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// The reason in the flaw of a damaged file.
fn said(error: io::Error) -> &'static str {
    match error.downcast() {
        Ok(Flaw::Compressed { what }) => what,
        other => panic!("{other:?}"),
    }
}

/// Bytes of which some parts can be compressed, and other parts cannot.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        (any::<u8>(), 0..3 * FRAME).prop_map(|(byte, len)| vec![byte; len]),
        (any::<u64>(), 0..2 * FRAME).prop_map(|(seed, len)| bytes_of(len, seed)),
        (any::<u64>(), 1..40usize, 0..5_000usize)
            .prop_map(|(seed, len, times)| bytes_of(len, seed).repeat(times)),
    ];
    prop::collection::vec(run, 0..5).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_compressed_comes_back(content in content(), places in prop::collection::vec(any::<u64>(), 0..40)) {
        let file = compressed(&content);
        prop_assert!(expanded(&file, content.len()).expect("it is whole") == content);
        // Bytes are read from any offset, in any order.
        let mut base = BaseFile::new(Cursor::new(file), true, content.len() as u64);
        for place in places {
            let at = place % (content.len() as u64 + 1);
            base.seek_to(at).expect("it is there");
            let mut some = vec![0; (place >> 32) as usize % (2 * FRAME)];
            some.truncate(content.len() - at as usize);
            base.read_exact(&mut some).expect("it is there");
            prop_assert!(some == content[at as usize..][..some.len()]);
        }
    }

    #[test]
    fn whatever_a_file_holds_it_is_refused_or_read(
        frames in prop::collection::vec((0..70_000u32, prop::collection::vec(any::<u8>(), 0..200)), 0..6),
        bytes in 0..3 * FRAME,
    ) {
        let mut file = b"VMPRESS\n\x01\0\0\0".to_vec();
        for (len, frame) in frames {
            file.extend(len.to_le_bytes());
            file.extend(frame);
        }
        file.extend(hash::of(&file));
        if let Ok(content) = expanded(&file, bytes) {
            prop_assert_eq!(content.len(), bytes);
        }
        let mut base = BaseFile::new(Cursor::new(file), true, bytes as u64);
        let mut all = Vec::new();
        let _ = base.read_to_end(&mut all);
        prop_assert!(all.len() <= bytes);
    }
}

#[test]
fn a_bit_that_flips_or_an_end_that_lacks_is_found_before_the_last_frame_comes() {
    let content = [&bytes_of(FRAME + 9, 1)[..], &b"an image ".repeat(50_000)].concat();
    let file = compressed(&content);
    let mut dice = Dice(1);
    let heads = (0..40).chain(file.len() - 40..file.len());
    for at in heads.chain((0..200).map(|_| dice.below(file.len()))) {
        let mut damaged = file.clone();
        damaged[at] ^= 1 << (at % 8);
        said(expanded(&damaged, content.len()).expect_err("a bit differs"));
        let packed = Some(file.len() as u64);
        let mut reader = Content::new(&damaged[..], packed, content.len() as u64);
        let mut came = vec![0; content.len() / FRAME * FRAME + 1];
        reader.read_exact(&mut came).expect_err("the last frame");
    }
    for len in [0, 5, 12, 14, file.len() / 2, file.len() - 1] {
        said(expanded(&file[..len], content.len()).expect_err("it is cut"));
    }
    for bytes in [content.len() - 1, content.len() + 1, content.len() + FRAME] {
        said(expanded(&file, bytes).expect_err("another length"));
    }
    assert_eq!(expanded(&compressed(&[]), 0).expect("it is whole"), []);
}

#[test]
fn a_frame_that_would_expand_to_more_than_it_may_is_refused() {
    // A block of LZ4 that repeats one byte some hundred thousand times.
    let bomb = lz4_flex::block::compress(&vec![7; 64 * FRAME]);
    let mut file = b"VMPRESS\n\x01\0\0\0".to_vec();
    // The frame has the greatest length that a frame may have; the rest of the block is cut off.
    let frame = &bomb[..bomb.len().min(FRAME)];
    file.extend((frame.len() as u32).to_le_bytes());
    file.extend(frame);
    file.extend(hash::of(&file));
    for bytes in [FRAME, 64 * FRAME] {
        let why = said(expanded(&file, bytes).expect_err("it is too long"));
        assert!(why.contains("cannot be expanded"), "{why}");
    }
    // The length of this frame is longer than that of any frame.
    let mut long = b"VMPRESS\n\x01\0\0\0\xff\xff\xff\xff".to_vec();
    long.extend(hash::of(&long));
    let why = said(expanded(&long, 1 << 40).expect_err("no frame is so long"));
    assert!(why.contains("a length that none has"), "{why}");
}

#[test]
fn a_frame_that_was_read_is_kept_while_others_are() {
    /// Counts the bytes that are read.
    struct Counted<'a>(Cursor<&'a [u8]>, &'a mut u64);
    impl Read for Counted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            *self.1 += read as u64;
            Ok(read)
        }
    }
    impl io::Seek for Counted<'_> {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }
    let content = bytes_of(FRAMES_KEPT * FRAME, 1);
    let file = compressed(&content);
    let mut read = 0;
    let counted = Counted(Cursor::new(&file), &mut read);
    let mut base = BaseFile::new(counted, true, content.len() as u64);
    for _ in 0..100 {
        for at in (0..content.len()).step_by(FRAME) {
            let mut block = [0; BLOCK];
            base.seek_to(at as u64).expect("it is there");
            base.read_exact(&mut block).expect("it is there");
            assert!(block == content[at..][..BLOCK]);
        }
    }
    assert!(read <= file.len() as u64, "{read}");
}

/// Memory of which about half can be compressed: each block is as random as its first half.
fn memory(blocks: usize, seed: u64) -> Vec<u8> {
    let half = bytes_of(blocks * BLOCK / 2, seed);
    let halves = half.chunks(BLOCK / 2);
    halves
        .flat_map(|half| [half, &[0; BLOCK / 2]])
        .flatten()
        .copied()
        .collect()
}

fn image(memory: &[u8]) -> Vec<u8> {
    let section = Image::new().section(b"facts of the process");
    section.section(memory).bytes()
}

fn save(store: &Store, epoch: u32, image: &[u8]) -> Part {
    let mut manifest = save_images(store, id(epoch), &[(APP, image)]).expect("a checkpoint");
    manifest.tasks.remove(0).image
}

fn read(store: &Store, epoch: u32, part: &Part) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reader = store.open_part(APP, id(epoch), part).expect("it is there");
    reader.read_to_end(&mut bytes).expect("it is whole");
    bytes
}

fn path(store: &Store, epoch: u32) -> PathBuf {
    store.folder(APP, id(epoch)).join(name::image(APP, APP))
}

/// Checkpoints 1 to 4, each compressed or not. The first checkpoint is full. Memory changes a
/// little between checkpoints.
fn four(compress: [bool; 4]) -> (tempfile::TempDir, Store, Vec<(Part, Vec<u8>)>) {
    let (folder, store) = store();
    let mut memory = memory(3 * FRAME / BLOCK, 1);
    let saved = (1u32..).zip(compress).map(|(epoch, compress)| {
        let at = epoch as usize * 17 * BLOCK;
        memory[at..at + BLOCK / 2].copy_from_slice(&bytes_of(BLOCK / 2, epoch.into()));
        let image = image(&memory);
        let store = store.clone().compressed(compress);
        (save(&store, epoch, &image), image)
    });
    let saved = saved.collect();
    (folder, store, saved)
}

#[test]
fn compressed_and_plain_ones_are_read_alike_in_full_and_as_increments() {
    for first in [true, false] {
        let compress = [first, true, false, true];
        let (_folder, store, saved) = four(compress);
        for (epoch, ((part, image), compress)) in (1..).zip(saved.iter().zip(compress)) {
            assert_eq!(part.base.map(|base| base.epoch), (epoch > 1).then_some(1));
            assert_eq!(
                (part.bytes, part.hash),
                (image.len() as u64, hash::of(image))
            );
            assert_eq!(part.packed.is_some(), compress, "epoch {epoch}");
            let file = fs::metadata(path(&store, epoch)).expect("a file").len();
            assert_eq!(file, part.file_bytes());
            if compress {
                assert!(file < part.stored * 3 / 4, "{part:?}");
            }
            assert!(read(&store, epoch, part) == *image, "epoch {epoch}");
            let manifest = store.verify(APP, id(epoch)).expect("whole");
            assert_eq!((manifest.bytes(), manifest.stored()), (part.bytes, file));
            let looked = store.look(APP, id(epoch), Depth::Lengths);
            assert!(looked.is_ok(), "{looked:?}");
        }
        // The index of the full image is not compressed.
        let index = path(&store, 1).with_extension("index");
        assert!(fs::read(index).expect("an index").starts_with(b"VMINDEX\n"));
    }
}

#[test]
fn how_much_has_changed_decides_on_increments_and_not_how_well_it_is_compressed() {
    let (_folder, store) = store();
    let store = store.compressed(true);
    save(&store, 1, &image(&memory(40, 1)));
    // All blocks have changed. The file has about half of their length.
    let part = save(&store, 2, &image(&memory(40, 2)));
    assert!(part.base.is_some() && part.file_bytes() * 3 < part.bytes * 2);
    assert_eq!(save(&store, 3, &image(&memory(40, 3))).base, None);
}

#[test]
fn damage_of_a_compressed_file_is_named_and_the_checkpoint_before_is_offered() {
    let (_folder, store, saved) = four([true; 4]);
    let mut dice = Dice(2);
    // The full checkpoint is the base of all others, so it is damaged last.
    for epoch in [4, 3, 2] {
        let path = path(&store, epoch);
        let whole = fs::read(&path).expect("a file");
        let ends = (0..60).chain(whole.len() - 60..whole.len());
        for at in ends.chain((0..60).map(|_| dice.below(whole.len()))) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).expect("a file");
            let found = store.last_good(APP, Depth::Hashes).expect("a store");
            assert_eq!(found.good.map(|(good, _)| good), Some(id(epoch - 1)));
            let why = &found.passed_over[0].1;
            let StoreError::Part {
                path: named,
                flaw: Flaw::Compressed { .. },
            } = why
            else {
                panic!("byte {at} of {epoch}: {why}");
            };
            assert_eq!(*named, path);
        }
        fs::write(&path, &whole[..whole.len() - 1]).expect("a file");
        let listed = store.list().expect("a store").into_iter();
        let damaged = listed.filter(|it| matches!(it.state, State::Damaged(_)));
        assert_eq!(damaged.count(), 1, "its length is wrong");
        store.begin(APP, id(epoch)).expect_err("it is committed");
        fs::remove_dir_all(path.parent().expect("a folder")).expect("it can be removed");
    }
    assert!(read(&store, 1, &saved[0].0) == saved[0].1);
}

#[test]
fn a_damaged_step_of_a_compressed_increment_is_reported_as_damage_of_the_compressed_file() {
    let (_folder, store) = store();
    let store = store.compressed(true);
    let mut memory = memory(12 * FRAME / BLOCK, 1);
    save(&store, 1, &image(&memory));
    for at in (0..memory.len()).step_by(3 * BLOCK) {
        memory[at..at + BLOCK / 2].copy_from_slice(&bytes_of(BLOCK / 2, at as u64 + 2));
    }
    let part = save(&store, 2, &image(&memory));
    // Increments of several frames: the first frames are used before the hash of the file has been
    // checked.
    assert!(part.base.is_some() && part.stored > 3 * FRAME as u64);
    let path = path(&store, 2);
    let whole = fs::read(&path).expect("a file");
    for at in (0..whole.len()).step_by(61) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).expect("a file");
        let why = store.verify(APP, id(2)).expect_err("a bit differs");
        let flaw = match &why {
            StoreError::Part { flaw, .. } => flaw,
            other => panic!("byte {at}: {other}"),
        };
        assert!(matches!(flaw, Flaw::Compressed { .. }), "byte {at}: {why}");
    }
}

#[test]
fn damage_of_a_compressed_base_is_named_as_that_of_the_base() {
    let (_folder, store, saved) = four([true; 4]);
    let base = path(&store, 1);
    let whole = fs::read(&base).expect("a file");
    for at in [3, 11, 13, 100, whole.len() / 2, whole.len() - 100] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&base, &damaged).expect("a file");
        let why = store.verify(APP, id(3)).expect_err("its base is bad");
        let StoreError::Base {
            path: named,
            base: of,
            flaw,
        } = &why
        else {
            panic!("byte {at}: {why}");
        };
        assert_eq!((named, of), (&path(&store, 3), &base));
        assert!(
            matches!(flaw, Flaw::Compressed { .. } | Flaw::Changed),
            "{why}"
        );
    }
    fs::write(&base, &whole).expect("a file");
    assert!(read(&store, 3, &saved[2].0) == saved[2].1);
}

#[test]
fn a_quota_is_of_what_is_stored() {
    let (_folder, store) = store();
    let store = store.compressed(true);
    let image = image(&memory(500, 1));
    let write = |epoch, quota| {
        let writer = store.begin(APP, id(epoch)).expect("a checkpoint");
        let mut part = writer.image(APP, "alpha", Some(quota))?;
        part.copy(&mut &image[..])?;
        part.finish()
    };
    let part = write(1, u64::MAX).expect("it fits");
    let file = part.file_bytes();
    assert!(file < part.bytes * 2 / 3);
    write(2, file).expect("it fits");
    for quota in [file - 1, file / 2, 1] {
        let refused = write(3, quota).expect_err("it does not fit");
        assert!(matches!(refused, StoreError::Quota { .. }), "{refused}");
        let left = fs::read_dir(store.folder(APP, id(3))).expect("a folder");
        assert_eq!(left.count(), 0, "nothing of it stays");
    }
}
