//! The index of a full image: the hash and the offset of each block. The writer of a later
//! increment looks blocks up in the index and need not read the full image.
//!
//! ```text
//! magic | version | seed | entry, entry ... | length and hash of the image | hash of all before
//! ```
//!
//! Only writers need the index. A missing or damaged index makes no checkpoint bad: the next image
//! is stored in full.

use crate::{
    disk::Disk,
    error::StoreError,
    hash::HASH,
    limits::{BLOCK, BUFFER, INDEX_BLOCKS_MAX},
    manifest::Part,
    part::PartWriter,
    sealed::Sealed,
};
use rustix::rand::{GetRandomFlags, getrandom};
use std::{collections::HashMap, path::Path};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The first bytes of every index.
const MAGIC: [u8; 8] = *b"VMINDEX\n";
const VERSION: u32 = 3;
const PREFIX: usize = MAGIC.len() + 4 + 8;
/// Length of a hash of a block: XXH3 of 128 bits, as fast as memory. That two blocks of a store
/// share a hash by accident is practically impossible. A program cannot choose blocks with equal
/// hashes, because it does not know the seed. The hash of the whole image would reveal such a
/// collision.
const KEY: usize = 16;
const ENTRY: usize = KEY + 8;
const TRAILER: usize = 8 + HASH + HASH;

type Key = [u8; KEY];

fn key(block: &[u8], seed: u64) -> Key {
    xxh3_128_with_seed(block, seed).to_le_bytes()
}

/// A number that no program can predict.
fn new_seed() -> u64 {
    let mut seed = [0; 8];
    // Without a random seed the blocks are found as well.
    let _ = getrandom(&mut seed, GetRandomFlags::NONBLOCK);
    u64::from_le_bytes(seed)
}

/// A full image and its index, while both are written.
#[derive(Debug)]
pub(crate) struct IndexedWriter<D: Disk> {
    image: PartWriter<D>,
    index: PartWriter<D>,
    seed: u64,
    /// Bytes of the index that are not written yet.
    buffer: Vec<u8>,
    entries: u64,
}

impl<D: Disk> IndexedWriter<D> {
    pub fn new(image: PartWriter<D>, index: PartWriter<D>) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER + ENTRY);
        buffer.extend(MAGIC);
        buffer.extend(VERSION.to_le_bytes());
        let seed = new_seed();
        buffer.extend(seed.to_le_bytes());
        IndexedWriter {
            image,
            index,
            seed,
            buffer,
            entries: 0,
        }
    }

    /// Writes the next bytes of the image. [`IndexedWriter::add`] then gets the same bytes in
    /// pieces.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.image.write(bytes)
    }

    /// Adds a piece, which begins at `at` in the image. The index records whole blocks only.
    pub fn add(&mut self, piece: &[u8], block: bool, at: u64) -> Result<(), StoreError> {
        if !block || self.entries == INDEX_BLOCKS_MAX {
            return Ok(());
        }
        self.entries += 1;
        self.buffer.extend(key(piece, self.seed));
        self.buffer.extend(at.to_le_bytes());
        match self.buffer.len() < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Gives the index its name, then the image.
    pub fn finish(mut self) -> Result<Part, StoreError> {
        self.buffer.extend(self.image.bytes().to_le_bytes());
        self.buffer.extend(self.image.hash());
        self.flush()?;
        let all = self.index.hash();
        self.index.write(&all)?;
        self.image.end()?;
        self.index.finish()?;
        self.image.finish()
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.index.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The index of an image, in memory.
#[derive(Debug)]
pub(crate) struct Index {
    seed: u64,
    places: HashMap<Key, u64>,
}

impl Index {
    /// Reads the index of the image of `part`.
    ///
    /// # Errors
    /// The reason why the index cannot be used, as text.
    pub fn read<D: Disk>(disk: &D, path: &Path, part: &Part) -> Result<Self, &'static str> {
        let unread = |_| "it cannot be read";
        let (file, len) = disk.open(path).map_err(unread)?;
        let entries = (len as usize)
            .checked_sub(PREFIX + TRAILER)
            .filter(|bytes| bytes.is_multiple_of(ENTRY))
            .map(|bytes| bytes / ENTRY);
        // An image cannot have more blocks, so this bounds the memory for the index.
        let most = (part.bytes / BLOCK as u64).min(INDEX_BLOCKS_MAX);
        let entries = entries
            .filter(|entries| *entries as u64 <= most)
            .ok_or("it has a length that no index has")?;

        let mut file = Sealed::new(file, len);
        let magic: [u8; MAGIC.len()] = file.array().map_err(unread)?;
        if magic != MAGIC {
            return Err("it is no index");
        }
        if u32::from_le_bytes(file.array().map_err(unread)?) != VERSION {
            return Err("it has another version");
        }
        let seed = u64::from_le_bytes(file.array().map_err(unread)?);
        let mut places = HashMap::with_capacity(entries);
        for _ in 0..entries {
            let key = file.array().map_err(unread)?;
            let at = u64::from_le_bytes(file.array().map_err(unread)?);
            places.insert(key, at);
            let end = at.checked_add(BLOCK as u64);
            if end.is_none_or(|end| end > part.bytes) {
                return Err("it names a block outside of its image");
            }
        }
        let bytes = u64::from_le_bytes(file.array().map_err(unread)?);
        let hash: [u8; HASH] = file.array().map_err(unread)?;
        if !file.holds().map_err(unread)? {
            return Err("it is damaged");
        }
        if (bytes, hash) != (part.bytes, part.hash) {
            return Err("it is that of another image");
        }
        Ok(Index { seed, places })
    }

    /// Offset in the image of a block with this content.
    pub fn find(&self, block: &[u8]) -> Option<u64> {
        self.places.get(&key(block, self.seed)).copied()
    }
}
