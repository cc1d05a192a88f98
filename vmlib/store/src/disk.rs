//! The few operations of a file system that a store is made of.
//!
//! They are a trait so that a test can put a disk in their place whose power it cuts. What a store
//! assumes of it: what was synced survives; what was not may be there, in part or not at all, and
//! a rename that was not synced may have happened or not; a rename itself is never half done.

use rustix::fs::OFlags;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// A disk with folders and files.
pub trait Disk: Clone {
    /// An open file.
    type File: Read + Write + Seek + std::fmt::Debug;

    /// Makes a file for writing, which is the owner's only. Fails if there is one.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
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

impl Disk for System {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
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
        Ok((file, metadata.len()))
    }

    fn sync(&self, file: &mut File) -> io::Result<()> {
        file.sync_data()
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
