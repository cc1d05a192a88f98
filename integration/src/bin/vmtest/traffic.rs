//! Tasks that send each other numbered messages, and check every byte.

use super::shared::{GO, NUMBERED, READY, RESULT, STOP, body, host_name, host_names, me, size};
use anyhow::{Context, bail, ensure};
use std::time::{Duration, Instant};
use vm_wire::Tid;
use vmlib::{ANY, Event, RecvError, Task};

/// Eight tasks in a ring send numbered messages to their right for `seconds`, or until a line comes
/// on standard input.
pub fn ring(vm: &Task, seconds: Option<u64>, largest: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let members = vm.spawn(&me(&["ring-member"])?.count(8).on_each(hosts))?;
    ensure!(members.len() == 8, "eight members");
    for (index, member) in members.iter().enumerate() {
        let right = members[(index + 1) % members.len()];
        let left = members[(index + members.len() - 1) % members.len()];
        vm.send(*member, GO, &(left.0, right.0, seconds, largest))?;
    }
    if seconds.is_none() {
        std::io::stdin().read_line(&mut String::new())?;
        for member in &members {
            vm.send(*member, STOP, &())?;
        }
    }
    let (mut messages, mut bytes) = (0, 0);
    for member in members {
        let (received, volume): (u64, u64) = vm.recv(member, RESULT)?.value()?;
        messages += received;
        bytes += volume;
    }
    println!("ring: {messages} messages, {bytes} bytes, none lost, doubled or out of order");
    Ok(())
}

pub fn ring_member(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let (left, right, seconds, largest): (u64, u64, Option<u64>, u64) =
        vm.recv(parent, GO)?.value()?;
    let (left, right) = (Tid(left), Tid(right));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut sent, mut received, mut volume) = (0u64, 0u64, 0u64);
    let mut left_done = false;
    let mut done = false;
    while !left_done || !done {
        if !done {
            // An empty message means that no more messages come.
            done = match end {
                Some(end) => Instant::now() >= end,
                None => vm.probe(parent, STOP)?.is_some(),
            };
            if done {
                vm.send_bytes(right, NUMBERED, Vec::new())?;
            } else {
                vm.send_bytes(right, NUMBERED, body(sent, size(sent, largest)))?;
                sent += 1;
            }
        }
        // The task is at most a few messages ahead of its left neighbour, so that inboxes stay
        // small.
        while !left_done && (done || received + 16 < sent || vm.probe(left, NUMBERED)?.is_some()) {
            let message = vm.recv(left, NUMBERED)?;
            if message.is_empty() {
                left_done = true;
                break;
            }
            let want = body(received, size(received, largest));
            ensure!(
                message.bytes() == want,
                "message {received} from {left} is not what was sent"
            );
            received += 1;
            volume += want.len() as u64;
        }
    }
    vm.send(parent, RESULT, &(received, volume))?;
    Ok(())
}

/// Sends to tasks that have hardly started, and does not enter the library again until the test
/// allows it: so no chunk can be sent a second time.
pub fn early(vm: &Task) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let receivers = vm.spawn(&me(&["early-receiver"])?.count(12).on_each(hosts))?;
    for receiver in receivers {
        vm.send(receiver, GO, &())?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

pub fn early_receiver(vm: &Task) -> anyhow::Result<()> {
    vm.recv(vm.parent().context("a receiver has a parent")?, GO)?;
    println!("received");
    Ok(())
}

/// Two tasks send each other `bytes` before either receives.
pub fn exchange(vm: &Task, bytes: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let pair = vm.spawn(&me(&["exchange-peer"])?.count(2).on_each(hosts))?;
    vm.send(pair[0], GO, &(pair[1].0, bytes))?;
    vm.send(pair[1], GO, &(pair[0].0, bytes))?;
    for peer in pair {
        let received: u64 = vm.recv(peer, RESULT)?.value()?;
        ensure!(received == bytes);
    }
    println!("exchange: both received {bytes} bytes");
    Ok(())
}

pub fn exchange_peer(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a peer has a parent")?;
    let (other, bytes): (u64, u64) = vm.recv(parent, GO)?.value()?;
    let part = 1_000_000.min(bytes) as usize;
    let parts = bytes / part as u64;
    for number in 0..parts {
        vm.send_bytes(Tid(other), NUMBERED, body(number, part))?;
    }
    let mut received = 0;
    for number in 0..parts {
        let message = vm.recv(Tid(other), NUMBERED)?;
        ensure!(message.bytes() == body(number, part));
        received += message.len() as u64;
    }
    vm.send(parent, RESULT, &received)?;
    Ok(())
}

/// Reads nothing while `bytes` bytes are sent to this task. Two other tasks exchange messages over
/// the same link meanwhile. A line on standard input ends the wait.
pub fn flood(vm: &Task, bytes: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let here = host_name(vm)?;
    let there = hosts
        .iter()
        .find(|name| **name != here)
        .context("a second host")?
        .clone();
    let partner = vm.spawn(&me(&["idle"])?.on(here))?[0];
    let pair = vm.spawn(&me(&["pair", &partner.0.to_string()])?.on(there.clone()))?[0];
    vm.send(pair, GO, &"quiet")?;
    vm.recv(pair, RESULT)?;
    let sender =
        vm.spawn(&me(&["flood-sender", &bytes.to_string(), &pair.0.to_string()])?.on(there))?[0];
    // This task does not enter the library until the test allows it.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let mut received = 0u64;
    while received < bytes {
        received += vm.recv(sender, NUMBERED)?.len() as u64;
    }
    println!("flood: {received} bytes received in the end");
    vm.kill(partner)?;
    vm.kill(pair)?;
    Ok(())
}

pub fn flood_sender(vm: &Task, bytes: u64, pair: Tid) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    let part = 1_000_000;
    for number in 0..bytes / part {
        if number == 1 {
            vm.send(pair, GO, &"flooded")?;
        }
        vm.send_bytes(parent, NUMBERED, body(number, part as usize))?;
    }
    Ok(())
}

/// Measures round trips with the partner when it is told to, prints the median, and reports the end
/// of the measurement to its parent.
pub fn pair(vm: &Task, partner: Tid) -> anyhow::Result<()> {
    let parent = vm.parent().context("a pair has a parent")?;
    loop {
        let when: String = vm.recv(ANY, GO)?.value()?;
        let mut times: Vec<f64> = Vec::new();
        for number in 0..2000u64 {
            let start = Instant::now();
            vm.send(partner, NUMBERED, &number)?;
            let back: u64 = vm.recv(partner, NUMBERED)?.value()?;
            ensure!(back == number);
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        println!("round trip {when}: {:.1} us", times[times.len() / 2] * 1e6);
        vm.send(parent, RESULT, &())?;
    }
}

/// Tasks that send one message and end at once. The messages are received after the senders have
/// ended.
pub fn last_word(vm: &Task, count: u64) -> anyhow::Result<()> {
    let senders = vm.spawn(&me(&["last-word-sender"])?.count(count as u32))?;
    for sender in &senders {
        vm.watch_task(*sender)?;
    }
    for _ in 0..count {
        match vm.recv_event(Some(Duration::from_secs(60)))? {
            Some(Event::TaskEnded { tid, status }) => {
                ensure!(status.in_order(), "{tid} {status}");
                let message = vm.try_recv(tid, NUMBERED)?;
                let message =
                    message.with_context(|| format!("{tid}'s end overtook its message"))?;
                ensure!(message.bytes() == body(7, 3_000_000));
            }
            other => bail!("no end was told but {other:?}"),
        }
    }
    println!("last-word: {count} messages of tasks that had ended");
    Ok(())
}

pub fn last_word_sender(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    vm.send_bytes(parent, NUMBERED, body(7, 3_000_000))?;
    Ok(())
}

/// A task is killed in the middle of a large message: no part of the message is delivered.
pub fn cut_off(vm: &Task) -> anyhow::Result<()> {
    let sender = vm.spawn(&me(&["cut-off-sender"])?)?[0];
    vm.watch_task(sender)?;
    vm.recv(sender, READY)?;
    // Computes for a while, so that the sender waits for credit in the middle of the message.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        std::hint::black_box(start);
    }
    vm.kill(sender)?;
    match vm.recv_event(Some(Duration::from_secs(60)))? {
        Some(Event::TaskEnded { tid, status }) => ensure!(tid == sender && !status.in_order()),
        other => bail!("no end was told but {other:?}"),
    }
    match vm.try_recv(sender, NUMBERED) {
        Err(RecvError::Ended { from, .. }) if from == sender => {}
        other => bail!("neither a part nor a wait was expected, but its end: {other:?}"),
    }
    ensure!(
        vm.recv_timeout(ANY, NUMBERED, Duration::from_millis(200))?
            .is_none()
    );
    println!("cut-off: nothing was delivered in part");
    Ok(())
}

pub fn cut_off_sender(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a sender has a parent")?;
    vm.send(parent, READY, &())?;
    vm.send_bytes(parent, NUMBERED, body(1, 64 << 20))?;
    bail!("a message of 64 MiB fitted into the window")
}
