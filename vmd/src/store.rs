//! The way of images into the store: for each a process of its own, so that no turn of the daemon
//! waits for a disk.
//!
//! ```text
//! task -> pipe -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! The writer stores all of it, or what differs from an earlier image of the task. It hashes it, syncs
//! what it wrote and says, as its last word, how long the image is, what its hash is, and how much of
//! it is stored. That is the receipt by which the daemon knows that it is whole. The commit of a
//! checkpoint is made by the thread for jobs ([`crate::jobs`]), which reads manifests, too.
//!
//! The way back is that of a task that was moved, with a reader in the place of the receiver:
//!
//! ```text
//! STORE/APPLICATION/CHECKPOINT/TASK.image -> reader -> pipe -> restorer
//! ```
//!
//! Where each host has a store of its own, the file of each image goes to a second host, too, and an
//! image that is brought back elsewhere goes there, by the way of images from host to host
//! ([`crate::transfer`]):
//!
//! ```text
//! STORE -> reader -> pipe -> sender  == TCP, sealed ==>  receiver -> pipe -> taker -> STORE
//!                                                                         -> restorer
//! ```
//!
//! The reader verifies what it reads, and hands on the last bytes of an image only when all of it has
//! proved whole. An image has its end there, so no process stands that was made of a damaged one.

use crate::{fault, lent::Lender, transfer};
use anyhow::{Context as _, anyhow, ensure};
use rustix::{
    fd::{AsFd as _, OwnedFd},
    io::Errno,
    process::nice,
};
use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::Stdio,
    time::{SystemTime, UNIX_EPOCH},
};
use vm_machine::placement::ANY_ARCH;
use vm_store::{
    Base, CheckpointId, Depth, Flaw, Manifest, PartReader, SavedTask, Stocked, Store, StoreError,
    limits::BUFFER, name,
};
use vm_wire::{
    HostId, Tid,
    checkpoint::{AgreedPart, AgreedTask, Checkpoint, Committed, Loaded, Part, SavedPart},
    decode, encode, limits,
    portable::EndSeen,
    stores::StockRow,
    task::{FailKind, Failed},
};

/// The first arguments of the processes.
const WRITER: &str = "store-writer";
const READER: &str = "store-reader";
const TAKER: &str = "store-taker";
/// What a reader reads: what a part holds, or its file.
const CONTENT: &str = "content";
const FILE: &str = "file";
/// How the form of an image begins in words, if the store is this host's own.
const LOCAL: &str = "local";
/// How it ends, if the image is stored in full or compressed, or both in this order: no name of a host
/// has either.
const FULL: &str = "!";
const COMPRESSED: &str = "%";
/// An error names at most so many applications.
const APPS_SHOWN: usize = 16;
/// Added to the nice value of a writer: it goes on beside the tasks whose copies it writes, and gets a
/// quarter of the time that one of them gets, where processors are short.
const LATER: i32 = 5;
/// How its last word begins.
pub(crate) const RECEIPT: &str = "stored ";

/// If this process was started as one of them: runs it, and says how it ended.
pub fn run_if_asked() -> Option<anyhow::Result<()>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [WRITER, root, host, quota, form, app, id, tid] => {
            Some(write((root, host, quota), form, app, id, tid).context("storing an image"))
        }
        [READER, what, root, app, id, name, facts] => {
            Some(read(what, root, app, id, name, facts).context("reading an image"))
        }
        [TAKER, root, host, quota, app, id, name, facts] => {
            let place = (root, host, quota);
            Some(take(place, app, id, name, facts).context("storing a copy of an image"))
        }
        _ => None,
    }
}

fn read(
    what: &str,
    root: &str,
    app: &str,
    id: &str,
    name: &str,
    facts: &str,
) -> anyhow::Result<()> {
    let (app, id, part) = parse_part(app, id, name, facts)?;
    let store = Store::open(root)?;
    if what == FILE {
        let mut file = store.open_file(app, id, &part)?;
        fault::at_carrier("reader");
        io::copy(&mut file, &mut io::stdout().lock())?;
        return Ok(());
    }
    let image = store.open_part(app, id, &part)?;
    fault::at_carrier("reader");
    match hand_on(image, io::stdout().as_fd().try_clone_to_owned()?) {
        // Who reads it has ended, and is asked why.
        Err(error) if error.downcast_ref() == Some(&Errno::PIPE) => Ok(()),
        passed => passed,
    }
}

/// Writes a copy of a part of another host's.
fn take(
    (root, host, quota): (&str, &str, &str),
    app: &str,
    id: &str,
    name: &str,
    facts: &str,
) -> anyhow::Result<()> {
    let (app, id, part) = parse_part(app, id, name, facts)?;
    let store = Store::open(root)?.of_host(host);
    let room = room(&store, quota)?;
    fault::at_carrier("taker");
    let writer = store.begin(app, id)?;
    Ok(writer.take_copy(&part, &mut io::stdin().lock(), room)?)
}

fn parse_part(
    app: &str,
    id: &str,
    name: &str,
    facts: &str,
) -> anyhow::Result<(Tid, CheckpointId, Part)> {
    let id = CheckpointId::parse(id).context("no name of a checkpoint")?;
    let part = parse_facts(name.to_owned(), facts).context("no part of a checkpoint")?;
    Ok((Tid(app.parse()?), id, part))
}

/// What may be written yet, if there is a quota.
pub(crate) fn room(store: &Store, quota: &str) -> anyhow::Result<Option<u64>> {
    Ok(match quota.parse()? {
        0 => None,
        quota => Some(store.room(quota)?),
    })
}

/// Writes an image to a pipe; its end only if all of it is whole.
pub(crate) fn hand_on(mut image: PartReader, pipe: OwnedFd) -> anyhow::Result<()> {
    let mut pipe = Lender::new(pipe, BUFFER)?;
    loop {
        let count = image.fill(pipe.room()?)?;
        if count == 0 {
            return Ok(());
        }
        pipe.filled(count);
        pipe.lend()?;
    }
}

/// All of a part but its name, in words: that of the host comes last and may have spaces.
pub(crate) fn facts(part: &Part) -> String {
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

pub(crate) fn parse_facts(name: String, words: &str) -> Option<Part> {
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

/// How an image is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    /// If this host's store is its own, the host that gets a copy, if any does.
    pub second: Option<String>,
    /// It is stored in full, whatever is there.
    pub full: bool,
    /// Its file is compressed.
    pub compress: bool,
}

fn write(
    (root, host, quota): (&str, &str, &str),
    form: &str,
    app: &str,
    id: &str,
    tid: &str,
) -> anyhow::Result<()> {
    let (app, tid) = (Tid(app.parse()?), Tid(tid.parse()?));
    let id = CheckpointId::parse(id).context("no name of a checkpoint")?;
    // Where that is not allowed, it is as urgent as others.
    let _ = nice(LATER);
    let (form, compress) = ending(form, COMPRESSED);
    let (form, full) = ending(form, FULL);
    let mut store = Store::open(root)?.in_full(full).compressed(compress);
    if let Some(second) = form.strip_prefix(LOCAL) {
        store = store.of_host(host).copied_to(second.strip_prefix(':'));
    }
    let room = room(&store, quota)?;
    let mut image = store.begin(app, id)?.image(tid, host, room)?;
    fault::at_carrier("writer");
    let mut source = Passed::new(io::stdin().lock());
    let bytes = image.copy(&mut source)?;
    ensure!(
        source.is_whole(),
        "the process that wrote it ended early, after {bytes} bytes"
    );
    eprintln!("{RECEIPT}{}", facts(&image.finish()?));
    Ok(())
}

/// What comes before such an end, and whether there is one.
fn ending<'a>(form: &'a str, end: &str) -> (&'a str, bool) {
    match form.strip_suffix(end) {
        None => (form, false),
        Some(form) => (form, true),
    }
}

/// Passes on what a task writes, an image or a portable state, and looks whether all of it came.
pub(crate) struct Passed<R> {
    #[cfg(target_arch = "x86_64")]
    source: vm_checkpoint::image::ToTheEnd<R>,
    #[cfg(not(target_arch = "x86_64"))]
    source: R,
    state: EndSeen,
}

impl<R: Read> Passed<R> {
    pub(crate) fn new(source: R) -> Self {
        Passed {
            #[cfg(target_arch = "x86_64")]
            source: vm_checkpoint::image::ToTheEnd::new(source),
            #[cfg(not(target_arch = "x86_64"))]
            source,
            state: EndSeen::default(),
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.source.is_whole() {
            return true;
        }
        self.state.is_whole()
    }
}

impl<R: Read> Read for Passed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.state.passed(&buffer[..count]);
        Ok(count)
    }
}

/// What the last word of a writer says.
pub fn receipt(app: Tid, tid: Tid, said: &str) -> Option<Part> {
    let facts = said.trim().strip_prefix(RECEIPT)?;
    parse_facts(name::image(app, tid), facts)
}

/// Where this daemon's checkpoints are, and under which name it writes.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder.
    pub root: PathBuf,
    /// The host.
    pub host: String,
    /// How many bytes all that is there may have; 0: any.
    pub quota: u64,
    /// It is this host's own; else all hosts share it.
    pub local: bool,
}

impl Place {
    fn open(&self) -> Result<Store, StoreError> {
        let store = Store::open(&self.root)?;
        Ok(match self.local {
            true => store.of_host(&self.host),
            false => store,
        })
    }

    /// Starts the process that writes what comes out of `image`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_writer(
        &self,
        (app, id): (Tid, CheckpointId),
        tid: Tid,
        form: &Form,
        image: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        let mut words = match (self.local, &form.second) {
            (false, _) => String::new(),
            (true, None) => LOCAL.to_owned(),
            (true, Some(second)) => format!("{LOCAL}:{second}"),
        };
        words.push_str(if form.full { FULL } else { "" });
        words.push_str(if form.compress { COMPRESSED } else { "" });
        let words = [
            &self.host,
            &self.quota.to_string(),
            &words,
            &app.0.to_string(),
            &id.to_string(),
            &tid.0.to_string(),
        ];
        self.start("writer", &[WRITER], words, image.into(), Stdio::null())
    }

    /// Starts the process that writes an image of a checkpoint to `out`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_reader(
        &self,
        at: (Tid, CheckpointId),
        image: &Part,
        out: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        self.start_reader_of(CONTENT, at, image, out)
    }

    /// Likewise, that writes the bytes of its file.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_file_reader(
        &self,
        at: (Tid, CheckpointId),
        image: &Part,
        out: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        self.start_reader_of(FILE, at, image, out)
    }

    /// Starts the process that writes what comes out of `file` as a copy of an image of another host.
    ///
    /// # Errors
    /// What the system says.
    pub fn start_taker(
        &self,
        (app, id): (Tid, CheckpointId),
        image: &Part,
        file: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        let words = [
            &self.host,
            &self.quota.to_string(),
            &app.0.to_string(),
            &id.to_string(),
            &image.name,
            &facts(image),
        ];
        self.start("taker", &[TAKER], words, file.into(), Stdio::null())
    }

    fn start_reader_of(
        &self,
        what: &str,
        (app, id): (Tid, CheckpointId),
        image: &Part,
        out: OwnedFd,
    ) -> io::Result<transfer::Carried> {
        let words = [
            &app.0.to_string(),
            &id.to_string(),
            &image.name,
            &facts(image),
        ];
        let kind = [READER, what];
        self.start("reader", &kind, words, Stdio::null(), out.into())
    }

    /// Starts this program as one of the processes above, between two files.
    fn start<const N: usize>(
        &self,
        name: &str,
        kind: &[&str],
        words: [&String; N],
        stdin: Stdio,
        stdout: Stdio,
    ) -> io::Result<transfer::Carried> {
        let mut command = transfer::tied_program();
        fault::pass_on(&mut command, name);
        command.args(kind).arg(&self.root).args(words);
        command.stdin(stdin).stdout(stdout);
        transfer::spawn(command)
    }

    /// What a checkpoint holds: that one, or the last one that is whole, as far as such a look can
    /// tell.
    ///
    /// # Errors
    /// Why it cannot be read, or that there is none.
    pub fn load(&self, app: Tid, from: Option<(u32, u32)>, depth: Depth) -> Result<Loaded, Failed> {
        load(&self.root, app, from, depth).map_err(|error| {
            let text = format!("the checkpoint cannot be read: {error}");
            Failed::new(FailKind::System, text)
        })
    }

    /// Removes what was written of a checkpoint.
    pub fn drop_checkpoint(&self, app: Tid, id: CheckpointId) {
        let dropped = self.open().and_then(|store| store.give_up(app, id));
        if let Err(error) = dropped {
            log::warn!("what is in the store of a checkpoint that was given up stays: {error}");
        }
    }

    /// What is here of the checkpoints of an application, or of that one.
    ///
    /// # Errors
    /// Why the store cannot be read.
    pub fn stock(
        &self,
        app: Tid,
        from: Option<(u32, u32)>,
        depth: Depth,
    ) -> Result<Vec<StockRow>, Failed> {
        let only = from.map(|(generation, epoch)| CheckpointId::new(generation, epoch));
        let stocked = self
            .open()
            .and_then(|store| store.stock(app, only, depth, limits::STOCK_MAX));
        match stocked {
            Ok(stocked) => Ok(stocked.into_iter().map(row).collect()),
            Err(error) => Err(Failed::new(FailKind::System, error.to_string())),
        }
    }

    /// Removes all checkpoints of an application.
    pub fn forget(&self, app: Tid) {
        if let Err(error) = self.open().and_then(|store| store.forget(app)) {
            log::warn!(
                "checkpoints of {} stay in the store: {error}",
                name::app(app)
            );
        }
    }

    /// Commits a checkpoint, all of whose parts were written.
    pub fn commit(&self, checkpoint: &Checkpoint) -> Committed {
        let agreed = &checkpoint.agreed;
        let result = self.open().map_err(anyhow::Error::from);
        let result = result.and_then(|store| commit(&store, checkpoint));
        let result = result.map_err(|error| {
            let mut text = format!("the checkpoint cannot be committed: {error}");
            if let Some(StoreError::Part {
                flaw: Flaw::Missing { place },
                ..
            }) = error.downcast_ref()
                && *place != self.host
                && !self.local
            {
                let (here, root) = (&self.host, self.root.display());
                text = format!(
                    "what '{place}' has saved is not in the store of '{here}', {root}: all daemons \
                     of a machine have to be given the same folder (vmd --store), or each one of \
                     its own (--store-local)"
                );
            }
            if self.local {
                // Nobody else may need it here.
                log::warn!("{text}");
            }
            Failed::new(FailKind::System, text)
        });
        Committed {
            app: agreed.app,
            epoch: agreed.epoch,
            result,
        }
    }
}

fn commit(store: &Store, checkpoint: &Checkpoint) -> anyhow::Result<()> {
    let agreed = &checkpoint.agreed;
    let id = CheckpointId::new(agreed.generation, agreed.epoch);
    let manifest = manifest(checkpoint)?;
    store.begin(agreed.app, id)?.commit(&manifest)?;
    // It is there, whatever becomes of older ones.
    let keep = match agreed.policy.keep {
        0 => limits::CHECKPOINTS_KEPT,
        keep => keep,
    };
    if let Err(error) = store.prune(agreed.app, keep as usize, Depth::Lengths) {
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
        arch: match part.belongings.portable {
            true => ANY_ARCH.to_owned(),
            false => task.place.1.clone(),
        },
        incarnation: task.incarnation,
        asker: task.asker,
        request: task.request,
        index: task.index,
        program: task.program.clone(),
        image: part.image.clone(),
        freeze_us: part.freeze_us,
        unacknowledged: part.unacknowledged,
        belongings: encode(&part.belongings).into(),
    });
    let master = agreed.tasks.iter().find(|task| task.tid == agreed.app);
    let first = master.or(agreed.tasks.first());
    Ok(Manifest {
        machine: agreed.machine,
        app: agreed.app,
        program: first.map(|task| task.program.clone()).unwrap_or_default(),
        generation: agreed.generation,
        epoch: agreed.epoch,
        index: agreed.index,
        taken_ms: now_ms(),
        took_us: checkpoint.took_us,
        policy: agreed.policy,
        tasks: tasks.collect(),
        groups: agreed.groups.clone(),
        kept: checkpoint.kept.clone(),
    })
}

/// What others are told of what is here.
fn row(stocked: Stocked) -> StockRow {
    let Stocked { id, here, .. } = stocked;
    let (tasks, unread) = match stocked.manifest {
        Ok(manifest) => (manifest.tasks.len() as u32, None),
        Err(why) => (0, Some(why)),
    };
    let flaws = unread.into_iter().chain(stocked.flaws);
    let flaws = flaws.take(limits::FLAWS_MAX).map(|why| why.to_string());
    StockRow {
        generation: id.generation,
        epoch: id.epoch,
        tasks,
        here,
        flaws: flaws.collect(),
    }
}

fn load(root: &Path, app: Tid, from: Option<(u32, u32)>, depth: Depth) -> anyhow::Result<Loaded> {
    let store = Store::open(root)?;
    let mut passed_over = Vec::new();
    let manifest = match from {
        Some((generation, epoch)) => store.read(app, CheckpointId::new(generation, epoch))?,
        None => {
            let last = store.last_good(app, depth)?;
            let newer = last.passed_over.into_iter();
            passed_over.extend(newer.map(|(id, why)| format!("{id}: {why}")));
            last.good
                .with_context(|| none_good(&store, app, &passed_over))?
                .1
        }
    };
    let mut tasks = Vec::new();
    let mut parts = Vec::new();
    for task in manifest.tasks {
        parts.push(SavedPart {
            image: task.image,
            belongings: decode(&task.belongings)
                .map_err(|cause| anyhow!("what belongs to task {}: {cause}", task.tid))?,
            freeze_us: task.freeze_us,
            unacknowledged: task.unacknowledged,
        });
        tasks.push(AgreedTask {
            tid: task.tid,
            // That was in another machine, perhaps.
            host: HostId::NONE,
            place: (task.host, task.arch),
            incarnation: task.incarnation,
            asker: task.asker,
            request: task.request,
            index: task.index,
            program: task.program,
        });
    }
    let agreed = AgreedPart {
        machine: manifest.machine,
        app,
        generation: manifest.generation,
        epoch: manifest.epoch,
        index: manifest.index,
        tasks,
        keepers: Vec::new(),
        groups: manifest.groups,
        policy: manifest.policy,
    };
    let kept = manifest.kept;
    let checkpoint = Checkpoint {
        agreed,
        parts,
        kept,
        took_us: manifest.took_us,
    };
    Ok(Loaded {
        checkpoint,
        passed_over,
        age_ms: now_ms().saturating_sub(manifest.taken_ms),
    })
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Why no checkpoint of an application can be used, and what there is instead.
fn none_good(store: &Store, app: Tid, damaged: &[String]) -> String {
    let (name, root) = (name::app(app), store.root().display());
    if let Some(first) = damaged.first() {
        return format!("none of {name} is whole (vm checkpoints --verify): {first}");
    }
    let mut apps: Vec<Tid> = store
        .list()
        .into_iter()
        .flatten()
        .map(|it| it.app)
        .collect();
    apps.dedup();
    let apps = apps.into_iter().take(APPS_SHOWN).map(name::app);
    match &apps.collect::<Vec<_>>()[..] {
        [] => format!("there is none of {name}, nor of another application, in {root}"),
        names => format!(
            "there is none of {name} in {root}, but of {}",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};

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
            assert_eq!(receipt(app, tid, &said), Some(part));
        }
        let wrong = format!("stored 12 {:032x} 12 e1:1 n1", 7);
        let half = format!("stored 12 {:032x} 12/ - n1", 7);
        for bad in ["", "stored", "stored 12", "stored x y", &wrong, &half] {
            assert_eq!(receipt(app, tid, bad), None, "{bad}");
        }
    }
}
