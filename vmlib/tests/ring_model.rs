//! The order of the steps of a ring, under every order that the memory of a computer allows.
//!
//! Loom runs each model with all orders of its threads and all values that a load may return. The steps
//! are those of `ring/lane.rs`, `ring/writer.rs`, `ring/watch.rs` and `ring/area.rs`, on words of loom in
//! the place of words in shared memory. Each fence that a step needs is a parameter, and a test shows that
//! the model fails without it.

use loom::{
    sync::{
        Arc, Notify,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    thread,
};

const AWAKE: u32 = 0;
const SLEEPS: u32 = 1;
const READS: u32 = 1;
const CLOSED: u32 = 2;

/// Whether a side has the fence between its two steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fence {
    There,
    Missing,
}

impl Fence {
    fn pass(self) {
        if self == Fence::There {
            fence(SeqCst);
        }
    }
}

/// One lane with a slot.
struct Lane {
    state: AtomicU32,
    sleeps: AtomicU32,
    number: AtomicU64,
    word: AtomicU64,
    tail: AtomicU64,
    /// The eventfd of the task that sleeps.
    wake: Notify,
}

impl Lane {
    fn new() -> Arc<Self> {
        Arc::new(Lane {
            state: AtomicU32::new(READS),
            sleeps: AtomicU32::new(AWAKE),
            number: AtomicU64::new(0),
            word: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            wake: Notify::new(),
        })
    }

    /// `Lane::write`.
    fn write(&self, position: u64, word: u64) {
        self.word.store(word, Relaxed);
        self.number.store(position + 1, Release);
    }

    /// `Lane::read`.
    fn read(&self, position: u64) -> Option<u64> {
        (self.number.load(Acquire) == position + 1).then(|| self.word.load(Relaxed))
    }

    /// `writer::wake_if`.
    fn wake(&self, fence: Fence) {
        fence.pass();
        if self.sleeps.load(Relaxed) != AWAKE && self.sleeps.swap(AWAKE, SeqCst) != AWAKE {
            self.wake.notify();
        }
    }

    /// `Watch::sleep`, and the wait for the eventfd unless `is_ready`. A
    /// wait may end early. Loom reports one that nobody ends.
    fn sleep(&self, fence: Fence, is_ready: impl Fn() -> bool) {
        self.sleeps.store(SLEEPS, SeqCst);
        fence.pass();
        if !is_ready() {
            self.wake.wait();
        }
        self.sleeps.store(AWAKE, SeqCst);
    }
}

fn a_reader_sleeps_until_a_chunk_comes(writers: Fence, readers: Fence) {
    loom::model(move || {
        let lane = Lane::new();
        let writer = Arc::clone(&lane);
        let writer = thread::spawn(move || {
            writer.write(0, 7);
            writer.wake(writers);
        });
        while lane.read(0).is_none() {
            lane.sleep(readers, || lane.number.load(Acquire) == 1);
        }
        assert_eq!(lane.read(0), Some(7));
        writer.join().expect("the writer ends");
    });
}

fn a_writer_sleeps_until_there_is_room(writers: Fence, readers: Fence) {
    loom::model(move || {
        let lane = Lane::new();
        lane.write(0, 7);
        let reader = Arc::clone(&lane);
        let reader = thread::spawn(move || {
            assert_eq!(reader.read(0), Some(7));
            // `Lane::set_progress`.
            reader.tail.store(1, Release);
            reader.wake(readers);
        });
        let has_room = || lane.tail.load(Acquire) == 1;
        while !has_room() {
            lane.sleep(writers, has_room);
        }
        lane.write(1, 8);
        assert_eq!(lane.read(1), Some(8));
        reader.join().expect("the reader ends");
    });
}

fn a_chunk_is_kept_by_who_closes_or_goes_by_the_daemon(writers: Fence, readers: Fence) {
    loom::model(move || {
        let lane = Lane::new();
        let writer = Arc::clone(&lane);
        let writer = thread::spawn(move || {
            writer.write(0, 7);
            writers.pass();
            writer.state.load(Acquire) == CLOSED
        });
        // `area::close_all`.
        lane.state.store(CLOSED, Release);
        readers.pass();
        let is_kept = lane.read(0).is_some();
        let goes_by_daemon = writer.join().expect("the writer ends");
        assert!(is_kept || goes_by_daemon, "the chunk is lost");
    });
}

#[test]
fn no_reader_sleeps_through_a_chunk() {
    a_reader_sleeps_until_a_chunk_comes(Fence::There, Fence::There);
}

#[test]
fn no_writer_sleeps_through_room() {
    a_writer_sleeps_until_there_is_room(Fence::There, Fence::There);
}

#[test]
fn no_chunk_is_lost_when_a_reader_closes() {
    a_chunk_is_kept_by_who_closes_or_goes_by_the_daemon(Fence::There, Fence::There);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_sleeps_for_ever_if_the_writer_has_no_fence() {
    a_reader_sleeps_until_a_chunk_comes(Fence::Missing, Fence::There);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_reader_without_a_fence_sleeps_for_ever() {
    a_reader_sleeps_until_a_chunk_comes(Fence::There, Fence::Missing);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_without_a_fence_sleeps_for_ever() {
    a_writer_sleeps_until_there_is_room(Fence::Missing, Fence::There);
}

#[test]
#[should_panic(expected = "the chunk is lost")]
fn a_chunk_is_lost_if_the_writer_has_no_fence() {
    a_chunk_is_kept_by_who_closes_or_goes_by_the_daemon(Fence::Missing, Fence::There);
}

#[test]
#[should_panic(expected = "the chunk is lost")]
fn a_chunk_is_lost_if_the_reader_has_no_fence() {
    a_chunk_is_kept_by_who_closes_or_goes_by_the_daemon(Fence::There, Fence::Missing);
}

/// A slot is written again only after it was read, so each chunk is read once and whole.
#[test]
fn a_slot_that_is_used_again_is_read_whole() {
    loom::model(|| {
        let lane = Lane::new();
        lane.write(0, 7);
        let writer = Arc::clone(&lane);
        let writer = thread::spawn(move || {
            let has_room = writer.tail.load(Acquire) == 1;
            if has_room {
                writer.write(1, 8);
            }
            has_room
        });
        assert_eq!(lane.read(0), Some(7));
        lane.tail.store(1, Release);
        let second = lane.read(1);
        assert!(second.is_none() || second == Some(8));
        if writer.join().expect("the writer ends") {
            assert_eq!(lane.read(1), Some(8));
        }
    });
}
