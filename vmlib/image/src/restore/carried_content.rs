//! Gives files the content that the image carries. The restorer has put that content into one file,
//! each file at [`content_address`] of its record.
//!
//! **Runs in a process that is being restored**: it allocates nothing and locks nothing.

use crate::{
    capture::file_content::{PIECE, READING, Readable},
    frozen::{
        arena,
        fault::{Outcome, Step as _},
        file_calls::{read_at, seek, set_len, stat, write_at},
    },
    raw::{
        records::{FileRecord, content_address},
        sys::{self, Errno},
    },
};

/// Gives a file that ends at `at` the rest of what the image carried of record `number`, which the
/// restorer put into `contents`.
pub fn fill(fd: i32, number: usize, at: u64, size: u64, contents: i32) -> sys::Result<()> {
    let mark = arena::mark();
    // SAFETY: bytes.
    let Ok(buffer) = (unsafe { arena::take::<u8>(PIECE) }) else {
        return Err(Errno(libc::ENOMEM));
    };
    let (mut at, first) = (at, content_address(number, 0));
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
    // The hole at its end; what another process has written meanwhile is not cut off.
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
        0.. => read_at(contents, content_address(number, at), into)?,
        _ => 0,
    };
    into[read..].fill(0);
    Ok(())
}

/// Makes a file, open for reading and writing, what the image carried of record `number`. Only
/// what differs is written, so that holes stay holes, another process that does the same at the
/// same time does no harm, and what was interrupted can be done again.
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
