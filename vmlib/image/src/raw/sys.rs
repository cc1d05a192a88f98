//! Bare Linux system calls of x86-64: no `errno`, no cancellation, no locks.
//!
//! A call returns the kernel's value; [`check`] turns error values into an `Err`.

use core::arch::asm;

/// An error number of `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// The result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// Turns the kernel's error values, -4095 to -1, into an `Err`.
pub fn check(value: isize) -> Result<usize> {
    match value {
        -4095..=-1 => Err(Errno(-value as i32)),
        value => Ok(value as usize),
    }
}

macro_rules! call {
    ($name:ident $(, $argument:ident in $register:tt)*) => {
        /// A system call by its number.
        ///
        /// # Safety
        /// The effect of the call on the process must be sound.
        #[inline(always)]
        pub unsafe fn $name(number: usize $(, $argument: usize)*) -> isize {
            let value;
            // SAFETY: the kernel changes only these registers, and memory that the call is for.
            unsafe {
                asm!(
                    "syscall",
                    inlateout("rax") number as isize => value,
                    $(in($register) $argument,)*
                    out("rcx") _,
                    out("r11") _,
                    options(nostack),
                );
            }
            value
        }
    };
}

call!(call0);
call!(call1, a in "rdi");
call!(call2, a in "rdi", b in "rsi");
call!(call3, a in "rdi", b in "rsi", c in "rdx");
call!(call4, a in "rdi", b in "rsi", c in "rdx", d in "r10");
call!(call5, a in "rdi", b in "rsi", c in "rdx", d in "r10", e in "r8");
call!(call6, a in "rdi", b in "rsi", c in "rdx", d in "r10", e in "r8", f in "r9");

/// The numbers of the system calls.
#[allow(missing_docs)]
pub mod nr {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const POLL: usize = 7;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const BRK: usize = 12;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const RT_SIGRETURN: usize = 15;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const READV: usize = 19;
    pub const WRITEV: usize = 20;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const NANOSLEEP: usize = 35;
    pub const GETITIMER: usize = 36;
    pub const SETITIMER: usize = 38;
    pub const GETPPID: usize = 110;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDTO: usize = 44;
    pub const RECVMSG: usize = 47;
    pub const GETSOCKNAME: usize = 51;
    pub const GETPEERNAME: usize = 52;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const CLONE: usize = 56;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const UNAME: usize = 63;
    pub const FCNTL: usize = 72;
    pub const FCHMOD: usize = 91;
    pub const FTRUNCATE: usize = 77;
    pub const GETCWD: usize = 79;
    pub const RENAME: usize = 82;
    pub const UNLINK: usize = 87;
    pub const CHDIR: usize = 80;
    pub const FCHDIR: usize = 81;
    pub const READLINK: usize = 89;
    pub const UMASK: usize = 95;
    pub const GETEUID: usize = 107;
    pub const SIGALTSTACK: usize = 131;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const GETDENTS64: usize = 217;
    pub const SET_TID_ADDRESS: usize = 218;
    pub const TIMER_CREATE: usize = 222;
    pub const TIMER_SETTIME: usize = 223;
    pub const TIMER_GETTIME: usize = 224;
    pub const TIMER_DELETE: usize = 226;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const SET_ROBUST_LIST: usize = 273;
    pub const GET_ROBUST_LIST: usize = 274;
    pub const DUP3: usize = 292;
    pub const PIPE2: usize = 293;
    pub const PRLIMIT64: usize = 302;
    pub const VMSPLICE: usize = 278;
    pub const KCMP: usize = 312;
    pub const GETRANDOM: usize = 318;
    pub const MEMFD_CREATE: usize = 319;
    pub const RT_SIGPENDING: usize = 127;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const RT_SIGQUEUEINFO: usize = 129;
    pub const RT_TGSIGQUEUEINFO: usize = 297;
    pub const RSEQ: usize = 334;
    pub const PIDFD_SEND_SIGNAL: usize = 424;
    pub const CLOSE_RANGE: usize = 436;
    pub const GETPRIORITY: usize = 140;
    pub const SETPRIORITY: usize = 141;
}

/// The call was interrupted by a signal.
pub const EINTR: Errno = Errno(4);
/// The call would block, or a resource is short.
pub const EAGAIN: Errno = Errno(11);

/// Reads from a descriptor. May read less than `buffer` holds; 0 means the end.
///
/// # Errors
/// Errors of the kernel.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is borrowed for writing.
    let value = unsafe {
        call3(
            nr::READ,
            fd as usize,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
        )
    };
    check(value)
}

/// Writes to a descriptor. May write less than `bytes`.
///
/// # Errors
/// Errors of the kernel.
pub fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the bytes are only read.
    check(unsafe { call3(nr::WRITE, fd as usize, bytes.as_ptr() as usize, bytes.len()) })
}

/// Writes `head`, then `content`. May write less.
///
/// # Errors
/// Errors of the kernel.
pub fn writev(fd: i32, head: &[u8], content: &[u8]) -> Result<usize> {
    let parts = [head, content].map(|part| [part.as_ptr() as usize, part.len()]);
    // SAFETY: both parts are only read.
    check(unsafe { call3(nr::WRITEV, fd as usize, parts.as_ptr() as usize, 2) })
}

/// Opens a file; `path` ends with NUL.
///
/// # Errors
/// Errors of the kernel.
pub fn open(path: &[u8], flags: i32, mode: u32) -> Result<i32> {
    debug_assert!(path.last() == Some(&0));
    // SAFETY: the path is ended by NUL, and only read.
    let value = unsafe {
        call3(
            nr::OPEN,
            path.as_ptr() as usize,
            flags as usize,
            mode as usize,
        )
    };
    check(value).map(|fd| fd as i32)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: the descriptor is the caller's. An error needs no handling.
    unsafe { call1(nr::CLOSE, fd as usize) };
}

/// Ends the process at once, with all threads and without any clean-up.
pub fn exit_group(code: i32) -> ! {
    loop {
        // SAFETY: the call does not return.
        unsafe { call1(nr::EXIT_GROUP, code as usize) };
    }
}

/// The id of this thread.
pub fn gettid() -> i32 {
    // SAFETY: the call changes nothing.
    unsafe { call0(nr::GETTID) as i32 }
}

/// The id of this process.
pub fn getpid() -> i32 {
    // SAFETY: the call changes nothing.
    unsafe { call0(nr::GETPID) as i32 }
}

/// The time of a clock. Nanoseconds.
pub fn clock_ns(clock: i32) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes two words.
    unsafe {
        call2(
            nr::CLOCK_GETTIME,
            clock as usize,
            time.as_mut_ptr() as usize,
        )
    };
    time[0] * 1_000_000_000 + time[1]
}

/// Maps new anonymous memory, at `address` if `flags` has `MAP_FIXED`.
///
/// # Errors
/// Errors of the kernel.
pub fn map(address: usize, len: usize, prot: i32, flags: i32) -> Result<usize> {
    // SAFETY: without MAP_FIXED no existing memory changes; callers with MAP_FIXED own the range.
    let value = unsafe {
        call6(
            nr::MMAP,
            address,
            len,
            prot as usize,
            flags as usize,
            usize::MAX,
            0,
        )
    };
    check(value)
}

/// Removes mappings.
///
/// # Safety
/// No code uses that memory any more.
///
/// # Errors
/// Errors of the kernel.
pub unsafe fn unmap(address: usize, len: usize) -> Result<usize> {
    // SAFETY: as promised by the caller.
    check(unsafe { call2(nr::MUNMAP, address, len) })
}

/// Waits until `word` is not `value`. May return early.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32) {
    // SAFETY: FUTEX_WAIT | FUTEX_PRIVATE only reads the word.
    unsafe { call4(nr::FUTEX, word.as_ptr() as usize, 128, value as usize, 0) };
}

/// Like [`futex_wait`], for at most `span` nanoseconds.
pub fn futex_wait_for(word: &core::sync::atomic::AtomicU32, value: u32, span: u64) {
    let time = [span / 1_000_000_000, span % 1_000_000_000];
    let (word, time) = (word.as_ptr() as usize, time.as_ptr() as usize);
    // SAFETY: FUTEX_WAIT | FUTEX_PRIVATE only reads the word and the time.
    unsafe { call4(nr::FUTEX, word, 128, value as usize, time) };
}

/// Wakes all threads that wait at `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: FUTEX_WAKE | FUTEX_PRIVATE touches no memory.
    unsafe { call3(nr::FUTEX, word.as_ptr() as usize, 129, i32::MAX as usize) };
}

/// The number of threads that wait at `word` in the kernel, if its value is `value`, else 0. These
/// threads stay in the kernel until they are woken.
pub fn futex_waiters(word: &core::sync::atomic::AtomicU32, value: u32) -> u32 {
    const CMP_REQUEUE_PRIVATE: usize = 4 | 128;
    let (at, all) = (word.as_ptr() as usize, i32::MAX as usize);
    // SAFETY: the call wakes no thread, and requeues all waiters to the same word. The call returns
    // the number of waiters.
    let value = unsafe {
        call6(
            nr::FUTEX,
            at,
            CMP_REQUEUE_PRIVATE,
            0,
            all,
            at,
            value as usize,
        )
    };
    check(value).map_or(0, |count| count as u32)
}

/// Lends memory to a pipe, for the reader of the pipe. May lend less than `content`.
///
/// # Errors
/// Errors of the kernel.
pub fn lend(fd: i32, content: &[u8]) -> Result<usize> {
    let part = [content.as_ptr() as usize, content.len()];
    // SAFETY: the content is only read.
    check(unsafe { call4(nr::VMSPLICE, fd as usize, part.as_ptr() as usize, 1, 0) })
}

/// The number of processors that this thread may use.
pub fn processors() -> u32 {
    let mut set = [0u64; 16];
    let (len, to) = (size_of_val(&set), set.as_mut_ptr() as usize);
    // SAFETY: the kernel writes the set.
    unsafe { call3(nr::SCHED_GETAFFINITY, 0, len, to) };
    set.iter().map(|word| word.count_ones()).sum()
}

/// Sleeps for `span` nanoseconds, or until a signal.
pub fn pause_ns(span: u64) {
    let time = [span / 1_000_000_000, span % 1_000_000_000];
    // SAFETY: the kernel reads two words.
    unsafe { call2(nr::NANOSLEEP, time.as_ptr() as usize, 0) };
}
