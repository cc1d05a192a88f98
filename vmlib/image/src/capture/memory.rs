//! The mappings of this process, and which of their pages have to be saved.
//!
//! **Runs in signal handlers**: everything here allocates nothing and locks nothing.
//!
//! Files that are mapped privately - the program and its libraries above all - are saved by value,
//! so that the image needs no file of its host.

use crate::{
    Folders,
    capture::{
        guards::{self, Guards},
        proc, vdso,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, Step as _, refuse},
        scratch,
    },
    raw::{
        records::{
            FD_UNNAMED, FILE, FileRecord, GROWS_DOWN, MAPPINGS_MAX, Mapping, NAMES_MAX, Name,
            PRIVATE, RESTORER, SHARED,
        },
        sys::{self, Errno, nr},
    },
};
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Ranges of pages that one call tells.
const RANGES: usize = 512;

/// The texts of an image.
pub struct Names<'a> {
    text: List<u8>,
    folders: Option<Folders<'a>>,
}

impl<'a> Names<'a> {
    /// None yet.
    pub fn new(folders: Option<Folders<'a>>) -> Outcome<Self> {
        // SAFETY: bytes.
        let text = unsafe { List::new(NAMES_MAX)? };
        Ok(Names { text, folders })
    }

    /// Adds one.
    pub fn add(&mut self, text: &[u8]) -> Outcome<Name> {
        self.add_joined(text, &[])
    }

    /// Adds one that is a path, as it is where the process is brought back.
    pub fn add_path(&mut self, path: &[u8]) -> Outcome<Name> {
        let (folder, rest) = Folders::there(self.folders, path);
        self.add_joined(folder, rest)
    }

    /// Adds one of two parts.
    pub fn add_joined(&mut self, text: &[u8], rest: &[u8]) -> Outcome<Name> {
        let name = Name {
            at: self.text.all().len() as u32,
            len: (text.len() + rest.len()) as u32,
        };
        self.text.extend(text, "names")?;
        self.text.extend(rest, "names")?;
        // Whoever opens a file needs it ended by NUL.
        self.text.extend(b"\0", "names")?;
        Ok(name)
    }

    /// One of them.
    pub fn get(&self, name: Name) -> &[u8] {
        &self.text.all()[name.at as usize..][..name.len as usize]
    }

    /// All of them.
    pub fn all(&self) -> &[u8] {
        self.text.all()
    }
}

/// Whose mappings are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// All that there are; what cannot be saved is refused.
    Whole,
    /// Those of a program that runs: what cannot be saved is left out, for it may be gone when it is
    /// listed the last time.
    Running,
}

/// The mappings, by address, of a process that has these files open.
pub fn mappings(
    names: &mut Names<'_>,
    of: Of,
    files: &[FileRecord],
) -> Outcome<&'static mut [Mapping]> {
    let file = proc::read_file(b"/proc/self/maps\0", "reading the mappings")?;
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<Mapping>::new(MAPPINGS_MAX)? };
    // SAFETY: numbers. The kernel's numbers of shared memories.
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
            Err(_) if of == Of::Running => {}
            Err(fault) => return Err(fault),
        }
    }
    let list = list.into_static();
    if of == Of::Whole {
        refuse_restorers_place(list, names)?;
        refuse_live_views(views.all(), list, objects.all(), files, names)?;
    }
    // Where the first thread's stack was cut in two, by watching a part or by other rights, the
    // kernel calls only the upper one so; but it is the lower one that grows.
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
        // "08:02".
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

    /// The file's numbers.
    fn file(&self) -> [u64; 2] {
        [self.device, self.inode]
    }

    /// Whether it is of a file that has no name, or none any more.
    fn is_nameless_file(&self) -> bool {
        self.inode != 0 && self.name.ends_with(b" (deleted)")
    }
}

/// Where the program is that brings processes back, there can be nothing else.
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
        "its memory from {start:#x} to {end:#x} ({what}{}) is where the program has to be that \
         brings processes back",
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

/// A private mapping is saved by value. Its untouched pages show what is written to the file later,
/// and would not do so where the process is brought back.
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
                "{name} is mapped privately at {at:#x}, and can be written by descriptor {fd}: what \
                 is written would not be seen there any more"
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
                 mapping at {other:#x}: what is written would not be seen there any more"
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
    if is_kernels || line.range == scratch::range() {
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
    // A private mapping of that device has no file. Shared memory, which a private mapping may show
    // too, has the device's name and is deleted.
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
            // By value: it is nobody's any more who could write it by way of this process.
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

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any: u64,
    told: u64,
}

/// Protects what is told; fails where a mapping is not watched.
const PROTECT_AND_CHECK: u64 = 1 | 1 << 1;
const CHECK: u64 = 1 << 1;
const PAGEMAP_SCAN: usize = 0xc060_6610;
const WRITTEN: u64 = 1 << 1;
const GUARD: u64 = 1 << 8;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;

/// Which pages are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Those that were written since they were last told.
    Written,
    /// All.
    All,
}

/// How the kernel tells of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// By the call that tells ranges, which knows guard pages (Linux 6.15).
    Guards,
    /// By that call (Linux 6.7).
    Ranges,
    /// Word by word.
    Words,
}

/// What pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Content,
    Guard,
}

/// Finds pages that have content.
pub struct Pages {
    fd: i32,
    source: Source,
    /// Guard pages are noted there.
    guards: Option<Guards>,
}

impl Pages {
    /// Ready to look.
    pub fn open() -> Outcome<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = sys::open(b"/proc/self/pagemap\0", flags, 0).step("looking at the page table")?;
        let mut pages = Pages {
            fd,
            source: Source::Guards,
            guards: None,
        };
        for source in [Source::Guards, Source::Ranges] {
            pages.source = source;
            let own = scratch::range();
            let own = own.start as u64..own.end as u64;
            if matches!(pages.scan(own, (0, 0), &mut |_, _| Ok(())), Ok(Ok(()))) {
                return Ok(pages);
            }
        }
        pages.source = Source::Words;
        Ok(pages)
    }

    /// Ready to look, and to note guard pages.
    pub fn open_to_note() -> Outcome<Self> {
        let mut pages = Self::open()?;
        pages.guards = Some(Guards::new()?);
        Ok(pages)
    }

    /// Whether the kernel has the call that tells ranges, and allows it.
    pub fn can_scan(&self) -> bool {
        self.source != Source::Words
    }

    /// The guard pages that were noted.
    pub fn guards(&mut self) -> &'static [[u64; 2]] {
        self.guards.take().map_or(&[], Guards::into_static)
    }

    /// Calls `with` for each range of pages of `mapping` to be saved, by address.
    pub fn for_each(
        &mut self,
        mapping: &Mapping,
        mut with: impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<()> {
        let range = mapping.start..mapping.end;
        match mapping.kind {
            FILE if self.guards.is_none() => Ok(()),
            FILE => self.look(mapping, &mut |_| Ok(())),
            _ if mapping.flags & OF_FILE != 0 => {
                self.look(mapping, &mut |_| Ok(()))?;
                let _opened = Opened::new(mapping);
                readable(range, &mut with)
            }
            PRIVATE if mapping.object_len == FROM_FILE => {
                // The threads are stopped: rounds before pass over files.
                self.look(mapping, &mut |_| Ok(()))?;
                let _opened = Opened::new(mapping);
                readable(range, &mut with)
            }
            SHARED => {
                self.look(mapping, &mut |_| Ok(()))?;
                match is_swapped(&range)? {
                    true => {
                        let _opened = Opened::new(mapping);
                        readable(range, &mut with)
                    }
                    false => in_core(range, &mut with),
                }
            }
            _ => self.look(mapping, &mut with),
        }
    }

    /// Refuses guard pages in memory that has content below them.
    pub fn refuse_guards(&mut self, mapping: &Mapping) -> Outcome<()> {
        match hides(mapping) {
            true => self.look(mapping, &mut |_| Ok(())),
            false => Ok(()),
        }
    }

    /// Tells the pages of `mapping` that are there, and notes guard pages.
    fn look(
        &mut self,
        mapping: &Mapping,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<()> {
        let is_hidden = hides(mapping);
        let mut guards = self.guards.take();
        let range = mapping.start..mapping.end;
        let mut each = |range: Range<u64>, kind| match (kind, &mut guards) {
            (Kind::Content, _) => with(range),
            (Kind::Guard, _) if is_hidden => guards::refuse_in(mapping, &range),
            (Kind::Guard, Some(guards)) => guards.note(range),
            (Kind::Guard, None) => Ok(()),
        };
        let looked = match self.source {
            Source::Words => self.read(range, &mut each),
            _ => match self.scan(range, (0, 0), &mut each) {
                Err(error) => Err(error).step("looking for pages"),
                Ok(told) => told,
            },
        };
        self.guards = guards;
        looked
    }

    /// Tells the pages with content that were written, of a mapping that is watched.
    pub fn written(
        &self,
        mapping: &Mapping,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let range = mapping.start..mapping.end;
        self.scan(range, (CHECK, WRITTEN), &mut |range, _| with(range))
    }

    /// Tells pages with content of a mapping that is watched, and protects what it tells: until
    /// they are written again, they do not count as written.
    pub fn protect(
        &self,
        mapping: &Mapping,
        told: Told,
        with: &mut impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let category = match told {
            Told::Written => WRITTEN,
            Told::All => 0,
        };
        let range = mapping.start..mapping.end;
        let each = &mut |range, _| with(range);
        self.scan(range, (PROTECT_AND_CHECK, category), each)
    }

    /// Without flags guard pages are told, too.
    fn scan(
        &self,
        range: Range<u64>,
        (flags, category): (u64, u64),
        with: &mut impl FnMut(Range<u64>, Kind) -> Outcome<()>,
    ) -> Result<Outcome<()>, Errno> {
        let (known, left_out) = match (self.source, flags) {
            (Source::Guards, 0) => (GUARD, 0),
            (Source::Guards, _) => (0, GUARD),
            _ => (0, 0),
        };
        let mut found = [[0u64; 3]; RANGES];
        let mut start = range.start;
        // Ranges that touch come as one.
        let mut last = (0..0, Kind::Content);
        while start < range.end {
            let scan = Scan {
                size: size_of::<Scan>() as u64,
                flags,
                start,
                end: range.end,
                ranges: found.as_mut_ptr() as u64,
                ranges_len: RANGES as u64,
                inverted: ZERO | left_out,
                mask: ZERO | left_out | category,
                any: PRESENT | SWAPPED,
                told: PRESENT | known,
                ..Scan::default()
            };
            let argument = &raw const scan as usize;
            // SAFETY: the kernel reads the argument and writes the ranges.
            let count = unsafe { sys::call3(nr::IOCTL, self.fd as usize, PAGEMAP_SCAN, argument) };
            let count = sys::check(count)?;
            for [from, to, categories] in &found[..count] {
                let kind = match categories & GUARD != 0 {
                    true => Kind::Guard,
                    false => Kind::Content,
                };
                if (*from, kind) == (last.0.end, last.1) {
                    last.0.end = *to;
                } else {
                    let (whole, kind) = std::mem::replace(&mut last, (*from..*to, kind));
                    if !whole.is_empty()
                        && let Err(fault) = with(whole, kind)
                    {
                        return Ok(Err(fault));
                    }
                }
            }
            // The place where the kernel says that it stopped is stale when it has told as much as
            // there was room for.
            match count {
                RANGES => start = found[RANGES - 1][1],
                _ => break,
            }
        }
        match last.0.is_empty() {
            true => Ok(Ok(())),
            false => Ok(with(last.0, last.1)),
        }
    }

    /// For kernels before 6.7: the page table, word by word.
    fn read(
        &self,
        range: Range<u64>,
        with: &mut impl FnMut(Range<u64>, Kind) -> Outcome<()>,
    ) -> Outcome<()> {
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        const IS_GUARD: u64 = 1 << 58;
        let mut words = [0u64; RANGES];
        let mut last = (0..0, Kind::Content);
        let mut page = range.start;
        while page < range.end {
            let wanted = RANGES.min(((range.end - page) / PAGE) as usize);
            let (to, at) = (words.as_mut_ptr() as usize, (page / PAGE * 8) as usize);
            // SAFETY: the kernel writes into `words`.
            let read = unsafe { sys::call4(nr::PREAD64, self.fd as usize, to, 8 * wanted, at) };
            let count = sys::check(read).step("reading the page table")? / 8;
            if count == 0 {
                return refuse!("the page table ends before {:#x}", range.end);
            }
            for word in &words[..count] {
                let kind = match word & IS_GUARD != 0 {
                    true => Kind::Guard,
                    false => Kind::Content,
                };
                if word & (PRESENT_OR_SWAPPED | IS_GUARD) != 0 {
                    if (page, kind) == (last.0.end, last.1) {
                        last.0.end += PAGE;
                    } else {
                        let (whole, kind) = std::mem::replace(&mut last, (page..page + PAGE, kind));
                        if !whole.is_empty() {
                            with(whole, kind)?;
                        }
                    }
                }
                page += PAGE;
            }
        }
        match last.0.is_empty() {
            true => Ok(()),
            false => with(last.0, last.1),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// What [`Mapping::object_len`] of a private mapping of a file is: pages that were not touched have
/// content too.
pub const FROM_FILE: u64 = u64::MAX;
/// Among [`Mapping::flags`], until it is written: shared memory is what a file holds, in memory or not.
pub const OF_FILE: u32 = 1 << 31;

/// Whether guard pages would hide content of it.
fn hides(mapping: &Mapping) -> bool {
    let is_of_file = mapping.object_len == FROM_FILE || mapping.flags & OF_FILE != 0;
    mapping.kind == SHARED || is_of_file
}

/// Whether it is private memory of no file.
pub fn is_anonymous(mapping: &Mapping) -> bool {
    mapping.kind == PRIVATE && mapping.object_len != FROM_FILE
}

/// Tells the kernel of memory, as `madvise` does.
///
/// # Safety
/// Nobody needs what the advice throws away, if it does.
pub unsafe fn advise(range: Range<u64>, advice: i32) -> sys::Result<()> {
    let (start, len) = (range.start as usize, (range.end - range.start) as usize);
    // SAFETY: promised by the caller.
    let value = unsafe { sys::call3(nr::MADVISE, start, len, advice as usize) };
    sys::check(value).map(|_| ())
}

/// The pages of shared memory that are in memory, whoever put them there: those that this process
/// has not touched are in no page table of its own. Other processes may have written them, or this
/// one by a descriptor.
fn in_core(range: Range<u64>, with: &mut impl FnMut(Range<u64>) -> Outcome<()>) -> Outcome<()> {
    const MINCORE: usize = 27;
    let mut pages = [0u8; 4096];
    let mut last: Range<u64> = 0..0;
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(pages.len() as u64 * PAGE);
        let to = pages.as_mut_ptr() as usize;
        // SAFETY: the kernel writes one byte for each page.
        let told = unsafe { sys::call3(MINCORE, at as usize, len as usize, to) };
        sys::check(told).step("looking at shared memory")?;
        for (index, _) in (0u64..)
            .zip(&pages[..(len / PAGE) as usize])
            .filter(|(_, page)| *page & 1 != 0)
        {
            let page = at + index * PAGE;
            if page == last.end {
                last.end += PAGE;
                continue;
            }
            let whole = std::mem::replace(&mut last, page..page + PAGE);
            if !whole.is_empty() {
                with(whole)?;
            }
        }
        at += len;
    }
    match last.is_empty() {
        true => Ok(()),
        false => with(last),
    }
}

/// Whether some of this shared memory is swapped out: which of it, nobody tells.
fn is_swapped(range: &Range<u64>) -> Outcome<bool> {
    const SYSINFO: usize = 99;
    let mut info = [0u64; 16];
    // SAFETY: the kernel writes 112 bytes.
    unsafe { sys::call1(SYSINFO, info.as_mut_ptr() as usize) };
    let (total, free) = (info[8], info[9]);
    if total == free {
        return Ok(false);
    }
    let mark = arena::mark();
    let file = proc::read_file(b"/proc/self/smaps\0", "looking at shared memory")?;
    let mut is_this = false;
    let mut swapped = 0;
    for line in file.split(|byte| *byte == b'\n') {
        if let Some((found, _)) = vdso::range_and_name(line) {
            is_this = found.start as u64 == range.start;
        } else if is_this && line.starts_with(b"Swap:") {
            swapped = proc::field(line, "Swap")
                .and_then(proc::decimal)
                .unwrap_or(0);
        }
    }
    // SAFETY: the file's bytes are not used any more.
    unsafe { arena::release(mark) };
    Ok(swapped > 0)
}

/// The part of a private mapping of a file that can be read: not what lies behind the file's end.
fn readable(range: Range<u64>, with: &mut impl FnMut(Range<u64>) -> Outcome<()>) -> Outcome<()> {
    if populate(&range) {
        return with(range);
    }
    let (mut good, mut bad) = (range.start, range.end);
    while bad - good > PAGE {
        let middle = good + (bad - good) / PAGE / 2 * PAGE;
        match populate(&(good..middle)) {
            true => good = middle,
            false => bad = middle,
        }
    }
    if populate(&(good..bad)) {
        good = bad;
    }
    match good > range.start {
        true => with(range.start..good),
        false => Ok(()),
    }
}

fn populate(range: &Range<u64>) -> bool {
    // SAFETY: it reads pages, as the program could.
    unsafe { advise(range.clone(), libc::MADV_POPULATE_READ).is_ok() }
}

/// Makes mappings without the right to read readable while it exists.
pub struct Opened {
    range: Range<usize>,
    prot: u32,
}

impl Opened {
    /// `None` if it can be read anyway, or has to stay as it is.
    pub fn new(mapping: &Mapping) -> Option<Self> {
        if mapping.prot & libc::PROT_READ as u32 != 0 {
            return None;
        }
        let range = mapping.start as usize..mapping.end as usize;
        let prot = mapping.prot | libc::PROT_READ as u32;
        protect(&range, prot).then_some(Opened {
            range,
            prot: mapping.prot,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        protect(&self.range, self.prot);
    }
}

fn protect(range: &Range<usize>, prot: u32) -> bool {
    // SAFETY: all other threads are stopped; the right to read harms nobody.
    unsafe { sys::call3(nr::MPROTECT, range.start, range.len(), prot as usize) >= 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &mut Pages, mapping: &Mapping) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        pages
            .for_each(mapping, |range| {
                all.push(range);
                Ok(())
            })
            .expect("ranges");
        all
    }

    /// A mapping of so many pages.
    fn mapped(pages: usize) -> Mapping {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = pages * PAGE as usize;
        let start = sys::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags).expect("memory");
        // SAFETY: it is new. Huge pages would blur what is touched.
        unsafe { sys::call3(nr::MADVISE, start, len, libc::MADV_NOHUGEPAGE as usize) };
        Mapping {
            start: start as u64,
            end: (start + len) as u64,
            prot: 3,
            ..Mapping::default()
        }
    }

    #[test]
    fn both_ways_find_the_pages_that_were_written_and_no_other() {
        let mapping = mapped(100_000);
        let every = 37;
        for page in (0..100_000).step_by(every) {
            // SAFETY: within the new mapping.
            unsafe { ((mapping.start + page * PAGE) as *mut u8).write(1) };
        }
        // SAFETY: likewise; a read alone brings the page of zeros.
        let zero = unsafe { ((mapping.start + PAGE) as *const u8).read_volatile() };
        assert_eq!(zero, 0);
        let mut pages = Pages::open().expect("a page table");
        let quick = found(&mut pages, &mapping);
        assert_eq!(quick.len(), 100_000usize.div_ceil(every));
        assert_eq!(
            quick[1],
            mapping.start + 37 * PAGE..mapping.start + 38 * PAGE
        );
        pages.source = Source::Words;
        let slow = found(&mut pages, &mapping);
        assert!(quick.iter().all(|range| {
            slow.iter()
                .any(|other| other.start <= range.start && range.end <= other.end)
        }));
        // SAFETY: nobody else knows it.
        unsafe {
            sys::unmap(
                mapping.start as usize,
                (mapping.end - mapping.start) as usize,
            )
        }
        .expect("unmapped");
    }

    #[test]
    fn a_lines_name_may_contain_spaces() {
        let line = b"7f0000001000-7f0000003000 rw-s 00001000 00:01 1034 /memfd:a b (deleted)";
        let line = Line::of(line).expect("a line");
        assert_eq!(line.range, 0x7f00_0000_1000..0x7f00_0000_3000);
        assert_eq!((line.offset, line.inode), (0x1000, 1034));
        assert_eq!(line.name, b"/memfd:a b (deleted)");
    }
}
