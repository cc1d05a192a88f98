//! The processes of this host's tasks: started, watched, heard, ended.
//!
//! A task's process is a child, watched by its pidfd. When it ends, the rest of its process group
//! is killed, what it wrote is read to the end, and then the daemon is told. The daemon is also the
//! subreaper of what tasks leave behind: such orphans become its children and are reaped here. Those
//! of the session of a task that has ended, and those that began with its token in their environment
//! ([`crate::process::tokens`]), are killed, and so are the orphans that these leave in turn. The daemon does
//! not know those that have neither: a process that began a session of its own with another
//! environment. It kills them when it ends; if it is killed itself, its guardian kills those whose
//! parent still belongs to a task ([`crate::process::guardian`]).
//!
//! Processes are started by threads of their own ([`crate::process::launches`]).

use crate::{
    context::{Context, Source},
    image::transfer::Back,
    net::sockets::is_readable,
    process::{
        coordinators::Coordinators,
        guardian::Guardian,
        launches::{Launch, Launches},
        lines::LineCutter,
        spawn::{self, Spawner, Started, Streams},
        starter::{self, Starter},
        streams::{Output, Progress, Role, Stream, Typed},
        tokens::{Tokens, Why},
        usage,
    },
};
use mio::{Waker, unix::SourceFd};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus},
};
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io::{self, PipeWriter},
    sync::Arc,
    thread,
    time::Duration,
};
use vm_machine::{Input, LaunchSpec, Time};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    console::WindowSize,
    task::{FailKind, Failed},
};

/// How long the output of an ended process's terminal is awaited. A terminal's last bytes arrive
/// a little later; others may hold it open for ever.
const TERMINAL_TIME: Duration = Duration::from_millis(500);
/// How long the end of the daemon waits for killed processes to be gone.
const KILL_TIME: Duration = Duration::from_secs(2);
/// How long after the end of a task's process it is looked for what that left: it appears one
/// generation after the other, as each is killed.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// The exit code of a process that is no child cannot be known.
const UNKNOWN_CODE: i32 = 255;
/// Children that are waited for in one turn.
const REAPED: usize = 64;
/// Shares in which all is read that a task has written: more than a pipe holds.
const SHARES: usize = 64;

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// See [`Started::token`]; of one that was brought back, once it was read.
    token: Option<u64>,
    /// Whether it is our child.
    child: bool,
    pidfd: usize,
    outputs: Vec<usize>,
    input: Option<usize>,
    ended: Option<ExitStatus>,
}

/// All processes of this host's tasks.
#[derive(Debug)]
pub struct Processes {
    launches: Launches,
    streams: Slab<Stream>,
    tasks: BTreeMap<Tid, Process>,
    tids: HashMap<Pid, Tid>,
    /// Ended processes whose terminals are awaited.
    lingering: BTreeSet<(Time, Tid)>,
    guardian: Arc<Guardian>,
    /// Starts another one, see [`Guardian::begin`].
    guardians: Starter<(), PipeWriter, io::Error>,
    tokens: Tokens,
    /// Ended processes whose descendants are to end, the oldest first.
    leaving: VecDeque<Leaving>,
    /// Whether orphans may have come since the last look at them.
    sweep_due: bool,
}

/// What the descendants of a task's process have of it.
#[derive(Debug)]
struct Leaving {
    until: Time,
    tid: Tid,
    session: Pid,
    token: Option<u64>,
}

impl Processes {
    /// None yet. From now on this process is the reaper of its descendants. The event loop is woken when
    /// [`Processes::take_started`] has something to do.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Processes> {
        // Any process number turns it on.
        match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            // No kernel says so, but an emulator of another processor (qemu-user).
            Err(rustix::io::Errno::INVAL) => {
                log::warn!("what tasks leave behind is not this daemon's: it is emulated");
            }
            set => set?,
        }
        let guardian = Arc::clone(&spawner.guardian);
        let begins = Arc::clone(&guardian);
        Ok(Processes {
            guardian,
            guardians: Starter::new("guard", move |()| begins.begin(), Arc::clone(&waker))?,
            tokens: Tokens::new(Arc::clone(&waker)),
            leaving: VecDeque::new(),
            sweep_due: false,
            launches: Launches::new(spawner, waker)?,
            streams: Slab::new(),
            tasks: BTreeMap::new(),
            tids: HashMap::new(),
            lingering: BTreeSet::new(),
        })
    }

    /// The process of a task is to be started.
    pub fn launch(&mut self, spec: Box<LaunchSpec>) {
        self.launches.launch(spec);
    }

    /// The process that becomes a task that was saved is to be started, see [`Spawner::bring_back`].
    pub fn bring_back(&mut self, tid: Tid, how: Back, handed: [OwnedFd; 3]) {
        self.launches.bring_back(tid, how, handed);
    }

    /// Takes in what was started. Returns whether there was something: then children may have ended
    /// that were left because they might have been this, see [`Processes::reap_some`].
    pub fn take_started(&mut self, context: &mut Context) -> bool {
        let mut some = false;
        while let Some((launch, started)) = self.launches.next() {
            some = true;
            self.launched(launch, started, context);
        }
        while let Some(answer) = self.guardians.answer() {
            some = true;
            self.guardian.begun(answer);
        }
        some
    }

    fn launched(
        &mut self,
        launch: Launch,
        started: Result<Started, Failed>,
        context: &mut Context,
    ) {
        let tid = launch.tid;
        let started = started.and_then(|started| {
            let pid = started.pid;
            if launch.unwanted {
                kill_group(pid, Signal::KILL);
                self.leave(tid, pid, started.token, context.now);
                return Ok(pid);
            }
            self.watch(
                tid,
                launch.console.is_some(),
                started,
                launch.typed,
                context,
            )
            .map_err(|error| {
                let text = format!("the process of {tid} cannot be watched: {error}");
                Failed::new(FailKind::System, text)
            })?;
            Ok(pid)
        });
        match started {
            _ if launch.unwanted => {}
            started if launch.image => context.brought_back.push((tid, started)),
            Ok(pid) => {
                let pid = pid.as_raw_nonzero().get() as u32;
                context.inbox.push_back(Input::Launched(tid, pid));
            }
            Err(failed) => context.inbox.push_back(Input::LaunchFailed(tid, failed)),
        }
        if let Some(size) = launch.size {
            self.resize(tid, size);
        }
        for signal in launch.signals {
            self.signal(tid, signal);
        }
    }

    fn watch(
        &mut self,
        tid: Tid,
        raw: bool,
        started: Started,
        typed: Typed,
        context: &mut Context,
    ) -> io::Result<()> {
        let pid = started.pid;
        let output = |stream: u8| Output {
            stream,
            lines: (!raw).then(LineCutter::default),
            paused: false,
            left: None,
        };
        let mut roles = vec![(started.pidfd, Role::End)];
        match started.streams {
            Streams::Pipes {
                input,
                output: out,
                error,
            } => {
                roles.push((out, Role::Output(output(1))));
                roles.push((error, Role::Output(output(2))));
                roles.extend(input.map(|fd| (fd, Role::Input(typed))));
            }
            Streams::Terminal(fd) => {
                roles.push((fd, Role::Terminal(output(1), typed)));
            }
        }
        let mut process = Process {
            pid,
            token: started.token,
            child: true,
            pidfd: 0,
            outputs: Vec::new(),
            input: None,
            ended: None,
        };
        let mut places = Vec::new();
        for (fd, role) in roles {
            match self.add(tid, fd, role, context) {
                Ok(place) => places.push(place),
                Err(error) => {
                    // Nobody could watch it: it must not live.
                    kill_group(pid, Signal::KILL);
                    let _ = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                    self.waited(pid);
                    self.leave(tid, pid, started.token, context.now);
                    for place in places {
                        self.streams.remove(place);
                    }
                    return Err(error);
                }
            }
        }
        for place in places {
            match self.streams[place].role {
                Role::End => process.pidfd = place,
                Role::Output(_) => process.outputs.push(place),
                Role::Input(_) => process.input = Some(place),
                Role::Terminal(..) => {
                    process.outputs.push(place);
                    process.input = Some(place);
                }
            }
        }
        self.tids.insert(pid, tid);
        self.tasks.insert(tid, process);
        Ok(())
    }

    /// Sends the process of a task, but nothing that it has started, a signal.
    pub fn nudge(&mut self, tid: Tid, number: i32) {
        if let Some(launch) = self.launches.of(tid) {
            // It has started nothing yet.
            launch.signals.push(number);
        } else if let Some(process) = self.tasks.get(&tid)
            // Of one that was waited for the pidfd is closed; the entry waits for its output.
            && process.ended.is_none()
            && let Some(signal) = spawn::signal(number)
        {
            // It may have ended meanwhile.
            let pidfd = &self.streams[process.pidfd].fd;
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }

    /// Reads all that a task has written so far, also if nobody wants it now.
    pub fn read_all(&mut self, tid: Tid, context: &mut Context) {
        let outputs = self.tasks.get(&tid).map(|process| process.outputs.clone());
        for place in outputs.into_iter().flatten() {
            let stream = &mut self.streams[place];
            if let Some(output) = stream.role.output() {
                let paused = std::mem::take(&mut output.paused);
                // What the task has left behind may never stop to write.
                for _ in 0..SHARES {
                    if output.read(&stream.fd, tid, &mut context.inbox) != Progress::More {
                        break;
                    }
                }
                output.paused = paused;
            }
        }
    }

    /// A process has become a task: what it writes from now on passes as it is, or line by line.
    pub fn begin(&mut self, tid: Tid, raw: bool) {
        let outputs = self.tasks.get(&tid).map(|process| process.outputs.clone());
        for place in outputs.into_iter().flatten() {
            if let Some(output) = self.streams[place].role.output() {
                output.lines = (!raw).then(LineCutter::default);
            }
        }
    }

    /// The process that was brought back as a task has that task's environment now.
    pub fn came_back(&mut self, tid: Tid) {
        // What it starts has its token, as what its former process here left has.
        for leaving in self.leaving.iter_mut().filter(|it| it.tid == tid) {
            leaving.token = None;
        }
        if let Some(process) = self.tasks.get(&tid).filter(|it| it.ended.is_none()) {
            self.tokens.ask_of_task(process.pid, tid);
        }
    }

    /// Takes in which tokens children have.
    pub fn hear_tokens(&mut self, coordinators: &Coordinators) {
        while let Some((pid, why, token)) = self.tokens.answer() {
            let Some(token) = token else {
                continue;
            };
            match why {
                Why::BroughtBack(tid) => {
                    if let Some(process) = self.tasks.get_mut(&tid)
                        && process.pid == pid
                        && process.ended.is_none()
                    {
                        process.token = Some(token);
                        self.guardian.add(pid, Some(token));
                    }
                }
                Why::Left(tokens) => {
                    let is_task = self.tids.contains_key(&pid);
                    if tokens.contains(&token) && !is_task && !coordinators.has(pid) {
                        // It may have ended meanwhile.
                        let _ = rustix::process::kill_process(pid, Signal::KILL);
                    }
                }
            }
        }
    }

    /// Ends the process of a task that is another host's, and forgets it.
    pub fn discard(&mut self, tid: Tid, now: Time) {
        self.launches.kill(tid);
        self.launches.discard(tid);
        let Some(process) = self.tasks.remove(&tid) else {
            return;
        };
        self.tids.remove(&process.pid);
        self.lingering.retain(|(_, lingering)| *lingering != tid);
        if process.ended.is_none() {
            kill_group(process.pid, Signal::KILL);
            if process.child {
                self.leave(tid, process.pid, process.token, now);
            }
            self.streams.remove(process.pidfd);
        }
        let input = process
            .input
            .filter(|place| !process.outputs.contains(place));
        for place in process.outputs.iter().copied().chain(input) {
            self.streams.remove(place);
        }
    }

    fn add(
        &mut self,
        tid: Tid,
        fd: OwnedFd,
        role: Role,
        context: &mut Context,
    ) -> io::Result<usize> {
        let entry = self.streams.vacant_entry();
        let place = entry.key();
        let source = Source::Process(place);
        let raw = fd.as_raw_fd();
        if matches!(role, Role::End | Role::Output(_)) {
            context.register_readable(&mut SourceFd(&raw), source)?;
        } else {
            context.register(&mut SourceFd(&raw), source)?;
        }
        entry.insert(Stream { tid, fd, role });
        Ok(place)
    }

    /// Watches a process that became a task by itself.
    pub fn adopt(&mut self, tid: Tid, pid: u32, context: &mut Context) {
        let result = Pid::from_raw(pid as i32)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| Ok((pid, rustix::process::pidfd_open(pid, PidfdFlags::empty())?)))
            .map_err(io::Error::from)
            .and_then(|(pid, pidfd)| Ok((pid, self.add(tid, pidfd, Role::End, context)?)));
        match result {
            Ok((pid, pidfd)) => {
                let process = Process {
                    pid,
                    token: None,
                    child: false,
                    pidfd,
                    outputs: Vec::new(),
                    input: None,
                    ended: None,
                };
                self.tids.insert(pid, tid);
                self.tasks.insert(tid, process);
            }
            Err(error) => {
                log::warn!(
                    "the process {pid} of task {tid} cannot be watched by pidfd_open: {error}"
                );
                let status = ExitStatus::Code(UNKNOWN_CODE);
                context.ended.push((tid, status));
            }
        }
    }

    /// Something happened at the descriptor in `place`. Returns whether there may be more.
    pub fn serve(&mut self, place: usize, context: &mut Context) -> bool {
        let Some(stream) = self.streams.get_mut(place) else {
            return false;
        };
        let tid = stream.tid;
        if matches!(stream.role, Role::End) {
            self.reap(tid, context);
            return false;
        }
        if stream
            .role
            .typed()
            .is_some_and(|typed| typed.write(&stream.fd))
        {
            self.close_input(tid);
        }
        let Some(stream) = self.streams.get_mut(place) else {
            return false;
        };
        let Some(output) = stream.role.output().filter(|output| !output.paused) else {
            return false;
        };
        let progress = output.read(&stream.fd, tid, &mut context.inbox);
        let is_terminal = matches!(stream.role, Role::Terminal(..));
        match progress {
            Progress::More => true,
            Progress::Waiting => false,
            // Nobody has it open now. If it were closed here, the kernel would hang up whoever
            // still runs without it.
            Progress::Finished if is_terminal && self.runs(tid) => false,
            Progress::Finished => {
                self.close_output(tid, place, context);
                false
            }
        }
    }

    /// SIGCHLD: waits for children that have ended, orphans of tasks among them, and takes in which tasks
    /// were stopped or go on. Returns whether there may be more that have ended: many may at once, and
    /// turns stay short.
    pub fn reap_some(&mut self, coordinators: &mut Coordinators, context: &mut Context) -> bool {
        let more = self.wait_some(coordinators, context);
        self.sweep(coordinators, context.now);
        more
    }

    fn wait_some(&mut self, coordinators: &mut Coordinators, context: &mut Context) -> bool {
        while let Some((pid, stopped)) = spawn::take_stopped() {
            if let Some(tid) = self.tids.get(&pid) {
                context.inbox.push_back(Input::Stopped(*tid, stopped));
            }
        }
        for _ in 0..REAPED {
            let Some(pid) = spawn::peek_ended() else {
                return false;
            };
            let known = self.tids.get(&pid).copied();
            let reaped = match known {
                Some(tid) => self.reap(tid, context),
                // Who starts it tells first.
                None if self.launches.may_be_starting(pid) => false,
                None if context.helpers.may_be_starting(pid) => false,
                None if coordinators.may_be_starting(pid) => false,
                None if self.guardians.may_be_starting(pid) => false,
                None => {
                    self.waited(pid);
                    context.helpers.waited(pid);
                    coordinators.waited(pid);
                    // What it has started is ours now.
                    self.sweep_due = true;
                    // Before its number may be another one's.
                    if self.guardian.ended(pid) {
                        log::warn!(
                            "the guardian (process {pid}) has ended: another one is started"
                        );
                    }
                    let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                    let waited = rustix::process::waitid(WaitId::Pid(pid), flags);
                    if let Ok(Some(status)) = &waited {
                        context.strangers.push((pid, exit_status(status)));
                    }
                    waited.is_ok()
                }
            };
            if !reaped {
                return false;
            }
        }
        true
    }

    /// Takes the status of a task's process if it has ended. Returns whether it has.
    fn reap(&mut self, tid: Tid, context: &mut Context) -> bool {
        let Some(process) = self.tasks.get_mut(&tid) else {
            return false;
        };
        if process.ended.is_some() {
            return false;
        }
        let pidfd = self.streams[process.pidfd].fd.as_fd();
        let status = if process.child {
            // As long as the process was not waited for, its number means nobody else.
            let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let peek = rustix::process::waitid(WaitId::PidFd(pidfd), flags | WaitIdOptions::NOWAIT);
            if !matches!(peek, Ok(Some(_))) {
                return false;
            }
            kill_group(process.pid, Signal::KILL);
            match rustix::process::waitid(WaitId::PidFd(pidfd), flags) {
                Ok(Some(status)) => exit_status(&status),
                _ => return false,
            }
        } else if is_readable(pidfd) {
            ExitStatus::Code(UNKNOWN_CODE)
        } else {
            // What was ready in this place was another one's.
            return false;
        };
        process.ended = Some(status);
        self.tids.remove(&process.pid);
        self.streams.remove(process.pidfd);
        let (pid, child, outputs) = (process.pid, process.child, process.outputs.clone());
        let token = process.token;
        self.waited(pid);
        if child {
            self.leave(tid, pid, token, context.now);
        }
        for place in outputs {
            let stream = &mut self.streams[place];
            // What is left is little, and its end is not to wait for its console.
            if let Some(output) = stream.role.output() {
                output.paused = false;
            }
            match &mut stream.role {
                Role::Output(output) => {
                    let left = rustix::io::ioctl_fionread(&stream.fd).unwrap_or(0);
                    output.left = Some(left);
                    context.ready.push(Source::Process(place));
                }
                // A terminal ends by itself, once its last process is gone.
                _ => {
                    self.lingering.insert((context.now + TERMINAL_TIME, tid));
                    context.ready.push(Source::Process(place));
                }
            }
        }
        self.report_end(tid, context);
        true
    }

    /// A child was waited for: its number may be another one's.
    fn waited(&mut self, child: Pid) {
        self.launches.waited(child);
        self.guardians.waited(child);
        self.tokens.waited(child);
    }

    /// The process of a task has ended, or was killed: its descendants are to end, too.
    fn leave(&mut self, tid: Tid, session: Pid, token: Option<u64>, now: Time) {
        self.leaving.push_back(Leaving {
            until: now + LEAVING_TIME,
            tid,
            session,
            token,
        });
        self.sweep_due = true;
    }

    /// Kills orphans that belong to tasks which have ended, apart from coordinators: they serve their
    /// application also when its master, which forked them, has moved or ended. Those that may have a
    /// token are asked for it first, see [`Processes::hear_tokens`].
    fn sweep(&mut self, coordinators: &Coordinators, now: Time) {
        if !std::mem::take(&mut self.sweep_due) || self.leaving.is_empty() {
            return;
        }
        let mut unknown = Vec::new();
        for orphan in self.orphans() {
            let session = usage::session(orphan);
            // The number may be that of a later process.
            let is_living = session.is_some_and(|session| self.tids.contains_key(&session));
            if coordinators.has(orphan) || is_living {
                continue;
            }
            if self.leaving.iter().any(|it| session == Some(it.session)) {
                // It may have ended meanwhile.
                let _ = rustix::process::kill_process(orphan, Signal::KILL);
            } else {
                unknown.push(orphan);
            }
        }
        let tokens: Vec<u64> = self.leaving.iter().filter_map(|it| it.token).collect();
        if !tokens.is_empty() {
            self.tokens.ask_of_left(unknown, tokens);
        }
        while let Some(first) = self.leaving.pop_front_if(|first| first.until <= now) {
            self.guardian.remove(first.session);
        }
    }

    /// Our children that are no task's process: what tasks left behind.
    fn orphans(&self) -> Vec<Pid> {
        let guardian = self.guardian.process();
        starter::all_children()
            .into_iter()
            .filter(|pid| !self.tids.contains_key(pid) && guardian != Some(*pid))
            .collect()
    }

    fn close_input(&mut self, tid: Tid) {
        if let Some(process) = self.tasks.get_mut(&tid)
            && let Some(place) = process.input
            && !process.outputs.contains(&place)
        {
            process.input = None;
            self.streams.remove(place);
        }
    }

    /// Whether the process of a task has not ended.
    fn runs(&self, tid: Tid) -> bool {
        let process = self.tasks.get(&tid);
        process.is_some_and(|process| process.ended.is_none())
    }

    fn close_output(&mut self, tid: Tid, place: usize, context: &mut Context) {
        self.streams.remove(place);
        if let Some(process) = self.tasks.get_mut(&tid) {
            process.outputs.retain(|output| *output != place);
            process.input = process.input.filter(|input| *input != place);
        }
        self.report_end(tid, context);
    }

    /// Says so once a process has ended and all that it wrote was read.
    fn report_end(&mut self, tid: Tid, context: &mut Context) {
        let finished = |process: &Process| process.ended.filter(|_| process.outputs.is_empty());
        if let Some(status) = self.tasks.get(&tid).and_then(finished) {
            let process = self.tasks.remove(&tid);
            if let Some(place) = process.and_then(|process| process.input) {
                self.streams.remove(place);
            }
            context.ended.push((tid, status));
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Time> {
        let terminal = self.lingering.first().map(|(time, _)| *time);
        let leaving = self.leaving.front().map(|first| first.until);
        terminal.into_iter().chain(leaving).min()
    }

    /// Gives up on terminals that others hold open, and looks for the last time for what ended
    /// tasks left.
    pub fn tick(&mut self, coordinators: &Coordinators, context: &mut Context) {
        if self.guardian.is_due() {
            self.guardians.start(());
        }
        if self
            .leaving
            .front()
            .is_some_and(|it| it.until <= context.now)
        {
            self.sweep_due = true;
            self.sweep(coordinators, context.now);
        }
        while let Some(&(time, tid)) = self.lingering.first()
            && time <= context.now
        {
            self.lingering.pop_first();
            let outputs = self.tasks.get(&tid).map(|process| process.outputs.clone());
            for place in outputs.into_iter().flatten() {
                self.close_output(tid, place, context);
            }
        }
    }

    /// Sends a signal to a task's process group, or to the process that became a task by itself.
    pub fn signal(&mut self, tid: Tid, number: i32) {
        if let Some(launch) = self.launches.of(tid) {
            launch.signals.push(number);
            if number == Signal::KILL.as_raw() {
                self.launches.kill(tid);
            }
            return;
        }
        let Some(process) = self
            .tasks
            .get(&tid)
            .filter(|process| process.ended.is_none())
        else {
            return;
        };
        let Some(signal) = spawn::signal(number) else {
            log::warn!("there is no signal {number}");
            return;
        };
        if process.child {
            kill_group(process.pid, signal);
        } else {
            // It may have ended meanwhile.
            let pidfd = &self.streams[process.pidfd].fd;
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }

    /// Bytes for a task's standard input; none: its end.
    pub fn type_in(&mut self, tid: Tid, bytes: &[u8]) {
        if let Some(launch) = self.launches.of(tid) {
            let terminal = launch.console == Some(true);
            return launch.typed.push(bytes, terminal);
        }
        let Some(place) = self.tasks.get(&tid).and_then(|process| process.input) else {
            return;
        };
        let stream = &mut self.streams[place];
        let terminal = matches!(stream.role, Role::Terminal(..));
        if let Some(typed) = stream.role.typed() {
            typed.push(bytes, terminal);
            if typed.write(&stream.fd) {
                self.close_input(tid);
            }
        }
    }

    /// Bytes that wait for a task's standard input.
    pub fn typed(&mut self, tid: Tid) -> usize {
        if let Some(launch) = self.launches.of(tid) {
            return launch.typed.len();
        }
        let place = self.tasks.get(&tid).and_then(|process| process.input);
        place
            .and_then(|place| self.streams[place].role.typed())
            .map_or(0, |typed| typed.len())
    }

    /// Stops or goes on reading what a task writes; what is left of one that has ended is read.
    pub fn pause(&mut self, tid: Tid, pause: bool, context: &mut Context) {
        let process = self.tasks.get(&tid);
        let Some(process) = process.filter(|process| process.ended.is_none()) else {
            return;
        };
        for place in &process.outputs {
            if let Some(output) = self.streams[*place].role.output() {
                output.paused = pause;
                if !pause {
                    context.ready.push(Source::Process(*place));
                }
            }
        }
    }

    /// The size of a task's terminal changed.
    pub fn resize(&mut self, tid: Tid, size: WindowSize) {
        if let Some(launch) = self.launches.of(tid) {
            launch.size = Some(size);
        } else if let Some(place) = self.tasks.get(&tid).and_then(|process| process.input)
            && let Role::Terminal(..) = self.streams[place].role
            && let Err(error) = spawn::resize(&self.streams[place].fd, size)
        {
            log::debug!("the terminal of task {tid} cannot be resized: {error}");
        }
    }

    /// The process of a task.
    pub fn pid(&self, tid: Tid) -> Option<Pid> {
        self.tasks.get(&tid).map(|process| process.pid)
    }

    /// The living processes, to be measured.
    pub fn living(&self) -> Vec<(Tid, u32)> {
        self.tasks
            .iter()
            .filter(|(_, process)| process.ended.is_none())
            .map(|(tid, process)| (*tid, process.pid.as_raw_nonzero().get() as u32))
            .collect()
    }

    /// Ends everything: tasks, and what they left. Returns when all of it is gone, or after a
    /// limited time.
    pub fn kill_all(&mut self) {
        self.launches.clear();
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            self.signal(tid, Signal::KILL.as_raw());
        }
        // All children are to be killed now, none is excepted.
        self.tids.clear();
        let pause = Duration::from_millis(1);
        for _ in 0..KILL_TIME.as_millis() {
            let orphans = self.orphans();
            if orphans.is_empty() {
                self.guardian.dismiss();
            }
            for pid in orphans {
                kill_group(pid, Signal::KILL);
                // It may be no leader of a group, or be gone.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            while let Some(pid) = spawn::peek_ended() {
                // Before its number may be another one's.
                self.guardian.ended(pid);
                let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                let _ = rustix::process::waitid(WaitId::Pid(pid), flags);
            }
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let left = rustix::process::waitid(WaitId::All, look);
            if matches!(left, Err(rustix::io::Errno::CHILD)) {
                return;
            }
            thread::sleep(pause);
        }
        log::error!("some processes of tasks do not end");
    }
}

/// How a child ended.
fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal(signal),
        (None, None) => ExitStatus::Code(UNKNOWN_CODE),
    }
}

/// Signals a process group; it may be gone.
fn kill_group(leader: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(leader, signal);
}
