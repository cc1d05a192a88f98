//! The copy of a process that writes its image, while the process runs on.
//!
//! **Runs in signal handlers**: but for [`reap`] and [`finish`], everything here allocates nothing
//! and locks nothing.

use crate::{
    capture::{
        files,
        memory_advice::{self, Advice},
    },
    frozen::fault::{Fault, Outcome, Text, refuse},
    raw::{
        clone,
        sys::{self, nr},
    },
    save::spare::Withheld,
};

/// Has a copy of the process do the work, and end. It has that one descriptor alone.
/// Returns its id, or nothing if there is no room for a copy.
pub fn in_copy(
    image: i32,
    advice: &'static [Advice],
    withheld: Withheld,
    work: impl FnOnce() -> Outcome<u64>,
) -> Option<i32> {
    memory_advice::take_back(advice);
    withheld.withhold();
    // SAFETY: the copy makes bare system calls only, and ends.
    let copy = unsafe { clone::fork() };
    if copy != 0 {
        withheld.allow();
        // What was locked may be locked again.
        let _ = memory_advice::give(advice);
    }
    match copy {
        0 => {
            close_all_but(image);
            stand_back();
            go_first();
            let code = match work() {
                Ok(_) => 0,
                Err(Fault::Failed(_, errno)) => errno.0.clamp(1, 254),
                Err(Fault::Refused(_)) => 255,
            };
            sys::exit_group(code)
        }
        pid => sys::check(pid).ok().map(|pid| pid as i32),
    }
}

/// The copy leaves the processors to the program: it gets a quarter of the time that a thread of
/// that gets, where they are short, and all that is left over.
fn stand_back() {
    /// Added to the nice value.
    const LATER: isize = 5;
    // SAFETY: they ask and say how urgent this process is.
    unsafe {
        // As the kernel gives it: 20 less the value.
        let urgency = sys::call2(nr::GETPRIORITY, libc::PRIO_PROCESS as usize, 0);
        let nice = 20 - urgency + LATER;
        if urgency > 0 {
            sys::call3(
                nr::SETPRIORITY,
                libc::PRIO_PROCESS as usize,
                0,
                nice as usize,
            );
        }
    }
}

/// Where memory runs out, the kernel kills the copy before the program: another save makes another.
fn go_first() {
    if let Ok(file) = sys::open(b"/proc/self/oom_score_adj\0", libc::O_WRONLY, 0) {
        // Where that is not allowed, it goes when others do.
        let _ = sys::write(file, b"1000");
        sys::close(file);
    }
}

/// Nobody waits for the end of a file, pipe or socket because a copy of the process has it open.
fn close_all_but(kept: i32) {
    files::close_between(0, kept - 1);
    files::close_between(kept + 1, i32::MAX);
}

/// Ends the copy that writes an image, if it has not ended, and waits for it.
pub fn reap(writer: i32) {
    // SAFETY: it was not waited for, so its number means nobody else.
    unsafe { sys::call2(nr::KILL, writer as usize, libc::SIGKILL as usize) };
    clone::wait(writer);
}

/// Waits for the copy that writes an image.
///
/// # Errors
/// What it failed of.
pub fn finish(writer: i32) -> Outcome<()> {
    let status = clone::wait(writer);
    match status.map(|status| (status & 0x7f, status >> 8 & 0xff)) {
        Some((0, 0)) => Ok(()),
        Some((0, 255)) => refuse!("the copy of the process could not save it"),
        Some((0, errno)) => {
            let text = Text::of(format_args!("writing the image"));
            Err(Fault::Failed(text, sys::Errno(errno)))
        }
        Some((signal, _)) => refuse!("the copy that wrote the image was ended by signal {signal}"),
        None => refuse!("the copy that writes the image is not there"),
    }
}
