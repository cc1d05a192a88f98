//! Files of a process that is being brought back: opened again by their paths and compared with what
//! they were, or made of what the image carries.
//!
//! A file has to hold what it held. One that the process can write may have grown behind that, as a
//! log does to which the process went on writing after the save: nothing of it is cut off, and the
//! process goes on at its position. The other way round, one that holds only the beginning of what
//! the image carries gets the rest: the log that the process left behind when it moved away from
//! here. What differs otherwise is refused, and never overwritten, also where the image has the
//! content: whoever wants that removes the file first.
//!
//! **Nothing here allocates or locks.**

use crate::{
    Carry, arena, content,
    fault::{Outcome, Shown, Step as _, Text, refuse},
    files::place,
    proc::NumberPath,
    raw::{
        format::{FD_FILE, FD_UNNAMED, FileRecord},
        sys::{self, Errno, nr},
    },
};

/// The files of a process.
pub struct Files<'a> {
    /// One for each descriptor.
    pub records: &'a [FileRecord],
    /// Texts; each is ended by NUL.
    pub names: &'a [u8],
    /// What the restorer put the carried content into, or -1.
    pub contents: i32,
    /// What was to be carried.
    pub carry: Carry,
}

impl Files<'_> {
    /// Opens all files that are opened by path, or have none any more.
    pub fn open(&self) -> Outcome<()> {
        let mark = arena::mark();
        // SAFETY: bytes.
        let made = unsafe { arena::take::<bool>(self.records.len())? };
        for (number, record) in self.records.iter().enumerate() {
            if record.original == record.fd && matches!(record.kind, FD_FILE | FD_UNNAMED) {
                let (fd, new) = match record.kind {
                    FD_FILE => self.reopen(number, record)?,
                    _ => self.unnamed(number, record)?,
                };
                made[number] = new;
                // SAFETY: it sets the position.
                unsafe { sys::call3(nr::LSEEK, fd as usize, record.offset as usize, 0) };
                place(fd, record)?;
            }
        }
        // Last, for they may forbid to open it a second time.
        for (record, _) in self.records.iter().zip(made).filter(|(_, made)| **made) {
            let rights = (record.mode & 0o777) as usize;
            // SAFETY: it changes the rights of a file that was made here.
            unsafe { sys::call2(nr::FCHMOD, record.fd as usize, rights) };
        }
        // SAFETY: the list is not used any more.
        unsafe { arena::release(mark) };
        Ok(())
    }

    /// The path, ended by NUL.
    fn path(&self, record: &FileRecord) -> &[u8] {
        let at = record.name.at as usize;
        &self.names[at..at + record.name.len as usize + 1]
    }

    /// The open file, and whether it had to be made.
    fn reopen(&self, number: usize, record: &FileRecord) -> Outcome<(i32, bool)> {
        let path = self.path(record);
        let shown = Shown(&path[..path.len() - 1]);
        let mut made = false;
        let mut opened = open_again(path, record);
        if record.carried != 0 && opened == Err(Errno(libc::ENOENT)) {
            let text = Text::of(format_args!(
                "making {shown} again, descriptor {}",
                record.fd
            ));
            match self.make(number, record) {
                Err(Errno(libc::ENOENT)) => {
                    return refuse!("the folder of {shown} is missing here: make it first");
                }
                result => result.step(text.as_str())?,
            }
            made = true;
            opened = open_again(path, record);
        }
        let text = Text::of(format_args!(
            "opening {shown} again, descriptor {}",
            record.fd
        ));
        if opened == Err(Errno(libc::ENOENT)) {
            let fd = record.fd;
            return match self.carry {
                Carry::Fitting(most) if record.is_regular() => refuse!(
                    "{shown} is missing, which was open as descriptor {fd}, and its {} bytes did \
                     not go along: open files do up to {most} bytes together; put a copy there",
                    record.size
                ),
                _ => refuse!(
                    "{shown} is missing, which was open as descriptor {fd}: put a copy there"
                ),
            };
        }
        let fd = opened.step(text.as_str())?;
        self.complete(fd, number, record)?;
        self.compare(fd, record)?;
        Ok((fd, made))
    }

    /// Makes a file that is not there, of what the image carries; all of it or nothing.
    fn make(&self, number: usize, record: &FileRecord) -> sys::Result<()> {
        const UNLINK: usize = 87;
        let path = self.path(record);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let fd = sys::open(path, flags, 0o600)?;
        let filled = content::fill(fd, number, 0, record.size, self.contents);
        sys::close(fd);
        if filled.is_err() {
            // SAFETY: the path is ended by NUL; the file is our own, and of no use.
            unsafe { sys::call1(UNLINK, path.as_ptr() as usize) };
        }
        filled
    }

    /// Gives a file that is the beginning of what the image carries, and that the process can write,
    /// the rest of it.
    fn complete(&self, fd: i32, number: usize, record: &FileRecord) -> Outcome<()> {
        if record.carried == 0 || !record.may_grow(self.records) {
            return Ok(());
        }
        let stat = content::status(fd)?;
        let (size, opened) = (
            stat.st_size as u64,
            FileRecord {
                fd: fd as u32,
                ..*record
            },
        );
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !is_regular
            || size >= record.size
            || !content::begins(&opened, number, size, self.contents)?
        {
            return Ok(());
        }
        let path = self.path(record);
        let shown = Shown(&path[..path.len() - 1]);
        let text = Text::of(format_args!("completing {shown}, descriptor {}", record.fd));
        let writing = sys::open(path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
        let writing = writing.step(text.as_str())?;
        let filled = content::fill(writing, number, size, record.size, self.contents);
        sys::close(writing);
        filled.step(text.as_str())
    }

    /// Whether the file is what it was.
    fn compare(&self, fd: i32, record: &FileRecord) -> Outcome<()> {
        let stat = content::status(fd)?;
        let path = self.path(record);
        let shown = Shown(&path[..path.len() - 1]);
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if is_regular != record.is_regular() {
            return refuse!("{shown} is of another kind than it was");
        }
        if !is_regular {
            return Ok(());
        }
        let remedy = match record.carried {
            0 => "put back what it was",
            _ => "put back what it was, or remove it and it is made of the image",
        };
        let (then, size) = (record.size, stat.st_size as u64);
        let (check, checked) = content::sum(
            &[],
            &FileRecord {
                fd: fd as u32,
                ..*record
            },
            record.checked.min(size),
        )?;
        let is_known = checked > 0 && checked == record.checked;
        let may_grow = is_known || then == 0;
        if size < then || size > then && !(may_grow && record.may_grow(self.records)) {
            return refuse!("{shown} has changed: {size} bytes in place of {then}; {remedy}");
        }
        // One that may not be read here cannot be compared.
        if is_known && check != record.check {
            return refuse!("{shown} has changed: it holds something else; {remedy}");
        }
        Ok(())
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
                let filled = content::fill(fd, number, 0, record.size, self.contents);
                filled.step(text.as_str())?;
                (fd, true)
            }
        };
        let path = NumberPath::new("/proc/self/fd/", first, "");
        let opened = open_again(path.bytes(), record);
        if is_new {
            sys::close(first);
        }
        Ok((opened.step(text.as_str())?, is_new))
    }

    /// A new file without a name: in the folder where it was, if that can be; else in memory.
    fn without_name(&self, record: &FileRecord) -> sys::Result<i32> {
        const MEMORY: &[u8] = b"/memfd:";
        let path = self.path(record);
        let mut folder = [0u8; libc::PATH_MAX as usize];
        let len = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .unwrap_or(0)
            .max(1);
        if len < folder.len() && !path.starts_with(MEMORY) {
            folder[..len].copy_from_slice(&path[..len]);
            let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
            if let Ok(fd) = sys::open(&folder[..=len], flags, 0o600) {
                return Ok(fd);
            }
        }
        let name = c"unnamed".as_ptr() as usize;
        let flags = libc::MFD_CLOEXEC as usize;
        // SAFETY: the name is ended by NUL.
        sys::check(unsafe { sys::call2(nr::MEMFD_CREATE, name, flags) }).map(|fd| fd as i32)
    }
}

/// Opens a file or device as it was open; what made or emptied it then does not do so again.
pub fn open_again(path: &[u8], record: &FileRecord) -> sys::Result<i32> {
    let mut once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    if record.is_regular() {
        once |= libc::O_TMPFILE;
    }
    sys::open(path, record.flags as i32 & !once | libc::O_CLOEXEC, 0)
}
