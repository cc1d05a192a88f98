//! Tasks of one host whose peers are killed, stopped, moved, or write garbage into shared memory.

use super::shared::{GO, NUMBERED, READY, RESULT, STOP, body, host_name, me, size};
use anyhow::{Context, bail, ensure};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};
use vm_wire::Tid;
use vmlib::{ANY, Event, Message, RecvError, Task};

/// Largest message of a survivor. Bytes.
const LARGEST: u64 = 1_000_000;
/// Messages that a survivor receives of each other one after the end of the killed task.
const AFTER_END: u64 = 100;
/// Rounds of a duet at least: several messages of each length go by the ring, which comes after some.
const ROUNDS_MIN: u64 = 40;
/// Messages that a survivor takes between two sends to all.
const TAKEN_MAX: usize = 64;

/// Two tasks of this host send each other messages of `least` bytes, eight times as many, and so on
/// up to `largest`, until a line comes on standard input.
pub fn duet(vm: &Task, least: &str, largest: &str) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let members = vm.spawn(&me(&["duet-member", least, largest])?.count(2).on(here))?;
    for (member, peer) in [(0, 1), (1, 0)] {
        vm.send(members[member], GO, &members[peer].0)?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&members, STOP, &())?;
    let mut longest = Duration::ZERO;
    let mut rounds = 0;
    for member in members {
        let (its_rounds, its_longest): (u64, Duration) = vm.recv(member, RESULT)?.value()?;
        longest = longest.max(its_longest);
        rounds += its_rounds;
    }
    ensure!(rounds > 0, "no message was received");
    println!(
        "duet: {rounds} messages, the longest round {} ms, none lost, doubled or out of order",
        longest.as_millis()
    );
    Ok(())
}

pub fn duet_member(vm: &Task, least: u64, largest: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let peer = Tid(vm.recv(parent, GO)?.value()?);
    let result = exchange(vm, peer, (least, largest), || Ok(()))?;
    vm.send(parent, RESULT, &result)?;
    Ok(())
}

/// Exchanges a message with the peer in each round, until the parent says stop. Calls `between` in
/// each round. Returns the number of rounds and the time of the longest one.
pub fn exchange(
    vm: &Task,
    peer: Tid,
    (least, largest): (u64, u64),
    mut between: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<(u64, Duration)> {
    let parent = vm.parent().context("a member has a parent")?;
    let sizes: Vec<u64> = (0..)
        .map(|power| least << (3 * power))
        .take_while(|size| *size < largest)
        .chain([largest])
        .collect();
    let of = |number: u64| body(number, sizes[number as usize % sizes.len()] as usize);
    let (mut received, mut longest) = (0, Duration::ZERO);
    let (mut is_last, mut is_peers_last) = (false, false);
    for number in 0.. {
        let begin = Instant::now();
        if !is_last {
            let may_end = number >= ROUNDS_MIN && vm.try_recv(parent, STOP)?.is_some();
            // An empty message means that no more messages come.
            is_last = is_peers_last || may_end;
            let bytes = if is_last { Vec::new() } else { of(number) };
            vm.send_bytes(peer, NUMBERED, bytes)?;
        }
        if !is_peers_last {
            let message = vm.recv(peer, NUMBERED)?;
            is_peers_last = message.is_empty();
            if !is_peers_last {
                ensure!(
                    message.bytes() == of(received),
                    "message {received} from {peer} is not what was sent"
                );
                received += 1;
            }
        }
        between()?;
        longest = longest.max(begin.elapsed());
        if is_last && is_peers_last {
            break;
        }
    }
    Ok((received, longest))
}

/// `count` tasks of this host send each other messages, until one of them has been killed and the
/// others have gone on for a while. Each records in a file of `folder` what it has sent.
pub fn survivors(vm: &Task, count: u64, folder: &str) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let mut members = vm.spawn(&me(&["survivor", folder])?.count(count as u32).on(here))?;
    let all: Vec<u64> = members.iter().map(|member| member.0).collect();
    for member in &members {
        vm.watch_task(*member)?;
        vm.send(*member, GO, &all)?;
    }
    let killed = match vm.recv_event(None)? {
        Some(Event::TaskEnded { tid, status }) if !status.in_order() => tid,
        other => bail!("no task was killed, but {other:?}"),
    };
    let sent = File::open(Path::new(folder).join(killed.to_string()))?;
    members.retain(|member| *member != killed);
    for member in &members {
        vm.recv(*member, READY)?;
    }
    vm.multicast(&members, STOP, &())?;
    let mut bytes = [0; 8];
    for (index, member) in all.iter().enumerate() {
        let member = Tid(*member);
        if member == killed {
            continue;
        }
        let received: u64 = vm.recv(member, RESULT)?.value()?;
        sent.read_exact_at(&mut bytes, 8 * index as u64)?;
        let sent = u64::from_le_bytes(bytes);
        // The task may have been killed between a send and its record.
        ensure!(
            (sent..=sent + 1).contains(&received),
            "{killed} had sent {sent} messages to {member}, which has received {received}"
        );
    }
    println!("survivors: of {killed}, none lost, doubled or out of order");
    Ok(())
}

/// Another survivor, as one of them knows it.
struct Other {
    tid: Tid,
    sent: u64,
    received: u64,
    /// It was told that no more messages come.
    knows_last: bool,
    /// It has said that it sends no more, or has ended.
    is_done: bool,
    /// Its end was told.
    has_ended: bool,
    /// Messages that had come of it when the killed task's end was told.
    at_end: u64,
}

impl Other {
    /// Takes a message of it.
    fn take(&mut self, message: &Message) -> anyhow::Result<()> {
        let Other { tid, received, .. } = *self;
        ensure!(!self.has_ended, "a message of {tid} came after its end");
        if message.is_empty() {
            self.is_done = true;
            return Ok(());
        }
        ensure!(
            message.bytes() == body(received, size(received, LARGEST)),
            "message {received} from {tid} is not what was sent"
        );
        self.received += 1;
        Ok(())
    }
}

pub fn survivor(vm: &Task, folder: &str) -> anyhow::Result<()> {
    let parent = vm.parent().context("a survivor has a parent")?;
    let all: Vec<u64> = vm.recv(parent, GO)?.value()?;
    let path = Path::new(folder).join(vm.tid().to_string());
    let record = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(path)?;
    record.set_len(8 * all.len() as u64)?;
    let mut others: Vec<Option<Other>> = Vec::new();
    for tid in all.into_iter().map(Tid) {
        let is_other = tid != vm.tid();
        others.push(is_other.then_some(Other {
            tid,
            sent: 0,
            received: 0,
            knows_last: false,
            is_done: false,
            has_ended: false,
            at_end: 0,
        }));
        if is_other {
            vm.watch_task(tid)?;
        }
    }
    let (mut killed, mut is_ready, mut is_last) = (None, false, false);
    loop {
        is_last = is_last || vm.try_recv(parent, STOP)?.is_some();
        send_to_all(vm, &mut others, is_last, &record)?;
        take_some(vm, &mut others)?;
        if killed.is_none() {
            killed = take_end(vm, &mut others)?;
        }
        let mut living = others.iter().flatten().filter(|other| !other.has_ended);
        let goes_on = |other: &Other| other.received >= other.at_end + AFTER_END;
        if killed.is_some() && !is_ready && living.clone().all(goes_on) {
            is_ready = true;
            vm.send(parent, READY, &())?;
        }
        if is_last && living.all(|other| other.is_done) {
            break;
        }
    }
    let killed = killed.context("a task was killed")?;
    let of_killed = others.iter().flatten().find(|other| other.tid == killed);
    let received = of_killed.context("it is another")?.received;
    vm.send(parent, RESULT, &received)?;
    Ok(())
}

/// Sends the next message to each of the living others, or that no more messages come.
fn send_to_all(
    vm: &Task,
    others: &mut [Option<Other>],
    is_last: bool,
    record: &File,
) -> anyhow::Result<()> {
    for (index, other) in others.iter_mut().enumerate() {
        let Some(other) = other.as_mut().filter(|other| !other.has_ended) else {
            continue;
        };
        if !is_last {
            let bytes = body(other.sent, size(other.sent, LARGEST));
            vm.send_bytes(other.tid, NUMBERED, bytes)?;
            other.sent += 1;
            record.write_all_at(&other.sent.to_le_bytes(), 8 * index as u64)?;
        } else if !other.knows_last {
            vm.send_bytes(other.tid, NUMBERED, Vec::new())?;
            other.knows_last = true;
        }
    }
    Ok(())
}

/// Takes messages that have come.
fn take_some(vm: &Task, others: &mut [Option<Other>]) -> anyhow::Result<()> {
    for _ in 0..TAKEN_MAX {
        let Some(message) = vm.try_recv(ANY, NUMBERED)? else {
            break;
        };
        let from = message.from();
        let mut others = others.iter_mut().flatten();
        let other = others.find(|other| other.tid == from);
        other.context("a message of no other")?.take(&message)?;
    }
    Ok(())
}

/// If the end of another was told: takes the rest of its messages. Returns its id if it was killed.
fn take_end(vm: &Task, others: &mut [Option<Other>]) -> anyhow::Result<Option<Tid>> {
    let Some(event) = vm.recv_event(Some(Duration::ZERO))? else {
        return Ok(None);
    };
    let Event::TaskEnded { tid, status } = event else {
        bail!("an unexpected {event:?}");
    };
    let mut all = others.iter_mut().flatten();
    let other = all.find(|other| other.tid == tid);
    let other = other.context("the end of no other")?;
    loop {
        match vm.try_recv(tid, NUMBERED) {
            Ok(Some(message)) => other.take(&message)?,
            Err(RecvError::Ended { .. }) => break,
            answer => bail!("{tid} has ended: {answer:?}"),
        }
    }
    (other.is_done, other.has_ended) = (true, true);
    others
        .iter_mut()
        .flatten()
        .for_each(|other| other.at_end = other.received);
    Ok((!status.in_order()).then_some(tid))
}
