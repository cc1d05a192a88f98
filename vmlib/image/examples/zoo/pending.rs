//! Signals that are blocked and pending during the save.

use crate::{
    masks::{block_all, set_of},
    point::save_point,
};
use std::{
    mem,
    sync::{Arc, Barrier},
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("pending_for_the_process", pending_for_the_process),
    (
        "pending_when_another_thread_saves",
        pending_when_another_thread_saves,
    ),
    ("pending_for_a_thread", pending_for_a_thread),
    (
        "pending_with_values_for_a_thread",
        pending_with_values_for_a_thread,
    ),
];

/// The information of a signal.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Came {
    signal: i32,
    code: i32,
    value: usize,
}

/// Takes a pending signal.
fn take(signal: i32) -> Option<Came> {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: zeros are a value, and the call writes it; the value is there where the code says so.
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let taken = libc::sigtimedwait(&set_of(&[signal]), &mut info, &time);
        let value = match info.si_code {
            libc::SI_QUEUE => info.si_value().sival_ptr as usize,
            _ => 0,
        };
        let (signal, code) = (info.si_signo, info.si_code);
        (taken > 0).then_some(Came {
            signal,
            code,
            value,
        })
    }
}

fn send(signal: i32) {
    // SAFETY: the signal is blocked in all threads.
    unsafe { libc::kill(libc::getpid(), signal) };
}

fn queue(signal: i32, value: usize) {
    let value = libc::sigval {
        sival_ptr: value as *mut libc::c_void,
    };
    // SAFETY: the signal is blocked in all threads.
    assert_eq!(unsafe { libc::sigqueue(libc::getpid(), signal, value) }, 0);
}

fn queue_for_this_thread(signal: i32, values: &[usize]) {
    for value in values {
        let value = libc::sigval {
            sival_ptr: *value as *mut libc::c_void,
        };
        // SAFETY: the signal is blocked here.
        let queued = unsafe { libc::pthread_sigqueue(libc::pthread_self(), signal, value) };
        assert_eq!(queued, 0);
    }
}

/// A standard signal, and two real-time signals of the same number with values, in order.
fn pending_for_the_process() {
    block_all();
    let (one, other) = (libc::SIGRTMIN() + 1, libc::SIGRTMIN() + 2);
    send(libc::SIGUSR1);
    queue(one, 42);
    queue(one, 43);
    queue(other, usize::MAX);
    save_point();
    let came = |signal, value| {
        Some(Came {
            signal,
            code: libc::SI_QUEUE,
            value,
        })
    };
    assert_eq!(take(one), came(one, 42));
    assert_eq!(take(one), came(one, 43));
    assert_eq!(take(one), None);
    assert_eq!(take(other), came(other, usize::MAX));
    let plain = take(libc::SIGUSR1).expect("it waits");
    assert_eq!((plain.signal, plain.code), (libc::SIGUSR1, libc::SI_USER));
    assert_eq!(take(libc::SIGUSR1), None);
}

/// The kernel lets only the first thread send a signal with the information of another process.
fn pending_when_another_thread_saves() {
    block_all();
    let value = libc::SIGRTMIN() + 1;
    let saver = thread::spawn(move || {
        send(libc::SIGUSR1);
        queue(value, 42);
        save_point();
    });
    saver.join().expect("it saves");
    let plain = take(libc::SIGUSR1).expect("it waits");
    assert_eq!((plain.signal, plain.code), (libc::SIGUSR1, libc::SI_USER));
    let (signal, code) = (value, libc::SI_QUEUE);
    let with_value = Came {
        signal,
        code,
        value: 42,
    };
    assert_eq!(take(value), Some(with_value));
}

/// Each of two threads has a signal that the other must not get.
fn pending_for_a_thread() {
    block_all();
    let (before, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (its_before, its_after) = (before.clone(), after.clone());
    let thread = thread::spawn(move || {
        crate::signals::raise(libc::SIGUSR2);
        its_before.wait();
        its_after.wait();
        assert_eq!(take(libc::SIGUSR1), None);
        assert_eq!(
            take(libc::SIGUSR2).map(|came| came.signal),
            Some(libc::SIGUSR2)
        );
    });
    crate::signals::raise(libc::SIGUSR1);
    before.wait();
    save_point();
    assert_eq!(take(libc::SIGUSR2), None);
    assert_eq!(
        take(libc::SIGUSR1).map(|came| came.signal),
        Some(libc::SIGUSR1)
    );
    after.wait();
    thread.join().expect("it finds its own");
}

/// All signals of a thread, in order, with their values, besides those of the process.
fn pending_with_values_for_a_thread() {
    block_all();
    let signal = libc::SIGRTMIN() + 4;
    let (before, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (its_before, its_after) = (before.clone(), after.clone());
    let came = move |value| {
        Some(Came {
            signal,
            code: libc::SI_QUEUE,
            value,
        })
    };
    let thread = thread::spawn(move || {
        queue_for_this_thread(signal, &[1, 2, 3]);
        its_before.wait();
        its_after.wait();
        assert_eq!([1, 2, 3].map(|_| take(signal)), [1, 2, 3].map(came));
    });
    queue_for_this_thread(signal, &[7, 8]);
    before.wait();
    queue(signal, 99);
    save_point();
    assert_eq!([7, 8, 99].map(|_| take(signal)), [7, 8, 99].map(came));
    after.wait();
    thread.join().expect("it finds its own");
    assert_eq!(take(signal), None);
}
