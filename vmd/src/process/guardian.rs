//! The guardian: a small process that outlives its daemon for a moment and ends the processes that
//! the daemon left.
//!
//! A daemon that ends in order also ends all its descendants: the parent-death signal ends the
//! tasks, and the daemon itself ends the processes that tasks have started. The death of a killed
//! daemon ends only the tasks, because the signal is not inherited. The children of the tasks would
//! go on, and would write at the same time as the tasks of a successor. So each daemon starts a
//! guardian, in a session of its own, and reports to it which processes are tasks. The end of the
//! pipe between the two means the end of the daemon. Then the guardian kills
//!
//! - all processes of the process groups and sessions that those tasks lead,
//! - all processes whose parent is one of these, as long as the parent exists,
//! - all processes that have the token of one of those tasks in their environment: they began a
//!   group of their own, and their parent is gone. These are looked for last, by threads that may
//!   be held up ([`crate::process::tokens`]).
//!
//! The guardian does not find a process that began a group of its own, has lost its parent, and
//! was started with an environment without the token.
//!
//! Until it is done the guardian keeps the lock of the daemon's folder, so no successor begins
//! there before. At last it writes a note about the end of the daemon ([`crate::start::ended`]).
//!
//! A guardian that has ended, or has the lock of a folder that was removed, is replaced by a thread
//! of its own ([`crate::process::starter`]): the event loop does not wait for the start of a
//! process.

use crate::{
    clock,
    process::{
        helper,
        helper_job::HelperJob,
        signals,
        starter::Answer,
        tokens,
        usage::{self, Process},
    },
    start::ended,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::MemfdFlags,
    process::{Pid, Signal, getpid, getppid, kill_process},
};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, BufRead, BufReader, PipeWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::AtomicBool,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};
use vm_machine::Time;
use vm_wire::limits;

/// Name of the process in lists, so that `pkill vmd` does not match it.
const NAME: &std::ffi::CStr = c"vm-guardian";
/// How long the guardian tries to end processes: a process that waits for a disk that is gone does
/// not end.
const KILL_TIME: Duration = Duration::from_secs(2);
/// Pause before the next look at the processes.
const KILL_LOOK: Duration = Duration::from_millis(2);
/// Capacity of the pipe: enough for the reports on thousands of tasks.
const PIPE_BYTES: usize = 1 << 20;
/// Least time between the starts of two guardians.
const REPLACE_TIME: Duration = Duration::from_secs(1);

/// The daemon's side of the guardian.
#[derive(Debug)]
pub struct Guardian {
    /// The folder in which the guardian writes its note.
    dir: PathBuf,
    /// Memory shared with the guardian that holds the end of the lease, in microseconds of the
    /// daemon's clock.
    lease: Option<File>,
    told: Mutex<Told>,
}

/// The state of the guardian, which any thread may change.
#[derive(Debug)]
struct Told {
    /// The lock of the daemon's folder.
    lock: OwnedFd,
    watch: Option<Watch>,
    need: Need,
    /// When the last guardian was started.
    begun: Instant,
    /// The living tasks: their processes, and their tokens as far as known.
    tasks: Tasks,
}

/// The leaders of process groups, and the tokens that their descendants may have in their environment.
type Tasks = HashMap<Pid, Option<u64>>;

/// The running guardian.
#[derive(Debug)]
struct Watch {
    process: Pid,
    pipe: PipeWriter,
}

/// Whether another guardian is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// A guardian runs, or is being started.
    Nothing,
    /// There is no guardian, or it does not have the lock of the folder.
    Another,
    /// The daemon ends.
    Never,
}

impl Watch {
    /// Ends the guardian. It was not waited for, so its number still refers to it.
    fn end(self) {
        // The kill comes first, so that the guardian does not act on the end of the pipe.
        let _ = kill_process(self.process, Signal::KILL);
        drop(self.pipe);
    }
}

impl Guardian {
    /// Starts the guardian of the daemon whose folder is `dir`, locked by `lock`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn start(dir: &Path, lock: OwnedFd) -> io::Result<Arc<Guardian>> {
        let lease = rustix::fs::memfd_create("lease", MemfdFlags::CLOEXEC);
        let guardian = Guardian {
            dir: dir.to_owned(),
            lease: lease.ok().map(File::from),
            told: Mutex::new(Told {
                lock,
                watch: None,
                need: Need::Nothing,
                begun: Instant::now(),
                tasks: Tasks::new(),
            }),
        };
        guardian.note_lease(None);
        let (process, pipe) = guardian.begin()?;
        guardian.told().install(Watch { process, pipe })?;
        Ok(Arc::new(guardian))
    }

    /// Adds a process that was started as a task and leads a process group, or its token, once that is
    /// known.
    pub fn add(&self, task: Pid, token: Option<u64>) {
        let mut told = self.told();
        told.tasks.insert(task, token);
        told.tell(&added(task, token));
    }

    /// Removes the process of a task that has ended, together with all that it left.
    pub fn remove(&self, task: Pid) {
        let mut told = self.told();
        if told.tasks.remove(&task).is_some() {
            told.tell(&format!("- {task}\n"));
        }
    }

    /// Handles a child of this daemon that has ended and is to be waited for. Returns whether it
    /// was the guardian: then another guardian is needed.
    pub fn ended(&self, child: Pid) -> bool {
        let mut told = self.told();
        let was = told.watch.take_if(|watch| watch.process == child);
        if was.is_some() {
            told.want();
        }
        was.is_some()
    }

    /// Sets the new lock, after the folder was made again.
    pub fn relock(&self, lock: OwnedFd) {
        let mut told = self.told();
        told.lock = lock;
        told.want();
    }

    /// Whether another guardian is to be started now. If so, the caller must start one.
    pub fn is_due(&self) -> bool {
        let mut told = self.told();
        let due = told.need == Need::Another && told.begun.elapsed() >= REPLACE_TIME;
        if due {
            told.need = Need::Nothing;
            told.begun = Instant::now();
        }
        due
    }

    /// Takes the result of [`Guardian::begin`].
    pub fn begun(&self, answer: Answer<PipeWriter, io::Error>) {
        let mut told = self.told();
        let installed = answer.and_then(|(process, pipe)| told.install(Watch { process, pipe }));
        if let Err(error) = installed {
            told.want();
            log::error!(
                "a guardian cannot be started: if this daemon is killed, what its tasks have \
                 started may live on: {error}"
            );
        }
    }

    /// The process of the guardian.
    pub fn process(&self) -> Option<Pid> {
        self.told().watch.as_ref().map(|watch| watch.process)
    }

    /// Records the end of the daemon's lease; none if the daemon has no lease.
    pub fn note_lease(&self, end: Option<Time>) {
        let end = end.map_or(u64::MAX, |end| end.0);
        if let Some(lease) = &self.lease {
            // Writing to memory cannot fail for want of space.
            let _ = lease.write_all_at(&end.to_le_bytes(), 0);
        }
    }

    /// Ends the guardian, because the daemon ends by itself and has ended all its descendants.
    pub fn dismiss(&self) {
        let mut told = self.told();
        told.need = Need::Never;
        if let Some(watch) = told.watch.take() {
            let process = watch.process;
            watch.end();
            let _ = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty());
        }
    }

    /// Starts a guardian, which knows no task yet: see [`Guardian::begun`]. The call waits until
    /// the process has become its program.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn begin(&self) -> Answer<PipeWriter, io::Error> {
        let (read, pipe) = io::pipe()?;
        // An ordinary user gets this capacity. Without it the pipe is smaller.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let mut command = helper::command(&HelperJob::Guardian {
            daemon: std::process::id(),
        });
        // The guardian writes nothing: its standard streams only carry these descriptors.
        let lock = self.told().lock.try_clone()?;
        let lease = self.lease.as_ref().map(File::try_clone).transpose()?;
        let child = command
            .env_clear()
            .current_dir(&self.dir)
            .stdin(read)
            .stdout(lock)
            .stderr(lease.map_or_else(Stdio::null, Stdio::from))
            .spawn()?;
        if self.told().need == Need::Never {
            // The pipe stays open until the daemon ends. By then the daemon has removed its `pid`,
            // or has killed this child.
            std::mem::forget(pipe);
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok((Pid::from_child(&child), pipe))
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn want(&mut self) {
        if self.need == Need::Nothing {
            self.need = Need::Another;
        }
    }

    /// Reports all tasks to a new guardian, which replaces the one before.
    fn install(&mut self, mut watch: Watch) -> io::Result<()> {
        for (task, token) in &self.tasks {
            if let Err(error) = watch.pipe.write_all(added(*task, *token).as_bytes()) {
                watch.end();
                return Err(error);
            }
        }
        if let Some(before) = self.watch.replace(watch) {
            before.end();
        }
        Ok(())
    }

    fn tell(&mut self, line: &str) {
        let written = |watch: &mut Watch| watch.pipe.write_all(line.as_bytes()).is_ok();
        // The guardian has ended, or does not read.
        if let Some(watch) = self.watch.take_if(|watch| !written(watch)) {
            watch.end();
            self.want();
        }
    }
}

fn added(task: Pid, token: Option<u64>) -> String {
    match token {
        Some(token) => format!("+ {task} {token}\n"),
        None => format!("+ {task}\n"),
    }
}

/// The work of the guardian of the process `daemon`, from its start until both have ended.
pub fn guard(daemon: u32) {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    // A signal to all processes of a job asks the daemon to end, not the guardian that looks after
    // the daemon.
    let heard = Arc::new(AtomicBool::new(false));
    for signal in signals::catchable() {
        let _ = signal_hook::flag::register(signal, Arc::clone(&heard));
    }
    let tasks = hear(BufReader::new(io::stdin()));
    let now = clock::now();
    let killed = kill(Pid::from_raw(daemon as i32), &tasks);
    let lease = io::stderr().as_fd().try_clone_to_owned();
    let lease = lease.ok().and_then(|lease| lease_end(&File::from(lease)));
    // The note is written only if the daemon's `pid` file is still there: a daemon that ends by
    // itself removes it.
    let own = fs::read_to_string(crate::start::dir::PID_FILE);
    if own.is_ok_and(|own| own.trim() == daemon.to_string()) {
        let _ = ended::note(Path::new("."), &verdict(lease, now, &killed));
    }
}

/// Reads the daemon's reports until its end. Returns the tasks that are left.
fn hear(pipe: impl BufRead) -> Tasks {
    let mut tasks = Tasks::new();
    for line in pipe.lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let sign = words.next();
        let task = words.next().and_then(|word| word.parse().ok());
        let Some(task) = task.and_then(Pid::from_raw) else {
            continue;
        };
        match sign {
            Some("+") => drop(tasks.insert(task, words.next().and_then(|word| word.parse().ok()))),
            _ => drop(tasks.remove(&task)),
        }
    }
    tasks
}

fn lease_end(file: &File) -> Option<Time> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let end = u64::from_le_bytes(bytes);
    (end != u64::MAX).then_some(Time(end))
}

/// The result of the guardian's kills.
#[derive(Debug, Default)]
struct Killed {
    killed: HashSet<Pid>,
    left: usize,
}

fn verdict(lease: Option<Time>, now: Time, killed: &Killed) -> String {
    let mut text = match lease.is_some_and(|end| now >= end) {
        true => format!(
            "was killed at the end of its lease: it had been stopped, or had got no processor, for \
             longer than {:?} (a computer that slept, Ctrl-Z, a container that was paused)",
            limits::LEASE
        ),
        false => "was killed by a signal, or crashed".to_owned(),
    };
    if !killed.killed.is_empty() {
        let count = killed.killed.len();
        text += &format!("; {count} processes that its tasks had started were ended");
    }
    if killed.left > 0 {
        text += &format!("; {} do not end", killed.left);
    }
    text
}

fn kill(daemon: Option<Pid>, tasks: &Tasks) -> Killed {
    // If /proc shows another namespace, its numbers refer to other processes.
    let own = fs::read_link("/proc/self").ok();
    let own = own.and_then(|own| own.to_str()?.parse().ok());
    if tasks.is_empty() || own != Some(getpid().as_raw_nonzero().get()) {
        return Killed::default();
    }
    kill_left(daemon, tasks, usage::token)
}

/// Kills the processes that tasks left, for a limited time. `token` reads the token of a process.
fn kill_left(
    daemon: Option<Pid>,
    tasks: &Tasks,
    token: impl Fn(Pid) -> Option<u64> + Clone + Send + 'static,
) -> Killed {
    let mut killed = Killed::default();
    let mut looks = Looks::new(tasks, token);
    let end = Instant::now() + KILL_TIME;
    loop {
        // The daemon's threads end one after the other, and the children of each thread with it.
        let gone = getppid() != daemon;
        let all = usage::all();
        // Orphans of the daemon get the same parent as this process: the daemon itself while it is
        // not quite gone, then the process that adopts its orphans.
        let orphans = orphans([daemon, getppid()], &all);
        let found = victims(tasks, orphans.intersection(&looks.found), &all);
        for pid in &found {
            // The process may have ended meanwhile.
            if kill_process(*pid, Signal::KILL).is_ok() && !tasks.contains_key(pid) {
                killed.killed.insert(*pid);
            }
        }
        looks.begin(orphans.difference(&found));
        killed.left = found.len();
        let done = gone && found.is_empty() && looks.open == 0;
        if done || Instant::now() > end {
            return killed;
        }
        looks.hear();
    }
}

/// Looks at tokens, in threads that may be held up.
struct Looks<T> {
    token: T,
    /// The tokens of the tasks.
    wanted: HashSet<u64>,
    /// Processes whose token was requested, each once.
    begun: HashSet<Pid>,
    /// Number of requested tokens that were not read yet.
    open: usize,
    /// Processes that have the token of a task.
    found: HashSet<Pid>,
    tell: Sender<(Pid, Option<u64>)>,
    told: Receiver<(Pid, Option<u64>)>,
}

impl<T: Fn(Pid) -> Option<u64> + Clone + Send + 'static> Looks<T> {
    fn new(tasks: &Tasks, token: T) -> Looks<T> {
        let (tell, told) = mpsc::channel();
        Looks {
            token,
            wanted: tasks.values().flatten().copied().collect(),
            begun: HashSet::new(),
            open: 0,
            found: HashSet::new(),
            tell,
            told,
        }
    }

    fn begin<'a>(&mut self, pids: impl Iterator<Item = &'a Pid>) {
        if self.wanted.is_empty() {
            return;
        }
        let new: Vec<Pid> = pids
            .copied()
            .filter(|pid| self.begun.insert(*pid))
            .collect();
        let (count, tell) = (new.len(), self.tell.clone());
        let tell = move |pid, token| {
            // At the end of the guardian, there is no receiver any more.
            let _ = tell.send((pid, token));
        };
        if tokens::read_all(new, self.token.clone(), tell).is_ok() {
            self.open += count;
        }
    }

    /// Takes the tokens that were read, or waits a moment.
    fn hear(&mut self) {
        let mut answer = self.told.recv_timeout(KILL_LOOK).ok();
        while let Some((pid, token)) = answer {
            self.open -= 1;
            if token.is_some_and(|token| self.wanted.contains(&token)) {
                self.found.insert(pid);
            }
            answer = self.told.try_recv().ok();
        }
    }
}

/// The living children of `reapers`. The token of another process proves nothing: a task that has
/// moved to another daemon of this computer still has its token.
fn orphans(reapers: [Option<Pid>; 2], all: &[Process]) -> HashSet<Pid> {
    let own = getpid();
    let is_one =
        |it: &&Process| it.pid != own && it.parent.is_some() && reapers.contains(&it.parent);
    all.iter().filter(is_one).map(|it| it.pid).collect()
}

/// The living processes that belong to tasks: by their groups and sessions, or by their tokens.
fn victims<'a>(
    tasks: &Tasks,
    by_token: impl Iterator<Item = &'a Pid>,
    all: &[Process],
) -> HashSet<Pid> {
    let is_led = |it: &&Process| it.leaders.any(|leader| tasks.contains_key(&leader));
    let led = all.iter().filter(is_led).map(|it| it.pid);
    let mut found: HashSet<Pid> = led.chain(by_token.copied()).collect();
    // Adds the children of the found processes, until there are no more.
    loop {
        let before = found.len();
        let of_found = |process: &&Process| process.parent.is_some_and(|it| found.contains(&it));
        let children: Vec<Pid> = all.iter().filter(of_found).map(|it| it.pid).collect();
        found.extend(children);
        if found.len() == before {
            found.remove(&getpid());
            return found;
        }
    }
}

#[cfg(test)]
mod tests;
