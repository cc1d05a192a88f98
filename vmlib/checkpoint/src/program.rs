//! The program's file, and the file that this library was loaded from: asked for once, for in a
//! process that was brought back the kernel may name others.

use crate::vdso;
use std::sync::OnceLock;

/// Bytes of a path.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A file.
#[derive(Clone, Copy)]
pub struct Known {
    path: [u8; PATH_MAX],
    len: usize,
    /// Bytes.
    pub size: u64,
    /// Time of change. Nanoseconds since 1970.
    pub changed_ns: u64,
}

impl Known {
    /// Its path; empty if it is not known.
    pub fn path(&self) -> &[u8] {
        &self.path[..self.len]
    }
}

static PROGRAM: OnceLock<(Known, Known)> = OnceLock::new();

/// The program and the library, which are one file if it is linked into the program. `None` before
/// [`remember`].
pub fn known() -> Option<&'static (Known, Known)> {
    PROGRAM.get()
}

/// Asks for them, where the C library may be used and no other save is under way.
pub fn remember() {
    PROGRAM.get_or_init(|| {
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let at = remember as *const () as usize;
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        let library = maps.split(|byte| *byte == b'\n').find_map(|line| {
            let (range, _) = vdso::range_and_name(line)?;
            let name = line.iter().position(|byte| *byte == b'/')?;
            range.contains(&at).then(|| line[name..].to_vec())
        });
        use std::os::unix::ffi::OsStrExt as _;
        (
            look(program.as_os_str().as_bytes()),
            look(&library.unwrap_or_default()),
        )
    });
}

fn look(path: &[u8]) -> Known {
    use std::os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _};
    let mut known = Known {
        path: [0; PATH_MAX],
        len: 0,
        size: 0,
        changed_ns: 0,
    };
    let metadata = std::fs::metadata(std::ffi::OsStr::from_bytes(path));
    if path.len() < PATH_MAX {
        known.path[..path.len()].copy_from_slice(path);
        known.len = path.len();
    }
    if let Ok(metadata) = metadata {
        known.size = metadata.size();
        known.changed_ns = metadata.mtime() as u64 * 1_000_000_000 + metadata.mtime_nsec() as u64;
    }
    known
}
