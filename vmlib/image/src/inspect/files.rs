//! Looks whether the files of a process are on this host what they were at its save. The image has
//! their names, sizes and checksums, and, if that was asked for, what they held.

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

/// Why a file would make a restore fail, or let the restored process compute with other data.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// There is nothing of that name.
    #[error(
        "{} is missing, which the process had open as descriptor {fd}: put a copy there",
        path.display()
    )]
    Missing {
        /// Its path.
        path: PathBuf,
        /// The descriptor.
        fd: u32,
    },
    /// It cannot be opened again as it was.
    #[error(
        "{} cannot be opened as descriptor {fd} was: {cause}; give the rights to do so, or put a \
         copy there",
        path.display()
    )]
    Closed {
        /// Its path.
        path: PathBuf,
        /// The descriptor.
        fd: u32,
        /// The system's reason.
        cause: io::Error,
    },
    /// Neither a regular file nor a directory, or a directory in place of a file.
    #[error(
        "{} is of another kind than what the process had open as descriptor {fd}: put a copy there",
        path.display()
    )]
    Kind {
        /// Its path.
        path: PathBuf,
        /// The descriptor.
        fd: u32,
    },
    /// Longer or shorter than it was.
    #[error(
        "{} has changed since the save: it has {now} bytes, and had {then}; {}",
        path.display(),
        remedy(*carried)
    )]
    Size {
        /// Its path.
        path: PathBuf,
        /// Bytes at the save.
        then: u64,
        /// Bytes here.
        now: u64,
        /// Whether the image has its content.
        carried: bool,
    },
    /// As long as it was or longer, with another content.
    #[error(
        "{} has changed since the save: it no longer holds what it held; {}",
        path.display(),
        remedy(*carried)
    )]
    Content {
        /// Its path.
        path: PathBuf,
        /// Whether the image has its content.
        carried: bool,
    },
    /// It is missing, and cannot be made of what the image has.
    #[error(
        "{} is missing, which the process had open as descriptor {fd}, and its folder cannot be \
         written, where it would be made again: {cause}; make that folder, or give the rights to \
         write there",
        path.display()
    )]
    Folder {
        /// Its path.
        path: PathBuf,
        /// The descriptor.
        fd: u32,
        /// The system's reason.
        cause: io::Error,
    },
    /// Whether it has changed cannot be found out.
    #[error(
        "{} cannot be read, so that nobody knows whether it has changed since the save: {cause}",
        path.display()
    )]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// A file that the process has mapped, shared with other processes.
    #[error("{} cannot be mapped again: {cause}; put a copy there", path.display())]
    Mapped {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The working directory.
    #[error("{} cannot be the working directory again: {cause}", path.display())]
    Directory {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
}

/// What has to be done with a file that has changed.
fn remedy(carried: bool) -> &'static str {
    match carried {
        false => "put back what it was",
        true => "put back what it was, or remove it and it is made of the image",
    }
}

/// What is wrong here with the files of an image: those that were open and are opened again by
/// their paths, those that are mapped, the working directory. Nothing, if all is as it was, or has
/// only grown where the process writes, or is missing and the image has it. Of each open file as
/// many bytes are compared as the save has looked at: all of them, unless the program wanted less.
/// One that is shorter than what the image has of it is left to the process itself to compare,
/// which gets it the rest. With `roll_back`, as in [`RestoreOptions`](crate::RestoreOptions), what
/// the process writes and the image has may hold anything. Folders are looked for where `maps`
/// says.
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
            // A duplicate is the same open file.
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
    // Looked at before it is opened: to open a device can do things.
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
    // Of what could not be read at the save it is not known whether it has only grown.
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

/// Whether a file can be made there.
fn check_folder(path: &Path, fd: u32) -> Result<(), FileProblem> {
    let folder = path.parent().unwrap_or(path);
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(folder, rights).map_err(|error| FileProblem::Folder {
        path: path.to_owned(),
        fd,
        cause: error.into(),
    })
}

/// What it says is not compared.
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
