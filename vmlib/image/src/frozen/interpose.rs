//! Functions of the C library that this library interposes: it defines functions of the same names,
//! which call the C library's.
//!
//! The functions here change signal masks. Libraries start helper threads that block all signals,
//! but the signal that stops threads must not be blocked. So that signal is left out of every mask,
//! as the C library does with its own two signals. The trigger ([`crate::trigger::handler`]) is
//! left out, too, in programs that handle it.

use crate::{frozen::signal, raw::sys};
use std::{
    ffi::CStr,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Signals that are never blocked: the one that stops threads, and the C library's own two
/// (cancellation and the change of user).
const OPEN: u64 = signal::bit(signal::SIGNAL) | signal::bit(32) | signal::bit(33);

static USED: AtomicBool = AtomicBool::new(false);
/// Further signals that are not blocked from now on.
static KEPT_OPEN: AtomicU64 = AtomicU64::new(0);

/// From now on the interposed functions leave this signal out of every mask. Unblocks it in this
/// thread.
pub fn keep_open(signal: i32) {
    KEPT_OPEN.fetch_or(signal::bit(signal), Relaxed);
    signal::mask(libc::SIG_UNBLOCK, signal::bit(signal));
}

fn change(how: i32, set: *const u64, old: *mut u64) -> i32 {
    USED.store(true, Relaxed);
    // SAFETY: the caller passes sets or null; the kernel's set is the first 64 bits of the C
    // library's.
    let wanted = unsafe { set.as_ref() }.map(|set| match how {
        libc::SIG_BLOCK | libc::SIG_SETMASK => set & !(OPEN | KEPT_OPEN.load(Relaxed)),
        _ => *set,
    });
    let new = wanted.as_ref().map_or(0, |set| &raw const *set as usize);
    // SAFETY: the kernel reads one set and writes the other.
    let value = unsafe { sys::call4(sys::nr::RT_SIGPROCMASK, how as usize, new, old as usize, 8) };
    match sys::check(value) {
        Ok(_) => 0,
        Err(error) => error.0,
    }
}

/// As in POSIX, but the signals of this library and of the C library are not blocked.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    change(how, set, old)
}

/// As in POSIX, but the signals of this library and of the C library are not blocked.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    match change(how, set, old) {
        0 => 0,
        error => {
            // SAFETY: `errno` belongs to this thread.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

/// Has the linker keep this file, and with it the functions above.
pub fn link() -> bool {
    USED.load(Relaxed)
}

/// The address of the next function of this name, behind this library's; 0 if there is none.
/// `place` caches the address.
pub fn next(place: &AtomicUsize, name: &CStr) -> usize {
    let known = place.load(Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the name is ended by NUL. A successful look-up allocates nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    place.store(found, Relaxed);
    found
}
