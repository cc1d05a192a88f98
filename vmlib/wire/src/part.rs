//! The file of one task's image in a checkpoint, as the manifest describes it.

use serde::{Deserialize, Serialize};

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name in the folder of the checkpoint.
    pub name: String,
    /// Length of its content. Bytes.
    pub bytes: u64,
    #[serde(with = "serde_bytes")]
    /// The XXH3 hash of its content, 128 bits, little-endian.
    pub hash: [u8; 16],
    /// Name of the host that wrote it, on whose disk it is unless all hosts share the folder.
    pub place: String,
    /// Length of the content of its file: less than `bytes` for an increment. Bytes.
    pub stored: u64,
    /// Length of its file, if that is compressed; `None`: it is not. Bytes.
    pub packed: Option<u64>,
    /// The base, if its file is an increment.
    pub base: Option<Base>,
    /// Name of the second host with its file; `None` if all hosts share the folder, or if there was
    /// no second host.
    pub copy: Option<String>,
}

/// The part of the same name in an earlier checkpoint that an increment refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Generation of that checkpoint.
    pub generation: u32,
    /// Epoch of that checkpoint.
    pub epoch: u32,
    /// Length of its part. Bytes.
    pub bytes: u64,
    /// Length of the file of that part, if it is compressed; `None`: it is not. Bytes.
    pub packed: Option<u64>,
}

impl Part {
    /// Length of its file. Bytes.
    pub fn file_bytes(&self) -> u64 {
        self.packed.unwrap_or(self.stored)
    }
}

impl Base {
    /// Length of the file of that part. Bytes.
    pub fn file_bytes(&self) -> u64 {
        self.packed.unwrap_or(self.bytes)
    }
}
