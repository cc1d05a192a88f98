//! Started sends and receives.

use super::relay::{PATIENCE, Relay, tid};
use crate::{ANY, Completed, ExitError, Request, StartError, Task, WaitError};
use std::{
    thread,
    time::{Duration, Instant},
};
use vm_wire::limits;

const LONG: usize = 5_000_000;

fn value(completed: Completed) -> u32 {
    let message = completed.message().expect("a message was received");
    message.value().expect("it is a number")
}

#[test]
fn started_receives_get_messages_in_the_order_of_their_starts_and_before_calls() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let mut first = b.start_recv(ANY, 1).unwrap();
    let mut second = b.start_recv(a.tid(), ANY).unwrap();
    assert_eq!(first.test().unwrap(), None);
    for n in 0..3u32 {
        a.send(b.tid(), 1, &n).unwrap();
    }
    assert_eq!(b.recv(ANY, ANY).unwrap().value(), Ok(2u32));
    assert_eq!(b.probe(ANY, ANY).unwrap(), None);
    assert_eq!(value(second.wait().unwrap()), 1);
    assert_eq!(value(first.test().unwrap().unwrap()), 0);
    assert!(!first.is_open());
    assert!(matches!(first.wait(), Err(WaitError::NotOpen)));
}

#[test]
fn a_cancelled_receive_leaves_its_message_to_others() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let cancelled = b.start_recv(ANY, 1).unwrap();
    let mut other = b.start_recv(ANY, ANY).unwrap();
    a.send(b.tid(), 1, &1u32).unwrap();
    a.send(b.tid(), 2, &2u32).unwrap();
    a.send(b.tid(), 3, &3u32).unwrap();
    b.recv(ANY, 3).unwrap();
    cancelled.cancel();
    assert_eq!(value(other.wait().unwrap()), 1);
    assert_eq!(b.recv(ANY, ANY).unwrap().value(), Ok(2u32));
}

#[test]
fn started_sends_go_on_while_their_sender_waits_for_something_else() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let a_tid = a.tid();
    let mut requests = [1u8, 2, 3].map(|n| {
        let body = vec![n; LONG];
        a.start_send_bytes(b.tid(), 1, body).unwrap()
    });
    assert_eq!(requests[2].test().unwrap(), None);
    let receiver = thread::spawn(move || {
        for n in 1..=3u8 {
            let message = b.recv(a_tid, 1).unwrap();
            assert_eq!((message.len(), message.bytes()[LONG - 1]), (LONG, n));
        }
        // The sender is in `recv` all the time.
        b.send(a_tid, 2, "all").unwrap();
        assert_eq!(b.recv(a_tid, 1).unwrap().value(), Ok(4u32));
    });
    a.recv(ANY, 2).unwrap();
    let done = a.wait_all(&mut requests).unwrap();
    assert_eq!(done, [Completed::Sent, Completed::Sent, Completed::Sent]);
    a.send(tid(2), 1, &4u32).unwrap();
    receiver.join().unwrap();
}

#[test]
fn a_send_waits_for_started_sends_to_the_same_receiver() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let b_tid = b.tid();
    let sender = thread::spawn(move || {
        for n in 0..10u32 {
            // The request is dropped: its message is sent all the same.
            drop(
                a.start_send_bytes(b_tid, 1, vec![n as u8; LONG / 2])
                    .unwrap(),
            );
            a.send(b_tid, 2, &n).unwrap();
        }
    });
    for n in 0..10u32 {
        let long = b.recv(ANY, ANY).unwrap();
        assert_eq!((long.tag(), long.bytes()[0]), (1, n as u8));
        assert_eq!(b.recv(ANY, ANY).unwrap().value(), Ok(n));
    }
    sender.join().unwrap();
}

#[test]
fn two_tasks_exchange_long_messages_by_requests_alone() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (a_tid, b_tid) = (a.tid(), b.tid());
    let ends = [(a, b_tid), (b, a_tid)].map(|(me, peer)| {
        thread::spawn(move || {
            let mut requests: Vec<Request> = Vec::new();
            for n in 0..4u8 {
                requests.push(me.start_recv(peer, i32::from(n)).unwrap());
                let body = vec![n; LONG];
                requests.push(me.start_send_bytes(peer, i32::from(n), body).unwrap());
            }
            let mut received = 0;
            while let Some((index, completed)) = me.wait_any(&mut requests).unwrap() {
                if let Completed::Received(message) = completed {
                    assert_eq!(message.tag() as usize * 2, index);
                    assert_eq!(message.bytes(), vec![message.tag() as u8; LONG]);
                    received += 1;
                }
            }
            assert_eq!(received, 4);
        })
    });
    for end in ends {
        end.join().unwrap();
    }
}

#[test]
fn messages_that_were_asked_for_do_not_fill_the_inbox() {
    let relay = Relay::new();
    relay.with(|inner| inner.inbox_bytes = 200_000);
    let (a, b) = (relay.task(), relay.task());
    let mut requests = [1, 2, 3].map(|tag| b.start_recv(ANY, tag).unwrap());
    let b_tid = b.tid();
    let sender = thread::spawn(move || {
        for tag in [1, 2, 3] {
            a.send_bytes(b_tid, tag, vec![0; 1_000_000]).unwrap();
        }
        a.send_bytes(b_tid, 4, vec![0; 300_000]).unwrap();
        a
    });
    assert_eq!(b.wait_all(&mut requests).unwrap().len(), 3);
    sender.join().unwrap();
    let mut none = b.start_recv(ANY, 5).unwrap();
    assert!(matches!(none.wait(), Err(WaitError::Recv(_))));
    b.recv(ANY, 4).unwrap();
    assert_eq!(none.test().unwrap(), None);
    assert!(none.is_open());
}

#[test]
fn a_full_inbox_holds_a_started_send_up_and_loses_nothing_of_it() {
    let relay = Relay::new();
    relay.with(|inner| inner.inbox_bytes = 200_000);
    let (a, b) = (relay.task(), relay.task());
    b.send_bytes(a.tid(), 1, vec![0; 300_000]).unwrap();
    let begun = Instant::now();
    while a.probe(ANY, 1).unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE);
    }
    let mut request = a.start_send_bytes(b.tid(), 2, vec![7; LONG]).unwrap();
    assert!(matches!(request.wait(), Err(WaitError::Send(_))));
    assert!(a.send(b.tid(), 3, "behind it").is_err());
    a.recv(ANY, 1).unwrap();
    let receiver = thread::spawn(move || b.recv(ANY, ANY).unwrap().into_bytes());
    assert_eq!(request.wait().unwrap(), Completed::Sent);
    assert_eq!(receiver.join().unwrap(), vec![7; LONG]);
}

#[test]
fn an_exit_sends_started_messages_first() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let request = a.start_send_bytes(b.tid(), 1, vec![5; LONG]).unwrap();
    let leaver = thread::spawn(move || a.exit(0));
    assert_eq!(b.recv(ANY, 1).unwrap().bytes(), vec![5; LONG]);
    leaver.join().unwrap().unwrap();
    drop(request);
}

#[test]
fn an_exit_gives_started_messages_up_that_nobody_takes() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let _request = a.start_send_bytes(b.tid(), 1, vec![5; LONG]).unwrap();
    let limit = Duration::from_millis(20);
    let error = a.shared.leave_within(0, limit).unwrap_err();
    assert!(
        matches!(error, ExitError::Unsent { count: 1, to, time } if to == b.tid() && time == limit)
    );
}

#[test]
fn open_requests_are_bounded() {
    let relay = Relay::new();
    let a = relay.task();
    let start = |task: &Task| task.start_recv(ANY, 1);
    let requests: Vec<Request> = (0..limits::OPEN_REQUESTS_MAX)
        .map(|_| start(&a).unwrap())
        .collect();
    assert!(matches!(start(&a), Err(StartError::TooMany)));
    drop(requests);
    assert!(start(&a).is_ok());
}
