//! Writes carried content into files. The restorer has put the content of all carried files into
//! one file, each file's at [`content_address`] of its record.
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

/// Appends to a file that ends at `at` the rest of the content that the image carries for record
/// `number`. `contents` is the file of the restorer.
pub fn fill(fd: i32, number: usize, at: u64, size: u64, contents: i32) -> sys::Result<()> {
    let mark = arena::mark();
    // SAFETY: any bytes are values.
    let Ok(buffer) = (unsafe { arena::take::<u8>(PIECE) }) else {
        return Err(Errno(libc::ENOMEM));
    };
    let (mut at, first) = (at, content_address(number, 0));
    // Without carried content there is no such descriptor, and the search fails.
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
    // Makes the hole at the file's end. Bytes that another process has appended meanwhile are not
    // cut off.
    if (stat(fd)?.st_size as u64) < size {
        set_len(fd, size)?;
    }
    Ok(())
}

/// Whether a file of `len` bytes is the beginning of the content that the image carries for record
/// `number`. `false` for a file that cannot be read.
pub fn begins(record: &FileRecord, number: usize, len: u64, contents: i32) -> Outcome<bool> {
    let Some(file) = Readable::of(&[], record) else {
        return Ok(false);
    };
    let mark = arena::mark();
    // SAFETY: any bytes are values.
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

/// Reads the content that the image carries for record `number`, from byte `at` on. Holes are
/// zeros.
fn read_carried(contents: i32, number: usize, at: u64, into: &mut [u8]) -> sys::Result<()> {
    // Without carried content there is no such descriptor: all is a hole.
    let read = match contents {
        0.. => read_at(contents, content_address(number, at), into)?,
        _ => 0,
    };
    into[read..].fill(0);
    Ok(())
}

/// Gives a file, open for reading and writing, the content that the image carries for record
/// `number`. Only blocks that differ are written. So holes stay holes, two processes may do the
/// same at the same time, and an interrupted call can be repeated.
pub fn put_back(fd: i32, number: usize, size: u64, contents: i32) -> sys::Result<()> {
    let mark = arena::mark();
    // SAFETY: any bytes are values.
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
