//! Files that the kernel makes when they are read, in `/proc`, `/sys` and the like. The restored
//! process opens them again by name, as files of its own process and host. Their content is neither
//! compared nor carried.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{names::Names, proc},
    frozen::fault::{Outcome, Shown, refuse},
    raw::{records::Name, sys},
};

/// Magic numbers of the kernel's file systems: proc, sysfs, control groups, debugging, tracing,
/// security, configuration, programs, and others.
const KERNELS: [u64; 15] = [
    PROC,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xf97c_ff8c,
    0xde5e_81e4,
    0xcafe_4a11,
    0x6165_676c,
    0x0765_5821,
    0x4249_4e4d,
    0x4343_5356,
];
const PROC: u64 = 0x9fa0;

/// The magic number of a descriptor's file system; 0 if not known.
fn file_system(fd: i32) -> u64 {
    const FSTATFS: usize = 138;
    let mut found = [0u64; 16];
    // SAFETY: the kernel writes 120 bytes.
    unsafe { sys::call2(FSTATFS, fd as usize, found.as_mut_ptr() as usize) };
    found[0]
}

/// Whether a descriptor is a file of the kernel.
pub fn is_one(fd: i32) -> bool {
    KERNELS.contains(&file_system(fd))
}

/// A name that leads to the corresponding file in the restored process.
///
/// # Errors
/// The file is of another process, or of a thread that is not the first one.
pub fn name(fd: i32, name: &[u8], names: &mut Names<'_>) -> Outcome<Name> {
    let (first, rest) = match own(name, sys::getpid()) {
        Whose::Anybodys => return names.add(name),
        Whose::Own(first, rest) => (first, rest),
        Whose::Threads => {
            return refuse!("descriptor {fd} is {}, of one of its threads", Shown(name));
        }
        Whose::Others if file_system(fd) != PROC => return names.add(name),
        Whose::Others => return refuse!("descriptor {fd} is {}, of another process", Shown(name)),
    };
    names.add_joined(first, rest)
}

/// The owner of a file of `/proc`.
#[derive(Debug, PartialEq, Eq)]
enum Whose<'a> {
    /// The file is of no process.
    Anybodys,
    /// The file is of this process or its first thread. Its name for the restored process, in two
    /// parts.
    Own(&'a [u8], &'a [u8]),
    /// The file is of another thread of this process.
    Threads,
    /// The file is of another process.
    Others,
}

fn own(name: &[u8], pid: i32) -> Whose<'_> {
    /// The number at the beginning of a path, and the rest of the path.
    fn number(path: &[u8]) -> Option<(i32, &[u8])> {
        let len = path.iter().position(|byte| *byte == b'/');
        let (first, rest) = path.split_at(len.unwrap_or(path.len()));
        Some((proc::decimal(first)? as i32, rest))
    }
    let Some(inside) = name.strip_prefix(b"/proc/") else {
        // The name has a number, so the file may be of another process in a `/proc` that is mounted
        // elsewhere.
        let is_number = |part: &[u8]| proc::decimal(part).is_some();
        return match name.split(|byte| *byte == b'/').any(is_number) {
            true => Whose::Others,
            false => Whose::Anybodys,
        };
    };
    let Some((found, rest)) = number(inside) else {
        return Whose::Anybodys;
    };
    if found != pid {
        return Whose::Others;
    }
    match rest.strip_prefix(b"/task/").and_then(number) {
        None => Whose::Own(b"/proc/self", rest),
        // The first thread of the restored process opens the file.
        Some((tid, rest)) if tid == pid => Whose::Own(b"/proc/thread-self", rest),
        Some(_) => Whose::Threads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_process_have_no_number_in_their_names() {
        let of = |name: &'static str| own(name.as_bytes(), 77);
        assert_eq!(of("/proc/meminfo"), Whose::Anybodys);
        assert_eq!(of("/sys/kernel/mm"), Whose::Anybodys);
        assert_eq!(of("/proc"), Whose::Anybodys);
        assert_eq!(of("/proc/77"), Whose::Own(b"/proc/self", b""));
        assert_eq!(of("/proc/77/fd"), Whose::Own(b"/proc/self", b"/fd"));
        assert_eq!(of("/proc/77/task"), Whose::Own(b"/proc/self", b"/task"));
        let thread = Whose::Own(b"/proc/thread-self", b"/stat");
        assert_eq!(of("/proc/77/task/77/stat"), thread);
        assert_eq!(of("/proc/77/task/78/stat"), Whose::Threads);
        assert_eq!(of("/proc/7/stat"), Whose::Others);
        assert_eq!(of("/host/proc/77/stat"), Whose::Others);
    }
}
