//! The bucket that a store has in an object store, if it has one: no daemon is asked for it.

use crate::checkpoints::{Folder, Row};
use anyhow::Context as _;
use std::path::Path;
use vm_bucket::{Address, Fetched, Mirror, Tie};
use vm_store::{CheckpointId, Depth};
use vm_wire::Tid;

/// What is known of the bucket of a store without asking it.
#[derive(Debug)]
pub struct Known {
    /// Where it is.
    pub address: Address,
    /// Why the last copying failed, if it did.
    pub failed: Option<String>,
}

/// A checkpoint in a bucket.
#[derive(Debug)]
pub struct BucketRow {
    /// As in a listing of the folder.
    pub row: Row,
    /// It is in the folder as well.
    pub here: bool,
}

/// Whether a store has a bucket.
pub fn has(folder: &Folder) -> bool {
    !matches!(Tie::new(&folder.root).address(), Ok(None))
}

/// The store in folder `root` with the bucket of that address, or, without one, with its own, if it has
/// one.
///
/// # Errors
/// When there are no credentials, say, or the folder is not safe.
pub fn mirror(root: &Path, address: Option<Address>) -> anyhow::Result<Option<Mirror>> {
    let opened = Mirror::open(root, address);
    opened.with_context(|| format!("the bucket of the store {}", root.display()))
}

/// Says of the checkpoints in a folder which of them are in its bucket too, if it has one, by what the
/// last copying left there.
///
/// # Errors
/// When that cannot be read.
pub fn mark(rows: &mut [Row], folder: &Folder) -> anyhow::Result<Option<Known>> {
    let tie = Tie::new(&folder.root);
    let Some(address) = tie.address()? else {
        return Ok(None);
    };
    let state = tie.state()?;
    for row in rows {
        row.in_bucket = Some(state.there.contains_key(&(row.app, row.id)));
    }
    let failed = state.failed;
    Ok(Some(Known { address, failed }))
}

/// Sees to it that a checkpoint is in the folder, and says what was fetched for that.
///
/// # Errors
/// When the bucket cannot be asked and the folder has none either.
pub fn fetch(
    mirror: &Mirror,
    app: Tid,
    from: Option<CheckpointId>,
    depth: Depth,
) -> anyhow::Result<(Fetched, Vec<String>)> {
    let fetched = mirror.fetch(app, from, depth)?;
    let over = fetched.passed_over.iter();
    let mut said: Vec<String> = over.map(|(id, why)| format!("{id}: {why}")).collect();
    if let (Some(id), true) = (fetched.good, fetched.fetched) {
        said.push(format!("{id} fetched from {}", mirror.address()));
    }
    Ok((fetched, said))
}

/// All checkpoints in a bucket.
///
/// # Errors
/// When it cannot be asked.
pub fn list(mirror: &Mirror) -> anyhow::Result<Vec<BucketRow>> {
    let row = |found: vm_bucket::Found| {
        let (summary, damaged) = match found.manifest {
            Ok(manifest) => (Some(manifest.summary()), None),
            Err(why) => (None, Some(why.to_string())),
        };
        BucketRow {
            row: Row {
                app: found.app,
                id: found.id,
                summary,
                damaged,
                alone: 0,
                in_bucket: Some(true),
            },
            here: found.here,
        }
    };
    Ok(mirror.list()?.into_iter().map(row).collect())
}
