//! Reading and writing pipes and sockets, for two that keep up with one another.
//!
//! Whoever sleeps until there is content, or room, has to be woken by the other side, which costs
//! both some tens of microseconds on an idle processor - in which the other side in turn runs out of
//! room, or content, and sleeps. Then the two take turns in place of working at once. So a call that
//! would sleep is tried again for `LOOK` first, and lends the processor to others meanwhile; not where
//! both have the same single processor.

use super::sys::{self, Errno, Result, nr};

/// How long a call is tried before it sleeps. Nanoseconds: some wakings.
const LOOK: u64 = 200_000;
/// The kernel, or this kind of file, has no calls that do not sleep.
const EOPNOTSUPP: Errno = Errno(95);
/// Of `preadv2` and `pwritev2`: the file's own position.
const HERE: usize = usize::MAX;
/// Of the same: do not sleep.
const NOWAIT: usize = 8;

/// As `read`; may be short.
///
/// # Errors
/// The kernel's.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    let part = [buffer.as_mut_ptr() as usize, buffer.len()];
    let part = part.as_ptr() as usize;
    eagerly(|flags| {
        // SAFETY: the kernel writes into the buffer.
        unsafe { sys::call6(nr::PREADV2, fd as usize, part, 1, HERE, HERE, flags) }
    })
}

/// As [`sys::writev`].
///
/// # Errors
/// The kernel's.
pub fn write(fd: i32, head: &[u8], content: &[u8]) -> Result<usize> {
    let parts = sys::parts(head, content);
    let parts = parts.as_ptr() as usize;
    eagerly(|flags| {
        // SAFETY: both parts are only read.
        unsafe { sys::call6(nr::PWRITEV2, fd as usize, parts, 2, HERE, HERE, flags) }
    })
}

/// Lends memory to a pipe; may be short.
///
/// # Errors
/// The kernel's.
pub fn lend(fd: i32, content: &[u8]) -> Result<usize> {
    /// Of `vmsplice`: do not sleep.
    const NONBLOCK: usize = 2;
    let part = [content.as_ptr() as usize, content.len()];
    let part = part.as_ptr() as usize;
    eagerly(|flags| {
        let flags = if flags == NOWAIT { NONBLOCK } else { 0 };
        // SAFETY: the content is only read.
        unsafe { sys::call4(nr::VMSPLICE, fd as usize, part, 1, flags) }
    })
}

/// Processors that this thread may use.
pub fn processors() -> u32 {
    let mut set = [0u64; 16];
    let (len, to) = (size_of_val(&set), set.as_mut_ptr() as usize);
    // SAFETY: the kernel writes the set.
    unsafe { sys::call3(nr::SCHED_GETAFFINITY, 0, len, to) };
    set.iter().map(|word| word.count_ones()).sum()
}

fn eagerly(call: impl Fn(usize) -> isize) -> Result<usize> {
    const MONOTONIC: i32 = 1;
    let mut end = None;
    loop {
        match sys::check(call(NOWAIT)) {
            // On a single processor a look only keeps the other side from working.
            Err(sys::EAGAIN) if end.is_some() || processors() > 1 => {}
            Err(sys::EAGAIN | EOPNOTSUPP) => return sys::check(call(0)),
            result => return result,
        }
        let now = sys::clock_ns(MONOTONIC);
        if now >= *end.get_or_insert(now + LOOK) {
            return sys::check(call(0));
        }
        // SAFETY: it changes nothing.
        unsafe { sys::call0(nr::SCHED_YIELD) };
    }
}
