//! Files of the store that end with the hash of all bytes before the hash: indexes, increments and
//! compressed files. The reader hashes the bytes on the way, and compares the hash at the end.

use crate::{
    hash::{HASH, Hasher},
    limits::BUFFER,
};
use std::io::{self, BufReader, Read, Take};

/// A file with a hash at its end, read from its beginning to the hash.
#[derive(Debug)]
pub(crate) struct Sealed<F>(BufReader<Hashed<F>>);

/// Hashes the bytes of a file up to the hash at its end.
#[derive(Debug)]
struct Hashed<F> {
    file: Take<F>,
    hasher: Hasher,
}

impl<F: Read> Sealed<F> {
    /// The file of this length. Its first byte has not been read yet.
    pub fn new(file: F, len: u64) -> Self {
        let hashed = Hashed {
            file: file.take(len.saturating_sub(HASH as u64)),
            hasher: Hasher::new(),
        };
        Sealed(BufReader::with_capacity(BUFFER, hashed))
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether all bytes before the hash were read, and their hash is the hash at the end.
    pub fn holds(&mut self) -> io::Result<bool> {
        if self.read(&mut [0])? > 0 {
            return Ok(false);
        }
        let Hashed { file, hasher } = self.0.get_mut();
        let mut found = [0; HASH];
        file.set_limit(HASH as u64);
        file.read_exact(&mut found)?;
        Ok(hasher.finish() == found)
    }
}

impl<F: Read> Read for Sealed<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<F: Read> Read for Hashed<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
