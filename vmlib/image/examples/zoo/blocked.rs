//! 66 threads, each blocked in one of the ways of the standard library.

use crate::point::{save_point, tid, until, until_asleep};
use std::{
    sync::{
        Arc, Barrier, Condvar, Mutex,
        atomic::{AtomicBool, AtomicI32, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[("many_blocked_threads", many_blocked_threads)];

/// Threads of each kind.
const EACH: usize = 11;

/// Waiting threads, and their ids.
#[derive(Default)]
struct Waiting {
    threads: Vec<JoinHandle<usize>>,
    ids: Vec<Arc<AtomicI32>>,
}

impl Waiting {
    fn add(&mut self, wait: impl FnOnce() -> usize + Send + 'static) {
        let id = Arc::new(AtomicI32::new(0));
        self.ids.push(id.clone());
        self.threads.push(thread::spawn(move || {
            id.store(tid(), SeqCst);
            wait()
        }));
    }
}

fn many_blocked_threads() {
    let mut waiting = Waiting::default();
    let lock = Arc::new(Mutex::new(0usize));
    let held = lock.lock().expect("free");
    let woken = Arc::new((Mutex::new(false), Condvar::new()));
    let barrier = Arc::new(Barrier::new(EACH + 1));
    let unparked = Arc::new(AtomicBool::new(false));
    let mut senders = Vec::new();
    for n in 0..EACH {
        let (give, take) = mpsc::channel();
        senders.push(give);
        let (lock, woken) = (lock.clone(), woken.clone());
        let (barrier, unparked) = (barrier.clone(), unparked.clone());
        waiting.add(move || {
            *lock.lock().expect("nobody panics") += n;
            n
        });
        waiting.add(move || {
            let woken_now = woken
                .1
                .wait_while(woken.0.lock().expect("free"), |woken| !*woken);
            usize::from(*woken_now.expect("nobody panics")) * n
        });
        waiting.add(move || take.recv().expect("somebody sends"));
        waiting.add(move || {
            barrier.wait();
            n
        });
        waiting.add(move || {
            while !unparked.load(SeqCst) {
                thread::park();
            }
            n
        });
        waiting.add(move || {
            let (began, time) = (Instant::now(), Duration::from_millis(400));
            thread::sleep(time);
            assert!(began.elapsed() >= time, "slept {:?}", began.elapsed());
            n
        });
    }
    for id in &waiting.ids[..] {
        until("a thread begins", || id.load(SeqCst) != 0);
    }
    // On a slow host the sleeping threads may have woken; threads that block without a limit must
    // still be blocked.
    for (n, id) in waiting.ids.iter().enumerate() {
        if n % 6 != 5 {
            until_asleep(id.load(SeqCst));
        }
    }
    save_point();
    assert_eq!(*held, 0);
    drop(held);
    *woken.0.lock().expect("free") = true;
    woken.1.notify_all();
    for (n, sender) in senders.iter().enumerate() {
        sender.send(n).expect("somebody waits");
    }
    barrier.wait();
    unparked.store(true, SeqCst);
    waiting
        .threads
        .iter()
        .for_each(|thread| thread.thread().unpark());
    for (n, thread) in waiting.threads.into_iter().enumerate() {
        assert_eq!(thread.join().expect("it ends"), n / 6);
    }
    assert_eq!(*lock.lock().expect("free"), (0..EACH).sum::<usize>());
}
