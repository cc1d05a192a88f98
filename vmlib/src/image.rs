//! The checkpointer of images: all of the process, as it is, its program unchanged
//! ([`vm_image`]).
//!
//! For a move, most of the image is written while the task runs, by a thread of the checkpointer's own;
//! when little is left, or it does not get less, the daemon hears of it, and orders the stop. For a
//! checkpoint, a copy of the process writes it, and the task goes on when all of its application stand.
//!
//! **Runs in signal handlers, and while all threads stand**: nothing here allocates or locks; the
//! system calls are bare ones. No `unsafe` here.

use crate::{
    checkpointer::Checkpointer,
    clock,
    freeze::{self, report, report_saved},
    interrupt_socket::{data_socket, interrupt_socket},
    orders,
    ring::area,
};
use rustix::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering::SeqCst};
use vm_image::{Carry, Folders, Moment, Options, raw::sys};
use vm_wire::{
    interrupt::{Freeze, Report},
    limits,
};

pub(crate) use vm_image::{Section, in_section, prepare};

/// Where the image goes, and whether that was closed after the image was whole.
static IMAGE: AtomicI32 = AtomicI32::new(-1);
static CLOSED: AtomicBool = AtomicBool::new(false);
/// The copy of the process that writes an image, or has done so; 0 if there is none.
static WRITER: AtomicI32 = AtomicI32::new(0);
/// Memory is being sent while the task runs.
static COPIES: AtomicBool = AtomicBool::new(false);
/// The save is for a move: the task has no rings afterwards.
static CLOSES_RINGS: AtomicBool = AtomicBool::new(false);
/// The library's time when the image was written. Microseconds.
static SAVED_AT: AtomicI64 = AtomicI64::new(0);

/// The open files that an image of a task carries, for a move and for a checkpoint.
const FOR_MOVE: Carry = Carry::Fitting(limits::MOVE_FILES);
const FOR_CHECKPOINT: Carry = Carry::RollBack {
    rewritable: limits::CHECKPOINT_FILES,
    others: limits::MOVE_FILES,
};

/// Gives up what was begun; whether there was something.
pub(crate) fn give_up_begun() -> bool {
    let begun = COPIES.swap(false, SeqCst);
    if begun {
        vm_image::give_up_in_handler();
    }
    begun
}

/// See the module.
pub(crate) struct Image;

impl Checkpointer for Image {
    fn prepare(&self, image: OwnedFd, compress: bool) {
        reap();
        let own = own_descriptors();
        let mut room = [0; _];
        let options = options(&own, folders(&mut room), compress, FOR_MOVE);
        let told = (interrupt_socket(), freeze::heeded());
        // The thread that sends has a descriptor of its own.
        // What callbacks will have let go of by then is no reason to refuse it now.
        let checked = !orders::stop_in_calls();
        let image_fd = image.as_raw_fd();
        let begun = vm_image::begin_in_handler(image_fd, options, checked, told, copied);
        sys::close(image.into_raw_fd());
        match begun {
            Ok(()) => COPIES.store(true, SeqCst),
            Err(text) => report(refusal(&text)),
        }
    }

    /// Threads in a [`Section`] hear of orders when they have left it, so this one is in none. While one
    /// calls callbacks, orders are its.
    fn stop(&self) -> bool {
        !orders::are_called()
    }

    fn save(&self, image: OwnedFd, compress: bool, way: Freeze) {
        let begun = COPIES.swap(false, SeqCst);
        let image = image.into_raw_fd();
        IMAGE.store(image, SeqCst);
        CLOSED.store(false, SeqCst);
        SAVED_AT.store(system_us() + clock::offset(), SeqCst);
        if !begun {
            reap();
        }
        let carry = match way {
            Freeze::Move => FOR_MOVE,
            Freeze::Checkpoint | Freeze::Copied => FOR_CHECKPOINT,
        };
        CLOSES_RINGS.store(way == Freeze::Move, SeqCst);
        let own = own_descriptors();
        let mut room = [0; _];
        let options = Options {
            forked: way == Freeze::Copied,
            ..options(&own, folders(&mut room), compress, carry)
        };
        let saved = vm_image::save_in_handler(image, options, begun);
        if !CLOSED.load(SeqCst) {
            sys::close(image);
        }
        if let Err(text) = saved {
            report(refusal(&text));
        }
    }

    fn go_on(&self) {
        give_up_begun();
    }

    fn rebuild(&self) {
        clock::set_offset(SAVED_AT.load(SeqCst) - system_us());
        freeze::came_back(self);
    }

    /// The threads run when this returns.
    fn resume(&self) {}

    fn is_elsewhere(&self) -> bool {
        vm_image::is_elsewhere()
    }
}

/// Why there is no image, as the daemon is told.
fn refusal(text: &vm_image::Text) -> Report<&str> {
    match text.passes() {
        true => Report::Busy(text.as_str()),
        false => Report::Refused(text.as_str()),
    }
}

/// The folders of the order that is carried out, copied into `room`.
fn folders(room: &mut [u8; 2 * limits::WORK_DIR_MAX]) -> Option<Folders<'_>> {
    let (here, there) = freeze::folders(room)?;
    Some(Folders { here, there })
}

/// The descriptors that the library manages itself: the two sockets are handed over to the restored
/// process.
fn own_descriptors() -> [RawFd; 3 + limits::RINGS_PER_TASK] {
    let rings = area::descriptors();
    std::array::from_fn(|index| match index {
        0 => data_socket(),
        1 => interrupt_socket(),
        _ => rings[index - 2],
    })
}

fn options<'a>(
    own: &'a [RawFd],
    folders: Option<Folders<'a>>,
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

/// The rounds are over.
fn copied(socket: RawFd, order: u64, bytes: u64, rounds: u32) {
    freeze::report_over(socket, order, Report::Copied { bytes, rounds });
}

/// A copy of the process that has written an image, or still does though nobody wants it any more,
/// would be in the way of the next one as a child.
fn reap() {
    match WRITER.swap(0, SeqCst) {
        0 => {}
        writer => vm_image::reap(writer),
    }
}

/// All threads stand: tells the daemon, and waits for its word.
fn hold(moment: Moment) {
    match moment {
        Moment::Stopped if CLOSES_RINGS.load(SeqCst) => area::close_all(),
        Moment::Stopped => {}
        Moment::Writes => report(Report::Writes),
        Moment::Saved { bytes, ns, writer } => {
            WRITER.store(writer, SeqCst);
            let micros = u32::try_from(ns / 1000).unwrap_or(u32::MAX);
            report_saved(bytes, micros);
            sys::close(IMAGE.load(SeqCst));
            CLOSED.store(true, SeqCst);
            freeze::stand(&Image);
        }
        Moment::Restored => {
            area::restored();
            Image.rebuild();
        }
    }
}

fn system_us() -> i64 {
    (sys::clock_ns(libc::CLOCK_MONOTONIC) / 1000) as i64
}
