//! The limits of a store. Those of names, tasks and groups are the machine's, [`vm_wire::limits`].

/// The file of a manifest: what all tasks of an application and their daemons have to say, the
/// images aside. Bytes.
pub const MANIFEST_MAX: usize = 64 * 1024 * 1024;
/// What is read, hashed and written at a time: it fits into a core's own cache, and hashes at full
/// speed. Bytes.
pub const BUFFER: usize = 512 * 1024;
/// What is compared with an earlier image at a time: a page of memory. Bytes.
pub const BLOCK: usize = 4096;
/// Blocks of an image of which an index keeps the hashes: of 128 GiB. What follows is stored anew
/// each time.
pub const INDEX_BLOCKS_MAX: u64 = 1 << 25;
/// Checkpoints after a full one that may be increments of it. The next one is full.
pub const INCREMENTS_MAX: u32 = 15;
/// What is compressed at a time, and expanded for a byte of it that is wanted. Bytes.
pub const FRAME: usize = 128 * 1024;
/// Frames of a compressed base that are in memory while an increment is read.
pub const FRAMES_KEPT: usize = 16;
/// The version of the format of manifests that is written, and the only one that is read.
pub const MANIFEST_VERSION: u32 = 4;
