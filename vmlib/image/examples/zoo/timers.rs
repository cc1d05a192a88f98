//! Timers that send signals.

use crate::{
    masks::{block_all, set_mask},
    point::{save_point, tid, until},
    signals::{count, counting, install},
};
use std::{
    mem, ptr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("interval_timers", interval_timers),
    ("interval_timer_that_waits", interval_timer_that_waits),
    ("alarm", alarm),
    ("posix_timers", posix_timers),
    ("cpu_time_timer", cpu_time_timer),
    ("cpu_time_by_number", cpu_time_by_number),
    ("timers_of_threads", timers_of_threads),
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

/// The timers continue, each by its clock.
fn interval_timers() {
    let timers = [
        (libc::SIGALRM, libc::ITIMER_REAL),
        (libc::SIGVTALRM, libc::ITIMER_VIRTUAL),
        (libc::SIGPROF, libc::ITIMER_PROF),
    ];
    for (signal, which) in timers {
        install(signal, counting, libc::SA_RESTART, &[]);
        interval(which as u32, 20_000, 20_000);
    }
    until("all tick", || {
        timers.iter().all(|(signal, _)| count(*signal) > 0)
    });
    save_point();
    let then = timers.map(|(signal, _)| count(signal));
    until("all tick on", || {
        let mut pairs = timers.iter().zip(then);
        pairs.all(|((signal, _), then)| count(*signal) > then + 2)
    });
}

/// The timer's signal is pending during the save; the timer continues nevertheless.
fn interval_timer_that_waits() {
    install(libc::SIGALRM, counting, libc::SA_RESTART, &[]);
    let before = block_all();
    interval(libc::ITIMER_REAL as u32, 1_000, 5_000);
    until("its signal waits", || {
        // SAFETY: zeros are a value, and the call writes it.
        unsafe {
            let mut set = mem::zeroed();
            libc::sigpending(&mut set);
            libc::sigismember(&set, libc::SIGALRM) == 1
        }
    });
    save_point();
    assert_eq!(count(libc::SIGALRM), 0);
    set_mask(&before);
    until("it ticks on", || count(libc::SIGALRM) > 3);
}

/// The remaining time is kept.
fn alarm() {
    install(libc::SIGALRM, counting, 0, &[]);
    // SAFETY: the signal is handled.
    unsafe { libc::alarm(300) };
    save_point();
    // SAFETY: the call ends the timer.
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

static VALUES: AtomicUsize = AtomicUsize::new(0);

extern "C" fn with_value(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the information is the kernel's; timers send a value.
    let value = unsafe { (*info).si_value().sival_ptr as usize };
    VALUES.fetch_or(value, SeqCst);
    counting(signal, info, context);
}

/// A periodic timer, one far in the future, and one that was not started. A timer between them was
/// deleted, so the numbers have a gap.
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
    assert_eq!(VALUES.load(SeqCst), 0x40);
    assert!((400..=500).contains(&left(distant).it_value.tv_sec));
    let idle = left(idle);
    assert_eq!((idle.it_value.tv_sec, idle.it_value.tv_nsec), (0, 0));
    assert_eq!(left(ticking).it_interval.tv_nsec, 10_000_000);
    assert_eq!(count(far), 0);
}

/// A timer of the processor time of the process.
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

/// The numbers of these clocks contain ids of this process and its threads.
fn cpu_time_by_number() {
    let (give, taken) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let own_clock = || {
        let mut clock = 0;
        // SAFETY: this thread exists.
        let got = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) };
        assert_eq!(got, 0);
        clock
    };
    let thread = thread::spawn(move || {
        give.send(own_clock()).expect("it is waited for");
        // Blocks until the other end is dropped.
        let _ = ends.recv();
    });
    let mut process = 0;
    // SAFETY: the kernel writes a number.
    let got = unsafe { libc::clock_getcpuclockid(libc::getpid(), &mut process) };
    assert_eq!(got, 0);
    let clocks = [process, own_clock(), taken.recv().expect("a clock")];
    let signal = libc::SIGRTMIN() + 9;
    install(signal, counting, libc::SA_RESTART, &[]);
    let timer = make(process, signal, 1);
    set(timer, 10_000_000, 10_000_000);
    until("it ticks", || count(signal) > 0);
    save_point();
    for clock in clocks {
        // SAFETY: zeros are a value.
        let mut time = unsafe { mem::zeroed::<libc::timespec>() };
        // SAFETY: the kernel writes a time.
        let read = unsafe { libc::clock_gettime(clock, &mut time) };
        assert_eq!(read, 0, "{clock}");
        assert!(time.tv_sec < 300);
    }
    let then = count(signal);
    until("it ticks on", || count(signal) > then + 2);
    // SAFETY: a timer of an existing clock.
    unsafe { libc::timer_delete(make(clocks[0], signal, 1) as _) };
    drop(end);
    thread.join().expect("it ends");
}

/// The threads that got the signal, by its value.
static GOT: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];

extern "C" fn by_thread(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the information is the kernel's; timers send a value.
    let value = unsafe { (*info).si_value().sival_ptr as usize };
    GOT[value].store(tid(), SeqCst);
    counting(signal, info, context);
}

/// Each thread gets the signals of its own timer, although it has another id.
fn timers_of_threads() {
    let signal = libc::SIGRTMIN() + 8;
    install(signal, by_thread, libc::SA_RESTART, &[]);
    let (before, after) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let work = move |number: usize, before: &Barrier, after: &Barrier| {
        // SAFETY: zeros are a value; the signal is handled.
        let timer = unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_value.sival_ptr = number as *mut libc::c_void;
            event.sigev_notify_thread_id = tid();
            let mut timer = mem::zeroed();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            assert_eq!(made, 0);
            timer
        };
        set(timer, 10_000_000, 10_000_000);
        until("it ticks", || GOT[number].load(SeqCst) == tid());
        before.wait();
        if number == 0 {
            save_point();
        }
        after.wait();
        GOT[number].store(0, SeqCst);
        until("it ticks on", || GOT[number].load(SeqCst) != 0);
        assert_eq!(GOT[number].load(SeqCst), tid());
    };
    thread::scope(|scope| {
        for number in 1..3 {
            let (before, after) = (before.clone(), after.clone());
            scope.spawn(move || work(number, &before, &after));
        }
        work(0, &before, &after);
    });
}
