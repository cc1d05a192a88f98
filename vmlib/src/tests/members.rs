//! Members of a group for tests, each in a thread.

use super::relay::{PATIENCE, Relay};
use crate::{Group, Task};
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
};

/// Tasks that are the members of one group, under one version, by instance.
pub(super) fn members(relay: &Relay, count: usize) -> Vec<(Task, Group)> {
    let mut members: Vec<_> = (0..count)
        .map(|_| {
            let task = relay.task();
            let group = task.join("all").unwrap();
            (task, group)
        })
        .collect();
    for (task, group) in &mut members {
        task.refresh(group).unwrap();
    }
    members
}

/// Runs `member` in each of these members; the results, by instance. Fails when a member does not
/// end.
pub(super) fn run_with<R: Send + 'static>(
    members: Vec<(Task, Group)>,
    member: impl Fn(Task, Group) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let member = Arc::new(member);
    let results: Vec<_> = members
        .into_iter()
        .map(|(task, group)| {
            let member = Arc::clone(&member);
            let (sender, receiver) = channel();
            thread::spawn(move || {
                let result = member(task, group);
                // The test has failed already if nobody receives.
                let _ = sender.send(result);
            });
            receiver
        })
        .collect();
    let result = |(at, receiver): (usize, Receiver<R>)| match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => panic!("member {at} failed"),
        Err(RecvTimeoutError::Timeout) => panic!("member {at} does not end"),
    };
    results.into_iter().enumerate().map(result).collect()
}

/// Runs `member` in each of `count` members of one group.
pub(super) fn run<R: Send + 'static>(
    count: usize,
    member: impl Fn(Task, Group) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let relay = Relay::new();
    run_with(members(&relay, count), member)
}
