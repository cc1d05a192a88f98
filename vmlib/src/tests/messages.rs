//! Sending and receiving.

use super::relay::{PATIENCE, Relay, tid};
use crate::{ANY, Bytes, Event, Incoming, RecvError, SendError, TaskError};
use std::{
    thread,
    time::{Duration, Instant},
};
use vm_wire::{Header, HostId, Message as _, Op, agreed::ExitStatus, task::Ended};

#[test]
fn every_kind_of_message_arrives_as_it_was_sent() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let long: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();

    a.send(b.tid(), 1, &("text", 7u64, vec![Some(1.5)]))
        .unwrap();
    a.send_bytes(b.tid(), -2, Bytes::new()).unwrap();
    a.send_slice(b.tid(), i32::MAX, &[1i16, -2, 3]).unwrap();
    let sender = thread::spawn({
        let (to, long) = (b.tid(), long.clone());
        move || a.send_bytes(to, 4, long).unwrap()
    });

    let value: (String, u64, Vec<Option<f64>>) = b.recv(ANY, 1).unwrap().value().unwrap();
    assert_eq!(value, ("text".to_owned(), 7, vec![Some(1.5)]));
    let empty = b.recv(tid(1), -2).unwrap();
    assert!(empty.is_empty() && empty.from() == tid(1) && empty.tag() == -2);
    let numbers = b.recv(ANY, i32::MAX).unwrap();
    assert_eq!(&numbers.slice::<i16>().unwrap()[..], [1, -2, 3]);
    assert!(numbers.slice::<i32>().is_err());
    assert_eq!(b.recv(tid(1), 4).unwrap().into_bytes(), long);
    sender.join().unwrap();
}

#[test]
fn a_receive_selects_and_a_wildcard_keeps_each_senders_order() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    for n in 0..100u32 {
        a.send(c.tid(), (n % 3) as i32, &n).unwrap();
        b.send(c.tid(), (n % 3) as i32, &n).unwrap();
    }
    for n in (0..100u32).filter(|n| n % 3 == 1) {
        assert_eq!(c.recv(a.tid(), 1).unwrap().value(), Ok(n));
    }
    let mut next = [0; 2];
    for _ in 0..(100 + 67) {
        let message = c.recv(ANY, ANY).unwrap();
        let sender = usize::from(message.from() == b.tid());
        if sender == 0 && next[0] % 3 == 1 {
            next[0] += 1;
        }
        assert_eq!(message.value(), Ok(next[sender]));
        next[sender] += 1;
    }
    assert_eq!(c.try_recv(ANY, ANY).unwrap(), None);
}

#[test]
fn a_multicast_reaches_each_and_one_receiver_twice_if_named_twice() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let long = vec![9; 3_000_000];
    let to = [b.tid(), c.tid(), b.tid()];
    let sender = thread::spawn({
        let long = long.clone();
        move || a.multicast_bytes(&to, 1, long).unwrap()
    });
    for receiver in [&b, &c, &b] {
        assert_eq!(receiver.recv(ANY, 1).unwrap().bytes(), long);
    }
    sender.join().unwrap();
}

#[test]
fn a_task_can_send_to_itself() {
    let relay = Relay::new();
    let a = relay.task();
    a.send(a.tid(), 1, "note").unwrap();
    assert_eq!(a.recv(a.tid(), 1).unwrap().value(), Ok("note".to_owned()));
}

#[test]
fn a_limited_receive_ends_in_time_and_a_probe_leaves_the_message() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    assert_eq!(b.try_recv(ANY, ANY).unwrap(), None);
    assert_eq!(b.probe(ANY, ANY).unwrap(), None);
    let begun = Instant::now();
    let limit = Duration::from_millis(30);
    assert_eq!(b.recv_timeout(ANY, ANY, limit).unwrap(), None);
    assert!(begun.elapsed() >= limit);

    a.send(b.tid(), 5, "here").unwrap();
    let begun = Instant::now();
    let envelope = loop {
        if let Some(envelope) = b.probe(a.tid(), ANY).unwrap() {
            break envelope;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    assert_eq!((envelope.from, envelope.tag), (a.tid(), 5));
    let message = b.try_recv(a.tid(), 5).unwrap().unwrap();
    assert_eq!(message.len(), envelope.len);
}

#[test]
fn two_tasks_may_send_each_other_100_megabytes_before_they_receive() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (a_tid, b_tid) = (a.tid(), b.tid());
    let ends = [(a, b_tid), (b, a_tid)].map(|(me, peer)| {
        thread::spawn(move || {
            for n in 0..10u8 {
                me.send_bytes(peer, 1, vec![n; 10_000_000]).unwrap();
            }
            for n in 0..10u8 {
                let message = me.recv(peer, 1).unwrap();
                assert_eq!((message.len(), message.bytes()[9_999_999]), (10_000_000, n));
            }
        })
    });
    for end in ends {
        end.join().unwrap();
    }
}

#[test]
fn a_full_inbox_is_an_error_that_names_the_sender_and_not_a_silent_block() {
    let relay = Relay::new();
    relay.with(|inner| inner.inbox_bytes = 200_000);
    let (a, b) = (relay.task(), relay.task());
    b.send_bytes(a.tid(), 1, vec![0; 300_000]).unwrap();

    let error = a.recv(ANY, 2).unwrap_err();
    assert!(matches!(error, RecvError::InboxFull { from, .. } if from == b.tid()));
    let error = a.send_bytes(b.tid(), 1, vec![0; 10_000_000]).unwrap_err();
    assert!(matches!(error, SendError::InboxFull { to, .. } if to == b.tid()));

    // The half message is given up, the next one arrives.
    assert_eq!(a.recv(ANY, 1).unwrap().len(), 300_000);
    let sender = thread::spawn(move || a.send(tid(2), 3, "whole").unwrap());
    assert_eq!(b.recv(ANY, ANY).unwrap().value(), Ok("whole".to_owned()));
    sender.join().unwrap();
}

#[test]
fn a_lost_chunk_is_sent_again() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    relay.with(|inner| inner.lose = 1);
    a.send(b.tid(), 1, &1u8).unwrap();
    // Repetitions are made within calls.
    let sender = thread::spawn(move || a.recv_timeout(ANY, 2, PATIENCE).unwrap());
    assert_eq!(b.recv(ANY, 1).unwrap().value(), Ok(1u8));
    b.send(tid(1), 2, &2u8).unwrap();
    assert_eq!(sender.join().unwrap().unwrap().value(), Ok(2u8));
}

#[test]
fn an_order_ends_a_wait_and_the_wait_goes_on() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let receiver = thread::spawn(move || b.recv(ANY, 1).unwrap().value::<u8>().unwrap());
    for number in [1, 2, 1] {
        relay.interrupt(tid(2), number);
    }
    a.send(tid(2), 1, &9u8).unwrap();
    assert_eq!(receiver.join().unwrap(), 9);
}

#[test]
fn the_end_of_a_task_is_told_after_its_last_message() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    b.watch_task(a.tid()).unwrap();
    // The notify of an end after one chunk comes before the chunk.
    let ended = Ended {
        tid: a.tid(),
        status: ExitStatus::Left(0),
        last: Some(1),
        keeper: HostId(1),
        watched: true,
    };
    relay.tell(b.tid(), ended.frame());
    assert_eq!(b.recv_event(Some(Duration::from_millis(20))).unwrap(), None);
    a.send(b.tid(), 1, "last").unwrap();
    let next = || b.next(ANY, ANY, Some(PATIENCE)).unwrap().unwrap();
    assert!(matches!(next(), Incoming::Message(message) if message.tag() == 1));
    let event = Event::TaskEnded {
        tid: a.tid(),
        status: ExitStatus::Left(0),
    };
    assert_eq!(next(), Incoming::Event(event));
}

#[test]
fn a_receive_from_a_task_that_ends_fails_after_all_its_messages_and_one_from_any_waits_on() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let (from, to) = (a.tid(), b.tid());
    let waits = thread::spawn(move || {
        let first: u8 = b.recv(from, 1).unwrap().value().unwrap();
        let second: u8 = b.recv(from, 1).unwrap().value().unwrap();
        let end = b.recv(from, 1).unwrap_err();
        assert_eq!((first, second), (1, 2));
        (b, end)
    });
    // It asks for the end while it waits, once.
    while relay.with(|inner| inner.awaited.is_empty()) {
        thread::yield_now();
    }
    a.send(to, 1, &1u8).unwrap();
    a.send(to, 2, "another tag").unwrap();
    a.send(to, 1, &2u8).unwrap();
    a.exit(4).unwrap();
    let (b, end) = waits.join().unwrap();
    let status = ExitStatus::Left(4);
    assert!(
        matches!(end, RecvError::Ended { from, status: it } if from == a.tid() && it == status)
    );
    assert_eq!(relay.with(|inner| inner.awaited.clone()), [(to, from)]);

    assert!(matches!(b.try_recv(from, 1), Err(RecvError::Ended { .. })));
    assert!(matches!(b.probe(from, 1), Err(RecvError::Ended { .. })));
    assert!(matches!(
        b.next(from, 1, None),
        Err(RecvError::Ended { .. })
    ));
    assert_eq!(
        b.recv(from, 2).unwrap().value(),
        Ok("another tag".to_owned())
    );
    assert_eq!(b.recv_event(Some(Duration::ZERO)).unwrap(), None);
    c.send(to, 1, &3u8).unwrap();
    assert_eq!(b.recv(ANY, 1).unwrap().value(), Ok(3u8));
    assert_eq!(b.try_recv(ANY, ANY).unwrap(), None);
}

#[test]
fn a_program_that_only_ever_tries_learns_of_the_end_too() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    a.exit(0).unwrap();
    let begun = Instant::now();
    while b
        .try_recv(a.tid(), 1)
        .is_ok_and(|received| received.is_none())
    {
        assert!(begun.elapsed() < PATIENCE);
    }
    assert!(matches!(
        b.try_recv(a.tid(), 1),
        Err(RecvError::Ended { .. })
    ));
}

#[test]
fn a_message_to_what_is_no_task_is_an_error_of_the_call() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    for nobody in [vm_wire::Tid::NONE, tid(0)] {
        let sent = a.multicast(&[b.tid(), nobody], 1, "nothing");
        assert!(matches!(sent, Err(SendError::NoTask { to }) if to == nobody));
    }
    a.send(b.tid(), 1, "something").unwrap();
    assert_eq!(
        b.recv(a.tid(), 1).unwrap().value(),
        Ok("something".to_owned())
    );
    assert_eq!(b.try_recv(ANY, ANY).unwrap(), None);
}

#[test]
fn what_was_sent_before_an_exit_is_left_to_the_daemon_and_later_calls_fail() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    b.watch_task(a.tid()).unwrap();
    relay.with(|inner| inner.lose = 2);
    a.send(b.tid(), 1, &1u8).unwrap();
    a.send(b.tid(), 1, &2u8).unwrap();
    a.exit(4).unwrap();

    let kept = relay.with(|inner| inner.kept.clone());
    let numbers: Vec<u64> = kept.iter().map(|frame| frame.header.seq).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(kept.iter().all(|frame| frame.header.flags == Header::KEEP));
    assert!(matches!(
        a.send(b.tid(), 1, &3u8),
        Err(SendError::Task(TaskError::Left))
    ));
    assert!(a.exit(0).is_err());

    assert_eq!(b.recv(ANY, 1).unwrap().value(), Ok(1u8));
    assert_eq!(b.recv(ANY, 1).unwrap().value(), Ok(2u8));
    let event = Event::TaskEnded {
        tid: a.tid(),
        status: ExitStatus::Left(4),
    };
    assert_eq!(b.recv_event(Some(PATIENCE)).unwrap(), Some(event));
    assert!(relay.with(|inner| inner.asked.iter().any(|(_, op, _)| *op == Op::Exit)));
}

#[test]
fn one_thread_may_wait_while_another_sends_and_asks() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let other = b.clone_handle();
    let waiting = thread::spawn(move || other.recv(ANY, 1).unwrap().value::<u8>().unwrap());
    for n in 0..50u8 {
        b.hosts().unwrap();
        b.send(a.tid(), 2, &n).unwrap();
        assert_eq!(a.recv(ANY, 2).unwrap().value(), Ok(n));
        a.send(b.tid(), 3, &n).unwrap();
        assert_eq!(b.recv(ANY, 3).unwrap().value(), Ok(n));
    }
    a.send(b.tid(), 1, &7u8).unwrap();
    assert_eq!(waiting.join().unwrap(), 7);
}

#[test]
fn threads_that_send_to_one_receiver_do_not_mix_their_messages() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let senders: Vec<_> = (0..3u8)
        .map(|thread| {
            let (a, to) = (a.clone_handle(), b.tid());
            thread::spawn(move || {
                for _ in 0..5 {
                    a.send_bytes(to, 1, vec![thread; 2_000_000]).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..15 {
        let message = b.recv(ANY, 1).unwrap();
        let first = message.bytes()[0];
        assert!(message.len() == 2_000_000 && message.bytes().iter().all(|byte| *byte == first));
    }
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
}
