//! The state of the process as a whole: signal actions, timers, limits, working directory.
//!
//! **Runs in signal handlers**, and in a process that is being restored: nothing here allocates or
//! locks.

use crate::{
    capture::{
        affinity, cpu_clocks,
        credentials::{self, Credentials},
        kernel_settings::{self, KernelSettings},
        limits::{self, Limits},
        proc,
        terminal::{self, Terminals},
        thread::Thread,
    },
    frozen::{
        arena::{self, List},
        fault::{Outcome, Shown, Step as _, Text, refuse},
        scratch,
        signal::{self, Action},
    },
    options::Folders,
    raw::{
        folder_map::{FolderMap, PATH},
        sys::{self, Errno, nr},
    },
};

/// The highest signal number.
const SIGNALS: i32 = 64;
/// The limit of timers of `timer_create`.
const TIMERS_MAX: usize = 1024;
/// The limit of signals that are pending for the process.
const PENDING_MAX: usize = 1024;

/// A timer of `timer_create`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timer {
    id: i32,
    clock: i32,
    signal: i32,
    /// `sigev_notify` of `struct sigevent`.
    notify: i32,
    /// The thread that gets the signal, or 0.
    tid: i32,
    value: u64,
    /// Interval and time left, seconds and nanoseconds each.
    times: [u64; 4],
}

/// A pending signal.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Waiting {
    /// `siginfo_t`.
    info: [u64; 16],
}

/// The state of a process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Process {
    actions: [Action; SIGNALS as usize],
    /// Real, virtual, profiling: interval and time left, seconds and microseconds each.
    interval_timers: [[u64; 4]; 3],
    timers: &'static [Timer],
    /// The signals that are pending for the process as a whole.
    pub waiting: &'static [Waiting],
    umask: u32,
    pub limits: Limits,
    subreaper: i32,
    settings: KernelSettings,
    /// The modes of the terminals.
    pub terminals: Terminals,
    /// The users, groups and capabilities.
    pub credentials: Credentials,
    /// The working directory, ended by NUL.
    dir: &'static [u8],
    /// The process id at the save.
    pub pid: i32,
    /// `CLOCK_MONOTONIC` at the save. Nanoseconds.
    pub monotonic_ns: u64,
}

impl Process {
    /// The number of queued signals that the process needs: one for each pending signal and each
    /// timer.
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.timers.len()
    }

    pub fn directory(&self) -> &[u8] {
        &self.dir[..self.dir.len() - 1]
    }
}

/// An empty list for pending signals of the process.
pub fn no_signals() -> Outcome<List<Waiting>> {
    // SAFETY: zeros are values.
    unsafe { List::new(PENDING_MAX) }
}

/// Captures the state of this process. The pending signals of the process are moved into `signals`,
/// also if the call fails, and must be sent again by [`put_back`].
pub fn capture(
    folders: Option<Folders<'_>>,
    signals: &mut List<Waiting>,
) -> Outcome<&'static mut Process> {
    let mut actions = [Action::default(); SIGNALS as usize];
    for signal in 1..=SIGNALS {
        // SAFETY: the call only reads.
        if let Ok(action) = unsafe { signal::action(signal, None) } {
            actions[signal as usize - 1] = action;
        }
    }
    let mut interval_timers = [[0u64; 4]; 3];
    let mut subreaper = 0i32;
    // SAFETY: each call writes only into its argument.
    let umask = unsafe {
        for (which, timer) in interval_timers.iter_mut().enumerate() {
            sys::call2(nr::GETITIMER, which, timer.as_mut_ptr() as usize);
        }
        let get_reaper = libc::PR_GET_CHILD_SUBREAPER as usize;
        sys::call2(nr::PRCTL, get_reaper, &raw mut subreaper as usize);
        // No call only reads the umask.
        let umask = sys::call1(nr::UMASK, 0o077) as u32;
        sys::call1(nr::UMASK, umask as usize);
        umask
    };
    // SAFETY: the place is written before it is read.
    let place = unsafe { &mut arena::take::<std::mem::MaybeUninit<Process>>(1)?[0] };
    let (timers, dir, credentials) = (timers()?, directory(folders)?, credentials::capture()?);
    take_out(signals)?;
    Ok(place.write(Process {
        actions,
        interval_timers,
        timers,
        // SAFETY: the list stays in the arena, and does not change any more.
        waiting: unsafe { &*(signals.all() as *const [Waiting]) },
        umask,
        limits: limits::capture(),
        subreaper,
        settings: kernel_settings::capture(),
        terminals: terminal::capture(),
        credentials,
        dir,
        pid: sys::getpid(),
        monotonic_ns: sys::clock_ns(libc::CLOCK_MONOTONIC),
    }))
}

/// Refuses state that cannot be captured. To be called while the program runs.
pub fn check() -> Outcome<()> {
    directory_here()?;
    timers().map(|_| ())
}

/// The working directory on the host of the restore, ended by NUL.
fn directory(folders: Option<Folders<'_>>) -> Outcome<&'static [u8]> {
    let here = directory_here()?;
    let (folder, rest) = Folders::there(folders, &here[..here.len() - 1]);
    // SAFETY: bytes.
    let room = unsafe { arena::take::<u8>(folder.len() + rest.len() + 1)? };
    room[..folder.len()].copy_from_slice(folder);
    room[folder.len()..][..rest.len()].copy_from_slice(rest);
    Ok(room)
}

/// The working directory of this process, ended by NUL.
fn directory_here() -> Outcome<&'static [u8]> {
    // SAFETY: any bytes are values.
    let room = unsafe { arena::take::<u8>(libc::PATH_MAX as usize + 1)? };
    // SAFETY: the kernel writes into `room`.
    let len = unsafe { sys::call2(nr::GETCWD, room.as_mut_ptr() as usize, room.len()) };
    match sys::check(len) {
        Ok(len) if room[0] == b'/' => Ok(&room[..len]),
        Ok(_) | Err(Errno(libc::ENOENT)) => {
            refuse!("the working directory was removed or cannot be reached")
        }
        Err(error) => Err(error).step("reading the working directory"),
    }
}

/// The timers of `timer_create`, as `/proc/self/timers` lists them.
fn timers() -> Outcome<&'static [Timer]> {
    // The file exists only if the kernel was built for it, and then the kernel can restore timers,
    // too.
    let Ok(file) = proc::read_file(b"/proc/self/timers\0", "reading the timers") else {
        return Ok(&[]);
    };
    if file.is_empty() {
        return Ok(&[]);
    }
    // SAFETY: zeros are values of all fields.
    let mut list = unsafe { List::<Timer>::new(TIMERS_MAX)? };
    for record in records(file) {
        let text = |name| proc::field(record, name).unwrap_or_default();
        let number = |name| proc::decimal(text(name)).unwrap_or(0);
        // "10/0000000000000001": the signal and its value.
        let mut signal = text("signal").split(|byte| *byte == b'/');
        let signal_number = signal.next().and_then(proc::decimal).unwrap_or(0);
        let value = signal.next().and_then(proc::hexadecimal).unwrap_or(0);
        // "signal/pid.12", "signal/tid.13", "none/pid.12".
        let notify = text("notify");
        let tid = notify
            .strip_prefix(b"signal/tid.")
            .and_then(proc::decimal)
            .unwrap_or(0);
        let mut timer = Timer {
            id: number("ID") as i32,
            clock: clock_number(text("ClockID")),
            signal: signal_number as i32,
            notify: match (notify.starts_with(b"none"), tid) {
                (true, _) => libc::SIGEV_NONE,
                (false, 0) => libc::SIGEV_SIGNAL,
                (false, _) => libc::SIGEV_THREAD_ID,
            },
            tid: tid as i32,
            value,
            times: [0; 4],
        };
        if timer.clock == libc::CLOCK_THREAD_CPUTIME_ID && !is_alone()? {
            return refuse!(
                "it has a timer of the processor time of one of its threads \
                 (CLOCK_THREAD_CPUTIME_ID), and the kernel does not report which thread"
            );
        }
        let times = timer.times.as_mut_ptr() as usize;
        // SAFETY: the kernel writes the times.
        unsafe { sys::call2(nr::TIMER_GETTIME, timer.id as usize, times) };
        list.push(timer, "timers")?;
    }
    // The kernel lists the newest timer first. Timers are restored in the order of their numbers,
    // which count up.
    let list = list.into_static();
    list.sort_unstable_by_key(|timer| timer.id);
    Ok(list)
}

/// Whether the program has one thread.
fn is_alone() -> Outcome<bool> {
    let mut count = 0;
    proc::for_each_number(b"/proc/self/task\0", "listing the threads", |tid| {
        // The thread that sends memory is not the program's.
        count += u32::from(tid != scratch::sender_tid());
        Ok(())
    })?;
    Ok(count == 1)
}

/// The records of `/proc/self/timers`: each begins with "ID:".
fn records(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = file;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let next = rest[1..].windows(4).position(|part| part == b"\nID:");
        let (record, after) = rest.split_at(next.map_or(rest.len(), |at| at + 2));
        rest = after;
        Some(record)
    })
}

/// Parses the number of a clock. Clocks of processes and threads have negative numbers.
fn clock_number(text: &[u8]) -> i32 {
    match text.strip_prefix(b"-") {
        Some(text) => -(proc::decimal(text).unwrap_or(0) as i32),
        None => proc::decimal(text).unwrap_or(0) as i32,
    }
}

/// Takes the pending signals of the process, with their information. All signals are blocked in all
/// threads, so the result includes all signals since the threads stopped.
fn take_out(signals: &mut List<Waiting>) -> Outcome<()> {
    let mut pending = 0u64;
    // SAFETY: the kernel writes a set.
    unsafe { sys::call2(nr::RT_SIGPENDING, &raw mut pending as usize, 8) };
    if pending & !signal::bit(signal::SIGNAL) == 0 {
        return Ok(());
    }
    let status = proc::read_file(b"/proc/thread-self/status\0", "looking at the signals")?;
    let set = |name| {
        proc::field(status, name)
            .and_then(proc::hexadecimal)
            .unwrap_or(0)
    };
    // The kernel would return signals of this thread alone first.
    pending = set("ShdPnd") & !set("SigPnd") & !signal::bit(signal::SIGNAL);
    loop {
        // Checked before the next signal is taken, for which there might be no room.
        if signals.all().len() == PENDING_MAX {
            return refuse!("more than {PENDING_MAX} signals are pending for the process");
        }
        let mut info = [0u64; 16];
        let time = [0u64; 2];
        // SAFETY: the kernel reads the set and the time and writes the information.
        let taken = unsafe {
            let (set, time) = (&raw const pending as usize, time.as_ptr() as usize);
            sys::call4(
                nr::RT_SIGTIMEDWAIT,
                set,
                info.as_mut_ptr() as usize,
                time,
                8,
            )
        };
        if taken < 0 {
            return Ok(());
        }
        signals.push(Waiting { info }, "signals that wait")?;
    }
}

/// Sends the signals again that were taken out. Must run in the first thread: the kernel forbids
/// the other threads to send a signal with the information of another process or of the kernel.
///
/// # Errors
/// The limit on pending signals is reached.
pub fn put_back(signals: &[Waiting]) -> Outcome<()> {
    for waiting in signals {
        let signal = waiting.info[0] as u32 as usize;
        let info = waiting.info.as_ptr() as usize;
        // SAFETY: the information is as the kernel gave it. A process may send itself any
        // information.
        let sent = unsafe { sys::call3(nr::RT_SIGQUEUEINFO, sys::getpid() as usize, signal, info) };
        if sys::check(sent) == Err(Errno(libc::EAGAIN)) {
            return too_many_signals();
        }
    }
    Ok(())
}

fn too_many_signals() -> Outcome<()> {
    refuse!(
        "the limit on pending signals (RLIMIT_SIGPENDING), which is {} here, is reached: raise it",
        limits::hard_limit(libc::RLIMIT_SIGPENDING)
    )
}

/// Restores the state that needs no thread. `folders` translates the working directory.
pub fn restore(process: &Process, folders: &FolderMap) -> Outcome<()> {
    let mut room = [0; PATH];
    let Some(path) = folders.put(process.directory(), &mut room) else {
        return refuse!("the path of its working directory is too long here");
    };
    // SAFETY: each call gets a value that was captured from the saved process.
    unsafe {
        for signal in 1..=SIGNALS {
            if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                let action = &process.actions[signal as usize - 1];
                signal::action(signal, Some(action)).step("setting signal actions")?;
            }
        }
        sys::call1(nr::UMASK, process.umask as usize);
        let set_reaper = libc::PR_SET_CHILD_SUBREAPER as usize;
        sys::call2(nr::PRCTL, set_reaper, process.subreaper as usize);
        let changed = sys::call1(nr::CHDIR, path.as_ptr() as usize);
        let dir = Shown(&path[..path.len() - 1]);
        match sys::check(changed) {
            Ok(_) => {}
            Err(Errno(libc::ENOENT)) => {
                return refuse!("its working directory {dir} is missing here: make it first");
            }
            Err(error) => {
                let text = Text::of(format_args!("going to the working directory {dir}"));
                return Err(error).step(text.as_str());
            }
        }
    }
    process.settings.restore()
}

/// Restores the timers. `renamed` returns the new id of a thread.
pub fn restore_timers(process: &Process, renamed: impl Fn(i32) -> i32) -> Outcome<()> {
    // SAFETY: each call gets a value that was captured from the saved process.
    unsafe {
        for (which, timer) in process.interval_timers.iter().enumerate() {
            let mut timer = *timer;
            // While its signal is pending, the kernel's timer is stopped, and begins its next
            // interval when the signal is taken. That state cannot be set.
            if which == libc::ITIMER_REAL as usize && timer[2..] == [0, 0] {
                timer.copy_within(..2, 2);
            }
            if timer[2..] != [0, 0] {
                sys::call3(nr::SETITIMER, which, timer.as_ptr() as usize, 0);
            }
        }
    }
    if process.timers.is_empty() {
        return Ok(());
    }
    // Has the kernel use the requested timer numbers (Linux 6.15). Older kernels count up.
    const PR_TIMER_CREATE_RESTORE_IDS: usize = 77;
    // SAFETY: the call concerns only the creation of timers.
    unsafe { sys::call5(nr::PRCTL, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0) };
    let result = process.timers.iter().try_for_each(|timer| {
        let now = |id| match id == process.pid {
            true => Some(sys::getpid()),
            false => Some(renamed(id)),
        };
        let clock = cpu_clocks::renamed(timer.clock, now);
        restore_timer(&Timer { clock, ..*timer }, renamed(timer.tid))
    });
    // SAFETY: as above.
    unsafe { sys::call5(nr::PRCTL, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0) };
    result
}

fn restore_timer(timer: &Timer, tid: i32) -> Outcome<()> {
    // struct sigevent: value, signal, notify, thread id.
    let event = [
        timer.value,
        u64::from(timer.signal as u32) | (timer.notify as u64) << 32,
        tid as u64,
        0,
        0,
        0,
        0,
        0,
    ];
    loop {
        let mut id = timer.id;
        // SAFETY: the kernel reads the event and writes the number.
        let made = unsafe {
            let (event, id) = (event.as_ptr() as usize, &raw mut id as usize);
            sys::call3(nr::TIMER_CREATE, timer.clock as usize, event, id)
        };
        if sys::check(made) == Err(Errno(libc::EAGAIN)) {
            return too_many_signals();
        }
        sys::check(made).step("making a timer again")?;
        if id == timer.id {
            break;
        }
        // SAFETY: the timer was just made.
        unsafe { sys::call1(nr::TIMER_DELETE, id as usize) };
        if id > timer.id {
            return refuse!("a timer cannot get its number {} here", timer.id);
        }
    }
    // SAFETY: the kernel reads the times.
    unsafe {
        sys::call4(
            nr::TIMER_SETTIME,
            timer.id as usize,
            0,
            timer.times.as_ptr() as usize,
            0,
        )
    };
    Ok(())
}

/// Restores the state that a thread sets for itself.
pub fn restore_thread(thread: &Thread) {
    // SAFETY: each call gets a value that was captured from the saved thread. A call that is not
    // allowed here - a missing processor, a better nice value - is not needed for correctness.
    unsafe {
        const ARCH_SET_GS: usize = 0x1001;
        if thread.gs != 0 {
            sys::call2(nr::ARCH_PRCTL, ARCH_SET_GS, thread.gs);
        }
        sys::call2(
            nr::PRCTL,
            libc::PR_SET_NAME as usize,
            thread.name.as_ptr() as usize,
        );
        // If the saved thread had no such signal, the first thread keeps the signal that the
        // restoring process has set: a task ends with its daemon on every host.
        if thread.death_signal != 0 {
            let set_death = libc::PR_SET_PDEATHSIG as usize;
            sys::call2(nr::PRCTL, set_death, thread.death_signal as usize);
        }
        if thread.robust != 0 {
            sys::call2(nr::SET_ROBUST_LIST, thread.robust, thread.robust_len);
        }
        affinity::restore((&thread.processors, thread.processors_len));
        sys::call3(
            nr::SETPRIORITY,
            libc::PRIO_PROCESS as usize,
            0,
            thread.nice as usize,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_listed_one_by_one() {
        let file = b"ID: 0\nsignal: 60/0000000000000001\nnotify: signal/tid.7\nClockID: 1\n\
                     ID: 11\nsignal: 14/000000000000000a\nnotify: none/pid.7\nClockID: -6\n";
        let all: Vec<&[u8]> = records(file).collect();
        assert_eq!(all.len(), 2);
        assert!(all[0].starts_with(b"ID: 0\n") && all[1].starts_with(b"ID: 11\n"));
        assert_eq!(proc::field(all[1], "ClockID").map(clock_number), Some(-6));
    }
}
