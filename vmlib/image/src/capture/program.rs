//! The program's file, and the file that this library was loaded from. Both are looked up once,
//! because in a restored process the kernel may name other files.
//!
//! **Runs before `main`**, where a program with a `malloc` of its own may not be ready for it:
//! nothing here allocates.

use crate::{
    capture::vdso,
    frozen::file_calls,
    raw::sys::{self, nr},
};
use std::sync::OnceLock;

/// The limit of a path. Bytes.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A file that the image names.
#[derive(Clone, Copy)]
pub struct KnownFile {
    /// The path, ended by NUL.
    path: [u8; PATH_MAX],
    len: usize,
    /// Size of the file. Bytes.
    pub size: u64,
    /// Time of change. Nanoseconds since 1970.
    pub changed_ns: u64,
}

impl KnownFile {
    const NONE: KnownFile = KnownFile {
        path: [0; PATH_MAX],
        len: 0,
        size: 0,
        changed_ns: 0,
    };

    /// The path of the file; empty if not known.
    pub fn path(&self) -> &[u8] {
        &self.path[..self.len]
    }

    fn set_path(&mut self, path: &[u8]) {
        if path.len() < PATH_MAX {
            self.path[..path.len()].copy_from_slice(path);
            self.len = path.len();
        }
    }

    /// Fills in size and time of change.
    fn look(mut self) -> Self {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        if let Ok(fd) = sys::open(&self.path[..=self.len], flags, 0) {
            if let Ok(stat) = file_calls::stat(fd) {
                self.size = stat.st_size as u64;
                self.changed_ns = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec as u64;
            }
            sys::close(fd);
        }
        self
    }
}

static PROGRAM: OnceLock<(KnownFile, KnownFile)> = OnceLock::new();

/// The program and the library. Both are the same file if the library is linked into the program.
/// `None` before [`remember`].
pub fn known() -> Option<&'static (KnownFile, KnownFile)> {
    PROGRAM.get()
}

/// Looks up both files. To be called where no other save is under way.
pub fn remember() {
    PROGRAM.get_or_init(|| (program().look(), library().look()));
}

fn program() -> KnownFile {
    let mut known = KnownFile::NONE;
    let path = c"/proc/self/exe".as_ptr() as usize;
    let (to, room) = (known.path.as_mut_ptr() as usize, PATH_MAX - 1);
    // SAFETY: the path is ended by NUL, and the kernel writes into the room.
    let len = unsafe { sys::call3(nr::READLINK, path, to, room) };
    known.len = sys::check(len).unwrap_or(0);
    known
}

/// The file of the mapping that contains this code.
fn library() -> KnownFile {
    let (mut known, at) = (KnownFile::NONE, remember as *const () as usize);
    for_each_line(c"/proc/self/maps".to_bytes_with_nul(), |line| {
        let found = vdso::range_and_name(line).filter(|(range, _)| range.contains(&at));
        let name = line.iter().position(|byte| *byte == b'/');
        if let (Some(_), Some(name)) = (found, name) {
            known.set_path(&line[name..]);
        }
    });
    known
}

/// Calls `with` for each line of a file. A line that is too long for a path is skipped. `path` ends
/// with NUL.
fn for_each_line(path: &[u8], mut with: impl FnMut(&[u8])) {
    let Ok(fd) = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0) else {
        return;
    };
    let mut room = [0u8; 2 * PATH_MAX];
    let mut len = 0;
    loop {
        match sys::read(fd, &mut room[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(sys::EINTR) => continue,
            Err(_) => break,
        }
        let whole = room[..len].iter().rposition(|byte| *byte == b'\n');
        match whole {
            Some(end) => {
                room[..end].split(|byte| *byte == b'\n').for_each(&mut with);
                room.copy_within(end + 1..len, 0);
                len -= end + 1;
            }
            None if len == room.len() => len = 0,
            None => {}
        }
    }
    sys::close(fd);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn program_and_library_are_the_file_of_this_test() {
        let path = std::env::current_exe().expect("a path");
        for known in [program().look(), library().look()] {
            assert_eq!(known.path(), path.as_os_str().as_bytes());
            assert_eq!(known.size, path.metadata().expect("a file").len());
        }
    }
}
