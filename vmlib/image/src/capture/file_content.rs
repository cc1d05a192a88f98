//! What open files hold: its checksum, and where the image carries it, its way there and back.
//!
//! A checksum is made of pieces, and a piece that lies in a hole costs nothing. What is long is read
//! before threads are stopped: [`Known`] keeps the sums, and in the stop only those files are read
//! again whose times or sizes say that they may have changed since.
//!
//! **Runs in signal handlers**, and in a process that is being brought back: it allocates nothing
//! and locks nothing.

use crate::{
    capture::{
        file_locks::{self, Lock},
        proc::NumberPath,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, Step as _, refuse, refuse_now},
        scratch,
    },
    raw::{
        checksum::{checksum, mixed},
        records::{CONTENT, FILES_MAX, FileRecord, OFFSET_BITS},
        sys::{self, Errno, nr},
    },
    save::image_writer::Out,
};

/// Bytes that a checksum takes at once.
pub const PIECE: usize = 256 << 10;
/// A file whose times are no older may be written again without a change of them. Nanoseconds: the
/// coarsest clock of a file system.
const SETTLED_NS: u64 = 2_000_000_000;

const READING: &str = "reading an open file";

/// Looks at an open file.
pub fn status(fd: i32) -> Outcome<libc::stat> {
    stat(fd).step("looking at an open file")
}

/// What the kernel tells of a descriptor.
pub fn stat(fd: i32) -> sys::Result<libc::stat> {
    // SAFETY: zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes it.
    let value = unsafe { sys::call2(nr::FSTAT, fd as usize, &raw mut stat as usize) };
    sys::check(value).map(|_| stat)
}

/// What the kernel tells of a path, which is not ended by NUL.
pub fn stat_path(path: &[u8]) -> sys::Result<libc::stat> {
    const STAT: usize = 4;
    let mut ended = [0u8; libc::PATH_MAX as usize + 1];
    let Some(place) = ended[..libc::PATH_MAX as usize].get_mut(..path.len()) else {
        return Err(Errno(libc::ENAMETOOLONG));
    };
    place.copy_from_slice(path);
    // SAFETY: zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path is ended by NUL, and the kernel writes what it tells.
    let value = unsafe { sys::call2(STAT, ended.as_ptr() as usize, &raw mut stat as usize) };
    sys::check(value).map(|_| stat)
}

/// What says whether a file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    written: [i64; 2],
    changed: [i64; 2],
}

impl Stamp {
    fn of(stat: &libc::stat) -> Self {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            written: [stat.st_mtime, stat.st_mtime_nsec],
            changed: [stat.st_ctime, stat.st_ctime_nsec],
        }
    }

    /// Whether a change from now on shows.
    fn is_settled(&self, now: u64) -> bool {
        let ns = |[seconds, ns]: [i64; 2]| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        ns(self.written).max(ns(self.changed)) + i128::from(SETTLED_NS) <= i128::from(now)
    }
}

/// Checksums that need not be made again.
pub struct Known(List<Entry>);

#[derive(Clone, Copy)]
struct Entry {
    stamp: Stamp,
    sum: (u64, u64),
}

impl Known {
    /// None.
    pub fn new() -> Outcome<Self> {
        // SAFETY: zeros are values of all fields.
        Ok(Known(unsafe { List::new(FILES_MAX)? }))
    }

    /// Through a mapping a file can be changed without a change of its times.
    pub fn forget(&mut self, record: &FileRecord) {
        for entry in self.0.all_mut() {
            if (entry.stamp.device, entry.stamp.inode) == (record.device, record.inode) {
                entry.stamp.inode = 0;
            }
        }
    }

    /// The checksum of a regular file up to `limit`, and how many bytes it covers; none if the file
    /// may not be read.
    pub fn sum(
        &mut self,
        locks: &[Lock],
        record: &FileRecord,
        stat: &libc::stat,
        limit: u64,
    ) -> Outcome<(u64, u64)> {
        let stamp = Stamp::of(stat);
        if let Some(entry) = self.0.all().iter().find(|entry| entry.stamp == stamp) {
            return Ok(entry.sum);
        }
        let now = sys::clock_ns(libc::CLOCK_REALTIME);
        let sum = sum(locks, record, limit.min(stat.st_size as u64))?;
        if stamp.is_settled(now) {
            // If there is no room, it is made again.
            let _ = self.0.push(Entry { stamp, sum }, "open files");
        }
        Ok(sum)
    }
}

/// The checksum of an open file up to `end`, and how many bytes there were; none if it may not be
/// read.
pub fn sum(locks: &[Lock], record: &FileRecord, end: u64) -> Outcome<(u64, u64)> {
    let Some(file) = Readable::of(locks, record) else {
        return Ok((0, 0));
    };
    let mark = arena::mark();
    // SAFETY: bytes.
    let buffer = unsafe { arena::take::<u8>(PIECE)? };
    let sum = sum_with(file.fd, file.is_own, end, buffer).step(READING);
    // SAFETY: the buffer is not used any more.
    unsafe { arena::release(mark) };
    sum
}

/// The checksum of a file up to `end`, and how many bytes there were. `buffer` has [`PIECE`] bytes.
/// With `may_seek` holes are found by moving the file's position.
pub fn sum_with(fd: i32, may_seek: bool, end: u64, buffer: &mut [u8]) -> sys::Result<(u64, u64)> {
    let size = if may_seek {
        seek(fd, 0, libc::SEEK_END)?
    } else {
        0
    };
    let (mut sum, mut at, mut index) = (0u64, 0u64, 0);
    // The next byte that is in no hole, and the sum of a piece of zeros.
    let (mut data, mut zeros) = (0, None);
    while at < end {
        let want = PIECE.min((end - at) as usize);
        if may_seek && data <= at {
            data = next_data(fd, at);
        }
        let is_hole = may_seek && data >= at + want as u64 && at + want as u64 <= size;
        let (piece, len) = match (is_hole, zeros) {
            (true, Some(piece)) if want == PIECE => (piece, want),
            (true, _) => {
                buffer[..want].fill(0);
                let piece = checksum(&buffer[..want]);
                zeros = (want == PIECE).then_some(piece);
                (piece, want)
            }
            (false, _) => {
                let len = read_at(fd, at, &mut buffer[..want])?;
                (checksum(&buffer[..len]), len)
            }
        };
        sum = sum.wrapping_add(mixed(piece, index));
        index += 1;
        at += len as u64;
        if len < want {
            break;
        }
    }
    Ok((sum, at))
}

/// Where the next byte is that is in no hole; where holes are not known, here.
fn next_data(fd: i32, at: u64) -> u64 {
    match seek(fd, at, libc::SEEK_DATA) {
        Ok(data) => data,
        Err(Errno(libc::ENXIO)) => u64::MAX,
        Err(_) => at,
    }
}

fn seek(fd: i32, at: u64, whence: i32) -> sys::Result<u64> {
    // SAFETY: it moves the position of a file that nobody else reads.
    let value = unsafe { sys::call3(nr::LSEEK, fd as usize, at as usize, whence as usize) };
    sys::check(value).map(|at| at as u64)
}

/// Reads until the buffer is full or the file ends.
fn read_at(fd: i32, at: u64, buffer: &mut [u8]) -> sys::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        let (to, from) = (buffer[len..].as_mut_ptr() as usize, at as usize + len);
        let want = buffer.len() - len;
        // SAFETY: the kernel writes into the buffer.
        match sys::check(unsafe { sys::call4(nr::PREAD64, fd as usize, to, want, from) }) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(sys::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// An open file, to be read.
pub struct Readable {
    fd: i32,
    /// Opened for this, so that its position is nobody else's.
    is_own: bool,
}

impl Readable {
    /// By a descriptor of its own, unless to close that would end locks of the process. `None` if the
    /// file may not be read.
    pub fn of(locks: &[Lock], record: &FileRecord) -> Option<Self> {
        let fd = record.fd as i32;
        let path = NumberPath::new("/proc/self/fd/", fd, "");
        let wanted = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        if !file_locks::would_end(locks, record.inode)
            && let Ok(fd) = sys::open(path.bytes(), wanted, 0)
        {
            return Some(Readable { fd, is_own: true });
        }
        let closed = (libc::O_PATH | libc::O_DIRECT | libc::O_WRONLY) as u32;
        (record.flags & closed == 0).then_some(Readable { fd, is_own: false })
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        if self.is_own {
            sys::close(self.fd);
        }
    }
}

/// Writes what a file holds into the image; holes are left out.
pub fn carry(out: &mut Out, locks: &[Lock], number: usize, record: &FileRecord) -> Outcome<()> {
    let fd = record.fd as i32;
    let Some(file) = Readable::of(locks, record) else {
        return refuse!("descriptor {fd} cannot be read any more");
    };
    let before = Stamp::of(&status(fd)?);
    let buffer = scratch::buffer();
    let mut at = 0;
    while at < record.size {
        let mut end = record.size;
        if file.is_own {
            at = next_data(file.fd, at);
            end = seek(file.fd, at, libc::SEEK_HOLE).map_or(end, |hole| hole.min(end));
        }
        if at >= end {
            break;
        }
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            let len = read_at(file.fd, at, &mut buffer[..want]).step(READING)?;
            if len == 0 {
                break;
            }
            let piece = &buffer[..len];
            match file.is_own {
                true => out.section(CONTENT, address(number, at), piece)?,
                // Where its holes are nobody tells.
                false => without_zeros(piece, |from, part| {
                    out.section(CONTENT, address(number, at + from), part)
                })?,
            }
            at += len as u64;
        }
        if at < end {
            break;
        }
    }
    let after = Stamp::of(&status(fd)?);
    drop(file);
    match before == after && after.size as u64 == record.size || has_only_grown(locks, record)? {
        true => Ok(()),
        false => refuse_now!("the file at descriptor {fd} changed while it was saved"),
    }
}

/// Tells the parts of a piece that are not zeros, in whole blocks.
fn without_zeros(piece: &[u8], mut with: impl FnMut(u64, &[u8]) -> Outcome<()>) -> Outcome<()> {
    const BLOCK: usize = 4096;
    let mut from = 0;
    let mut at = 0;
    for block in piece.chunks(BLOCK) {
        let end = at + block.len();
        if block.iter().all(|byte| *byte == 0) {
            if from < at {
                with(from as u64, &piece[from..at])?;
            }
            from = end;
        }
        at = end;
    }
    match from < at {
        true => with(from as u64, &piece[from..at]),
        false => Ok(()),
    }
}

/// Whether a file still begins with all that it held: a log to which other processes write, too.
fn has_only_grown(locks: &[Lock], record: &FileRecord) -> Outcome<bool> {
    let (check, checked) = (record.check, record.checked);
    Ok(checked == record.size && sum(locks, record, checked)? == (check, checked))
}

/// Where a byte of a carried file is, in the image and where the restorer puts it.
fn address(number: usize, offset: u64) -> u64 {
    ((number as u64) << OFFSET_BITS) + offset
}

/// Gives a file that ends at `at` the rest of what the image carried of record `number`, which the
/// restorer put into `contents`.
pub fn fill(fd: i32, number: usize, at: u64, size: u64, contents: i32) -> sys::Result<()> {
    let mark = arena::mark();
    // SAFETY: bytes.
    let Ok(buffer) = (unsafe { arena::take::<u8>(PIECE) }) else {
        return Err(Errno(libc::ENOMEM));
    };
    let (mut at, first) = (at, address(number, 0));
    // Without any content there is no such descriptor, and nothing to be found in it.
    while at < size
        && let Ok(data) = seek(contents, first + at, libc::SEEK_DATA)
    {
        at = data.saturating_sub(first);
        if at >= size {
            break;
        }
        let want = buffer.len().min((size - at) as usize);
        let len = read_at(contents, first + at, &mut buffer[..want])?;
        write_at(fd, at, &buffer[..len])?;
        at += len as u64;
        if len < want {
            break;
        }
    }
    // SAFETY: the buffer is not used any more.
    unsafe { arena::release(mark) };
    // The hole at its end; nothing is cut off of what somebody has written meanwhile.
    if (stat(fd)?.st_size as u64) < size {
        set_len(fd, size)?;
    }
    Ok(())
}

/// Whether a file of `len` bytes holds the first ones of what the image carried of record `number`.
/// One that may not be read does not.
pub fn begins(record: &FileRecord, number: usize, len: u64, contents: i32) -> Outcome<bool> {
    let Some(file) = Readable::of(&[], record) else {
        return Ok(false);
    };
    let mark = arena::mark();
    // SAFETY: bytes.
    let (here, there) = unsafe { (arena::take::<u8>(PIECE)?, arena::take::<u8>(PIECE)?) };
    let mut same = true;
    let mut at = 0;
    while same && at < len {
        let want = PIECE.min((len - at) as usize);
        let read = read_at(file.fd, at, &mut here[..want]).step(READING)?;
        read_carried(contents, number, at, &mut there[..want]).step(READING)?;
        same = read == want && here[..want] == there[..want];
        at += want as u64;
    }
    // SAFETY: the buffers are not used any more.
    unsafe { arena::release(mark) };
    Ok(same)
}

/// What the image carried of record `number` from a place on.
fn read_carried(contents: i32, number: usize, at: u64, into: &mut [u8]) -> sys::Result<()> {
    // Without any content there is no such descriptor: all is a hole.
    let read = match contents {
        0.. => read_at(contents, address(number, at), into)?,
        _ => 0,
    };
    into[read..].fill(0);
    Ok(())
}

/// Makes a file, open for reading and writing, what the image carried of record `number`. Only what
/// differs is written, so that holes stay holes, whoever does the same at the same time does no harm,
/// and what was interrupted can be done again.
pub fn put_back(fd: i32, number: usize, size: u64, contents: i32) -> sys::Result<()> {
    let mark = arena::mark();
    // SAFETY: bytes.
    let buffers = unsafe { (arena::take::<u8>(PIECE), arena::take::<u8>(PIECE)) };
    let (Ok(here), Ok(there)) = buffers else {
        return Err(Errno(libc::ENOMEM));
    };
    let mut at = 0;
    while at < size {
        let want = PIECE.min((size - at) as usize);
        let read = read_at(fd, at, &mut here[..want])?;
        here[read..want].fill(0);
        read_carried(contents, number, at, &mut there[..want])?;
        if here[..want] != there[..want] {
            write_at(fd, at, &there[..want])?;
        }
        at += want as u64;
    }
    // SAFETY: the buffers are not used any more.
    unsafe { arena::release(mark) };
    set_len(fd, size)
}

/// Cuts a file, or makes it longer by a hole.
pub fn set_len(fd: i32, size: u64) -> sys::Result<()> {
    // SAFETY: it changes the length of a file.
    sys::check(unsafe { sys::call2(nr::FTRUNCATE, fd as usize, size as usize) }).map(|_| ())
}

fn write_at(fd: i32, at: u64, bytes: &[u8]) -> sys::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let (from, len) = (bytes[done..].as_ptr() as usize, bytes.len() - done);
        // SAFETY: the bytes are only read.
        let value = unsafe { sys::call4(nr::PWRITE64, fd as usize, from, len, at as usize + done) };
        match sys::check(value) {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(count) => done += count,
            Err(sys::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write as _,
        os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    };

    /// The checksum as `docs/image-format.md` defines it.
    fn plain(content: &[u8]) -> (u64, u64) {
        let sums = content.chunks(PIECE).map(checksum);
        let sums = (0..).zip(sums).map(|(index, sum)| mixed(sum, index));
        (sums.fold(0, u64::wrapping_add), content.len() as u64)
    }

    #[test]
    fn holes_count_as_the_zeros_that_they_are() {
        let file = tempfile::tempfile().expect("a file");
        let mut buffer = vec![1; PIECE];
        let mut content = vec![0; 5 * PIECE + 777];
        for (at, len) in [(PIECE + 5, 9), (4 * PIECE - 1, 2), (5 * PIECE + 700, 77)] {
            for (way, size) in [(0, content.len()), (1, at + len)] {
                content.resize(size, 0);
                content[at..at + len].fill(7);
                file.set_len(size as u64).expect("it can grow");
                file.write_all_at(&content[at..at + len], at as u64)
                    .expect("it can be written");
                for end in [0, 1, at, size, size + 10] {
                    let wanted = plain(&content[..end.min(size)]);
                    for may_seek in [true, false] {
                        let found = sum_with(file.as_raw_fd(), may_seek, end as u64, &mut buffer);
                        assert_eq!(found, Ok(wanted), "{at}, {way}, {end}, {may_seek}");
                    }
                }
            }
            content.resize(5 * PIECE + 777, 0);
        }
    }

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut piece = vec![0u8; 5 * 4096 + 10];
        piece[4096] = 1;
        piece[2 * 4096 + 4095] = 1;
        piece[5 * 4096 + 9] = 1;
        let mut found = Vec::new();
        without_zeros(&piece, |from, part| {
            found.push((from, part.len()));
            Ok(())
        })
        .expect("nothing fails");
        assert_eq!(found, [(4096, 2 * 4096), (5 * 4096, 10)]);
        without_zeros(&[0; 9000], |_, _| panic!("all are zeros")).expect("nothing fails");
    }

    #[test]
    fn only_what_has_not_changed_for_some_time_is_not_read_again() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("memory");
        let mut known = Known::new().expect("a list");
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"before").expect("it can be written");
        let fd = file.as_raw_fd();
        let fresh = status(fd).expect("it is open");
        let record = FileRecord {
            fd: fd as u32,
            flags: libc::O_RDWR as u32,
            device: fresh.st_dev,
            inode: fresh.st_ino,
            ..FileRecord::default()
        };
        let mut sum = |stat: &libc::stat| known.sum(&[], &record, stat, u64::MAX).expect("a sum");
        let mut old = fresh;
        (old.st_mtime, old.st_ctime) = (1, 1);
        let mut later = old;
        later.st_ctime = 2;
        assert_eq!(sum(&fresh), plain(b"before"));
        assert_eq!(sum(&old), plain(b"before"));
        file.write_all_at(b"behind", 0).expect("it can be written");
        assert_eq!(
            sum(&old),
            plain(b"before"),
            "nothing says that it has changed"
        );
        assert_eq!(sum(&fresh), plain(b"behind"), "it may have");
        assert_eq!(sum(&later), plain(b"behind"));
        known.forget(&record);
        let found = known.sum(&[], &record, &old, u64::MAX).expect("a sum");
        assert_eq!(found, plain(b"behind"));
    }
}
