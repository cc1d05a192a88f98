//! A watch for written pages: the kernel's asynchronous write protection, by a userfault descriptor
//! that needs no privilege and no thread that serves it.
//!
//! A mapping is armed at the first request for its written pages, and then all its pages count as
//! written. Each request reports the written pages and protects them again in one step, so no write
//! is lost in between. Memory that was unmapped and mapped again at the same address is another
//! mapping to the kernel: it is not armed, and counts as written. The same holds for memory that
//! was moved, or that the kernel joined to a mapping.
//!
//! **Runs in signal handlers** too: everything here allocates nothing and locks nothing.

use crate::{
    capture::pages::{PageFilter, Pages},
    frozen::fault::{Outcome, Step as _},
    raw::{
        records::Mapping,
        sys::{self, Errno, nr},
    },
};
use std::ops::Range;

const USERFAULTFD: usize = 323;
const USER_MODE_ONLY: i32 = 1;
const API: usize = 0xc018_aa3f;
const REGISTER: usize = 0xc020_aa00;
const REGISTER_WRITE_PROTECT: u64 = 2;
/// `UFFDIO_WRITEPROTECT`.
const PROTECT: usize = 0xc018_aa06;
const UNPROTECT: u64 = 0;
/// `PAGEFAULT_FLAG_WP`, `WP_UNPOPULATED`, `WP_ASYNC`.
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;

/// A write watch for the memory of this process.
#[derive(Debug)]
pub struct WriteWatch {
    fd: i32,
}

impl WriteWatch {
    /// Begins a watch. No mapping is armed yet.
    ///
    /// # Errors
    /// The kernel is older than 6.7, or does not allow a watch.
    pub fn begin() -> sys::Result<Self> {
        let flags = USER_MODE_ONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the call opens a descriptor.
        let fd = sys::check(unsafe { sys::call1(USERFAULTFD, flags as usize) });
        let watch = WriteWatch { fd: fd? as i32 };
        let mut api = [0xaa, FEATURES, 0];
        watch.control(API, &mut api)?;
        Ok(watch)
    }

    fn control<const LEN: usize>(&self, what: usize, value: &mut [u64; LEN]) -> sys::Result<()> {
        let at = value.as_mut_ptr() as usize;
        // SAFETY: `value` is the structure that the call expects.
        sys::check(unsafe { sys::call3(nr::IOCTL, self.fd as usize, what, at) }).map(drop)
    }

    /// Calls `with` for the pages of a mapping that have content and were written since the
    /// previous call, and protects these pages again.
    ///
    /// The program runs, and may have changed the mapping since it was listed. When the kernel
    /// finds a part that is not armed, it has already protected the pages before that part, without
    /// reporting them. In that case all pages with content are reported. Returns `false` if writes
    /// after this call may be missed.
    pub fn written(
        &self,
        pages: &mut Pages,
        mapping: &Mapping,
        mut with: impl FnMut(Range<u64>) -> Outcome<()>,
    ) -> Outcome<bool> {
        match pages.protect(mapping, PageFilter::Written, &mut with) {
            Err(Errno(libc::EPERM)) => {}
            Err(error) => return Err(error).step("looking for written pages"),
            Ok(told) => return told.map(|()| true),
        }
        let len = mapping.end - mapping.start;
        // Both calls fail where a part of the mapping has just been unmapped, or is of a kind that
        // cannot be watched.
        //
        // A mapping that a moved page is joined to is not armed any more, but its pages still have
        // their marks of protection (seen with Linux 6.18). A page that is then written has the
        // mark and is not protected, and the kernel does not protect a page that has the mark. So
        // all marks are removed first.
        let armed = self
            .control(
                REGISTER,
                &mut [mapping.start, len, REGISTER_WRITE_PROTECT, 0],
            )
            .and_then(|()| self.control(PROTECT, &mut [mapping.start, len, UNPROTECT]));
        match pages.protect(mapping, PageFilter::All, &mut with) {
            Err(Errno(libc::EPERM)) => pages.for_each(mapping, with).map(|()| false),
            Err(error) => Err(error).step("looking for written pages"),
            Ok(told) => told.map(|()| armed.is_ok()),
        }
    }
}

impl Drop for WriteWatch {
    fn drop(&mut self) {
        // Closing the descriptor ends all arming.
        sys::close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::memory::PAGE;

    const PAGES: usize = 8;
    const LEN: usize = PAGES * PAGE as usize;

    fn told(watch: &WriteWatch, start: usize, len: usize) -> Vec<(u64, u64)> {
        let (start, len) = (start as u64, len as u64);
        let mapping = Mapping {
            start,
            end: start + len,
            ..Mapping::default()
        };
        let mut told = Vec::new();
        let add = |range: Range<u64>| {
            told.push((range.start - start, range.end - start));
            Ok(())
        };
        let mut pages = Pages::open().expect("a page table");
        let from_now_on = watch.written(&mut pages, &mapping, add);
        assert!(from_now_on.expect("ranges"));
        told
    }

    /// Moves a page. The caller is the only user of both places.
    fn move_page(from: usize, to: usize) {
        const MAYMOVE_FIXED: usize = 3;
        let len = PAGE as usize;
        // SAFETY: as promised.
        let moved = unsafe { sys::call5(nr::MREMAP, from, len, len, MAYMOVE_FIXED, to) };
        assert_eq!(sys::check(moved), Ok(to));
    }

    #[test]
    fn a_mapping_that_a_moved_page_rejoins_is_watched_again() {
        let watch = WriteWatch::begin().expect("a kernel that can watch");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = || sys::map(0, LEN, libc::PROT_READ | libc::PROT_WRITE, flags).expect("memory");
        let (at, aside, page) = (map(), map(), PAGE as usize);
        let write = |index: usize| {
            // SAFETY: within the new mapping.
            unsafe { ((at + index * page) as *mut u8).write_volatile(1) }
        };
        (0..PAGES).for_each(write);
        assert_eq!(told(&watch, at, LEN), [(0, LEN as u64)]);
        assert_eq!(told(&watch, at, LEN), []);
        write(0);
        assert_eq!(told(&watch, at, LEN), [(0, PAGE)]);
        move_page(at + 3 * page, aside);
        assert_eq!(told(&watch, aside, page), [(0, PAGE)]);
        move_page(aside, at + 3 * page);
        write(0);
        assert_eq!(told(&watch, at, LEN), [(0, LEN as u64)]);
        write(0);
        assert_eq!(told(&watch, at, LEN), [(0, PAGE)]);
        // SAFETY: no other code knows the memory.
        unsafe {
            sys::unmap(at, LEN).expect("unmapped");
            sys::unmap(aside, LEN).expect("unmapped");
        }
    }
}
