//! Keeps `CLOCK_MONOTONIC` from going back.
//!
//! A program that stores a deadline of that clock as a number would wait far too long on a host
//! that was booted later. So if this host's clock is behind the image's, the process gets a time
//! namespace in which the clock is not behind. That needs a privilege. A user without it also makes
//! a user namespace, in which the user stays the same. Where neither is allowed, the process is
//! still restored, and only the waits that it was stopped in get the right deadline.

use crate::raw::sys;

/// A smaller difference is ignored. Nanoseconds.
const SLACK_NS: u64 = 50_000_000;
const MONOTONIC: i32 = 1;
const NEW_TIME: usize = 0x80;
const NEW_USER: usize = 0x1000_0000;
const UNSHARE: usize = 272;
const SETNS: usize = 308;
const GETUID: usize = 102;
const GETGID: usize = 104;
const WRITE_ONLY: i32 = 1;

/// Has the clock show at least `then`, if that is allowed. Nanoseconds.
pub fn catch_up(then: u64) {
    let now = sys::clock_ns(MONOTONIC);
    if now + SLACK_NS >= then {
        return;
    }
    if call(UNSHARE, NEW_TIME, 0) || become_own_root() && call(UNSHARE, NEW_TIME, 0) {
        // A failure from here on leaves the clock as it is.
        let _ = set(then - now);
    }
}

fn call(number: usize, one: usize, other: usize) -> bool {
    // SAFETY: calls without memory, which change namespaces only.
    unsafe { sys::call2(number, one, other) >= 0 }
}

/// Enters a new user namespace, in which user and group keep their numbers.
fn become_own_root() -> bool {
    // SAFETY: both calls only read.
    let (uid, gid) = unsafe { (sys::call0(GETUID), sys::call0(GETGID)) };
    if !call(UNSHARE, NEW_USER, 0) {
        return false;
    }
    let mut line = Line::default();
    line.number(uid as i64);
    line.number(uid as i64);
    line.number(1);
    let users = write(b"/proc/self/uid_map\0", line.bytes());
    let _ = write(b"/proc/self/setgroups\0", b"deny");
    let mut line = Line::default();
    line.number(gid as i64);
    line.number(gid as i64);
    line.number(1);
    users && write(b"/proc/self/gid_map\0", line.bytes())
}

/// Moves the clocks of the new namespace forward by `ahead` nanoseconds, and enters the namespace.
fn set(ahead: u64) -> Option<()> {
    // The offsets count from the host's first namespace, and this process's namespace may have some
    // already.
    let mut text = [0; 256];
    let fd = sys::open(b"/proc/self/timens_offsets\0", 0, 0).ok()?;
    let read = sys::read(fd, &mut text);
    sys::close(fd);
    let mut line = Line::default();
    for (name, mut words) in text[..read.ok()?]
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut words = line
                .split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty());
            Some((words.next()?, words))
        })
    {
        let mut number = || {
            core::str::from_utf8(words.next()?)
                .ok()?
                .parse::<i64>()
                .ok()
        };
        let offset = i128::from(number()?) * 1_000_000_000 + i128::from(number()?);
        let offset = offset + i128::from(ahead);
        line.text(name);
        line.number(offset.div_euclid(1_000_000_000) as i64);
        line.number(offset.rem_euclid(1_000_000_000) as i64);
        line.text(b"\n");
    }
    if !write(b"/proc/self/timens_offsets\0", line.bytes()) {
        return None;
    }
    let fd = sys::open(b"/proc/self/ns/time_for_children\0", 0, 0).ok()?;
    let entered = call(SETNS, fd as usize, NEW_TIME);
    sys::close(fd);
    entered.then_some(())
}

fn write(path: &[u8], text: &[u8]) -> bool {
    let Ok(fd) = sys::open(path, WRITE_ONLY, 0) else {
        return false;
    };
    let written = sys::write(fd, text);
    sys::close(fd);
    written == Ok(text.len())
}

/// A text of at most 256 bytes; the rest is cut off.
struct Line([u8; 256], usize);

impl Default for Line {
    fn default() -> Self {
        Line([0; 256], 0)
    }
}

impl Line {
    fn text(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.0.get_mut(self.1) {
                *place = *byte;
                self.1 += 1;
            }
        }
    }

    /// Adds a space and a number.
    fn number(&mut self, number: i64) {
        use core::fmt::Write as _;
        // A text that does not fit is cut off, and the kernel refuses it.
        let _ = write!(self, " {number}");
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.text(text.as_bytes());
        Ok(())
    }
}
