//! Timers that send signals.

use crate::{
    point::{save_point, until},
    signals::{count, counting, install},
};
use std::{mem, ptr};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("interval_timers", interval_timers),
    ("alarm", alarm),
    ("posix_timers", posix_timers),
    ("cpu_time_timer", cpu_time_timer),
];

fn interval(which: u32, first_us: i64, every_us: i64) {
    let time = |us: i64| libc::timeval {
        tv_sec: us / 1_000_000,
        tv_usec: us % 1_000_000,
    };
    let timer = libc::itimerval {
        it_interval: time(every_us),
        it_value: time(first_us),
    };
    // SAFETY: the signals are handled.
    let result = unsafe { libc::setitimer(which as _, &timer, ptr::null_mut()) };
    assert_eq!(result, 0, "a timer can be set");
}

/// They go on ticking, each by its clock.
fn interval_timers() {
    install(libc::SIGALRM, counting, libc::SA_RESTART, &[]);
    install(libc::SIGVTALRM, counting, libc::SA_RESTART, &[]);
    interval(libc::ITIMER_REAL as u32, 20_000, 20_000);
    interval(libc::ITIMER_VIRTUAL as u32, 20_000, 20_000);
    until("both tick", || {
        count(libc::SIGALRM) > 0 && count(libc::SIGVTALRM) > 0
    });
    save_point();
    let then = (count(libc::SIGALRM), count(libc::SIGVTALRM));
    until("both tick on", || {
        count(libc::SIGALRM) > then.0 + 2 && count(libc::SIGVTALRM) > then.1 + 2
    });
}

/// What was left is still left.
fn alarm() {
    install(libc::SIGALRM, counting, 0, &[]);
    // SAFETY: the signal is handled.
    unsafe { libc::alarm(300) };
    save_point();
    // SAFETY: it ends the timer.
    let left = unsafe { libc::alarm(0) };
    assert!((200..=300).contains(&left), "{left} seconds are left");
    interval(libc::ITIMER_REAL as u32, 1_000, 0);
    until("it rings once", || count(libc::SIGALRM) == 1);
}

fn make(clock: libc::clockid_t, signal: i32, value: usize) -> libc::timer_t {
    // SAFETY: zeros are a value; the signal is handled.
    unsafe {
        let mut event: libc::sigevent = mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = value as *mut libc::c_void;
        let mut timer = mem::zeroed();
        assert_eq!(libc::timer_create(clock, &mut event, &mut timer), 0);
        timer
    }
}

fn set(timer: libc::timer_t, first_ns: i64, every_ns: i64) {
    let time = |ns: i64| libc::timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    };
    let times = libc::itimerspec {
        it_interval: time(every_ns),
        it_value: time(first_ns),
    };
    // SAFETY: the timer is this program's own.
    let value = unsafe { libc::timer_settime(timer, 0, &times, ptr::null_mut()) };
    assert_eq!(value, 0, "the timer can be set");
}

fn left(timer: libc::timer_t) -> libc::itimerspec {
    // SAFETY: zeros are a value, and the call writes it.
    unsafe {
        let mut times = mem::zeroed();
        assert_eq!(
            libc::timer_gettime(timer, &mut times),
            0,
            "the timer is not there"
        );
        times
    }
}

static VALUES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn with_value(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives it; timers come with a value.
    let value = unsafe { (*info).si_value().sival_ptr as usize };
    VALUES.fetch_or(value, std::sync::atomic::Ordering::SeqCst);
    counting(signal, info, context);
}

/// Periodic, far away, and not started; one between them was deleted, so numbers have a hole.
fn posix_timers() {
    let (near, far) = (libc::SIGRTMIN() + 3, libc::SIGRTMIN() + 6);
    install(near, with_value, libc::SA_RESTART, &[]);
    install(far, counting, libc::SA_RESTART, &[]);
    let gone = make(libc::CLOCK_MONOTONIC, far, 0);
    let ticking = make(libc::CLOCK_MONOTONIC, near, 0x40);
    let distant = make(libc::CLOCK_REALTIME, far, 2);
    // SAFETY: the timer is this program's own.
    unsafe { libc::timer_delete(gone) };
    let idle = make(libc::CLOCK_BOOTTIME, far, 3);
    set(ticking, 10_000_000, 10_000_000);
    set(distant, 500_000_000_000, 0);
    until("it ticks", || count(near) > 0);
    save_point();
    let then = count(near);
    until("it ticks on", || count(near) > then + 2);
    assert_eq!(VALUES.load(std::sync::atomic::Ordering::SeqCst), 0x40);
    assert!((400..=500).contains(&left(distant).it_value.tv_sec));
    let idle = left(idle);
    assert_eq!((idle.it_value.tv_sec, idle.it_value.tv_nsec), (0, 0));
    assert_eq!(left(ticking).it_interval.tv_nsec, 10_000_000);
    assert_eq!(count(far), 0);
}

/// A timer that measures what the process computes.
fn cpu_time_timer() {
    let signal = libc::SIGRTMIN() + 7;
    install(signal, counting, libc::SA_RESTART, &[]);
    let timer = make(libc::CLOCK_PROCESS_CPUTIME_ID, signal, 1);
    set(timer, 10_000_000, 10_000_000);
    until("it ticks", || count(signal) > 0);
    save_point();
    let then = count(signal);
    until("it ticks on", || count(signal) > then + 2);
}
