//! The way of images into the store: for each a process of its own, so that no turn of the daemon
//! waits for a disk.
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! The writer hashes what it writes, syncs it and says, as its last word, how long the image is and
//! what its hash is. That is the receipt by which the daemon knows that it is whole. The commit of a
//! checkpoint is made by the thread for jobs ([`crate::jobs`]).

use crate::{fault, transfer};
use anyhow::{Context as _, ensure};
use rustix::fd::OwnedFd;
use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::{SystemTime, UNIX_EPOCH},
};
use vm_store::{CheckpointId, Depth, Manifest, SavedTask, Store, name};
use vm_wire::{
    Tid,
    checkpoint::{Checkpoint, Committed, Part},
    encode,
    task::{FailKind, Failed},
};

/// The first argument of the process.
const WRITER: &str = "store-writer";
/// How its last word begins.
const RECEIPT: &str = "stored ";
/// Checkpoints of an application that are kept.
const KEEP: usize = 3;

/// If this process was started as a writer: runs it, and says how it ended.
pub fn run_if_asked() -> Option<anyhow::Result<()>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [WRITER, root, host, app, id, tid] => {
            Some(write(root, host, app, id, tid).context("storing an image"))
        }
        _ => None,
    }
}

fn write(root: &str, host: &str, app: &str, id: &str, tid: &str) -> anyhow::Result<()> {
    let (app, tid) = (Tid(app.parse()?), Tid(tid.parse()?));
    let id = CheckpointId::parse(id).context("no name of a checkpoint")?;
    let checkpoint = Store::open(root)?.begin(app, id)?;
    let mut part = checkpoint.part(&name::image(app, tid), host, None)?;
    fault::at_carrier("writer");
    let bytes = part.copy(&mut io::stdin().lock())?;
    ensure!(bytes > 0, "the task wrote none");
    let part = part.finish()?;
    let hash = blake3::Hash::from(part.hash).to_hex();
    eprintln!("{RECEIPT}{} {hash} {}", part.bytes, part.place);
    Ok(())
}

/// What the last word of a writer says.
pub fn receipt(app: Tid, tid: Tid, said: &str) -> Option<Part> {
    let (bytes, rest) = said.trim().strip_prefix(RECEIPT)?.split_once(' ')?;
    let (hash, place) = rest.split_once(' ')?;
    Some(Part {
        name: name::image(app, tid),
        bytes: bytes.parse().ok()?,
        hash: *blake3::Hash::from_hex(hash).ok()?.as_bytes(),
        place: place.to_owned(),
    })
}

/// Where this daemon's checkpoints are, and under which name it writes.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder.
    pub root: PathBuf,
    /// The host.
    pub host: String,
}

impl Place {
    /// Starts the process that writes what comes out of `image`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_writer(
        &self,
        (app, id): (Tid, CheckpointId),
        tid: Tid,
        image: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        let mut command = transfer::tied_program();
        fault::pass_on(&mut command, "writer");
        command
            .arg(WRITER)
            .arg(&self.root)
            .args([&self.host, &app.0.to_string(), &id.to_string()])
            .arg(tid.0.to_string())
            .stdin(image)
            .stdout(Stdio::null());
        transfer::spawn(command)
    }

    /// Removes what was written of a checkpoint.
    pub fn drop_checkpoint(&self, app: Tid, id: CheckpointId) {
        let dropped = Store::open(&self.root)
            .and_then(|store| store.begin(app, id))
            .and_then(|checkpoint| checkpoint.abort());
        if let Err(error) = dropped {
            log::warn!("what is in the store of a checkpoint that was given up stays: {error}");
        }
    }

    /// Commits a checkpoint, all of whose parts were written.
    pub fn commit(&self, checkpoint: &Checkpoint) -> Committed {
        let agreed = &checkpoint.agreed;
        let result = commit(&self.root, checkpoint).map_err(|error| {
            let text = format!("the checkpoint cannot be committed: {error:#}");
            Failed::new(FailKind::System, text)
        });
        Committed {
            app: agreed.app,
            epoch: agreed.epoch,
            result,
        }
    }
}

fn commit(root: &Path, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let agreed = &checkpoint.agreed;
    let id = CheckpointId::new(agreed.generation, agreed.epoch);
    let manifest = manifest(checkpoint)?;
    let store = Store::open(root)?;
    store.begin(agreed.app, id)?.commit(&manifest)?;
    // It is there, whatever becomes of older ones.
    if let Err(error) = store.prune(agreed.app, KEEP, Depth::Lengths) {
        log::warn!("older checkpoints stay in the store: {error}");
    }
    Ok(())
}

fn manifest(checkpoint: &Checkpoint) -> anyhow::Result<Manifest> {
    let agreed = &checkpoint.agreed;
    ensure!(
        agreed.tasks.len() == checkpoint.parts.len(),
        "parts are missing"
    );
    let tasks = agreed.tasks.iter().zip(&checkpoint.parts);
    let tasks = tasks.map(|(task, part)| SavedTask {
        tid: task.tid,
        host: task.place.0.clone(),
        arch: task.place.1.clone(),
        incarnation: task.incarnation,
        asker: task.asker,
        request: task.request,
        index: task.index,
        program: task.program.clone(),
        image: part.image.clone(),
        belongings: encode(&part.belongings).into(),
    });
    let master = agreed.tasks.iter().find(|task| task.tid == agreed.app);
    let first = master.or(agreed.tasks.first());
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Manifest {
        machine: agreed.machine,
        app: agreed.app,
        program: first.map(|task| task.program.clone()).unwrap_or_default(),
        generation: agreed.generation,
        epoch: agreed.epoch,
        taken_ms: since.map_or(0, |since| since.as_millis() as u64),
        tasks: tasks.collect(),
        groups: agreed.groups.clone(),
        kept: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        let (app, tid) = (Tid(1 << 40 | 1 << 24 | 1), Tid(1 << 40 | 2 << 24 | 5));
        let hash = blake3::hash(b"image");
        let part = receipt(app, tid, &format!("stored 12 {} n1\n", hash.to_hex()));
        let part = part.expect("a receipt");
        assert_eq!((part.bytes, part.hash), (12, *hash.as_bytes()));
        assert_eq!((&*part.name, &*part.place), ("t2.5.image", "n1"));
        for bad in ["", "stored", "stored 12", "stored x y", "stored 12 00 n1"] {
            assert_eq!(receipt(app, tid, bad), None, "{bad}");
        }
    }
}
