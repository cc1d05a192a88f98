//! Writes the bytes of an image: sections with their heads, and the end, in one pass. If much
//! memory goes to a file, a helper makes the heads ahead of the writer
//! ([`crate::save::head_helper`]).
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::{
        fault::{Outcome, Step as _, refuse},
        file_calls, memory_faults, scratch,
    },
    raw::{
        checksum::mixed,
        lz4,
        records::{BLOCK, CONTENT, END, End, PAGES, Plain as _, Prefix, Section, X86_64, blocks},
        sys::{self, Errno, nr},
    },
    save::{
        head_helper::HeadHelper,
        mapped_image::MappedImage,
        spare::{self, Spare},
    },
};
use std::ops::Range;

/// Memory of a running process is copied in steps of this size, so that the copy stays in the
/// processor's cache until it is sent. Bytes.
const STEP: usize = 256 << 10;
/// For less memory the start of a helper costs more than it saves. Bytes.
const HELPED_MIN: u64 = 16 << 20;

/// An image that is being written: its destination, and its bytes so far.
pub struct ImageWriter {
    fd: i32,
    /// Device and inode of the destination.
    file: [u64; 2],
    /// The file position at which the image begins; `None` for a pipe or socket.
    start: Option<u64>,
    /// The destination as mapped memory, if the destination is memory made for images.
    mapped: Option<MappedImage>,
    bytes: u64,
    sections: u32,
    sum: u64,
    /// Whether memory is compressed where that makes it smaller.
    compress: bool,
    /// The capacity of the pipe, if memory is lent to the pipe. Bytes.
    lent: Option<u64>,
    /// Offset of the next copy in the memory of [`scratch::ring`].
    ring: usize,
    /// Whether a helper makes heads. For a pipe or socket it does not: the reader needs the other
    /// processor while this process writes. For memory it does not: other frozen tasks, which write
    /// their images at the same time, need it.
    helped: bool,
    /// The memory that a copy of the process gives back when it is written.
    spare: Spare,
}

impl ImageWriter {
    /// Begins an image by writing its prefix. `lend` has an effect only without `compress`
    /// and for a pipe whose capacity is at most [`scratch::RING`] less two steps.
    pub fn begin(fd: i32, compress: bool, lend: bool) -> Outcome<Self> {
        let stat = file_calls::stat(fd).step("looking at the image's descriptor")?;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        // SAFETY: the call only reads the position.
        let at = unsafe { sys::call3(nr::LSEEK, fd as usize, 0, libc::SEEK_CUR as usize) };
        let is_pipe = stat.st_mode & libc::S_IFMT == libc::S_IFIFO;
        let lent = (lend && is_pipe && !compress)
            .then(|| file_calls::control(fd, libc::F_GETPIPE_SZ, 0).ok())
            .flatten()
            .map(|bytes| bytes as u64)
            .filter(|bytes| *bytes <= (scratch::RING - 2 * STEP) as u64);
        let start = u64::try_from(at).ok().filter(|_| regular);
        let mut out = ImageWriter {
            fd,
            file: [stat.st_dev, stat.st_ino],
            start,
            mapped: None,
            bytes: 0,
            sections: 0,
            sum: 0,
            compress,
            lent,
            ring: 0,
            helped: regular && !lend && !compress && sys::processors() > 1,
            spare: Spare::default(),
        };
        let prefix = Prefix::new(X86_64, crate::capture::memory::PAGE as u32);
        out.write(prefix.bytes(), &[])?;
        if regular && !compress {
            out.mapped = MappedImage::of(fd);
            out.helped &= out.mapped.is_none();
        }
        Ok(out)
    }

    /// From here on, gives back the spare memory that was written to a pipe or socket. Only for a
    /// copy of the process.
    pub fn give_back(&mut self, spare: Spare) {
        self.spare = spare;
    }

    /// Goes on writing through another descriptor of the same file, pipe or socket. Refused if `fd`
    /// is of another file.
    pub fn go_on_at(&mut self, fd: i32) -> Outcome<()> {
        let is_same =
            file_calls::stat(fd).is_ok_and(|stat| [stat.st_dev, stat.st_ino] == self.file);
        if !is_same {
            return refuse!("descriptor {fd}, which the image is written to, was closed meanwhile");
        }
        self.fd = fd;
        self.mapped = None;
        self.seek();
        Ok(())
    }

    /// Moves the file position to the end of what was written, if the destination is a file.
    fn seek(&self) {
        if let Some(start) = self.start {
            let (fd, place) = (self.fd as usize, (start + self.bytes) as usize);
            // SAFETY: it sets the position.
            unsafe { sys::call3(nr::LSEEK, fd, place, libc::SEEK_SET as usize) };
        }
    }

    fn write(&mut self, head: &[u8], content: &[u8]) -> Outcome<()> {
        self.leave_mapped();
        write_all(self.fd, head, content).step("writing the image")?;
        self.bytes += (head.len() + content.len()) as u64;
        Ok(())
    }

    /// The mapped destination and the offset of the next section in it, if `len` bytes fit there.
    fn in_mapped(&mut self, len: u64) -> Option<(&mut MappedImage, u64)> {
        let (mapped, place) = (self.mapped.as_mut()?, self.start? + self.bytes);
        mapped.holds(place + len).then_some((mapped, place))
    }

    /// Ends the use of the mapping. Further bytes are written by system calls, behind those in the
    /// mapping.
    fn leave_mapped(&mut self) {
        if self.mapped.take().is_some() {
            self.seek();
        }
    }

    /// Writes a section of any kind.
    pub fn section(&mut self, kind: u16, address: u64, content: &[u8]) -> Outcome<()> {
        let index = self.sections;
        let len = (Section::LEN + content.len()) as u64;
        if let Some((mapped, place)) = self.in_mapped(len) {
            // SAFETY: the closure only copies bytes.
            let check = unsafe {
                memory_faults::caught(|| mapped.copy(place + Section::LEN as u64, content))
            }?;
            let head = Section::of(kind, index, address, (content.len(), check));
            mapped.put(place, head.bytes());
            self.bytes += len;
            self.count(&head);
            return Ok(());
        }
        let compress = self.compress && matches!(kind, PAGES | CONTENT);
        // SAFETY: the closure only reads bytes, and writes into a buffer that is reserved for
        // compression.
        let (mut head, smaller) = unsafe {
            memory_faults::caught(|| {
                let smaller = compress.then(|| compressed(content)).flatten();
                (Section::new(kind, index, address, content), smaller)
            })
        }?;
        if let Some(block) = smaller {
            head = head.compressed(block.len() as u64);
        }
        self.counted(&head, smaller.unwrap_or(content))
    }

    fn counted(&mut self, head: &Section, stored: &[u8]) -> Outcome<()> {
        self.write(head.bytes(), stored)?;
        self.count(head);
        Ok(())
    }

    /// Counts a section that was written.
    fn count(&mut self, head: &Section) {
        self.sections += 1;
        self.sum = self.sum.wrapping_add(mixed(head.check, head.index));
    }

    /// Writes memory as sections of at most [`BLOCK`] bytes.
    ///
    /// # Safety
    /// The memory is readable, and is not changed meanwhile except by this thread's own writing.
    pub unsafe fn memory(&mut self, ranges: &[[u64; 2]]) -> Outcome<()> {
        let total: u64 = ranges.iter().map(|[start, end]| end - start).sum();
        if self.helped && total >= HELPED_MIN {
            // SAFETY: promised by the caller.
            return unsafe { self.helped(ranges) };
        }
        let mut left = total;
        let mut written = blocks(ranges).peekable();
        // Bytes that were written and are not given back yet.
        let mut kept = 0;
        for (address, len) in blocks(ranges) {
            left -= len as u64;
            // SAFETY: promised by the caller.
            let content = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
            // A lent section is followed by more bytes than the pipe holds. So all lent pages have
            // been read when this function returns, and none is in the pipe when the process
            // resumes.
            match self.lent {
                Some(capacity) if len == BLOCK && left >= capacity => {
                    self.lend(address, content)?;
                }
                _ => self.section(PAGES, address, content)?,
            }
            kept += len as u64;
            // The pages lent last may still be in the pipe. Kernels before 5.9 let the process
            // write into such a page in place if this copy had given it back.
            let held = self.lent.unwrap_or(0);
            while let Some((address, len)) = written.next_if(|(_, len)| kept >= held + *len as u64)
            {
                kept -= len as u64;
                self.spare.give_back(address..address + len as u64);
            }
        }
        Ok(())
    }

    /// Writes a section of memory without copying the memory into the pipe.
    fn lend(&mut self, address: u64, content: &[u8]) -> Outcome<()> {
        let index = self.sections;
        // SAFETY: the closure only reads bytes.
        let head =
            unsafe { memory_faults::caught(|| Section::new(PAGES, index, address, content)) }?;
        self.write(head.bytes(), &[])?;
        let mut done = 0;
        while done < content.len() {
            match sys::lend(self.fd, &content[done..]) {
                Ok(count @ 1..) => {
                    done += count;
                    self.bytes += count as u64;
                }
                Err(sys::EINTR) => {}
                Err(Errno(libc::EPIPE)) => {
                    swallow(libc::SIGPIPE);
                    return Err(Errno(libc::EPIPE)).step("writing the image");
                }
                // The kernel cannot lend this memory, which a device has, say: it is copied.
                _ => {
                    self.write(&[], &content[done..])?;
                    done = content.len();
                }
            }
        }
        self.count(&head);
        Ok(())
    }

    /// Writes memory that other threads may change or unmap at any moment, from a copy. Pages of
    /// zeros are left out where no round has `sent` anything. `written` is called for the ranges
    /// that were written. `missed` is called for each page that could not be read, because it was
    /// unmapped or protected.
    pub fn running_memory(
        &mut self,
        range: Range<u64>,
        sent: &[[u64; 2]],
        mut written: impl FnMut(Range<u64>) -> Outcome<()>,
        mut missed: impl FnMut(u64) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut address = range.start;
        while address < range.end {
            let len = STEP.min((range.end - address) as usize);
            let buffer = match self.lent {
                None => &mut scratch::buffer()[..len],
                // The ring is larger than the pipe. When a place in the ring is used again, the
                // reader has read what was lent from there.
                Some(_) => {
                    if self.ring + len > scratch::RING {
                        self.ring = 0;
                    }
                    scratch::ring(self.ring, len)
                }
            };
            let copied = copy(address, buffer);
            let content = &buffer[..copied];
            let here = address..address + copied as u64;
            let each = |with: &mut dyn FnMut(Range<u64>) -> Outcome<()>| {
                let (copy, none) = (content.as_ptr() as u64, Spare::default());
                // SAFETY: whole pages, in a copy that no other code knows.
                unsafe { spare::without_zeros(here.clone(), copy, sent, none, with) }
            };
            let mut worth = 0;
            each(&mut |piece| {
                worth += piece.end - piece.start;
                Ok(())
            })?;
            // The ring is used only if all copied bytes are lent. Otherwise fewer bytes than the
            // pipe holds would be between two uses of a place.
            let lends = self.lent.is_some() && worth == copied as u64 && copied > 0;
            if lends {
                self.lend(address, content)?;
                self.ring += copied;
            }
            each(&mut |piece| {
                if !lends {
                    let part = |at: u64| (at - address) as usize;
                    let content = &content[part(piece.start)..part(piece.end)];
                    self.section(PAGES, piece.start, content)?;
                }
                written(piece)
            })?;
            address += copied as u64;
            if copied < len {
                missed(address)?;
                address += crate::capture::memory::PAGE;
            }
        }
        Ok(())
    }

    /// As [`memory`](Self::memory), with a helper that makes the heads.
    unsafe fn helped(&mut self, ranges: &[[u64; 2]]) -> Outcome<()> {
        let helper = HeadHelper::new(self.sections, ranges);
        // SAFETY: promised by the caller.
        unsafe {
            helper.during(|| {
                for (number, (address, len)) in (0..).zip(blocks(ranges)) {
                    let content = std::slice::from_raw_parts(address as *const u8, len);
                    let head = memory_faults::caught(|| helper.head(number, address, content))?;
                    self.counted(&head, content)?;
                    helper.written(number);
                }
                Ok(())
            })
        }
    }

    /// Writes the end of the image. Returns the size of the image in bytes.
    pub fn finish(&mut self) -> Outcome<u64> {
        let end = End {
            sections: self.sections.into(),
            bytes: self.bytes,
            sum: self.sum,
        };
        self.section(END, 0, end.bytes())?;
        self.leave_mapped();
        Ok(self.bytes)
    }
}

/// The content as an LZ4 block, if the block is shorter than the content.
fn compressed(content: &[u8]) -> Option<&'static [u8]> {
    let buffer = scratch::second_buffer();
    let room = buffer.len().min(content.len());
    let len = lz4::compress(content, &mut buffer[..room], &mut [0; lz4::TABLE])?;
    Some(&buffer[..len])
}

/// Whether the kernel has process_vm_readv(2) and allows it.
pub fn can_copy() -> bool {
    let page = crate::capture::memory::PAGE as usize;
    copy(scratch::place() as u64, &mut scratch::buffer()[..page]) == page
}

/// Copies memory with process_vm_readv(2), so that unmapped memory causes no fault. Returns the
/// bytes up to the first page that cannot be read, a multiple of the page size.
fn copy(address: u64, buffer: &mut [u8]) -> usize {
    const PROCESS_VM_READV: usize = 310;
    let mut done = 0;
    while done < buffer.len() {
        let to = [buffer[done..].as_mut_ptr() as usize, buffer.len() - done];
        let from = [address as usize + done, buffer.len() - done];
        let (to, from) = (to.as_ptr() as usize, from.as_ptr() as usize);
        let pid = sys::getpid() as usize;
        // SAFETY: the kernel reads only memory that is readable, and writes into the buffer.
        match sys::check(unsafe { sys::call6(PROCESS_VM_READV, pid, to, 1, from, 1, 0) }) {
            Ok(count @ 1..) => done += count,
            _ => break,
        }
    }
    done / crate::capture::memory::PAGE as usize * crate::capture::memory::PAGE as usize
}

/// Writes all of `head`, then all of `content`.
fn write_all(fd: i32, head: &[u8], content: &[u8]) -> sys::Result<()> {
    let mut done = 0;
    while done < head.len() + content.len() {
        let from_head = &head[done.min(head.len())..];
        let from_content = &content[done.saturating_sub(head.len())..];
        match sys::writev(fd, from_head, from_content) {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(count) => done += count,
            Err(sys::EINTR) => {}
            Err(sys::EAGAIN) => await_room(fd)?,
            Err(error) => {
                match error.0 {
                    libc::EPIPE => swallow(libc::SIGPIPE),
                    libc::EFBIG => swallow(libc::SIGXFSZ),
                    _ => {}
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

fn await_room(fd: i32) -> sys::Result<()> {
    let mut poll = [fd as u32 as u64 | (libc::POLLOUT as u64) << 32];
    // SAFETY: one struct pollfd.
    let value = unsafe { sys::call3(nr::POLL, poll.as_mut_ptr() as usize, 1, usize::MAX) };
    match sys::check(value) {
        Err(error) if error != sys::EINTR => Err(error),
        _ => Ok(()),
    }
}

/// Removes the signal that came with a failed write: the reader of the pipe is gone, or the file is
/// at its size limit. The program must not get the signal, which is pending because it is blocked
/// here.
fn swallow(signal: i32) {
    let set = crate::frozen::signal::bit(signal);
    let time = [0u64; 2];
    // SAFETY: the kernel reads set and time.
    unsafe {
        let (set, time) = (&raw const set as usize, time.as_ptr() as usize);
        sys::call4(nr::RT_SIGTIMEDWAIT, set, 0, time, 8)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::{
        fs::File,
        io::{Read as _, Seek as _, Write as _},
        os::fd::AsRawFd as _,
    };

    /// The image of these sections, behind `before` other bytes of a memory file. With `sealed`,
    /// the file has that length and a seal that makes the writer map it.
    fn image(sections: &[&[u8]], before: usize, sealed: Option<u64>) -> Vec<u8> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("test", flags).expect("memory"));
        file.write_all(&vec![7; before]).expect("room");
        if let Some(len) = sealed {
            file.set_len(len).expect("room");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
        }
        let mut out = ImageWriter::begin(file.as_raw_fd(), false, false).expect("a file");
        assert_eq!(out.mapped.is_some(), sealed.is_some());
        for (address, content) in (0..).zip(sections) {
            out.section(CONTENT, address, content).expect("room");
        }
        let bytes = out.finish().expect("room");
        let end = before as u64 + bytes;
        assert_eq!(file.stream_position().expect("a place"), end);
        file.rewind().expect("a place");
        let mut all = Vec::new();
        file.take(end).read_to_end(&mut all).expect("bytes");
        all
    }

    #[test]
    fn an_image_written_into_memory_equals_one_written_by_calls() {
        let long = vec![1; 300_000];
        let sections: [&[u8]; 4] = [&[2; 100], &long, &[], &[3; 5000]];
        for before in [0, 4000] {
            let wanted = image(&sections, before, None);
            let len = wanted.len() as u64;
            // Lengths: exact, longer, and too short for the end, for the long section, for all
            // sections.
            for sealed in [len, len + 1, 3 * len, len - 1, 200_000, 4500] {
                let found = image(&sections, before, Some(sealed));
                assert!(found == wanted, "{before} {sealed}");
            }
        }
    }
}
