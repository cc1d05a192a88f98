//! Saves itself in rounds while two threads map, unmap, write, move and give back memory at random;
//! where it is brought back, it compares every page with what it should hold.
//!
//! `rounds save FILE SEED [forked]`, `rounds restore FILE`.

use std::{
    env,
    fs::File,
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};
use vm_checkpoint::{Options, Saved, Section, Until, Way, restore, save_in_rounds};

const PAGE: usize = 4096;
/// Pages of one thread.
const PAGES: usize = 2048;
const THREADS: usize = 2;
/// Nobody else uses these addresses.
const BASE: usize = 0x1000_0000_0000;
/// What a page is that is not mapped.
const UNMAPPED: u64 = u64::MAX;

static STOP: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);
/// What each page should hold in its first word; 0: zeros.
static MODEL: [[AtomicU64; PAGES]; THREADS] =
    [const { [const { AtomicU64::new(UNMAPPED) }; PAGES] }; THREADS];

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

fn map(thread: usize, pages: std::ops::Range<usize>) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = address(thread, pages.start) as *mut libc::c_void;
    // SAFETY: nobody else uses these addresses.
    let mapped = unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(at, pages.len() * PAGE, prot, flags, -1, 0)
    };
    assert_eq!(mapped, at, "mapped");
}

fn step(thread: usize, random: &mut Random) {
    let model = &MODEL[thread];
    let start = random.below(PAGES);
    let end = PAGES.min(start + 1 + random.below(64));
    let at = address(thread, start) as *mut libc::c_void;
    let len = (end - start) * PAGE;
    // What is done and what is noted are one: nobody stops between them.
    let _section = Section::enter();
    match random.below(16) {
        0 => {
            map(thread, start..end);
            model[start..end]
                .iter()
                .for_each(|page| page.store(0, Relaxed));
        }
        1 => {
            // SAFETY: nobody else uses these addresses.
            unsafe { libc::munmap(at, len) };
            model[start..end]
                .iter()
                .for_each(|page| page.store(UNMAPPED, Relaxed));
        }
        2 => {
            for (page, expected) in (start..end).zip(&model[start..end]) {
                if expected.load(Relaxed) != UNMAPPED {
                    let at = address(thread, page) as *mut libc::c_void;
                    // SAFETY: as above.
                    unsafe { libc::madvise(at, PAGE, libc::MADV_DONTNEED) };
                    expected.store(0, Relaxed);
                }
            }
        }
        3 if model[start].load(Relaxed) != UNMAPPED => {
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
        4 if model[start].load(Relaxed) != UNMAPPED => {
            // SAFETY: as above.
            unsafe { libc::mprotect(at, PAGE, libc::PROT_READ) };
            // SAFETY: as above.
            unsafe { libc::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        }
        _ => {
            for (page, expected) in (start..end).zip(&model[start..end]).take(4) {
                if expected.load(Relaxed) != UNMAPPED {
                    let value = random.below(1 << 30) as u64 + 1;
                    // SAFETY: mapped, as the model says.
                    unsafe { (address(thread, page) as *mut u64).write_volatile(value) };
                    expected.store(value, Relaxed);
                }
            }
        }
    }
}

fn differences() -> usize {
    let mut vector = [0u8; PAGES];
    let mut count = 0;
    for (thread, model) in MODEL.iter().enumerate() {
        for (page, expected) in model.iter().enumerate() {
            let (at, expected) = (address(thread, page), expected.load(Relaxed));
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
                println!("page {page} of {thread}: {found:x?} in place of {expected:#x}");
            }
        }
    }
    count
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let path = &arguments[2];
    if arguments[1] == "restore" {
        let file = File::open(path).expect("the image");
        let error = restore(file.as_fd(), Way::default()).expect_err("it does not return");
        panic!("{error}");
    }
    let seed: u64 = arguments[3].parse().expect("a number");
    let forked = arguments.len() > 4;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            thread::spawn(move || {
                let mut random = Random(seed * 2 + thread as u64);
                map(thread, 0..PAGES);
                MODEL[thread].iter().for_each(|page| page.store(0, Relaxed));
                while !STOP.load(Relaxed) {
                    step(thread, &mut random);
                    STEPS.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    while STEPS.load(Relaxed) < 10_000 {
        thread::yield_now();
    }
    let file = File::create(path).expect("a file");
    let options = Options {
        forked,
        compress: seed.is_multiple_of(3),
        ..Options::default()
    };
    let until = Until {
        small: 0,
        shrinks: 1e9,
        rounds: 5,
    };
    let (saved, rounds) = save_in_rounds(file.as_fd(), options, until).expect("saved");
    let back = matches!(saved, Saved::Back);
    if let Saved::Underway(writer) = saved {
        writer.finish().expect("a whole image");
    }
    STOP.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("it ends");
    }
    let name = if back { "back" } else { "here" };
    println!(
        "{name}: {} differences, {} rounds",
        differences(),
        rounds.len()
    );
}
