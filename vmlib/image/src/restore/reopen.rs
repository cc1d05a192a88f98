//! Files of a process that is being brought back: opened again by their paths and compared with
//! what they were, or made of what the image carries.
//!
//! A file has to hold what it held. One that the process can write may have grown behind that, as a
//! log does to which the process went on writing after the save: nothing of it is cut off, and the
//! process goes on at its position. The other way round, one that holds only the beginning of what
//! the image carries gets the rest: the log that the process left behind when it moved away from
//! here. What differs otherwise is refused, and never overwritten, also where the image has the
//! content: a user who wants that removes the file first.
//!
//! **To roll back** is another wish: a file that the process can write becomes what it was. What
//! has grown is cut back, what differs otherwise is written anew of what the image carries, in
//! place, because others may have it open. Files that the process only reads are left as they are.
//!
//! All files are looked at, and their locks taken, before the first one is changed, so that what is
//! refused has changed nothing. A change can be made again after it was interrupted, and by two
//! processes at once that have the same file open: both write the same.
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

/// The files of a process.
pub struct Files<'a> {
    /// One for each descriptor.
    pub records: &'a [FileRecord],
    /// Texts; each is ended by NUL.
    pub names: &'a [u8],
    /// The process's locks on them.
    pub locks: &'a [Lock],
    /// What the restorer put the carried content into, or -1.
    pub contents: i32,
    /// What was to be carried.
    pub carry: Carry,
    /// Files that the process can write become what they were.
    pub roll_back: bool,
}

/// What the names of files of `memfd_create` begin with.
const MEMORY: &[u8] = b"/memfd:";
/// Bytes of such a name behind that.
const MEMORY_NAME_MAX: usize = 249;

/// What a file repairs to be what it was. Zero, the first one, is nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Repair {
    /// It is open, and good.
    Nothing,
    /// It is not there, and is made of the copy.
    All,
    /// It is the beginning of the copy, and gets the rest.
    Rest,
    /// It has grown, and is cut back.
    Cut,
    /// It is written anew of the copy.
    Content,
}

impl Files<'_> {
    /// Opens all files that are opened by path, or have none any more.
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
        // Last, for they may forbid to open it a second time.
        for (record, _) in self.records.iter().zip(made).filter(|(_, made)| **made) {
            self.give_rights(record)?;
        }
        // SAFETY: the lists are not used any more.
        unsafe { arena::release(mark) };
        Ok(())
    }

    /// Gives a file that was made here its owner and rights. A user cannot give files away: then
    /// it is this user's, and a program in it does not run as its owner.
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
        // SAFETY: it changes the owner of a file that was made here.
        let given = unsafe { sys::call3(CHOWN, at, user, group) };
        let is_same = || {
            file_calls::status(record.fd as i32)
                .is_ok_and(|stat| (stat.st_uid, stat.st_gid) == (record.user, record.group))
        };
        let kept = match given >= 0 || is_same() {
            true => 0o7777,
            false => 0o1777,
        };
        // SAFETY: it changes the rights of a file that was made here.
        let changed = unsafe { sys::call2(CHMOD, at, (record.mode & kept) as usize) };
        sys::check(changed)
            .step(Text::of(text).as_str())
            .map(|_| ())
    }

    /// Takes locks again.
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

    /// Where the image has what the file held: with this record or another one of the same file.
    fn copy_of(&self, record: &FileRecord) -> Option<usize> {
        self.records.iter().position(|other| {
            let same_name = || self.path(other) == self.path(record);
            other.carried != 0 && other.is_same_file(record) && same_name()
        })
    }

    /// Opens a file, if it is there, and says what it repairs. Changes nothing but descriptors.
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
            // Now, when nothing has been changed yet, it may still be refused.
            let text = Text::of(format_args!("rolling {shown} back, descriptor {fd}"));
            sys::close(self.open_to(repair, record).step(text.as_str())?);
        }
        Ok(repair)
    }

    fn refuse_missing(&self, record: &FileRecord) -> Outcome<Repair> {
        let (shown, fd) = (self.shown(record), record.fd);
        match self.carry.most(record.may_change(self.records)) {
            Some(most) if record.is_regular() => refuse!(
                "{shown} is missing, which was open as descriptor {fd}, and its {} bytes did not go \
                 along: open files do up to {most} bytes together; put a copy there",
                record.size
            ),
            _ => {
                refuse!("{shown} is missing, which was open as descriptor {fd}: put a copy there")
            }
        }
    }

    /// Whether a file can be made there.
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

    /// What the open file repairs to be what it was.
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
        // One that may not be read here cannot be compared.
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
            Some(_) => "put back what it was, or remove it and it is made of the image",
            None if self.roll_back && is_written => {
                "the image has no copy of it to roll it back to: put back what it was"
            }
            None => "put back what it was",
        };
        match size < then || size > then && !may_grow {
            true => refuse!("{shown} has changed: {size} bytes in place of {then}; {remedy}"),
            false => refuse!("{shown} has changed: it holds something else; {remedy}"),
        }
    }

    /// Gives a file what it repairs. Returns whether it was made.
    fn supply(&self, record: &FileRecord, repair: Repair) -> Outcome<bool> {
        let (shown, fd) = (self.shown(record), record.fd);
        let copy = self.copy_of(record).unwrap_or_default();
        if repair == Repair::All {
            let text = Text::of(format_args!("making {shown} again, descriptor {fd}"));
            let made = self.make(copy, record).step(text.as_str())?;
            return match self.look(record)? {
                Repair::All => refuse!("{shown} is missing, and was there just now: try again"),
                // Another descriptor of it, or another process that has it open too, was first.
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

    /// Opens a file that is open, to be changed.
    fn open_to(&self, repair: Repair, record: &FileRecord) -> sys::Result<i32> {
        let path = NumberPath::new("/proc/self/fd/", record.fd as i32, "");
        let way = match repair {
            Repair::Content => libc::O_RDWR,
            _ => libc::O_WRONLY,
        };
        sys::open(path.bytes(), way | libc::O_CLOEXEC, 0)
    }

    /// Makes a file that is not there, of what the image carries; all of it or nothing. `false` if
    /// it is there now: another process was first.
    fn make(&self, copy: usize, record: &FileRecord) -> sys::Result<bool> {
        let path = self.path(record);
        let mut room = [0; libc::PATH_MAX as usize];
        let unnamed = self.folder(record, &mut room).map(unnamed_in);
        let (fd, is_named) = match unnamed {
            Some(Ok(fd)) => (fd, false),
            // Not every file system has files without a name.
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
            // SAFETY: the path is ended by NUL; the file is our own, and of no use.
            unsafe { sys::call1(UNLINK, path.as_ptr() as usize) };
        }
        made
    }

    /// The folder that the file is in, ended by NUL; `None` if that has no path.
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

    /// A file without a name, opened a first or a further time.
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
            // A program in it can be started: the kernel counts only processes that open it as
            // writers.
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

    /// A new file without a name: in the folder where it was, if that can be; else in memory.
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
            // A host may want it to be said (Linux 6.3).
            _ => make(flags | MFD_EXEC).or_else(|_| make(flags)),
        };
        made.map(|fd| fd as i32)
    }

    /// What a file of `memfd_create` was called.
    fn memory_name(&self, record: &FileRecord) -> Option<&[u8]> {
        let path = self.path(record);
        let name = path[..path.len() - 1].strip_prefix(MEMORY)?;
        Some(name.strip_suffix(b" (deleted)").unwrap_or(name))
    }
}

/// A new file without a name in a folder.
fn unnamed_in(folder: &[u8]) -> sys::Result<i32> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    sys::open(folder, flags, 0o600)
}

/// Gives a file without a name that one; `false` if another file has it.
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

/// Gives an open file the position and the number that it had.
fn put(fd: i32, record: &FileRecord) -> Outcome<()> {
    set_position(fd, record.offset);
    place(fd, record)
}

/// What is opened by its number below `/proc/self/fd` is opened by a link.
fn by_number(record: &FileRecord) -> FileRecord {
    FileRecord {
        flags: record.flags & !(libc::O_NOFOLLOW as u32),
        ..*record
    }
}
