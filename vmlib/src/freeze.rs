//! How a task is stopped, saved, and goes on: here or on another host.
//!
//! The daemon's order comes over the interrupt socket, together with the descriptor that what is saved
//! goes to. It is carried out by a [`Checkpointer`], in whichever thread hears of it: one that waits, or
//! one that the nudge has interrupted. Threads within the library are in a section while they hold
//! its state, so they stop when they have let go of it; where they wait they hold nothing. A portable
//! task is stopped by its program, at a safe point, and one with callbacks in a call of the library
//! ([`crate::save_in_call`]).
//!
//! While it stands, the task tells its daemon that it is saved, and waits for one word: go on. It comes
//! here, when the move was aborted or the checkpoint has all that it needs; or it comes to the
//! process that was made on the other host, over the new interrupt socket. Either way the next call of
//! the library finds that the task was [`renewals`] times frozen, and begins its channels anew
//! ([`crate::primitive`]).
//!
//! **Runs in signal handlers, and while all threads stand**: nothing here allocates or locks; the
//! system calls are bare ones. No `unsafe` here.

use crate::{
    checkpointer::Checkpointer,
    daemon_lost::end_process_in_handler,
    interrupt_socket::{borrowed, interrupt_socket},
    orders::is_leaving,
    resend::{self, Again},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{OwnedFd, RawFd},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
    process::getpid,
};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use vm_wire::{
    HostId, MachineId,
    interrupt::{Folders, ORDER_LEN, Order, REPORT_MAX, Report},
    limits,
};

/// Two folders, one behind the other, and how long they are: 16 bits each.
static FOLDERS: [AtomicU8; 2 * limits::WORK_DIR_MAX] =
    [const { AtomicU8::new(0) }; 2 * limits::WORK_DIR_MAX];
static FOLDERS_LEN: AtomicU32 = AtomicU32::new(0);
/// The number of the last order.
static HEEDED: AtomicU64 = AtomicU64::new(0);
/// How often the task went on after it was frozen; whether the last time as another process.
static RENEWALS: AtomicU32 = AtomicU32::new(0);
static MOVED: AtomicBool = AtomicBool::new(false);
static HOST: AtomicU16 = AtomicU16::new(0);
/// The machine where it went on, and the generation of its application.
static MACHINE: AtomicU32 = AtomicU32::new(0);
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Chunks that were sent and are not acknowledged.
static UNACKNOWLEDGED: AtomicU32 = AtomicU32::new(0);
/// The process that is the task.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Why a task is not frozen.
const LEAVING: &str = "it is leaving the machine";

/// How often this task went on after it was frozen.
pub(crate) fn renewals() -> u32 {
    RENEWALS.load(SeqCst)
}

/// Whether it went on as another process the last time: what was under way is lost with its sockets.
pub(crate) fn is_moved() -> bool {
    MOVED.load(SeqCst)
}

/// The host where it went on.
pub(crate) fn host() -> HostId {
    HostId(HOST.load(SeqCst))
}

/// The machine where it went on: another one, if its application was brought back there.
pub(crate) fn machine() -> MachineId {
    MachineId::from_bits(MACHINE.load(SeqCst))
}

/// The generation of its application when it went on.
pub(crate) fn generation() -> u32 {
    GENERATION.load(SeqCst)
}

/// This process is the task.
pub(crate) fn enrolled() {
    PROCESS.store(getpid().as_raw_pid(), SeqCst);
}

/// Whether this process is the task, and not a forked copy of it.
pub(crate) fn is_task() -> bool {
    PROCESS.load(SeqCst) == getpid().as_raw_pid()
}

/// So many chunks were sent and are not acknowledged, when the library's state is let go of.
pub(crate) fn note_unacknowledged(count: u64) {
    UNACKNOWLEDGED.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
}

/// Tells the daemon that the task stands and so many bytes are written of it, which took so long.
pub(crate) fn report_saved(bytes: u64, micros: u32) {
    report(Report::Saved {
        bytes,
        micros,
        unacknowledged: UNACKNOWLEDGED.load(Relaxed),
    });
}

/// The number of the order that is carried out.
pub(crate) fn heeded() -> u64 {
    HEEDED.load(SeqCst)
}

/// Carries out an order. Not within a section, but for a task that has come to a safe point.
pub(crate) fn heed(by: &dyn Checkpointer, packet: &[u8], image: Option<OwnedFd>) {
    if resend::heed_order(packet) {
        return;
    }
    let order = match Order::from_bytes(packet) {
        Some((number, order)) if number > heeded() => {
            HEEDED.store(number, SeqCst);
            order
        }
        _ => None,
    };
    match (order, image) {
        (Some(Order::Copy { .. } | Order::Freeze { .. }), Some(_)) if is_leaving() => {
            by.go_on();
            report(Report::Busy(LEAVING));
        }
        (Some(Order::Copy { compress }), Some(image)) => {
            note_folders(packet);
            by.prepare(image, compress);
        }
        (Some(Order::Freeze { compress, way }), Some(image)) => {
            note_folders(packet);
            by.save(image, compress, way);
        }
        (Some(Order::Cancel), None) => by.go_on(),
        // Whoever sent a descriptor is told by its end that it will not be used.
        _ => {}
    }
}

/// There must be no save now: an order to make one is answered so.
pub(crate) fn refuse(by: &dyn Checkpointer, packet: &[u8], why: &str) {
    if let Some((number, _)) = Order::from_bytes(packet)
        && number > heeded()
    {
        HEEDED.store(number, SeqCst);
        by.go_on();
        report(Report::Refused(why));
    }
}

/// The task is where that order, which it is about to carry out, can be.
pub(crate) fn report_held(packet: &[u8]) {
    if let Some((number, _)) = Order::from_bytes(packet) {
        report_over(interrupt_socket(), number, Report::Held);
    }
}

/// The folders of an order are kept until all is written.
fn note_folders(packet: &[u8]) {
    let (here, there) = Folders::of(packet).unwrap_or_default();
    for (place, byte) in FOLDERS.iter().zip(here.iter().chain(there)) {
        place.store(*byte, Relaxed);
    }
    FOLDERS_LEN.store((here.len() << 16 | there.len()) as u32, SeqCst);
}

/// The folder of the order that is carried out, and the one that takes its place at the target, by way
/// of `room`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn folders(room: &mut [u8; 2 * limits::WORK_DIR_MAX]) -> Option<(&[u8], &[u8])> {
    let len = FOLDERS_LEN.load(SeqCst) as usize;
    let (here, there) = (len >> 16, len & 0xffff);
    for (byte, place) in room.iter_mut().zip(&FOLDERS) {
        *byte = place.load(Relaxed);
    }
    let folders = room.get(..here + there)?.split_at(here);
    (len != 0).then_some(folders)
}

/// The task stands, and its daemon knows: waits for its word, and goes on.
pub(crate) fn stand(by: &dyn Checkpointer) {
    MOVED.store(false, SeqCst);
    await_go();
    // The freeze may have closed direct connections.
    resend::resend(Again::Lost);
    by.go_on();
}

/// This process was made of what was saved, and stands: tells its daemon, waits for its word, and goes
/// on.
pub(crate) fn came_back(by: &dyn Checkpointer) {
    MOVED.store(true, SeqCst);
    enrolled();
    // The orders of another daemon, which has sent none yet.
    HEEDED.store(0, SeqCst);
    report(Report::Back {
        elsewhere: by.is_elsewhere(),
    });
    await_go();
    resend::resend(Again::All);
    by.resume();
}

fn await_go() {
    let mut packet = [0; ORDER_LEN];
    loop {
        let socket = interrupt_socket();
        if socket < 0 {
            return;
        }
        let socket = borrowed(socket);
        match recv(socket, &mut packet, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => end_process_in_handler(),
            Ok((len, _)) if resend::note_order(&packet[..len]) => {}
            Ok((len, _)) => {
                if let Some((number, Some(order))) = Order::from_bytes(&packet[..len])
                    && let Order::Go {
                        host,
                        machine,
                        generation,
                    } = order
                {
                    HEEDED.store(number, SeqCst);
                    HOST.store(host.0, SeqCst);
                    MACHINE.store(machine.get(), SeqCst);
                    GENERATION.store(generation, SeqCst);
                    RENEWALS.fetch_add(1, SeqCst);
                    return;
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                // Nothing else can be waited for; an error ends with the next try.
                let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], None);
            }
            // No daemon has given it this socket.
            Err(_) => stray(),
        }
    }
}

/// Ends the process: what brought it back is no machine.
fn stray() -> ! {
    let text =
        b"vmlib: this is the image of a task, which only a machine restores: see vm restart\n";
    // Nobody may be there to read it.
    let _ = rustix::io::write(borrowed(libc::STDERR_FILENO), text);
    end_process_in_handler()
}

/// Answers the last order.
pub(crate) fn report(report: Report<&str>) {
    report_over(interrupt_socket(), heeded(), report);
}

pub(crate) fn report_over(socket: RawFd, order: u64, report: Report<&str>) {
    let mut bytes = [0; REPORT_MAX];
    if socket >= 0 {
        // If the daemon is not there any more, the wait for its word ends this process.
        let _ = send(
            borrowed(socket),
            report.write(order, &mut bytes),
            SendFlags::NOSIGNAL,
        );
    }
}
