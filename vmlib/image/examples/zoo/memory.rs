//! Private memory: heap, sparse mappings and mappings without rights, and later changes of them.
//!
//! Maps memory by system calls, so it has unsafe code.

use crate::point::save_point;
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use std::{collections::BTreeMap, env, fs, ptr};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("heap", heap),
    ("sparse", sparse),
    ("closed_with_content", closed_with_content),
    ("guard_pages", guard_pages),
    ("break_heap", break_heap),
    ("mappings", mappings),
    ("file_mapped_privately", file_mapped_privately),
    ("advice", advice),
];

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// New private anonymous memory, readable and writable.
pub fn mapped(len: usize) -> *mut u8 {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    unsafe { mm::mmap_anonymous(ptr::null_mut(), len, prot, flags) }
        .expect("memory can be had")
        .cast()
}

/// Writes a number into a page of mapped memory.
pub fn put(memory: *mut u8, page: usize, number: u64) {
    // SAFETY: callers give pages that are mapped and writable.
    unsafe { memory.add(page * PAGE).cast::<u64>().write_volatile(number) }
}

/// Reads the number in a page.
pub fn get(memory: *mut u8, page: usize) -> u64 {
    // SAFETY: callers give pages that are mapped and readable.
    unsafe { memory.add(page * PAGE).cast::<u64>().read_volatile() }
}

/// Changes the rights of some pages.
fn protect(memory: *mut u8, pages: std::ops::Range<usize>, flags: MprotectFlags) {
    // SAFETY: pages of this program's own mapping.
    unsafe {
        mm::mprotect(
            memory.add(pages.start * PAGE).cast(),
            pages.len() * PAGE,
            flags,
        )
    }
    .expect("rights can be changed");
}

/// Small allocations, and one so large that two workers write it.
fn heap() {
    let mut words: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for n in 0..20_000u32 {
        words.insert(format!("word {n}"), vec![n; n as usize % 20]);
    }
    let large: Vec<u64> = (0..3 << 20)
        .map(|n: u64| n.wrapping_mul(0x9e37_79b9))
        .collect();
    save_point();
    for n in 0..20_000u32 {
        let found = words
            .remove(&format!("word {n}"))
            .expect("the word is there");
        assert_eq!(found, vec![n; n as usize % 20]);
    }
    let is_right = |(n, found): (usize, &u64)| *found == (n as u64).wrapping_mul(0x9e37_79b9);
    assert!(
        large.iter().enumerate().all(is_right),
        "the large piece changed"
    );
    drop(large);
    let again = vec![7u8; 40 << 20];
    assert_eq!(again.iter().filter(|byte| **byte == 7).count(), 40 << 20);
}

/// 64 GiB of addresses with 1,000 touched pages; the image is small.
fn sparse() {
    const PAGES: usize = (64 << 30) / PAGE;
    const EVERY: usize = PAGES / 1000;
    let memory = mapped(64 << 30);
    // SAFETY: this program's own mapping; large pages would make untouched pages present.
    unsafe { mm::madvise(memory.cast(), 64 << 30, mm::Advice::LinuxNoHugepage) }
        .expect("small pages can be had");
    for n in 0..1000 {
        put(memory, n * EVERY, n as u64 + 1);
    }
    save_point();
    let image = format!("{}.1", env::var("ZOO_IMAGE").expect("it was used"));
    let len = fs::metadata(image).expect("the image is there").len();
    assert!(len < 40 << 20, "the image has {len} bytes");
    for n in 0..1000 {
        assert_eq!(get(memory, n * EVERY), n as u64 + 1);
        assert_eq!(get(memory, n * EVERY + 1), 0, "a page that nobody touched");
    }
}

/// Memory without rights keeps its content.
fn closed_with_content() {
    let memory = mapped(300 * PAGE);
    (0..300).for_each(|page| put(memory, page, page as u64));
    protect(memory, 0..100, MprotectFlags::empty());
    protect(memory, 150..160, MprotectFlags::empty());
    protect(memory, 200..300, MprotectFlags::READ);
    save_point();
    let rights = rights_at(memory);
    assert!(rights.starts_with("---p"), "closed memory is {rights}");
    protect(memory, 0..300, MprotectFlags::READ | MprotectFlags::WRITE);
    (0..300).for_each(|page| assert_eq!(get(memory, page), page as u64));
}

/// Guard pages in the middle of mapped memory (Linux 6.13).
fn guard_pages() {
    let memory = mapped(300 * PAGE);
    let is_closed = |page| {
        let pages = memory.wrapping_add(page * PAGE).cast();
        // SAFETY: the call reads a page of this program's own mapping.
        unsafe { libc::madvise(pages, PAGE, libc::MADV_POPULATE_READ) != 0 }
    };
    (0..200).for_each(|page| put(memory, page, page as u64 + 1));
    // Guard pages in memory with content, at the end of it, and in untouched memory.
    for pages in [0..1, 20..23, 199..201, 250..260] {
        if !guard(memory, pages, true) {
            return println!("note: this kernel has no guard pages");
        }
    }
    save_point();
    for page in 0..300 {
        match page {
            0 | 20..23 | 199..201 | 250..260 => assert!(is_closed(page), "page {page}"),
            1..199 => assert_eq!(get(memory, page), page as u64 + 1),
            _ => assert_eq!(get(memory, page), 0),
        }
    }
    assert!(guard(memory, 0..300, false), "they can be taken away");
    for page in [0, 20, 22, 199, 200, 259] {
        assert_eq!(get(memory, page), 0, "page {page}");
        put(memory, page, 7);
    }
}

/// Makes guard pages, or removes them. Returns whether this kernel can.
pub fn guard(memory: *mut u8, pages: std::ops::Range<usize>, is_wanted: bool) -> bool {
    let advice = if is_wanted { 102 } else { 103 };
    let start = memory.wrapping_add(pages.start * PAGE).cast();
    // SAFETY: pages of this program's own mapping, whose content is not needed.
    unsafe { libc::madvise(start, pages.len() * PAGE, advice) == 0 }
}

/// The rights in `/proc/self/maps` of the mapping that begins at an address.
fn rights_at(memory: *mut u8) -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("a table of mappings");
    let start = format!("{:x}-", memory as usize);
    let line = maps.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no mapping begins with {start}"));
    line.split(' ').nth(1).expect("rights").to_owned()
}

/// The heap below the program break continues to grow from its end.
fn break_heap() {
    let grow = |bytes| {
        // SAFETY: the C library's allocator tolerates other users of the program break.
        unsafe { libc::sbrk(bytes) }.cast::<u8>()
    };
    let first = grow(64 * PAGE as isize);
    (0..64).for_each(|page| put(first, page, page as u64 ^ 5));
    let end = grow(0);
    save_point();
    assert_eq!(grow(0), end, "the break has moved");
    let second = grow(16 * PAGE as isize);
    assert_eq!(second, end);
    (0..16).for_each(|page| put(second, page, 1));
    (0..64).for_each(|page| assert_eq!(get(first, page), page as u64 ^ 5));
    assert_eq!(grow(-16 * PAGE as isize), second.wrapping_add(16 * PAGE));
}

/// Holes, moved pieces and changed rights; all of these can be changed further.
fn mappings() {
    let memory = mapped(256 * PAGE);
    (0..256).for_each(|page| put(memory, page, page as u64 + 9));
    // SAFETY: this program's own pages, which it does not use any more.
    unsafe { mm::munmap(memory.add(10 * PAGE).cast(), 5 * PAGE) }.expect("a hole can be made");
    protect(memory, 20..40, MprotectFlags::READ | MprotectFlags::EXEC);
    protect(memory, 30..35, MprotectFlags::READ);
    let from = memory.wrapping_add(200 * PAGE);
    let flags = mm::MremapFlags::MAYMOVE;
    // SAFETY: this program's own pages, of which only the new place is used from here on.
    let moved = unsafe { mm::mremap(from.cast(), 56 * PAGE, 112 * PAGE, flags) };
    let moved: *mut u8 = moved.expect("pages can be moved").cast();
    save_point();
    for page in (0..10).chain(15..200) {
        assert_eq!(get(memory, page), page as u64 + 9);
    }
    (0..56).for_each(|page| assert_eq!(get(moved, page), page as u64 + 209));
    assert_eq!(get(moved, 111), 0);
    assert_eq!(rights_at(memory.wrapping_add(30 * PAGE)), "r--p");
    assert_eq!(rights_at(memory.wrapping_add(35 * PAGE)), "r-xp");
    protect(memory, 20..40, MprotectFlags::READ | MprotectFlags::WRITE);
    put(memory, 33, 1);
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let hole = memory.wrapping_add(10 * PAGE);
    // SAFETY: nothing is in the hole, and nothing would be replaced.
    let filled = unsafe { mm::mmap_anonymous(hole.cast(), 5 * PAGE, prot, flags) };
    assert_eq!(filled.expect("the hole is free"), hole.cast());
    assert_eq!(get(memory, 12), 0);
}

/// Pages of a file, some of them changed, keep their content even if the file is removed.
fn file_mapped_privately() {
    let path = format!("{}/mapped", crate::point::folder());
    let content: Vec<u8> = (0..10 * PAGE).map(|at| (at % 251) as u8).collect();
    fs::write(&path, &content[..9 * PAGE + 100]).expect("a file can be written");
    let file = fs::File::open(&path).expect("it is there");
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so nothing is replaced.
    let memory = unsafe {
        mm::mmap(
            ptr::null_mut(),
            12 * PAGE,
            prot,
            MapFlags::PRIVATE,
            &file,
            0,
        )
    };
    let memory: *mut u8 = memory.expect("a file can be mapped").cast();
    drop(file);
    put(memory, 2, 77);
    put(memory, 3, 78);
    protect(memory, 3..4, MprotectFlags::READ);
    fs::remove_file(&path).expect("a file can be removed");
    save_point();
    assert_eq!((get(memory, 2), get(memory, 3)), (77, 78));
    let is_changed = |at: &usize| [2, 3].contains(&(at / PAGE)) && at % PAGE < 8;
    for at in (0..9 * PAGE + 100).filter(|at| !is_changed(at)) {
        // SAFETY: within the file, which is shorter than the mapping.
        let found = unsafe { memory.add(at).read_volatile() };
        assert_eq!(found, content[at], "byte {at}");
    }
}

/// The kernel's flags of the mapping that contains an address. Stacks of the C library have such
/// advice, too, and the kernel joins them to neighbours.
fn flags_at(memory: *mut u8) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/smaps").expect("a table of mappings");
    let is_in = |line: &&str| {
        let range = line.split(' ').next().and_then(|word| word.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16);
        range.is_some_and(|(start, end)| match (number(start), number(end)) {
            (Ok(start), Ok(end)) => (start..end).contains(&(memory as usize)),
            _ => false,
        })
    };
    let mut lines = maps.lines().skip_while(|line| !is_in(line));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
    let mut flags: Vec<_> = flags
        .expect("flags")
        .split(' ')
        .map(str::to_owned)
        .collect();
    // "sd" says whether a page was written since a tracker cleared it, and does not concern the
    // program.
    flags.retain(|flag| flag != "sd" && !flag.is_empty());
    flags
}

/// Memory that children do not get is in the image, and children of the restored process do not get
/// it either.
fn advice() {
    let advices = [
        libc::MADV_DONTFORK,
        libc::MADV_WIPEONFORK,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTDUMP,
        libc::MADV_SEQUENTIAL,
        libc::MADV_RANDOM,
        libc::MADV_NORMAL,
    ];
    let places: Vec<*mut u8> = advices
        .map(|advice| (mapped(900 * PAGE), advice))
        .map(told)
        .into();
    let (first, last) = (places[0], places[advices.len() - 1]);
    // SAFETY: this program's own memory.
    let locked = unsafe { libc::mlock(last.cast(), 4 * PAGE) };
    assert_eq!(locked, 0, "a little memory may be locked");
    let flags: Vec<_> = places.iter().map(|place| flags_at(*place)).collect();
    assert!(flags[0].iter().any(|flag| flag == "dc"), "{:?}", flags[0]);
    save_point();
    for (index, place) in places.iter().enumerate() {
        for page in 0..900 {
            assert_eq!(
                get(*place, page),
                page as u64 + 3,
                "{:?}, page {page}",
                flags[index]
            );
        }
        assert_eq!(flags_at(*place), flags[index]);
    }
    // A child does not have one piece of memory, and finds zeros in the other.
    // SAFETY: the child makes system calls only, and ends.
    let copy = unsafe { libc::fork() };
    if copy == 0 {
        let wiped = get(places[1], 7) == 0;
        let mut residency = 0u8;
        // SAFETY: the child queries one page, and ends.
        unsafe {
            let gone = libc::mincore(first.cast(), PAGE, &raw mut residency) == -1;
            libc::_exit(i32::from(wiped) + 2 * i32::from(gone));
        }
    }
    let mut status = 0;
    // SAFETY: the child was just made.
    unsafe { libc::waitpid(copy, &mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 3);
}

/// Fills memory, and gives the kernel advice for it.
fn told((memory, advice): (*mut u8, i32)) -> *mut u8 {
    // SAFETY: this program's own memory; none of the advice changes the content.
    let result = unsafe { libc::madvise(memory.cast(), 900 * PAGE, advice) };
    assert_eq!(result, 0, "advice {advice}");
    (0..900).for_each(|page| put(memory, page, page as u64 + 3));
    memory
}
