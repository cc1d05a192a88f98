//! Saves itself in pre-copy rounds while two threads map, unmap, write, move, protect and discard
//! memory of all kinds at random. The restored process compares every page with its expected
//! content.
//!
//! `rounds save FILE SEED [WORD...]` saves, `rounds restore FILE` restores. Words:
//!
//! - `forked`: a copy writes the last round;
//! - `background`: no thread of the program waits for the rounds;
//! - `children`: a third thread makes children all the time;
//! - `chain`: each restored process saves itself again, to FILE.2 and FILE.3;
//! - `late`: the save is finished long after its rounds are over;
//! - `dropped`: a save is given up first;
//! - `direct`: a file is open for direct reads, which the write watch does not see;
//! - `plain`: without rounds.
//!
//! `rounds exec FILE` begins a save and executes another program. `rounds end FILE` begins a save
//! and ends. `rounds child FILE` begins a save and has a child that saves itself.

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
/// The pages of one thread.
const PAGES: usize = 2048;
const THREADS: usize = 2;
/// The first address of the test's memory, where no other memory is.
const BASE: usize = 0x1000_0000_0000;
/// The expected content of a page that is not mapped.
const UNMAPPED: u64 = u64::MAX;
/// The number of processes in a chain.
const LIVES: usize = 3;

/// Kinds of pages.
const ANONYMOUS: u8 = 0;
const SHARED: u8 = 1;
const OF_FILE: u8 = 2;
/// Bit of a kind: the page cannot be written.
const PROTECTED: u8 = 4;
/// Bit of a kind: the page is being mapped again, and a child that is made meanwhile does not know
/// its kind.
const CHANGING: u8 = 8;

static STOP: AtomicBool = AtomicBool::new(false);
static DIRECT: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);
/// The expected first word of each page; 0: zeros.
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

/// Maps pages of a kind, and notes their expected content.
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
    // SAFETY: no other code uses these addresses.
    let mapped = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(at, pages.len() * PAGE, prot, flags, file, 0)
    };
    assert_eq!(mapped, at, "mapped");
    for page in pages {
        let value = match kind {
            // SAFETY: the range was just mapped, and the program file is long enough.
            OF_FILE => unsafe { (address(thread, page) as *const u64).read_volatile() },
            _ => 0,
        };
        MODEL[thread][page].store(value, Relaxed);
        KINDS[thread][page].store(kind, SeqCst);
    }
}

fn protect(thread: usize, page: usize, prot: i32) {
    let at = address(thread, page) as *mut libc::c_void;
    // SAFETY: no other code uses these addresses.
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
    // A change and its note must not be separated, so the thread is not stopped between them.
    let _section = Section::enter();
    match random.below(18) {
        0 => {
            let kind = [ANONYMOUS, ANONYMOUS, SHARED, OF_FILE][random.below(4)];
            map(thread, start..end, kind);
        }
        1 => {
            // SAFETY: no other code uses these addresses.
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
            // Moves pages away and back, which changes the mappings.
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
            // Without a right for some time; the content stays.
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
                // The mapping grows in place, and the new page is zero.
                // SAFETY: as above.
                let grown = unsafe { libc::mremap(at, PAGE, 2 * PAGE, 0) };
                assert_eq!(grown, at, "grown");
                model[start + 1].store(0, Relaxed);
                kinds[start + 1].store(ANONYMOUS, Relaxed);
            }
        }
        8 => {
            // A run of zeros, where a round may have sent other content before.
            for page in (start..end).filter(|page| is_open(page)) {
                // SAFETY: mapped, according to the model.
                unsafe { (address(thread, page) as *mut u64).write_volatile(0) };
                model[page].store(0, Relaxed);
            }
        }
        _ => {
            for page in (start..end).filter(is_open).take(4) {
                let value = random.below(1 << 30) as u64 + 1;
                // SAFETY: mapped, according to the model.
                unsafe { (address(thread, page) as *mut u64).write_volatile(value) };
                model[page].store(value, Relaxed);
            }
        }
    }
}

/// Makes a child that writes into its copy of the memory and ends.
fn have_child() {
    let _section = Section::enter();
    // SAFETY: the child makes bare system calls, and writes to memory that only it sees.
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
                        // Pages that are not mapped or cannot be written are skipped.
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
                // Pages without the right to read are compared, too.
                let at = at as *mut libc::c_void;
                // SAFETY: no thread uses the page any more.
                unsafe { libc::mprotect(at, PAGE, libc::PROT_READ) };
            }
            // SAFETY: the call only reads.
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

/// Counts what a save left behind: watched memory, threads, descriptors.
fn remains() -> usize {
    let list = |path| fs::read_dir(path).expect("a folder").count();
    let memory = fs::read_to_string("/proc/self/smaps").expect("a list of mappings");
    let flags = memory
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"));
    let watched = flags.filter(|line| line.split(' ').any(|flag| flag == "uw"));
    // One descriptor is that of the list itself; another may be the file for direct reads.
    let (watched, threads) = (watched.count(), list("/proc/self/task") - 1);
    let descriptors = list("/proc/self/fd") - 4 - usize::from(DIRECT.load(Relaxed));
    if watched + threads + descriptors > 0 {
        println!("{watched} mappings watched, {threads} threads, {descriptors} descriptors");
    }
    watched + threads + descriptors
}

/// Opens a file for direct reads, which bypass the processor, if the file system allows it.
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
                    // SAFETY: the advice only concerns the size of pages.
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

/// Begins a save that has much memory to send.
fn begin(file: &File) -> InRounds<'_> {
    map(0, 0..PAGES, ANONYMOUS);
    for page in 0..PAGES {
        // SAFETY: the range was just mapped.
        unsafe { (address(0, page) as *mut u64).write_volatile(page as u64) };
    }
    let until = Until {
        small: 0,
        shrinks: 1e9,
        rounds: 64,
    };
    begin_in_rounds(file.as_fd(), Options::default(), until).expect("begun")
}

/// Executes another program, which must find only its own threads and descriptors.
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

/// Makes a child, which must not be able to finish the save, and can save itself.
fn child_saves(path: &str) {
    let file = File::create(path).expect("a file");
    let underway = begin(&file);
    // SAFETY: this program has one thread that the C library knows.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = underway.finish().expect_err("it is not the child's");
        println!("child: {refused}");
        let own = File::create(format!("{path}.child")).expect("a file");
        // The child's copy of the descriptor leads to a file that its parent goes on writing.
        let options = Options {
            own: &[file.as_raw_fd()],
            ..Options::default()
        };
        match vm_image::save(own.as_fd(), options).expect("saved") {
            Saved::Restored => println!("child: back"),
            _ => println!("child: saved"),
        }
        // In the restored process the descriptor is closed.
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

/// Waits for `more` further steps of the threads.
fn await_steps(more: u64) {
    let wanted = STEPS.load(Relaxed) + more;
    while STEPS.load(Relaxed) < wanted && !STOP.load(Relaxed) {
        thread::yield_now();
    }
}

/// Saves the process, although it has children. Returns the number of rounds, too.
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
            // A save that is finished at once may still have another round, if the processor is
            // busy.
            Ok((saved, rounds)) => {
                return (saved, rounds.len().min(if has("late") { 6 } else { 5 }));
            }
            // A child exists at this moment, or the save that was given up has not ended yet.
            Err(SaveError::Refused(why))
                if why.starts_with("it has a child") || why.starts_with("another save") => {}
            Err(error) => panic!("{error}"),
        }
    }
}
