//! Limits of a store. [`vm_wire::limits`] has the limits of names, tasks and groups.

/// Bound on the length of a manifest: the records of all tasks of an application and of their
/// daemons, without the images. Bytes.
pub const MANIFEST_MAX: usize = 64 * 1024 * 1024;
/// Unit of reading, hashing and writing. The buffer fits into the cache of a CPU core, so hashing
/// runs at full speed. Bytes.
pub const BUFFER: usize = 512 * 1024;
/// Unit of comparison with an earlier image: a page of memory. Bytes.
pub const BLOCK: usize = 4096;
/// Bound on the blocks of an image whose hashes an index keeps: 128 GiB of blocks. Increments store
/// later blocks anew each time.
pub const INDEX_BLOCKS_MAX: u64 = 1 << 25;
/// Number of epochs after a full checkpoint whose checkpoints may be increments of it. The
/// checkpoint after that is full.
pub const INCREMENTS_MAX: u32 = 15;
/// Unit of compression. A reader that needs one byte expands one frame. Bytes.
pub const FRAME: usize = 128 * 1024;
/// Frames of a compressed base that stay in memory while an increment is read.
pub const FRAMES_KEPT: usize = 16;
/// Version of the format of manifests that is written, and the only version that is read.
pub const MANIFEST_VERSION: u32 = 4;
