//! Tasks that write garbage into the memory that they share with a peer.

use super::{
    faults::exchange,
    shared::{GO, NUMBERED, READY, RESULT, STOP, host_name, me},
};
use anyhow::{Context, ensure};
use std::{
    fs::{self, File, OpenOptions},
    ops::Range,
    os::unix::fs::FileExt,
};
use vm_wire::{Tid, limits::RING_BYTES};
use vmlib::{ANY, Task};

/// Messages that are answered before the garbage begins.
const ANSWERED: u64 = 20;
/// Bytes of a lane, and places in it: see `vmlib/src/ring/lane.rs`.
const LANE: u64 = RING_BYTES as u64 / 2;
const TAIL: u64 = 64;
const FIRST_SLOT: u64 = 4096;
const SLOTS: u64 = 1024;

/// Two tasks of this host exchange messages, until a line comes on standard input. `count` others
/// send to the first of them, and write garbage into their rings.
pub fn garbage(vm: &Task, count: u64) -> anyhow::Result<()> {
    let here = host_name(vm)?;
    let honest = vm.spawn(&me(&["garbage-reader"])?.count(2).on(&here))?;
    let mut writers = Vec::new();
    for kind in 0..count {
        let spawn = me(&["garbage-writer", &kind.to_string()])?.on(&here);
        writers.extend(vm.spawn(&spawn)?);
    }
    let all: Vec<u64> = writers.iter().map(|writer| writer.0).collect();
    vm.send(honest[0], GO, &(honest[1].0, &all))?;
    vm.send(honest[1], GO, &(honest[0].0, Vec::<u64>::new()))?;
    for writer in &writers {
        vm.send(*writer, GO, &honest[0].0)?;
    }
    for writer in &writers {
        vm.recv(*writer, READY)?;
    }
    println!("garbage is written");
    std::io::stdin().read_line(&mut String::new())?;
    vm.multicast(&honest, STOP, &())?;
    let mut rounds = 0;
    for task in honest {
        rounds += vm.recv(task, RESULT)?.value::<u64>()?;
    }
    for writer in writers {
        vm.kill(writer)?;
    }
    println!("garbage: beside it {rounds} messages, none lost, doubled or out of order");
    Ok(())
}

/// Exchanges messages with another reader, and takes what the writers send.
pub fn garbage_reader(vm: &Task) -> anyhow::Result<()> {
    let parent = vm.parent().context("a reader has a parent")?;
    let (peer, writers): (u64, Vec<u64>) = vm.recv(parent, GO)?.value()?;
    let mut answers = vec![0; writers.len()];
    let take = || {
        for (writer, answers) in writers.iter().zip(&mut answers) {
            let writer = Tid(*writer);
            // A message of a writer of garbage may be garbage as well.
            while let Some(message) = vm.try_recv(writer, ANY)? {
                // Nothing is sent to a task that may never read it.
                if *answers < ANSWERED {
                    *answers += 1;
                    vm.send_bytes(writer, NUMBERED, message.into_bytes())?;
                }
            }
        }
        Ok(())
    };
    let (rounds, _) = exchange(vm, Tid(peer), (8, 1 << 20), take)?;
    vm.send(parent, RESULT, &rounds)?;
    Ok(())
}

/// Exchanges some messages with a reader, and then writes garbage into its ring until it is killed.
pub fn garbage_writer(vm: &Task, kind: u64) -> anyhow::Result<()> {
    let parent = vm.parent().context("a writer has a parent")?;
    let reader = Tid(vm.recv(parent, GO)?.value()?);
    for number in 0..ANSWERED {
        vm.send(reader, NUMBERED, &number)?;
        ensure!(vm.recv(reader, NUMBERED)?.value::<u64>()? == number);
    }
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem")?;
    let rings = rings()?;
    ensure!(!rings.is_empty(), "this task has no ring");
    let mut random = Random(kind + 1);
    for ring in &rings {
        for lane in [ring.start, ring.start + LANE] {
            write_slot(&memory, lane, kind, &mut random)?;
        }
    }
    vm.send(parent, READY, &())?;
    loop {
        for ring in &rings {
            let bytes: Vec<u8> = (0..LANE / 4)
                .flat_map(|_| random.next().to_le_bytes())
                .collect();
            memory.write_all_at(&bytes, ring.start)?;
        }
        // The library of this task may be confused, but it must not stop the garbage.
        let _ = vm.try_recv(reader, NUMBERED);
    }
}

/// The mapped rings of this process.
fn rings() -> anyhow::Result<Vec<Range<u64>>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut rings = Vec::new();
    for line in maps.lines().filter(|line| line.contains("/memfd:vm-ring")) {
        let (start, rest) = line.split_once('-').context("a line of maps")?;
        let end = rest.split(' ').next().context("a line of maps")?;
        let address = |text| u64::from_str_radix(text, 16);
        rings.push(address(start)?..address(end)?);
    }
    Ok(rings)
}

/// Writes a slot of garbage where the reader of the lane expects the next one.
fn write_slot(memory: &File, lane: u64, kind: u64, random: &mut Random) -> anyhow::Result<()> {
    let word = |place: u64| -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, lane + place)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let slot = |position: u64| FIRST_SLOT + position % SLOTS * 64;
    let mut position = word(TAIL)?;
    while word(slot(position))? == position + 1 {
        position += 1;
    }
    let before = slot(position.wrapping_sub(1));
    // The words of the chunk before, with the next number.
    let mut words = [0; 7];
    for (index, it) in words.iter_mut().enumerate() {
        *it = word(before + 8 * (index as u64 + 1))?;
    }
    words[0] += 1;
    let long = 64 << 42;
    let [.., kind_word, place, offset, total] = &mut words;
    match kind % 8 {
        0 => words = words.map(|_| random.next()),
        1 => *kind_word = 25 << 32,
        // A lent body at an address that is not mapped.
        2 => (*kind_word, *place, *offset, *total) = (2 | long, 8, 0, 1 << 20),
        3 => (*kind_word, *place, *offset, *total) = (2 | long, random.next(), 0, 1 << 20),
        // A body behind the end of the lane.
        4 => (*kind_word, *place, *offset, *total) = (1 | long, LANE, 0, 1 << 20),
        // The middle of a message that has no beginning, and a message that never ends.
        5 => (*kind_word, *place, *offset, *total) = (1 | long, 0, 1 << 16, 1 << 20),
        6 => (*kind_word, *place, *offset, *total) = (1 | long, 0, 0, 1 << 30),
        _ => words[0] = random.next(),
    }
    let bytes = words.map(u64::to_le_bytes);
    memory.write_all_at(bytes.as_flattened(), lane + slot(position) + 8)?;
    memory.write_all_at(&(position + 1).to_le_bytes(), lane + slot(position))?;
    Ok(())
}

/// A sequence of numbers without a pattern.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
