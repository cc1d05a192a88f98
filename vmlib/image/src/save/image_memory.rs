//! Memory that images are written into, to be read by another process: files without names
//! (memfd_create(2)), in large pages where the system has them.
//!
//! Of large pages an image is written, read and handed to a disk in half the time or less: what is
//! done for each page is done for 512 at once. The kernel gives such files none by itself unless
//! it is told to for the whole host; but it puts small pages together when it is asked to
//! (MADV_COLLAPSE, from Linux 6.1 on).

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
/// So much is put together at a time: what a process has mapped counts as its own, where the kernel
/// looks for one to kill. Bytes.
const STEP: u64 = 32 << 20;

/// Makes the memory that an image of so many bytes needs, in large pages: the file is as long then,
/// does not become shorter any more, and a process that writes an image into it writes into the
/// memory itself. It must have been opened for seals.
///
/// # Errors
/// What the system says. It has no more than the memory then.
pub fn make(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let bytes = bytes.next_multiple_of(LARGE_PAGE as u64);
    fallocate(file, FallocateFlags::empty(), 0, bytes)?;
    for at in (0..bytes).step_by(STEP as usize) {
        let mapped = map(file, at, STEP.min(bytes - at))?;
        // SAFETY: the mapping is there, and its content stays the same.
        let told = unsafe { libc::madvise(mapped.start as *mut c_void, mapped.len, MADV_COLLAPSE) };
        if told < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    fcntl_add_seals(file, SealFlags::SHRINK)?;
    Ok(())
}

/// An image in such memory.
#[derive(Debug)]
pub struct Written(MappedFile);

impl Written {
    /// The first bytes of a file, if it is such memory.
    ///
    /// # Safety
    /// Nobody writes into it as long as this lives.
    ///
    /// # Errors
    /// It is shorter, or what the system says.
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
        // SAFETY: it is mapped, the file does not become shorter, and nobody writes into it.
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
    fn memory_is_made_around_what_is_there_or_not_at_all() {
        let file = file();
        pwrite(&file, b"before", 5_000_000).expect("room");
        match make(file.as_fd(), 6_000_000) {
            Ok(()) => {
                assert!(is_made(file.as_raw_fd()));
                assert_eq!(fstat(&file).expect("a file").st_size, 6 << 20);
                assert_eq!(ftruncate(&file, 100), Err(Errno::PERM));
                // More of it.
                make(file.as_fd(), 7_000_000).expect("room");
                assert_eq!(fstat(&file).expect("a file").st_size, 8 << 20);
            }
            // The kernel puts no pages together.
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
    fn what_was_written_is_seen_where_it_was_made() {
        let file = file();
        pwrite(&file, b"what is written", 0).expect("room");
        // SAFETY: nobody writes any more.
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
