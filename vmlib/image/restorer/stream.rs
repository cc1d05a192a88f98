//! Reads the image: from a pipe or socket in one pass, from a regular file with two workers.

use crate::{
    ahead::Ahead,
    failure::{self, die},
    helper,
    raw::{
        checksum::{checksum, mixed},
        lz4,
        records::*,
        sys::{self, nr},
    },
    space,
};
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The image that is being read.
pub struct Stream {
    fd: i32,
    /// The file position at which the image begins; `None` for a pipe or socket.
    place: Option<u64>,
    at: At,
    /// A head that was read but not taken, and the place before it.
    head: Option<(Section, At)>,
}

/// A place in the image.
#[derive(Clone, Copy)]
struct At {
    bytes: u64,
    index: u32,
    sum: u64,
}

/// Records that may be read as a table: plain memory, of which any bytes are a value.
pub trait Records: Copy + 'static {}
impl Records for Mapping {}
impl Records for [u64; 2] {}

/// The state that both workers share.
struct Work<'a> {
    fd: i32,
    place: u64,
    mappings: &'a [Mapping],
    lock: AtomicBool,
    at: core::cell::UnsafeCell<(At, bool)>,
}

impl Stream {
    /// Begins an image by reading its prefix.
    pub fn begin(fd: i32) -> Self {
        // SAFETY: the call only reads the position.
        let at = unsafe { sys::call3(nr::LSEEK, fd as usize, 0, 1) };
        let mut stream = Stream {
            fd,
            place: u64::try_from(at).ok(),
            at: At {
                bytes: 0,
                index: 0,
                sum: 0,
            },
            head: None,
        };
        let mut bytes = [0; Prefix::LEN];
        stream.read(&mut bytes);
        let Some(prefix) = Prefix::from_prefix(&bytes) else {
            die!("the image has no prefix")
        };
        if prefix.magic != MAGIC {
            die!("this is not an image of a process");
        }
        if prefix.version != VERSION {
            die!(
                "the image has format version {}, and this restorer reads version {VERSION}",
                prefix.version
            );
        }
        if prefix.check != prefix.sum() {
            die!("the image's prefix is damaged");
        }
        if prefix.machine != X86_64 || prefix.page_size != 4096 {
            die!("the image is of another architecture (number {} of ELF), or page size", prefix.machine);
        }
        stream
    }

    fn read(&mut self, buffer: &mut [u8]) {
        let place = self.place.map(|place| place + self.at.bytes);
        read_all(self.fd, place, buffer);
        self.at.bytes += buffer.len() as u64;
    }

    /// Reads the next head. Returns it with the place before it.
    fn head(&mut self) -> (Section, At) {
        if let Some(head) = self.head.take() {
            return head;
        }
        let before = self.at;
        let mut bytes = [0; Section::LEN];
        self.read(&mut bytes);
        let section = good(&bytes, &mut self.at);
        (section, before)
    }

    /// The kind of the next section, which is not taken yet.
    pub fn next(&mut self) -> u16 {
        let head = self.head();
        self.head = Some(head);
        head.0.kind
    }

    /// Reads the content of the next section, which must be plain and of that kind.
    pub fn bytes(&mut self, kind: u16, room: &'static mut [u8]) -> &'static mut [u8] {
        let (section, _) = self.head();
        if section.kind != kind {
            die!(
                "section {} is of kind {} in place of {kind}",
                section.index,
                section.kind
            );
        }
        if section.codec != PLAIN {
            die!(
                "section {} has an unknown codec",
                section.index
            );
        }
        self.payload(&section, room)
    }

    /// Reads the content of the next section, which must be of that kind and may be compressed.
    /// Returns its address, too.
    pub fn content(&mut self, kind: u16, room: &'static mut [u8]) -> (u64, &'static [u8]) {
        let (section, _) = self.head();
        if section.kind != kind || section.codec > LZ4 {
            die!("section {} is out of place", section.index);
        }
        (section.address, self.payload(&section, room))
    }

    fn payload(&mut self, section: &Section, room: &'static mut [u8]) -> &'static mut [u8] {
        let Some(content) = room.get_mut(..section.raw_len as usize) else {
            die!("section {} is too long", section.index)
        };
        if section.codec == LZ4 {
            let stored = space::stored(section.stored_len as usize, 0);
            self.read(stored);
            decode(section, stored, content);
        } else {
            self.read(content);
        }
        check(section, content);
        content
    }

    /// Reads the next section as one record.
    pub fn record<T: Plain>(&mut self, kind: u16) -> T {
        let bytes = self.bytes(kind, space::scratch());
        match T::from_prefix(bytes) {
            Some(record) => record,
            None => die!("section of kind {kind} is too short"),
        }
    }

    /// Reads the next section as records. `room` is aligned to pages.
    pub fn records<T: Records>(&mut self, kind: u16, room: &'static mut [u8]) -> &'static [T] {
        let bytes = self.bytes(kind, room);
        // SAFETY: `room` is aligned to pages, and any bytes are a value.
        unsafe {
            let count = bytes.len() / size_of::<T>();
            core::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), count)
        }
    }

    /// Reads the next section and discards its content.
    pub fn skip(&mut self, kind: u16) {
        self.bytes(kind, space::scratch());
    }

    /// Reads the following sections of memory into their places.
    pub fn pages(&mut self, mappings: &[Mapping]) {
        if let Some(place) = self.place
            && self.next() == PAGES
        {
            return self.shared(mappings, place);
        }
        let ahead = Ahead::new(mappings);
        ahead.during(|| self.filled(mappings, &ahead));
    }

    fn filled(&mut self, mappings: &[Mapping], ahead: &Ahead<'_>) {
        while self.next() == PAGES {
            let (section, _) = self.head();
            let content = target(&section, mappings);
            ahead.filled(section.address + section.raw_len);
            if section.codec == LZ4 {
                let stored = space::stored(section.stored_len as usize, 0);
                self.read(stored);
                decode(&section, stored, content);
            } else {
                self.read(content);
            }
            check(&section, content);
        }
    }

    /// Reads the end of the image, and verifies that the image is whole.
    pub fn end(&mut self) {
        let (section, before) = self.head();
        let mut bytes = [0; End::LEN];
        if section.kind != END || section.stored_len != End::LEN as u64 {
            die!(
                "section {} is of kind {}, out of place",
                section.index,
                section.kind
            );
        }
        self.read(&mut bytes);
        check(&section, &bytes);
        let end = End::from_prefix(&bytes);
        let expected = End {
            sections: before.index.into(),
            bytes: before.bytes,
            sum: before.sum,
        };
        if end != Some(expected) {
            die!("the end of the image does not match its sections");
        }
    }

    fn shared(&mut self, mappings: &[Mapping], place: u64) {
        // Each worker reads heads by itself, so a head that was read is read again.
        if let Some((_, before)) = self.head.take() {
            self.at = before;
        }
        let work = Work {
            fd: self.fd,
            place,
            mappings,
            lock: AtomicBool::new(false),
            at: core::cell::UnsafeCell::new((self.at, false)),
        };
        let argument = &raw const work as usize;
        // SAFETY: one helper at a time, and `work` outlives it.
        let status = unsafe { helper::beside(help, argument, || work.run(0)) };
        if status != 0 {
            sys::exit_group(124);
        }
        // SAFETY: the helper has ended.
        self.at = unsafe { (*work.at.get()).0 };
    }
}

extern "C" fn help(work: usize) {
    // SAFETY: the work outlives this worker.
    unsafe { &*(work as *const Work<'_>) }.run(1);
}

impl Work<'_> {
    /// Reads the next section of memory, as long as there is one.
    fn run(&self, worker: usize) {
        while let Some((section, place)) = self.next() {
            let content = target(&section, self.mappings);
            if section.codec == LZ4 {
                let stored = space::stored(section.stored_len as usize, worker);
                read_all(self.fd, Some(place), stored);
                decode(&section, stored, content);
            } else {
                read_all(self.fd, Some(place), content);
            }
            check(&section, content);
        }
    }

    fn next(&self) -> Option<(Section, u64)> {
        while self.lock.swap(true, SeqCst) {
            if failure::ENDS.load(SeqCst) {
                sys::exit_group(124);
            }
            core::hint::spin_loop();
        }
        // SAFETY: the lock is held.
        let (at, done) = unsafe { &mut *self.at.get() };
        let mut taken = None;
        if !*done {
            let mut bytes = [0; Section::LEN];
            read_all(self.fd, Some(self.place + at.bytes), &mut bytes);
            let mut after = *at;
            after.bytes += Section::LEN as u64;
            let section = good(&bytes, &mut after);
            match section.kind {
                PAGES => {
                    taken = Some((section, self.place + after.bytes));
                    after.bytes += section.stored_len;
                    *at = after;
                }
                _ => *done = true,
            }
        }
        self.lock.store(false, SeqCst);
        taken
    }
}

/// Verifies and counts a head. `at` is the place behind it.
fn good(bytes: &[u8], at: &mut At) -> Section {
    let section = Section::from_prefix(bytes).filter(|section| section.is_good(at.index));
    let Some(section) = section else {
        die!(
            "the image is damaged at byte {}, the head of section {}",
            at.bytes - Section::LEN as u64,
            at.index
        )
    };
    at.sum = at.sum.wrapping_add(mixed(section.check, section.index));
    at.index += 1;
    section
}

fn decode(section: &Section, stored: &[u8], content: &mut [u8]) {
    if lz4::decompress(stored, content).is_none() {
        die!("section {} is damaged", section.index);
    }
}

fn check(section: &Section, content: &[u8]) {
    if checksum(content) != section.content_check {
        die!("section {} is damaged", section.index);
    }
}

/// The memory that a section fills, which must lie within one mapping of the image.
fn target<'a>(section: &Section, mappings: &[Mapping]) -> &'a mut [u8] {
    let (start, len) = (section.address, section.raw_len);
    let index = mappings.partition_point(|mapping| mapping.end <= start);
    let fits = mappings.get(index).is_some_and(|mapping| {
        let room = mapping.end.checked_sub(start);
        mapping.start <= start && mapping.kind != FILE && room.is_some_and(|room| len <= room)
    });
    if !fits || section.codec > LZ4 {
        die!("section {} fits into no mapping", section.index);
    }
    // SAFETY: the memory was mapped for the image, and no other section has the same place.
    unsafe { core::slice::from_raw_parts_mut(start as *mut u8, len as usize) }
}

fn read_all(fd: i32, place: Option<u64>, buffer: &mut [u8]) {
    let mut done = 0;
    while done < buffer.len() {
        let to = &mut buffer[done..];
        let read = match place {
            // SAFETY: the kernel writes into the buffer.
            Some(at) => sys::check(unsafe {
                let (start, at) = (to.as_mut_ptr() as usize, at as usize + done);
                sys::call4(nr::PREAD64, fd as usize, start, to.len(), at)
            }),
            None => sys::read(fd, to),
        };
        match read {
            Ok(0) => die!("the image ends too early: it was not written to its end, or was cut off"),
            Ok(count) => done += count,
            Err(sys::EINTR) => {}
            Err(sys::EAGAIN) => {
                let mut poll = [fd as u32 as u64 | 1 << 32];
                // SAFETY: one struct pollfd; the call waits until the descriptor can be read.
                unsafe { sys::call3(nr::POLL, poll.as_mut_ptr() as usize, 1, usize::MAX) };
            }
            Err(error) => die!("the image cannot be read: error {}", error.0),
        }
    }
}
