//! Clocks of the processor time of this process or of one of its threads. The number of such a
//! clock contains the id of the process or thread, which is another id in the restored process. A
//! program may store such numbers. So the functions that take a clock number are interposed, and
//! exchange the id.

use crate::{
    capture::thread::Thread,
    frozen::interpose::next,
    raw::sys::{self, nr},
};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// The limit of known old ids.
const KNOWN_MAX: usize = 1 << 14;
/// Ids that the process and its threads had before restores, each with the current id in the upper
/// half.
static KNOWN: [AtomicU64; KNOWN_MAX] = [const { AtomicU64::new(0) }; KNOWN_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The bits of a clock number that are not the id: which clock, and whether it is a thread's.
const KIND: i32 = 7;
/// The value of these bits for a clock of a file instead of a process.
const FILES: i32 = 3;

/// The id in the number of a clock, if the number has one.
fn id_of(clock: i32) -> Option<i32> {
    let id = !(clock >> 3);
    (clock < 0 && clock & KIND != FILES && id != 0).then_some(id)
}

/// The number of the same clock with the id that `now` returns, if it returns one.
pub fn renamed(clock: i32, now: impl FnOnce(i32) -> Option<i32>) -> i32 {
    match id_of(clock).and_then(now) {
        Some(id) => !id << 3 | clock & KIND,
        None => clock,
    }
}

fn is_own(id: i32) -> bool {
    // SAFETY: no signal is sent.
    let there = unsafe { sys::call3(nr::TGKILL, sys::getpid() as usize, id as usize, 0) };
    sys::check(there).is_ok()
}

/// The number that the clock has now.
fn current(clock: i32) -> i32 {
    let count = COUNT.load(SeqCst);
    if clock >= 0 || count == 0 {
        return clock;
    }
    renamed(clock, |id| {
        let known = KNOWN[..count].iter().map(|pair| pair.load(Relaxed));
        let mut found = known.filter(|pair| *pair as u32 == id as u32);
        let now = found.next().map(|pair| (pair >> 32) as i32);
        // A new thread may have got the id that another thread had before a restore.
        now.filter(|_| !is_own(id))
    })
}

/// Notes the new ids of threads.
///
/// **Runs in a process that is being restored**, before any thread resumes.
pub fn rename(threads: &[Thread], ids: &[i32]) {
    let now = |tid: u32| {
        let index = threads.iter().position(|thread| thread.tid as u32 == tid)?;
        Some(ids[index] as u32)
    };
    // Ids of threads that have ended are dropped.
    let mut count = 0;
    for known in &KNOWN[..COUNT.load(SeqCst)] {
        let pair = known.load(Relaxed);
        if let Some(id) = now((pair >> 32) as u32) {
            KNOWN[count].store(u64::from(id) << 32 | pair & 0xffff_ffff, Relaxed);
            count += 1;
        }
    }
    for (thread, id) in threads.iter().zip(ids) {
        // An old id that several threads have had belongs to the latest of them.
        let pair = u64::from(*id as u32) << 32 | u64::from(thread.tid as u32);
        let mut all = KNOWN[..count].iter();
        match all.find(|known| known.load(Relaxed) as u32 == thread.tid as u32) {
            Some(known) => known.store(pair, Relaxed),
            None if count < KNOWN_MAX => {
                KNOWN[count].store(pair, Relaxed);
                count += 1;
            }
            None => {}
        }
    }
    COUNT.store(count, SeqCst);
}

/// Looks up the interposed functions of the C library. To be called outside of signal handlers.
pub fn look_up() {
    next(&GETTIME, c"clock_gettime");
}

static GETTIME: AtomicUsize = AtomicUsize::new(0);

fn failed(error: i32) -> i32 {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// As in POSIX, also for a clock number from before a restore.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: i32, time: *mut libc::timespec) -> i32 {
    let function = next(&GETTIME, c"clock_gettime");
    if function == 0 {
        return failed(libc::ENOSYS);
    }
    type Function = unsafe extern "C" fn(i32, *mut libc::timespec) -> i32;
    // SAFETY: the C library's function of this name is of this type.
    let function: Function = unsafe { std::mem::transmute::<usize, _>(function) };
    // SAFETY: as promised by the caller.
    unsafe { function(current(clock), time) }
}

/// As in POSIX, also for a clock number from before a restore.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: i32,
    flags: i32,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> i32 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let function = next(&NEXT, c"clock_nanosleep");
    if function == 0 {
        return libc::ENOSYS;
    }
    type Function =
        unsafe extern "C" fn(i32, i32, *const libc::timespec, *mut libc::timespec) -> i32;
    // SAFETY: the C library's function of this name is of this type.
    let function: Function = unsafe { std::mem::transmute::<usize, _>(function) };
    // SAFETY: as promised by the caller.
    unsafe { function(current(clock), flags, time, left) }
}

/// As in POSIX, also for a clock number from before a restore.
///
/// # Safety
/// As in POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn timer_create(
    clock: i32,
    event: *mut libc::sigevent,
    timer: *mut libc::timer_t,
) -> i32 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let function = next(&NEXT, c"timer_create");
    if function == 0 {
        return failed(libc::ENOSYS);
    }
    type Function = unsafe extern "C" fn(i32, *mut libc::sigevent, *mut libc::timer_t) -> i32;
    // SAFETY: the C library's function of this name is of this type.
    let function: Function = unsafe { std::mem::transmute::<usize, _>(function) };
    // SAFETY: as promised by the caller.
    unsafe { function(current(clock), event, timer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_in_a_clocks_number_is_exchanged_and_nothing_else() {
        const PROCESS: i32 = (!700 << 3) | 2;
        const THREAD: i32 = (!700 << 3) | 6;
        let now = |id: i32| (id == 700).then_some(9);
        assert_eq!(renamed(PROCESS, now), (!9 << 3) | 2);
        assert_eq!(renamed(THREAD, now), (!9 << 3) | 6);
        for other in [0, 1, 2, -6, -2, (!701 << 3) | 2, (!700 << 3) | 3] {
            assert_eq!(renamed(other, now), other, "{other}");
        }
    }
}
