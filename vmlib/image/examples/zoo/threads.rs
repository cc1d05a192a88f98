//! Threads and their settings: many threads, names, ends, held locks.

use crate::point::{save_point, tid, until, until_asleep};
use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc, Condvar, Mutex, RwLock,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("busy_threads", busy_threads),
    ("mutex_held", mutex_held),
    ("rwlock_held", rwlock_held),
    ("scoped_threads", scoped_threads),
    ("condvar_with_time", condvar_with_time),
    ("threads_that_come_and_go", threads_that_come_and_go),
    ("saved_by_a_thread", saved_by_a_thread),
    ("thread_names", thread_names),
];

/// A thread that is about to block. Returns its handle when the thread sleeps in the kernel.
fn blocked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    let id = Arc::new(AtomicI32::new(0));
    let its = id.clone();
    let thread = thread::spawn(move || {
        its.store(tid(), SeqCst);
        work()
    });
    until("a thread begins", || id.load(SeqCst) != 0);
    until_asleep(id.load(SeqCst));
    thread
}

/// Threads that share the processors, and continue to count.
fn busy_threads() {
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..16).map(|_| AtomicU64::new(0)).collect());
    let end = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..16)
        .map(|n| {
            let (counts, end) = (counts.clone(), end.clone());
            thread::spawn(move || {
                let mut own = 0u64;
                while !end.load(SeqCst) {
                    own += 1;
                    counts[n].store(own, SeqCst);
                }
                own
            })
        })
        .collect();
    until("all count", || {
        counts.iter().all(|count| count.load(SeqCst) > 0)
    });
    save_point();
    let then: Vec<u64> = counts.iter().map(|count| count.load(SeqCst)).collect();
    until("all count on", || {
        counts
            .iter()
            .zip(&then)
            .all(|(count, then)| count.load(SeqCst) > *then)
    });
    end.store(true, SeqCst);
    for (n, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().expect("it counts"), counts[n].load(SeqCst));
    }
}

/// The owner of the mutex still has it; a waiting thread gets it afterwards.
fn mutex_held() {
    let value = Arc::new(Mutex::new(5));
    let mut held = value.lock().expect("it is free");
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let value = value.clone();
            blocked(move || *value.lock().expect("nobody panics") += 1)
        })
        .collect();
    save_point();
    assert!(value.try_lock().is_err(), "it is not held any more");
    assert_eq!(*held, 5);
    *held = 10;
    drop(held);
    waiters
        .into_iter()
        .for_each(|waiter| waiter.join().expect("it gets it"));
    assert_eq!(*value.lock().expect("it is free"), 13);
}

/// Two readers, and a writer that waits for both.
fn rwlock_held() {
    let value = Arc::new(RwLock::new(1));
    let (one, other) = (value.read().expect("free"), value.read().expect("free"));
    let its = value.clone();
    let writer = blocked(move || *its.write().expect("nobody panics") = 2);
    save_point();
    assert!(value.try_write().is_err());
    assert_eq!((*one, *other), (1, 1));
    drop((one, other));
    writer.join().expect("it gets it");
    assert_eq!(*value.read().expect("free"), 2);
}

/// Threads that borrow from the stack of the saving thread.
fn scoped_threads() {
    let numbers: Vec<u64> = (0..1000).collect();
    let lock = Mutex::new(0);
    let held = lock.lock().expect("free");
    thread::scope(|scope| {
        for part in numbers.chunks(100) {
            let lock = &lock;
            scope.spawn(move || *lock.lock().expect("nobody panics") += part.iter().sum::<u64>());
        }
        save_point();
        drop(held);
    });
    assert_eq!(*lock.lock().expect("free"), 499_500);
}

/// One wait ends at its deadline, another when it is woken.
fn condvar_with_time() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let wait = |time: Duration| {
        let pair = pair.clone();
        blocked(move || {
            let (lock, condition) = &*pair;
            let began = Instant::now();
            let held = lock.lock().expect("nobody panics");
            let waited = condition.wait_timeout_while(held, time, |woken| !*woken);
            (
                waited.expect("nobody panics").1.timed_out(),
                began.elapsed(),
            )
        })
    };
    let (short, long) = (
        wait(Duration::from_millis(400)),
        wait(Duration::from_secs(600)),
    );
    save_point();
    let (timed_out, took) = short.join().expect("it ends");
    assert!(
        timed_out && took >= Duration::from_millis(400),
        "after {took:?}: {timed_out}"
    );
    *pair.0.lock().expect("free") = true;
    pair.1.notify_all();
    assert!(!long.join().expect("it ends").0, "it was not woken");
}

/// Threads begin and end while the process is being stopped.
fn threads_that_come_and_go() {
    let end = Arc::new(AtomicBool::new(false));
    let makers: Vec<_> = (0..3)
        .map(|_| {
            let end = end.clone();
            thread::spawn(move || {
                let mut made = 0u64;
                while !end.load(SeqCst) {
                    made += thread::spawn(|| 1u64).join().expect("it ends");
                }
                made
            })
        })
        .collect();
    save_point();
    end.store(true, SeqCst);
    for maker in makers {
        maker.join().expect("it makes threads");
    }
}

/// The first thread waits, and another thread saves.
fn saved_by_a_thread() {
    let (give, take) = mpsc::channel();
    let first = tid();
    // The default action of this signal is to do nothing.
    let signal = Some(rustix::process::Signal::URG);
    rustix::process::set_parent_process_death_signal(signal).expect("it may be asked for");
    let saver = thread::spawn(move || {
        until_asleep(first);
        let words: HashMap<u32, String> = (0..100).map(|n| (n, n.to_string())).collect();
        save_point();
        assert!(words.iter().all(|(n, word)| word.parse() == Ok(*n)));
        assert_eq!(rustix::process::parent_process_death_signal(), Ok(None));
        give.send(words.len()).expect("somebody waits");
    });
    assert_eq!(take.recv(), Ok(100));
    saver.join().expect("its words are as they were");
    assert_eq!(rustix::process::parent_process_death_signal(), Ok(signal));
    let leader = rustix::process::getpid().as_raw_nonzero().get();
    assert_eq!(tid(), leader, "the first thread is not the first any more");
}

/// Each thread keeps its name.
fn thread_names() {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().expect("free");
    let threads: Vec<_> = (0..5)
        .map(|n| {
            let lock = lock.clone();
            let work = move || {
                drop(lock.lock());
                let name = format!("/proc/self/task/{}/comm", tid());
                let name = fs::read_to_string(name).expect("a name");
                assert_eq!(name, format!("named {n}\n"));
            };
            let builder = thread::Builder::new().name(format!("named {n}"));
            builder.spawn(work).expect("a thread can be had")
        })
        .collect();
    save_point();
    drop(held);
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("it has its name"));
}
