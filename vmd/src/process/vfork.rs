//! Starting a program in a child that shares the daemon's memory until it executes the program.
//!
//! A fork copies the page tables of the daemon, and then the daemon and the child copy each page that they
//! write. These copies took two thirds of the processor time of a start. A child of `vfork` copies nothing;
//! the thread that starts the child waits until the child executes its program or ends. `posix_spawn` does
//! the same, but has no place for the system calls that tie the child to the daemon.
//!
//! The memory that the child writes is the daemon's. So the child makes bare system calls only, on a stack
//! of its own, and no handler of the daemon runs in the child: all signals are blocked until the child has
//! replaced their handlers, of which it has its own table. Before Linux 5.16, a signal that dumps core
//! kills every process that shares the memory: such a signal ends the child by a handler.
//!
//! An error comes through a pipe, as it does from a child of `fork`: an emulator may fork instead.
//!
//! `unsafe` here: the clone and the calls in the child.

use rustix::{
    fd::{AsRawFd, BorrowedFd},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, WaitOptions, waitpid},
};
use std::{
    ffi::{CStr, c_int, c_ulong, c_void},
    fs::File,
    io::{self, Read},
    mem::{MaybeUninit, zeroed},
    ptr::{null_mut, without_provenance_mut},
};

/// The child's stack. Bytes. Its calls need a few hundred.
const STACK: usize = 64 * 1024;
/// The last number of a signal.
const SIGNAL_MAX: c_int = 64;
/// Signals whose default action dumps core.
const DUMPS: [c_int; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];
/// The status of a child that did not become its program.
const FAILED: c_int = 127;
/// To this the status of a child that a signal ended adds the signal's number, as a shell does.
const SIGNALLED: c_int = 128;

/// The work of the child, which runs in the daemon's memory.
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

/// A plan, and the pipe that takes the number of the error if it fails. Executing closes the pipe.
struct Order<'a> {
    plan: &'a Plan<'a>,
    error: BorrowedFd<'a>,
}

/// Starts a child, and waits until it executes its program. A child that was killed before that counts as
/// started.
///
/// # Errors
/// The error of the first call that fails. The child is gone then.
pub fn start(plan: &Plan) -> io::Result<Pid> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let order = Order {
        plan,
        error: rustix::fd::AsFd::as_fd(&write),
    };
    let child = clone(&order)?;
    drop(write);
    let mut error = Vec::new();
    File::from(read).read_to_end(&mut error)?;
    match error.first_chunk() {
        None => Ok(child),
        Some(error) => {
            let _ = waitpid(Some(child), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(*error)))
        }
    }
}

fn clone(order: &Order) -> io::Result<Pid> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>());
    let top = stack.as_mut_ptr_range().end;
    let order = (&raw const *order).cast_mut().cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the masks are plain data, which the calls read and write. The child runs `begin` on a stack
    // of its own that nobody else uses. This thread does not go on before the child has left this memory,
    // so the order and the stack outlive the child's use of them.
    let child = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let child = match libc::clone(begin, top.cast(), flags, order) {
            -1 => Err(io::Error::last_os_error()),
            child => Ok(child),
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
        child
    };
    Pid::from_raw(child?).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The child's life.
extern "C" fn begin(order: *mut c_void) -> c_int {
    // SAFETY: `clone` passes an order, which stays as it is meanwhile.
    let order = unsafe { &*order.cast::<Order>() };
    let error = match prepare(order.plan) {
        Ok(()) => (order.plan.execute)(),
        Err(error) => error,
    };
    let number = error.raw_os_error().unwrap_or(libc::EPIPE).to_ne_bytes();
    let _ = rustix::io::write(order.error, &number);
    // SAFETY: the call takes a number. Functions that the daemon has registered for its end do not run.
    unsafe { libc::_exit(FAILED) }
}

fn prepare(plan: &Plan) -> io::Result<()> {
    let done = |result: c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    for signal in 1..=SIGNAL_MAX {
        set_action(signal, DUMPS.contains(&signal));
    }
    // SAFETY: the calls take numbers, and texts that outlive them.
    unsafe {
        for (stream, number) in plan.streams.iter().zip(0..) {
            done(libc::dup2(stream.as_raw_fd(), number))?;
        }
        if let Some(folder) = plan.folder {
            done(libc::chdir(folder.as_ptr()))?;
        }
    }
    (plan.prepare)()?;
    let mut none: MaybeUninit<libc::sigset_t> = MaybeUninit::uninit();
    // SAFETY: the mask is plain data, which the first call writes and the second one reads.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        done(libc::sigprocmask(
            libc::SIG_SETMASK,
            none.as_ptr(),
            null_mut(),
        ))
    }
}

/// The action of a signal, as the kernel takes it on x86-64 and aarch64.
#[repr(C)]
struct Action {
    handler: *mut c_void,
    flags: c_ulong,
    /// Where a handler returns to.
    restorer: *mut c_void,
    mask: u64,
}

/// Sets the action of a signal in this process: the process `exits`, or else the kernel's default action.
/// Executing a program replaces a handler by the default action. The kernel refuses a change for some
/// signals. The C library's function would take a lock for SIGABRT.
fn set_action(signal: c_int, exits: bool) {
    /// A flag of the kernel: there is a restorer. On x86-64 each handler needs one.
    const RESTORER: c_ulong = 0x0400_0000;
    let mut action = Action {
        handler: without_provenance_mut(libc::SIG_DFL),
        flags: 0,
        restorer: null_mut(),
        mask: 0,
    };
    if exits {
        action.handler = exit as *mut c_void;
        if cfg!(target_arch = "x86_64") {
            action.flags = RESTORER;
            // The handler does not return.
            action.restorer = exit as *mut c_void;
        }
    }
    let (nothing, mask) = (null_mut::<c_void>(), size_of::<u64>());
    // SAFETY: the kernel reads the action, which has its layout; the handler makes one system call.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &action, nothing, mask) };
}

/// The handler of a signal that ends the child.
extern "C" fn exit(signal: c_int) {
    // SAFETY: the call takes a number.
    unsafe { libc::_exit(SIGNALLED + signal) }
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

    #[test]
    fn a_signal_that_dumps_core_ends_the_child_alone() {
        let fault = || {
            let own = rustix::process::getpid();
            Ok(rustix::process::kill_process(
                own,
                rustix::process::Signal::QUIT,
            )?)
        };
        let (pid, _) = shell(c"pwd", &fault).expect("it is no error");
        let ended = waitpid(Some(pid), WaitOptions::empty()).expect("a child");
        let status = ended.and_then(|(_, status)| status.exit_status());
        assert_eq!(status, Some(SIGNALLED + libc::SIGQUIT));
    }
}
