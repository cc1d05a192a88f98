//! Memory that images are written into and that another process reads: memory files
//! (memfd_create(2)), in large pages where the system has them.
//!
//! In large pages an image is written, read and handed to a disk in half the time or less, because
//! work that is done for each page is done for 512 pages at once. The kernel gives memory files no
//! large pages by itself unless it is configured so for the whole host. But the kernel joins small
//! pages on request (MADV_COLLAPSE, since Linux 6.1).

use crate::save::mapped_image::{LARGE_PAGE, MappedFile, is_made};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fstat};
use std::{
    ffi::c_void,
    io,
    ops::Deref,
    os::fd::{AsRawFd, BorrowedFd},
    slice,
};

const MADV_COLLAPSE: i32 = 25;
/// The memory that is joined at a time. A mapping counts as memory of the process, which the kernel
/// considers when it must kill a process. Bytes.
const STEP: u64 = 32 << 20;

/// Allocates the memory that an image of so many bytes needs, in large pages. The file then has at
/// least that length and is sealed against becoming shorter. A process that writes an image into it
/// writes into the mapped memory. The file must have been created for seals.
///
/// # Errors
/// The error that the system reported. The file then has its memory, or a part of it, but no seal.
pub fn make(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let bytes = bytes.next_multiple_of(LARGE_PAGE as u64);
    fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    for at in (0..bytes).step_by(STEP as usize) {
        let mapped = map(file, at, STEP.min(bytes - at))?;
        // SAFETY: the range is mapped, and its content stays the same.
        let told = unsafe { libc::madvise(mapped.start as *mut c_void, mapped.len, MADV_COLLAPSE) };
        if told < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    fcntl_add_seals(file, SealFlags::SHRINK)?;
    Ok(())
}

/// An image in a memory file, mapped for reading.
#[derive(Debug)]
pub struct Written(MappedFile);

impl Written {
    /// The first `bytes` bytes of a file; `None` if the file was not prepared by [`make`].
    ///
    /// # Safety
    /// No process writes into the file as long as the value lives.
    ///
    /// # Errors
    /// The file is shorter than `bytes`, or the error that the system reported.
    pub unsafe fn of(file: BorrowedFd<'_>, bytes: u64) -> io::Result<Option<Self>> {
        if !is_made(file.as_raw_fd()) {
            return Ok(None);
        }
        if (fstat(file)?.st_size as u64) < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        map(file, 0, bytes).map(|mapping| Some(Written(mapping)))
    }
}

impl Deref for Written {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped, the file does not become shorter, and no process writes into
        // it.
        unsafe { slice::from_raw_parts(self.0.start as *const u8, self.0.len) }
    }
}

fn map(file: BorrowedFd<'_>, from: u64, bytes: u64) -> io::Result<MappedFile> {
    let number = |bytes| usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory);
    let mapped = MappedFile::at(
        file.as_raw_fd(),
        number(from)?,
        number(bytes)?,
        libc::PROT_READ,
    );
    mapped.map_err(|error| io::Error::from_raw_os_error(error.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{
        fd::OwnedFd,
        fs::{MemfdFlags, ftruncate, memfd_create},
        io::{Errno, pread, pwrite},
    };
    use std::os::fd::AsFd;

    fn file() -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        memfd_create("test", flags).expect("memory")
    }

    #[test]
    fn existing_content_stays_when_memory_is_made() {
        let file = file();
        pwrite(&file, b"before", 5_000_000).expect("room");
        match make(file.as_fd(), 6_000_000) {
            Ok(()) => {
                assert!(is_made(file.as_raw_fd()));
                assert_eq!(fstat(&file).expect("a file").st_size, 6 << 20);
                assert_eq!(ftruncate(&file, 100), Err(Errno::PERM));
                // A second call makes the file longer.
                make(file.as_fd(), 7_000_000).expect("room");
                assert_eq!(fstat(&file).expect("a file").st_size, 8 << 20);
            }
            // The kernel cannot join pages.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
                assert!(!is_made(file.as_raw_fd()));
            }
        }
        let mut bytes = [0; 6];
        pread(&file, &mut bytes, 5_000_000).expect("bytes");
        assert_eq!(&bytes, b"before");
    }

    #[test]
    fn a_written_image_can_be_mapped_only_in_sealed_memory() {
        let file = file();
        pwrite(&file, b"what is written", 0).expect("room");
        // SAFETY: nothing writes to the file any more.
        let seen = |bytes| unsafe { Written::of(file.as_fd(), bytes) };
        assert!(seen(7).expect("a file").is_none());
        fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
        assert_eq!(
            &**seen(7).expect("a file").as_ref().expect("it is made"),
            b"what is"
        );
        let error = seen(16).expect_err("it has 15");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
