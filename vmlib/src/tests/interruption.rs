//! Calls that are left while they wait.

use super::relay::Relay;
use crate::{ANY, RecvError, RequestError, SendError, Task, TaskError, interruptible};
use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

thread_local! {
    static QUESTIONS: Cell<u32> = const { Cell::new(0) };
}

/// Leaves the call at the second question.
fn second() -> bool {
    QUESTIONS.set(QUESTIONS.get() + 1);
    QUESTIONS.get() == 2
}

fn leaving<T>(calls: impl FnOnce() -> T) -> T {
    QUESTIONS.set(0);
    interruptible(second, calls)
}

#[test]
fn a_receive_is_left_and_the_next_one_gets_the_message() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let begun = Instant::now();
    let left = leaving(|| b.recv(ANY, 1));
    assert!(matches!(left, Err(RecvError::Task(TaskError::Interrupted))));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    a.send(b.tid(), 1, "late").unwrap();
    let late = leaving(|| b.recv(ANY, 1)).unwrap();
    assert_eq!(late.value(), Ok("late".to_owned()));
}

#[test]
fn a_call_that_waits_for_nothing_asks_nothing() {
    let relay = Relay::new();
    let a = relay.task();
    leaving(|| {
        for n in 0..100u32 {
            a.send(a.tid(), 1, &n).unwrap();
            a.recv(ANY, 1).unwrap();
        }
    });
    assert_eq!(QUESTIONS.get(), 0);
}

#[test]
fn a_question_may_make_calls_itself() {
    fn tells_itself() -> bool {
        let text = ME.with_borrow(|me| {
            let me = me.as_ref().unwrap();
            me.send(me.tid(), 2, "told").unwrap();
            me.recv(ANY, 2).unwrap().value::<String>()
        });
        text == Ok("told".to_owned())
    }
    thread_local! {
        static ME: std::cell::RefCell<Option<Task>> = const { std::cell::RefCell::new(None) };
    }
    let relay = Relay::new();
    let a = relay.task();
    ME.set(Some(a.clone_handle()));
    let left = interruptible(tells_itself, || a.recv(ANY, 1));
    assert!(matches!(left, Err(RecvError::Task(TaskError::Interrupted))));
}

#[test]
fn a_send_that_was_left_is_received_as_a_whole_or_not_at_all() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let to = b.tid();
    let left = leaving(|| a.send_bytes(to, 1, vec![1; 5_000_000]));
    assert!(matches!(left, Err(SendError::Task(TaskError::Interrupted))));
    let sender = thread::spawn(move || a.send_bytes(to, 1, vec![2; 5_000_000]).unwrap());
    assert_eq!(b.recv(ANY, 1).unwrap().bytes(), [2; 5_000_000]);
    sender.join().unwrap();
}

#[test]
fn a_multicast_is_left_for_those_that_do_not_take_it() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let to = [b.tid(), c.tid()];
    let left = leaving(|| a.multicast_bytes(&to, 1, vec![1; 5_000_000]));
    assert!(matches!(left, Err(SendError::Task(TaskError::Interrupted))));
    let sender = thread::spawn(move || a.multicast_bytes(&to, 1, vec![2; 5_000_000]).unwrap());
    for receiver in [&b, &c] {
        assert_eq!(receiver.recv(ANY, 1).unwrap().bytes(), [2; 5_000_000]);
    }
    sender.join().unwrap();
}

#[test]
fn a_request_that_was_left_does_not_hold_up_the_next_one() {
    let relay = Relay::new();
    let a = relay.task();
    relay.with(|inner| inner.deaf = 1);
    let left = leaving(|| a.hosts());
    assert!(matches!(
        left,
        Err(RequestError::Task(TaskError::Interrupted))
    ));
    assert_eq!(a.hosts().unwrap(), []);
}
