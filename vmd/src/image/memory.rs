//! Memory into which frozen tasks write their images, so that the tasks resume before the images
//! are on a disk: a writer stores the content of the memory afterwards.
//!
//! ```text
//! task -> memory -> writer -> STORE/APPLICATION/CHECKPOINT/TASK.image
//! ```
//!
//! Fresh memory costs many times what present memory costs: on a virtual machine, the computer
//! below may have to find it first. So the memory of a task's image is kept for the next image, but
//! for no longer than [`limits::IMAGE_MEMORY_TIME`], and only as long as the task is on this host.
//! A thread allocates, between two images, the additional memory that the next image may need. The
//! thread also frees memory. Both take longer than a turn of the event loop may.
//!
//! The images take at most half of the memory that the host and its control groups have to spare
//! ([`crate::process::spare`]). If a task gets no memory, a copy of it writes the image, or the
//! task itself writes into a pipe, at the speed of the store.

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

/// A task may grow by one part in this number until its next image without a wait for memory.
const GROWTH: u64 = 16;
/// Bound on the work that waits for the thread. Beyond it, memory is freed in the event loop, and
/// none is allocated in advance.
const QUEUE: usize = 8_192;

/// The image memory of all tasks of this host.
#[derive(Debug, Default)]
pub struct Memories {
    of: HashMap<Tid, Memory>,
    /// The queue of the thread; none until there was work for it.
    thread: Option<SyncSender<Work>>,
    /// When memory that was kept for too long is looked for.
    due: Option<Time>,
}

#[derive(Debug)]
struct Memory {
    /// A file without a name. Its offset is shared with the processes that write or read it.
    file: OwnedFd,
    /// Bytes that the next image may need.
    bytes: u64,
    /// Bytes of those that may not be allocated yet.
    fresh: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A task writes an image into the memory, or a writer reads it.
    Busy,
    /// The memory is kept for the next image since this time.
    Kept(Time),
}

/// Work for the thread.
#[derive(Debug)]
enum Work {
    /// Frees the memory.
    Free(OwnedFd),
    /// Allocates the memory that the file lacks to have this number of bytes.
    MakeRoom(OwnedFd, u64),
}

impl Memories {
    /// Memory for the image of a task of `bytes` bytes, if there is room: an open file whose offset
    /// is 0.
    pub fn open(&mut self, tid: Tid, bytes: u64, now: Time) -> Option<OwnedFd> {
        let kept = self.take_kept(tid);
        let spare = spare::room()?.least();
        let enough = match kept {
            // Kept memory is freed if other processes may soon need it.
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

    /// Allocates memory for the next image of a task of `bytes` bytes, if there is room.
    pub fn prepare(&mut self, tid: Tid, bytes: u64, now: Time) {
        if self.open(tid, bytes, now).is_some() {
            self.keep(tid, now);
        }
    }

    /// Takes the memory that is kept for a task, with its offset at 0. Memory that a process may
    /// still read or write is not used again.
    fn take_kept(&mut self, tid: Tid) -> Option<Memory> {
        let memory = self.of.remove(&tid)?;
        if matches!(memory.state, State::Kept(_)) && seek(&memory.file, SeekFrom::Start(0)).is_ok()
        {
            return Some(memory);
        }
        self.free([memory.file]);
        None
    }

    /// Whether `bytes` bytes may be taken if the host has `spare` bytes to spare. Memory that was
    /// given to other tasks and is not allocated yet still counts as spare at the host, so it is
    /// subtracted.
    fn has_room(&self, bytes: u64, spare: u64) -> bool {
        let fresh = self.of.values().map(|memory| memory.fresh);
        fresh.sum::<u64>().saturating_add(bytes) <= spare / 2
    }

    /// The file for the writer of a task's image, and the length of the image.
    ///
    /// # Errors
    /// `NotFound` if the task has no image memory, or the error of the system call.
    pub fn written(&mut self, tid: Tid) -> io::Result<(OwnedFd, Option<u64>)> {
        let memory = self.of.get(&tid).ok_or(io::ErrorKind::NotFound)?;
        let bytes = seek(&memory.file, SeekFrom::Current(0))?;
        seek(&memory.file, SeekFrom::Start(0))?;
        Ok((memory.file.try_clone()?, Some(bytes)))
    }

    /// Keeps the memory of an image that was stored, for the next image.
    pub fn stored(&mut self, tid: Tid, now: Time) {
        if let Some(memory) = self.of.get_mut(&tid) {
            memory.fresh = 0;
            self.keep(tid, now);
        }
    }

    /// Keeps the memory of a task, and has the memory that it lacks allocated.
    fn keep(&mut self, tid: Tid, now: Time) {
        let Some(memory) = self.of.get_mut(&tid) else {
            return;
        };
        memory.state = State::Kept(now);
        let bytes = memory.bytes;
        if lacks_room(&memory.file, bytes)
            && let Ok(file) = memory.file.try_clone()
        {
            // Without this the next image takes longer. The task may have grown by then.
            self.aside(Work::MakeRoom(file, bytes + bytes / GROWTH));
        }
    }

    /// Drops the memory of an image that is no longer needed. A process may still read or write it.
    pub fn drop_busy(&mut self, tid: Tid) {
        let busy = |memory: &Memory| memory.state == State::Busy;
        if self.of.get(&tid).is_some_and(busy) {
            let file = self.of.remove(&tid).map(|memory| memory.file);
            self.free(file);
        }
    }

    /// When [`Memories::tick`] has work.
    pub fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Frees memory that was kept for too long, or whose task is no longer on this host.
    pub fn tick(&mut self, now: Time, is_here: impl Fn(Tid) -> bool) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let long = |memory: &Memory| match memory.state {
            State::Kept(since) => now >= since + limits::IMAGE_MEMORY_TIME,
            State::Busy => false,
        };
        // A writer that still reads the image of an ended task has the file open itself.
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

    /// Gives the work to the thread, if there is room in its queue.
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
            // A file that does not fit into the queue is closed here.
            let _ = thread.try_send(work);
        }
    }
}

impl Memory {
    /// Memory of which no byte is allocated yet.
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

/// The body of the thread. It runs until the daemon ends.
fn serve(works: &Receiver<Work>) {
    // If raising the nice value is not allowed, the thread runs at normal priority. The nice value
    // is the thread's own.
    let _ = nice(LATER);
    for work in works {
        match work {
            Work::Free(file) => drop(file),
            Work::MakeRoom(file, bytes) => make_room(&file, bytes),
        }
    }
}

/// Whether fewer than `bytes` bytes of a file are allocated.
fn lacks_room(file: &OwnedFd, bytes: u64) -> bool {
    // stat(2) counts blocks of 512 bytes.
    fstat(file).is_ok_and(|stat| (stat.st_blocks as u64).saturating_mul(512) < bytes)
}

/// Allocates the memory that a file of `bytes` bytes lacks, in large pages if possible.
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

    /// Writes an image of a task into memory, and reads it again.
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
    fn the_next_image_gets_the_same_memory_and_its_own_length() {
        let mut memories = Memories::default();
        assert!(through(&mut memories, &[1; 100_000]) == [1; 100_000]);
        let first = number(&memories, TASK);
        memories.stored(TASK, NOW);
        assert!(through(&mut memories, &[2; 5_000]) == [2; 5_000]);
        assert_eq!(number(&memories, TASK), first);
    }

    #[test]
    fn memory_is_allocated_for_the_greatest_size_of_an_image() {
        let memory = Memory::new(1 << 20).expect("memory");
        assert!(lacks_room(&memory.file, 1 << 20));
        make_room(&memory.file, 1 << 20);
        assert!(!lacks_room(&memory.file, 1 << 20));
    }

    #[test]
    fn memory_that_is_prepared_is_used_by_the_next_image() {
        let mut memories = Memories::default();
        memories.prepare(TASK, 100_000, NOW);
        let prepared = number(&memories, TASK);
        assert!(prepared.is_some());
        // Other tasks do not get the prepared memory meanwhile.
        assert!(!memories.has_room(1, 2 * 100_000));
        assert!(through(&mut memories, &[1; 100_000]) == [1; 100_000]);
        assert_eq!(number(&memories, TASK), prepared);
        memories.stored(TASK, NOW);
        assert!(memories.has_room(1, 2));
        // The memory is freed if the task does not write an image for a while.
        memories.prepare(OTHER, 100_000, NOW);
        memories.tick(NOW + limits::IMAGE_MEMORY_TIME, |_| true);
        assert_eq!(number(&memories, OTHER), None);
    }

    #[test]
    fn memory_that_a_process_may_still_use_is_not_used_again() {
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
    fn memory_is_kept_for_a_limited_time_and_only_for_tasks_of_this_host() {
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
    fn images_take_at_most_half_of_the_spare_memory() {
        let mut memories = Memories::default();
        assert!(memories.has_room(50, 100));
        assert!(!memories.has_room(51, 100));
        memories.open(TASK, 40, NOW).expect("memory");
        assert!(memories.has_room(10, 100));
        assert!(!memories.has_room(11, 100));
        // The host no longer counts kept memory as spare.
        memories.stored(TASK, NOW);
        assert!(memories.has_room(50, 100));
        // The task takes no more memory for its next image.
        memories.open(TASK, 40, NOW).expect("it was kept");
        assert!(memories.has_room(50, 100));
    }
}
