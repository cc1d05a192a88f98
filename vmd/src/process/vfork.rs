//! Starting a program in a child that shares the daemon's memory until it executes the program.
//!
//! A fork copies the page tables of the daemon, and then each side copies the pages that it writes: of the
//! processor time of a start that was two thirds. A child of `vfork` copies nothing; the thread that
//! starts it waits until the child executes its program or ends. `posix_spawn` does the same, but has no
//! place for the system calls that tie the child to the daemon.
//!
//! What the child changes of its memory, it changes for the daemon. So it makes system calls only, on a
//! stack of its own, and no handler of the daemon runs in it: all signals are blocked until it has reset
//! their handlers, of which it has its own table.
//!
//! `unsafe` here: the clone and the calls in the child.

use rustix::{
    fd::{AsRawFd, BorrowedFd},
    process::{Pid, WaitOptions, waitpid},
};
use std::{
    ffi::{CStr, c_int, c_void},
    io,
    mem::{MaybeUninit, zeroed},
    ptr::null_mut,
};

/// The child's stack. Bytes. Its calls need a few hundred.
const STACK: usize = 64 * 1024;
/// The last number of a signal.
const SIGNAL_MAX: c_int = 64;
/// The status of a child that did not become its program.
const FAILED: c_int = 127;

/// What the child does. It runs in the daemon's memory.
pub struct Plan<'a> {
    /// Its standard streams.
    pub streams: [BorrowedFd<'a>; 3],
    /// Its working folder; `None`: the daemon's.
    pub folder: Option<&'a CStr>,
    /// Further system calls. They may not allocate, lock or panic.
    pub prepare: &'a dyn Fn() -> io::Result<()>,
    /// Executes the program. Returns only on failure, and may not allocate, lock or panic.
    pub execute: &'a dyn Fn() -> io::Error,
}

/// A plan, and the number of the error if it fails; 0 before.
struct Order<'a> {
    plan: &'a Plan<'a>,
    error: i32,
}

/// Starts a child, and waits until it executes its program. A child that was killed before that counts as
/// started.
///
/// # Errors
/// The error of the first call that fails. The child is gone then.
pub fn start(plan: &Plan) -> io::Result<Pid> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end;
    let mut order = Order { plan, error: 0 };
    let at = (&raw mut order).cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the masks are plain data, which the calls read and write. The child runs `begin` on a stack
    // of its own that nobody else uses. This thread does not go on before the child has left this memory,
    // so the order and the stack outlive the child's use of them.
    let child = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let child = match libc::clone(begin, top.cast(), flags, at) {
            -1 => Err(io::Error::last_os_error()),
            child => Ok(child),
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        child
    };
    let child = Pid::from_raw(child?).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: the child, which alone has written it, is gone or has another memory. The compiler does not
    // know of the child.
    match unsafe { (&raw const order.error).read_volatile() } {
        0 => Ok(child),
        error => {
            let _ = waitpid(Some(child), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// The child's life.
extern "C" fn begin(order: *mut c_void) -> c_int {
    // SAFETY: `start` passes an order, and does not go on meanwhile.
    let order = unsafe { &mut *order.cast::<Order>() };
    let error = match prepare(order.plan) {
        Ok(()) => (order.plan.execute)(),
        Err(error) => error,
    };
    order.error = error.raw_os_error().unwrap_or(libc::EPIPE);
    // SAFETY: the call takes a number, and runs nothing that was registered for the end of the daemon.
    unsafe { libc::_exit(FAILED) }
}

fn prepare(plan: &Plan) -> io::Result<()> {
    let done = |result: c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: the call sets the kernel's default in the child's own table. It fails for signals that
        // cannot be caught, and for those of the C library.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the calls take numbers, and texts that outlive them; the mask is plain data.
    unsafe {
        let mut none: MaybeUninit<libc::sigset_t> = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        done(libc::sigprocmask(
            libc::SIG_SETMASK,
            none.as_ptr(),
            null_mut(),
        ))?;
        for (stream, number) in plan.streams.iter().zip(0..) {
            done(libc::dup2(stream.as_raw_fd(), number))?;
        }
        if let Some(folder) = plan.folder {
            done(libc::chdir(folder.as_ptr()))?;
        }
    }
    (plan.prepare)()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Read, os::fd::AsFd};

    /// Starts `/bin/sh -c TEXT` with its standard output in a pipe.
    fn shell(text: &CStr, prepare: &dyn Fn() -> io::Result<()>) -> io::Result<(Pid, File)> {
        let null = File::open("/dev/null")?;
        let (output, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let program = c"/bin/sh";
        let words = [
            program.as_ptr(),
            c"-c".as_ptr(),
            text.as_ptr(),
            std::ptr::null(),
        ];
        let execute = || {
            // SAFETY: the lists end with a null pointer.
            unsafe { libc::execve(words[0], words.as_ptr(), words[3..].as_ptr()) };
            io::Error::last_os_error()
        };
        let plan = Plan {
            streams: [null.as_fd(), theirs.as_fd(), null.as_fd()],
            folder: Some(c"/"),
            prepare,
            execute: &execute,
        };
        let pid = start(&plan)?;
        Ok((pid, File::from(output)))
    }

    #[test]
    fn a_program_has_its_streams_and_its_folder() {
        let (pid, mut output) = shell(c"pwd", &|| Ok(())).expect("it starts");
        let mut text = String::new();
        output.read_to_string(&mut text).expect("its output");
        assert_eq!(text, "/\n");
        let ended = waitpid(Some(pid), WaitOptions::empty()).expect("a child");
        assert_eq!(ended.and_then(|(_, status)| status.exit_status()), Some(0));
    }

    #[test]
    fn an_error_in_the_child_is_the_starters_and_leaves_no_child() {
        let refuse = || Err(io::Error::from_raw_os_error(libc::EDQUOT));
        let error = shell(c"pwd", &refuse).expect_err("it is refused");
        assert_eq!(error.raw_os_error(), Some(libc::EDQUOT));
    }
}
