//! What consoles ask.
//!
//! Requests are numbered by the console and answered once; one that is asked again while it is
//! under way goes on, and the last one that was answered is answered again. What waits for the
//! machine (a host to come or go, its end) is kept with the console and forgotten when that is
//! gone.

use super::RunAsked;
use crate::daemon::{Daemon, asked::MoveAsker, restart::Restart, spawn::Asker};
use crate::{ConnId, HostPhase, Output, placement};
use std::collections::BTreeMap;
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::Change,
    checkpoint::{Policy, Stop},
    console::{Answer, Conf, HostRow, HostState, Request},
    limits,
    task::{FailKind, Failed, Place, Spawn},
    version::Offer,
};

/// A connection of a console.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Console {
    /// The highest number of a request so far.
    highest: u64,
    /// What is under way.
    pending: BTreeMap<u64, Awaited>,
    /// The last answer.
    last: Option<Frame>,
    /// The master that it runs.
    pub run: Option<Tid>,
    /// Whether its queue is full.
    pub full: bool,
}

/// What the answer to a request waits for.
#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    /// Another part of this daemon, which knows the console and the number.
    Result,
    /// A host to be gone.
    Deleted(HostId),
    /// A host to take tasks again.
    Resumed(HostId),
    /// The checkpoints of an application to be made so.
    Policy(Tid, Policy),
    /// A host of that name.
    Host(String),
    /// The end of this daemon.
    End,
}

/// How a request goes on.
enum Reply {
    Now(Answer),
    Later(Awaited),
}

/// The answer comes later, unless it is a failure.
fn later(asked: Result<(), Failed>) -> Reply {
    match asked {
        Ok(()) => Reply::Later(Awaited::Result),
        Err(failed) => failed.into(),
    }
}

impl From<Failed> for Reply {
    fn from(failed: Failed) -> Self {
        Reply::Now(Answer::Failed(failed))
    }
}

impl Daemon {
    pub(in crate::daemon) fn on_console(&mut self, conn: ConnId, frame: Frame) {
        match frame.header.op {
            Op::ConsoleRequest => match Request::read(&frame) {
                Ok(request) => self.on_console_request(conn, frame.header.request, request),
                Err(error) => self.refuse_console(conn, &error.to_string()),
            },
            Op::Input | Op::WindowSize | Op::RunSignal => self.on_run_frame(conn, &frame),
            other => {
                self.refuse_console(conn, &format!("{other:?} is not for a console to say"));
            }
        }
    }

    /// A console broke the protocol, or there are too many.
    pub(in crate::daemon) fn refuse_console(&mut self, conn: ConnId, why: &str) {
        self.cx.counters.refused_local += 1;
        let failed = Failed::new(FailKind::BadRequest, why);
        self.cx
            .emit(Output::Reject(conn, Answer::Failed(failed).frame()));
        self.on_conn_gone(conn);
    }

    fn on_console_request(&mut self, conn: ConnId, number: u64, request: Request) {
        if !self.consoles.contains_key(&conn) && self.consoles.len() >= limits::CONSOLES_MAX {
            return self.refuse_console(conn, "too many consoles are connected");
        }
        let console = self.consoles.entry(conn).or_default();
        if number == 0 {
            return self.refuse_console(conn, "a request without a number");
        }
        if number <= console.highest {
            let repeat = |answer: &&Frame| answer.header.request == number;
            if let Some(answer) = console.last.as_ref().filter(repeat) {
                self.cx.emit(Output::Console(conn, answer.clone()));
            }
            return;
        }
        if console.pending.len() >= limits::CONSOLE_REQUESTS_MAX {
            return self.refuse_console(conn, "too many requests are under way");
        }
        console.highest = number;
        console.pending.insert(number, Awaited::Result);
        match self.console_reply(conn, number, request) {
            Reply::Now(answer) => self.answer_console(conn, number, &answer),
            Reply::Later(awaited) => {
                let console = self.consoles.get_mut(&conn);
                if let Some(pending) = console.and_then(|console| console.pending.get_mut(&number))
                {
                    *pending = awaited;
                }
            }
        }
    }

    fn console_reply(&mut self, conn: ConnId, number: u64, request: Request) -> Reply {
        match request {
            Request::Version(offer) => Reply::Now(self.version(offer)),
            Request::Conf => Reply::Now(Answer::Conf(self.conf())),
            Request::Ps(app) => match self.list(conn, number, app) {
                Ok(()) => Reply::Later(Awaited::Result),
                Err(failed) => failed.into(),
            },
            Request::Run { spawn, terminal } => {
                let run = RunAsked { terminal };
                match self.run_place(conn, &spawn) {
                    Ok(()) => self.console_spawn(conn, number, spawn, Some(run)),
                    Err(failed) => failed.into(),
                }
            }
            Request::Spawn(spawn) => self.console_spawn(conn, number, spawn, None),
            Request::Signal(tid, signal) => match self.signal(tid, signal) {
                Ok(()) => Reply::Now(Answer::Done),
                Err(failed) => failed.into(),
            },
            Request::Delete(name) => self.delete(&name),
            Request::AwaitHost(name) => match self.cx.agreement.state().host_named(&name) {
                Some(_) => Reply::Now(Answer::Done),
                None => Reply::Later(Awaited::Host(name)),
            },
            Request::Check(tid) => later(self.ask_check(MoveAsker::Console(conn, number), tid)),
            Request::Move(tid, to, way) => {
                let asker = MoveAsker::Console(conn, number);
                later(self.ask_move(asker, tid, to.as_deref(), way))
            }
            Request::Moves => Reply::Now(Answer::Moves(self.move_rows())),
            Request::Checkpoint(tid, stop) => {
                let asker = MoveAsker::Console(conn, number);
                let stop = stop.then_some(Stop::End);
                later(self.ask_checkpoint(asker, tid, stop))
            }
            Request::Suspend(app, for_ms) => {
                let asker = MoveAsker::Console(conn, number);
                later(self.ask_suspend(asker, app, for_ms))
            }
            Request::Resume(tid, host) => {
                let asker = MoveAsker::Console(conn, number);
                later(self.ask_resume(asker, tid, host.as_deref()))
            }
            Request::Suspended => {
                Reply::Now(Answer::Suspended(crate::daemon::suspension::rows(&self.cx)))
            }
            Request::Policy(tid, policy) => match self.set_policy(tid, policy) {
                Ok(app) => Reply::Later(Awaited::Policy(app, policy)),
                Err(failed) => failed.into(),
            },
            Request::Restart {
                app,
                from,
                attach,
                keep_files,
            } => {
                if attach && let Err(failed) = self.no_run(conn) {
                    return failed.into();
                }
                let asker = MoveAsker::Console(conn, number);
                let wish = Restart {
                    app,
                    from,
                    attach,
                    keep_files,
                    verify: false,
                    resumes: false,
                };
                later(self.restarts.request(&mut self.cx, asker, wish))
            }
            Request::Stock(app, verify) => {
                self.restarts
                    .list_stock(&mut self.cx, (conn, number), app, verify);
                later(Ok(()))
            }
            Request::ForgetStored(app) => {
                self.forget_stored(app);
                Reply::Now(Answer::Done)
            }
            Request::Drain(name, way) => {
                later(self.ask_drain(MoveAsker::Console(conn, number), &name, way))
            }
            Request::Undrain(name) => match self.ask_undrain(&name) {
                Ok(host) => Reply::Later(Awaited::Resumed(host)),
                Err(failed) => failed.into(),
            },
            Request::Halt => {
                self.cx.agreement.propose(Change::Halt);
                Reply::Later(Awaited::End)
            }
        }
    }

    fn version(&self, offer: Offer) -> Answer {
        match Offer::OURS.choose(offer) {
            Ok(version) => Answer::Version {
                version,
                release: self.cx.config.release.clone(),
                machine: self.cx.machine,
                host: self.cx.me,
            },
            Err(error) => Answer::Failed(Failed::new(FailKind::Version, error.to_string())),
        }
    }

    fn conf(&self) -> Conf {
        let state = self.cx.agreement.state();
        let voters = self.cx.agreement.voters();
        let row = |(id, host): (HostId, &crate::Host)| HostRow {
            host: id,
            facts: host.facts.clone(),
            tasks: state.task_count(id) as u32,
            voter: voters.contains(&id),
            state: match host.phase {
                HostPhase::Living => HostState::Live,
                HostPhase::Draining => HostState::Draining,
                HostPhase::Leaving => HostState::Leaving,
                HostPhase::Gone => HostState::Gone,
                HostPhase::Dead => HostState::Dead,
            },
        };
        Conf {
            machine: self.cx.machine,
            here: self.cx.me,
            leader: self.cx.agreement.leader(),
            applied: state.index(),
            store: self.cx.config.store.clone(),
            hosts: state.remembered_hosts().map(row).collect(),
            links_down: self.unreachable.pairs().into_iter().collect(),
        }
    }

    /// A run starts where its console is, one task, and one per console.
    fn run_place(&self, conn: ConnId, spawn: &Spawn) -> Result<(), Failed> {
        let here = &self.cx.config.facts.name;
        let elsewhere = match &spawn.place {
            Place::Any => None,
            Place::Host(name) => Some(name),
            Place::Hosts(names) => names.iter().find(|name| *name != here),
        };
        if let Some(name) = elsewhere.filter(|name| *name != here) {
            let text = format!(
                "run starts a program where its console is, on '{here}'; use 'vm spawn' for \
                 '{name}', or run 'vm' there"
            );
            return Err(Failed::new(FailKind::Refused, text));
        }
        if spawn.count != 1 {
            let text = "run starts one program; use 'vm spawn' for several";
            return Err(Failed::new(FailKind::BadRequest, text));
        }
        self.no_run(conn)
    }

    /// A console runs one program.
    fn no_run(&self, conn: ConnId) -> Result<(), Failed> {
        let runs = |console: &Console| console.run.is_some();
        if self.consoles.get(&conn).is_some_and(runs) {
            let text = "this console runs a program already";
            return Err(Failed::new(FailKind::Refused, text));
        }
        Ok(())
    }

    fn console_spawn(
        &mut self,
        conn: ConnId,
        number: u64,
        mut spawn: Spawn,
        run: Option<RunAsked>,
    ) -> Reply {
        let mut console = HostId::NONE;
        if run.is_some() {
            spawn.place = Place::Host(self.cx.config.facts.name.clone());
            console = self.cx.me;
        }
        let request = self.cx.next_request;
        self.cx.next_request += 1;
        let who = Asker::Console(conn, number, run);
        match self.spawn(self.cx.tid, request, Tid::NONE, console, spawn, who) {
            Ok(()) => Reply::Later(Awaited::Result),
            Err(failed) => failed.into(),
        }
    }

    /// A spawn or run that a console asked for is complete. All of it was started, or it failed;
    /// what was started nevertheless is named.
    pub(in crate::daemon) fn answer_spawn(
        &mut self,
        conn: ConnId,
        request: u64,
        tids: Vec<Tid>,
        failures: Vec<(String, Failed)>,
    ) {
        let Some((_, first)) = failures.first() else {
            return self.answer_console(conn, request, &Answer::Started(tids));
        };
        let kind = first.kind;
        let each = failures.iter().map(|(host, why)| format!("{host}: {why}"));
        let mut text = each.collect::<Vec<_>>().join("; ");
        if !tids.is_empty() {
            let shown = tids.iter().map(|tid| tid.show(self.cx.machine));
            let shown = shown.collect::<Vec<_>>().join(" ");
            text = format!("only {shown} started; {text}");
        }
        let failed = Failed::new(kind, text);
        self.answer_console(conn, request, &Answer::Failed(failed));
    }

    fn delete(&mut self, name: &str) -> Reply {
        let Some(host) = self.cx.agreement.state().host_called(name) else {
            return placement::no_such_host(self.cx.agreement.state(), name).into();
        };
        if self.cx.agreement.state().is_staying(host) {
            self.cx.agreement.propose(Change::HostLeaving(host));
        }
        Reply::Later(match host == self.cx.me {
            true => Awaited::End,
            false => Awaited::Deleted(host),
        })
    }

    /// Answers a request of a console, if that is still there.
    pub(in crate::daemon) fn answer_console(
        &mut self,
        conn: ConnId,
        request: u64,
        answer: &Answer,
    ) {
        if let Some(console) = self.consoles.get_mut(&conn)
            && console.pending.remove(&request).is_some()
        {
            let frame = answer.frame().asked(request);
            console.last = Some(frame.clone());
            self.cx.emit(Output::Console(conn, frame));
        }
    }

    fn answer_all(&mut self, answer: &Answer, done: impl Fn(&Awaited) -> bool) {
        let mut ready = Vec::new();
        for (conn, console) in &self.consoles {
            let numbers = console.pending.iter().filter(|(_, awaited)| done(awaited));
            ready.extend(numbers.map(|(number, _)| (*conn, *number)));
        }
        for (conn, number) in ready {
            self.answer_console(conn, number, answer);
        }
    }

    pub(in crate::daemon) fn answer_deleted(&mut self, host: HostId) {
        self.answer_all(&Answer::Done, |awaited| *awaited == Awaited::Deleted(host));
    }

    pub(in crate::daemon) fn answer_resumed(&mut self, host: HostId) {
        self.answer_all(&Answer::Done, |it| *it == Awaited::Resumed(host));
    }

    /// A host that was to take tasks again leaves, or is lost.
    pub(in crate::daemon) fn fail_resumed(&mut self, host: HostId) {
        let text = placement::takes_no_tasks(self.cx.agreement.state(), host);
        let failed = Answer::Failed(Failed::new(FailKind::Refused, text));
        self.answer_all(&failed, |it| *it == Awaited::Resumed(host));
    }

    /// Nothing of this daemon is on its way into the log any more: what it had wanted of
    /// checkpoints was agreed, for those who are alive. (See [`Daemon::sweep_lost_births`].)
    pub(in crate::daemon) fn sweep_lost_policies(&mut self) {
        let pending = self.consoles.values().flat_map(|it| it.pending.values());
        let waiting = pending.filter_map(|awaited| match awaited {
            Awaited::Policy(app, policy) => Some((*app, *policy)),
            _ => None,
        });
        for (app, policy) in waiting.collect::<Vec<_>>() {
            let is_alive = self.cx.agreement.state().tasks_of(app).next().is_some();
            let answer = match is_alive {
                true => Answer::Done,
                false => Answer::Failed(self.cx.no_such_task(app)),
            };
            self.answer_policy((app, policy), &answer);
        }
    }

    /// It is agreed how checkpoints of an application are made, or that they cannot be made so.
    pub(in crate::daemon) fn answer_policy(
        &mut self,
        (app, policy): (Tid, Policy),
        answer: &Answer,
    ) {
        let awaited = Awaited::Policy(app, policy);
        self.answer_all(answer, |it| *it == awaited);
    }

    pub(in crate::daemon) fn answer_awaited_host(&mut self, host: HostId) {
        let name = self.cx.host_name(host);
        let came = |awaited: &Awaited| matches!(awaited, Awaited::Host(asked) if *asked == name);
        self.answer_all(&Answer::Done, came);
    }

    pub(in crate::daemon) fn answer_at_end(&mut self) {
        self.answer_all(&Answer::Done, |awaited| *awaited == Awaited::End);
    }

    /// A console, a joiner or a connection that wanted to enrol is gone.
    pub(in crate::daemon) fn on_conn_gone(&mut self, conn: ConnId) {
        self.cx.agreement.joiner_gone(conn);
        for enrolling in self.enrolling.values_mut() {
            if enrolling.conn == Some(conn) {
                enrolling.conn = None;
            }
        }
        if let Some(console) = self.consoles.remove(&conn)
            && let Some(tid) = console.run
        {
            self.abandon_run(conn, tid);
        }
    }
}
