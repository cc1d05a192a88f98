//! Writes the content of open files into the image.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        file_content::{READING, Readable, Stamp, next_data, sum},
        file_locks::Lock,
    },
    frozen::{
        fault::{Outcome, Step as _, refuse, refuse_now},
        file_calls::{read_at, seek, status},
        scratch,
    },
    raw::records::{CONTENT, FileRecord, content_address},
    save::image_writer::ImageWriter,
};

/// Writes the content of a file into the image, without the file's holes.
pub fn carry(
    out: &mut ImageWriter,
    locks: &[Lock],
    number: usize,
    record: &FileRecord,
) -> Outcome<()> {
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
                true => out.section(CONTENT, content_address(number, at), piece)?,
                // The descriptor cannot be asked for holes, because that would move its position:
                // zeros are searched.
                false => without_zeros(piece, |from, part| {
                    out.section(CONTENT, content_address(number, at + from), part)
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

/// Calls `with` for the parts of a piece that are not zeros, in whole blocks of 4,096 bytes, with
/// their offsets in the piece.
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

/// Whether a file still begins with the recorded content and has grown: a log to which other
/// processes write, too.
fn has_only_grown(locks: &[Lock], record: &FileRecord) -> Outcome<bool> {
    let (check, checked) = (record.check, record.checked);
    Ok(checked == record.size && sum(locks, record, checked)? == (check, checked))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
