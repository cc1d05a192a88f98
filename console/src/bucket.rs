//! The bucket of a store in an object store, read without a daemon.

use crate::checkpoints::{Folder, Row};
use anyhow::Context as _;
use std::path::Path;
use vm_bucket::{Address, Fetched, Mirror, Tie};
use vm_store::{CheckpointId, Depth};
use vm_wire::Tid;

/// The bucket that is recorded in the store's folder.
#[derive(Debug)]
pub struct Known {
    /// The address of the bucket.
    pub address: Address,
    /// Why the last copy to the bucket failed, if it did.
    pub failed: Option<String>,
}

/// A checkpoint in a bucket.
#[derive(Debug)]
pub struct BucketRow {
    /// The checkpoint, as in a list of the folder.
    pub row: Row,
    /// Whether it is in the folder too.
    pub here: bool,
}

/// Whether a store has a bucket.
pub fn has(folder: &Folder) -> bool {
    !matches!(Tie::new(&folder.root).address(), Ok(None))
}

/// The store in folder `root` with the bucket at `address` or, without an address, with its own
/// bucket; `None` if it has none.
///
/// # Errors
/// For example, if there are no credentials, or the folder is not safe.
pub fn mirror(root: &Path, address: Option<Address>) -> anyhow::Result<Option<Mirror>> {
    let opened = Mirror::open(root, address);
    opened.with_context(|| format!("the bucket of the store {}", root.display()))
}

/// Sets, for each checkpoint in a folder, whether the bucket has it, from the folder's own record of
/// the last copy.
///
/// # Errors
/// If that record cannot be read.
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

/// Fetches a checkpoint into the folder if it is not there. Also returns sentences about the fetch
/// for the user.
///
/// # Errors
/// If the bucket cannot be read and the folder does not have the checkpoint either.
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
/// If the bucket cannot be read.
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
