//! The mappings of this process, from `/proc/self/maps`, and refusals of those that cannot be
//! saved.
//!
//! Private mappings of files, above all the program and its libraries, are saved with their
//! content. So the host of the restore does not need these files.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.

use crate::{
    capture::{
        memory::{FROM_FILE, OF_FILE},
        names::Names,
        proc, vdso,
    },
    frozen::{
        arena::List,
        fault::{Outcome, Shown, refuse},
        left_out, scratch,
    },
    raw::records::{
        FD_UNNAMED, FILE, FileRecord, GROWS_DOWN, MAPPINGS_MAX, Mapping, PRIVATE, RESTORER, SHARED,
    },
};
use std::ops::Range;

/// The purpose of a list of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// All mappings of a frozen process; a mapping that cannot be saved is refused.
    Stopped,
    /// The mappings of a running program; a mapping that cannot be saved is left out, because it
    /// may not exist any more in the last list.
    Running,
}

/// The mappings, ascending by address, of a process that has these files open.
pub fn mappings(
    names: &mut Names<'_>,
    listing: Listing,
    files: &[FileRecord],
) -> Outcome<&'static mut [Mapping]> {
    let file = proc::read_file(b"/proc/self/maps\0", "reading the mappings")?;
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<Mapping>::new(MAPPINGS_MAX)? };
    // SAFETY: any numbers are values. Device and inode of each shared memory.
    let mut objects = unsafe { List::<[u64; 2]>::new(1024)? };
    // SAFETY: zeros are values.
    let mut views = unsafe { List::<View>::new(MAPPINGS_MAX)? };
    for line in file.split(|byte| *byte == b'\n') {
        let Some(line) = Line::of(line) else { continue };
        match mapping(&line, &mut objects, names, files) {
            Ok(Some(mapping)) => {
                if mapping.kind == PRIVATE && line.is_nameless_file() {
                    views.push(View::of(&line), "mappings")?;
                }
                list.push(mapping, "mappings")?;
            }
            Ok(None) => {}
            Err(_) if listing == Listing::Running => {}
            Err(fault) => return Err(fault),
        }
    }
    let list = list.into_static();
    if listing == Listing::Stopped {
        refuse_restorers_place(list, names)?;
        refuse_live_views(views.all(), list, objects.all(), files, names)?;
    }
    // Where the first thread's stack is divided into two mappings, by a watch or by other rights,
    // the kernel names only the upper one so; but the lower one grows.
    for index in (1..list.len()).rev() {
        let (above, below) = (list[index], &mut list[index - 1]);
        let touch = above.flags & GROWS_DOWN != 0 && below.end == above.start;
        if touch && below.kind == PRIVATE && below.name.len == 0 {
            below.flags |= GROWS_DOWN;
        }
    }
    for index in 0..list.len() {
        if list[index].kind == SHARED {
            let object = list[index].object;
            let same = list
                .iter()
                .filter(|other| other.kind == SHARED && other.object == object);
            let len = same
                .map(|other| other.offset + other.end - other.start)
                .max();
            list[index].object_len = len.unwrap_or(0);
        }
    }
    Ok(list)
}

/// A line of `/proc/self/maps`.
struct Line<'a> {
    range: Range<usize>,
    rights: &'a [u8],
    offset: u64,
    device: u64,
    inode: u64,
    name: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let (range, _) = vdso::range_and_name(line)?;
        let mut words = proc::words(line).skip(1);
        let rights = words.next()?;
        let offset = proc::hexadecimal(words.next()?)?;
        // Like "08:02".
        let mut parts = words.next()?.split(|byte| *byte == b':');
        let mut part = || parts.next().and_then(proc::hexadecimal);
        let device = part()? << 32 | part()?;
        let inode = words.next().and_then(proc::decimal)?;
        // The name may contain spaces; it is the rest of the line.
        let name = line
            .iter()
            .position(|byte| matches!(byte, b'/' | b'['))
            .or_else(|| line.windows(11).position(|part| part == b"anon_inode:"))
            .map_or(&b""[..], |at| &line[at..]);
        Some(Line {
            range,
            rights,
            offset,
            device,
            inode,
            name,
        })
    }

    /// Device and inode.
    fn file(&self) -> [u64; 2] {
        [self.device, self.inode]
    }

    /// Whether the mapping is of a file that has no name, or none any more.
    fn is_nameless_file(&self) -> bool {
        self.inode != 0 && self.name.ends_with(b" (deleted)")
    }
}

/// Refuses memory at the addresses that the restorer needs.
fn refuse_restorers_place(list: &[Mapping], names: &Names<'_>) -> Outcome<()> {
    let is_there = |it: &&Mapping| it.start <= RESTORER.end && RESTORER.start <= it.end;
    let Some(mapping) = list.iter().find(is_there) else {
        return Ok(());
    };
    let (start, end, name) = (mapping.start, mapping.end, names.get(mapping.name));
    let what = match name {
        b"" => "no name, as the memory of thread and memory sanitizers",
        _ => "the name ",
    };
    refuse!(
        "its memory from {start:#x} to {end:#x} ({what}{}) is at the addresses that the restorer \
         needs",
        Shown(name)
    )
}

/// A private mapping of a file without a name, or of shared memory.
#[derive(Clone, Copy)]
struct View {
    start: u64,
    inode: u64,
    file: [u64; 2],
}

impl View {
    fn of(line: &Line<'_>) -> Self {
        View {
            start: line.range.start as u64,
            inode: line.inode,
            file: line.file(),
        }
    }
}

/// Refuses a private mapping of a nameless file that this process can still write. The mapping is
/// saved with its content, but its untouched pages would show later writes to the file, and would
/// not do so in the restored process.
fn refuse_live_views(
    views: &[View],
    list: &[Mapping],
    objects: &[[u64; 2]],
    files: &[FileRecord],
    names: &Names<'_>,
) -> Outcome<()> {
    for view in views {
        let writes = |file: &&FileRecord| {
            file.kind == FD_UNNAMED && file.inode == view.inode && file.is_writable()
        };
        let index = list.partition_point(|mapping| mapping.start < view.start);
        let (name, at) = (Shown(names.get(list[index].name)), view.start);
        if let Some(file) = files.iter().find(writes) {
            let fd = file.fd;
            return refuse!(
                "{name} is mapped privately at {at:#x}, and can be written by descriptor {fd}: the \
                 restored process would not see later writes"
            );
        }
        let shows = |mapping: &&Mapping| {
            let is_same = || objects.get(mapping.object as usize) == Some(&view.file);
            mapping.kind == SHARED && mapping.prot & libc::PROT_WRITE as u32 != 0 && is_same()
        };
        if let Some(shared) = list.iter().find(shows) {
            let other = shared.start;
            return refuse!(
                "{name} is mapped privately at {at:#x}, and can be written by way of its shared \
                 mapping at {other:#x}: the restored process would not see later writes"
            );
        }
    }
    Ok(())
}

fn mapping(
    line: &Line<'_>,
    objects: &mut List<[u64; 2]>,
    names: &mut Names<'_>,
    files: &[FileRecord],
) -> Outcome<Option<Mapping>> {
    let name = line.name;
    let is_kernels = name.starts_with(b"[vvar") || name == b"[vdso]" || name == b"[vsyscall]";
    if is_kernels || line.range == scratch::range() || left_out::is_left_out(&line.range) {
        return Ok(None);
    }
    let right = |index: usize, letter: u8, value: i32| match line.rights.get(index) {
        Some(found) if *found == letter => value as u32,
        _ => 0,
    };
    let prot = right(0, b'r', libc::PROT_READ)
        | right(1, b'w', libc::PROT_WRITE)
        | right(2, b'x', libc::PROT_EXEC);
    let shared = line.rights.get(3) == Some(&b's');
    let mut mapping = Mapping {
        start: line.range.start as u64,
        end: line.range.end as u64,
        prot,
        kind: PRIVATE,
        flags: if name == b"[stack]" { GROWS_DOWN } else { 0 },
        ..Mapping::default()
    };
    let at = line.range.start;
    if name.starts_with(b"anon_inode:") {
        return refuse!("memory of {} is mapped at {at:#x}", Shown(name));
    }
    // A private mapping of this device has no file. Shared memory, which may be mapped privately,
    // too, has the device's name and is marked as deleted.
    let is_zero_device = name == b"/dev/zero";
    let is_zero = is_zero_device || name == b"/dev/zero (deleted)";
    if name.starts_with(b"/dev/") && !name.starts_with(b"/dev/shm/") && !is_zero {
        return refuse!("the device {} is mapped at {at:#x}", Shown(name));
    }
    if shared {
        mapping.offset = line.offset;
        let deleted = name.ends_with(b" (deleted)");
        if is_zero || name.starts_with(b"/memfd:") && deleted {
            let is_this = |it: &&FileRecord| it.kind == FD_UNNAMED && it.inode == line.inode;
            if let Some(file) = files.iter().find(is_this).filter(|_| !is_zero) {
                let (fd, name) = (file.fd, Shown(name));
                return refuse!(
                    "descriptor {fd} is a memory file that is mapped too, at {at:#x} ({name})"
                );
            }
            mapping.kind = SHARED;
            mapping.object = number_of(line.file(), objects)?;
        } else if name.starts_with(b"/SYSV") || name.starts_with(b"/dev/shm/") {
            let name = Shown(name);
            return refuse!("memory is shared with other processes ({name} at {at:#x})");
        } else if deleted {
            // Saved with its content: this process cannot write the file any more.
            let writes = |file: &FileRecord| file.inode == line.inode && file.is_writable();
            if prot & libc::PROT_WRITE as u32 != 0 || files.iter().any(writes) {
                let name = Shown(name);
                return refuse!("the deleted file {name} is mapped at {at:#x}, and can be written");
            }
            mapping.kind = SHARED;
            mapping.flags |= OF_FILE;
            mapping.object = number_of(line.file(), objects)?;
        } else {
            mapping.kind = FILE;
        }
    }
    if mapping.kind == PRIVATE && line.inode != 0 && !is_zero_device {
        mapping.object_len = FROM_FILE;
    }
    mapping.name = names.add_path(name)?;
    Ok(Some(mapping))
}

fn number_of(file: [u64; 2], objects: &mut List<[u64; 2]>) -> Outcome<u32> {
    if let Some(index) = objects.all().iter().position(|known| *known == file) {
        return Ok(index as u32);
    }
    objects.push(file, "shared memories")?;
    Ok(objects.all().len() as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lines_name_may_contain_spaces() {
        let line = b"7f0000001000-7f0000003000 rw-s 00001000 00:01 1034 /memfd:a b (deleted)";
        let line = Line::of(line).expect("a line");
        assert_eq!(line.range, 0x7f00_0000_1000..0x7f00_0000_3000);
        assert_eq!((line.offset, line.inode), (0x1000, 1034));
        assert_eq!(line.name, b"/memfd:a b (deleted)");
    }
}
