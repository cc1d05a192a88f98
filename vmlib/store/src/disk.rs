//! The operations of a file system that a store uses.
//!
//! A trait names the operations, so that a test can use a disk whose power the test cuts. A store
//! assumes of a disk:
//!
//! - Synced bytes and names survive a power cut.
//! - Bytes that were not synced may be there completely, in part, or not at all.
//! - A rename that was not synced may have happened or not; a rename is never half done.

use rustix::{
    fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl},
    io::Errno,
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Unit of the addresses, lengths and offsets of writes that bypass the page cache
/// ([`Disk::bypass_cache`]). Bytes.
pub(crate) const PAGE: usize = 4096;

/// A disk with folders and files.
pub trait Disk: Clone {
    /// An open file.
    type File: Read + Write + Seek + std::fmt::Debug;

    /// Creates a file for writing, which only its owner may access. Fails if the file exists.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Sets whether writes to the file bypass the page cache from here on. Only whole pages at page
    /// boundaries bypass it, and only on some file systems.
    fn bypass_cache(&self, _file: &mut Self::File, _bypass: bool) {}
    /// Drops pages of the file from the page cache that are on the disk.
    fn leave_cache(&self, _file: &mut Self::File) {}
    /// Opens a file for reading. Also returns its length. Bytes.
    fn open(&self, path: &Path) -> io::Result<(Self::File, u64)>;
    /// Returns when the content of the file is on the disk. The name of the file need not be on the
    /// disk.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Renames a file within its folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; fails if the file does not exist.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a folder, which only its owner may access. Fails if the folder exists.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder; fails if the folder is not empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns when all additions and removals of names in the folder are on the disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in any order. Names that are not UTF-8 are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// The file systems of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

/// A file of this host.
#[derive(Debug)]
pub struct SystemFile {
    file: File,
    /// Writes bypass the page cache.
    direct: bool,
}

impl SystemFile {
    fn new(file: File) -> Self {
        let direct = false;
        SystemFile { file, direct }
    }

    /// Sets the flag. Returns whether the file system accepted it.
    fn set_direct(&mut self, direct: bool) -> bool {
        let set = fcntl_getfl(&self.file).and_then(|mut flags| {
            flags.set(OFlags::DIRECT, direct);
            fcntl_setfl(&self.file, flags)
        });
        if set.is_ok() {
            self.direct = direct;
        }
        set.is_ok()
    }
}

impl Write for SystemFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_whole = bytes.len().is_multiple_of(PAGE) && bytes.as_ptr().align_offset(PAGE) == 0;
        if self.direct && !is_whole {
            // A later write would not begin at a page boundary.
            self.set_direct(false);
        }
        match self.file.write(bytes) {
            // Some file systems accept the flag and then refuse the write.
            Err(cause)
                if self.direct
                    && cause.raw_os_error() == Some(Errno::INVAL.raw_os_error())
                    && self.set_direct(false) =>
            {
                self.file.write(bytes)
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for SystemFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Seek for SystemFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Disk for System {
    type File = SystemFile;

    fn create(&self, path: &Path) -> io::Result<SystemFile> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(SystemFile::new(file))
    }

    fn bypass_cache(&self, file: &mut SystemFile, bypass: bool) {
        file.set_direct(bypass);
    }

    fn leave_cache(&self, file: &mut SystemFile) {
        // Pages of a finished file would displace pages of other processes.
        let _ = fadvise(&file.file, 0, None, Advice::DontNeed);
    }

    fn open(&self, path: &Path) -> io::Result<(SystemFile, u64)> {
        // A link could lead out of the store, and opening a pipe would block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok((SystemFile::new(file), metadata.len()))
    }

    fn sync(&self, file: &mut SystemFile) -> io::Result<()> {
        file.file.sync_data()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the kernel bypasses its cache for this file.
    fn is_direct(file: &SystemFile) -> bool {
        let flags = fcntl_getfl(&file.file).expect("it is open");
        flags.contains(OFlags::DIRECT)
    }

    #[test]
    fn a_file_that_bypasses_the_cache_takes_whatever_comes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut file = System.create(&path).expect("a file");
        System.bypass_cache(&mut file, true);
        let bytes: Vec<u8> = (0..5 * PAGE).map(|at| (at % 251) as u8).collect();
        let start = bytes.as_ptr().align_offset(PAGE);
        let (whole, rest) = bytes[start..].split_at(3 * PAGE);
        file.write_all(whole).expect("room");
        // A file system without the flag never set it.
        let was = is_direct(&file);
        file.write_all(&rest[..7]).expect("room");
        assert!(!is_direct(&file));
        file.write_all(&rest[7..]).expect("room");
        System.sync(&mut file).expect("a disk");
        assert!(fs::read(&path).expect("the file") == bytes[start..]);
        let on_disk = rustix::fs::statfs(&path).expect("a file system").f_type;
        const EXT4: u64 = 0xef53;
        assert!(was || on_disk as u64 != EXT4);
    }
}
