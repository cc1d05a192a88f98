//! The shell around the coordinator's decisions: one socket to the daemon, and the clock.

use crate::decisions::Coordinator;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
    process::{Pid, Signal},
    time::{ClockId, clock_gettime},
};
use std::{collections::VecDeque, io, mem::MaybeUninit, time::Duration};
use vm_endpoint::Time;
use vm_wire::{Frame, FrameReader};

/// The name of the process, as `ps` shows it.
pub const NAME: &std::ffi::CStr = c"vm-coordinator";
/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Coordinates until the other end of the socket is closed. The socket is a blocking stream, made by
/// the daemon.
///
/// # Errors
/// The error of a system call; invalid data if a frame of the daemon cannot be read or is out of
/// order.
pub fn run(socket: &OwnedFd) -> io::Result<()> {
    // A session of its own: a user who ends the programs of a terminal does not mean the coordinator.
    // Without the name and the session the coordinator works, too.
    let _ = rustix::thread::set_name(NAME);
    let _ = rustix::process::setsid();
    let daemon = vm_local::peer(socket)?.process;
    let mut tied = false;
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let (mut coordinator, first) = Coordinator::new(pid);
    let mut out = VecDeque::from([first]);
    let mut reader = FrameReader::new();
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    loop {
        tied = tied || tie_to(daemon)?;
        for frame in out.drain(..) {
            if !write(socket, &frame)? {
                return Ok(());
            }
        }
        if wait(socket, coordinator.deadline())? {
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok(((read, _), 1..)) => reader.push(read),
                Ok(_) | Err(Errno::CONNRESET) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        while let Some(frame) = reader
            .next_frame()
            .map_err(|error| wrong(error.to_string()))?
        {
            let taken = coordinator.on_frame(now(), &frame, &mut out);
            taken.map_err(|error| wrong(error.to_string()))?;
        }
        let now = now();
        if coordinator.deadline().is_some_and(|due| due <= now) {
            coordinator.tick(now, &mut out);
        }
    }
}

/// Asks the kernel to end this process together with the daemon, if the daemon is the parent of this
/// process; whether the kernel was asked. A daemon outside of this pid namespace is no parent.
fn tie_to(daemon: Option<Pid>) -> io::Result<bool> {
    if daemon.is_none() || rustix::process::getppid() != daemon {
        return Ok(false);
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The daemon may have ended in between: then the socket is closed.
    Ok(true)
}

fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// Waits until the socket can be read, or until the deadline; whether the socket can be read.
fn wait(socket: &OwnedFd, deadline: Option<Time>) -> io::Result<bool> {
    let timeout = deadline.map(|deadline| {
        let time: Duration = deadline.since(now());
        Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        }
    });
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(cause) => Err(cause.into()),
    }
}

/// Writes a frame; `false` if the other end of the socket is closed.
fn write(socket: impl AsFd, frame: &Frame) -> io::Result<bool> {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.write_to(&mut bytes);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match send(&socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(true)
}
