//! Writes images into the store and reads them from it, each in a helper process, so that no turn
//! of the daemon waits for a disk.
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! The pipe may be replaced by memory ([`crate::image::memory`]), in which the writer finds the
//! whole image.
//!
//! The writer stores the whole image, or only the blocks that differ from an earlier image of the
//! task. It hashes the image, syncs the file, and writes a receipt as its last output: the length
//! of the image, its hash, and how many bytes of it are stored. By the receipt the daemon knows
//! that the image is stored whole. The thread for jobs commits checkpoints
//! ([`crate::event_loop::jobs`]); it also reads manifests.
//!
//! A restore works like a move, with a reader in the place of the receiver:
//!
//! ```text
//! STORE/APPLICATION/CHECKPOINT/TASK.image -> reader -> pipe -> restorer
//! ```
//!
//! If each host has a store of its own, the file of each image also goes to a second host. An image
//! that is restored on another host goes there as an image that moves from host to host
//! ([`crate::image::transfer`]):
//!
//! ```text
//! STORE -> reader -> pipe -> sender  == TCP, sealed ==>  receiver -> pipe -> taker -> STORE
//!                                                                         -> restorer
//! ```
//!
//! The reader verifies the bytes that it reads, and passes on the last bytes of an image only when
//! the whole image was verified. The end of the image is in those bytes, so no process is ever made
//! from a damaged image.

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

/// Added to the nice value of a writer. The writer runs beside the tasks whose copies it stores; if
/// processors are short, it gets a quarter of the time of a task.
pub(crate) const LATER: i32 = 5;
/// Prefix of a writer's receipt.
const RECEIPT: &str = "stored ";

/// The work of a reader: writes a part, or the image in the part, to standard output.
///
/// # Errors
/// The reason why not everything was written.
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
        // The process that reads the pipe has ended, and reports the reason itself.
        Err(error) if error.downcast_ref() == Some(&Errno::PIPE) => Ok(()),
        passed => passed,
    }
}

/// The work of a taker: stores a copy of a part of another host.
///
/// # Errors
/// The reason why the part was not stored.
pub fn take(job: &TakerJob) -> anyhow::Result<()> {
    let store = Store::open(&job.store.root)?.of_host(&job.store.host);
    let store = store.within(job.store.quota);
    fault::at_carrier("taker");
    let writer = store.begin(job.checkpoint.app, job.checkpoint.id())?;
    Ok(writer.take_copy(&job.part, &mut io::stdin().lock(), None)?)
}

/// Writes an image to a pipe. The end of the image is written only if the whole image was verified.
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

/// The facts of a part except its name, as words. The host's name comes last, because it may have
/// spaces.
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

/// A length and the length of the compressed file, as one word.
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
/// The reason why the image was not stored.
pub fn write(job: &WriterJob) -> anyhow::Result<()> {
    // If raising the nice value is not allowed, the writer runs at normal priority.
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

/// Has `copy` store the image that a task writes to standard input through a pipe, and checks that
/// the image came whole.
pub(crate) fn take_in(
    copy: impl FnOnce(&mut Passed<StdinLock<'static>>) -> Result<u64, StoreError>,
) -> anyhow::Result<()> {
    fault::at_carrier("writer");
    pass(io::stdin().lock(), copy)
}

/// Has `copy` store everything that a task has written to `source`, and checks that the image is
/// whole.
fn pass<R>(
    source: R,
    copy: impl FnOnce(&mut Passed<R>) -> Result<u64, StoreError>,
) -> anyhow::Result<()> {
    let seen = Seen::default();
    let mut source = Passed { source, seen };
    let bytes = copy(&mut source)?;
    source.seen.ensure_whole(bytes)
}

/// Stores the first `bytes` bytes of the memory that is standard input.
fn take_out(bytes: u64, image: &mut ImageWriter) -> anyhow::Result<()> {
    fault::at_carrier("writer");
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the task has reported that the image is written, and the daemon lets the memory
        // be written again only after this process has ended.
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

/// Writes the receipt of a writer.
pub(crate) fn acknowledge(part: &Part) {
    eprintln!("{RECEIPT}{}", facts(part));
}

/// Passes on the bytes that a task writes, and checks whether all of the image came.
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

/// The kind of content, as far as the bytes have shown it: an image or a portable state.
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

    /// Checks that the image has its end after this number of bytes.
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

/// Reads the receipt in a writer's output; `name` is the name of the image.
pub fn receipt(name: String, said: &str) -> Option<Part> {
    parse_facts(name, said.trim().strip_prefix(RECEIPT)?)
}

impl StoreLocation {
    /// The store, as part of the job of a helper process that writes to it.
    pub fn job(&self) -> StoreJob {
        StoreJob {
            root: self.root.clone(),
            host: self.host.clone(),
            quota: self.quota,
        }
    }

    /// The process that stores the image from `image`: all bytes of a pipe, or the given number of
    /// bytes of memory.
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

    /// The process that stores the bytes from `file` as a copy of another host's part.
    pub fn taker(&self, (app, id): (Tid, CheckpointId), image: &Part, file: OwnedFd) -> Command {
        let job = HelperJob::StoreTaker(TakerJob {
            store: self.job(),
            checkpoint: CheckpointJob::new(app, id),
            part: image.clone(),
        });
        command("taker", &job, file.into(), Stdio::null())
    }
}

/// A helper process that works with the store's folder, between two files.
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

    /// The output of the reader of an image, and its error if the output is not complete.
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
    fn the_end_of_an_image_is_passed_on_only_if_the_whole_image_is_verified() {
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
