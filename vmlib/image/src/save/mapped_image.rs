//! A memory file ([`image_memory`](crate::save::image_memory)) that is mapped into the process that
//! writes its image. Copying into the mapping takes half the time of write(2), which looks up each
//! page anew.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    frozen::file_calls,
    raw::{
        checksum::copied,
        sys::{self, Errno, nr},
    },
};

/// The size of a large page of x86-64. Bytes.
pub const LARGE_PAGE: usize = 2 << 20;
const PAGE: usize = crate::capture::memory::PAGE as usize;

/// The whole memory file, mapped for writing.
#[derive(Debug)]
pub struct MappedImage(MappedFile);

impl MappedImage {
    /// Maps the file, if it is memory made for images, which does not become shorter.
    pub fn of(fd: i32) -> Option<Self> {
        if !is_made(fd) {
            return None;
        }
        let len = usize::try_from(file_calls::stat(fd).ok()?.st_size).ok()?;
        MappedFile::of(fd, len, libc::PROT_READ | libc::PROT_WRITE)
            .ok()
            .map(MappedImage)
    }

    /// Whether the first `bytes` bytes of the file are all in the mapping.
    pub fn holds(&self, bytes: u64) -> bool {
        bytes <= self.0.len as u64
    }

    /// Writes bytes at offset `at`, where they must fit.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: within the mapping, which no other code knows; its file does not become shorter.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Writes bytes at offset `at`, where they must fit, and returns their checksum.
    pub fn copy(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let to = self.place(at, bytes.len());
        // SAFETY: as in `put`.
        unsafe { copied(bytes, to) }
    }

    fn place(&self, at: u64, len: usize) -> *mut u8 {
        assert!(self.holds(at + len as u64));
        (self.0.start + at as usize) as *mut u8
    }
}

/// Whether a file is memory made for images: it is sealed against becoming shorter.
pub fn is_made(fd: i32) -> bool {
    let seals = file_calls::control(fd, libc::F_GET_SEALS, 0);
    seals.is_ok_and(|seals| seals as i32 & libc::F_SEAL_SHRINK != 0)
}

/// A part of a file, mapped shared.
#[derive(Debug)]
pub struct MappedFile {
    pub start: usize,
    pub len: usize,
}

impl MappedFile {
    /// Maps the beginning of a file.
    pub fn of(fd: i32, len: usize, prot: i32) -> sys::Result<Self> {
        Self::at(fd, 0, len, prot)
    }

    /// Maps `len` bytes from offset `from`, a multiple of [`LARGE_PAGE`]. The mapping begins at a
    /// multiple of that, too, so that a large page of the file is a large page of the mapping.
    pub fn at(fd: i32, from: usize, len: usize, prot: i32) -> sys::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let around = len.checked_add(LARGE_PAGE).ok_or(Errno(libc::ENOMEM))?;
        let around = around.next_multiple_of(PAGE);
        let reserved = sys::map(0, around, libc::PROT_NONE, flags)?;
        let start = reserved.next_multiple_of(LARGE_PAGE);
        let end = start + len.next_multiple_of(PAGE);
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as usize;
        // SAFETY: the mapping replaces a part of the range that was just reserved. The rest of that
        // range, or all of it, is unmapped.
        unsafe {
            let mapped = sys::call6(
                nr::MMAP,
                start,
                len,
                prot as usize,
                flags,
                fd as usize,
                from,
            );
            if let Err(error) = sys::check(mapped) {
                let _ = sys::unmap(reserved, around);
                return Err(error);
            }
            let _ = sys::unmap(reserved, start - reserved);
            let _ = sys::unmap(end, reserved + around - end);
        }
        Ok(MappedFile { start, len })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: nothing uses the mapping any more. The written bytes stay in the file.
        let _ = unsafe { sys::unmap(self.start, self.len) };
    }
}
