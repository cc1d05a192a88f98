//! The open descriptors of this process: which can be brought back, and how; which not, by name.
//!
//! **Runs in signal handlers**, and in a process that is being brought back: it allocates nothing
//! and locks nothing.

use crate::{
    arena::{self, List},
    fault::{Outcome, Shown, Step as _, Text, refuse},
    memory::Names,
    proc::{self, NumberPath},
    raw::{
        checksum::{checksum, mixed},
        format::{FD_DEVICE, FD_FILE, FD_INHERITED, FD_PIPE, FILES_MAX, FileRecord},
        sys::{self, Errno, nr},
    },
};

/// The first bytes of a file, which its checksum covers.
pub const CHECKED_MAX: u64 = 16 << 20;
/// Bytes that are read at once for it.
pub const PIECE: usize = 256 << 10;
/// Bytes that may wait in a pipe.
const PIPE_MAX: usize = 1 << 20;

/// What the program said of its descriptors.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    /// The image goes there; it is in no image.
    pub image: i32,
    /// The program looks after these itself: they are closed where it goes on.
    pub own: &'a [i32],
}

/// All descriptors, by number.
pub fn capture(wish: Wish<'_>, names: &mut Names) -> Outcome<&'static mut [FileRecord]> {
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<FileRecord>::new(FILES_MAX)? };
    proc::for_each_number(b"/proc/self/fd\0", "listing the open files", |fd| {
        if fd != wish.image && !wish.own.contains(&fd) {
            match record(fd, names) {
                Ok(record) => list.push(record, "open files")?,
                // Before threads are stopped, one may close what was just listed.
                Err(_) if is_closed(fd) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    })?;
    let list = list.into_static();
    list.sort_unstable_by_key(|record| record.fd);
    let pid = sys::getpid() as usize;
    for index in 1..list.len() {
        let (before, rest) = list.split_at_mut(index);
        let record = &mut rest[0];
        let same = before.iter().find(|other| {
            let is_first = other.original == other.fd;
            let alike = (other.device, other.inode) == (record.device, record.inode);
            is_first && alike && is_duplicate(pid, other.fd, record.fd)
        });
        if let Some(same) = same {
            (record.original, record.kind) = (same.fd, same.kind);
        }
    }
    for index in 0..list.len() {
        let record = list[index];
        if record.kind == FD_PIPE && !has_other_end(list, &record) {
            let (fd, name) = (record.fd, Shown(name_of(names, &record)));
            return refuse!("descriptor {fd} is a pipe to another process ({name})");
        }
        if record.kind == FD_PIPE && record.original == record.fd {
            keep_content(&mut list[index])?;
        }
    }
    Ok(list)
}

fn name_of<'a>(names: &'a Names, record: &FileRecord) -> &'a [u8] {
    &names.all()[record.name.at as usize..][..record.name.len as usize]
}

fn is_duplicate(pid: usize, one: u32, other: u32) -> bool {
    const KCMP_FILE: usize = 0;
    // SAFETY: it only compares.
    unsafe { sys::call5(nr::KCMP, pid, pid, KCMP_FILE, one as usize, other as usize) == 0 }
}

fn has_other_end(all: &[FileRecord], record: &FileRecord) -> bool {
    let way = |record: &FileRecord| record.flags & libc::O_ACCMODE as u32;
    all.iter().any(|other| {
        let same = (other.kind, other.inode) == (FD_PIPE, record.inode);
        same && way(other) != way(record)
    })
}

fn control(fd: i32, command: i32, argument: usize) -> sys::Result<usize> {
    // SAFETY: only commands that read or set flags are used.
    sys::check(unsafe { sys::call3(nr::FCNTL, fd as usize, command as usize, argument) })
}

fn is_closed(fd: i32) -> bool {
    matches!(control(fd, libc::F_GETFD, 0), Err(Errno(libc::EBADF)))
}

fn status(fd: i32) -> Outcome<libc::stat> {
    // SAFETY: zeros are a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes it.
    let value = unsafe { sys::call2(nr::FSTAT, fd as usize, &raw mut stat as usize) };
    sys::check(value).step("looking at an open file")?;
    Ok(stat)
}

fn record(fd: i32, names: &mut Names) -> Outcome<FileRecord> {
    let path = NumberPath::new("/proc/self/fd/", fd, "");
    let name = proc::read_link(path.bytes(), "looking at an open file")?;
    let stat = status(fd)?;
    let flags = control(fd, libc::F_GETFL, 0).step("looking at an open file")?;
    let close_on_exec = control(fd, libc::F_GETFD, 0).step("looking at an open file")?;
    let mut record = FileRecord {
        fd: fd as u32,
        flags: flags as u32,
        original: fd as u32,
        device: stat.st_dev,
        inode: stat.st_ino,
        close_on_exec: close_on_exec as u32 & 1,
        name: names.add(name)?,
        ..FileRecord::default()
    };
    record.kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => {
            if stat.st_nlink == 0 {
                return refuse!("descriptor {fd} is a deleted file ({})", Shown(name));
            }
            refuse_locks(fd, name)?;
            record.offset = position(fd);
            if stat.st_mode & libc::S_IFMT == libc::S_IFREG {
                record.size = stat.st_size as u64;
                (record.check, record.checked) = sum(name, record.size)?;
            }
            FD_FILE
        }
        libc::S_IFCHR => match (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)) {
            // null, zero, full, random, urandom; the terminal of whoever opens it.
            (1, 3 | 5 | 7 | 8 | 9) | (5, 0) => FD_DEVICE,
            _ if fd <= 2 => FD_INHERITED,
            // A duplicate of one of those.
            (136..=143, _) => FD_INHERITED,
            _ => return refuse!("descriptor {fd} is the device {}", Shown(name)),
        },
        libc::S_IFIFO | libc::S_IFSOCK if fd <= 2 => FD_INHERITED,
        libc::S_IFIFO if name.starts_with(b"pipe:") => FD_PIPE,
        libc::S_IFIFO => return refuse!("descriptor {fd} is the named pipe {}", Shown(name)),
        libc::S_IFSOCK => return refuse!("descriptor {fd} is a socket ({})", Shown(name)),
        _ => {
            let what = match name {
                b"anon_inode:[eventpoll]" => "an epoll instance",
                b"anon_inode:[eventfd]" => "an eventfd",
                b"anon_inode:[timerfd]" => "a timerfd",
                b"anon_inode:[signalfd]" => "a signalfd",
                b"anon_inode:inotify" => "an inotify instance",
                b"anon_inode:[io_uring]" => "an io_uring",
                b"anon_inode:[userfaultfd]" => "a userfaultfd",
                b"anon_inode:[pidfd]" => "a pidfd",
                _ => "of a kind that is not known",
            };
            return refuse!("descriptor {fd} is {what} ({})", Shown(name));
        }
    };
    Ok(record)
}

/// A lock is a promise to other processes, which cannot be kept while this one is away.
fn refuse_locks(fd: i32, name: &[u8]) -> Outcome<()> {
    let mark = arena::mark();
    let path = NumberPath::new("/proc/self/fdinfo/", fd, "");
    let info = proc::read_file(path.bytes(), "looking at an open file")?;
    let locked = info
        .split(|byte| *byte == b'\n')
        .any(|line| line.starts_with(b"lock:"));
    // SAFETY: the file's bytes are not used any more.
    unsafe { arena::release(mark) };
    match locked {
        true => refuse!("descriptor {fd} holds a lock on {}", Shown(name)),
        false => Ok(()),
    }
}

fn position(fd: i32) -> u64 {
    // SAFETY: it moves nothing.
    let at = unsafe { sys::call3(nr::LSEEK, fd as usize, 0, libc::SEEK_CUR as usize) };
    u64::try_from(at).unwrap_or(0)
}

/// The checksum of a file's first bytes, and how many they are. The file is opened by its name; if it
/// may not be read, its size has to do.
fn sum(name: &[u8], size: u64) -> Outcome<(u64, u64)> {
    let mark = arena::mark();
    // SAFETY: bytes.
    let path = unsafe { arena::take::<u8>(name.len() + 1)? };
    path[..name.len()].copy_from_slice(name);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let readable = sys::open(path, flags, 0);
    let result = match readable {
        Ok(readable) => sum_of(readable, size),
        Err(_) => Ok((0, 0)),
    };
    if let Ok(readable) = readable {
        sys::close(readable);
    }
    // SAFETY: path and buffer are not used any more.
    unsafe { arena::release(mark) };
    result
}

/// The checksum of up to [`CHECKED_MAX`] bytes of a file of `size` bytes.
fn sum_of(fd: i32, size: u64) -> Outcome<(u64, u64)> {
    // SAFETY: bytes.
    let buffer = unsafe { arena::take::<u8>(PIECE)? };
    sum_with(fd, size.min(CHECKED_MAX), buffer).step("reading an open file")
}

/// The checksum of a file up to `end`, and how many bytes there were. `buffer` has [`PIECE`] bytes.
pub fn sum_with(fd: i32, end: u64, buffer: &mut [u8]) -> sys::Result<(u64, u64)> {
    let (mut sum, mut at, mut index) = (0u64, 0u64, 0);
    while at < end {
        let want = PIECE.min((end - at) as usize);
        let mut len = 0;
        while len < want {
            let (to, from) = (buffer[len..].as_mut_ptr() as usize, at as usize + len);
            // SAFETY: the kernel writes into the buffer.
            let read = unsafe { sys::call4(nr::PREAD64, fd as usize, to, want - len, from) };
            match sys::check(read) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(sys::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        sum = sum.wrapping_add(mixed(checksum(&buffer[..len]), index));
        index += 1;
        at += len as u64;
        if len < want {
            break;
        }
    }
    Ok((sum, at))
}

/// Takes what waits in a pipe, and puts it back.
fn keep_content(record: &mut FileRecord) -> Outcome<()> {
    if record.flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32 {
        return Ok(());
    }
    let mut waiting = 0i32;
    let fd = record.fd as i32;
    // SAFETY: the kernel writes a number.
    unsafe {
        let to = &raw mut waiting as usize;
        sys::call3(nr::IOCTL, fd as usize, libc::FIONREAD as usize, to)
    };
    let waiting = waiting as usize;
    if waiting == 0 {
        return Ok(());
    }
    if waiting > PIPE_MAX {
        return refuse!("{waiting} bytes wait in the pipe at descriptor {fd}");
    }
    // SAFETY: bytes.
    let content = unsafe { arena::take::<u8>(waiting)? };
    peek(fd, content).step("looking into a pipe")?;
    record.content = content.as_ptr() as u64;
    record.content_len = waiting as u32;
    Ok(())
}

/// Copies what is in a pipe without taking it out.
fn peek(fd: i32, content: &mut [u8]) -> sys::Result<()> {
    const TEE: usize = 276;
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    sys::check(unsafe { sys::call2(nr::PIPE2, ends.as_mut_ptr() as usize, 0) })?;
    // So that all of it fits: as large as the other.
    let size = control(fd, libc::F_GETPIPE_SZ, 0).unwrap_or(1 << 16);
    let _ = control(ends[1], libc::F_SETPIPE_SZ, size);
    // SAFETY: both are pipes.
    let copied = unsafe { sys::call4(TEE, fd as usize, ends[1] as usize, content.len(), 0) };
    let result = sys::check(copied).and_then(|copied| {
        let mut len = 0;
        while len < copied {
            len += sys::read(ends[0], &mut content[len..copied])?;
        }
        match copied == content.len() {
            true => Ok(()),
            false => Err(Errno(libc::EIO)),
        }
    });
    sys::close(ends[0]);
    sys::close(ends[1]);
    result
}

/// Opens everything again in a process that has only 0, 1, 2 and what is in `keep`. Above `free`
/// no descriptor of the image lies.
pub fn restore(records: &[FileRecord], names: &[u8]) -> Outcome<()> {
    for record in records.iter().filter(|record| record.original == record.fd) {
        match record.kind {
            FD_FILE | FD_DEVICE => reopen(record, names)?,
            FD_PIPE => remake_pipe(record, records)?,
            _ => {}
        }
    }
    for record in records.iter().filter(|record| record.original != record.fd) {
        duplicate(record.original as i32, record)?;
    }
    for record in records.iter().filter(|record| record.kind == FD_INHERITED) {
        if record.original == record.fd && record.fd > 2 {
            // A terminal that is open a second time: one of the inherited will do.
            duplicate(0, record)?;
        }
    }
    Ok(())
}

fn duplicate(from: i32, record: &FileRecord) -> Outcome<()> {
    let flags = match record.close_on_exec {
        0 => 0,
        _ => libc::O_CLOEXEC,
    };
    // SAFETY: the number is free or to be replaced.
    let value = unsafe { sys::call3(nr::DUP3, from as usize, record.fd as usize, flags as usize) };
    sys::check(value).step("duplicating a descriptor")?;
    Ok(())
}

/// Gives an open file the number that it had.
fn place(fd: i32, record: &FileRecord) -> Outcome<()> {
    if fd == record.fd as i32 {
        control(fd, libc::F_SETFD, record.close_on_exec as usize).step("setting a flag")?;
        return Ok(());
    }
    let placed = duplicate(fd, record);
    sys::close(fd);
    placed
}

fn reopen(record: &FileRecord, names: &[u8]) -> Outcome<()> {
    let at = record.name.at as usize;
    let path = &names[at..at + record.name.len as usize + 1];
    let shown = Shown(&path[..path.len() - 1]);
    let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
    let flags = record.flags as i32 & !once;
    let opened = sys::open(path, flags | libc::O_CLOEXEC, 0);
    let text = Text::of(format_args!(
        "opening {shown} again, descriptor {}",
        record.fd
    ));
    let fd = opened.step(text.as_str())?;
    if record.kind == FD_FILE {
        if flags & libc::O_DIRECTORY == 0 {
            let size = status(fd)?.st_size as u64;
            let is_regular = status(fd)?.st_mode & libc::S_IFMT == libc::S_IFREG;
            if is_regular && size != record.size {
                let then = record.size;
                return refuse!("{shown} has changed: {size} bytes in place of {then}");
            }
            if is_regular && record.checked > 0 {
                let (check, checked) = sum(&path[..path.len() - 1], size)?;
                // One that may not be read here cannot be compared.
                if checked > 0 && check != record.check {
                    return refuse!("{shown} has changed: it holds something else");
                }
            }
        }
        // SAFETY: it sets the position.
        unsafe { sys::call3(nr::LSEEK, fd as usize, record.offset as usize, 0) };
    }
    place(fd, record)
}

/// The reader of a pipe makes it; the writer is found ready.
fn remake_pipe(record: &FileRecord, all: &[FileRecord]) -> Outcome<()> {
    let is_reader = |record: &FileRecord| record.flags & libc::O_ACCMODE as u32 == 0;
    if !is_reader(record) {
        return Ok(());
    }
    let is_first = |other: &&FileRecord| {
        other.original == other.fd && other.kind == FD_PIPE && other.inode == record.inode
    };
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    let made = unsafe {
        sys::call2(
            nr::PIPE2,
            ends.as_mut_ptr() as usize,
            libc::O_CLOEXEC as usize,
        )
    };
    sys::check(made).step("making a pipe")?;
    // Out of the way of the numbers that are wanted.
    for end in &mut ends {
        let high = control(*end, libc::F_DUPFD_CLOEXEC, FILES_MAX).or_else(|_| {
            let highest = all
                .iter()
                .map(|record| record.fd as usize)
                .max()
                .unwrap_or(0);
            control(*end, libc::F_DUPFD_CLOEXEC, highest + 1)
        });
        let high = high.step("making a pipe")?;
        sys::close(*end);
        *end = high as i32;
    }
    if record.content_len > 0 {
        let len = record.content_len as usize;
        let _ = control(ends[1], libc::F_SETPIPE_SZ, len.max(1 << 16));
        // SAFETY: the content is in the image, and was kept for this.
        let content = unsafe { std::slice::from_raw_parts(record.content as *const u8, len) };
        sys::write(ends[1], content).step("filling a pipe")?;
    }
    for other in all.iter().filter(is_first) {
        let end = ends[usize::from(!is_reader(other))];
        control(end, libc::F_SETFL, other.flags as usize).step("setting a flag")?;
        duplicate(end, other)?;
    }
    sys::close(ends[0]);
    sys::close(ends[1]);
    Ok(())
}
