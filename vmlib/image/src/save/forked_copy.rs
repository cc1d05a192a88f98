//! The forked copy of a process, which writes the image while the process runs.
//!
//! **Runs in signal handlers**: except for [`reap`] and [`finish`], everything here allocates
//! nothing and locks nothing.

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

/// Forks a copy of the process that does `work` and ends. The copy has no descriptor open but
/// `image`. Returns the copy's process id, or `None` if the system has no room for a copy.
pub fn in_copy(
    image: i32,
    advice: &'static [Advice],
    withheld: Withheld,
    work: impl FnOnce() -> Outcome<u64>,
) -> Option<i32> {
    memory_advice::take_back(advice);
    withheld.withhold();
    // SAFETY: the copy makes bare system calls only, and then ends.
    let copy = unsafe { clone::fork() };
    if copy != 0 {
        withheld.allow();
        // Memory that was locked may be locked again; a failure is not fatal.
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

/// Lowers the priority of the copy, so that the program has the processors first: where processors
/// are short, the copy gets about a third of a thread's share.
fn stand_back() {
    /// Added to the nice value.
    const LATER: isize = 5;
    // SAFETY: the calls only read and set the priority of this process.
    unsafe {
        // The kernel returns 20 less the nice value.
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

/// Has the kernel kill the copy before the program where memory runs out: the save fails, and
/// another save can follow.
fn go_first() {
    if let Ok(file) = sys::open(b"/proc/self/oom_score_adj\0", libc::O_WRONLY, 0) {
        // Where that is not allowed, the copy keeps the score of the program.
        let _ = sys::write(file, b"1000");
        sys::close(file);
    }
}

/// Closes all descriptors of the copy but `kept`. Otherwise a reader would not see the end of a
/// pipe or socket while the copy has it open.
fn close_all_but(kept: i32) {
    files::close_between(0, kept - 1);
    files::close_between(kept + 1, i32::MAX);
}

/// Kills the copy that writes an image, if it has not ended, and waits for it.
pub fn reap(writer: i32) {
    // SAFETY: the copy was not waited for, so no other process has its number.
    unsafe { sys::call2(nr::KILL, writer as usize, libc::SIGKILL as usize) };
    clone::wait(writer);
}

/// Waits for the copy that writes an image.
///
/// # Errors
/// The copy failed, was killed by a signal, or does not exist.
pub fn finish(writer: i32) -> Outcome<()> {
    let status = clone::wait(writer);
    match status.map(|status| (status & 0x7f, status >> 8 & 0xff)) {
        Some((0, 0)) => Ok(()),
        Some((0, 255)) => refuse!("the copy of the process could not write the image"),
        Some((0, errno)) => {
            let text = Text::of(format_args!("writing the image"));
            Err(Fault::Failed(text, sys::Errno(errno)))
        }
        Some((signal, _)) => refuse!("the copy that wrote the image was ended by signal {signal}"),
        None => refuse!("there is no copy that writes the image"),
    }
}
