//! The content of open files: reading it, and its checksum.
//!
//! A checksum is made of pieces, and a piece in a hole costs no reading. The checksums are made
//! before threads are stopped, and [`KnownSums`] keeps them. While threads are stopped, a file is
//! read again only if its times or size may have changed since.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{
        file_locks::{self, Lock},
        proc::NumberPath,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, Step as _},
        file_calls::{read_at, seek},
    },
    raw::{
        checksum::{checksum, mixed},
        records::{FILES_MAX, FileRecord},
        sys::{self, Errno},
    },
};

/// The bytes that one checksum of a file's piece covers.
pub const PIECE: usize = 256 << 10;
/// A file that was changed more recently than this may be written again without a change of its
/// times, because of the coarsest clock of a file system. Nanoseconds.
const SETTLED_NS: u64 = 2_000_000_000;

/// The step that errors name.
pub const READING: &str = "reading an open file";

/// The state of a file that shows whether the file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    /// Size of the file. Bytes.
    pub size: i64,
    written: [i64; 2],
    changed: [i64; 2],
}

impl Stamp {
    /// The stamp of an open file.
    pub fn of(stat: &libc::stat) -> Self {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            written: [stat.st_mtime, stat.st_mtime_nsec],
            changed: [stat.st_ctime, stat.st_ctime_nsec],
        }
    }

    /// Whether every change after the time `now` changes the stamp.
    fn is_settled(&self, now: u64) -> bool {
        let ns = |[seconds, ns]: [i64; 2]| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        ns(self.written).max(ns(self.changed)) + i128::from(SETTLED_NS) <= i128::from(now)
    }
}

/// Checksums of files that were settled when they were read.
pub struct KnownSums(List<Entry>);

#[derive(Clone, Copy)]
struct Entry {
    stamp: Stamp,
    sum: (u64, u64),
}

impl KnownSums {
    /// An empty list.
    pub fn new() -> Outcome<Self> {
        // SAFETY: zeros are values of all fields.
        Ok(KnownSums(unsafe { List::new(FILES_MAX)? }))
    }

    /// Forgets the checksum of a file that is mapped: a write through a mapping may leave the
    /// file's times unchanged.
    pub fn forget(&mut self, record: &FileRecord) {
        for entry in self.0.all_mut() {
            if (entry.stamp.device, entry.stamp.inode) == (record.device, record.inode) {
                entry.stamp.inode = 0;
            }
        }
    }

    /// The checksum of a regular file up to `limit`, and the number of bytes that it covers; `(0,
    /// 0)` if the file cannot be read.
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
            // Without room in the list, the checksum is made again later.
            let _ = self.0.push(Entry { stamp, sum }, "open files");
        }
        Ok(sum)
    }
}

/// The checksum of an open file up to `end`, and the number of bytes that it covers; `(0, 0)` if
/// the file cannot be read.
pub fn sum(locks: &[Lock], record: &FileRecord, end: u64) -> Outcome<(u64, u64)> {
    let Some(file) = Readable::of(locks, record) else {
        return Ok((0, 0));
    };
    let mark = arena::mark();
    // SAFETY: any bytes are values.
    let buffer = unsafe { arena::take::<u8>(PIECE)? };
    let sum = sum_with(file.fd, file.is_own, end, buffer).step(READING);
    // SAFETY: the buffer is not used any more.
    unsafe { arena::release(mark) };
    sum
}

/// The checksum of a file up to `end`, and the number of bytes that it covers. `buffer` has
/// [`PIECE`] bytes. With `may_seek`, holes are found by moving the file's position.
pub fn sum_with(fd: i32, may_seek: bool, end: u64, buffer: &mut [u8]) -> sys::Result<(u64, u64)> {
    let size = if may_seek {
        seek(fd, 0, libc::SEEK_END)?
    } else {
        0
    };
    let (mut sum, mut at, mut index) = (0u64, 0u64, 0);
    // The offset of the next byte outside of holes, and the checksum of a whole piece of zeros.
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

/// The offset of the next byte outside of holes; `at` if the file system reports no holes.
pub fn next_data(fd: i32, at: u64) -> u64 {
    match seek(fd, at, libc::SEEK_DATA) {
        Ok(data) => data,
        Err(Errno(libc::ENXIO)) => u64::MAX,
        Err(_) => at,
    }
}

/// A descriptor through which an open file can be read.
pub struct Readable {
    /// The descriptor to read from.
    pub fd: i32,
    /// Whether the descriptor was opened for this, so that its position may be moved.
    pub is_own: bool,
}

impl Readable {
    /// Opens the file a second time. Uses the descriptor of the record instead if closing the
    /// second one would end locks of the process, or if the file cannot be opened. `None` if the
    /// file cannot be read.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen::file_calls::status;
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
    fn holes_count_as_zeros() {
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
    fn only_settled_files_are_not_read_again() {
        let _alone = arena::ONE_TEST.lock();
        arena::reset().expect("memory");
        let mut known = KnownSums::new().expect("a list");
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
