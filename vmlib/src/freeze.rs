//! How a task is stopped, written out as an image, and goes on: here or on another host.
//!
//! The daemon's order comes over the interrupt socket, together with the descriptor that the image
//! goes to. It is carried out by whichever thread hears of it: one that waits, or one that the nudge
//! has interrupted. Threads within the library are in a [`vm_checkpoint::Section`] while they hold
//! its state, so they stop when they have let go of it; where they wait they hold nothing.
//!
//! For a move, most of the image is written while the task runs, by a thread of the checkpointer's own; when
//! little is left, or it does not get less, the daemon hears of it, and orders the stop. For a
//! checkpoint, a copy of the process writes it, and the task goes on when all of its application stand.
//!
//! While all threads stand, the task tells its daemon that the image is written, or the copy made, and
//! waits for one word: go on. It comes here, when the move was taken back; or it comes to the process that was
//! brought back on the other host, over the new interrupt socket that is there under the number of
//! the old one. Either way the next call of the library finds that the task was [`renewals`] times
//! frozen, and begins its channels anew ([`crate::primitive`]).
//!
//! **Runs in signal handlers, and while all threads stand**: nothing here allocates or locks; the
//! system calls are bare ones. No `unsafe` here.

use crate::interrupt::{borrowed, data_socket, interrupt_socket, lost};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::RawFd,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use vm_checkpoint::{Carry, Moment, Options, raw::sys};
use vm_wire::{
    HostId, MachineId,
    interrupt::{Folders, Freeze, ORDER_LEN, Order, REPORT_MAX, Report},
    limits,
};

/// Where the image goes, and whether that was closed after the image was whole.
static IMAGE: AtomicI32 = AtomicI32::new(-1);
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The copy of the process that writes an image, or has done so; 0 if there is none.
static WRITER: AtomicI32 = AtomicI32::new(0);
/// Memory is being sent while the task runs.
static COPIES: AtomicBool = AtomicBool::new(false);
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
/// The library's time when the image was written, and what is added to the system's. Microseconds.
static SAVED_AT: AtomicI64 = AtomicI64::new(0);
static OFFSET: AtomicI64 = AtomicI64::new(0);
/// Chunks that were sent and are not acknowledged.
static UNACKNOWLEDGED: AtomicU32 = AtomicU32::new(0);
/// The process that is the task.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The task is leaving the machine.
static LEAVES: AtomicBool = AtomicBool::new(false);

/// What of its open files goes along with a task that moves, or is in a checkpoint.
const FOR_MOVE: Carry = Carry::Fitting(limits::MOVE_FILES);
const FOR_CHECKPOINT: Carry = Carry::RollBack {
    rewritable: limits::CHECKPOINT_FILES,
    others: limits::MOVE_FILES,
};

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

/// What is added to the time of the system's clock, so that the library's own does not jump.
/// Microseconds.
pub(crate) fn clock_offset() -> i64 {
    OFFSET.load(Relaxed)
}

/// This process is the task.
pub(crate) fn enrolled() {
    PROCESS.store(sys::getpid(), SeqCst);
}

/// Whether this process is the task, and not a forked copy of it.
pub(crate) fn is_task() -> bool {
    PROCESS.load(SeqCst) == sys::getpid()
}

/// So many chunks were sent and are not acknowledged, when the library's state is let go of.
pub(crate) fn note_unacknowledged(count: u64) {
    UNACKNOWLEDGED.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
}

/// From now on the task is not frozen any more.
pub(crate) fn leaves() {
    LEAVES.store(true, SeqCst);
}

/// Carries out an order. Not within a section.
pub(crate) fn heed(packet: &[u8], image: Option<RawFd>) {
    let order = match Order::from_bytes(packet) {
        Some((number, order)) if number > HEEDED.load(SeqCst) => {
            HEEDED.store(number, SeqCst);
            order
        }
        _ => None,
    };
    match (order, image) {
        (Some(Order::Copy { compress }), Some(image)) => {
            note_folders(packet);
            copy(image, compress);
        }
        (Some(Order::Freeze { compress, way }), Some(image)) => {
            note_folders(packet);
            freeze(image, compress, way);
        }
        (Some(Order::Cancel), None) if COPIES.swap(false, SeqCst) => {
            vm_checkpoint::give_up_in_handler();
        }
        // Whoever sent it is told by its end that it will not be used.
        (_, Some(image)) => sys::close(image),
        _ => {}
    }
}

/// The folders of an order are kept until the image is written.
fn note_folders(packet: &[u8]) {
    let (here, there) = Folders::of(packet).unwrap_or_default();
    for (place, byte) in FOLDERS.iter().zip(here.iter().chain(there)) {
        place.store(*byte, Relaxed);
    }
    FOLDERS_LEN.store((here.len() << 16 | there.len()) as u32, SeqCst);
}

/// What was kept, by way of `room`.
fn folders(room: &mut [u8; 2 * limits::WORK_DIR_MAX]) -> Option<vm_checkpoint::Folders<'_>> {
    let len = FOLDERS_LEN.load(SeqCst) as usize;
    let (here, there) = (len >> 16, len & 0xffff);
    for (byte, place) in room.iter_mut().zip(&FOLDERS) {
        *byte = place.load(Relaxed);
    }
    let (here, there) = room.get(..here + there)?.split_at(here);
    (len != 0).then_some(vm_checkpoint::Folders { here, there })
}

fn options<'a>(
    own: &'a [RawFd],
    folders: Option<vm_checkpoint::Folders<'a>>,
    compress: bool,
    carry: Carry,
) -> Options<'a> {
    Options {
        compress,
        // The daemon's process at the other end of the pipe reads, and nothing else.
        lend: true,
        own,
        folders,
        carry,
        hold: Some(hold),
        ..Options::default()
    }
}

/// Begins an image while the task runs.
fn copy(image: RawFd, compress: bool) {
    if LEAVES.load(SeqCst) {
        sys::close(image);
        return report(Report::Refused(LEAVING));
    }
    reap();
    let own = [data_socket(), interrupt_socket()];
    let mut room = [0; _];
    let options = options(&own, folders(&mut room), compress, FOR_MOVE);
    let told = (interrupt_socket(), HEEDED.load(SeqCst));
    let begun = vm_checkpoint::begin_in_handler(image, options, told, copied);
    // The thread that sends has a descriptor of its own.
    sys::close(image);
    match begun {
        Ok(()) => COPIES.store(true, SeqCst),
        Err(text) => report(Report::Refused(text.as_str())),
    }
}

/// The rounds are over.
fn copied(socket: RawFd, order: u64, bytes: u64, rounds: u32) {
    report_over(socket, order, Report::Copied { bytes, rounds });
}

/// A copy of the process that has written an image, or still does though nobody wants it any more,
/// would be in the way of the next one as a child.
fn reap() {
    match WRITER.swap(0, SeqCst) {
        0 => {}
        writer => vm_checkpoint::reap(writer),
    }
}

fn freeze(image: RawFd, compress: bool, way: Freeze) {
    let begun = COPIES.swap(false, SeqCst);
    if LEAVES.load(SeqCst) {
        if begun {
            vm_checkpoint::give_up_in_handler();
        }
        sys::close(image);
        return report(Report::Refused(LEAVING));
    }
    IMAGE.store(image, SeqCst);
    CLOSED.store(false, SeqCst);
    SAVED_AT.store(system_us() + clock_offset(), SeqCst);
    if !begun {
        reap();
    }
    let carry = match way {
        Freeze::Move => FOR_MOVE,
        Freeze::Checkpoint | Freeze::Copied => FOR_CHECKPOINT,
    };
    let own = [data_socket(), interrupt_socket()];
    let mut room = [0; _];
    let options = Options {
        forked: way == Freeze::Copied,
        ..options(&own, folders(&mut room), compress, carry)
    };
    let saved = vm_checkpoint::save_in_handler(image, options, begun);
    if !CLOSED.load(SeqCst) {
        sys::close(image);
    }
    if let Err(text) = saved {
        report(Report::Refused(text.as_str()));
    }
}

/// All threads stand: tells the daemon, and waits for its word.
fn hold(moment: Moment) {
    match moment {
        Moment::Writes => return report(Report::Writes),
        Moment::Saved { bytes, ns, writer } => {
            WRITER.store(writer, SeqCst);
            let micros = u32::try_from(ns / 1000).unwrap_or(u32::MAX);
            let unacknowledged = UNACKNOWLEDGED.load(Relaxed);
            report(Report::Saved {
                bytes,
                micros,
                unacknowledged,
            });
            sys::close(IMAGE.load(SeqCst));
            CLOSED.store(true, SeqCst);
            MOVED.store(false, SeqCst);
        }
        Moment::Back => {
            OFFSET.store(SAVED_AT.load(SeqCst) - system_us(), SeqCst);
            MOVED.store(true, SeqCst);
            enrolled();
            // The orders of another daemon, which has sent none yet.
            HEEDED.store(0, SeqCst);
            report(Report::Back);
        }
    }
    let mut packet = [0; ORDER_LEN];
    loop {
        let socket = interrupt_socket();
        if socket < 0 {
            return;
        }
        let socket = borrowed(socket);
        match recv(socket, &mut packet, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => lost(),
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
            Err(_) => {
                // Nothing else can be waited for; an error ends with the next try.
                let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], None);
            }
        }
    }
}

/// Answers the last order.
fn report(report: Report<&str>) {
    report_over(interrupt_socket(), HEEDED.load(SeqCst), report);
}

fn report_over(socket: RawFd, order: u64, report: Report<&str>) {
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

fn system_us() -> i64 {
    (sys::clock_ns(libc::CLOCK_MONOTONIC) / 1000) as i64
}
