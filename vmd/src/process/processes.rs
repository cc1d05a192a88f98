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

mod ends;
mod flow;

use crate::{
    context::{Context, Source},
    image::transfer::Back,
    process::{
        coordinators::Coordinators,
        guardian::Guardian,
        launches::{Launch, Launches},
        lines::LineCutter,
        spawn::{self, Spawner, Started, Streams},
        starter::Starter,
        streams::{Output, Progress, Role, Stream, Typed},
        tokens::Tokens,
    },
};
use mio::{Waker, unix::SourceFd};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions},
};
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io::{self, PipeWriter},
    sync::Arc,
};
use vm_machine::{Input, LaunchSpec, Time};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    task::{FailKind, Failed},
};

/// The exit code of a process that is no child cannot be known.
const UNKNOWN_CODE: i32 = 255;
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
    /// The error of the system call.
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
                spawn::kill_group(pid, Signal::KILL);
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
                    spawn::kill_group(pid, Signal::KILL);
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
            spawn::kill_group(process.pid, Signal::KILL);
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

    /// Whether the process of a task has not ended.
    fn runs(&self, tid: Tid) -> bool {
        let process = self.tasks.get(&tid);
        process.is_some_and(|process| process.ended.is_none())
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
            spawn::kill_group(process.pid, signal);
        } else {
            // It may have ended meanwhile.
            let pidfd = &self.streams[process.pidfd].fd;
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
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
}
