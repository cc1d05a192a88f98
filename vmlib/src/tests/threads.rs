//! Threads of one task: what one of them does while another one waits in the system.

use super::{
    process::run_alone,
    relay::{PATIENCE, Relay},
};
use crate::{ANY, Task};
use std::{sync::mpsc::channel, thread, time::Instant};

/// Waits until a thread polls, and nothing is due.
fn await_poller(vm: &Task) {
    let end = Instant::now() + PATIENCE;
    while !vm.shared.lock().is_polled() {
        assert!(Instant::now() < end, "no thread polls");
        thread::yield_now();
    }
}

/// Has a thread wait for a message with tag 1, and then lets `send` make it come.
fn is_received(vm: &Task, send: impl FnOnce()) -> bool {
    let (received, is_received) = channel();
    let waits = vm.clone_handle();
    thread::spawn(move || {
        // This thread has polled before: it answers to the relay's message.
        waits.recv(ANY, 0).unwrap();
        waits.recv(ANY, 1).unwrap();
        let _ = received.send(());
    });
    await_poller(vm);
    vm.send(vm.tid(), 0, &()).unwrap();
    await_poller(vm);
    send();
    is_received.recv_timeout(PATIENCE).is_ok()
}

#[test]
fn a_thread_that_polls_gets_a_message_of_another_thread_of_its_task() {
    if run_alone("tests::threads::a_thread_that_polls_gets_a_message_of_another_thread_of_its_task")
    {
        return;
    }
    let relay = Relay::new();
    let vm = relay.task();
    assert!(is_received(&vm, || vm.send(vm.tid(), 1, &()).unwrap()));
}

#[test]
fn a_thread_that_polls_gets_the_message_of_a_receive_that_another_thread_cancels() {
    if run_alone(
        "tests::threads::a_thread_that_polls_gets_the_message_of_a_receive_that_another_thread_cancels",
    ) {
        return;
    }
    let relay = Relay::new();
    let vm = relay.task();
    let started = vm.start_recv(ANY, 1).unwrap();
    vm.send(vm.tid(), 1, &()).unwrap();
    assert!(is_received(&vm, || started.cancel()));
}
