//! Functions that are called with messages.

use super::relay::{PATIENCE, Relay};
use crate::{ANY, Message, StartError};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::channel,
    thread,
};
use vm_wire::limits;

/// A message that says that all before it have come.
const LAST: i32 = 99;

#[test]
fn a_waiting_call_calls_handlers_in_order_and_no_receive_gets_their_messages() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (handled, of_handler) = channel();
    a.send(b.tid(), 1, &0).unwrap();
    a.send(b.tid(), 1, &1).unwrap();
    let handler = b
        .add_handler(a.tid(), 1, move |_, message: Message| {
            handled.send(message.value::<i32>().unwrap()).unwrap();
        })
        .unwrap();
    let other = b.context().unwrap();
    for value in 2..100 {
        a.send(b.tid(), 1, &value).unwrap();
        a.send(b.tid(), 2, &value).unwrap();
    }
    // Not selected: another sender, another context.
    b.send(b.tid(), 1, &"self").unwrap();
    a.in_context(other.context_id())
        .send(b.tid(), 1, &"library")
        .unwrap();
    for value in 2..100 {
        assert_eq!(b.recv(a.tid(), ANY).unwrap().value(), Ok(value));
    }
    assert_eq!(b.recv(ANY, ANY).unwrap().from(), b.tid());
    assert_eq!(
        other.recv(ANY, 1).unwrap().value(),
        Ok("library".to_owned())
    );
    assert_eq!(b.probe(ANY, 1).unwrap(), None);
    let all: Vec<i32> = of_handler.try_iter().collect();
    assert_eq!(all, (0..100).collect::<Vec<_>>());

    b.remove_handler(handler).unwrap();
    a.send(b.tid(), 1, &100).unwrap();
    assert_eq!(b.recv(ANY, 1).unwrap().value(), Ok(100));
    assert!(of_handler.try_recv().is_err());
}

#[test]
fn a_handler_sends_and_receives_also_what_it_handles() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (handled, of_handler) = channel();
    b.add_handler(ANY, 1, move |vm, message| {
        // A request of three messages: the first one is the handler's.
        let from = message.from();
        let second = vm.recv(from, 1).unwrap().len();
        let third = vm.recv_if(ANY, 1, None, |_| true).unwrap().unwrap().len();
        vm.send(from, 2, &(message.len() + second + third)).unwrap();
        handled.send(()).unwrap();
    })
    .unwrap();
    let to = b.tid();
    let client = thread::spawn(move || {
        for round in 0..20 {
            for part in 1..=3 {
                a.send_bytes(to, 1, vec![0; round * part]).unwrap();
            }
            assert_eq!(a.recv(ANY, 2).unwrap().value(), Ok(round * 6));
        }
        a.send(to, LAST, &()).unwrap();
    });
    b.recv(ANY, LAST).unwrap();
    client.join().unwrap();
    assert_eq!(of_handler.try_iter().count(), 20);
}

#[test]
fn started_receives_and_buffers_get_no_message_of_a_handler() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (handled, of_handler) = channel();
    let mut started = b.start_recv(ANY, ANY).unwrap();
    let handler = b
        .add_handler(ANY, 1, move |_, message| {
            handled.send(message.len()).unwrap();
        })
        .unwrap();
    let to = b.tid();
    let sender = thread::spawn(move || {
        for (tag, len) in [(1, 100_000), (2, 5), (1, 3_000_000), (3, 3_000_000), (1, 1)] {
            a.send_bytes(to, tag, vec![0; len]).unwrap();
        }
        a.send(to, LAST, &()).unwrap();
    });
    let message = started.wait().unwrap().message().unwrap();
    assert_eq!((message.tag(), message.len()), (2, 5));
    let mut buffer = vec![0; 4_000_000];
    assert_eq!(b.recv_into(ANY, ANY, &mut buffer).unwrap().tag, 3);
    b.recv(ANY, LAST).unwrap();
    sender.join().unwrap();
    assert_eq!(
        of_handler.try_iter().collect::<Vec<_>>(),
        [100_000, 3_000_000, 1]
    );

    // The message that a removed handler did not get goes to the receive that was started before.
    let mut pending = b.start_recv(ANY, 1).unwrap();
    b.send(b.tid(), 1, &()).unwrap();
    b.remove_handler(handler).unwrap();
    assert_eq!(
        pending.test().unwrap().is_some(),
        of_handler.try_recv().is_err()
    );
}

#[test]
fn threads_call_a_handler_one_at_a_time_while_others_wait() {
    let relay = Relay::new();
    let (a, b) = (relay.task(), relay.task());
    let (handled, of_handler) = channel();
    let mut next = 0;
    b.add_handler(ANY, 1, move |vm, message| {
        assert_eq!(message.value(), Ok(next), "in order");
        next += 1;
        // The other threads receive meanwhile.
        vm.send(message.from(), 2, &next).unwrap();
        handled.send(next).unwrap();
    })
    .unwrap();
    let others: Vec<_> = (10..14).map(|tag| (b.clone_handle(), tag)).collect();
    thread::scope(|scope| {
        for (vm, tag) in others {
            scope.spawn(move || {
                for _ in 0..50 {
                    vm.recv(ANY, tag).unwrap();
                }
            });
        }
        for value in 0..200 {
            a.send(b.tid(), 1, &value).unwrap();
            a.send(b.tid(), 10 + value % 4, &()).unwrap();
            assert_eq!(a.recv(ANY, 2).unwrap().value(), Ok(value + 1));
        }
    });
    assert_eq!(of_handler.try_iter().count(), 200);
}

#[test]
fn a_panic_in_a_handler_leaves_the_call_and_the_task_goes_on() {
    let relay = Relay::new();
    let a = relay.task();
    let mut calls = 0;
    a.add_handler(ANY, 1, move |vm, message| {
        calls += 1;
        assert!(calls > 1, "the first call panics");
        vm.send_bytes(vm.tid(), 2, message.into_bytes()).unwrap();
    })
    .unwrap();
    a.send(a.tid(), 1, &"first").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| a.recv_timeout(ANY, 2, PATIENCE)));
    assert!(panicked.is_err());
    a.send(a.tid(), 1, &"second").unwrap();
    let second = a.recv_timeout(ANY, 2, PATIENCE).unwrap().unwrap();
    assert_eq!(second.value(), Ok("second".to_owned()));
}

#[test]
fn a_handler_may_remove_itself_and_their_number_is_bounded() {
    let relay = Relay::new();
    let a = relay.task();
    let (own, of_handler) = channel::<crate::Handler>();
    let handler = a
        .add_handler(ANY, 1, move |vm, _| {
            vm.remove_handler(of_handler.recv().unwrap()).unwrap();
        })
        .unwrap();
    own.send(handler).unwrap();
    a.send(a.tid(), 1, &"handled").unwrap();
    a.send(a.tid(), 1, &"received").unwrap();
    assert_eq!(a.recv(ANY, 1).unwrap().value(), Ok("received".to_owned()));
    for _ in 0..limits::HANDLERS_MAX {
        a.add_handler(ANY, 1, |_, _| ()).unwrap();
    }
    let more = a.add_handler(ANY, 1, |_, _| ());
    assert!(matches!(more, Err(StartError::TooManyHandlers)));
}
