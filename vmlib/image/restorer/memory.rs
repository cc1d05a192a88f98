//! Makes the address space of the image: removes the restorer's old memory, and maps the memory of
//! the image.

use crate::{
    failure::die,
    folders,
    raw::{
        folder_map::PATH,
        records::*,
        sys::{self, nr},
    },
    space,
};
use core::ops::Range;

const READ: i32 = 1;
const WRITE: i32 = 2;
const SHARED_FLAG: i32 = 1;
const PRIVATE_FLAG: i32 = 2;
const ANONYMOUS: i32 = 0x20;
const GROWS_DOWN_FLAG: i32 = 0x100;
const NO_RESERVE: i32 = 0x4000;
const FIXED_NOREPLACE: i32 = 0x10_0000;

/// The limit of the kernel's mappings, data and code together.
const PARTS: usize = 8;
/// Addresses where the kernel's mappings are put meanwhile; a part of them is free.
const PARKING: Range<usize> = 0x2000_1000_0000..0x2000_9000_0000;

/// The kernel's data and code, moved out of the way.
pub struct Kernels {
    /// The addresses of each part, relative to the area.
    pub parts: [Range<usize>; PARTS],
    /// The number of parts.
    pub count: usize,
    /// The current address of the area.
    pub area: usize,
    /// Length of the area. Bytes.
    pub len: usize,
    /// The current addresses of the code.
    pub code: Range<usize>,
}

/// Verifies that the table is valid, and that it leaves room for this program.
pub fn check(mappings: &[Mapping]) {
    let own = space::own();
    if (own.start as u64) < RESTORER.start || own.end as u64 > RESTORER.end {
        die!(
            "the restorer has a fault: it is at {:#x} to {:#x}",
            own.start,
            own.end
        );
    }
    let mut last = 0;
    for mapping in mappings {
        let good = mapping.start < mapping.end
            && mapping.start >= last
            && (mapping.start | mapping.end | mapping.offset) % 4096 == 0
            && mapping.end <= 1 << 47
            && mapping.kind <= FILE;
        if !good {
            die!("the image's table of mappings is damaged");
        }
        if mapping.start < own.end as u64 && own.start as u64 <= mapping.end {
            die!(
                "the process has memory at {:#x}, where the restorer is",
                mapping.start
            );
        }
        last = mapping.end;
    }
}

/// Removes all memory but this program's and the kernel's. Moves the kernel's to addresses that the
/// image does not use.
pub fn clear(mappings: &[Mapping]) -> Kernels {
    let maps = read_maps();
    let own = space::own();
    let mut kernels = Kernels {
        parts: [const { 0..0 }; PARTS],
        count: 0,
        area: 0,
        len: 0,
        code: 0..0,
    };
    for line in maps.split(|byte| *byte == b'\n') {
        let Some(range) = range(line) else { continue };
        let has = |name: &[u8]| line.windows(name.len()).any(|part| part == name);
        if has(b"[vsyscall]") || own.start <= range.start && range.end <= own.end {
            continue;
        }
        if has(b"[vdso]") || has(b"[vvar") {
            if kernels.count == 0 {
                kernels.area = range.start;
            }
            if kernels.count == PARTS {
                die!("this kernel has more mappings in each process than the restorer can move");
            }
            if has(b"[vdso]") {
                kernels.code = range.clone();
            }
            kernels.len = range.end - kernels.area;
            kernels.parts[kernels.count] = range.start - kernels.area..range.end - kernels.area;
            kernels.count += 1;
            continue;
        }
        // SAFETY: none of this memory is needed any more.
        if let Err(error) = unsafe { sys::unmap(range.start, range.end - range.start) } {
            let clashes = |mapping: &Mapping| {
                mapping.start < range.end as u64 && (range.start as u64) < mapping.end
            };
            if mappings.iter().any(clashes) {
                die!(
                    "the addresses at {:#x} are taken here: error {}",
                    range.start,
                    error.0
                );
            }
        }
    }
    park(&mut kernels, mappings);
    kernels
}

fn park(kernels: &mut Kernels, mappings: &[Mapping]) {
    let is_free = |at: &usize| {
        let (start, end) = (*at as u64, (*at + kernels.len) as u64);
        !mappings
            .iter()
            .any(|mapping| mapping.start < end && start < mapping.end)
    };
    let Some(place) = PARKING.step_by(1 << 20).find(is_free) else {
        die!("there is no room for the kernel's code")
    };
    let from = kernels.area;
    kernels.move_to(place);
    let start = kernels.code.start - from + place;
    kernels.code = start..start + kernels.code.len();
}

impl Kernels {
    /// Moves all parts, so that the area begins at the address `area`.
    pub fn move_to(&mut self, area: usize) {
        const MAYMOVE_FIXED: usize = 3;
        for part in &self.parts[..self.count] {
            let (from, to) = (self.area + part.start, area + part.start);
            // SAFETY: the mappings are the kernel's; memory at the new address is to be replaced.
            let moved =
                unsafe { sys::call5(nr::MREMAP, from, part.len(), part.len(), MAYMOVE_FIXED, to) };
            if let Err(error) = sys::check(moved) {
                die!("the kernel's code cannot be moved: error {}", error.0);
            }
        }
        self.area = area;
    }
}

fn read_maps() -> &'static [u8] {
    let Ok(fd) = sys::open(b"/proc/self/maps\0", 0, 0) else {
        die!("/proc/self/maps cannot be read")
    };
    let room = space::scratch();
    let mut len = 0;
    loop {
        match sys::read(fd, &mut room[len..]) {
            Ok(0) if len < room.len() => break,
            Ok(0) => die!("the restoring process has too many mappings"),
            Ok(count) => len += count,
            Err(sys::EINTR) => {}
            Err(error) => die!("/proc/self/maps cannot be read: error {}", error.0),
        }
    }
    sys::close(fd);
    &room[..len]
}

fn range(line: &[u8]) -> Option<Range<usize>> {
    let text = line.split(|byte| *byte == b' ').next()?;
    let text = core::str::from_utf8(text).ok()?;
    let (start, end) = text.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

/// Removes private memory of early rounds that is not private memory of the process any more.
pub fn remove(old: &[Mapping], new: &[Mapping]) {
    for mapping in old {
        outside(mapping, new, &mut |part| {
            // SAFETY: memory of the image that the process had unmapped.
            let removed = unsafe { sys::unmap(part.start, part.len()) };
            if let Err(error) = removed {
                die!(
                    "memory at {:#x} cannot be removed: error {}",
                    part.start,
                    error.0
                );
            }
        });
    }
}

/// Joins two tables: all private memory that is in one or the other, ascending by address.
pub fn join(old: &[Mapping], new: &[Mapping], room: &'static mut [u8]) -> &'static [Mapping] {
    // SAFETY: rooms are aligned to pages, and any bytes are a value.
    let room = unsafe {
        let count = room.len() / size_of::<Mapping>();
        core::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<Mapping>(), count)
    };
    let mut count = 0;
    let mut push = |mapping: Mapping| {
        let Some(place) = room.get_mut(count) else {
            die!("the image has too many mappings in all rounds together")
        };
        *place = mapping;
        count += 1;
    };
    old.iter().for_each(|mapping| push(*mapping));
    for mapping in new {
        outside(mapping, old, &mut |part| {
            push(Mapping {
                start: part.start as u64,
                end: part.end as u64,
                ..*mapping
            })
        });
    }
    let all = &mut room[..count];
    all.sort_unstable_by_key(|mapping| mapping.start);
    // Mappings that touch are joined, so that the table does not grow from round to round.
    let mut last = 0;
    for index in 1..count {
        if all[index].start == all[last].end {
            all[last].end = all[index].end;
        } else {
            last += 1;
            all[last] = all[index];
        }
    }
    &all[..count.min(last + 1)]
}

/// Maps the memory of the new table, writable. Private memory that is in the old table, too, stays
/// as it is.
pub fn add(old: &[Mapping], new: &[Mapping], names: &[u8]) {
    for (index, mapping) in new.iter().enumerate() {
        let mut result = Ok(());
        match mapping.kind {
            PRIVATE => {
                let mut flags = PRIVATE_FLAG | ANONYMOUS | NO_RESERVE;
                if mapping.flags & GROWS_DOWN != 0 {
                    flags |= GROWS_DOWN_FLAG;
                }
                outside(mapping, old, &mut |part| {
                    let part = Mapping {
                        start: part.start as u64,
                        end: part.end as u64,
                        ..*mapping
                    };
                    result = result.and(map_at(&part, flags, -1, 0, READ | WRITE));
                });
            }
            SHARED => result = map_shared(mapping, &new[..index], &new[index + 1..]),
            _ => result = map_file(mapping, names),
        };
        if let Err(error) = result {
            const NO_MEMORY: i32 = 12;
            let (start, end) = (mapping.start, mapping.end);
            if error.0 == NO_MEMORY {
                name_limit(new);
                let mib = (end - start) >> 20;
                die!("there is no room for the memory of the process: a mapping of {mib} MiB is refused");
            }
            die!(
                "memory at {start:#x} to {end:#x} cannot be mapped: error {}",
                error.0
            );
        }
        if mapping.flags & DENSE != 0 {
            const HUGE: usize = 14;
            let (start, len) = (
                mapping.start as usize,
                (mapping.end - mapping.start) as usize,
            );
            // SAFETY: the advice only concerns the size of pages; without it the process is slower.
            unsafe { sys::call3(nr::MADVISE, start, len, HUGE) };
        }
    }
}

/// Ends with the limit that is too low for this memory, if there is one.
fn name_limit(new: &[Mapping]) {
    let total = |is_meant: fn(&&Mapping) -> bool| {
        let all = new.iter().filter(is_meant);
        all.map(|mapping| mapping.end - mapping.start).sum::<u64>() >> 20
    };
    let is_data = |it: &&Mapping| it.kind == PRIVATE && it.prot & WRITE as u32 != 0;
    let limits = [
        (9, "address space (RLIMIT_AS)", total(|_| true)),
        (2, "data (RLIMIT_DATA)", total(is_data)),
    ];
    for (which, name, wanted) in limits {
        let mut limit = [0u64; 2];
        // SAFETY: the kernel writes two numbers.
        unsafe { sys::call4(nr::PRLIMIT64, 0, which, 0, limit.as_mut_ptr() as usize) };
        let here = limit[0] >> 20;
        if limit[0] != u64::MAX && here < wanted + 64 {
            die!(
                "the limit on {name} is {here} MiB here, and the process needs {wanted} MiB: raise it"
            );
        }
    }
}

/// Calls `with` for the parts of a private mapping that are in no private mapping of the other
/// table.
fn outside(mapping: &Mapping, other: &[Mapping], with: &mut dyn FnMut(Range<usize>)) {
    let (mut at, end) = (mapping.start, mapping.end);
    let first = other.partition_point(|other| other.end <= at);
    for other in other[first..].iter().filter(|other| other.kind == PRIVATE) {
        if other.start >= end {
            break;
        }
        if at < other.start {
            with(at as usize..other.start as usize);
        }
        at = at.max(other.end);
    }
    if at < end {
        with(at as usize..end as usize);
    }
}

/// Empties memory that early rounds have filled and that has no content any more.
pub fn forget(gone: &[[u64; 2]], mappings: &[Mapping]) {
    const DONT_NEED: usize = 4;
    for &[start, end] in gone {
        let first = mappings.partition_point(|mapping| mapping.end <= start);
        for mapping in mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start < end)
        {
            if mapping.kind == PRIVATE {
                let (start, end) = (start.max(mapping.start), end.min(mapping.end));
                // SAFETY: memory of the image that is to be empty.
                unsafe {
                    sys::call3(
                        nr::MADVISE,
                        start as usize,
                        (end - start) as usize,
                        DONT_NEED,
                    )
                };
            }
        }
    }
}

fn map_at(mapping: &Mapping, flags: i32, fd: i32, offset: u64, prot: i32) -> sys::Result<()> {
    let (start, len) = (
        mapping.start as usize,
        (mapping.end - mapping.start) as usize,
    );
    let flags = (flags | FIXED_NOREPLACE) as usize;
    // SAFETY: no memory is mapped there.
    let value = unsafe {
        sys::call6(
            nr::MMAP,
            start,
            len,
            prot as usize,
            flags,
            fd as usize,
            offset as usize,
        )
    };
    let at = sys::check(value)?;
    match at == start {
        true => Ok(()),
        // Kernels that do not know the flag take the address as a hint.
        false => Err(sys::Errno(17)),
    }
}

/// Maps shared memory of the process's own. An object that is mapped more than once is made as a
/// memory file, and all its mappings are made together with the first one.
fn map_shared(mapping: &Mapping, before: &[Mapping], after: &[Mapping]) -> sys::Result<()> {
    let same = |other: &&Mapping| other.kind == SHARED && other.object == mapping.object;
    let alone = !before.iter().any(|other| same(&other)) && !after.iter().any(|other| same(&other));
    if alone && mapping.offset == 0 {
        return map_at(
            mapping,
            SHARED_FLAG | ANONYMOUS | NO_RESERVE,
            -1,
            0,
            READ | WRITE,
        );
    }
    if before.iter().any(|other| same(&other)) {
        // All mappings of the object were made with its first one.
        return Ok(());
    }
    // SAFETY: the name is ended by NUL.
    let fd = unsafe { sys::call2(nr::MEMFD_CREATE, c"shared".as_ptr() as usize, 1) };
    let fd = match sys::check(fd) {
        Ok(fd) => fd,
        Err(error) => die!(
            "memfd_create, which makes shared memory, is refused here: error {}",
            error.0
        ),
    };
    // SAFETY: the descriptor was just opened.
    sys::check(unsafe { sys::call2(nr::FTRUNCATE, fd, mapping.object_len as usize) })?;
    let mut result = map_at(
        mapping,
        SHARED_FLAG,
        fd as i32,
        mapping.offset,
        READ | WRITE,
    );
    for other in after.iter().filter(same) {
        result = result.and(map_at(
            other,
            SHARED_FLAG,
            fd as i32,
            other.offset,
            READ | WRITE,
        ));
    }
    sys::close(fd as i32);
    result
}

fn map_file(mapping: &Mapping, names: &[u8]) -> sys::Result<()> {
    let (at, len) = (mapping.name.at as usize, mapping.name.len as usize);
    let Some(path) = at.checked_add(len).and_then(|end| names.get(at..=end)) else {
        die!("the image's table of names is damaged")
    };
    let shown = core::str::from_utf8(&path[..len]).unwrap_or("a file");
    if path[len] != 0 {
        die!("the image's table of names is damaged");
    }
    let mut room = [0; PATH];
    let Some(path) = folders::folders().put(&path[..len], &mut room) else {
        die!("the path of the mapped file {shown} is too long here")
    };
    let shown = core::str::from_utf8(&path[..path.len() - 1]).unwrap_or("a file");
    // Opened for reading and writing if possible, because the program may make the mapping writable
    // later.
    let (read, read_and_write) = (0, 2);
    let is_written = mapping.prot & WRITE as u32 != 0;
    let opened = match sys::open(path, read_and_write, 0) {
        Err(_) if !is_written => sys::open(path, read, 0),
        opened => opened,
    };
    let fd = match opened {
        Ok(fd) => fd,
        Err(error) => die!(
            "the mapped file {shown} cannot be opened: error {}",
            error.0
        ),
    };
    let result = map_at(
        mapping,
        SHARED_FLAG,
        fd,
        mapping.offset,
        mapping.prot as i32,
    );
    sys::close(fd);
    result
}

/// Removes rights that the memory did not have.
pub fn protect(mappings: &[Mapping]) {
    for mapping in mappings {
        if mapping.kind != FILE && mapping.prot != (READ | WRITE) as u32 {
            let (start, len) = (
                mapping.start as usize,
                (mapping.end - mapping.start) as usize,
            );
            // SAFETY: memory of the image.
            let value = unsafe { sys::call3(nr::MPROTECT, start, len, mapping.prot as usize) };
            if let Err(error) = sys::check(value) {
                die!(
                    "memory at {start:#x} cannot be protected: error {}",
                    error.0
                );
            }
        }
    }
}
