//! Functions of the C library that this library puts itself before.
//!
//! Libraries start helper threads that block all signals; the one that stops threads must stay
//! open in them. So it is left out of every mask, as the C library does with its own two signals;
//! and so is the one that asks a program for a save ([`crate::trigger::handler`]), where it does.

use crate::{frozen::signal, raw::sys};
use std::{
    ffi::CStr,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Signals that nobody blocks: the one that stops threads, and the C library's own (cancellation
/// and the change of user).
const OPEN: u64 = signal::bit(signal::SIGNAL) | signal::bit(32) | signal::bit(33);

static USED: AtomicBool = AtomicBool::new(false);
/// Those besides that nobody blocks from now on.
static KEPT_OPEN: AtomicU64 = AtomicU64::new(0);

/// From now on nobody blocks this signal by the C library's functions; this thread has it open.
pub fn keep_open(signal: i32) {
    KEPT_OPEN.fetch_or(signal::bit(signal), Relaxed);
    signal::mask(libc::SIG_UNBLOCK, signal::bit(signal));
}

fn change(how: i32, set: *const u64, old: *mut u64) -> i32 {
    USED.store(true, Relaxed);
    // SAFETY: the caller gives sets or null; the kernel's are the first 64 bits of the C library's.
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

/// As in POSIX, but the signals of this library and of the C library stay open.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    change(how, set, old)
}

/// As in POSIX, but the signals of this library and of the C library stay open.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: i32, set: *const u64, old: *mut u64) -> i32 {
    match change(how, set, old) {
        0 => 0,
        error => {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

/// Makes sure that the linker takes this file, and with it the functions above.
pub fn link() -> bool {
    USED.load(Relaxed)
}

/// The function of this name that comes after this library's; 0 if there is none. `place` keeps it.
pub fn next(place: &AtomicUsize, name: &CStr) -> usize {
    let known = place.load(Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the name is ended by NUL. On success it allocates nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    place.store(found, Relaxed);
    found
}
