//! The manifest of a checkpoint: what it consists of, and what is known of each task.
//!
//! The file: 8 bytes of magic, the version (4 bytes, little-endian), one MessagePack value, and
//! the BLAKE3 hash (32 bytes) of all that stands before it.

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
    /// The machine in which it was taken.
    pub machine: MachineId,
    /// The application: the tid of its master, who may have been born in an earlier machine.
    pub app: Tid,
    /// Last part of the path of the master's program, for people.
    pub program: String,
    /// How often the application was brought back before.
    pub generation: u32,
    /// The checkpoint's number in this generation.
    pub epoch: u32,
    /// The index of its cut in the log of its machine.
    pub index: u64,
    /// When it was taken. Milliseconds since 1970.
    pub taken_ms: u64,
    /// From the wish until all of it was saved. Microseconds.
    pub took_us: u64,
    /// When checkpoints of it are made by themselves.
    pub policy: Policy,
    /// Every task that lived, each once.
    pub tasks: Vec<SavedTask>,
    /// Every group that any of them was in, each once.
    pub groups: Vec<SavedGroup>,
    /// What hosts kept for them of tasks that had ended.
    pub kept: Vec<KeptChunks>,
}

/// One task of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTask {
    /// The task.
    pub tid: Tid,
    /// Name of the host that it ran on.
    pub host: String,
    /// Architecture of that host, such as `x86_64`: it can be brought back on such a host only. `any`
    /// if it is portable.
    pub arch: String,
    /// Its incarnation there.
    pub incarnation: u32,
    /// Who asked for it: a task; or, for a master, the daemon that a console asked.
    pub asker: Tid,
    /// The asker's request number.
    pub request: u64,
    /// Its index among all tasks of the request.
    pub index: u32,
    /// Last part of its program's path, for people.
    pub program: String,
    /// The image of its process.
    pub image: Part,
    /// How long it stood still. Microseconds.
    pub freeze_us: u64,
    /// Chunks of messages that it had sent, and of which it did not know that they had been taken.
    pub unacknowledged: u32,
    /// What its daemon has to remember of it, encoded by the daemon.
    pub belongings: Body,
}

impl Manifest {
    /// All parts: the images.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.tasks.iter().map(|task| &task.image)
    }

    /// Bytes of all parts together.
    pub fn bytes(&self) -> u64 {
        self.parts()
            .fold(0, |sum, part| sum.saturating_add(part.bytes))
    }

    /// Bytes of their files.
    pub fn stored(&self) -> u64 {
        self.parts()
            .fold(0, |sum, part| sum.saturating_add(part.file_bytes()))
    }

    /// How long the task stood still that stood longest. Microseconds.
    pub fn freeze_us(&self) -> u64 {
        let tasks = self.tasks.iter().map(|task| task.freeze_us);
        tasks.max().unwrap_or(0)
    }

    /// Chunks of messages in transit: sent, and not known to have been taken; also of tasks that had
    /// ended.
    pub fn in_transit(&self) -> u64 {
        let of_tasks = self.tasks.iter().map(|task| task.unacknowledged);
        checkpoint::in_transit(of_tasks, &self.kept)
    }

    /// The checkpoint that parts of this one are increments of; none if it is a full one.
    pub fn base(&self) -> Option<CheckpointId> {
        let base = self.parts().find_map(|part| part.base)?;
        Some(CheckpointId::new(base.generation, base.epoch))
    }

    /// What a listing says of it.
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

    /// The file's content.
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

    /// The manifest of which this is the file's content.
    ///
    /// # Errors
    /// [`ManifestError`] when it is no manifest, one of another version, damaged, or one that
    /// contradicts itself.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MANIFEST_MAX {
            let bytes = bytes.len() as u64;
            return Err(ManifestError::TooLong { bytes });
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(ManifestError::NotAManifest);
        }
        // Magic and hash stay what they are in all versions: so damage is told from age.
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
