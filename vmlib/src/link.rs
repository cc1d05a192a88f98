//! The two sockets to the daemon, and the bytes on their way through the data socket.
//!
//! Both sockets are non-blocking; the one wait is [`Sockets::sleep`], which watches both and the rings
//! ([`crate::ring`]), after it
//! has looked for a moment ([`Sockets::look`]) if that promises to be shorter. What is to
//! be sent waits in [`Outgoing`] and goes to the kernel straight from the chunks that the channel
//! retains, many frames in one call. What comes is read in large pieces into the buffer of a
//! [`FrameReader`], and a large body stays where it was read. A small one is copied out, so that a
//! message that is kept for long does not keep a whole buffer, and the buffer is used again.
//!
//! The `unsafe` blocks here say how many bytes the kernel wrote into the buffer's spare room, and borrow
//! the descriptor that wakes this task.

use crate::{
    clock::now,
    daemon_lost::{end_process, end_process_in_handler},
    error::LinkError,
    receive::receive,
    ring::{NARROW, Watch, area},
};
use bytes::{BufMut, Bytes};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
    thread::sched_yield,
};
use std::{
    collections::VecDeque,
    hint::spin_loop,
    io::IoSlice,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};
use vm_wire::{Frame, FrameReader, HEADER_LEN, Header, limits::RINGS_PER_TASK};

/// Room for one read, a few chunks. Bytes.
const READ_BYTES: usize = 256 * 1024;
/// Looks at the rings between two looks at the sockets, which are system calls: about a microsecond.
const RING_LOOKS: usize = 50;
/// While others want the processor, the sockets are looked at after so many looks at the rings.
const SOCKETS_EVERY: u32 = 8;
/// The processor was offered to others, and came back so much later: one of them has used it. Two
/// changes of the process take longer, a call that finds no other process takes a third of it.
const TAKEN: Duration = Duration::from_nanos(800);
/// Slices of one write: the kernel takes up to 1024, a UNIX socket about 200 KiB by default.
const SLICES: usize = 32;

/// The two sockets.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Frames in both directions, a stream.
    pub(crate) data: OwnedFd,
    /// See [`crate::interrupt`].
    pub(crate) interrupt: OwnedFd,
    /// Another process has used the processor when it was offered the last time.
    crowded: AtomicBool,
}

/// The sockets that are ready after a wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The data socket can be read, or has ended.
    pub(crate) read: bool,
    /// The interrupt socket can be read, or has ended.
    pub(crate) interrupt: bool,
    /// A ring has a chunk, or room.
    pub(crate) ring: bool,
    /// A direct connection has something, or room.
    pub(crate) direct: bool,
}

impl Sockets {
    /// The two sockets of a task.
    pub(crate) fn new(data: OwnedFd, interrupt: OwnedFd) -> Self {
        Sockets {
            data,
            interrupt,
            crowded: AtomicBool::new(false),
        }
    }

    /// Looks again and again whether the data socket can be read, an interrupt has come or a ring has
    /// something, and lets other threads run in between, for [`Watch::patience`] or until the time is over.
    /// `between` becomes the longest time between two looks.
    pub(crate) fn look(
        &self,
        time: Option<Duration>,
        between: &mut Duration,
        watches: bool,
        rings: &Watch,
    ) -> Result<Ready, LinkError> {
        let mut last = now();
        let look_time = rings.patience().look;
        let end = last + time.map_or(look_time, |time| time.min(look_time));
        let looks_for = |crowded| if crowded { 1 } else { RING_LOOKS };
        let mut looks = looks_for(self.crowded.load(Relaxed));
        for round in 0.. {
            if !rings.is_empty() {
                for _ in 0..looks {
                    if rings.is_over() {
                        return Ok(Ready::RING);
                    }
                    spin_loop();
                }
            }
            if rings.is_empty() || looks > 1 || round % SOCKETS_EVERY == 0 {
                let none = Some(Duration::ZERO);
                let ready = self.wait(true, false, none, watches, rings.sockets())?;
                if ready != Ready::default() {
                    return Ok(ready);
                }
            }
            let before = now();
            *between = (*between).max(before.since(last));
            if before >= end {
                break;
            }
            let offered = Instant::now();
            sched_yield();
            let taken = offered.elapsed();
            last = now();
            *between = (*between).max(taken);
            // If others want the processor, it is offered after each look.
            self.crowded.store(taken >= TAKEN, Relaxed);
            looks = looks_for(taken >= TAKEN);
        }
        Ok(Ready::default())
    }

    /// Like [`Sockets::wait`], and for something in a ring. The tasks at the other ends are told that
    /// this one sleeps.
    pub(crate) fn sleep(
        &self,
        read: bool,
        write: bool,
        time: Option<Duration>,
        watches: bool,
        rings: &Watch,
    ) -> Result<Ready, LinkError> {
        if rings.is_empty() {
            return self.wait(read, write, time, watches, rings.sockets());
        }
        let time = match rings.is_narrow() {
            true => Some(time.map_or(NARROW, |time| time.min(NARROW))),
            false => time,
        };
        let ready = match rings.sleep() {
            true => Ok(Ready::RING),
            false => self.wait(read, write, time, watches, rings.sockets()),
        };
        rings.awake();
        ready
    }

    /// Waits until the data socket can be read (if `read`) or written (if `write`), an interrupt
    /// comes (if it `watches` for that; its end in any case), another task wakes this one, a direct
    /// connection has an event that it is watched for, the time is over, or a signal was handled.
    pub(crate) fn wait(
        &self,
        read: bool,
        write: bool,
        time: Option<Duration>,
        watches: bool,
        directs: &[(RawFd, PollFlags)],
    ) -> Result<Ready, LinkError> {
        match directs {
            [] => self.wait_for::<3>(read, write, time, watches, &[]),
            _ => self.wait_for::<{ 3 + RINGS_PER_TASK }>(read, write, time, watches, directs),
        }
    }

    /// See [`Sockets::wait`]; for at most `MOST` descriptors.
    fn wait_for<const MOST: usize>(
        &self,
        read: bool,
        write: bool,
        time: Option<Duration>,
        watches: bool,
        directs: &[(RawFd, PollFlags)],
    ) -> Result<Ready, LinkError> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, read);
        events.set(PollFlags::OUT, write);
        let mut interrupts = PollFlags::empty();
        interrupts.set(PollFlags::IN, watches);
        // The thread that reads the sockets is the one that sleeps for rings, too.
        let wake = if read { area::wake() } else { -1 };
        let woken = match wake {
            ..0 => self.data.as_fd(),
            // SAFETY: it stays open as long as this process, or until it is frozen.
            _ => unsafe { BorrowedFd::borrow_raw(wake) },
        };
        let eventfd = match wake {
            ..0 => PollFlags::empty(),
            _ => PollFlags::IN,
        };
        let mut fds: [PollFd<'_>; MOST] = std::array::from_fn(|index| match index {
            0 => PollFd::new(&self.data, events),
            1 => PollFd::new(&self.interrupt, interrupts),
            2 => PollFd::from_borrowed_fd(woken, eventfd),
            _ => match directs.get(index - 3) {
                Some((socket, events)) => {
                    // SAFETY: it is borrowed for this call, which asks for its state alone. If another
                    // thread closes it meanwhile, the next wait watches others.
                    let socket = unsafe { BorrowedFd::borrow_raw(*socket) };
                    PollFd::from_borrowed_fd(socket, *events)
                }
                None => PollFd::new(&self.data, PollFlags::empty()),
            },
        });
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let used = match directs {
            [] if wake < 0 => 2,
            _ => MOST.min(3 + directs.len()),
        };
        match poll(&mut fds[..used], time.as_ref()) {
            Ok(_) => {
                let ring = wake >= 0 && !fds[2].revents().is_empty();
                if ring {
                    // One read empties the eventfd; another thread may have read it.
                    let _ = rustix::io::read(woken, &mut [0; 8]);
                }
                Ok(Ready {
                    read: fds[0].revents().intersects(!PollFlags::OUT),
                    interrupt: !fds[1].revents().is_empty(),
                    ring,
                    direct: fds[3..used.max(3)]
                        .iter()
                        .any(|direct| !direct.revents().is_empty()),
                })
            }
            Err(Errno::INTR) => Ok(Ready::default()),
            Err(cause) => Err(system("waiting for the daemon", cause)),
        }
    }
}

impl Ready {
    /// A ring has something.
    const RING: Ready = Ready {
        read: false,
        interrupt: false,
        ring: true,
        direct: false,
    };
}

/// Frames on their way to the daemon.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    frames: VecDeque<([u8; HEADER_LEN], Bytes)>,
    /// Bytes of the first frame that are with the kernel.
    written: usize,
}

impl Outgoing {
    /// Puts a frame behind the others.
    pub(crate) fn push(&mut self, frame: Frame) {
        let header = frame.header.to_bytes(frame.body.len());
        self.frames.push_back((header, frame.body));
    }

    /// Whether all is with the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// For signal handlers: writes all, and waits for room. Nothing is freed.
    pub(crate) fn write_in_handler(&mut self, socket: impl AsFd) {
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.fill(&mut slices);
            if filled == 0 {
                return;
            }
            self.written += send_in_handler(&socket, &slices[..filled]);
        }
    }

    /// Writes as much as the kernel takes.
    pub(crate) fn write(&mut self, socket: impl AsFd) -> Result<(), LinkError> {
        // A handler may have written whole frames.
        self.advance(0);
        // A daemon that has died must not raise SIGPIPE in the user's program.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !self.frames.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.fill(&mut slices);
            match sendmsg(
                &socket,
                &slices[..filled],
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(written) => self.advance(written),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => end_process(),
                Err(cause) => return Err(system("writing to the daemon", cause)),
            }
        }
        Ok(())
    }

    /// Points `slices` to what comes next; how many there are.
    fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut skip = self.written;
        let mut filled = 0;
        for part in self
            .frames
            .iter()
            .flat_map(|(head, body)| [&head[..], body])
        {
            if filled == SLICES {
                break;
            }
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            if !rest.is_empty() {
                slices[filled] = IoSlice::new(rest);
                filled += 1;
            }
        }
        filled
    }

    /// Forgets what the kernel has taken.
    fn advance(&mut self, written: usize) {
        self.written += written;
        while let Some((head, body)) = self.frames.front()
            && self.written >= head.len() + body.len()
        {
            self.written -= head.len() + body.len();
            self.frames.pop_front();
        }
    }
}

/// For signal handlers: writes a frame to the daemon, and waits for room.
pub(crate) fn write_in_handler(socket: impl AsFd, header: &Header, body: &[u8]) {
    let header = header.to_bytes(body.len());
    let mut written = 0;
    while written < header.len() + body.len() {
        let rest_of_header = &header[written.min(header.len())..];
        let rest_of_body = &body[written.saturating_sub(header.len())..];
        let slices = [IoSlice::new(rest_of_header), IoSlice::new(rest_of_body)];
        written += send_in_handler(&socket, &slices);
    }
}

/// Writes once, and waits for room if there is none. Does not return if the daemon has died.
fn send_in_handler(socket: impl AsFd, slices: &[IoSlice<'_>]) -> usize {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags) {
        Ok(written) => written,
        Err(Errno::AGAIN | Errno::INTR) => {
            // An error is found by the next write.
            let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None);
            0
        }
        Err(_) => end_process_in_handler(),
    }
}

/// Frames on their way from the daemon.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    reader: FrameReader,
    /// Descriptors that came along, in the order of their frames.
    descriptors: VecDeque<OwnedFd>,
}

/// How far one read has emptied the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// The socket holds no more.
    Empty,
    /// It holds more, as far as can be seen.
    More,
}

impl Incoming {
    /// Reads once. Does not return if the daemon has died.
    pub(crate) fn read(&mut self, socket: impl AsFd) -> Result<ReadResult, LinkError> {
        let missing = self.reader.missing();
        let mut buffer = self.reader.buffer(0);
        if buffer.capacity() - buffer.len() < missing {
            buffer = self.reader.buffer(READ_BYTES.max(missing));
        }
        let room = buffer.spare_capacity_mut();
        let room_len = room.len();
        let came = self.descriptors.len();
        match receive(socket, room, &mut self.descriptors) {
            Ok(0) | Err(Errno::CONNRESET) => end_process(),
            Ok(len) => {
                // SAFETY: the kernel wrote `len` bytes to the beginning of the spare room.
                unsafe { buffer.advance_mut(len) };
                // The kernel ends a read behind the bytes with which descriptors come.
                Ok(match len == room_len || self.descriptors.len() > came {
                    true => ReadResult::More,
                    false => ReadResult::Empty,
                })
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(ReadResult::Empty),
            Err(cause) => Err(system("reading from the daemon", cause)),
        }
    }

    /// The descriptors that came with a frame, if they are so many.
    pub(crate) fn descriptors<const COUNT: usize>(&mut self) -> Option<[OwnedFd; COUNT]> {
        let count = COUNT.min(self.descriptors.len());
        let came: Vec<OwnedFd> = self.descriptors.drain(..count).collect();
        came.try_into().ok()
    }

    /// The next whole frame that was read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, LinkError> {
        Ok(self.reader.next_frame()?)
    }
}

/// A system call that failed.
fn system(step: &'static str, cause: Errno) -> LinkError {
    LinkError::System { step, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use vm_wire::{Header, Op};

    fn chunk(seq: u64, len: usize) -> Frame {
        let mut header = Header::new(Op::Data);
        header.seq = seq;
        header.total = len as u64;
        Frame::new(header, Bytes::from(vec![seq as u8; len]))
    }

    #[test]
    fn frames_come_through_whole_however_the_kernel_cuts_them() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let lengths = [
            0, 8, 65_536, 1, 4_097, 65_536, 65_536, 65_536, 65_536, 0, 96,
        ];
        let sent: Vec<Frame> = (1..).zip(lengths).map(|(n, len)| chunk(n, len)).collect();
        let mut outgoing = Outgoing::default();
        sent.iter().for_each(|frame| outgoing.push(frame.clone()));

        let mut incoming = Incoming::default();
        let mut received = Vec::new();
        while received.len() < sent.len() {
            outgoing.write(&ours).unwrap();
            incoming.read(&theirs).unwrap();
            while let Some(frame) = incoming.next_frame().unwrap() {
                received.push(frame);
            }
        }
        assert!(outgoing.is_empty());
        assert_eq!(received, sent);
    }

    #[test]
    fn a_wait_sees_each_socket_and_its_limit() {
        let (data, daemon_data) = UnixStream::pair().unwrap();
        let (interrupt, daemon_interrupt) = UnixStream::pair().unwrap();
        let sockets = Sockets::new(data.into(), interrupt.into());
        let wait = |time| sockets.wait(true, false, time, true, &[]).unwrap();
        let soon = Some(Duration::from_millis(1));
        assert_eq!(wait(soon), Ready::default());

        rustix::io::write(&daemon_data, b"x").unwrap();
        let read = Ready {
            read: true,
            ..Ready::default()
        };
        assert_eq!(wait(None), read);

        drop(daemon_interrupt);
        let both = Ready {
            read: true,
            interrupt: true,
            ..Ready::default()
        };
        assert_eq!(wait(None), both);
    }
}
