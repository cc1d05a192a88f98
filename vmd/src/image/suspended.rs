//! Writes the images of single suspended tasks into the store and reads them from it, in helper
//! processes like those of checkpoints ([`crate::image::images`]):
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/suspended/IMAGE
//! STORE/APPLICATION/suspended/IMAGE -> reader -> pipe -> sender  == TCP, sealed ==>  restorer
//! ```
//!
//! The writer stores the whole image in full, syncs it, and writes a receipt as its last output.
//! The log may record that the task is suspended only after the receipt.

use crate::{
    image::{images, store::StoreLocation},
    process::helper_job::{HelperJob, SuspendedReaderJob, SuspendedWriterJob},
};
use rustix::fd::OwnedFd;
use std::process::{Command, Stdio};
use vm_store::Store;
use vm_wire::{Tid, checkpoint::Part};

/// The work of a writer: stores the image that is standard input.
///
/// # Errors
/// The reason why the image was not stored.
pub fn write(job: &SuspendedWriterJob) -> anyhow::Result<()> {
    let SuspendedWriterJob { store, app, name } = job;
    let host = &store.host;
    let store = Store::open(&store.root)?.within(store.quota);
    let mut image = store.suspend(*app, name, host, None)?;
    images::take_in(|source| image.copy(source))?;
    images::acknowledge(&image.finish()?);
    Ok(())
}

/// The work of a reader: writes an image to standard output.
///
/// # Errors
/// The reason why not everything was written.
pub fn read(job: &SuspendedReaderJob) -> anyhow::Result<()> {
    images::hand_out(Store::open(&job.root)?.open_suspended(job.app, &job.image)?)
}

/// The process that stores the image from `image`.
pub fn writer(place: &StoreLocation, app: Tid, name: &str, image: OwnedFd) -> Command {
    let job = HelperJob::SuspendedWriter(SuspendedWriterJob {
        store: place.job(),
        app,
        name: name.to_owned(),
    });
    images::command("writer", &job, image.into(), Stdio::null())
}

/// The process that writes an image to `out`.
pub fn reader(place: &StoreLocation, app: Tid, image: &Part, out: OwnedFd) -> Command {
    let job = HelperJob::SuspendedReader(SuspendedReaderJob {
        root: place.root.clone(),
        app,
        image: image.clone(),
    });
    images::command("reader", &job, Stdio::null(), out.into())
}

/// Removes an image that is no longer needed.
pub fn forget(place: &StoreLocation, app: Tid, name: &str) {
    let dropped = Store::open(&place.root)
        .and_then(|store| store.drop_suspended(app, |other, _| other == name));
    if let Err(error) = dropped {
        log::warn!("the image of a task that was suspended stays in the store: {error}");
    }
}
