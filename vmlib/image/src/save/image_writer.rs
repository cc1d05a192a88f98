//! Writes an image: heads, contents, the end. One pass, in order. Of much memory that goes
//! to a file a helper makes the heads ahead of the writing ([`crate::save::head_helper`]).
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

/// Memory that is copied at once: it stays in the processor's cache until it was sent. Bytes.
const STEP: usize = 256 << 10;
/// Below so many bytes a helper is not worth its start.
const HELPED_MIN: u64 = 16 << 20;

/// Where an image goes, and how far it is.
pub struct ImageWriter {
    fd: i32,
    /// Device and number of what the descriptor is.
    file: [u64; 2],
    /// Where the image begins, if that is a place in a file.
    start: Option<u64>,
    /// If it is memory: where it is.
    mapped: Option<MappedImage>,
    bytes: u64,
    sections: u32,
    sum: u64,
    /// Memory is compressed, if that makes it smaller.
    compress: bool,
    /// Of a pipe that memory is lent to: the bytes that it holds.
    lent: Option<u64>,
    /// Where in the memory that is kept for that the next copy goes.
    ring: usize,
    /// A helper makes heads. The reader of a pipe or socket is busy while this writes, and needs
    /// the other processor, as do other tasks that stand and write into memory.
    helped: bool,
    /// What is not needed any more once it is written.
    spare: Spare,
}

impl ImageWriter {
    /// Begins an image.
    pub fn begin(fd: i32, compress: bool, lend: bool) -> Outcome<Self> {
        let stat = file_calls::stat(fd).step("looking where the image goes")?;
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        // SAFETY: it only asks.
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

    /// This is a copy of the process: of the memory that it writes from here on to a pipe or
    /// socket, it gives back what is spare.
    pub fn give_back(&mut self, spare: Spare) {
        self.spare = spare;
    }

    /// Goes on at another descriptor of the same file, pipe or socket.
    pub fn go_on_at(&mut self, fd: i32) -> Outcome<()> {
        let is_same =
            file_calls::stat(fd).is_ok_and(|stat| [stat.st_dev, stat.st_ino] == self.file);
        if !is_same {
            return refuse!("descriptor {fd}, where the image goes, was closed meanwhile");
        }
        self.fd = fd;
        self.mapped = None;
        self.seek();
        Ok(())
    }

    /// Goes on behind what was written, if it is a file.
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

    /// The mapped, and where what comes next is in it, if so many bytes fit there.
    fn in_mapped(&mut self, len: u64) -> Option<(&mut MappedImage, u64)> {
        let (mapped, place) = (self.mapped.as_mut()?, self.start? + self.bytes);
        mapped.holds(place + len).then_some((mapped, place))
    }

    /// What follows, if anything does, is written by calls, behind what is in the mapped.
    fn leave_mapped(&mut self) {
        if self.mapped.take().is_some() {
            self.seek();
        }
    }

    /// Writes a section.
    pub fn section(&mut self, kind: u16, address: u64, content: &[u8]) -> Outcome<()> {
        let index = self.sections;
        let len = (Section::LEN + content.len()) as u64;
        if let Some((mapped, place)) = self.in_mapped(len) {
            // SAFETY: it copies bytes.
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
        // SAFETY: it reads bytes, and writes into a buffer for it.
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

    /// A section is written.
    fn count(&mut self, head: &Section) {
        self.sections += 1;
        self.sum = self.sum.wrapping_add(mixed(head.check, head.index));
    }

    /// Writes memory, as many sections as it takes.
    ///
    /// # Safety
    /// It is readable, and not changed meanwhile but by this thread's own work.
    pub unsafe fn memory(&mut self, ranges: &[[u64; 2]]) -> Outcome<()> {
        let total: u64 = ranges.iter().map(|[start, end]| end - start).sum();
        if self.helped && total >= HELPED_MIN {
            // SAFETY: promised by the caller.
            return unsafe { self.helped(ranges) };
        }
        let mut left = total;
        let mut written = blocks(ranges).peekable();
        // Bytes that are written and not given back.
        let mut kept = 0;
        for (address, len) in blocks(ranges) {
            left -= len as u64;
            // SAFETY: promised by the caller.
            let content = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
            // What is lent is read before this returns, because more follows than the pipe holds:
            // nothing of it is in the pipe when this process goes on.
            match self.lent {
                Some(capacity) if len == BLOCK && left >= capacity => {
                    self.lend(address, content)?;
                }
                _ => self.section(PAGES, address, content)?,
            }
            kept += len as u64;
            // The pipe may still hold what was lent to it last, and to kernels before 5.9 that was
            // no reason not to let the process write there, had this copy given it back.
            let held = self.lent.unwrap_or(0);
            while let Some((address, len)) = written.next_if(|(_, len)| kept >= held + *len as u64)
            {
                kept -= len as u64;
                self.spare.give_back(address..address + len as u64);
            }
        }
        Ok(())
    }

    /// Writes a section of memory, which need not be copied.
    fn lend(&mut self, address: u64, content: &[u8]) -> Outcome<()> {
        let index = self.sections;
        // SAFETY: it reads bytes.
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
                // Memory of a device, or the like: it is copied.
                _ => {
                    self.write(&[], &content[done..])?;
                    done = content.len();
                }
            }
        }
        self.count(&head);
        Ok(())
    }

    /// Writes memory that others may change, or take away, in this moment: copied first. Zeros
    /// where nothing was `sent` before are left out. What is written is told, and so are pages
    /// that cannot be read, because they have gone or are protected now.
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
                // The memory for it is larger than what the pipe holds: what was there before was
                // read when its place comes again.
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
                // SAFETY: whole pages, in a copy that nobody else knows.
                unsafe { spare::without_zeros(here.clone(), copy, sent, none, with) }
            };
            let mut worth = 0;
            each(&mut |piece| {
                worth += piece.end - piece.start;
                Ok(())
            })?;
            // If less is lent than was copied, the place would come again too early.
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

    /// As `memory`, with a helper that makes the heads.
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

    /// Writes the end. Returns the bytes of the image.
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

/// The content as an LZ4 block, if that is shorter.
fn compressed(content: &[u8]) -> Option<&'static [u8]> {
    let buffer = scratch::second_buffer();
    let room = buffer.len().min(content.len());
    let len = lz4::compress(content, &mut buffer[..room], &mut [0; lz4::TABLE])?;
    Some(&buffer[..len])
}

/// Whether the kernel has the call that copies memory as another process would, and allows it.
pub fn can_copy() -> bool {
    let page = crate::capture::memory::PAGE as usize;
    copy(scratch::place() as u64, &mut scratch::buffer()[..page]) == page
}

/// Copies memory as another process would: what is not there is no fault. Whole pages.
fn copy(address: u64, buffer: &mut [u8]) -> usize {
    const PROCESS_VM_READV: usize = 310;
    let mut done = 0;
    while done < buffer.len() {
        let to = [buffer[done..].as_mut_ptr() as usize, buffer.len() - done];
        let from = [address as usize + done, buffer.len() - done];
        let (to, from) = (to.as_ptr() as usize, from.as_ptr() as usize);
        let pid = sys::getpid() as usize;
        // SAFETY: the kernel reads what can be read, and writes into the buffer.
        match sys::check(unsafe { sys::call6(PROCESS_VM_READV, pid, to, 1, from, 1, 0) }) {
            Ok(count @ 1..) => done += count,
            _ => break,
        }
    }
    done / crate::capture::memory::PAGE as usize * crate::capture::memory::PAGE as usize
}

/// Writes both parts, all of them.
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

/// The reader has gone, or the file may grow no more. The signal that says so to programs is not
/// for this one: it is blocked here, so it waits, and is taken out.
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

    /// An image of these sections, behind `before` bytes, in memory of that length, which is
    /// sealed so that it is not written to by calls.
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
    fn what_goes_into_memory_is_what_goes_through_calls() {
        let long = vec![1; 300_000];
        let sections: [&[u8]; 4] = [&[2; 100], &long, &[], &[3; 5000]];
        for before in [0, 4000] {
            let wanted = image(&sections, before, None);
            let len = wanted.len() as u64;
            // As long as it is needed, longer, and too short for the end, the long one, all.
            for sealed in [len, len + 1, 3 * len, len - 1, 200_000, 4500] {
                let found = image(&sections, before, Some(sealed));
                assert!(found == wanted, "{before} {sealed}");
            }
        }
    }
}
