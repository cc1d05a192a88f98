//! Starting a task's process, and the few calls about processes that need `unsafe`.
//!
//! The parent-death signal that ties a task to the daemon belongs to the thread that forked, so
//! that thread must live as long as the daemon ([`crate::process::starter`]). Each task leads a
//! process group, by which its descendants are ended with it. The tasks stay in the session of the
//! daemon: Linux divides the processors among sessions first (`sched_autogroup_enabled`), and a task
//! that waits for another one could not offer it the processor across sessions. A task leads a
//! session of its own if it has a terminal, or if the daemon has one; else its start copies nothing
//! of the daemon ([`crate::process::vfork`]). `unsafe` here: the code between fork and exec, which
//! makes system calls only, the program's arguments in the form that the kernel takes, and two calls
//! of the C library that rustix does not have.

use crate::{
    image::transfer::{self, Back},
    process::{
        format::{self, Refused},
        guardian::Guardian,
        portable::{self, ENV_PROGRAMS},
        program::ProgramPath,
        signals,
        spare::{self, Digits},
        vfork,
    },
};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    pipe::PipeFlags,
    process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions},
    pty::OpenptFlags,
    termios::Winsize,
};
use std::{
    collections::BTreeMap,
    env,
    ffi::{CString, OsStr, OsString, c_char},
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    ptr,
    sync::Arc,
};
use vm_machine::LaunchSpec;
use vm_wire::{
    console::WindowSize,
    portable::{ENV_NAMES, ENV_STATE},
    task::{ENV_SOCKET, ENV_TOKEN, FailKind, Failed},
};

/// The shell that executes texts whose first line names no interpreter.
const SHELL: &str = "/bin/sh";
/// The name of the companions of a task with a terminal ([`keep_job_control`]).
const COMPANION: &std::ffi::CStr = c"vm-terminal";

/// The settings with which every task's process starts.
#[derive(Debug, Clone)]
pub struct Spawner {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The working folder of a task for which none is requested. None: the working folder of the
    /// daemon.
    pub work_dir: Option<String>,
    /// Where programs are looked up by name.
    pub path: ProgramPath,
    /// The limits of open files at the daemon's start.
    pub file_limit: Rlimit,
    /// Variables of the daemon's environment that tasks do not inherit; a spawn request may set
    /// them.
    pub hidden: Option<[&'static str; 3]>,
    /// Whether the daemon has a terminal, which is not the tasks'.
    pub has_terminal: bool,
    /// Ends the processes that tasks left if the daemon is killed.
    pub guardian: Arc<Guardian>,
}

/// A process that was started.
#[derive(Debug)]
pub struct Started {
    /// The process number, which is also that of its process group.
    pub pid: Pid,
    /// The token in its environment, which its descendants inherit; none for a restored task.
    pub token: Option<u64>,
    /// Becomes readable when the process ends.
    pub pidfd: OwnedFd,
    /// The daemon's ends of its standard streams.
    pub streams: Streams,
}

/// The daemon's ends of a process's standard streams. They do not block.
#[derive(Debug)]
pub enum Streams {
    /// Pipes. The input is open only for a master with a console.
    Pipes {
        /// The end to write its input to.
        input: Option<OwnedFd>,
        /// The end to read its standard output from.
        output: OwnedFd,
        /// The end to read its standard error from.
        error: OwnedFd,
    },
    /// A terminal.
    Terminal(OwnedFd),
}

impl Spawner {
    /// Starts the process of a task: its program, or the shell for a script without interpreter.
    ///
    /// # Errors
    /// When the start fails; the text names the program and the reason why this host cannot execute
    /// it.
    pub fn spawn(&self, spec: &LaunchSpec) -> Result<Started, Failed> {
        let program = spec.program.as_str();
        let failed = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::NotFound => FailKind::NoSuchProgram,
                io::ErrorKind::PermissionDenied => FailKind::NotExecutable,
                _ => FailKind::System,
            };
            Failed::new(kind, format!("cannot start {program}: {error}"))
        };
        self.start(spec, &[program]).or_else(|error| {
            match format::refused(Path::new(program), &error) {
                Refused::Text => self.start(spec, &[SHELL, program]).map_err(failed),
                Refused::Misfit(misfit) => {
                    let text = format!("{program}: {misfit}");
                    Err(Failed::new(FailKind::NotExecutable, text))
                }
                Refused::Other => Err(failed(error)),
            }
        })
    }

    /// Starts the restorer, the process that becomes a saved task. `handed`: the image, the data
    /// socket, the interrupt socket.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn start_restorer(&self, how: &Back, handed: &[OwnedFd; 3]) -> io::Result<Started> {
        let mut command = transfer::restorer(how);
        command
            .env(ENV_SOCKET, &self.socket)
            .env(ENV_PROGRAMS, self.path.joined())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let handed = handed.each_ref().map(|fd| fd.as_raw_fd());
        self.run(command, None, None, Some(handed), None)
    }

    /// Executes `words`, followed by the task's arguments.
    fn start(&self, spec: &LaunchSpec, words: &[&str]) -> io::Result<Started> {
        let words = words.iter().copied();
        let words = words.chain(spec.args.iter().map(String::as_str));
        let call = Call::new(words, &self.environment(spec))?;
        let dir = spec.dir.as_ref().or(self.work_dir.as_ref());
        if !self.has_terminal && !matches!(spec.console, Some(Some(_))) {
            return self.start_in_group(spec, &call, dir);
        }
        let mut command = Command::new(&spec.program);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let terminal = match spec.console {
            Some(Some(size)) => Some(open_terminal(&mut command, size)?),
            Some(None) => {
                command.stdin(Stdio::piped());
                None
            }
            None => {
                command.stdin(Stdio::null());
                None
            }
        };
        if terminal.is_none() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        self.run(command, Some(call), terminal, None, Some(spec.token))
    }

    /// Starts a task without a terminal in the daemon's session.
    fn start_in_group(
        &self,
        spec: &LaunchSpec,
        call: &Call,
        dir: Option<&String>,
    ) -> io::Result<Started> {
        let daemon = rustix::process::getpid();
        let score = Digits::from(spare::task_score());
        let dir = dir.map(|dir| CString::new(dir.as_bytes())).transpose()?;
        let (input, their_input) = match spec.console {
            Some(_) => {
                let (theirs, ours) = pipe()?;
                (Some(ours), theirs)
            }
            None => (None, File::open("/dev/null")?.into()),
        };
        let ((output, their_output), (error, their_error)) = (pipe()?, pipe()?);
        let prepare = || {
            keep_descriptors();
            spare::begin_with(score);
            tie_to_daemon(daemon, self.file_limit, Leads::Group)
        };
        let pid = vfork::start(&vfork::Plan {
            streams: [&their_input, &their_output, &their_error].map(AsFd::as_fd),
            folder: dir.as_deref(),
            prepare: &prepare,
            execute: &|| call.execute(),
        })?;
        self.watch(pid, Some(spec.token), Streams::pipes(input, output, error))
    }

    /// The environment of a task.
    fn environment(&self, spec: &LaunchSpec) -> BTreeMap<OsString, OsString> {
        let mut all: BTreeMap<OsString, OsString> = env::vars_os().collect();
        let hidden = self.hidden.iter().flatten().copied();
        for name in hidden.chain([crate::start::secret::ENV_SECRET, ENV_STATE]) {
            all.remove(OsStr::new(name));
        }
        let given = spec.env.iter();
        all.extend(given.map(|(name, value)| (name.into(), value.into())));
        let names = portable::names(&spec.env);
        all.extend([
            (ENV_SOCKET.into(), self.socket.clone().into()),
            (ENV_TOKEN.into(), spec.token.to_string().into()),
            (ENV_NAMES.into(), names.into()),
        ]);
        all
    }

    /// Starts a process that dies with this daemon: the program of `call`, or else the command's
    /// own.
    fn run(
        &self,
        mut command: Command,
        call: Option<Call>,
        terminal: Option<OwnedFd>,
        handed: Option<[RawFd; 3]>,
        token: Option<u64>,
    ) -> io::Result<Started> {
        let daemon = rustix::process::getpid();
        let file_limit = self.file_limit;
        let leads = match (terminal.is_some(), self.has_terminal) {
            (true, _) => Leads::Terminal,
            (false, true) => Leads::Session,
            (false, false) => Leads::Group,
        };
        // A restorer can be started again as long as it has not become the task.
        let score = Digits::from(match handed {
            Some(_) => spare::SCORE_MAX,
            None => spare::task_score(),
        });
        // SAFETY: the closure runs between fork and exec, where other threads of the daemon may
        // have held locks. It makes system calls only: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                keep_descriptors();
                spare::begin_with(score);
                // This comes before the limit is lowered: the daemon may have more descriptors open
                // than the task may.
                handed.map_or(Ok(()), hand_over)?;
                ignore_nothing();
                tie_to_daemon(daemon, file_limit, leads)?;
                // Without an explicit call, the C library would hand a file that the kernel does
                // not execute to the shell.
                call.as_ref().map_or(Ok(()), |call| Err(call.execute()))
            });
        }
        let mut child = command.spawn()?;
        let streams = match terminal {
            Some(terminal) => Ok(Streams::Terminal(terminal)),
            None => pipes(&mut child),
        };
        self.watch(Pid::from_child(&child), token, streams)
    }

    /// Watches a process that was started. One that cannot be watched is killed.
    fn watch(
        &self,
        pid: Pid,
        token: Option<u64>,
        streams: io::Result<Streams>,
    ) -> io::Result<Started> {
        self.guardian.add(pid, token);
        let open = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
            let error = io::Error::from(error);
            let text = format!("pidfd_open, which watches the process, is refused: {error}");
            io::Error::new(error.kind(), text)
        });
        match (streams, open) {
            (Ok(streams), Ok(pidfd)) => Ok(Started {
                pid,
                token,
                pidfd,
                streams,
            }),
            (Err(error), _) | (_, Err(error)) => {
                rustix::process::kill_process(pid, Signal::KILL)?;
                rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
                self.guardian.remove(pid);
                Err(error)
            }
        }
    }
}

/// Words in the form that the kernel takes: pointers to them, and a null pointer at the end.
struct Words {
    /// The texts to which the pointers lead.
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers lead into allocations that belong to the texts beside them. The texts are
// never changed, nor moved without the pointers, and any thread may read them.
unsafe impl Send for Words {}
// SAFETY: as for `Send`.
unsafe impl Sync for Words {}

impl Words {
    fn new(texts: impl Iterator<Item = Vec<u8>>) -> io::Result<Words> {
        let texts = texts.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr());
        let pointers = pointers.chain([ptr::null()]).collect();
        Ok(Words {
            _texts: texts,
            pointers,
        })
    }
}

/// A program with its arguments and its environment, ready to be executed in a child.
struct Call {
    arguments: Words,
    environment: Words,
}

impl Call {
    /// The first word is the path of the program.
    fn new<'a>(
        words: impl Iterator<Item = &'a str>,
        environment: &BTreeMap<OsString, OsString>,
    ) -> io::Result<Call> {
        let pair = |(name, value): (&OsString, &OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        Ok(Call {
            arguments: Words::new(words.map(|word| word.as_bytes().to_vec()))?,
            environment: Words::new(environment.iter().map(pair))?,
        })
    }

    /// Runs in the child. Returns only on failure.
    fn execute(&self) -> io::Error {
        let (arguments, environment) = (&self.arguments.pointers, &self.environment.pointers);
        // SAFETY: both lists end with a null pointer, so the first element exists; the other
        // pointers lead to texts that end with a null byte.
        unsafe { libc::execve(arguments[0], arguments.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The process group that a task begins and leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leads {
    /// A group of the daemon's session.
    Group,
    /// The first group of a session that the task begins.
    Session,
    /// The first group of a session that has the task's standard input as its terminal.
    Terminal,
}

/// Runs in the child: begins a process group, takes the terminal, and ties the process's death to the
/// daemon's.
fn tie_to_daemon(daemon: Pid, file_limit: Rlimit, leads: Leads) -> io::Result<()> {
    match leads {
        Leads::Group => rustix::process::setpgid(None, None)?,
        Leads::Session | Leads::Terminal => {
            rustix::process::setsid()?;
        }
    }
    if leads == Leads::Terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        keep_job_control(daemon);
    }
    rustix::process::setrlimit(Resource::Nofile, file_limit)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The daemon may have ended before the signal was set.
    if rustix::process::getppid() != Some(daemon) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Runs in the child, which leads a session with a terminal: makes Ctrl-Z stop it.
///
/// A terminal stops only process groups that another process of the session could continue. The
/// kernel ignores Ctrl-Z for an *orphaned* group: one in which no member has a parent in another
/// group of the same session. The parent of this child is the daemon, in another session. So two
/// companion processes are added that do nothing until they are killed: a parent in a group of its
/// own, and its child in the group of this process. The parent of the first companion ends at once,
/// so the companion becomes a child of the daemon, like any process that a task leaves. Both
/// companions end with the daemon and with this process, even if this process never becomes its
/// program. Without them Ctrl-Z would have no effect, so this process waits until both exist. They
/// have a name of their own ([`COMPANION`]), by which `ps` and `pgrep` tell them from a daemon.
fn keep_job_control(daemon: Pid) {
    let (daemon, leader) = (
        daemon.as_raw_nonzero().get(),
        rustix::process::getpid().as_raw_nonzero().get(),
    );
    // SAFETY: bare system calls that take numbers, or write into memory of this function. Without
    // flags a clone is a fork that sends its parent no signal when it ends. This process has one
    // thread, and the copies make only system calls until they end or wait for ever.
    unsafe {
        let between = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
        if between == 0 {
            let mut ends = [-1; 2];
            libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC);
            let between = libc::getpid();
            if libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                be_companion(daemon, leader, between);
            }
            // The read ends when both companions are in their places, or have ended: then the
            // program may begin.
            libc::close(ends[1]);
            libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
        if between > 0 {
            libc::waitpid(between as i32, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

/// Runs in the companions of a session's leader. Never returns.
///
/// # Safety
/// The process is a copy of a process with one thread, and no process waits for it.
unsafe fn be_companion(daemon: i32, leader: i32, between: i32) -> ! {
    // SAFETY: system calls that take numbers, and a set that is filled before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, COMPANION.as_ptr());
        libc::setpgid(0, 0);
        let first = libc::getpid();
        if libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) == 0 {
            libc::setpgid(0, leader);
            let watched = watch_alone(leader);
            stay_with(first, watched);
        }
        let watched = watch_alone(leader);
        while libc::getppid() == between {
            libc::sched_yield();
        }
        stay_with(daemon, watched);
    }
}

/// Closes all descriptors: the pipe by which the daemon learns that the task's program runs is open
/// here, too. Returns a pidfd of the leader. The result is negative if pidfds are refused: then the
/// daemon ends the companions once it sees that the leader has ended.
///
/// # Safety
/// The process uses no descriptor.
/// The process uses no descriptor.
unsafe fn watch_alone(leader: i32) -> i32 {
    // SAFETY: system calls that take numbers.
    unsafe {
        if libc::close_range(0, u32::MAX, 0) != 0 {
            libc::_exit(0);
        }
        libc::syscall(libc::SYS_pidfd_open, leader, 0) as i32
    }
}

/// Waits until the process of the pidfd ends, but not longer than the parent lives. With a negative
/// number, only the parent's end is awaited.
///
/// # Safety
/// The process runs no other code.
unsafe fn stay_with(parent: i32, watched: i32) -> ! {
    let mut end = libc::pollfd {
        fd: watched,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: system calls that take numbers, and one that writes into `end`.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The parent may have ended before the signal was set.
        while libc::getppid() == parent && libc::poll(&mut end, 1, -1) <= 0 {}
        libc::_exit(0)
    }
}

/// Runs in the child: restores the default action of the signals that the daemon was started to
/// ignore, such as SIGHUP by `nohup`. Those signals are to end tasks.
fn ignore_nothing() {
    for number in signals::catchable() {
        // SAFETY: it sets the kernel's default, and no handler of this program.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Bound on the descriptor numbers that are examined if `close_range` is refused.
const NUMBERS_MAX: u64 = 1 << 16;

/// Runs in the child: marks all descriptors that the daemon itself was started with to be closed.
/// They are not the task's, and a task with them could not be moved.
fn keep_descriptors() {
    // SAFETY: the call takes numbers.
    let set = unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
    if set == 0 {
        return;
    }
    // A sandbox, or an old kernel, refuses the call.
    // SAFETY: the C library writes the limit.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur.min(NUMBERS_MAX) as i32
    };
    for fd in 3..limit {
        // SAFETY: the call changes a flag, if there is such a descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Runs in the child: gives the descriptors the numbers under which a restorer finds them.
fn hand_over(handed: [RawFd; 3]) -> io::Result<()> {
    // The descriptors are first moved out of the way of those numbers.
    let mut aside = [-1; 3];
    for (place, fd) in aside.iter_mut().zip(handed) {
        // SAFETY: these commands take numbers.
        *place = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, transfer::IMAGE + 3) };
        if *place < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    for (fd, to) in aside.into_iter().zip(transfer::IMAGE..) {
        // SAFETY: the call takes numbers.
        if unsafe { libc::dup2(fd, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives the command a new terminal. Returns the daemon's end of it.
fn open_terminal(command: &mut Command, size: WindowSize) -> io::Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    resize(&ours, size)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs.try_clone()?))
        .stderr(Stdio::from(theirs));
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok(ours)
}

fn pipes(child: &mut std::process::Child) -> io::Result<Streams> {
    let input = child.stdin.take().map(OwnedFd::from);
    let output = child.stdout.take().map(OwnedFd::from);
    let error = child.stderr.take().map(OwnedFd::from);
    let (Some(output), Some(error)) = (output, error) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    Streams::pipes(input, output, error)
}

/// A pipe: the end to read from, and the end to write to.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

impl Streams {
    /// The daemon's ends of pipes, which do not block from now on.
    fn pipes(input: Option<OwnedFd>, output: OwnedFd, error: OwnedFd) -> io::Result<Streams> {
        for stream in [Some(&output), Some(&error), input.as_ref()]
            .into_iter()
            .flatten()
        {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        Ok(Streams::Pipes {
            input,
            output,
            error,
        })
    }
}

/// Sets the size of a terminal. Its processes get SIGWINCH.
///
/// # Errors
/// The error of the system call.
pub fn resize(terminal: impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// Sends a signal to a process group, which may be gone.
pub fn kill_group(leader: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(leader, signal);
}

/// The signal with that number, including the real-time signals.
pub fn signal(number: i32) -> Option<Signal> {
    if let Some(signal) = Signal::from_named_raw(number) {
        return Some(signal);
    }
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    // SAFETY: the C library leaves the signals of this range to the program, and the number is only
    // passed to other processes.
    real_time
        .contains(&number)
        .then(|| unsafe { Signal::from_raw_unchecked(number) })
}

/// A child that was stopped by a signal, or was continued, and whether it is stopped. Each change
/// is reported once.
pub fn take_stopped() -> Option<(Pid, bool)> {
    let flags = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
    // SAFETY: as in `peek_ended`.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_ALL, 0, &mut info, flags) != 0 {
            return None;
        }
        let pid = Pid::from_raw(info.si_pid())?;
        Some((pid, info.si_code != libc::CLD_CONTINUED))
    }
}

/// A child that has ended and was not waited for. It stays so.
pub fn peek_ended() -> Option<Pid> {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a siginfo_t is plain data, for which zeroes are valid. The call fills it in, and
    // leaves the process number zero if no child has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_ALL, 0, &mut info, flags) != 0 {
            return None;
        }
        Pid::from_raw(info.si_pid())
    }
}
