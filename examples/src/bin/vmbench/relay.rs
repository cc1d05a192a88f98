//! A bare relay: forwards bytes between two sockets with epoll, and does nothing else.
//!
//! This is the least work of a process between two others. Bytes that could not be written at once
//! are kept, and nothing more is read from their side until they are written.

use anyhow::Result;
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::{Errno, ioctl_fionbio, read, write},
    stdio::{stdin, stdout},
};
use std::os::fd::BorrowedFd;

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;

/// The bytes of one direction.
struct Flow<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    /// Read but not yet written: `kept[done..]`.
    kept: Vec<u8>,
    done: usize,
}

impl Flow<'_> {
    /// Whether kept bytes wait until the other side takes them.
    fn is_held_up(&self) -> bool {
        self.done < self.kept.len()
    }

    /// Reads once, if no bytes are kept, and writes as many as possible. Returns whether both sides
    /// are open.
    fn advance(&mut self) -> Result<bool> {
        if !self.is_held_up() {
            self.kept.clear();
            self.done = 0;
            match read(self.from, spare_capacity(&mut self.kept)) {
                Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        while self.is_held_up() {
            match write(self.to, &self.kept[self.done..]) {
                Ok(written) => self.done += written,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// Forwards between standard input and standard output, both sockets, until one ends.
pub fn run() -> Result<()> {
    let sides = [stdin(), stdout()];
    let flow = |from: usize, to: usize| Flow {
        from: sides[from],
        to: sides[to],
        kept: Vec::with_capacity(READ_BYTES),
        done: 0,
    };
    // Flow n reads from side n.
    let mut flows = [flow(0, 1), flow(1, 0)];
    let mut interests = [EventFlags::IN; 2];
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, side) in sides.iter().enumerate() {
        ioctl_fionbio(side, true)?;
        epoll::add(
            &poll,
            side,
            EventData::new_u64(index as u64),
            interests[index],
        )?;
    }
    let mut events = Vec::with_capacity(sides.len());
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for &Event { flags, data } in &events {
            let side = data.u64() as usize;
            let may_write = flags.contains(EventFlags::OUT);
            let may_read = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            if may_write && !flows[1 - side].advance()? {
                return Ok(());
            }
            if may_read && !flows[side].is_held_up() && !flows[side].advance()? {
                return Ok(());
            }
        }
        for side in 0..sides.len() {
            // A side with kept bytes is not read, and room is awaited only if there are kept bytes.
            let mut wanted = EventFlags::empty();
            wanted.set(EventFlags::IN, !flows[side].is_held_up());
            wanted.set(EventFlags::OUT, flows[1 - side].is_held_up());
            if wanted != interests[side] {
                epoll::modify(&poll, sides[side], EventData::new_u64(side as u64), wanted)?;
                interests[side] = wanted;
            }
        }
    }
}
