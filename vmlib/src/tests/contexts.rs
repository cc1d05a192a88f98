//! Contexts, and receives by lists and conditions.

use super::relay::{PATIENCE, Relay, tid};
use crate::{ANY, ContextId, RecvError, TaskError};
use std::{sync::Barrier, thread, time::Duration};

#[test]
fn a_message_is_received_in_its_context_alone() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let of_a = a.context().unwrap();
    let of_b = b.in_context(of_a.context_id());
    let other = b.context().unwrap();
    assert_ne!(other.context_id(), of_a.context_id());
    assert_eq!(b.context_id(), ContextId::PROGRAM);
    for (handle, value) in [(&a, 1), (&of_a, 2)] {
        handle.send(b.tid(), 7, &value).unwrap();
        handle
            .start_send(b.tid(), 7, &(10 * value))
            .unwrap()
            .wait()
            .unwrap();
        handle.multicast(&[b.tid()], 7, &(100 * value)).unwrap();
    }
    // All have come with that one.
    a.send(b.tid(), 9, &()).unwrap();
    b.recv(a.tid(), 9).unwrap();
    assert_eq!(of_b.probe(ANY, 7).unwrap().map(|found| found.tag), Some(7));
    let mut into = [0; 1];
    assert_eq!(of_b.recv_into(a.tid(), 7, &mut into).unwrap().len, 1);
    assert_eq!(into, [2]);
    let started = of_b.start_recv(ANY, ANY).unwrap().wait().unwrap();
    assert_eq!(started.message().map(|it| it.value()), Some(Ok(20)));
    assert_eq!(of_b.recv(ANY, ANY).unwrap().value(), Ok(200));
    assert_eq!(of_b.try_recv(ANY, ANY).unwrap(), None);
    assert_eq!(other.try_recv(ANY, ANY).unwrap(), None);
    for value in [1, 10, 100] {
        assert_eq!(b.recv(a.tid(), 7).unwrap().value(), Ok(value));
    }
}

#[test]
fn the_number_of_a_group_is_no_context() {
    assert_eq!(ContextId::from_number(0), Some(ContextId::PROGRAM));
    assert!(ContextId::from_number(u32::MAX / 2).is_some());
    assert_eq!(ContextId::from_number(u32::MAX / 2 + 1), None);
}

#[test]
fn a_list_selects_the_first_message_with_one_of_its_sources_and_tags() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let sources = [a.tid(), b.tid()];
    for (sender, tag) in [(&c, 1), (&a, 3), (&b, 2), (&a, 1), (&b, 1)] {
        sender.send(c.tid(), tag, &tag).unwrap();
        // The next message comes after this one.
        sender.send(c.tid(), 9, &()).unwrap();
        c.recv(sender.tid(), 9).unwrap();
    }
    let received = |tags: &[i32]| {
        let message = c.recv(&sources, tags).unwrap();
        (message.from(), message.tag())
    };
    assert_eq!(received(&[1, 2]), (b.tid(), 2));
    assert_eq!(received(&[1, 2]), (a.tid(), 1));
    assert_eq!(received(&[1, 2]), (b.tid(), 1));
    assert_eq!(c.try_recv(&sources, &[1, 2]).unwrap(), None);
    assert_eq!(c.try_recv(&sources[..0], ANY).unwrap(), None);
    let found = c.probe(&[c.tid(), b.tid()], ANY).unwrap();
    assert_eq!(found.map(|found| found.from), Some(c.tid()));
    assert_eq!(c.recv(ANY, &vec![3, 4]).unwrap().from(), a.tid());
}

#[test]
fn a_condition_takes_a_message_from_between_others() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let (sender, to) = (a.clone_handle(), b.tid());
        let barrier = &barrier;
        scope.spawn(move || {
            for len in [1, 5, 2, 5, 3] {
                sender.send_bytes(to, 1, vec![0; len]).unwrap();
            }
            barrier.wait();
            sender.send_bytes(to, 1, vec![0; 77]).unwrap();
        });
        let five = || b.recv_if(ANY, 1, Some(PATIENCE), |found| found.len == 5);
        assert_eq!(five().unwrap().map(|it| it.len()), Some(5));
        assert_eq!(five().unwrap().map(|it| it.len()), Some(5));
        barrier.wait();
        let long = b.recv_if(&[a.tid()], ANY, None, |found| found.len > 5);
        assert_eq!(long.unwrap().map(|it| it.len()), Some(77));
    });
    let none = b.recv_if(ANY, ANY, Some(Duration::ZERO), |found| found.len > 5);
    assert_eq!(none.unwrap(), None);
    for len in [1, 2, 3] {
        assert_eq!(b.recv(ANY, ANY).unwrap().len(), len);
    }
}

#[test]
fn a_call_within_a_condition_is_an_error() {
    let relay = Relay::new();
    let a = relay.task();
    a.send(a.tid(), 1, &()).unwrap();
    let received = a.recv_if(ANY, 1, None, |_| {
        let within = a.try_recv(ANY, ANY);
        assert!(matches!(
            within,
            Err(RecvError::Task(TaskError::InCallback))
        ));
        true
    });
    assert!(received.unwrap().is_some());
    assert_eq!(a.try_recv(ANY, ANY).unwrap(), None);
}

#[test]
fn a_receive_from_a_list_fails_once_all_of_its_tasks_have_ended() {
    let relay = Relay::new();
    let (a, b, c) = (relay.task(), relay.task(), relay.task());
    let sources = [a.tid(), b.tid()];
    a.send(c.tid(), 1, &"last").unwrap();
    a.exit(3).unwrap();
    assert_eq!(c.recv(&sources, 1).unwrap().value(), Ok("last".to_owned()));
    assert_eq!(c.recv_timeout(&sources, 1, Duration::ZERO).unwrap(), None);
    b.send(c.tid(), 1, &"alive").unwrap();
    assert_eq!(c.recv(&sources, 1).unwrap().from(), b.tid());
    b.exit(4).unwrap();
    match c.recv(&sources, 1) {
        Err(RecvError::Ended { from, .. }) => assert_eq!(from, tid(1)),
        other => panic!("{other:?}"),
    }
}
