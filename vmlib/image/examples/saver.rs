//! A process that saves itself on command, for tests: `saver [FILE]...`. `saver restore IMAGE
//! [roll-back]` restores it. The process opens each file for reading and appending, `write=FILE`
//! for reading and writing, and `read=FILE` for reading. The process reads commands line by line,
//! and prints a reply to each:
//!
//! - `save PATH [forked [rewrite]] [lend] [rounds] [compress] [carry[=BYTES[+BYTES]]]
//!   [checked=BYTES] [folders=HERE:THERE]`: `saved`, in the restored process `back`, or the reason
//!   of a failure. With `rewrite` the process changes all its memory while a copy writes the image,
//!   and changes it back afterwards. A path of a socket is connected to;
//! - `faults`: the number of page faults of the last `rewrite`;
//! - `limit BYTES`: sets the limit on the size of files;
//! - `append TEXT`: appends to the first file; `read`: prints its content;
//! - `poison`: maps memory that cannot be read, if the kernel can (`done`, `none`); `cure`: unmaps
//!   it;
//! - `at`: prints the position in the last file; `lock`: locks that file;
//! - `look`: checks whether the memory is unchanged.

use std::{
    env,
    fs::{File, OpenOptions},
    hint::black_box,
    io::{self, Seek as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::{FileExt as _, FileTypeExt as _},
            net::UnixStream,
        },
    },
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    thread,
};
use vm_image::{
    Carry, Folders, Options, RestoreOptions, SaveError, Saved, Until, restore, save, save_in_rounds,
};

/// Words of memory with content, so that an image is much longer than a pipe.
const WORDS: usize = 4 << 20;
/// Words of memory with zeros.
const ZEROS: usize = 4 << 20;
/// Page faults while the memory was last changed beside a copy.
static FAULTS: AtomicI64 = AtomicI64::new(0);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "restore") {
        let image = File::open(&arguments[1]).expect("the image can be opened");
        let way = RestoreOptions {
            roll_back: arguments.get(2).is_some_and(|word| word == "roll-back"),
            ..RestoreOptions::default()
        };
        let error = restore(image.as_fd(), way).expect_err("it does not return");
        panic!("{error}");
    }
    // Programs that are not written in Rust have this action.
    // SAFETY: the call sets an action.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let files: Vec<File> = arguments.iter().map(|argument| opened(argument)).collect();
    let memory: Vec<u64> = (0..WORDS as u64)
        .map(|at| at.wrapping_mul(0x9e37_79b9))
        .collect();
    let mut memory = black_box(memory);
    let mut zeros = vec![1; ZEROS];
    black_box(&mut zeros).fill(0);
    // A second thread, which is stopped and resumes.
    thread::spawn(|| {
        loop {
            thread::park();
        }
    });
    let mut poisoned = None;
    println!("ready");
    for line in io::stdin().lines() {
        let line = line.expect("text");
        let words: Vec<&str> = line.split(' ').collect();
        let file = || files.first().expect("a file was named");
        match words[0] {
            "save" => println!("{}", answer(&words[1..], &mut [&mut memory, &mut zeros])),
            "poison" => {
                poisoned = poison();
                println!("{}", poisoned.map_or("none", |_| "done"));
            }
            "cure" => {
                // SAFETY: no other code knows that memory.
                let cured = poisoned
                    .take()
                    .is_some_and(|memory| unsafe { libc::munmap(memory, POISONED) == 0 });
                assert!(cured, "there is some");
                println!("done");
            }
            "limit" => limit(words[1].parse().expect("a number")),
            "append" => {
                io::Write::write_all(&mut file(), words[1].as_bytes()).expect("it can be written");
                println!("done");
            }
            "faults" => println!("{}", FAULTS.load(Relaxed)),
            "lock" => {
                files
                    .last()
                    .expect("a file was named")
                    .lock()
                    .expect("it is free");
                println!("done");
            }
            "at" => {
                let mut file = files.last().expect("a file was named");
                println!("{}", file.stream_position().expect("a position"));
            }
            "read" => {
                let len = file().metadata().expect("it is open").len();
                let mut bytes = vec![0; len as usize];
                file().read_exact_at(&mut bytes, 0).expect("it can be read");
                println!("{}", String::from_utf8_lossy(&bytes));
            }
            _ => {
                let is_well =
                    |(at, word): (usize, &u64)| *word == (at as u64).wrapping_mul(0x9e37_79b9);
                assert!(memory.iter().enumerate().all(is_well));
                assert!(zeros.iter().all(|word| *word == 0));
                println!("well");
            }
        }
    }
}

/// Bytes of a mapping with one page that cannot be read.
const POISONED: usize = 32 << 20;

/// Maps memory whose last page cannot be read, as if the hardware had lost it (Linux 6.6).
fn poison() -> Option<*mut libc::c_void> {
    const USER_MODE_ONLY: i32 = 1;
    const API: libc::c_ulong = 0xc018_aa3f;
    const POISON: u64 = 1 << 14;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const REGISTER_MISSING: u64 = 1;
    const MAKE_POISON: libc::c_ulong = 0xc020_aa08;
    const PAGE: u64 = 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the memory is new, and each call has the structure that it expects.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), POISONED, prot, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        libc::memset(memory, 7, POISONED - PAGE as usize);
        let fd = libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) as i32;
        let last = memory as u64 + POISONED as u64 - PAGE;
        let mut calls = [
            (API, [0xaa, POISON, 0, 0]),
            (REGISTER, [last, PAGE, REGISTER_MISSING, 0]),
            (MAKE_POISON, [last, PAGE, 0, 0]),
        ];
        let done = calls
            .iter_mut()
            .all(|(what, value)| libc::ioctl(fd, *what, value.as_mut_ptr()) == 0);
        libc::close(fd);
        done.then_some(memory)
    }
}

fn opened(argument: &str) -> File {
    let mut options = OpenOptions::new();
    let (options, path) = match argument.split_once('=') {
        Some(("write", path)) => (options.read(true).write(true), path),
        Some(("read", path)) => (options.read(true), path),
        _ => (options.read(true).append(true), argument),
    };
    options.open(path).expect("a file")
}

fn answer(words: &[&str], memory: &mut [&mut Vec<u64>]) -> String {
    match saved(words, memory) {
        Ok(Saved::Restored) => "back".to_owned(),
        Ok(_) => "saved".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn saved(words: &[&str], memory: &mut [&mut Vec<u64>]) -> Result<Saved, SaveError> {
    let image = target(words[0]);
    let has = |word| words.contains(&word);
    let text = |name| words.iter().find_map(|word| word.strip_prefix(name));
    let number = |text: &str| text.parse().expect("a number");
    let folders = words.iter().find_map(|word| {
        let (here, there) = word.strip_prefix("folders=")?.split_once(':')?;
        Some((here.to_owned(), there.to_owned()))
    });
    let options = Options {
        forked: has("forked"),
        compress: has("compress"),
        lend: has("lend"),
        carry: match text("carry=").map(|text| text.split_once('+').ok_or(text)) {
            Some(Ok((rewritable, others))) => Carry::RollBack {
                rewritable: number(rewritable),
                others: number(others),
            },
            Some(Err(bytes)) => Carry::Fitting(number(bytes)),
            None if has("carry") => Carry::All,
            None => Carry::Nothing,
        },
        folders: folders.as_ref().map(|(here, there)| Folders {
            here: here.as_bytes(),
            there: there.as_bytes(),
        }),
        checked_max: text("checked=").map_or(u64::MAX, number),
        ..Options::default()
    };
    let saved = match has("rounds") {
        true => save_in_rounds(image.as_fd(), options, Until::default())?.0,
        false => save(image.as_fd(), options)?,
    };
    match saved {
        Saved::Underway(writer) => {
            let freeze = writer.freeze();
            let mut change = || {
                let all = memory.iter_mut().flat_map(|part| part.iter_mut());
                all.for_each(|word| *word ^= u64::MAX);
            };
            if has("rewrite") {
                let before = faults();
                change();
                FAULTS.store(faults() - before, Relaxed);
            }
            writer.finish()?;
            if has("rewrite") {
                change();
            }
            Ok(Saved::Whole { bytes: 0, freeze })
        }
        saved => Ok(saved),
    }
}

/// The number of minor page faults of this process.
fn faults() -> i64 {
    // SAFETY: zeros are a value, and the kernel writes there.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage.ru_minflt
    }
}

/// Opens the destination of an image.
fn target(path: &str) -> OwnedFd {
    let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match is_socket {
        true => UnixStream::connect(path).expect("someone listens").into(),
        false => File::create(path).expect("it can be written").into(),
    }
}

fn limit(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel reads the limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    println!("done");
}
