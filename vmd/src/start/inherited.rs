//! The descriptors that this daemon was started with: a lock, a pipe, or others that the shell or
//! the script had open.
//!
//! No process that the daemon starts gets them. A daemon in the background closes them after it has
//! read its secret and its arguments, which may name a descriptor (`--secret-file <(...)`).
//! Otherwise a process that waits for that lock, or for the end of that pipe, would wait for the
//! daemon. `unsafe` here: two calls that take numbers of descriptors that no value of this program
//! owns.

use std::{fs, os::fd::RawFd};

/// The first number after the standard streams.
const FIRST: RawFd = 3;

/// The numbers of the inherited descriptors.
#[derive(Debug, Default)]
pub struct Inherited(Vec<RawFd>);

impl Inherited {
    /// The descriptors that are open now, apart from the standard streams. To be called before this
    /// program opens anything. From now on no process that is started gets them.
    pub fn take() -> Inherited {
        let open = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.filter(|number| *number >= FIRST).collect();
        // One number belonged to the listing of the folder itself, and is closed by now.
        let is_open = |number: &RawFd| fs::symlink_metadata(path(*number)).is_ok();
        let numbers: Vec<RawFd> = numbers.into_iter().filter(is_open).collect();
        for number in &numbers {
            // SAFETY: the call takes a number, and changes no memory of this process.
            unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        Inherited(numbers)
    }

    /// Closes the inherited descriptors.
    pub fn close(self) {
        for number in self.0 {
            // SAFETY: the descriptor was open before this program opened anything, and no value
            // owns it.
            unsafe { libc::close(number) };
        }
    }
}

fn path(number: RawFd) -> String {
    format!("/proc/self/fd/{number}")
}
