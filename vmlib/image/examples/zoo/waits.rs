//! System calls that wait and that a signal ends: the effects of a save that a program can see.
//!
//! Some calls end with EINTR although handlers are installed with `SA_RESTART`, by the kernel's
//! rules (signal(7)). A program has to handle that, as it has to when it is stopped and continued.
//! Calls that the kernel repeats must continue as if there had been no signal.

use crate::point::{save_point, tid, until, until_asleep};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("waits_that_may_be_cut_short", waits_that_may_be_cut_short),
    ("waits_that_go_on", waits_that_go_on),
    ("sleep_has_its_time", sleep_has_its_time),
];

const WAIT: Duration = Duration::from_millis(300);

fn waiting<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let id = Arc::new(AtomicI32::new(0));
    let its = id.clone();
    let thread = thread::spawn(move || {
        its.store(tid(), SeqCst);
        wait()
    });
    until("a thread begins", || id.load(SeqCst) != 0);
    until_asleep(id.load(SeqCst));
    thread
}

fn time() -> libc::timespec {
    libc::timespec {
        tv_sec: 0,
        tv_nsec: 300_000_000,
    }
}

/// The error of a C function that returned this value.
fn error(value: i32) -> i32 {
    match value {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Each call either waits as long as it should, or ends with EINTR.
fn waits_that_may_be_cut_short() {
    type Wait = fn() -> i32;
    let waits: [(&str, Wait); 5] = [
        ("nanosleep", || {
            let mut rest = time();
            // SAFETY: both times are this function's own.
            let value = unsafe { libc::nanosleep(&time(), &mut rest) };
            assert!(value == 0 || rest.tv_sec == 0 && rest.tv_nsec <= 300_000_000);
            error(value)
        }),
        ("clock_nanosleep", || {
            // SAFETY: the time is this function's own. The call returns its error.
            unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &time(), ptr::null_mut()) }
        }),
        // SAFETY: the call only waits.
        ("usleep", || error(unsafe { libc::usleep(300_000) })),
        ("poll", || {
            // SAFETY: no descriptors, so nothing is read or written.
            error(unsafe { libc::poll(ptr::null_mut(), 0, 300) })
        }),
        ("select", || {
            let mut time = libc::timeval {
                tv_sec: 0,
                tv_usec: 300_000,
            };
            let none = ptr::null_mut();
            // SAFETY: no descriptors; the time is this function's own.
            error(unsafe { libc::select(0, none, none, none, &mut time) })
        }),
    ];
    let threads = waits.map(|(name, wait)| {
        let work = move || {
            let began = Instant::now();
            (name, wait(), began.elapsed())
        };
        waiting(work)
    });
    save_point();
    for thread in threads {
        let (name, error, took) = thread.join().expect("it ends");
        match error {
            0 => assert!(took >= WAIT, "{name} took {took:?}"),
            error => assert_eq!(error, libc::EINTR, "{name}"),
        }
    }
}

/// A read from a pipe, and a wait for a semaphore in the C programs of the tests, are repeated.
fn waits_that_go_on() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe can be had");
    let (mut reader, mut writer) = (File::from(reader), File::from(writer));
    let thread = waiting(move || {
        let mut byte = [0];
        // SAFETY: one byte, which is there. The standard library's function is not used, because it
        // repeats the call itself.
        let count = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
            libc::read(fd, byte.as_mut_ptr().cast(), 1)
        };
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("it can be read");
        (count, byte, rest)
    });
    save_point();
    writer.write_all(b"abc").expect("somebody reads");
    drop(writer);
    let (count, byte, rest) = thread.join().expect("it reads");
    assert_eq!((count, byte, rest), (1, *b"a", b"bc".to_vec()));
}

/// The standard library sleeps for the rest of the time when the sleep was interrupted.
fn sleep_has_its_time() {
    let sleepers: Vec<_> = [300, 350, 400]
        .map(|millis| {
            let time = Duration::from_millis(millis);
            waiting(move || {
                let began = Instant::now();
                thread::sleep(time);
                (began.elapsed(), time)
            })
        })
        .into();
    save_point();
    for sleeper in sleepers {
        let (took, time) = sleeper.join().expect("it ends");
        assert!(took >= time, "{took:?} in place of {time:?}");
    }
}
