//! Settings that the process has requested from the kernel for itself: memory barriers, no large
//! pages, and its score for being killed when memory runs out.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::proc,
    frozen::fault::{Outcome, Step as _, Text},
    raw::sys::{self, nr},
};

const MEMBARRIER: usize = 324;
/// The command that reports the registrations of a process (Linux 6.3).
const GET_REGISTRATIONS: u32 = 1 << 9;
/// Each kind of private barrier: its command, and the command that registers for it.
const BARRIERS: [(u32, u32); 3] = [(1 << 3, 1 << 4), (1 << 5, 1 << 6), (1 << 7, 1 << 8)];
const OOM: &[u8] = b"/proc/self/oom_score_adj\0";

/// The settings of a process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelSettings {
    /// Bits of the registering commands of `membarrier`.
    barriers: u32,
    /// The result of `PR_GET_THP_DISABLE`: 1 no large pages; 2 large pages only where the program
    /// requests them.
    no_large_pages: u32,
    /// The score in `oom_score_adj`, from -1000 to 1000; another number: not known.
    oom_score: i32,
}

fn barrier(command: u32) -> sys::Result<usize> {
    // SAFETY: the call reports, registers, or orders memory.
    sys::check(unsafe { sys::call3(MEMBARRIER, command as usize, 0, 0) })
}

fn large_pages(what: i32, value: usize, flags: usize) -> isize {
    // SAFETY: the call concerns only the size of pages.
    unsafe { sys::call5(nr::PRCTL, what as usize, value, flags, 0, 0) }
}

/// Captures the settings of this process.
pub fn capture() -> KernelSettings {
    let registered = barrier(GET_REGISTRATIONS).map(|bits| bits as u32);
    let barriers = registered.unwrap_or_else(|_| {
        // An older kernel does not report registrations, but refuses a barrier without one.
        let served = BARRIERS
            .iter()
            .filter(|(command, _)| barrier(*command).is_ok());
        served.fold(0, |bits, (_, register)| bits | register)
    });
    let no_large_pages = large_pages(libc::PR_GET_THP_DISABLE, 0, 0);
    KernelSettings {
        barriers,
        no_large_pages: u32::try_from(no_large_pages).unwrap_or(0),
        oom_score: oom_score().unwrap_or(i32::MAX),
    }
}

fn oom_score() -> Option<i32> {
    let text = proc::read_file(OOM, "looking at the process").ok()?;
    let text = text.trim_ascii();
    match text.strip_prefix(b"-") {
        Some(text) => proc::decimal(text).map(|number| -(number as i32)),
        None => proc::decimal(text).map(|number| number as i32),
    }
}

impl KernelSettings {
    /// Sets the settings in the restored process. A lower score than the host's needs a privilege;
    /// without it the score stays.
    pub fn restore(&self) -> Outcome<()> {
        for bit in (0..u32::BITS).map(|bit| 1 << bit) {
            if self.barriers & bit != 0 {
                let text =
                    format_args!("registering for memory barriers again (membarrier {bit:#x})");
                barrier(bit).step(Text::of(text).as_str())?;
            }
        }
        let here = large_pages(libc::PR_GET_THP_DISABLE, 0, 0);
        if here >= 0 && here as u32 != self.no_large_pages {
            let (value, flags) = (self.no_large_pages & 1, self.no_large_pages & !1);
            let set = large_pages(libc::PR_SET_THP_DISABLE, value as usize, flags as usize);
            // An older kernel knows no flags.
            if set < 0 {
                large_pages(libc::PR_SET_THP_DISABLE, value as usize, 0);
            }
        }
        let is_known = (-1000..=1000).contains(&self.oom_score);
        if is_known
            && oom_score() != Some(self.oom_score)
            && let Ok(fd) = sys::open(OOM, libc::O_WRONLY | libc::O_CLOEXEC, 0)
        {
            let text = Text::of(format_args!("{}", self.oom_score));
            // A score that is not allowed stays as the new host has set it.
            let _ = sys::write(fd, text.as_str().as_bytes());
            sys::close(fd);
        }
        Ok(())
    }
}
