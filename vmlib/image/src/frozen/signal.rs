//! The signal that stops threads: its number, the installation of its handler, and guarded sections
//! in which a thread is not stopped.
//!
//! **Runs in signal handlers**: nothing here allocates or locks.
//!
//! Threads that block all signals do not block this one, because the interposed
//! [`pthread_sigmask`](crate::frozen::interpose) leaves it out of their masks. A process with
//! [other threads](crate::capture::blocked_signals) that block it is refused.

use crate::{
    frozen::{
        fault::{Outcome, Step as _},
        words,
    },
    raw::sys::{self, nr},
};
use std::{
    arch::naked_asm,
    ffi::c_void,
    marker::PhantomData,
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
        compiler_fence,
    },
};

/// The signal that stops threads: a real-time signal that programs seldom use. The C library
/// reserves 32 and 33.
pub const SIGNAL: i32 = 62;

/// The signal that requests an image: see [`Request`](crate::Request).
pub const TRIGGER: i32 = 61;

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Action {
    /// Address of the handler; 0 default, 1 ignore.
    pub handler: usize,
    /// `SA_RESTART` and other flags.
    pub flags: usize,
    /// The address that a handler returns to.
    pub restorer: usize,
    /// The signals that are blocked while the handler runs.
    pub mask: u64,
}

/// `SA_RESTORER`: the action has the address that a handler returns to.
const SA_RESTORER: usize = 0x0400_0000;

/// A handler; its arguments are the signal, the signal's information, and the interrupted context.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Ends a handler: the kernel restores the registers.
#[unsafe(naked)]
extern "C" fn restorer() {
    naked_asm!("mov eax, {number}", "syscall", number = const nr::RT_SIGRETURN)
}

/// Reads or sets an action.
///
/// # Safety
/// A handler that is set must be able to run at any moment.
pub unsafe fn action(signal: i32, new: Option<&Action>) -> sys::Result<Action> {
    let mut old = Action::default();
    let new = new.map_or(0, |new| &raw const *new as usize);
    // SAFETY: both are actions of the kernel's layout; the caller answers for the handler.
    let value = unsafe {
        sys::call4(
            nr::RT_SIGACTION,
            signal as usize,
            new,
            &raw mut old as usize,
            8,
        )
    };
    sys::check(value).map(|_| old)
}

/// Installs `handler` for [`SIGNAL`], once.
pub fn install(handler: Handler) -> Outcome<()> {
    if INSTALLED.load(Relaxed) {
        return Ok(());
    }
    install_at(SIGNAL, handler)?;
    INSTALLED.store(true, Relaxed);
    Ok(())
}

/// Installs `handler` for a signal.
pub fn install_at(signal: i32, handler: Handler) -> Outcome<()> {
    let wanted = Action {
        handler: handler as *const c_void as usize,
        // Without SA_ONSTACK, because the alternate stack may be in use.
        flags: (libc::SA_SIGINFO | libc::SA_RESTART) as usize | SA_RESTORER,
        restorer: restorer as *const c_void as usize,
        mask: !0,
    };
    // SAFETY: the handler is written for such a signal.
    unsafe { action(signal, Some(&wanted)) }.step("installing a signal's handler")?;
    Ok(())
}

/// Changes this thread's signal mask, and returns the previous one. `how` is as for `sigprocmask`.
pub fn mask(how: i32, set: u64) -> u64 {
    let mut old = 0u64;
    let (new, before) = (&raw const set as usize, &raw mut old as usize);
    // SAFETY: both are sets of the kernel's size.
    unsafe { sys::call4(nr::RT_SIGPROCMASK, how as usize, new, before, 8) };
    old
}

/// The bit of a signal in a set.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Sends [`SIGNAL`] to a thread; `false` if there is no such thread.
pub fn stop_thread(pid: i32, tid: i32) -> bool {
    let signal = SIGNAL as usize;
    // SAFETY: the handler is installed.
    unsafe { sys::call3(nr::TGKILL, pid as usize, tid as usize, signal) >= 0 }
}

/// A guarded section: its thread is not stopped while it exists. A thread that got the signal
/// meanwhile stops when it leaves the outermost section.
///
/// A section costs a few instructions. A thread must not wait long inside a section: the wait
/// should end when [`Section::is_asked`] is true, and be repeated in a new section.
#[derive(Debug)]
pub struct Section(PhantomData<*const ()>);

impl Section {
    /// Enters a section of this thread.
    #[inline]
    pub fn enter() -> Self {
        let depth = &words::of_this_thread().depth;
        depth.set(depth.get() + 1);
        compiler_fence(SeqCst);
        Section(PhantomData)
    }

    /// The value of a section that was entered and whose value was forgotten, for C.
    ///
    /// # Safety
    /// This thread has entered the section.
    pub unsafe fn entered() -> Self {
        Section(PhantomData)
    }

    /// Whether this thread is to stop. The signal has interrupted a system call that the thread was
    /// in.
    #[inline]
    pub fn is_asked(&self) -> bool {
        words::of_this_thread().asked.get() != 0
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        let words = words::of_this_thread();
        compiler_fence(SeqCst);
        words.depth.set(words.depth.get() - 1);
        compiler_fence(SeqCst);
        if words.asked.get() != 0 && words.depth.get() == 0 {
            stop_now();
        }
    }
}

#[cold]
fn stop_now() {
    words::of_this_thread().asked.set(0);
    stop_thread(sys::getpid(), sys::gettid());
}

/// Whether this thread is in a [`Section`].
pub fn in_section() -> bool {
    words::of_this_thread().depth.get() > 0
}

/// For the handler: whether this thread is in a section. If so, it stops at the end of the section.
pub fn put_off() -> bool {
    let words = words::of_this_thread();
    let inside = words.depth.get() > 0;
    if inside {
        words.asked.set(1);
    }
    inside
}
