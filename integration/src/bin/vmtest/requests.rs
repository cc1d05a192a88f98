//! A ring of tasks that keep several started sends and receives open all the time.

use super::shared::{GO, NUMBERED, RESULT, STOP, body, host_names, me, size};
use anyhow::{Context, ensure};
use std::collections::VecDeque;
use vm_wire::Tid;
use vmlib::{Completed, Request, Task};

/// Started receives of one member.
const AHEAD: usize = 6;
/// Messages that a member sends before it has received as many.
const LEAD: u64 = 16;

/// Members in a ring send numbered messages to their right until a line comes on standard input.
pub fn requests(vm: &Task, count: u64, largest: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let members = vm.spawn(&me(&["requests-member"])?.count(count as u32).on_each(hosts))?;
    for (index, member) in members.iter().enumerate() {
        let right = members[(index + 1) % members.len()];
        let left = members[(index + members.len() - 1) % members.len()];
        vm.send(*member, GO, &(left.0, right.0, largest))?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&members, STOP, &())?;
    let results: Result<Vec<Request>, _> = members
        .iter()
        .map(|member| vm.start_recv(*member, RESULT))
        .collect();
    let mut messages = 0;
    for result in vm.wait_all(&mut results?)? {
        messages += result.message().context("a result")?.value::<u64>()?;
    }
    ensure!(messages > 0, "no message was received");
    println!("requests: {messages} messages, none lost, doubled or out of order");
    Ok(())
}

pub fn requests_member(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let (left, right, largest): (u64, u64, u64) = vm.recv(parent, GO)?.value()?;
    let (left, right) = (Tid(left), Tid(right));
    let mut receives: VecDeque<Request> = VecDeque::new();
    let mut sends: Vec<Request> = Vec::new();
    let (mut sent, mut received) = (0u64, 0u64);
    let (mut done, mut left_is_done) = (false, false);
    while !(done && left_is_done) {
        while receives.len() < AHEAD {
            receives.push_back(vm.start_recv(left, NUMBERED)?);
        }
        if !done {
            // The left neighbour has been told, so this member is told too, perhaps later.
            done = left_is_done || vm.probe(parent, STOP)?.is_some();
            // An empty message means that no more messages come.
            let bytes = match done {
                true => Vec::new(),
                false => body(sent, size(sent, largest)),
            };
            sends.push(vm.start_send_bytes(right, NUMBERED, bytes)?);
            sent += 1;
        }
        if sent.is_multiple_of(5)
            && let Some(last) = receives.pop_back()
        {
            last.cancel();
        }
        let must = done || received + LEAD < sent;
        let first = receives.front_mut().context("a started receive")?;
        let completed = match (left_is_done, must) {
            (true, _) => None,
            (false, true) => Some(first.wait()?),
            (false, false) => first.test()?,
        };
        if let Some(Completed::Received(message)) = completed {
            receives.pop_front();
            if message.is_empty() {
                left_is_done = true;
                continue;
            }
            let want = body(received, size(received, largest));
            ensure!(
                message.bytes() == want,
                "message {received} from {left} is not what was sent"
            );
            received += 1;
        }
        if sends.len() > AHEAD {
            vm.wait_any(&mut sends)?;
            sends.retain(Request::is_open);
        }
    }
    vm.wait_all(&mut sends)?;
    vm.send(parent, RESULT, &received)?;
    Ok(())
}
