//! Locks on files. A lock belongs to an open file or, if it is of the POSIX kind, to the process
//! and to the open file through which it was taken. The kernel reports both in `/proc/self/fdinfo`.
//! The restored process takes the locks again, without waiting.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::proc::{self, NumberPath},
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, Step as _, Text, refuse},
    },
    raw::{
        records::FileRecord,
        sys::{self, Errno, nr},
    },
};

/// The limit of locks.
const LOCKS_MAX: usize = 1 << 16;

/// The holder of a lock.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process: locks of `fcntl`.
    Process,
    /// The open file: open file description locks of `fcntl`, a feature of Linux.
    File,
    /// The open file: locks of `flock`, which cover the whole file.
    Whole,
    /// A lease, which is no lock: the kernel notifies the process when the file is opened
    /// elsewhere.
    Lease,
}

/// A lock on a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    fd: i32,
    owner: Owner,
    /// `F_RDLCK` or `F_WRLCK`.
    kind: i16,
    /// The inode of the file.
    inode: u64,
    start: u64,
    /// The last byte; `u64::MAX`: up to the end of the file, wherever that is.
    last: u64,
}

/// The locks of all descriptors. The locks of a duplicate are listed for each of its descriptors.
pub fn capture() -> Outcome<&'static [Lock]> {
    // SAFETY: no code reads beyond the pushed entries.
    let mut list = unsafe { List::<Lock>::new(LOCKS_MAX)? };
    proc::for_each_number(b"/proc/self/fd\0", "listing the open files", |fd| {
        let mark = arena::mark();
        let path = NumberPath::new("/proc/self/fdinfo/", fd, "");
        // Before threads are stopped, the program may close a descriptor that was just listed.
        if let Ok(info) = proc::read_file(path.bytes(), "looking at an open file") {
            for line in info.split(|byte| *byte == b'\n') {
                if let Some(lock) = parse(fd, line) {
                    list.push(lock, "locks on files")?;
                }
            }
        }
        // SAFETY: the file's bytes are not used any more.
        unsafe { arena::release(mark) };
        Ok(())
    })?;
    Ok(list.into_static())
}

/// The locks of the open files that are restored, each once.
pub fn of(locks: &[Lock], records: &[FileRecord]) -> Outcome<&'static [Lock]> {
    // SAFETY: no code reads beyond the pushed entries.
    let mut list = unsafe { List::<Lock>::new(locks.len())? };
    for lock in locks {
        let is_first = |record: &FileRecord| lock.is_of(record) && record.original == record.fd;
        if records.iter().any(is_first) {
            list.push(*lock, "locks on files")?;
        }
    }
    Ok(list.into_static())
}

/// Whether the process would lose locks if it closed any descriptor of this file.
pub fn would_end(locks: &[Lock], inode: u64) -> bool {
    locks
        .iter()
        .any(|lock| lock.owner == Owner::Process && lock.inode == inode)
}

/// Whether a descriptor holds a lease.
pub fn has_lease(locks: &[Lock], fd: i32) -> bool {
    locks
        .iter()
        .any(|lock| lock.fd == fd && lock.owner == Owner::Lease)
}

/// Parses a line like "lock:\t1: POSIX  ADVISORY  WRITE 911 fe:00:1001 10 14".
fn parse(fd: i32, line: &[u8]) -> Option<Lock> {
    let line = line.strip_prefix(b"lock:\t")?;
    let mut words = proc::words(line).skip(1);
    let owner = match words.next()? {
        b"POSIX" => Owner::Process,
        b"OFDLCK" => Owner::File,
        b"FLOCK" => Owner::Whole,
        _ => Owner::Lease,
    };
    let kind = match words.nth(1)? {
        b"WRITE" => libc::F_WRLCK,
        _ => libc::F_RDLCK,
    };
    let inode = words.nth(1)?.rsplit(|byte| *byte == b':').next();
    let start = words.next().and_then(proc::decimal)?;
    let last = match words.next()? {
        b"EOF" => u64::MAX,
        last => proc::decimal(last)?,
    };
    Some(Lock {
        fd,
        owner,
        kind: kind as i16,
        inode: inode.and_then(proc::decimal)?,
        start,
        last,
    })
}

/// Takes locks. A process loses its POSIX locks on a file when it closes any descriptor of the
/// file. So all locks are taken when all files are open and no descriptor is closed any more. They
/// are also taken earlier, before any file is changed, as a test whether they are free.
///
/// # Errors
/// Another process holds a lock now.
pub fn restore<'a, 'b>(
    locks: impl Iterator<Item = &'b Lock>,
    records: &[FileRecord],
    name_of: impl Fn(&FileRecord) -> &'a [u8],
) -> Outcome<()> {
    for lock in locks {
        let taken = match lock.owner {
            Owner::Whole => take_whole(lock),
            // A save refuses leases.
            Owner::Lease => continue,
            Owner::Process => control(lock.fd, libc::F_SETLK, &mut lock.range()),
            Owner::File => control(lock.fd, libc::F_OFD_SETLK, &mut lock.range()),
        };
        let record = records.iter().find(|record| lock.is_of(record));
        let name = Shown(record.map_or(b"?", &name_of));
        match taken {
            Ok(_) => {}
            Err(Errno(libc::EAGAIN | libc::EACCES)) => return taken_by_other(lock, &name),
            Err(error) => {
                let text = Text::of(format_args!("locking {name} again"));
                return Err(error).step(text.as_str());
            }
        }
    }
    Ok(())
}

impl Lock {
    /// Whether the lock was taken through the descriptor of this record.
    pub fn is_of(&self, record: &FileRecord) -> bool {
        self.fd == record.fd as i32
    }

    fn range(&self) -> libc::flock {
        let len = match self.last {
            u64::MAX => 0,
            last => last - self.start + 1,
        };
        libc::flock {
            l_type: self.kind,
            l_whence: libc::SEEK_SET as i16,
            l_start: self.start as i64,
            l_len: len as i64,
            l_pid: 0,
        }
    }
}

fn take_whole(lock: &Lock) -> sys::Result<usize> {
    const FLOCK: usize = 73;
    let operation = match i32::from(lock.kind) {
        libc::F_RDLCK => libc::LOCK_SH,
        _ => libc::LOCK_EX,
    };
    let operation = (operation | libc::LOCK_NB) as usize;
    // SAFETY: the call concerns only this open file.
    sys::check(unsafe { sys::call2(FLOCK, lock.fd as usize, operation) })
}

fn control(fd: i32, command: i32, range: &mut libc::flock) -> sys::Result<usize> {
    let range = &raw mut *range as usize;
    // SAFETY: the kernel reads the range, or writes it.
    sys::check(unsafe { sys::call3(nr::FCNTL, fd as usize, command as usize, range) })
}

/// The refusal that names the holder of the lock, if the kernel reports one.
fn taken_by_other(lock: &Lock, name: &Shown<'_>) -> Outcome<()> {
    let mut range = lock.range();
    let asked = match lock.owner {
        Owner::Whole | Owner::Lease => Err(Errno(libc::EINVAL)),
        Owner::Process => control(lock.fd, libc::F_GETLK, &mut range),
        Owner::File => control(lock.fd, libc::F_OFD_GETLK, &mut range),
    };
    let fd = lock.fd;
    match asked {
        Ok(_) if range.l_pid > 0 => refuse!(
            "{name}, descriptor {fd}, was locked, and process {} has locked it since",
            range.l_pid
        ),
        _ => {
            refuse!("{name}, descriptor {fd}, was locked, and another process has locked it since")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_parsed_as_the_kernel_writes_them() {
        let posix = parse(
            5,
            b"lock:\t2: POSIX  ADVISORY  WRITE 20911 fe:00:10012680 10 14",
        );
        let posix = posix.expect("a lock");
        assert_eq!(
            posix,
            Lock {
                fd: 5,
                owner: Owner::Process,
                kind: libc::F_WRLCK as i16,
                inode: 10012680,
                start: 10,
                last: 14
            }
        );
        assert_eq!(posix.range().l_len, 5);
        let own = parse(
            5,
            b"lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:10012680 30 EOF",
        );
        let own = own.expect("a lock");
        assert_eq!(
            (own.owner, own.start, own.range().l_len),
            (Owner::File, 30, 0)
        );
        let whole = parse(
            5,
            b"lock:\t1: FLOCK  ADVISORY  READ 20911 fe:00:10012680 0 EOF",
        );
        assert_eq!(whole.map(|lock| lock.owner), Some(Owner::Whole));
        let lease = parse(5, b"lock:\t1: LEASE  ACTIVE    READ 7 fe:00:1 0 EOF");
        assert!(has_lease(&[lease.expect("one")], 5));
        assert_eq!(parse(5, b"pos:\t0"), None);
    }
}
