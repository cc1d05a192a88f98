//! Dispatch of the requests of consoles to the subsystems that carry them out.
//!
//! A request gets its reply at once; or after the result of a subsystem; or after an event of the
//! machine (a host joins or leaves, this daemon ends). The waiting requests belong to `console`,
//! which drops them when their console is gone.

use super::{
    Daemon,
    console::{Awaited, Begun, NO_MOVE},
    requester::{Requester, RunAsked},
    restart::Restart,
    signal_numbers::SIGHUP,
    tasks::SpawnRequester,
};
use crate::{ConnId, HostPhase, Output, ProcessOutput, placement};
use vm_wire::{
    Body, Frame, HostId, Message, Op, Tid,
    agreed::Change,
    checkpoint::Stop,
    console::{Answer, Conf, HostRow, HostState, Request},
    peer::{Flushed, OutputLines},
    task::{FailKind, Failed, Place, Spawn},
    version::Offer,
};

/// The result of the start of a request.
enum Reply {
    Now(Answer),
    Later(Awaited),
}

/// The reply comes later, unless the request failed.
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
    pub(super) fn on_console(&mut self, conn: ConnId, frame: Frame) {
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

    /// Closes the connection of a console that broke the protocol or exceeded a limit.
    pub(super) fn refuse_console(&mut self, conn: ConnId, why: &str) {
        self.cx.counters.refused_local += 1;
        let failed = Failed::new(FailKind::BadRequest, why);
        self.cx
            .emit(Output::Reject(conn, Answer::Failed(failed).frame()));
        self.on_conn_gone(conn);
    }

    fn on_console_request(&mut self, conn: ConnId, number: u64, request: Request) {
        match self.consoles.begin(&mut self.cx, conn, number) {
            Begun::New => {}
            Begun::Repeated => return,
            Begun::Refused(why) => return self.refuse_console(conn, why),
        }
        match self.console_reply(conn, number, request) {
            Reply::Now(answer) => self.consoles.reply(&mut self.cx, conn, number, &answer),
            Reply::Later(awaited) => self.consoles.wait_for(conn, number, awaited),
        }
    }

    fn console_reply(&mut self, conn: ConnId, number: u64, request: Request) -> Reply {
        match request {
            Request::Version(offer) => Reply::Now(self.version(offer)),
            Request::Conf => Reply::Now(Answer::Conf(self.conf())),
            Request::Ps(app) => {
                let (cx, tasks) = (&mut self.cx, &self.tasks);
                later(self.consoles.list(cx, tasks, (conn, number), app))
            }
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
            Request::Check(tid) => later(self.ask_check(Requester::Console(conn, number), tid)),
            Request::Move(tid, to, way) => {
                let requester = Requester::Console(conn, number);
                later(self.ask_move(requester, tid, to.as_deref(), way))
            }
            Request::Moves => Reply::Now(Answer::Moves(self.move_rows())),
            Request::Checkpoint(tid, stop) => {
                let requester = Requester::Console(conn, number);
                let stop = stop.then_some(Stop::End);
                later(self.ask_checkpoint(requester, tid, stop))
            }
            Request::Suspend(app, for_ms) => {
                let requester = Requester::Console(conn, number);
                later(self.ask_suspend(requester, app, for_ms))
            }
            Request::Resume(tid, host) => {
                let requester = Requester::Console(conn, number);
                later(self.ask_resume(requester, tid, host.as_deref()))
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
                if attach && let Err(failed) = self.consoles.runs_nothing(conn) {
                    return failed.into();
                }
                let requester = Requester::Console(conn, number);
                let restart = Restart {
                    app,
                    from,
                    attach,
                    keep_files,
                    verify: false,
                    resumes: false,
                };
                later(self.restarts.request(&mut self.cx, requester, restart))
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
                later(self.ask_drain(Requester::Console(conn, number), &name, way))
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
        let voters = self.cx.agreement.settled_voters();
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

    /// Checks the place of a run: one task, on the host of its console, and one run per console.
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
        self.consoles.runs_nothing(conn)
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
        let who = SpawnRequester::Console(conn, number, run);
        match self.spawn(self.cx.tid, request, Tid::NONE, console, spawn, who) {
            Ok(()) => Reply::Later(Awaited::Result),
            Err(failed) => failed.into(),
        }
    }

    /// Replies to a spawn or run of a console that is complete. The reply is a failure if not all
    /// tasks were started, and names the started tasks.
    pub(super) fn answer_spawn(
        &mut self,
        conn: ConnId,
        request: u64,
        tids: Vec<Tid>,
        failures: Vec<(String, Failed)>,
    ) {
        let Some((_, first)) = failures.first() else {
            let started = Answer::Started(tids);
            return self.consoles.reply(&mut self.cx, conn, request, &started);
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
        let failed = Answer::Failed(failed);
        self.consoles.reply(&mut self.cx, conn, request, &failed);
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

    /// The connection of a console, a joiner or an enrolling process is closed.
    pub(super) fn on_conn_gone(&mut self, conn: ConnId) {
        self.cx.agreement.joiner_gone(conn);
        for enrolling in self.births.enrolling.values_mut() {
            if enrolling.conn == Some(conn) {
                enrolling.conn = None;
            }
        }
        let (cx, tasks) = (&mut self.cx, &self.tasks);
        if let Some(tid) = self.consoles.on_conn_gone(cx, tasks, conn) {
            self.signal_run(tid, SIGHUP);
        }
    }

    /// Handles a frame of a console for the master of its run.
    fn on_run_frame(&mut self, conn: ConnId, frame: &Frame) {
        let (cx, tasks) = (&mut self.cx, &self.tasks);
        match self.consoles.on_run_frame(cx, tasks, conn, frame) {
            Ok(Some((tid, signal))) => self.signal_run(tid, signal),
            Ok(None) => {}
            Err(why) => self.refuse_console(conn, &why),
        }
    }

    /// A process of this host wrote output.
    pub(super) fn on_task_output(&mut self, tid: Tid, stream: u8, bytes: Vec<u8>) {
        let task = self.tasks.get(&tid);
        let Some(task) = task.filter(|task| !task.is_suspended()) else {
            self.on_restorer_said(tid, stream, &bytes);
            return self.cx.emit(ProcessOutput::LogOutput(tid, stream, bytes));
        };
        let (app, console) = (task.app, task.console);
        let lines = OutputLines {
            tid,
            stream,
            bytes: Body::from(bytes),
            dropped: 0,
        };
        self.consoles.on_output(&mut self.cx, app, console, lines);
    }

    /// There may be room in channels for output of masters: sends it, and releases the masters that
    /// waited for that.
    pub(super) fn review_unsent(&mut self) {
        for tid in self.consoles.waiting_masters() {
            self.consoles.on_room(&mut self.cx, tid);
            self.release_task(tid);
        }
    }

    /// The host of consoles is lost: their tasks wait for no daemon there any more.
    pub(super) fn lose_far_console(&mut self, host: HostId) {
        let there = self.tasks.iter().filter(|(_, task)| task.console == host);
        for tid in there.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.console = HostId::NONE;
            }
            self.consoles.on_console_lost(&mut self.cx, tid);
            self.release_task(tid);
        }
    }

    /// A host reports that it has sent, or has received, all output that it was asked about.
    pub(super) fn on_flushed(&mut self, host: HostId, flushed: &Flushed) {
        match flushed.number {
            NO_MOVE => self.consoles.on_last_lines(&mut self.cx, host, flushed.app),
            _ if !self.migration.leaving.contains_key(&flushed.app) => {}
            _ if self.consoles.on_delivered(host, flushed) => self.release_task(flushed.app),
            _ => {}
        }
    }
}
