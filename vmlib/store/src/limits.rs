//! The limits of a store. Those of names, tasks and groups are the machine's, [`vm_wire::limits`].

/// The file of a manifest: what all tasks of an application and their daemons have to say, the
/// images aside. Bytes.
pub const MANIFEST_MAX: usize = 64 * 1024 * 1024;
/// What is read, hashed and written at a time: it fits into a core's own cache, and hashes at full
/// speed. Bytes.
pub const BUFFER: usize = 512 * 1024;
