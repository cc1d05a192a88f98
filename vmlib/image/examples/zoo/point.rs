//! The point where a program of the zoo is saved, and functions that many programs need.
//!
//! Environment variables:
//!
//! - `ZOO_IMAGE`: the path of images; the number of the save is added;
//! - `ZOO_SAVES`: the number of saves; each restored process makes the next one;
//! - `ZOO_FORKED`: a copy writes the image;
//! - `ZOO_IN_ROUNDS`: most of the memory is written while the program runs;
//! - `ZOO_LEAVE`: a process ends after its save, because it would change files that the restored
//!   process needs;
//! - `ZOO_REFUSED`: system calls that a filter refuses;
//! - `ZOO_BUSY`: the number of threads that compute meanwhile.

use std::{
    env,
    fs::{self, File},
    hint::black_box,
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};
use vm_image::{Carry, Options, SaveError, Saved, Until, save, save_in_rounds};

/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(30);

/// Several rounds, even if there is little to send.
const ROUNDS: Until = Until {
    small: 0,
    shrinks: 2.0,
    rounds: 4,
};

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some()
}

fn number(name: &str, otherwise: u32) -> u32 {
    match env::var(name) {
        Ok(text) => text.parse().expect("a number in the environment"),
        Err(_) => otherwise,
    }
}

fn image(number: u32) -> File {
    let image = env::var("ZOO_IMAGE").expect("the environment says where images go");
    File::create(format!("{image}.{number}")).expect("the image can be made")
}

/// Saves this process. Returns 0 in the process that runs on, and the number of restores in each
/// restored process.
pub fn save_point() -> u32 {
    save_with(Carry::Nothing)
}

/// As [`save_point`], and the images carry the content of open files.
pub fn carrying_save_point() -> u32 {
    save_with(Carry::All)
}

fn save_with(carry: Carry) -> u32 {
    let saves = number("ZOO_SAVES", 1);
    for number in 1..=saves {
        let image = image(number);
        let options = Options {
            forked: is_set("ZOO_FORKED"),
            carry,
            ..Options::default()
        };
        let saved = match is_set("ZOO_IN_ROUNDS") {
            true => save_in_rounds(image.as_fd(), options, ROUNDS).map(|(saved, _)| saved),
            false => save(image.as_fd(), options),
        };
        let saved = saved.expect("this process can be saved");
        match saved {
            Saved::Restored => continue,
            Saved::Underway(writer) => writer.finish().expect("the image becomes whole"),
            Saved::Whole { .. } => {}
        }
        if is_set("ZOO_LEAVE") {
            // SAFETY: the call ends the process, without writing, dropping or flushing anything.
            unsafe { libc::_exit(0) };
        }
        return number - 1;
    }
    saves
}

/// Requests a save, which must be refused with a text that contains `text`. The process runs on.
pub fn refused(text: &str) {
    refused_with(text, Options::default());
}

/// As [`refused`], for a save that carries the content of open files.
pub fn refused_to_carry(text: &str) {
    let options = Options {
        carry: Carry::All,
        ..Options::default()
    };
    refused_with(text, options);
}

fn refused_with(text: &str, options: Options<'_>) {
    let image = image(1);
    for _ in 0..2 {
        match save(image.as_fd(), options) {
            Err(SaveError::Refused(why)) => {
                assert!(
                    why.contains(text),
                    "refused because '{why}', not because '{text}'"
                );
            }
            other => panic!("not refused because '{text}': {other:?}"),
        }
    }
    // Other threads run on, as does this one.
    thread::spawn(|| black_box(7))
        .join()
        .expect("a thread can be had");
}

/// Starts threads that compute all the time and take no signal.
pub fn begin_busy_threads() {
    let count = number("ZOO_BUSY", 0);
    if count == 0 {
        return;
    }
    let before = crate::masks::block_all();
    for seed in 0..count {
        thread::spawn(move || {
            let mut x = u64::from(seed);
            loop {
                x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
            }
        });
    }
    crate::masks::set_mask(&before);
}

/// Waits until a condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::yield_now();
    }
}

/// The id of this thread.
pub fn tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Waits until a thread sleeps in the kernel.
pub fn until_asleep(tid: i32) {
    until("a thread sleeps", || state(tid) == 'S');
}

fn state(tid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).expect("a thread");
    let after = stat.rfind(')').expect("a name in brackets");
    stat[after + 2..].chars().next().expect("a state")
}

/// A folder of this run.
pub fn folder() -> String {
    env::var("ZOO_FOLDER").expect("the environment says where files go")
}

/// Has the kernel refuse the system calls in `ZOO_REFUSED`, as sandboxes do.
pub fn refuse_calls() {
    let Ok(text) = env::var("ZOO_REFUSED") else {
        return;
    };
    const LOAD: u16 = 0x20;
    const IS: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![step(LOAD, 0, 0, 0)];
    for number in text.split(',') {
        let number = number.parse().expect("a number");
        program.push(step(IS, 0, 1, number));
        program.push(step(
            RETURN,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0
        );
    }
}
