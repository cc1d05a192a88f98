//! The guardian: a small process that outlives its daemon for a moment and ends what that left.
//!
//! A daemon ends with all its descendants: a task by its parent-death signal, what tasks have
//! started by the daemon itself. One that is killed ends only the tasks, since that signal is not
//! inherited; their children would go on and write beside a successor. So each daemon starts a
//! guardian, in a session of its own, and tells it which processes it started as tasks. The end of
//! the pipe between the two is the end of the daemon. Then the guardian kills
//!
//! - all processes of the sessions of those tasks: each task leads one,
//! - all processes whose parent is one of these, as long as it is there,
//! - all processes that have the token of one of those tasks in their environment: they began a
//!   session of their own, and their parent is gone.
//!
//! What is left is a process that began a session of its own, has lost its parent and has no such
//! variable: it was started with another environment, or by a task that had moved to this host.
//!
//! Until that is done the guardian keeps the lock of the daemon's folder, so no successor begins
//! there before. At last it leaves word of what happened ([`crate::ended`]).

use crate::{
    clock, ended, signals, transfer,
    usage::{self, Process},
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::MemfdFlags,
    process::{Pid, Signal, getpid, getppid, kill_process},
};
use std::{
    collections::{HashMap, HashSet},
    env,
    fs::{self, File},
    io::{self, BufRead, BufReader, PipeWriter, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};
use vm_machine::Time;
use vm_wire::limits;

/// The first argument of the process; the number of its daemon's follows.
const GUARDIAN: &str = "guardian";
/// What it is called in lists of processes: `pkill vmd` does not mean it.
const NAME: &std::ffi::CStr = c"vm-guardian";
/// How long it tries to end processes: one that waits for a disk that is gone does not.
const KILL_TIME: Duration = Duration::from_secs(2);
/// How long it waits until it looks again.
const KILL_LOOK: Duration = Duration::from_millis(2);
/// Bytes that the pipe holds: what is told of thousands of tasks.
const PIPE_BYTES: usize = 1 << 20;
/// A guardian that has ended is replaced after so long at the earliest.
const REPLACE_TIME: Duration = Duration::from_secs(1);

/// The daemon's side.
#[derive(Debug)]
pub struct Guardian {
    /// Where the guardian leaves word.
    dir: PathBuf,
    /// The lock of that folder.
    lock: OwnedFd,
    /// When the lease ends, for the guardian to see: microseconds of the daemon's clock.
    lease: Option<File>,
    told: Mutex<Told>,
}

/// What the guardian was told.
#[derive(Debug, Default)]
struct Told {
    pipe: Option<PipeWriter>,
    process: Option<Pid>,
    started: Option<Instant>,
    /// The living tasks: their sessions, and their tokens if they were started here.
    tasks: HashMap<Pid, Option<u64>>,
    /// The daemon ends: there is to be no guardian any more.
    dismissed: bool,
}

impl Guardian {
    /// Starts the guardian of the daemon whose folder is `dir`, locked by `lock`.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(dir: &Path, lock: OwnedFd) -> io::Result<Arc<Guardian>> {
        let lease = rustix::fs::memfd_create("lease", MemfdFlags::CLOEXEC);
        let guardian = Guardian {
            dir: dir.to_owned(),
            lock,
            lease: lease.ok().map(File::from),
            told: Mutex::default(),
        };
        guardian.begin(&mut guardian.told())?;
        guardian.note_lease(None);
        Ok(Arc::new(guardian))
    }

    /// A process was started as a task, and leads a session.
    pub fn add(&self, task: Pid, token: Option<u64>) {
        let mut told = self.told();
        told.tasks.insert(task, token);
        let line = added(task, token);
        self.tell(&mut told, &line);
    }

    /// The process of a task has ended, and so has all that it left.
    pub fn remove(&self, task: Pid) {
        let mut told = self.told();
        if told.tasks.remove(&task).is_some() {
            self.tell(&mut told, &format!("- {task}\n"));
        }
    }

    /// A child of this daemon has ended and is not waited for yet: it may be the guardian, which is
    /// replaced.
    pub fn ended(&self, child: Pid) {
        let mut told = self.told();
        if told.process == Some(child) {
            log::warn!("the guardian (process {child}) has ended: another one is started");
            told.process = None;
            told.pipe = None;
            self.replace(&mut told);
        }
    }

    /// Starts a guardian if there is none and it is time.
    pub fn look(&self) {
        let mut told = self.told();
        if told.pipe.is_none() {
            self.replace(&mut told);
        }
    }

    /// Its process.
    pub fn process(&self) -> Option<Pid> {
        self.told().process
    }

    /// When the daemon's lease ends; it may have none.
    pub fn note_lease(&self, end: Option<Time>) {
        let end = end.map_or(u64::MAX, |end| end.0);
        if let Some(lease) = &self.lease {
            // Memory takes it.
            let _ = lease.write_all_at(&end.to_le_bytes(), 0);
        }
    }

    /// The daemon ends by itself and has ended all its descendants.
    pub fn dismiss(&self) {
        let mut told = self.told();
        told.dismissed = true;
        // First, so that the guardian takes the end of the pipe for nothing else.
        if let Some(process) = told.process.take() {
            let _ = kill_process(process, Signal::KILL);
            let _ = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty());
        }
        told.pipe = None;
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: &mut Told, line: &str) {
        let written = told
            .pipe
            .as_mut()
            .map(|pipe| pipe.write_all(line.as_bytes()));
        if !matches!(written, Some(Ok(()))) {
            self.replace(told);
        }
    }

    /// Starts another guardian in the place of one that has ended or does not read.
    fn replace(&self, told: &mut Told) {
        let early = |started: Instant| started.elapsed() < REPLACE_TIME;
        if told.dismissed || told.started.is_some_and(early) {
            return;
        }
        // First, so that the guardian takes the end of the pipe for nothing else.
        if let Some(process) = told.process.take() {
            // It is a child that was not waited for.
            let _ = kill_process(process, Signal::KILL);
        }
        told.pipe = None;
        if let Err(error) = self.begin(told) {
            log::error!(
                "there is no guardian: if this daemon is killed, what its tasks have started \
                 lives on: {error}"
            );
        }
    }

    fn begin(&self, told: &mut Told) -> io::Result<()> {
        told.started = Some(Instant::now());
        let (read, write) = io::pipe()?;
        // As much as an ordinary user may have.
        let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
        rustix::io::ioctl_fionbio(&write, true)?;
        let mut command = transfer::this_program();
        // It says nothing: these are the descriptors that every program can hand over.
        let lease = self.lease.as_ref().map(File::try_clone).transpose()?;
        let mut child = command
            .args([GUARDIAN, &getpid().to_string()])
            .env_clear()
            .current_dir(&self.dir)
            .stdin(read)
            .stdout(self.lock.try_clone()?)
            .stderr(lease.map_or_else(Stdio::null, Stdio::from))
            .spawn()?;
        let process = Pid::from_child(&child);
        let mut pipe = write;
        for (task, token) in &told.tasks {
            if let Err(error) = pipe.write_all(added(*task, *token).as_bytes()) {
                child.kill().and_then(|()| child.wait())?;
                return Err(error);
            }
        }
        told.pipe = Some(pipe);
        told.process = Some(process);
        Ok(())
    }
}

fn added(task: Pid, token: Option<u64>) -> String {
    match token {
        Some(token) => format!("+ {task} {token}\n"),
        None => format!("+ {task}\n"),
    }
}

/// If this process was started as a guardian: does its work.
pub fn run_if_asked() -> Option<anyhow::Result<()>> {
    let mut words = env::args().skip(1);
    if words.next().as_deref() != Some(GUARDIAN) {
        return None;
    }
    let daemon = words.next().unwrap_or_default();
    guard(&daemon);
    Some(Ok(()))
}

fn guard(daemon: &str) {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(NAME);
    // What is sent to all processes of a job asks the daemon to end, not those that look after it.
    let heard = Arc::new(AtomicBool::new(false));
    for signal in signals::catchable() {
        let _ = signal_hook::flag::register(signal, Arc::clone(&heard));
    }
    let tasks = hear(BufReader::new(io::stdin()));
    let now = clock::now();
    let killed = kill(daemon.parse().ok().and_then(Pid::from_raw), &tasks);
    let stderr = File::from(match io::stderr().as_fd().try_clone_to_owned() {
        Ok(lease) => lease,
        Err(_) => return,
    });
    let text = verdict(lease_end(&stderr), now, &killed);
    // Only where the daemon's own file is, which a daemon removes that ends by itself.
    let own = fs::read_to_string(crate::dir::PID_FILE);
    if own.is_ok_and(|own| own.trim() == daemon) {
        let _ = ended::note(Path::new("."), &text);
    }
}

/// What the daemon tells, until its end: the tasks that are left.
fn hear(pipe: impl BufRead) -> HashMap<Pid, Option<u64>> {
    let mut tasks = HashMap::new();
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

/// What became of what a daemon left.
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

fn kill(daemon: Option<Pid>, tasks: &HashMap<Pid, Option<u64>>) -> Killed {
    let mut killed = Killed::default();
    // Where /proc shows another namespace, its numbers mean other processes.
    let own = fs::read_link("/proc/self").ok();
    let own = own.and_then(|own| own.to_str()?.parse().ok());
    if tasks.is_empty() || own != Some(getpid().as_raw_nonzero().get()) {
        return killed;
    }
    let end = Instant::now() + KILL_TIME;
    loop {
        let all = usage::all();
        // What the daemon left goes to the same parent as this process: the daemon first, which may
        // not be quite gone, then whoever takes in its orphans.
        let found = victims(tasks, [daemon, getppid()], &all);
        killed.left = found.len();
        if found.is_empty() || Instant::now() > end {
            return killed;
        }
        for pid in found {
            // It may have ended meanwhile.
            if kill_process(pid, Signal::KILL).is_ok() && !tasks.contains_key(&pid) {
                killed.killed.insert(pid);
            }
        }
        thread::sleep(KILL_LOOK);
    }
}

/// The living processes that belong to tasks. A token counts in a process whose parent is one of
/// `reapers` only: a task that has moved to another daemon of this computer has its token still.
fn victims(
    tasks: &HashMap<Pid, Option<u64>>,
    reapers: [Option<Pid>; 2],
    all: &[Process],
) -> HashSet<Pid> {
    let tokens: HashSet<u64> = tasks.values().flatten().copied().collect();
    let own = getpid();
    let mut found: HashSet<Pid> = all
        .iter()
        .filter(|process| {
            let of_session = process.session.is_some_and(|it| tasks.contains_key(&it));
            let has_token = || usage::token(process.pid).is_some_and(|it| tokens.contains(&it));
            of_session || reapers.contains(&process.parent) && has_token()
        })
        .map(|process| process.pid)
        .collect();
    // The children of their children, too.
    loop {
        let before = found.len();
        let of_found = |process: &&Process| process.parent.is_some_and(|it| found.contains(&it));
        let children: Vec<Pid> = all.iter().filter(of_found).map(|it| it.pid).collect();
        found.extend(children);
        if found.len() == before {
            found.remove(&own);
            return found;
        }
    }
}
