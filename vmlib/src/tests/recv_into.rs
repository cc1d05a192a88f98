//! Receives into buffers of the program.

use super::relay::{PATIENCE, Relay};
use crate::{ANY, Envelope, ExitStatus, RecvError, RecvIntoError};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Longer than the window: such a message comes in parts.
const LONG: usize = 5_000_000;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

#[test]
fn messages_of_every_length_come_into_the_buffer_whether_they_came_before_or_are_awaited() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (a_tid, b_tid) = (a.tid(), b.tid());
    let lengths = [0, 8, 1000, 65_536, 65_537, 1 << 20, LONG];
    let sender = thread::spawn(move || {
        for (number, len) in lengths.into_iter().enumerate() {
            a.send_bytes(b_tid, 1, bytes(len, number)).unwrap();
            if number % 2 == 0 {
                // The receiver waits for that first, and then finds the long one in its inbox.
                a.send(b_tid, 2, &()).unwrap();
            }
        }
    });
    let mut buffer = vec![0; LONG + 1];
    for (number, len) in lengths.into_iter().enumerate() {
        if number % 2 == 0 {
            b.recv(ANY, 2).unwrap();
        }
        let found = b.recv_into(a_tid, 1, &mut buffer).unwrap();
        let (from, tag) = (a_tid, 1);
        assert_eq!(found, Envelope { from, tag, len });
        assert!(buffer[..len] == bytes(len, number), "message {number}");
    }
    sender.join().unwrap();
}

#[test]
fn numbers_come_as_they_were_sent() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let sent = [1.5f64, -0.0, f64::MAX];
    a.send_slice(b.tid(), 1, &sent).unwrap();
    let mut numbers = [7.0; 4];
    let found = b.recv_slice_into(ANY, ANY, &mut numbers).unwrap();
    assert_eq!((found.len, numbers), (24, [1.5, -0.0, f64::MAX, 7.0]));
    b.send_bytes(b.tid(), 1, vec![0; 12]).unwrap();
    match b.recv_slice_into(ANY, ANY, &mut numbers) {
        Err(RecvIntoError::NoNumbers { len: 12, size, .. }) => assert_eq!(size, 8),
        other => panic!("{other:?}"),
    }
    assert_eq!(b.recv(ANY, ANY).unwrap().len(), 12);
}

#[test]
fn a_message_that_is_longer_than_the_buffer_stays_in_the_inbox() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let b_tid = b.tid();
    let sender = thread::spawn(move || {
        a.send_bytes(b_tid, 1, bytes(LONG, 1)).unwrap();
        a.send_bytes(b_tid, 1, bytes(8, 2)).unwrap();
    });
    let mut short = vec![0; LONG - 1];
    // The short message is behind the long one.
    for _ in 0..2 {
        match b.recv_into(ANY, 1, &mut short) {
            Err(RecvIntoError::TooLong { len, room, .. }) => {
                assert_eq!((len, room), (LONG, LONG - 1));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(b.recv(ANY, 1).unwrap().bytes() == bytes(LONG, 1));
    assert_eq!(b.recv_into(ANY, 1, &mut short).unwrap().len, 8);
    assert_eq!(short[..8], bytes(8, 2));
    sender.join().unwrap();
}

#[test]
fn calls_that_leave_lose_no_part_of_a_message() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let b_tid = b.tid();
    let count = 4;
    let sender = thread::spawn(move || {
        for number in 0..count {
            a.send_bytes(b_tid, 1, bytes(LONG, number)).unwrap();
        }
    });
    let mut buffer = vec![0; LONG];
    let mut left = 0;
    for number in 0..count {
        let begin = Instant::now();
        loop {
            buffer.fill(0xee);
            let time = Duration::from_micros(200 * number as u64);
            let found = b.recv_into_timeout(ANY, 1, &mut buffer, time).unwrap();
            if found.is_some() {
                break;
            }
            left += 1;
            assert!(begin.elapsed() < PATIENCE);
        }
        assert!(buffer == bytes(LONG, number), "message {number}");
    }
    assert!(left > 0, "no call has left");
    sender.join().unwrap();
}

#[test]
fn threads_that_receive_at_once_get_their_own_messages() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let b_tid = b.tid();
    let go = Barrier::new(4);
    let count = 5;
    thread::scope(|scope| {
        for tag in 1..=3i32 {
            let (a, b, go) = (a.clone_handle(), b.clone_handle(), &go);
            scope.spawn(move || {
                let mut buffer = vec![0; LONG];
                go.wait();
                for number in 0..count {
                    let seed = number * tag as usize;
                    match tag {
                        1 => {
                            let message = b.recv(ANY, tag).unwrap();
                            assert!(message.bytes() == bytes(LONG / 4, seed));
                        }
                        _ => {
                            let found = b.recv_into(ANY, tag, &mut buffer).unwrap();
                            assert!(buffer[..found.len] == bytes(LONG / 4, seed));
                        }
                    }
                }
                drop(a);
            });
        }
        let a = a.clone_handle();
        let go = &go;
        scope.spawn(move || {
            go.wait();
            for number in 0..count {
                for tag in 1..=3i32 {
                    let body = bytes(LONG / 4, number * tag as usize);
                    a.send_bytes(b_tid, tag, body).unwrap();
                }
            }
        });
    });
}

#[test]
fn the_end_of_the_sender_is_an_error_and_the_task_can_go_on() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let a_tid = a.tid();
    a.send_bytes(b.tid(), 2, vec![5; 8]).unwrap();
    a.exit(3).unwrap();
    let mut buffer = [0; 8];
    match b.recv_into(a_tid, 1, &mut buffer) {
        Err(RecvIntoError::Recv(RecvError::Ended { from, status })) => {
            assert_eq!((from, status), (a_tid, ExitStatus::Left(3)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(b.recv_into(a_tid, ANY, &mut buffer).unwrap().tag, 2);
    assert_eq!(buffer, [5; 8]);
}
