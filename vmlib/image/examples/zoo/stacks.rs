//! Stacks, which continue to grow, and thread-locals.

use crate::point::{save_point, until};
use std::{
    cell::{Cell, RefCell},
    hint::black_box,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
};

/// The programs of this file.
pub const PROGRAMS: &[(&str, fn())] = &[
    ("deep_stack", deep_stack),
    ("deep_stack_of_a_thread", deep_stack_of_a_thread),
    ("thread_locals", thread_locals),
    ("panic_caught", panic_caught),
];

/// Recursive frames of 4 KiB each, which check their content after each call.
fn frame(number: u32, turn: u32, end: u32) -> u64 {
    let mut room = [u64::from(number); 512];
    black_box(&mut room);
    if number == turn {
        save_point();
    }
    let deeper = match number < end {
        true => frame(number + 1, turn, end),
        false => 0,
    };
    black_box(&mut room);
    assert!(
        room.iter().all(|word| *word == u64::from(number)),
        "frame {number}"
    );
    deeper + room[511]
}

/// The first thread's stack grows on demand: ten times as deep as at the save.
fn deep_stack() {
    let sum = frame(0, 150, 1500);
    assert_eq!(sum, (0..=1500).sum::<u64>());
}

/// A thread's stack has a fixed size.
fn deep_stack_of_a_thread() {
    let builder = thread::Builder::new().stack_size(8 << 20);
    let thread = builder
        .spawn(|| frame(0, 10, 1500))
        .expect("a thread can be had");
    let sum = thread.join().expect("its stack is as it was");
    assert_eq!(sum, (0..=1500).sum::<u64>());
}

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Kept(Vec<u32>);

impl Drop for Kept {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0[0], SeqCst);
    }
}

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static KEPT: RefCell<Kept> = RefCell::new(Kept(vec![0]));
}

/// Each thread keeps its own values, which are dropped when it ends.
fn thread_locals() {
    let (before, after) = (Arc::new(Barrier::new(11)), Arc::new(Barrier::new(11)));
    let threads: Vec<_> = (1..=10)
        .map(|n| {
            let (before, after) = (before.clone(), after.clone());
            thread::spawn(move || {
                NUMBER.set(n);
                KEPT.with_borrow_mut(|kept| kept.0 = vec![n; 100]);
                before.wait();
                after.wait();
                assert_eq!(NUMBER.get(), n);
                KEPT.with_borrow(|kept| assert_eq!(kept.0, vec![n; 100]));
            })
        })
        .collect();
    NUMBER.set(500);
    before.wait();
    save_point();
    assert_eq!((NUMBER.get(), DROPPED.load(SeqCst)), (500, 0));
    after.wait();
    for thread in threads {
        thread.join().expect("its values are as they were");
    }
    until("all values are dropped", || DROPPED.load(SeqCst) == 55);
}

/// Unwinding passes through frames from before the save.
fn panic_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| {
        let _kept = Kept(vec![3]);
        save_point();
        std::panic::panic_any(17u8);
    });
    let what = caught.expect_err("it panics");
    assert_eq!(what.downcast_ref::<u8>(), Some(&17));
    assert_eq!(DROPPED.load(SeqCst), 3);
    let _ = std::panic::take_hook();
}
