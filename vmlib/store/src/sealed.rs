//! Files of the store that end with the hash of all that stands before it.

use crate::{
    hash::{HASH, Hasher},
    limits::BUFFER,
};
use std::io::{self, BufReader, Read, Take};

/// Such a file, read from its beginning to the hash.
#[derive(Debug)]
pub(crate) struct Sealed<F>(BufReader<Hashed<F>>);

/// Hashes what is read from a file up to its own hash.
#[derive(Debug)]
struct Hashed<F> {
    file: Take<F>,
    hasher: Hasher,
}

impl<F: Read> Sealed<F> {
    /// The file of this length, of which nothing was read.
    pub fn new(file: F, len: u64) -> Self {
        let hashed = Hashed {
            file: file.take(len.saturating_sub(HASH as u64)),
            hasher: Hasher::new(),
        };
        Sealed(BufReader::with_capacity(BUFFER, hashed))
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether all before the hash was read, and is what was hashed.
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
