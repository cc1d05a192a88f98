//! The way of images into the store: for each a process of its own, so that no turn of the daemon
//! waits for a disk.
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! In place of the pipe there may be memory ([`crate::image::memory`]), in which a writer finds all of it.
//!
//! The writer stores all of it, or what differs from an earlier image of the task. It hashes it, syncs
//! what it wrote and says, as its last word, how long the image is, what its hash is, and how much of
//! it is stored. That is the receipt by which the daemon knows that it is whole. The commit of a
//! checkpoint is made by the thread for jobs ([`crate::event_loop::jobs`]), which reads manifests, too.
//!
//! The way back is that of a task that was moved, with a reader in the place of the receiver:
//!
//! ```text
//! STORE/APPLICATION/CHECKPOINT/TASK.image -> reader -> pipe -> restorer
//! ```
//!
//! Where each host has a store of its own, the file of each image goes to a second host, too, and an
//! image that is brought back elsewhere goes there, by the way of images from host to host
//! ([`crate::image::transfer`]):
//!
//! ```text
//! STORE -> reader -> pipe -> sender  == TCP, sealed ==>  receiver -> pipe -> taker -> STORE
//!                                                                         -> restorer
//! ```
//!
//! The reader verifies what it reads, and hands on the last bytes of an image only when all of it has
//! proved whole. An image has its end there, so no process stands that was made of a damaged one.

use crate::{
    fault,
    image::{lent::Lender, store::StoreLocation},
    process::{
        helper,
        helper_job::{CheckpointJob, Form, HelperJob, ReaderJob, StoreJob, TakerJob, WriterJob},
    },
};
use anyhow::{Context as _, ensure};
use rustix::{
    fd::{AsFd as _, OwnedFd},
    io::Errno,
    process::nice,
};
use std::{
    io::{self, Read, StdinLock},
    process::{Command, Stdio},
};
#[cfg(target_arch = "x86_64")]
use vm_image::image_memory;
use vm_store::{Base, CheckpointId, ImageWriter, PartReader, Store, StoreError, limits::BUFFER};
use vm_wire::{Tid, checkpoint::Part, portable::EndSeen};

/// Added to the nice value of a writer: it goes on beside the tasks whose copies it writes, and gets a
/// quarter of the time that one of them gets, where processors are short.
pub(crate) const LATER: i32 = 5;
/// How its last word begins.
const RECEIPT: &str = "stored ";

/// The work of a reader: writes a part, or the image that it holds, to standard output.
///
/// # Errors
/// Why not all of it was written.
pub fn read(job: &ReaderJob) -> anyhow::Result<()> {
    let store = Store::open(&job.root)?;
    let (app, id) = (job.checkpoint.app, job.checkpoint.id());
    if job.file {
        let mut file = store.open_file(app, id, &job.part)?;
        fault::at_carrier("reader");
        io::copy(&mut file, &mut io::stdout().lock())?;
        return Ok(());
    }
    hand_out(store.open_part(app, id, &job.part)?)
}

/// Writes an image to standard output.
pub(crate) fn hand_out(image: PartReader) -> anyhow::Result<()> {
    fault::at_carrier("reader");
    match hand_on(image, io::stdout().as_fd().try_clone_to_owned()?) {
        // Who reads it has ended, and is asked why.
        Err(error) if error.downcast_ref() == Some(&Errno::PIPE) => Ok(()),
        passed => passed,
    }
}

/// The work of a taker: stores a copy of a part of another host.
///
/// # Errors
/// Why it is not stored.
pub fn take(job: &TakerJob) -> anyhow::Result<()> {
    let store = Store::open(&job.store.root)?.of_host(&job.store.host);
    let store = store.within(job.store.quota);
    fault::at_carrier("taker");
    let writer = store.begin(job.checkpoint.app, job.checkpoint.id())?;
    Ok(writer.take_copy(&job.part, &mut io::stdin().lock(), None)?)
}

/// Writes an image to a pipe; its end only if all of it is whole.
fn hand_on(mut image: PartReader, pipe: OwnedFd) -> anyhow::Result<()> {
    let mut pipe = Lender::new(pipe, BUFFER)?;
    loop {
        let count = image.fill(pipe.room(0)?)?;
        if count == 0 {
            return Ok(());
        }
        pipe.filled(count);
        pipe.lend()?;
    }
}

/// All of a part but its name, in words: that of the host comes last and may have spaces.
fn facts(part: &Part) -> String {
    let hash = u128::from_le_bytes(part.hash);
    let base = part.base.map_or("-".to_owned(), |base| {
        let id = CheckpointId::new(base.generation, base.epoch);
        format!("{id}:{}", length(base.bytes, base.packed))
    });
    let stored = length(part.stored, part.packed);
    let (bytes, place) = (part.bytes, &part.place);
    format!("{bytes} {hash:032x} {stored} {base} {place}")
}

/// A length, and that of a compressed file.
fn length(bytes: u64, packed: Option<u64>) -> String {
    let packed = packed.map(|packed| format!("/{packed}"));
    format!("{bytes}{}", packed.unwrap_or_default())
}

fn parse_length(word: &str) -> Option<(u64, Option<u64>)> {
    match word.split_once('/') {
        None => Some((word.parse().ok()?, None)),
        Some((bytes, packed)) => Some((bytes.parse().ok()?, Some(packed.parse().ok()?))),
    }
}

fn parse_facts(name: String, words: &str) -> Option<Part> {
    let mut words = words.splitn(5, ' ');
    let mut next = || words.next();
    let bytes = next()?.parse().ok()?;
    let hash = u128::from_str_radix(next()?, 16).ok()?.to_le_bytes();
    let (stored, packed) = parse_length(next()?)?;
    Some(Part {
        name,
        bytes,
        hash,
        stored,
        packed,
        base: match next()? {
            "-" => None,
            base => {
                let (id, length) = base.split_once(':')?;
                let id = CheckpointId::parse(id)?;
                let (bytes, packed) = parse_length(length)?;
                Some(Base {
                    generation: id.generation,
                    epoch: id.epoch,
                    bytes,
                    packed,
                })
            }
        },
        place: next()?.to_owned(),
        copy: None,
    })
}

/// The work of a writer: stores the image that is standard input.
///
/// # Errors
/// Why it is not stored.
pub fn write(job: &WriterJob) -> anyhow::Result<()> {
    // Where that is not allowed, it is as urgent as others.
    let _ = nice(LATER);
    let (form, host) = (&job.form, &job.store.host);
    let mut store = Store::open(&job.store.root)?
        .in_full(form.full)
        .compressed(form.compress)
        .within(job.store.quota)
        .cached(form.cached);
    if job.local {
        store = store.of_host(host).copied_to(form.second.as_deref());
    }
    let writer = store.begin(job.checkpoint.app, job.checkpoint.id())?;
    let mut image = writer.image(job.tid, host, None)?;
    match job.length {
        None => take_in(|source| image.copy(source))?,
        Some(bytes) => take_out(bytes, &mut image)?,
    }
    acknowledge(&image.finish()?);
    Ok(())
}

/// Has what a task writes to standard input, through a pipe, copied from there; all of it has to come.
pub(crate) fn take_in(
    copy: impl FnOnce(&mut Passed<StdinLock<'static>>) -> Result<u64, StoreError>,
) -> anyhow::Result<()> {
    fault::at_carrier("writer");
    pass(io::stdin().lock(), copy)
}

/// Has all that a task has written copied from there.
fn pass<R>(
    source: R,
    copy: impl FnOnce(&mut Passed<R>) -> Result<u64, StoreError>,
) -> anyhow::Result<()> {
    let seen = Seen::default();
    let mut source = Passed { source, seen };
    let bytes = copy(&mut source)?;
    source.seen.ensure_whole(bytes)
}

/// Stores what a task has written into the memory that is standard input: so many bytes.
fn take_out(bytes: u64, image: &mut ImageWriter) -> anyhow::Result<()> {
    fault::at_carrier("writer");
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the task has said that it is written, and the daemon has it written into again only
        // when this process has ended.
        let written = unsafe { image_memory::Written::of(io::stdin().as_fd(), bytes) };
        if let Some(written) = written.context("looking at the memory that has it")? {
            let mut seen = Seen::default();
            seen.passed(&written);
            seen.ensure_whole(bytes)?;
            return Ok(image.write(&written)?);
        }
    }
    pass(io::stdin().lock().take(bytes), |source| image.copy(source))
}

/// The last word of a writer.
pub(crate) fn acknowledge(part: &Part) {
    eprintln!("{RECEIPT}{}", facts(part));
}

/// Passes on what a task writes, and looks whether all of it came.
pub(crate) struct Passed<R> {
    source: R,
    seen: Seen,
}

impl<R: Read> Read for Passed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.seen.passed(&buffer[..count]);
        Ok(count)
    }
}

/// What a task has written: an image or a portable state.
#[derive(Default)]
struct Seen {
    #[cfg(target_arch = "x86_64")]
    image: vm_image::format::EndSeen,
    state: EndSeen,
}

impl Seen {
    fn passed(&mut self, bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        self.image.passed(bytes);
        self.state.passed(bytes);
    }

    /// It has its end, after so many bytes.
    fn ensure_whole(&self, bytes: u64) -> anyhow::Result<()> {
        let is_whole = self.state.is_whole();
        #[cfg(target_arch = "x86_64")]
        let is_whole = is_whole || self.image.is_whole();
        ensure!(
            is_whole,
            "the process that wrote it ended early, after {bytes} bytes"
        );
        Ok(())
    }
}

/// What the last word of a writer says of the image of that name.
pub fn receipt(name: String, said: &str) -> Option<Part> {
    parse_facts(name, said.trim().strip_prefix(RECEIPT)?)
}

impl StoreLocation {
    /// The store, as a helper that writes to it is told.
    pub fn job(&self) -> StoreJob {
        StoreJob {
            root: self.root.clone(),
            host: self.host.clone(),
            quota: self.quota,
        }
    }

    /// The process that writes what comes out of `image`: all of a pipe, or so many bytes of
    /// memory.
    pub fn writer(
        &self,
        (app, id): (Tid, CheckpointId),
        tid: Tid,
        form: &Form,
        (image, length): (OwnedFd, Option<u64>),
    ) -> Command {
        let job = HelperJob::StoreWriter(WriterJob {
            store: self.job(),
            checkpoint: CheckpointJob::new(app, id),
            tid,
            form: form.clone(),
            local: self.local,
            length,
        });
        command("writer", &job, image.into(), Stdio::null())
    }

    /// The process that writes an image of a checkpoint to `out`.
    pub fn reader(&self, at: (Tid, CheckpointId), image: &Part, out: OwnedFd) -> Command {
        self.reader_of(at, image, false, out)
    }

    /// The process that writes the bytes of the image's file to `out`.
    pub fn file_reader(&self, at: (Tid, CheckpointId), image: &Part, out: OwnedFd) -> Command {
        self.reader_of(at, image, true, out)
    }

    fn reader_of(
        &self,
        (app, id): (Tid, CheckpointId),
        image: &Part,
        file: bool,
        out: OwnedFd,
    ) -> Command {
        let job = HelperJob::StoreReader(ReaderJob {
            root: self.root.clone(),
            checkpoint: CheckpointJob::new(app, id),
            part: image.clone(),
            file,
        });
        command("reader", &job, Stdio::null(), out.into())
    }

    /// The process that writes what comes out of `file` as a copy of an image of another host.
    pub fn taker(&self, (app, id): (Tid, CheckpointId), image: &Part, file: OwnedFd) -> Command {
        let job = HelperJob::StoreTaker(TakerJob {
            store: self.job(),
            checkpoint: CheckpointJob::new(app, id),
            part: image.clone(),
        });
        command("taker", &job, file.into(), Stdio::null())
    }
}

/// A helper that works with the store's folder, between two files.
pub fn command(point: &str, job: &HelperJob, stdin: Stdio, stdout: Stdio) -> Command {
    let mut command = helper::tied_command(job);
    fault::pass_on(&mut command, point);
    command.stdin(stdin).stdout(stdout);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};
    use vm_store::name;

    const APP: Tid = Tid(1 << 40 | 1 << 24 | 1);

    /// What the reader of an image writes, and what it says if that is not all.
    fn handed_on(store: &Store, image: &Part) -> (Vec<u8>, Result<(), String>) {
        let reader = store.open_part(APP, CheckpointId::new(0, 1), image);
        let reader = reader.expect("its length");
        let (out, pipe) = rustix::pipe::pipe().expect("a pipe");
        let restorer = thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = fs::File::from(out).read_to_end(&mut bytes);
            read.expect("it can be read");
            bytes
        });
        let result = hand_on(reader, pipe).map_err(|error| format!("{error:#}"));
        (restorer.join().expect("no panic"), result)
    }

    #[test]
    fn the_end_of_an_image_is_handed_on_only_if_all_of_it_is_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("store")).expect("a store");
        let writer = store.begin(APP, CheckpointId::new(0, 1));
        let name = name::image(APP, APP);
        let part = writer.and_then(|writer| writer.part(&name, "a host", None));
        let mut part = part.expect("a part");
        let whole: Vec<u8> = (0..3_000_000u32).map(|it| (it % 251) as u8).collect();
        part.write(&whole).expect("room");
        let image = part.finish().expect("a part");
        let (bytes, result) = handed_on(&store, &image);
        assert!(bytes == whole);
        assert_eq!(result, Ok(()));
        let path = store.root().join(name::app(APP)).join("g0-e1").join(&name);
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("it can be written");
            let (bytes, result) = handed_on(&store, &image);
            assert!(bytes.len() < whole.len(), "byte {at}");
            let said = result.expect_err("it is damaged");
            assert!(said.contains("t1.1.image: the part is damaged"), "{said}");
            assert!(said.contains("use another checkpoint"), "{said}");
        }
    }

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        let (app, tid) = (Tid(1 << 40 | 1 << 24 | 1), Tid(1 << 40 | 2 << 24 | 5));
        let hash = [7; 16];
        let base = Base {
            generation: 0,
            epoch: 3,
            bytes: 13,
            packed: None,
        };
        let compressed = Base {
            packed: Some(9),
            ..base
        };
        let bases = [None, Some(base), Some(compressed)];
        for (base, packed) in bases.into_iter().zip([None, Some(3), None]) {
            let part = Part {
                name: "t2.5.image".to_owned(),
                bytes: 12,
                hash,
                place: "a host".to_owned(),
                stored: 7,
                packed,
                base,
                copy: None,
            };
            let said = format!("{RECEIPT}{}\n", facts(&part));
            assert_eq!(receipt(name::image(app, tid), &said), Some(part));
        }
        let wrong = format!("stored 12 {:032x} 12 e1:1 n1", 7);
        let half = format!("stored 12 {:032x} 12/ - n1", 7);
        for bad in ["", "stored", "stored 12", "stored x y", &wrong, &half] {
            assert_eq!(receipt(name::image(app, tid), bad), None, "{bad}");
        }
    }
}
