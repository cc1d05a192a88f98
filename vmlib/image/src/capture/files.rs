//! The open descriptors of this process: their records, and refusals of those that cannot be
//! restored.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{
        file_content::{KnownSums, Readable},
        file_locks::{self, Lock},
        kernel_files,
        names::Names,
        proc::{self, NumberPath},
        socket::Socket,
    },
    frozen::{
        arena::{self, List},
        fault::{Fault, Outcome, Shown, Step as _, Text, refuse, refuse_now},
        file_calls::{self, control, position},
    },
    options::Carry,
    raw::{
        records::{
            FD_DEVICE, FD_FILE, FD_INHERITED, FD_KERNEL, FD_PIPE, FD_UNNAMED, FILES_MAX,
            FileRecord, OFFSET_BITS,
        },
        sys::{self, Errno, nr},
    },
};

/// The limit of the content of a pipe. Bytes.
const PIPE_MAX: usize = 1 << 20;

/// The number of descriptors that are tried if the list of descriptors cannot be read.
const NUMBERS_MAX: i32 = 1 << 16;

/// The options of a save that concern descriptors.
#[derive(Clone, Copy)]
pub struct FileOptions<'a> {
    /// The descriptor that the image is written to; it is not in the image.
    pub image: i32,
    /// Descriptors that the program manages itself: they are closed in the restored process.
    pub own: &'a [i32],
    /// The process's locks on files.
    pub locks: &'a [Lock],
    /// Whose content the image carries, of the files.
    pub carry: Carry,
    /// How many bytes of each file its checksum covers.
    pub checked_max: u64,
}

/// The records of all descriptors, ascending by number.
pub fn capture(
    options: FileOptions<'_>,
    names: &mut Names<'_>,
    known: &mut KnownSums,
) -> Outcome<&'static mut [FileRecord]> {
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<FileRecord>::new(FILES_MAX)? };
    proc::for_each_number(b"/proc/self/fd\0", "listing the open files", |fd| {
        if fd != options.image && !options.own.contains(&fd) {
            match record(fd, names, options, known) {
                Ok(record) => list.push(record, "open files")?,
                // Before threads are stopped, the program may close a descriptor that was just
                // listed.
                Err(_) if is_closed(fd) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    })?;
    let list = list.into_static();
    list.sort_unstable_by_key(|record| record.fd);
    for index in 0..list.len() {
        let (before, rest) = list.split_at_mut(index);
        let record = &mut rest[0];
        // Each stream is inherited in the restored process, even if all were one terminal here.
        if is_inherited_stream(record) {
            continue;
        }
        let mut found: Option<&FileRecord> = None;
        for other in before.iter().filter(|other| other.original == other.fd) {
            // Of streams that were one open file, the standard output is the original: most
            // duplicates are written to.
            let is_wanted = found.is_none() || other.fd == 1;
            if is_wanted && is_duplicate(other, record)? {
                found = Some(other);
            }
        }
        if let Some(same) = found {
            (record.original, record.kind) = (same.fd, same.kind);
        }
    }
    for record in list.iter() {
        let is_own = record.original == record.fd && record.fd > 2;
        if is_own && record.kind == FD_INHERITED && stream_for(record, list).is_none() {
            let (fd, name) = (record.fd, Shown(names.get(record.name)));
            return refuse!(
                "descriptor {fd} is the terminal {name}, and none of 0, 1 and 2 can replace it"
            );
        }
    }
    choose_carried(list, names, options)?;
    for index in 0..list.len() {
        let record = list[index];
        if record.kind == FD_PIPE && !has_other_end(list, &record) {
            let (fd, name) = (record.fd, Shown(names.get(record.name)));
            return refuse!("descriptor {fd} is a pipe to another process ({name})");
        }
        if record.kind == FD_PIPE && record.original == record.fd {
            keep_content(&mut list[index])?;
        }
    }
    Ok(list)
}

/// Marks the files that are carried. Files without a name come first, because their content cannot
/// be restored otherwise.
fn choose_carried(
    list: &mut [FileRecord],
    names: &Names<'_>,
    options: FileOptions<'_>,
) -> Outcome<()> {
    match options.carry {
        Carry::Nothing => Ok(()),
        Carry::All | Carry::Fitting(_) => {
            let room = options.carry.most(false).unwrap_or(u64::MAX);
            let room = carry_fitting(list, names, options, room, |_, it| it.kind == FD_UNNAMED)?;
            carry_fitting(list, names, options, room, |_, it| it.kind == FD_FILE).map(|_| ())
        }
        Carry::RollBack { rewritable, others } => {
            let may_change =
                |list: &[FileRecord], it: &FileRecord| it.kind == FD_FILE && it.may_change(list);
            let room = carry_fitting(list, names, options, rewritable, |_, it| {
                it.kind == FD_UNNAMED
            })?;
            carry_fitting(list, names, options, room, may_change)?;
            carry_fitting(list, names, options, others, |list, it| {
                it.kind == FD_FILE && !may_change(list, it)
            })
            .map(|_| ())
        }
    }
}

/// Marks the files that are meant and fit into `room`. Returns the room that is left.
fn carry_fitting(
    list: &mut [FileRecord],
    names: &Names<'_>,
    options: FileOptions<'_>,
    mut room: u64,
    is_meant: impl Fn(&[FileRecord], &FileRecord) -> bool,
) -> Outcome<u64> {
    let is_all = matches!(options.carry, Carry::All);
    for index in 0..list.len() {
        let record = list[index];
        let is_first = record.original == record.fd && record.is_regular();
        // A file is carried once, however often it was opened; each of its names counts as a file
        // of its own.
        let is_there = || {
            list[..index].iter().any(|other| {
                let same_name = names.get(other.name) == names.get(record.name);
                other.carried != 0 && other.is_same_file(&record) && same_name
            })
        };
        if !is_first || !is_meant(list, &record) || is_there() {
            continue;
        }
        let (fd, size, name) = (record.fd, record.size, Shown(names.get(record.name)));
        let fits = size <= room && size < 1 << OFFSET_BITS;
        let is_wanted = is_all || record.kind == FD_UNNAMED;
        if fits && Readable::of(options.locks, &record).is_some() {
            list[index].carried = 1;
            room -= size;
        } else if is_wanted && fits {
            return refuse!(
                "descriptor {fd} cannot be read, so that it cannot be carried ({name})"
            );
        } else if is_all {
            return refuse!("descriptor {fd} is too long to be carried ({name})");
        } else if is_wanted {
            return refuse!(
                "descriptor {fd} is a deleted file: {size} bytes, with room for {room} ({name})"
            );
        }
    }
    Ok(room)
}

/// Whether the descriptor is 0, 1 or 2 and is inherited by the restored process.
fn is_inherited_stream(record: &FileRecord) -> bool {
    record.kind == FD_INHERITED && record.fd <= 2
}

/// The inherited stream that replaces a terminal which was opened once more.
pub fn stream_for(record: &FileRecord, all: &[FileRecord]) -> Option<u32> {
    let is_read = record.flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
    let order = if is_read { [0, 1, 2] } else { [1, 2, 0] };
    let is_there = |fd: &u32| {
        let mut streams = all.iter().filter(|record| is_inherited_stream(record));
        streams.any(|stream| stream.fd == *fd)
    };
    order.into_iter().find(is_there)
}

/// Whether both descriptors are one open file, with one position.
fn is_duplicate(one: &FileRecord, other: &FileRecord) -> Outcome<bool> {
    const KCMP_FILE: usize = 0;
    /// Linux 6.10.
    const F_DUPFD_QUERY: i32 = 1024 + 3;
    if (one.device, one.inode) != (other.device, other.inode) {
        return Ok(false);
    }
    let (pid, fds) = (sys::getpid() as usize, [one.fd as usize, other.fd as usize]);
    // SAFETY: the call only compares.
    let order = unsafe { sys::call5(nr::KCMP, pid, pid, KCMP_FILE, fds[0], fds[1]) };
    if order >= 0 {
        return Ok(order == 0);
    }
    // A filter of system calls may forbid kcmp.
    if let Ok(same) = control(fds[0] as i32, F_DUPFD_QUERY, fds[1]) {
        return Ok(same == 1);
    }
    let is_same = (one.flags, one.offset) == (other.flags, other.offset);
    match one.is_regular() && is_same {
        true => refuse!(
            "descriptors {} and {} may be one open file or two, and kcmp, which tells, is not allowed",
            one.fd,
            other.fd
        ),
        false => Ok(false),
    }
}

fn has_other_end(all: &[FileRecord], record: &FileRecord) -> bool {
    let way = |record: &FileRecord| record.flags & libc::O_ACCMODE as u32;
    all.iter().any(|other| {
        let same = (other.kind, other.inode) == (FD_PIPE, record.inode);
        same && way(other) != way(record)
    })
}

/// Closes all descriptors in a range of numbers, both ends included.
pub fn close_between(from: i32, to: i32) {
    if from > to {
        return;
    }
    // SAFETY: the caller promises that no code uses them.
    let closed = unsafe { sys::call3(nr::CLOSE_RANGE, from as usize, to as usize, 0) };
    if closed == 0 {
        return;
    }
    // A filter of system calls, or an old kernel, refuses the call.
    let listed = proc::for_each_number(b"/proc/self/fd\0", "listing the open files", |fd| {
        if (from..=to).contains(&fd) {
            sys::close(fd);
        }
        Ok(())
    });
    if listed.is_err() {
        (from..=to.min(NUMBERS_MAX)).for_each(sys::close);
    }
}

fn is_closed(fd: i32) -> bool {
    matches!(control(fd, libc::F_GETFD, 0), Err(Errno(libc::EBADF)))
}

fn record(
    fd: i32,
    names: &mut Names<'_>,
    options: FileOptions<'_>,
    known: &mut KnownSums,
) -> Outcome<FileRecord> {
    let path = NumberPath::new("/proc/self/fd/", fd, "");
    let name = proc::read_link(path.bytes(), "looking at an open file")?;
    let stat = file_calls::status(fd)?;
    let flags = control(fd, libc::F_GETFL, 0).step("looking at an open file")?;
    let close_on_exec = control(fd, libc::F_GETFD, 0).step("looking at an open file")?;
    let mut record = FileRecord {
        fd: fd as u32,
        flags: flags as u32,
        original: fd as u32,
        device: stat.st_dev,
        inode: stat.st_ino,
        close_on_exec: close_on_exec as u32 & 1,
        mode: stat.st_mode,
        user: stat.st_uid,
        group: stat.st_gid,
        ..FileRecord::default()
    };
    let is_path = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
    if is_path && kernel_files::is_one(fd) {
        record.kind = FD_KERNEL;
        record.name = kernel_files::name(fd, name, names)?;
        record.offset = position(fd);
        return Ok(record);
    }
    record.name = names.add_path(name)?;
    record.kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => {
            let is_deleted = stat.st_nlink == 0;
            if is_deleted && !(options.carry.is_any() && record.is_regular()) {
                let name = Shown(name);
                return refuse!("descriptor {fd} is a deleted file ({name}), and not carried");
            }
            if !is_deleted {
                refuse_other_name(fd, name, &stat)?;
            }
            if file_locks::has_lease(options.locks, fd) {
                return refuse!("descriptor {fd} holds a lease on {}", Shown(name));
            }
            record.offset = position(fd);
            if record.is_regular() {
                refuse_seals(fd, name)?;
                record.size = stat.st_size as u64;
                let sum = known.sum(options.locks, &record, &stat, options.checked_max);
                (record.check, record.checked) = match sum {
                    Err(Fault::Failed(_, errno)) => {
                        let what = format_args!("reading {}, descriptor {fd}", Shown(name));
                        return Err(errno).step(Text::of(what).as_str());
                    }
                    sum => sum?,
                };
            }
            match is_deleted {
                true => FD_UNNAMED,
                false => FD_FILE,
            }
        }
        libc::S_IFCHR => match (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)) {
            // null, zero, full, random, urandom; `/dev/tty`, the terminal of the process that opens
            // it.
            (1, 3 | 5 | 7 | 8 | 9) | (5, 0) => FD_DEVICE,
            _ if fd <= 2 => FD_INHERITED,
            // A terminal, probably one that is a stream, too.
            (136..=143, _) => FD_INHERITED,
            _ => return refuse!("descriptor {fd} is the device {}", Shown(name)),
        },
        libc::S_IFIFO | libc::S_IFSOCK if fd <= 2 => FD_INHERITED,
        libc::S_IFIFO if name.starts_with(b"pipe:") => FD_PIPE,
        libc::S_IFIFO => return refuse!("descriptor {fd} is the named pipe {}", Shown(name)),
        libc::S_IFSOCK => {
            let (what, name) = (Socket::of(fd), Shown(name));
            return refuse!(
                "descriptor {fd} is {what} ({name}): the program has to close it first, in a \
                 callback around the save"
            );
        }
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

/// Refuses a file that its name does not lead to, so that it cannot be opened by name in the
/// restored process. Such a file has lost this name but still has another, or something was mounted
/// over it.
fn refuse_other_name(fd: i32, name: &[u8], stat: &libc::stat) -> Outcome<()> {
    let shown = Shown(name);
    let found = file_calls::stat_path(name);
    match found {
        Ok(found) if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) => Ok(()),
        Ok(_) => refuse!("descriptor {fd} is {shown}, and there is another file of that name now"),
        Err(Errno(libc::ENOENT | libc::ENOTDIR)) if name.ends_with(b" (deleted)") => refuse!(
            "descriptor {fd} is a file whose name was removed while {} other one stays ({shown}): \
             it cannot be opened again by either",
            stat.st_nlink
        ),
        Err(Errno(libc::ENOENT | libc::ENOTDIR)) => {
            refuse!("descriptor {fd} is {shown}, and nothing of that name can be reached")
        }
        // The user who restores the process may have the right to look up the name.
        Err(_) => Ok(()),
    }
}

/// Refuses a sealed memory file: seals cannot be set before the restored file is filled.
fn refuse_seals(fd: i32, name: &[u8]) -> Outcome<()> {
    match control(fd, libc::F_GET_SEALS, 0) {
        Ok(seals) if seals as i32 & !libc::F_SEAL_SEAL != 0 => {
            refuse!("descriptor {fd} is a sealed file ({})", Shown(name))
        }
        _ => Ok(()),
    }
}

/// Copies the content of a pipe into the record, and leaves it in the pipe.
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
        return refuse_now!(
            "the pipe at descriptor {fd} has {waiting} bytes in it; at most {PIPE_MAX} can be saved"
        );
    }
    // SAFETY: any bytes are values.
    let content = unsafe { arena::take::<u8>(waiting)? };
    peek(fd, content).step("looking into a pipe")?;
    record.content = content.as_ptr() as u64;
    record.content_len = waiting as u32;
    Ok(())
}

/// Copies the content of a pipe without removing it.
fn peek(fd: i32, content: &mut [u8]) -> sys::Result<()> {
    const TEE: usize = 276;
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    sys::check(unsafe { sys::call2(nr::PIPE2, ends.as_mut_ptr() as usize, 0) })?;
    // The second pipe gets the size of the first one, so that all content fits.
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
