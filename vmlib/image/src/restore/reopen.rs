//! Reopens the files of a process that is being restored: opens them by path and compares them with
//! their records, or makes them from carried content.
//!
//! A file must have its content of the save. There are two exceptions. A file that the process can
//! write may have grown, as a log does to which the process wrote after the save: nothing is cut
//! off, and the process resumes at its position. A file that is only the beginning of the carried
//! content gets the rest: the log that the process left behind when it moved away from this host.
//! Any other difference is a refusal, and the file is not overwritten even if the image carries its
//! content: a user who wants the content of the image removes the file first.
//!
//! **To roll back** is an option of the restore. A file that the process can write then gets the
//! content of the save: growth is cut off, and other changes are overwritten with the carried
//! content. The file is changed in place, because other processes may have it open. Files that the
//! process only reads are left as they are.
//!
//! All files are compared, and their locks taken, before the first file is changed. So a refusal
//! leaves all files unchanged. A change that was interrupted can be repeated, and two processes
//! that have the same file open may make it at once: both write the same bytes.
//!
//! **Nothing here allocates or locks.**

use crate::{
    capture::{
        file_content,
        file_locks::{self, Lock},
        proc::NumberPath,
    },
    frozen::{
        arena,
        fault::{Outcome, Shown, Step as _, Text, refuse},
        file_calls::{self, control, set_position},
    },
    options::Carry,
    raw::{
        records::{FD_FILE, FD_UNNAMED, FileRecord},
        sys::{self, Errno, nr},
    },
    restore::{
        carried_content,
        descriptors::{open_again, place},
    },
};

/// The open files of a process that is being restored.
pub struct Files<'a> {
    /// One record for each descriptor.
    pub records: &'a [FileRecord],
    /// The texts that records point into; each is ended by NUL.
    pub names: &'a [u8],
    /// The process's locks on the files.
    pub locks: &'a [Lock],
    /// The descriptor of the carried content, or -1.
    pub contents: i32,
    /// Whose content the image carries.
    pub carry: Carry,
    /// Whether files that the process can write are rolled back.
    pub roll_back: bool,
}

/// The prefix of the paths of memory files (`memfd_create`).
const MEMORY: &[u8] = b"/memfd:";
/// The limit of the name behind that prefix. Bytes.
const MEMORY_NAME_MAX: usize = 249;

/// The change that gives a file its content of the save. Zero must be `Nothing`, because lists of
/// repairs start as zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Repair {
    /// None: the file is open and has its content.
    Nothing,
    /// The file is missing, and is made from the carried content.
    All,
    /// The file is the beginning of the carried content, and gets the rest.
    Rest,
    /// The file has grown, and is truncated.
    Cut,
    /// The file is overwritten with the carried content.
    Content,
}

impl Files<'_> {
    /// Opens all files that have a path, and makes all that have none.
    pub fn open(&self) -> Outcome<()> {
        let mark = arena::mark();
        let count = self.records.len();
        // SAFETY: zeros are values of both.
        let (repairs, made) =
            unsafe { (arena::take::<Repair>(count)?, arena::take::<bool>(count)?) };
        let is_first = |record: &FileRecord| record.original == record.fd;
        for (number, record) in self.records.iter().enumerate() {
            if is_first(record) && record.kind == FD_FILE {
                repairs[number] = self.look(record)?;
            }
        }
        let is_open = |lock: &&Lock| {
            let mut all = self.records.iter().zip(&*repairs);
            all.any(|(record, repair)| {
                lock.is_of(record) && record.kind == FD_FILE && *repair != Repair::All
            })
        };
        self.lock(self.locks.iter().filter(is_open))?;
        for (number, record) in self.records.iter().enumerate() {
            if !is_first(record) {
                continue;
            }
            made[number] = match record.kind {
                FD_FILE => self.supply(record, repairs[number])?,
                FD_UNNAMED => {
                    let (fd, made) = self.unnamed(number, record)?;
                    put(fd, record)?;
                    made
                }
                _ => false,
            };
        }
        // The rights come last, because they may forbid opening the file a second time.
        for (record, _) in self.records.iter().zip(made).filter(|(_, made)| **made) {
            self.give_rights(record)?;
        }
        // SAFETY: the lists are not used any more.
        unsafe { arena::release(mark) };
        Ok(())
    }

    /// Gives a file that was made here its owner and mode. A user who may not give files away stays
    /// the owner, and the mode then has no set-user-id or set-group-id bit.
    fn give_rights(&self, record: &FileRecord) -> Outcome<()> {
        const CHMOD: usize = 90;
        const CHOWN: usize = 92;
        let path = NumberPath::new("/proc/self/fd/", record.fd as i32, "");
        let at = path.bytes().as_ptr() as usize;
        let (user, group) = (record.user as usize, record.group as usize);
        let text = format_args!(
            "giving {} its rights again, descriptor {}",
            self.shown(record),
            record.fd
        );
        // SAFETY: the call changes the owner of a file that was made here.
        let given = unsafe { sys::call3(CHOWN, at, user, group) };
        let is_same = || {
            file_calls::status(record.fd as i32)
                .is_ok_and(|stat| (stat.st_uid, stat.st_gid) == (record.user, record.group))
        };
        let kept = match given >= 0 || is_same() {
            true => 0o7777,
            false => 0o1777,
        };
        // SAFETY: the call changes the mode of a file that was made here.
        let changed = unsafe { sys::call2(CHMOD, at, (record.mode & kept) as usize) };
        sys::check(changed)
            .step(Text::of(text).as_str())
            .map(|_| ())
    }

    /// Takes locks.
    pub fn lock<'b>(&self, locks: impl Iterator<Item = &'b Lock>) -> Outcome<()> {
        file_locks::restore(locks, self.records, |record| {
            let path = self.path(record);
            &path[..path.len() - 1]
        })
    }

    /// The path, ended by NUL.
    fn path(&self, record: &FileRecord) -> &[u8] {
        let at = record.name.at as usize;
        &self.names[at..at + record.name.len as usize + 1]
    }

    fn shown(&self, record: &FileRecord) -> Shown<'_> {
        let path = self.path(record);
        Shown(&path[..path.len() - 1])
    }

    /// The index of the record that carries the content of this file: this record, or another
    /// record of the same file.
    fn copy_of(&self, record: &FileRecord) -> Option<usize> {
        self.records.iter().position(|other| {
            let same_name = || self.path(other) == self.path(record);
            other.carried != 0 && other.is_same_file(record) && same_name()
        })
    }

    /// Opens a file by its path, if it exists, and determines its repair. Changes nothing but
    /// descriptors.
    fn look(&self, record: &FileRecord) -> Outcome<Repair> {
        let (path, shown, fd) = (self.path(record), self.shown(record), record.fd);
        let copy = self.copy_of(record);
        let text = Text::of(format_args!("opening {shown} again, descriptor {fd}"));
        match open_again(path, record) {
            Err(Errno(libc::ENOENT)) if copy.is_some() => {
                self.look_at_folder(record)?;
                return Ok(Repair::All);
            }
            Err(Errno(libc::ENOENT)) => return self.refuse_missing(record),
            opened => put(opened.step(text.as_str())?, record)?,
        }
        let repair = self.compare(record, copy)?;
        if matches!(repair, Repair::Cut | Repair::Content) {
            // Opened for writing as a test, while a refusal still leaves all files unchanged.
            let text = Text::of(format_args!("rolling {shown} back, descriptor {fd}"));
            sys::close(self.open_to(repair, record).step(text.as_str())?);
        }
        Ok(repair)
    }

    fn refuse_missing(&self, record: &FileRecord) -> Outcome<Repair> {
        let (shown, fd) = (self.shown(record), record.fd);
        match self.carry.most(record.may_change(self.records)) {
            Some(most) if record.is_regular() => refuse!(
                "{shown} is missing, which was open as descriptor {fd}, and its {} bytes are not \
                 in the image, which carries up to {most} bytes of open files: put a copy there",
                record.size
            ),
            _ => {
                refuse!("{shown} is missing, which was open as descriptor {fd}: put a copy there")
            }
        }
    }

    /// Refuses a file that cannot be made because of its folder.
    fn look_at_folder(&self, record: &FileRecord) -> Outcome<()> {
        const ACCESS: usize = 21;
        let shown = self.shown(record);
        let mut room = [0; libc::PATH_MAX as usize];
        let Some(folder) = self.folder(record, &mut room) else {
            return Ok(());
        };
        let rights = (libc::W_OK | libc::X_OK) as usize;
        // SAFETY: the path is ended by NUL.
        match sys::check(unsafe { sys::call2(ACCESS, folder.as_ptr() as usize, rights) }) {
            Err(Errno(libc::ENOENT | libc::ENOTDIR)) => {
                refuse!("the folder of {shown} is missing here: make it first")
            }
            result => {
                let text = Text::of(format_args!(
                    "making {shown} again, descriptor {}, in its folder",
                    record.fd
                ));
                result.step(text.as_str()).map(|_| ())
            }
        }
    }

    /// Compares the open file with its record, and determines its repair.
    fn compare(&self, record: &FileRecord, copy: Option<usize>) -> Outcome<Repair> {
        let (stat, shown) = (file_calls::status(record.fd as i32)?, self.shown(record));
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if is_regular != record.is_regular() {
            return refuse!("{shown} is of another kind than it was");
        }
        if !is_regular {
            return Ok(Repair::Nothing);
        }
        let (then, size) = (record.size, stat.st_size as u64);
        let (check, checked) = file_content::sum(&[], record, record.checked.min(size))?;
        // A file that cannot be read here cannot be compared.
        let is_known = checked > 0 && checked == record.checked;
        let is_kept = !is_known || check == record.check;
        let is_written = record.may_grow(self.records);
        let may_grow = is_written && (is_known || then == 0);
        let copy = copy.filter(|_| is_written);
        if size == then && is_kept {
            return Ok(Repair::Nothing);
        }
        if size > then && is_kept && may_grow {
            return Ok(match self.roll_back {
                true => Repair::Cut,
                false => Repair::Nothing,
            });
        }
        match copy {
            Some(_) if self.roll_back => return Ok(Repair::Content),
            Some(number)
                if size < then && carried_content::begins(record, number, size, self.contents)? =>
            {
                return Ok(Repair::Rest);
            }
            _ => {}
        }
        let remedy = match self.copy_of(record) {
            Some(_) => "restore its former content, or remove it: then it is made from the image",
            None if self.roll_back && is_written => {
                "the image has no copy of it to roll it back to: restore its former content"
            }
            None => "restore its former content",
        };
        match size < then || size > then && !may_grow {
            true => refuse!("{shown} has changed: {size} bytes in place of {then}; {remedy}"),
            false => refuse!("{shown} has changed: its content is different; {remedy}"),
        }
    }

    /// Makes or changes a file as `repair` says. Returns whether it was made.
    fn supply(&self, record: &FileRecord, repair: Repair) -> Outcome<bool> {
        let (shown, fd) = (self.shown(record), record.fd);
        let copy = self.copy_of(record).unwrap_or_default();
        if repair == Repair::All {
            let text = Text::of(format_args!("making {shown} again, descriptor {fd}"));
            let made = self.make(copy, record).step(text.as_str())?;
            return match self.look(record)? {
                Repair::All => refuse!("{shown} is missing, and was there just now: try again"),
                // The file was made by another descriptor's record, or by another process that has
                // it open, too.
                repair => self.supply(record, repair).map(|_| made),
            };
        }
        let text = match repair {
            Repair::Nothing => return Ok(false),
            Repair::Rest => Text::of(format_args!("completing {shown}, descriptor {fd}")),
            _ => Text::of(format_args!("rolling {shown} back, descriptor {fd}")),
        };
        let file = self.open_to(repair, record).step(text.as_str())?;
        let changed = match repair {
            Repair::Cut => file_calls::set_len(file, record.size),
            Repair::Content => carried_content::put_back(file, copy, record.size, self.contents),
            _ => file_calls::stat(file).and_then(|stat| {
                let size = stat.st_size as u64;
                carried_content::fill(file, copy, size, record.size, self.contents)
            }),
        };
        sys::close(file);
        changed.step(text.as_str())?;
        Ok(false)
    }

    /// Opens an open file once more, for the change that `repair` needs.
    fn open_to(&self, repair: Repair, record: &FileRecord) -> sys::Result<i32> {
        let path = NumberPath::new("/proc/self/fd/", record.fd as i32, "");
        let way = match repair {
            Repair::Content => libc::O_RDWR,
            _ => libc::O_WRONLY,
        };
        sys::open(path.bytes(), way | libc::O_CLOEXEC, 0)
    }

    /// Makes a missing file from the carried content, completely or not at all. `false` if the file
    /// exists now, because another process made it.
    fn make(&self, copy: usize, record: &FileRecord) -> sys::Result<bool> {
        let path = self.path(record);
        let mut room = [0; libc::PATH_MAX as usize];
        let unnamed = self.folder(record, &mut room).map(unnamed_in);
        let (fd, is_named) = match unnamed {
            Some(Ok(fd)) => (fd, false),
            // The file system may not support files without a name.
            _ => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
                match sys::open(path, flags, 0o600) {
                    Err(Errno(libc::EEXIST)) => return Ok(false),
                    opened => (opened?, true),
                }
            }
        };
        let filled = carried_content::fill(fd, copy, 0, record.size, self.contents);
        let made = filled.and_then(|()| match is_named {
            true => Ok(true),
            false => link(fd, path),
        });
        sys::close(fd);
        if made.is_err() && is_named {
            const UNLINK: usize = 87;
            // SAFETY: the path is ended by NUL; the file was made here, and is incomplete.
            unsafe { sys::call1(UNLINK, path.as_ptr() as usize) };
        }
        made
    }

    /// The path of the file's folder, ended by NUL; `None` for a memory file.
    fn folder<'a>(
        &self,
        record: &FileRecord,
        room: &'a mut [u8; libc::PATH_MAX as usize],
    ) -> Option<&'a [u8]> {
        let path = self.path(record);
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let len = slash.unwrap_or(0).max(1);
        if len >= room.len() || path.starts_with(MEMORY) {
            return None;
        }
        room[..len].copy_from_slice(&path[..len]);
        Some(&room[..=len])
    }

    /// Opens a file without a name. Returns the descriptor, and whether the file was made: a later
    /// record of the same file opens it again.
    fn unnamed(&self, number: usize, record: &FileRecord) -> Outcome<(i32, bool)> {
        let text = Text::of(format_args!("making descriptor {} again", record.fd));
        let before = &self.records[..number];
        let same = |other: &&FileRecord| other.carried != 0 && other.is_same_file(record);
        let (first, is_new) = match before.iter().find(same) {
            Some(other) => (other.fd as i32, false),
            None => {
                let fd = self.without_name(record).step(text.as_str())?;
                let filled = carried_content::fill(fd, number, 0, record.size, self.contents);
                filled.step(text.as_str())?;
                (fd, true)
            }
        };
        let is_memory = self
            .folder(record, &mut [0; libc::PATH_MAX as usize])
            .is_none();
        if is_new && is_memory && record.flags & libc::O_ACCMODE as u32 == libc::O_RDWR as u32 {
            // The descriptor itself is used. A second one, opened for writing, would count as a
            // writer, and then the program in the file could not be executed.
            let flags = control(first, libc::F_SETFL, record.flags as usize);
            flags.step(text.as_str())?;
            return Ok((first, true));
        }
        let path = NumberPath::new("/proc/self/fd/", first, "");
        let opened = open_again(path.bytes(), &by_number(record));
        if is_new {
            sys::close(first);
        }
        Ok((opened.step(text.as_str())?, is_new))
    }

    /// Makes a file without a name: in the folder of the record's path if that is possible, else in
    /// memory.
    fn without_name(&self, record: &FileRecord) -> sys::Result<i32> {
        let mut room = [0; libc::PATH_MAX as usize];
        let folder = self.folder(record, &mut room);
        if let Some(Ok(fd)) = folder.map(unnamed_in) {
            return Ok(fd);
        }
        let mut room = [0; MEMORY_NAME_MAX + 1];
        let name = self.memory_name(record).unwrap_or(b"unnamed");
        let len = name.len().min(MEMORY_NAME_MAX);
        room[..len].copy_from_slice(&name[..len]);
        let at = room.as_ptr() as usize;
        // SAFETY: the name is ended by NUL.
        let make = |flags| sys::check(unsafe { sys::call2(nr::MEMFD_CREATE, at, flags) });
        const MFD_EXEC: usize = 0x10;
        let flags = libc::MFD_CLOEXEC as usize;
        let made = match record.mode & 0o111 {
            0 => make(flags),
            // The host may require the flag (since Linux 6.3).
            _ => make(flags | MFD_EXEC).or_else(|_| make(flags)),
        };
        made.map(|fd| fd as i32)
    }

    /// The name of a memory file, as given to `memfd_create`.
    fn memory_name(&self, record: &FileRecord) -> Option<&[u8]> {
        let path = self.path(record);
        let name = path[..path.len() - 1].strip_prefix(MEMORY)?;
        Some(name.strip_suffix(b" (deleted)").unwrap_or(name))
    }
}

/// A new file without a name, in a folder.
fn unnamed_in(folder: &[u8]) -> sys::Result<i32> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    sys::open(folder, flags, 0o600)
}

/// Gives a file without a name the name `path`. `false` if another file has that name.
fn link(fd: i32, path: &[u8]) -> sys::Result<bool> {
    const LINKAT: usize = 265;
    let from = NumberPath::new("/proc/self/fd/", fd, "");
    let (from, to) = (from.bytes().as_ptr() as usize, path.as_ptr() as usize);
    let (here, follow) = (libc::AT_FDCWD as usize, libc::AT_SYMLINK_FOLLOW as usize);
    // SAFETY: both paths are ended by NUL.
    match sys::check(unsafe { sys::call5(LINKAT, here, from, here, to, follow) }) {
        Err(Errno(libc::EEXIST)) => Ok(false),
        linked => linked.map(|_| true),
    }
}

/// Sets the position of an open file, and moves it to the descriptor of its record.
fn put(fd: i32, record: &FileRecord) -> Outcome<()> {
    set_position(fd, record.offset);
    place(fd, record)
}

/// The record without O_NOFOLLOW, because paths below `/proc/self/fd` are links.
fn by_number(record: &FileRecord) -> FileRecord {
    FileRecord {
        flags: record.flags & !(libc::O_NOFOLLOW as u32),
        ..*record
    }
}
