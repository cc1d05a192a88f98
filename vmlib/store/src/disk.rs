//! The few operations of a file system that a store is made of.
//!
//! They are a trait so that a test can put a disk in their place whose power it cuts. What a store
//! assumes of it: what was synced survives; what was not may be there, in part or not at all, and
//! a rename that was not synced may have happened or not; a rename itself is never half done.

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

/// What memory, lengths and places have to be a multiple of for [`Disk::bypass_cache`]. Bytes.
pub(crate) const PAGE: usize = 4096;

/// A disk with folders and files.
pub trait Disk: Clone {
    /// An open file.
    type File: Read + Write + Seek + std::fmt::Debug;

    /// Makes a file for writing, which is the owner's only. Fails if there is one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    /// Says whether what is written to the file from here on is to bypass the kernel's cache. Only whole
    /// pages which begin where a page begins do, and not on every file system.
    fn bypass_cache(&self, _file: &mut Self::File, _bypass: bool) {}
    /// What is in the cache of a file, and on the disk, is not kept there any longer.
    fn leave_cache(&self, _file: &mut Self::File) {}
    /// Opens a file for reading, and says how many bytes it has.
    fn open(&self, path: &Path) -> io::Result<(Self::File, u64)>;
    /// Returns when what was written to the file is on the disk. Its name need not be.
    fn sync(&self, file: &mut Self::File) -> io::Result<()>;
    /// Gives a file another name in the same folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder, which is the owner's only. Fails if there is one.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Returns when all names in the folder, and those that are gone from it, are so on the disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, in any order; those that are no text are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// The file systems of this host.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

/// A file of this host.
#[derive(Debug)]
pub struct SystemFile {
    file: File,
    /// It bypasses the cache.
    direct: bool,
}

impl SystemFile {
    fn new(file: File) -> Self {
        let direct = false;
        SystemFile { file, direct }
    }

    /// Whether the file was told so.
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
            // What comes later would not begin where a page does.
            self.set_direct(false);
        }
        match self.file.write(bytes) {
            // Some file systems take the flag and not what comes.
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
        // It would be used up by others in time.
        let _ = fadvise(&file.file, 0, None, Advice::DontNeed);
    }

    fn open(&self, path: &Path) -> io::Result<(SystemFile, u64)> {
        // A link leads out of the store, and a pipe would have the call wait.
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
        // Where the file system does not know it, it was never so.
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
