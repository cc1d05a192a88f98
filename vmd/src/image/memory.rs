//! Memory that tasks which stand write their images into, for the time of a copy, so that they can go
//! on: the writer stores what is in there afterwards.
//!
//! ```text
//! task -> memory -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! Fresh memory costs many times what memory costs that is there: where the host is a virtual machine,
//! the computer below may have to find it first. So a task's memory is kept for its next image, but for
//! no longer than [`limits::IMAGE_MEMORY_TIME`], and only as long as the task is here. What the next
//! image may need more is found between the two, in a thread, as memory is given back there: both take
//! longer than a turn of the event loop may.
//!
//! No more of it is taken than half of what the host and its control groups have to spare
//! ([`crate::process::spare`]); a task that gets none has a copy write, or writes into a pipe, at the speed of the
//! store.

use crate::{image::images::LATER, process::spare};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, fstat, memfd_create, seek},
    process::nice,
};
use std::{
    collections::HashMap,
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};
#[cfg(target_arch = "x86_64")]
use vm_image::image_memory;
use vm_machine::Time;
use vm_wire::{Tid, limits};

/// One part of so many is what a task may grow by until its next image, without having that wait.
const GROWTH: u64 = 16;
/// What may wait for the thread. Beyond that memory is given back in the event loop, and none is found.
const QUEUE: usize = 8_192;

/// The memory of all tasks of this host.
#[derive(Debug, Default)]
pub struct Memories {
    of: HashMap<Tid, Memory>,
    /// The way to the thread, once there was something for it.
    thread: Option<SyncSender<Work>>,
    /// When it is looked at what is kept for too long.
    due: Option<Time>,
}

#[derive(Debug)]
struct Memory {
    /// A file without a name. It is shared with whoever writes or reads: so is the place in it.
    file: OwnedFd,
    /// What an image may need.
    bytes: u64,
    /// Of that, what may not be there yet.
    fresh: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// An image is written into it, or read out of it.
    Busy,
    /// It is kept since then.
    Kept(Time),
}

/// What the thread does.
#[derive(Debug)]
enum Work {
    /// Gives memory back.
    Free(OwnedFd),
    /// Finds what a file of so many bytes needs and has not.
    MakeRoom(OwnedFd, u64),
}

impl Memories {
    /// Memory for the image of a task of so many bytes, if there is room: an open file, at its
    /// beginning.
    pub fn open(&mut self, tid: Tid, bytes: u64, now: Time) -> Option<OwnedFd> {
        let kept = self.take_kept(tid);
        let spare = spare::room()?.least();
        let enough = match kept {
            // What is kept is given back where others may soon need it.
            Some(_) => bytes <= spare,
            None => self.has_room(bytes, spare),
        };
        if !enough {
            self.free(kept.map(|memory| memory.file));
            return None;
        }
        let memory = kept.map_or_else(|| Memory::new(bytes).ok(), Some)?;
        let written = memory.file.try_clone().ok()?;
        let state = State::Busy;
        let memory = Memory {
            bytes,
            state,
            ..memory
        };
        self.of.insert(tid, memory);
        self.due.get_or_insert(now + limits::MOVE_LOOK);
        Some(written)
    }

    /// A task of so many bytes will write its next image into memory: it is found meanwhile, if there is
    /// room.
    pub fn prepare(&mut self, tid: Tid, bytes: u64, now: Time) {
        if self.open(tid, bytes, now).is_some() {
            self.keep(tid, now);
        }
    }

    /// What is kept for a task, as new. What somebody may still read or write is not used again.
    fn take_kept(&mut self, tid: Tid) -> Option<Memory> {
        let memory = self.of.remove(&tid)?;
        if matches!(memory.state, State::Kept(_)) && seek(&memory.file, SeekFrom::Start(0)).is_ok()
        {
            return Some(memory);
        }
        self.free([memory.file]);
        None
    }

    /// Whether so many bytes may be taken yet, if the host has so many to spare. What others were given
    /// and have not touched it still has.
    fn has_room(&self, bytes: u64, spare: u64) -> bool {
        let fresh = self.of.values().map(|memory| memory.fresh);
        fresh.sum::<u64>().saturating_add(bytes) <= spare / 2
    }

    /// The image of a task is written: what the writer is to read, and how many bytes of that.
    ///
    /// # Errors
    /// There is no such memory, or what the system says.
    pub fn written(&mut self, tid: Tid) -> io::Result<(OwnedFd, Option<u64>)> {
        let memory = self.of.get(&tid).ok_or(io::ErrorKind::NotFound)?;
        let bytes = seek(&memory.file, SeekFrom::Current(0))?;
        seek(&memory.file, SeekFrom::Start(0))?;
        Ok((memory.file.try_clone()?, Some(bytes)))
    }

    /// The image of a task was stored: its memory is kept for the next one.
    pub fn stored(&mut self, tid: Tid, now: Time) {
        if let Some(memory) = self.of.get_mut(&tid) {
            memory.fresh = 0;
            self.keep(tid, now);
        }
    }

    /// Keeps the memory of a task, and has found what it lacks.
    fn keep(&mut self, tid: Tid, now: Time) {
        let Some(memory) = self.of.get_mut(&tid) else {
            return;
        };
        memory.state = State::Kept(now);
        let bytes = memory.bytes;
        if lacks_room(&memory.file, bytes)
            && let Ok(file) = memory.file.try_clone()
        {
            // Without it the next image takes longer. It may have grown by then.
            self.aside(Work::MakeRoom(file, bytes + bytes / GROWTH));
        }
    }

    /// The image of a task is of no use any more; somebody may still be reading or writing it.
    pub fn drop_busy(&mut self, tid: Tid) {
        let busy = |memory: &Memory| memory.state == State::Busy;
        if self.of.get(&tid).is_some_and(busy) {
            let file = self.of.remove(&tid).map(|memory| memory.file);
            self.free(file);
        }
    }

    /// When [`Memories::tick`] has something to do.
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Frees what was kept for too long, or for a task that is not here any more.
    pub fn tick(&mut self, now: Time, is_here: impl Fn(Tid) -> bool) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let long = |memory: &Memory| match memory.state {
            State::Kept(since) => now >= since + limits::IMAGE_MEMORY_TIME,
            State::Busy => false,
        };
        // Whoever still reads what is left of a task that has ended has it open.
        let old = |tid: &Tid, memory: &mut Memory| long(memory) || !is_here(*tid);
        let old = self.of.extract_if(old).map(|(_, memory)| memory.file);
        let old: Vec<OwnedFd> = old.collect();
        self.free(old);
        self.due = (!self.of.is_empty()).then_some(now + limits::MOVE_LOOK);
    }

    fn free(&mut self, files: impl IntoIterator<Item = OwnedFd>) {
        for file in files {
            self.aside(Work::Free(file));
        }
    }

    /// Has the thread do that, if it can.
    fn aside(&mut self, work: Work) {
        if self.thread.is_none() {
            let (queue, works) = sync_channel(QUEUE);
            let thread = thread::Builder::new().name("memory".to_owned());
            match thread.spawn(move || serve(&works)) {
                Ok(_) => self.thread = Some(queue),
                Err(error) => log::debug!("no thread for memory can be started: {error}"),
            }
        }
        if let Some(thread) = &self.thread {
            // What it does not take is dropped here.
            let _ = thread.try_send(work);
        }
    }
}

impl Memory {
    /// None of it is there yet.
    fn new(bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("vm-image", flags).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("memfd_create, which images need, is refused: {error}");
            io::Error::new(error.kind(), text)
        });
        Ok(Memory {
            file: file?,
            bytes,
            fresh: bytes,
            state: State::Busy,
        })
    }
}

/// The thread: until the daemon ends.
fn serve(works: &Receiver<Work>) {
    // Where that is not allowed, it is as urgent as others. It counts for this thread alone.
    let _ = nice(LATER);
    for work in works {
        match work {
            Work::Free(file) => drop(file),
            Work::MakeRoom(file, bytes) => make_room(&file, bytes),
        }
    }
}

/// Whether a file has less memory than so many bytes.
fn lacks_room(file: &OwnedFd, bytes: u64) -> bool {
    // Blocks of stat(2) are of 512 bytes.
    fstat(file).is_ok_and(|stat| (stat.st_blocks as u64).saturating_mul(512) < bytes)
}

/// Finds the memory that a file of so many bytes needs and has not, in large pages if it can be.
fn make_room(file: &OwnedFd, bytes: u64) {
    #[cfg(target_arch = "x86_64")]
    match image_memory::make(file.as_fd(), bytes) {
        Ok(()) => return,
        Err(error) => log::debug!("no large pages for an image of {bytes} bytes: {error}"),
    }
    if let Err(error) = fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        log::debug!("no room was made for an image of {bytes} bytes: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Write},
        time::Duration,
    };

    const TASK: Tid = Tid(1);
    const OTHER: Tid = Tid(2);
    const NOW: Time = Time(0);

    /// Writes an image of a task, and reads it again.
    fn through(memories: &mut Memories, image: &[u8]) -> Vec<u8> {
        let memory = memories
            .open(TASK, image.len() as u64, NOW)
            .expect("memory");
        File::from(memory).write_all(image).expect("room");
        let mut bytes = Vec::new();
        let (written, length) = memories.written(TASK).expect("it was opened");
        let read = File::from(written)
            .take(length.expect("it is known"))
            .read_to_end(&mut bytes);
        read.expect("bytes");
        bytes
    }

    fn number(memories: &Memories, tid: Tid) -> Option<u64> {
        let memory = memories.of.get(&tid)?;
        Some(fstat(&memory.file).expect("a file").st_ino)
    }

    #[test]
    fn the_next_image_gets_the_same_memory_and_ends_where_it_ends() {
        let mut memories = Memories::default();
        assert!(through(&mut memories, &[1; 100_000]) == [1; 100_000]);
        let first = number(&memories, TASK);
        memories.stored(TASK, NOW);
        assert!(through(&mut memories, &[2; 5_000]) == [2; 5_000]);
        assert_eq!(number(&memories, TASK), first);
    }

    #[test]
    fn room_is_made_for_what_an_image_may_have_at_most() {
        let memory = Memory::new(1 << 20).expect("memory");
        assert!(lacks_room(&memory.file, 1 << 20));
        make_room(&memory.file, 1 << 20);
        assert!(!lacks_room(&memory.file, 1 << 20));
    }

    #[test]
    fn what_is_found_before_is_there_for_the_next_image() {
        let mut memories = Memories::default();
        memories.prepare(TASK, 100_000, NOW);
        let prepared = number(&memories, TASK);
        assert!(prepared.is_some());
        // Others do not get it meanwhile.
        assert!(!memories.has_room(1, 2 * 100_000));
        assert!(through(&mut memories, &[1; 100_000]) == [1; 100_000]);
        assert_eq!(number(&memories, TASK), prepared);
        memories.stored(TASK, NOW);
        assert!(memories.has_room(1, 2));
        // It is of no use to a task that does not write for a while.
        memories.prepare(OTHER, 100_000, NOW);
        memories.tick(NOW + limits::IMAGE_MEMORY_TIME, |_| true);
        assert_eq!(number(&memories, OTHER), None);
    }

    #[test]
    fn what_somebody_may_still_write_or_read_is_not_used_again() {
        let mut memories = Memories::default();
        let hung = memories.open(TASK, 10, NOW).expect("memory");
        let first = number(&memories, TASK);
        let next = memories.open(TASK, 10, NOW).expect("memory");
        assert_ne!(number(&memories, TASK), first);
        File::from(hung).write_all(b"late").expect("room");
        File::from(next).write_all(b"next").expect("room");
        let mut bytes = String::new();
        let (written, length) = memories.written(TASK).expect("it was opened");
        let read = File::from(written)
            .take(length.expect("it is known"))
            .read_to_string(&mut bytes);
        assert_eq!((read.expect("bytes"), &bytes[..]), (4, "next"));
        memories.drop_busy(TASK);
        assert!(memories.written(TASK).is_err());
    }

    #[test]
    fn it_is_kept_for_a_while_and_only_for_tasks_that_are_here() {
        let mut memories = Memories::default();
        for tid in [TASK, OTHER] {
            memories.open(tid, 10, NOW).expect("memory");
            memories.stored(tid, NOW);
        }
        let look = memories.deadline().expect("something is kept");
        memories.tick(look, |tid| tid == TASK);
        assert_eq!(number(&memories, OTHER), None);
        assert!(number(&memories, TASK).is_some());
        let end = NOW + limits::IMAGE_MEMORY_TIME;
        memories.tick(Time(end.0 - 1), |_| true);
        assert!(number(&memories, TASK).is_some());
        memories.tick(end + Duration::from_secs(1), |_| true);
        assert_eq!(number(&memories, TASK), None);
        assert_eq!(memories.deadline(), None);
    }

    #[test]
    fn no_more_is_taken_than_half_of_what_there_is_to_spare() {
        let mut memories = Memories::default();
        assert!(memories.has_room(50, 100));
        assert!(!memories.has_room(51, 100));
        memories.open(TASK, 40, NOW).expect("memory");
        assert!(memories.has_room(10, 100));
        assert!(!memories.has_room(11, 100));
        // Of what is kept the host knows that it is not to spare.
        memories.stored(TASK, NOW);
        assert!(memories.has_room(50, 100));
        // Nor needs it more.
        memories.open(TASK, 40, NOW).expect("it was kept");
        assert!(memories.has_room(50, 100));
    }
}
