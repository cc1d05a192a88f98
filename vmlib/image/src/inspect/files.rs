//! Checks whether the files of a process are on this host as they were at its save. The image has
//! their names, sizes and checksums, and the content of carried files.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd as _,
        unix::{ffi::OsStringExt as _, fs::FileTypeExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Access, Mode, OFlags};

use crate::{
    capture::file_content::{PIECE, sum_with},
    format::Heads,
    options::Folders,
    raw::records::{self, FD_DEVICE, FD_FILE, FD_KERNEL, FILE, FileRecord, Name},
};

/// Why a file would make a restore fail, or have the restored process compute with other data.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// The file does not exist.
    #[error(
        "{} is missing, which the process had open as descriptor {fd}: put a copy there",
        path.display()
    )]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The descriptor that the file was open as.
        fd: u32,
    },
    /// The file cannot be opened with the flags that it was open with.
    #[error(
        "{} cannot be opened as descriptor {fd} was: {cause}; give the rights to do so, or put a \
         copy there",
        path.display()
    )]
    Closed {
        /// The path of the file.
        path: PathBuf,
        /// The descriptor that the file was open as.
        fd: u32,
        /// The error that the system reported.
        cause: io::Error,
    },
    /// The file is neither a regular file nor a directory, or a directory in place of a file.
    #[error(
        "{} is of another kind than what the process had open as descriptor {fd}: put a copy there",
        path.display()
    )]
    Kind {
        /// The path of the file.
        path: PathBuf,
        /// The descriptor that the file was open as.
        fd: u32,
    },
    /// The file has another size.
    #[error(
        "{} has changed since the save: it has {now} bytes, and had {then}; {}",
        path.display(),
        remedy(*carried)
    )]
    Size {
        /// The path of the file.
        path: PathBuf,
        /// Size at the save. Bytes.
        then: u64,
        /// Size now. Bytes.
        now: u64,
        /// Whether the image carries the content of the file.
        carried: bool,
    },
    /// The file has other content, at the same or a greater size.
    #[error(
        "{} has changed since the save: its content is different; {}",
        path.display(),
        remedy(*carried)
    )]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// Whether the image carries the content of the file.
        carried: bool,
    },
    /// The file is missing, and cannot be made from carried content because of its folder.
    #[error(
        "{} is missing, which the process had open as descriptor {fd}, and its folder cannot be \
         written, where it would be made: {cause}; make that folder, or give the rights to \
         write there",
        path.display()
    )]
    Folder {
        /// The path of the file.
        path: PathBuf,
        /// The descriptor that the file was open as.
        fd: u32,
        /// The error that the system reported.
        cause: io::Error,
    },
    /// The file cannot be read, so it cannot be compared.
    #[error(
        "{} cannot be read, so it cannot be compared with the save: {cause}",
        path.display()
    )]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error that the system reported.
        cause: io::Error,
    },
    /// A file of which the process has a shared mapping cannot be mapped.
    #[error("{} cannot be mapped: {cause}; put a copy there", path.display())]
    Mapped {
        /// The path of the file.
        path: PathBuf,
        /// The error that the system reported.
        cause: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("{} cannot be the working directory: {cause}", path.display())]
    Directory {
        /// The path of the folder.
        path: PathBuf,
        /// The error that the system reported.
        cause: io::Error,
    },
}

/// The remedy for a file that has changed.
fn remedy(carried: bool) -> &'static str {
    match carried {
        false => "restore its former content",
        true => "restore its former content, or remove it: then it is made from the image",
    }
}

/// Finds the files of an image that are a problem on this host: open files that the restore opens
/// by path, files that are mapped, and the working directory.
///
/// Not a problem is a file that is as it was, a file that has grown and that the process can write,
/// and a missing file that the image carries. Of each open file, as many bytes are compared as the
/// checksum covers: all bytes, unless [`Options::checked_max`](crate::Options) was lower. A file
/// that is shorter than its carried content is not compared here, because the restored process
/// compares it and completes it. With `roll_back`, as in [`RestoreOptions`](crate::RestoreOptions),
/// a carried file that the process can write may have any content. `maps` translates the paths of
/// folders.
pub fn check_files(heads: &Heads, roll_back: bool, maps: &[Folders<'_>]) -> Vec<FileProblem> {
    let mut problems = Vec::new();
    let dir = path(heads, heads.facts().dir, maps);
    if let Err(cause) = rustix::fs::access(&dir, Access::EXEC_OK) {
        let (path, cause) = (dir, cause.into());
        problems.push(FileProblem::Directory { path, cause });
    }
    let mut buffer = vec![0; PIECE];
    for record in heads.files() {
        let path = match record.kind {
            FD_FILE => path(heads, record.name, maps),
            _ => path(heads, record.name, &[]),
        };
        let checked = match record.kind {
            // A duplicate is the same open file as its original.
            _ if record.original != record.fd => Ok(()),
            FD_FILE => check_file(heads, record, &path, roll_back, &mut buffer),
            FD_DEVICE => check_device(&path, record.fd),
            FD_KERNEL => check_kernels(&path, record.fd),
            _ => Ok(()),
        };
        problems.extend(checked.err());
    }
    let mut mapped: Vec<&records::Mapping> = heads.mappings().iter().collect();
    mapped.retain(|mapping| mapping.kind == FILE);
    mapped.sort_by_key(|mapping| heads.name_bytes(mapping.name));
    mapped.dedup_by_key(|mapping| heads.name_bytes(mapping.name));
    for mapping in mapped {
        let path = path(heads, mapping.name, maps);
        if let Err(cause) = fs::metadata(&path) {
            problems.push(FileProblem::Mapped { path, cause });
        }
    }
    problems
}

fn path(heads: &Heads, name: Name, maps: &[Folders<'_>]) -> PathBuf {
    let name = heads.name_bytes(name);
    let found = maps.iter().map(|map| Folders::there(Some(*map), name));
    let (first, rest) = { found }
        .find(|(first, _)| *first != name)
        .unwrap_or((name, &[]));
    PathBuf::from(OsString::from_vec([first, rest].concat()))
}

fn check_file(
    heads: &Heads,
    record: &FileRecord,
    path: &Path,
    roll_back: bool,
    buffer: &mut [u8],
) -> Result<(), FileProblem> {
    let fd = record.fd;
    let carried = heads.is_carried(record);
    let own = || path.to_owned();
    let closed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => FileProblem::Missing { path: own(), fd },
        _ => FileProblem::Closed {
            path: own(),
            fd,
            cause,
        },
    };
    // The kind is checked before the file is opened, because opening a device may have effects.
    let now = match fs::metadata(path) {
        Err(cause) if carried && cause.kind() == io::ErrorKind::NotFound => {
            return check_folder(path, fd);
        }
        found => found.map_err(closed)?,
    };
    if !(now.is_file() || now.is_dir() && record.size == 0) {
        return Err(FileProblem::Kind { path: own(), fd });
    }
    let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
    let flags = OFlags::from_bits_retain(record.flags) - once;
    let safe = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags | safe, Mode::empty()).map_err(|error| closed(error.into()))?;
    if !now.is_file() {
        return Ok(());
    }
    let size = FileProblem::Size {
        path: own(),
        then: record.size,
        now: now.len(),
        carried,
    };
    // If the file could not be read at the save, growth cannot be told from other changes.
    let may_grow = record.may_grow(heads.files()) && (record.checked > 0 || record.size == 0);
    if carried && record.may_grow(heads.files()) && (roll_back || now.len() < record.size) {
        return Ok(());
    }
    if now.len() < record.size || now.len() > record.size && !may_grow {
        return Err(size);
    }
    if record.checked == 0 {
        return Ok(());
    }
    let unreadable = |cause| FileProblem::Unreadable { path: own(), cause };
    let file = File::open(path).map_err(unreadable)?;
    let found = sum_with(file.as_raw_fd(), true, record.checked, buffer)
        .map_err(|error| unreadable(io::Error::from_raw_os_error(error.0)))?;
    match found == (record.check, record.checked) {
        true => Ok(()),
        false => Err(FileProblem::Content {
            path: own(),
            carried,
        }),
    }
}

/// Checks whether a file can be made in its folder.
fn check_folder(path: &Path, fd: u32) -> Result<(), FileProblem> {
    let folder = path.parent().unwrap_or(path);
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(folder, rights).map_err(|error| FileProblem::Folder {
        path: path.to_owned(),
        fd,
        cause: error.into(),
    })
}

/// The content of a file of the kernel's is not compared.
fn check_kernels(path: &Path, fd: u32) -> Result<(), FileProblem> {
    let path = || path.to_owned();
    match fs::metadata(path()) {
        Ok(_) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            Err(FileProblem::Missing { path: path(), fd })
        }
        Err(cause) => Err(FileProblem::Closed {
            path: path(),
            fd,
            cause,
        }),
    }
}

fn check_device(path: &Path, fd: u32) -> Result<(), FileProblem> {
    match fs::metadata(path) {
        Ok(now) if now.file_type().is_char_device() => Ok(()),
        Ok(_) => Err(FileProblem::Kind {
            path: path.to_owned(),
            fd,
        }),
        Err(_) => Err(FileProblem::Missing {
            path: path.to_owned(),
            fd,
        }),
    }
}
