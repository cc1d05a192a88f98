//! Saves itself in rounds while two threads map, unmap, write, move, protect and give back memory of
//! all kinds at random; where it is brought back, it compares every page with what it should hold.
//!
//! `rounds save FILE SEED [WORD...]`, `rounds restore FILE`. Words: `forked`, a copy writes the last
//! round; `background`, no thread of the program waits for the rounds; `children`, a third thread
//! makes children all the time; `chain`, each process that was brought back saves itself again, to
//! FILE.2 and FILE.3; `late`, the save is finished long after its rounds were over; `dropped`, a save
//! is given up first; `direct`, a file is open for reads that leave no trace; `plain`, without rounds. `rounds exec FILE` begins a save and runs another
//! program in place of itself; `rounds end FILE` begins one and ends; `rounds child FILE` begins one
//! and has a child that saves itself.

use std::{
    env,
    fs::{self, File},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::OpenOptionsExt as _,
    },
    sync::atomic::{
        AtomicBool, AtomicU8, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
};
use vm_image::{
    InRounds, Options, RestoreOptions, SaveError, Saved, Section, Until, begin_in_rounds, restore,
    save_in_rounds,
};

const PAGE: usize = 4096;
/// Pages of one thread.
const PAGES: usize = 2048;
const THREADS: usize = 2;
/// Nobody else uses these addresses.
const BASE: usize = 0x1000_0000_0000;
/// What a page is that is not mapped.
const UNMAPPED: u64 = u64::MAX;
/// Lives of a chain.
const LIVES: usize = 3;

/// Kinds of pages.
const ANONYMOUS: u8 = 0;
const SHARED: u8 = 1;
const OF_FILE: u8 = 2;
/// One of these that cannot be written.
const PROTECTED: u8 = 4;
/// It is being mapped anew: a child in this moment does not know what it is.
const CHANGING: u8 = 8;

static STOP: AtomicBool = AtomicBool::new(false);
static DIRECT: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);
/// What each page should hold in its first word; 0: zeros.
static MODEL: [[AtomicU64; PAGES]; THREADS] =
    [const { [const { AtomicU64::new(UNMAPPED) }; PAGES] }; THREADS];
static KINDS: [[AtomicU8; PAGES]; THREADS] =
    [const { [const { AtomicU8::new(ANONYMOUS) }; PAGES] }; THREADS];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn address(thread: usize, page: usize) -> usize {
    BASE + (thread * 2 * PAGES + page) * PAGE
}

/// Maps pages of some kind anew, and notes what they hold.
fn map(thread: usize, pages: std::ops::Range<usize>, kind: u8) {
    let program = match kind {
        OF_FILE => Some(File::open("/proc/self/exe").expect("the program's file")),
        _ => None,
    };
    let flags = libc::MAP_FIXED
        | match kind {
            ANONYMOUS => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            SHARED => libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            _ => libc::MAP_PRIVATE,
        };
    let at = address(thread, pages.start) as *mut libc::c_void;
    for page in pages.clone() {
        KINDS[thread][page].store(CHANGING, SeqCst);
    }
    let file = program.as_ref().map_or(-1, |file| file.as_raw_fd());
    // SAFETY: nobody else uses these addresses.
    let mapped = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(at, pages.len() * PAGE, prot, flags, file, 0)
    };
    assert_eq!(mapped, at, "mapped");
    for page in pages {
        let value = match kind {
            // SAFETY: just mapped; the program has as many pages.
            OF_FILE => unsafe { (address(thread, page) as *const u64).read_volatile() },
            _ => 0,
        };
        MODEL[thread][page].store(value, Relaxed);
        KINDS[thread][page].store(kind, SeqCst);
    }
}

fn protect(thread: usize, page: usize, prot: i32) {
    let at = address(thread, page) as *mut libc::c_void;
    // SAFETY: nobody else uses these addresses.
    assert_eq!(unsafe { libc::mprotect(at, PAGE, prot) }, 0, "protected");
}

fn step(thread: usize, random: &mut Random) {
    let (model, kinds) = (&MODEL[thread], &KINDS[thread]);
    let start = random.below(PAGES);
    let end = PAGES.min(start + 1 + random.below(64));
    let at = address(thread, start) as *mut libc::c_void;
    let len = (end - start) * PAGE;
    let is_mapped = |page: usize| model[page].load(Relaxed) != UNMAPPED;
    let is_open = |page: &usize| is_mapped(*page) && kinds[*page].load(Relaxed) & PROTECTED == 0;
    // What is done and what is noted are one: nobody stops between them.
    let _section = Section::enter();
    match random.below(18) {
        0 => {
            let kind = [ANONYMOUS, ANONYMOUS, SHARED, OF_FILE][random.below(4)];
            map(thread, start..end, kind);
        }
        1 => {
            // SAFETY: nobody else uses these addresses.
            unsafe { libc::munmap(at, len) };
            model[start..end]
                .iter()
                .for_each(|page| page.store(UNMAPPED, Relaxed));
        }
        2 => {
            for page in (start..end).filter(|page| is_mapped(*page)) {
                if kinds[page].load(Relaxed) & !PROTECTED == ANONYMOUS {
                    let at = address(thread, page) as *mut libc::c_void;
                    // SAFETY: as above.
                    unsafe { libc::madvise(at, PAGE, libc::MADV_DONTNEED) };
                    model[page].store(0, Relaxed);
                }
            }
        }
        3 if is_mapped(start) => {
            // Away and back: other mappings in the end.
            let aside = address(thread, PAGES + start) as *mut libc::c_void;
            let move_it = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: as above.
            unsafe {
                assert_eq!(libc::mremap(at, PAGE, PAGE, move_it, aside), aside, "moved");
                assert_eq!(
                    libc::mremap(aside, PAGE, PAGE, move_it, at),
                    at,
                    "moved back"
                );
            }
        }
        4 if is_mapped(start) && kinds[start].load(Relaxed) & PROTECTED == 0 => {
            protect(thread, start, libc::PROT_READ);
            protect(thread, start, libc::PROT_READ | libc::PROT_WRITE);
        }
        5 => {
            // For some time, with what is in them.
            let prot = [libc::PROT_NONE, libc::PROT_READ][random.below(2)];
            for page in (start..end).filter(|page| is_mapped(*page)).take(8) {
                protect(thread, page, prot);
                kinds[page].fetch_or(PROTECTED, Relaxed);
            }
        }
        6 => {
            for page in (start..end).filter(|page| is_mapped(*page)) {
                protect(thread, page, libc::PROT_READ | libc::PROT_WRITE);
                kinds[page].fetch_and(!PROTECTED, Relaxed);
            }
        }
        7 if is_mapped(start) && start + 1 < PAGES && !is_mapped(start + 1) => {
            if kinds[start].load(Relaxed) == ANONYMOUS {
                // It grows where it is, and what is new is empty.
                // SAFETY: as above.
                let grown = unsafe { libc::mremap(at, PAGE, 2 * PAGE, 0) };
                assert_eq!(grown, at, "grown");
                model[start + 1].store(0, Relaxed);
                kinds[start + 1].store(ANONYMOUS, Relaxed);
            }
        }
        8 => {
            // Zeros, many in a row: other things may have been sent before.
            for page in (start..end).filter(|page| is_open(page)) {
                // SAFETY: mapped, as the model says.
                unsafe { (address(thread, page) as *mut u64).write_volatile(0) };
                model[page].store(0, Relaxed);
            }
        }
        _ => {
            for page in (start..end).filter(is_open).take(4) {
                let value = random.below(1 << 30) as u64 + 1;
                // SAFETY: mapped, as the model says.
                unsafe { (address(thread, page) as *mut u64).write_volatile(value) };
                model[page].store(value, Relaxed);
            }
        }
    }
}

/// A child that writes into its copy of the memory, and ends.
fn have_child() {
    let _section = Section::enter();
    // SAFETY: the child makes bare system calls and writes to memory that it alone sees.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            for (thread, kinds) in KINDS.iter().enumerate() {
                for (page, kind) in kinds.iter().enumerate() {
                    let is_own = kind.load(Relaxed) == ANONYMOUS;
                    let at = [0u64; 1];
                    let to = libc::iovec {
                        iov_base: address(thread, page) as *mut _,
                        iov_len: 8,
                    };
                    let from = libc::iovec {
                        iov_base: at.as_ptr() as *mut _,
                        iov_len: 8,
                    };
                    if is_own {
                        // What is not there, or cannot be written, is left out.
                        libc::process_vm_writev(libc::getpid(), &from, 1, &to, 1, 0);
                    }
                }
            }
            libc::_exit(0);
        }
        assert!(child > 0, "a child");
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child, "it ends");
        assert_eq!(status, 0, "it ends well");
    }
}

fn differences() -> usize {
    let mut vector = [0u8; PAGES];
    let mut count = 0;
    for (thread, model) in MODEL.iter().enumerate() {
        for (page, expected) in model.iter().enumerate() {
            let (at, expected) = (address(thread, page), expected.load(Relaxed));
            if expected != UNMAPPED {
                // What cannot be read is looked at, too.
                let at = at as *mut libc::c_void;
                // SAFETY: nobody uses it any more.
                unsafe { libc::mprotect(at, PAGE, libc::PROT_READ) };
            }
            // SAFETY: it asks whether something is mapped.
            let mapped = unsafe { libc::mincore(at as *mut _, PAGE, vector.as_mut_ptr()) } == 0;
            let good = match (mapped, expected) {
                (false, expected) => expected == UNMAPPED,
                (true, UNMAPPED) => false,
                // SAFETY: mapped.
                (true, expected) => unsafe { (at as *const u64).read_volatile() == expected },
            };
            if !good {
                count += 1;
                // SAFETY: mapped.
                let found = mapped.then(|| unsafe { (at as *const u64).read_volatile() });
                let kind = KINDS[thread][page].load(Relaxed);
                println!("page {page} of {thread}, kind {kind}: {found:x?} for {expected:x}");
            }
        }
    }
    count
}

/// What a save left behind: memory that is watched, threads, descriptors.
fn remains() -> usize {
    let list = |path| fs::read_dir(path).expect("a folder").count();
    let memory = fs::read_to_string("/proc/self/smaps").expect("a list of mappings");
    let flags = memory
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"));
    let watched = flags.filter(|line| line.split(' ').any(|flag| flag == "uw"));
    // The list itself is open, and perhaps a file for reads that leave no trace.
    let (watched, threads) = (watched.count(), list("/proc/self/task") - 1);
    let descriptors = list("/proc/self/fd") - 4 - usize::from(DIRECT.load(Relaxed));
    if watched + threads + descriptors > 0 {
        println!("{watched} mappings watched, {threads} threads, {descriptors} descriptors");
    }
    watched + threads + descriptors
}

/// Opens a file from which reads go past the processor, where there can be one.
fn open_direct() {
    let options = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .clone();
    if let Ok(file) = options.open("/proc/self/exe") {
        std::mem::forget(file);
        DIRECT.store(true, Relaxed);
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let path = &arguments[2];
    if arguments[1] == "restore" {
        let file = File::open(path).expect("the image");
        let error =
            restore(file.as_fd(), RestoreOptions::default()).expect_err("it does not return");
        panic!("{error}");
    }
    match arguments[1].as_str() {
        "exec" => run_another(path),
        "end" => {
            let file = File::create(path).expect("a file");
            std::mem::forget(begin(&file));
            return println!("ended");
        }
        "child" => return child_saves(path),
        _ => {}
    }
    let seed: u64 = arguments[3].parse().expect("a number");
    let has = |word: &str| arguments[4..].iter().any(|argument| argument == word);
    let mut threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let mut random = Random(seed * 2 + thread as u64);
                map(thread, 0..PAGES, ANONYMOUS);
                if seed.is_multiple_of(4) {
                    let at = address(thread, 0) as *mut libc::c_void;
                    // SAFETY: it only says how to get memory.
                    unsafe { libc::madvise(at, PAGES * PAGE, libc::MADV_HUGEPAGE) };
                }
                while !STOP.load(Relaxed) {
                    step(thread, &mut random);
                    STEPS.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    if has("children") {
        threads.push(thread::spawn(|| {
            while !STOP.load(Relaxed) {
                have_child();
                await_steps(500);
            }
        }));
    }
    if has("direct") {
        open_direct();
    }
    let lives = if has("chain") { LIVES } else { 1 };
    let (mut name, mut rounds) = ("back", 0);
    for life in 1..=lives {
        await_steps(4_000);
        let path = match life {
            1 => path.clone(),
            life => format!("{path}.{life}"),
        };
        let (saved, sent) = save(&path, seed, &has);
        rounds = sent;
        if let Saved::Underway(writer) = saved {
            writer.finish().expect("a whole image");
        } else if matches!(saved, Saved::Restored) {
            continue;
        }
        name = "here";
        break;
    }
    STOP.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("it ends");
    }
    let differences = differences() + remains();
    println!("{name}: {differences} differences, {rounds} rounds");
}

/// Begins a save that has much to send.
fn begin(file: &File) -> InRounds<'_> {
    map(0, 0..PAGES, ANONYMOUS);
    for page in 0..PAGES {
        // SAFETY: just mapped.
        unsafe { (address(0, page) as *mut u64).write_volatile(page as u64) };
    }
    let until = Until {
        small: 0,
        shrinks: 1e9,
        rounds: 64,
    };
    begin_in_rounds(file.as_fd(), Options::default(), until).expect("begun")
}

/// Another program finds no thread but its own, and no descriptor.
fn run_another(path: &str) -> ! {
    use std::os::unix::process::CommandExt as _;
    let file = File::create(path).expect("a file");
    std::mem::forget(begin(&file));
    let error = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            "cd /proc/$$/task; [ \"$(echo *)\" = $$ ] && cd ../fd && echo itself [012]",
        ])
        .exec();
    panic!("{error}")
}

/// A child has no part in the save, and can be saved itself.
fn child_saves(path: &str) {
    let file = File::create(path).expect("a file");
    let underway = begin(&file);
    // SAFETY: this program has one thread that the C library knows.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = underway.finish().expect_err("it is not the child's");
        println!("child: {refused}");
        let own = File::create(format!("{path}.child")).expect("a file");
        // Its copy of the descriptor leads to a file that its parent goes on to write.
        let options = Options {
            own: &[file.as_raw_fd()],
            ..Options::default()
        };
        match vm_image::save(own.as_fd(), options).expect("saved") {
            Saved::Restored => println!("child: back"),
            _ => println!("child: saved"),
        }
        // Where it is brought back, the descriptor is closed.
        std::mem::forget(file);
        return;
    }
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "it ends well");
    match underway.finish().expect("saved") {
        (Saved::Restored, _) => println!("back"),
        (_, rounds) => println!("saved in {} rounds", rounds.len().min(2)),
    }
}

/// Waits until so many steps more were done.
fn await_steps(more: u64) {
    let wanted = STEPS.load(Relaxed) + more;
    while STEPS.load(Relaxed) < wanted && !STOP.load(Relaxed) {
        thread::yield_now();
    }
}

/// Saves the process, in spite of its children; and how many rounds there were.
fn save(path: &str, seed: u64, has: &dyn Fn(&str) -> bool) -> (Saved, usize) {
    let options = Options {
        forked: has("forked"),
        compress: seed.is_multiple_of(3),
        ..Options::default()
    };
    let until = Until {
        small: 0,
        shrinks: 1e9,
        rounds: 5,
    };
    if has("dropped") {
        let file = File::create(path).expect("a file");
        drop(begin_in_rounds(file.as_fd(), options, until).expect("begun"));
    }
    loop {
        let file = File::create(path).expect("a file");
        let result = match has("background") {
            false if has("plain") => {
                vm_image::save(file.as_fd(), options).map(|saved| (saved, Vec::new()))
            }
            false => save_in_rounds(file.as_fd(), options, until),
            true => begin_in_rounds(file.as_fd(), options, until).and_then(|underway| {
                if has("late") {
                    while !underway.is_ready() {
                        thread::yield_now();
                    }
                    await_steps(1000);
                }
                underway.finish()
            }),
        };
        match result {
            // Finished at once it may be late all the same, if the processor is busy.
            Ok((saved, rounds)) => {
                return (saved, rounds.len().min(if has("late") { 6 } else { 5 }));
            }
            // There is a child in this moment; or the save that was given up is about to end.
            Err(SaveError::Refused(why))
                if why.starts_with("it has a child") || why.starts_with("another save") => {}
            Err(error) => panic!("{error}"),
        }
    }
}
