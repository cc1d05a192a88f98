//! The descriptors that this daemon was started with: a lock, a pipe, whatever the shell or the
//! script had open.
//!
//! None of its processes gets them. A daemon in the background closes them, once it has read its
//! secret and its arguments, which may name them (`--secret-file <(...)`): else whoever waits for
//! that lock or for the end of that pipe would wait for the daemon. `unsafe` here: two calls that
//! take numbers of descriptors that no value of this program owns.

use std::{fs, os::fd::RawFd};

/// The first number that is no standard stream's.
const FIRST: RawFd = 3;

/// Their numbers.
#[derive(Debug, Default)]
pub struct Inherited(Vec<RawFd>);

impl Inherited {
    /// What is open now, apart from the standard streams: to be called before this program opens
    /// anything. From now on no process that is started gets them.
    pub fn take() -> Inherited {
        let open = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.filter(|number| *number >= FIRST).collect();
        // One of them was the folder's own, and is closed by now.
        let is_open = |number: &RawFd| fs::symlink_metadata(path(*number)).is_ok();
        let numbers: Vec<RawFd> = numbers.into_iter().filter(is_open).collect();
        for number in &numbers {
            // SAFETY: the call takes numbers, and changes nothing in this process.
            unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        Inherited(numbers)
    }

    /// Closes them.
    pub fn close(self) {
        for number in self.0 {
            // SAFETY: it was open before this program opened anything, and no value owns it.
            unsafe { libc::close(number) };
        }
    }
}

fn path(number: RawFd) -> String {
    format!("/proc/self/fd/{number}")
}
