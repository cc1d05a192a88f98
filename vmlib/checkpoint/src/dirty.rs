//! Which pages were written since they were last looked at: the kernel's asynchronous write
//! protection, by a userfault descriptor that needs no privilege and no thread that serves it.
//!
//! **Runs in signal handlers** too: everything here allocates nothing and locks nothing.
//!
//! A mapping is armed when it is first asked for: all its pages count as written then. To ask
//! protects what is told, in one step, so no write is lost in between. Memory that was unmapped and
//! mapped again at the same address is another mapping to the kernel, and not armed: it counts as
//! written. So does what was moved, or joined to by growth.

use crate::{
    fault::{Outcome, Step as _},
    memory::{Pages, Told},
    raw::{
        format::Mapping,
        sys::{self, Errno, nr},
    },
};
use std::ops::Range;

const USERFAULTFD: usize = 323;
const USER_MODE_ONLY: i32 = 1;
const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
const WRITE_PROTECT: u64 = 2;
/// `PAGEFAULT_FLAG_WP`, `WP_UNPOPULATED`, `WP_ASYNC`.
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;

/// Watches the memory of this process.
#[derive(Debug)]
pub struct Watch {
    fd: i32,
}

impl Watch {
    /// Begins to watch; nothing is armed yet.
    ///
    /// # Errors
    /// A kernel before 6.7, or one that does not allow it.
    pub fn begin() -> Outcome<Self> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: it opens a descriptor.
        let fd = sys::check(unsafe { sys::call1(USERFAULTFD, flags as usize) });
        let watch = Watch {
            fd: fd.step("watching memory")? as i32,
        };
        let mut api = [0xaa, FEATURES, 0];
        watch.control(API, &mut api).step("watching memory")?;
        Ok(watch)
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> i32 {
        self.fd
    }

    fn control<const LEN: usize>(&self, what: usize, value: &mut [u64; LEN]) -> sys::Result<()> {
        let at = value.as_mut_ptr() as usize;
        // SAFETY: the structure that the call is for.
        sys::check(unsafe { sys::call3(nr::IOCTL, self.fd as usize, what, at) }).map(drop)
    }

    /// Tells the pages of a mapping that have content and were written since they were last told,
    /// and protects them again.
    ///
    /// The program runs, and may have changed the mapping since it was listed. When the kernel
    /// finds a part that is not armed it has protected what is before, without telling it: so then
    /// all that has content is told.
    pub fn written(
        &self,
        pages: &mut Pages,
        mapping: &Mapping,
        mut with: impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<()> {
        match pages.protect(mapping, Told::Written, &mut with) {
            Err(Errno(libc::EPERM)) => {}
            Err(error) => return Err(error).step("looking for written pages"),
            Ok(told) => return told,
        }
        let len = mapping.end - mapping.start;
        let mut range = [mapping.start, len, WRITE_PROTECT, 0];
        // It fails where part of the mapping has just gone, or is of a kind that cannot be watched.
        let _ = self.control(REGISTER, &mut range);
        match pages.protect(mapping, Told::All, &mut with) {
            Err(Errno(libc::EPERM)) => pages.for_each(mapping, with),
            Err(error) => Err(error).step("looking for written pages"),
            Ok(told) => told,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // With it all arming ends.
        sys::close(self.fd);
    }
}
