//! A ring of tasks that receive messages of all lengths into buffers: with and without a time limit, and
//! into buffers that are too short.

use super::shared::{GO, NUMBERED, RESULT, STOP, body, host_names, me};
use anyhow::{Context, ensure};
use std::time::Duration;
use vm_wire::Tid;
use vmlib::{ANY, Envelope, RecvIntoError, Request, Task};

/// Tag of the last message to a neighbour.
const LAST: i32 = 6;
/// Messages that a member sends before it has received as many.
const LEAD: u64 = 4;
/// Lengths of messages, by their numbers.
const SIZES: [usize; 8] = [
    8,
    64 << 10,
    1 << 20,
    0,
    16 << 20,
    (1 << 20) + 8,
    (64 << 10) - 8,
    32 << 10,
];
const LONGEST: usize = 16 << 20;
/// A limit that often ends in the middle of a message.
const SHORT_TIME: Duration = Duration::from_micros(300);

/// The way in which a member receives a message.
#[derive(Debug, Clone, Copy)]
enum Way {
    Waits,
    WaitsForNumbers,
    LeavesOften,
    HasNoRoom,
}

impl Way {
    fn of(number: u64) -> Self {
        // Each length comes in each way.
        match (number / SIZES.len() as u64 + number) % 4 {
            0 => Way::Waits,
            1 => Way::LeavesOften,
            2 => Way::HasNoRoom,
            _ => Way::WaitsForNumbers,
        }
    }
}

fn sent(number: u64) -> Vec<u8> {
    match SIZES[number as usize % SIZES.len()] {
        0 => Vec::new(),
        len => body(number, len),
    }
}

/// Members in a ring send messages to their right until a line comes on standard input.
pub fn into(vm: &Task, count: u64) -> anyhow::Result<()> {
    let hosts = host_names(vm)?;
    let members = vm.spawn(&me(&["into-member"])?.count(count as u32).on_each(hosts))?;
    for (index, member) in members.iter().enumerate() {
        let right = members[(index + 1) % members.len()];
        let left = members[(index + members.len() - 1) % members.len()];
        vm.send(*member, GO, &(left.0, right.0))?;
    }
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&members, STOP, &())?;
    let mut messages = 0;
    for member in &members {
        messages += vm.recv(*member, RESULT)?.value::<u64>()?;
    }
    ensure!(messages > 0, "no message was received");
    println!("into: {messages} messages, none lost, doubled or out of order");
    Ok(())
}

pub fn into_member(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a member has a parent")?;
    let (left, right): (u64, u64) = vm.recv(parent, GO)?.value()?;
    let (left, right) = (Tid(left), Tid(right));
    let mut buffer = vec![0; LONGEST];
    let mut sends: Vec<Request> = Vec::new();
    let (mut begun, mut received) = (0u64, 0u64);
    let (mut done, mut left_is_done) = (false, false);
    while !(done && left_is_done) {
        if !done {
            // The left neighbour has been told, so this member is told too, perhaps later.
            done = left_is_done || vm.probe(parent, STOP)?.is_some();
            sends.push(match done {
                true => vm.start_send_bytes(right, LAST, Vec::new())?,
                false => vm.start_send_bytes(right, NUMBERED, sent(begun))?,
            });
            begun += 1;
        }
        if !left_is_done && (done || received + LEAD <= begun) {
            let found = receive(vm, left, received, &mut buffer)?;
            if found.tag == LAST {
                left_is_done = true;
                continue;
            }
            ensure!(
                buffer[..found.len] == sent(received),
                "message {received} from {left} is not what was sent"
            );
            received += 1;
        }
        if sends.len() > LEAD as usize {
            vm.wait_any(&mut sends)?;
            sends.retain(Request::is_open);
        }
    }
    vm.wait_all(&mut sends)?;
    vm.send(parent, RESULT, &received)?;
    Ok(())
}

/// Receives a message in the way of its number.
fn receive(vm: &Task, left: Tid, number: u64, buffer: &mut [u8]) -> anyhow::Result<Envelope> {
    let len = SIZES[number as usize % SIZES.len()];
    match Way::of(number) {
        Way::Waits => Ok(vm.recv_into(left, ANY, buffer)?),
        Way::WaitsForNumbers => {
            let mut numbers = vec![0u64; len / 8 + 1];
            let found = vm.recv_slice_into(left, ANY, &mut numbers)?;
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            let room = buffer[..found.len].iter_mut();
            room.zip(bytes).for_each(|(to, from)| *to = from);
            Ok(found)
        }
        Way::LeavesOften => loop {
            if let Some(found) = vm.recv_into_timeout(left, ANY, buffer, SHORT_TIME)? {
                return Ok(found);
            }
            // Bytes that are in the buffer alone would be lost.
            buffer.fill(0xee);
        },
        Way::HasNoRoom => {
            let room = len.saturating_sub(1);
            match vm.recv_into(left, ANY, &mut buffer[..room]) {
                Err(RecvIntoError::TooLong {
                    len: found,
                    room: stated,
                    ..
                }) => {
                    ensure!((found, stated) == (len, room), "{found} into {stated}");
                    let message = vm.recv(left, ANY)?;
                    buffer[..len].copy_from_slice(message.bytes());
                    Ok(Envelope {
                        from: message.from(),
                        tag: message.tag(),
                        len,
                    })
                }
                // Messages without a byte, the last one among them.
                Ok(found) if found.len == 0 => Ok(found),
                other => anyhow::bail!("message {number} with {room} bytes of room: {other:?}"),
            }
        }
    }
}
