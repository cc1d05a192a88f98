//! The images of single tasks that are suspended, on their way into the store and out of it, by
//! processes of their own as those of checkpoints ([`crate::image::images`]):
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/suspended/IMAGE
//! STORE/APPLICATION/suspended/IMAGE -> reader -> pipe -> sender  == TCP, sealed ==>  restorer
//! ```
//!
//! The writer stores all of an image, in full, syncs it, and says as its last word what it is: only
//! then the log may say that the task is suspended.

use crate::image::{images, store::StoreLocation};
use anyhow::Context as _;
use rustix::fd::OwnedFd;
use std::process::{Command, Stdio};
use vm_store::Store;
use vm_wire::{Tid, checkpoint::Part};

/// The first arguments of the processes.
const WRITER: &str = "suspended-writer";
const READER: &str = "suspended-reader";

/// If this process was started as one of them: runs it, and says how it ended.
pub fn run_if_asked() -> Option<anyhow::Result<()>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [WRITER, root, host, quota, app, name] => {
            Some(write((root, host, quota), app, name).context("storing an image"))
        }
        [READER, root, app, name, facts] => {
            Some(read(root, app, name, facts).context("reading an image"))
        }
        _ => None,
    }
}

fn write((root, host, quota): (&str, &str, &str), app: &str, name: &str) -> anyhow::Result<()> {
    let store = Store::open(root)?.within(quota.parse()?);
    let mut image = store.suspend(Tid(app.parse()?), name, host, None)?;
    images::take_in(|source| image.copy(source))?;
    images::acknowledge(&image.finish()?);
    Ok(())
}

fn read(root: &str, app: &str, name: &str, facts: &str) -> anyhow::Result<()> {
    let part = images::parse_facts(name.to_owned(), facts).context("no image")?;
    images::hand_out(Store::open(root)?.open_suspended(Tid(app.parse()?), &part)?)
}

/// The process that writes what comes out of `image`.
pub fn writer(place: &StoreLocation, app: Tid, name: &str, image: OwnedFd) -> Command {
    let words = [
        &place.host,
        &place.quota.to_string(),
        &app.0.to_string(),
        &name.to_owned(),
    ];
    place.command("writer", &[WRITER], words, image.into(), Stdio::null())
}

/// The process that writes an image to `out`.
pub fn reader(place: &StoreLocation, app: Tid, image: &Part, out: OwnedFd) -> Command {
    let words = [&app.0.to_string(), &image.name, &images::facts(image)];
    place.command("reader", &[READER], words, Stdio::null(), out.into())
}

/// Removes an image that is of no use any more.
pub fn forget(place: &StoreLocation, app: Tid, name: &str) {
    let dropped = Store::open(&place.root)
        .and_then(|store| store.drop_suspended(app, |other, _| other == name));
    if let Err(error) = dropped {
        log::warn!("the image of a task that was suspended stays in the store: {error}");
    }
}
