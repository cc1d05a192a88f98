//! Registrations of threads for restartable sequences (rseq(2)). The C library makes them. The
//! kernel writes into the registered memory whenever the thread changes its processor.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here except
//! [`look_up`] uses the C library, and nothing allocates or locks.

use crate::{
    capture::thread::Thread,
    raw::sys::{self, nr},
};
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};

/// The distance from the base of thread-local storage to a thread's registration; 0: the C library
/// makes no registrations.
static RSEQ: AtomicIsize = AtomicIsize::new(0);

/// Looks up where the C library registers threads.
pub fn look_up() {
    // SAFETY: the names are ended by NUL; the symbols are of these types (glibc 2.35 and later).
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
        if !offset.is_null() && !size.is_null() && *size.cast::<u32>() > 0 {
            RSEQ.store(*offset.cast::<isize>(), SeqCst);
        }
    }
}

pub fn register(thread: &Thread) {
    if !thread.rseq {
        return;
    }
    let at = thread.fs.wrapping_add_signed(RSEQ.load(SeqCst));
    // SAFETY: the C library has 32 bytes there for the registration. Its old processor number is of
    // no use, and a critical section that was interrupted begins anew.
    unsafe {
        std::ptr::write_bytes(at as *mut u8, 0, RSEQ_LEN);
        // The processor's number is not known yet.
        (at as *mut u32).add(1).write(u32::MAX);
    }
    rseq(at, 0);
}

/// The signature that the C library registers with.
const RSEQ_SIGNATURE: usize = 0x5305_3053;

/// Bytes of the registration.
const RSEQ_LEN: usize = 32;

fn rseq(at: usize, flags: usize) -> bool {
    // SAFETY: the memory is the C library's, reserved for the registration.
    unsafe { sys::call4(nr::RSEQ, at, RSEQ_LEN, flags, RSEQ_SIGNATURE) == 0 }
}

fn own() -> Option<usize> {
    const ARCH_GET_FS: usize = 0x1003;
    let offset = RSEQ.load(SeqCst);
    let mut fs = 0usize;
    // SAFETY: the kernel writes the address.
    unsafe { sys::call2(nr::ARCH_PRCTL, ARCH_GET_FS, &raw mut fs as usize) };
    (offset != 0).then(|| fs.wrapping_add_signed(offset))
}

/// Whether the thread with this thread-local storage is registered for restartable sequences.
pub fn is_registered(fs: usize) -> bool {
    let offset = RSEQ.load(SeqCst);
    let at = fs.wrapping_add_signed(offset);
    // SAFETY: the C library has the registration there. The second word is the processor's number,
    // which is negative without a registration.
    offset != 0 && unsafe { (at as *const i32).add(1).read_volatile() } >= 0
}

/// Ends this thread's registration. Returns whether there was one.
pub fn leave() -> bool {
    const UNREGISTER: usize = 1;
    own().is_some_and(|at| rseq(at, UNREGISTER))
}

/// Registers this thread again.
pub fn enter() {
    if let Some(at) = own() {
        rseq(at, 0);
    }
}
