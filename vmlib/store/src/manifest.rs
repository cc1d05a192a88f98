//! The manifest of a checkpoint: its parts, and the record of each task.
//!
//! The file: 8 bytes of magic, the version (4 bytes, little-endian), one MessagePack value, and the
//! BLAKE3 hash (32 bytes) of all bytes before the hash.

pub use crate::limits::MANIFEST_VERSION as VERSION;
use crate::{error::ManifestError, limits::MANIFEST_MAX, summary::Summary};
use serde::{Deserialize, Serialize};
pub use vm_wire::checkpoint::{Base, KeptChunks, Part, Policy, SavedGroup};
use vm_wire::{Body, CheckpointId, MachineId, Tid, checkpoint, codec};

/// The first bytes of every manifest.
pub const MAGIC: [u8; 8] = *b"VMSTORE\n";

const PREFIX: usize = MAGIC.len() + 4;
const HASH: usize = blake3::OUT_LEN;

/// One checkpoint of one application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Machine in which the checkpoint was taken.
    pub machine: MachineId,
    /// The application: the task id of its master, which may be of an earlier machine.
    pub app: Tid,
    /// Last component of the path of the master's program, as text for users.
    pub program: String,
    /// Number of restarts of the application before this checkpoint.
    pub generation: u32,
    /// Number of the checkpoint in its generation.
    pub epoch: u32,
    /// Index of the cut in the log of the machine.
    pub index: u64,
    /// Time of the cut. Milliseconds since 1970.
    pub taken_ms: u64,
    /// From the request until everything was saved. Microseconds.
    pub took_us: u64,
    /// Policy for automatic checkpoints of the application.
    pub policy: Policy,
    /// Every task that lived at the cut, each once.
    pub tasks: Vec<SavedTask>,
    /// Every group with a member among these tasks, each once.
    pub groups: Vec<SavedGroup>,
    /// Undelivered messages of ended tasks to these tasks, as the keepers retained them.
    pub kept: Vec<KeptChunks>,
    /// The last context that the machine had given to a task. Older manifests have none.
    #[serde(default)]
    pub context: u32,
}

/// Record of one task in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTask {
    /// Id of the task.
    pub tid: Tid,
    /// Name of the host that the task ran on.
    pub host: String,
    /// Architecture of that host, such as `x86_64`: the task can be restarted only on a host of
    /// this architecture. `any` for a portable task.
    pub arch: String,
    /// Incarnation of the task at the cut.
    pub incarnation: u32,
    /// Requester of the task's spawn: a task; for a master, the daemon that got the request of a
    /// console.
    pub requester: Tid,
    /// Number of the spawn request, counted by the requester.
    pub request: u64,
    /// Index of the task among all tasks of the spawn request.
    pub index: u32,
    /// Last component of the program's path, as text for users.
    pub program: String,
    /// Part with the image of the process.
    pub image: Part,
    /// Freeze time of the task. Microseconds.
    pub freeze_us: u64,
    /// Chunks that the task had sent and that were not acknowledged.
    pub unacknowledged: u32,
    /// The daemon's records of the task, encoded by the daemon.
    pub belongings: Body,
}

impl Manifest {
    /// The parts of all tasks.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.tasks.iter().map(|task| &task.image)
    }

    /// Length of all images together. Bytes.
    pub fn bytes(&self) -> u64 {
        self.parts()
            .fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Length of the files of all parts together. Bytes.
    pub fn stored(&self) -> u64 {
        self.parts()
            .fold(0, |sum, part| sum.saturating_add(part.file_bytes()))
    }

    /// Longest freeze time of a task. Microseconds.
    pub fn freeze_us(&self) -> u64 {
        let tasks = self.tasks.iter().map(|task| task.freeze_us);
        tasks.max().unwrap_or(0)
    }

    /// Chunks of in-transit messages: sent and not acknowledged. Chunks of ended tasks count as
    /// well.
    pub fn in_transit(&self) -> u64 {
        let of_tasks = self.tasks.iter().map(|task| task.unacknowledged);
        checkpoint::in_transit(of_tasks, &self.kept)
    }

    /// The checkpoint that parts of this checkpoint are increments of; `None` for a full
    /// checkpoint.
    pub fn base(&self) -> Option<CheckpointId> {
        let base = self.parts().find_map(|part| part.base)?;
        Some(CheckpointId::new(base.generation, base.epoch))
    }

    /// The summary of the checkpoint, for listings.
    pub fn summary(&self) -> Summary {
        Summary {
            taken_ms: self.taken_ms,
            bytes: self.bytes(),
            stored: self.stored(),
            base: self.base(),
            tasks: self.tasks.len(),
            freeze_us: self.freeze_us(),
            took_us: self.took_us,
            in_transit: self.in_transit(),
            program: self.program.clone(),
        }
    }

    /// Encodes the manifest as the content of its file.
    ///
    /// # Errors
    /// [`ManifestError`] when the manifest contradicts itself, or is too long.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        self.check()?;
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(codec::encode(self));
        if bytes.len() + HASH > MANIFEST_MAX {
            return Err(ManifestError::TooLong {
                bytes: (bytes.len() + HASH) as u64,
            });
        }
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        Ok(bytes)
    }

    /// Decodes the content of a manifest's file.
    ///
    /// # Errors
    /// [`ManifestError`] when the bytes are no manifest, have another version, are damaged, or
    /// contradict themselves.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MANIFEST_MAX {
            let bytes = bytes.len() as u64;
            return Err(ManifestError::TooLong { bytes });
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(ManifestError::NotAManifest);
        }
        // All versions have the same magic and the same kind of hash, so a damaged manifest is told
        // from a manifest of another version.
        let (said, hash) = bytes
            .split_last_chunk::<HASH>()
            .filter(|(said, _)| said.len() >= PREFIX)
            .ok_or(ManifestError::Damaged)?;
        if blake3::hash(said) != *hash {
            return Err(ManifestError::Damaged);
        }
        let (prefix, body) = said.split_at(PREFIX);
        let version = prefix[MAGIC.len()..].try_into().map(u32::from_le_bytes);
        let found = version.expect("four bytes behind the magic");
        if found != VERSION {
            return Err(ManifestError::OtherVersion { found });
        }
        let manifest: Manifest = codec::decode(body)?;
        manifest.check()?;
        Ok(manifest)
    }
}
