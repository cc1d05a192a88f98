//! The processes of this host's tasks: how they are started, watched, read and ended.
//!
//! A task's process is a child, watched by its pidfd. When the process ends, the daemon kills the
//! rest of its process group, reads its output to the end, and then reports the end to the state
//! machine. The daemon is also the subreaper of the processes that tasks leave: such orphans become
//! its children, and it reaps them. It kills the orphans of the process group or session that an ended
//! task led, the orphans with the task's token in their environment ([`crate::process::tokens`]), and
//! the orphans that these leave in turn. The daemon cannot recognise a process that began a process
//! group of its own with another environment. It kills such processes when it ends. If the daemon itself is killed,
//! its guardian kills those whose parent still belongs to a task ([`crate::process::guardian`]).
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
use vm_machine::{Input, LaunchSpec, ProcessInput, Time};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    task::{FailKind, Failed},
};

/// The exit code of a process that is not a child: the system does not report it.
const UNKNOWN_CODE: i32 = 255;
#[derive(Debug)]
struct Process {
    pid: Pid,
    /// See [`Started::token`]; of a restored task, once it was read.
    token: Option<u64>,
    /// Whether the process is a child of the daemon.
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
    /// Ended processes whose terminals may still have output.
    lingering: BTreeSet<(Time, Tid)>,
    guardian: Arc<Guardian>,
    /// Starts another guardian, see [`Guardian::begin`].
    guardians: Starter<(), PipeWriter, io::Error>,
    tokens: Tokens,
    /// Ended processes whose descendants are to be killed, the oldest first.
    leaving: VecDeque<Leaving>,
    /// Whether orphans may have come since the last sweep.
    sweep_due: bool,
}

/// The marks by which the descendants of an ended process are recognised.
#[derive(Debug)]
struct Leaving {
    until: Time,
    tid: Tid,
    /// The ended process, which led a process group.
    leader: Pid,
    token: Option<u64>,
}

impl Processes {
    /// An empty table. From now on this process is the reaper of its descendants. The event loop is
    /// woken when [`Processes::take_started`] has work.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Processes> {
        // Any process number turns it on.
        match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            // No kernel returns this error, but an emulator of another processor does (qemu-user).
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

    /// Orders the start of the process of a task.
    pub fn launch(&mut self, spec: Box<LaunchSpec>) {
        self.launches.launch(spec);
    }

    /// Orders the start of the process that becomes a saved task, see [`Spawner::start_restorer`].
    pub fn start_restorer(&mut self, tid: Tid, how: Back, handed: [OwnedFd; 3]) {
        self.launches.start_restorer(tid, how, handed);
    }

    /// Takes the results of processes that were to be started. Returns whether there was one: then
    /// children that were not waited for, because they might have been these, can be waited for,
    /// see [`Processes::reap_some`].
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
                context
                    .inbox
                    .push_back(Input::Process(ProcessInput::Launched(tid, pid)));
            }
            Err(failed) => context
                .inbox
                .push_back(Input::Process(ProcessInput::LaunchFailed(tid, failed))),
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
                    // A process that cannot be watched must not live.
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

    /// Sends a signal to the process of a task, but to no process that it has started.
    pub fn nudge(&mut self, tid: Tid, number: i32) {
        if let Some(launch) = self.launches.of(tid) {
            // The process is not started yet.
            launch.signals.push(number);
        } else if let Some(process) = self.tasks.get(&tid)
            // The pidfd of a process that was waited for is closed; the entry stays until its
            // output is read.
            && process.ended.is_none()
            && let Some(signal) = spawn::signal(number)
        {
            // The process may have ended meanwhile.
            let pidfd = &self.streams[process.pidfd].fd;
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }

    /// Handles the moment at which a restored process has become its task, with the task's
    /// environment.
    pub fn came_back(&mut self, tid: Tid) {
        // The new processes of the task have the same token as those that its former process on
        // this host has left.
        for leaving in self.leaving.iter_mut().filter(|it| it.tid == tid) {
            leaving.token = None;
        }
        if let Some(process) = self.tasks.get(&tid).filter(|it| it.ended.is_none()) {
            self.tokens.ask_of_task(process.pid, tid);
        }
    }

    /// Ends the process of a task that belongs to another host, and forgets it.
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

    /// Watches a process that enrolled by itself and is not a child of the daemon.
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

    /// Handles an event of the descriptor in `place`. Returns whether there may be more.
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
            // No process has the terminal open now. If the daemon closed it here, the kernel would
            // send SIGHUP to the process of the task, which still runs.
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

    /// The time of the next deadline.
    pub fn deadline(&self) -> Option<Time> {
        let terminal = self.lingering.first().map(|(time, _)| *time);
        let leaving = self.leaving.front().map(|first| first.until);
        terminal.into_iter().chain(leaving).min()
    }

    /// Closes terminals that other processes still hold open, and sweeps the orphans of ended tasks
    /// for the last time.
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

    /// Sends a signal to a task's process group, or to a process that enrolled by itself.
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
            // The process may have ended meanwhile.
            let pidfd = &self.streams[process.pidfd].fd;
            let _ = rustix::process::pidfd_send_signal(pidfd, signal);
        }
    }

    /// The process of a task, if it runs on this host.
    pub fn pid(&self, tid: Tid) -> Option<Pid> {
        self.tasks.get(&tid).map(|process| process.pid)
    }

    /// The living processes, for a measurement.
    pub fn living(&self) -> Vec<(Tid, u32)> {
        self.tasks
            .iter()
            .filter(|(_, process)| process.ended.is_none())
            .map(|(tid, process)| (*tid, process.pid.as_raw_nonzero().get() as u32))
            .collect()
    }
}
