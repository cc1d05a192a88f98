//! Consoles: their requests, the listings that they show, and the programs that they run, until the
//! last line of output.
//!
//! | file | what it decides |
//! |---|---|
//! | `connections` | the consoles, and which of their requests wait for which event |
//! | `listing` | the tasks of the machine with their use of processor and memory |
//! | `runs` | programs that a console runs as if they were local |
//! | `flush` | the end of a run, after the last line |
//! | `streams` | output of a master on another host than its console |

mod connections;
mod flush;
mod listing;
mod run;
mod runs;
mod streams;

pub(super) use connections::{Awaited, Begun};
pub(super) use flush::NO_MOVE;

use super::context::{Context, Question};
use crate::{
    ConnId, ProcessOutput,
    daemon::{local_task::LocalTask, requester::RunAsked, signal_numbers::SIGHUP},
    placement,
};
use connections::Connections;
use flush::Flushes;
use listing::{Listed, Listings, Measurements};
use run::RunState;
use runs::{Runs, run_output};
use std::collections::{BTreeMap, BTreeSet};
use streams::Streams;
use vm_wire::{
    Frame, HostId, Tid,
    agreed::ExitStatus,
    checkpoint::Policy,
    console::Answer,
    peer::{FlushAsk, Flushed, Order, OutputLines, RunHold, Usage, UsageAsk, UsageRow},
    task::{FailKind, Failed},
};

/// The consoles of this host. See the module.
#[derive(Debug, Default)]
pub(super) struct Consoles {
    connections: Connections,
    listings: Listings,
    measurements: Measurements,
    runs: Runs,
    flushes: Flushes,
    streams: Streams,
}

/// Requests and their replies.
impl Consoles {
    /// Registers a request of a console.
    pub fn begin(&mut self, cx: &mut Context, conn: ConnId, number: u64) -> Begun {
        self.connections.begin(cx, conn, number)
    }

    /// Stores the event that a request without a reply waits for.
    pub fn wait_for(&mut self, conn: ConnId, number: u64, awaited: Awaited) {
        self.connections.wait_for(conn, number, awaited);
    }

    /// Replies to a request, if its console is still connected.
    pub fn reply(&mut self, cx: &mut Context, conn: ConnId, number: u64, answer: &Answer) {
        self.connections.reply(cx, conn, number, answer);
    }

    /// A host has joined: replies to the requests that wait for it.
    pub fn on_host_joined(&mut self, cx: &mut Context, host: HostId) {
        let name = cx.host_name(host);
        let came = |awaited: &Awaited| matches!(awaited, Awaited::Host(asked) if *asked == name);
        self.connections.reply_all(cx, &Answer::Done, came);
    }

    /// A host takes tasks again after a drain.
    pub fn on_host_resumed(&mut self, cx: &mut Context, host: HostId) {
        let resumed = |it: &Awaited| *it == Awaited::Resumed(host);
        self.connections.reply_all(cx, &Answer::Done, resumed);
    }

    /// A host leaves the machine and will not take tasks again: fails the requests that wait for
    /// that.
    pub fn on_host_leaving(&mut self, cx: &mut Context, host: HostId) {
        let text = placement::takes_no_tasks(cx.agreement.state(), host);
        let failed = Answer::Failed(Failed::new(FailKind::Refused, text));
        let resumed = |it: &Awaited| *it == Awaited::Resumed(host);
        self.connections.reply_all(cx, &failed, resumed);
    }

    /// A host is no longer in the machine, and all other subsystems have handled that.
    pub fn on_host_gone(&mut self, cx: &mut Context, host: HostId) {
        self.on_host_leaving(cx, host);
        let deleted = |it: &Awaited| *it == Awaited::Deleted(host);
        self.connections.reply_all(cx, &Answer::Done, deleted);
    }

    /// The log has applied a checkpoint policy of an application, or voided it.
    pub fn on_policy(&mut self, cx: &mut Context, (app, policy): (Tid, Policy), answer: &Answer) {
        let awaited = Awaited::Policy(app, policy);
        self.connections.reply_all(cx, answer, |it| *it == awaited);
    }

    /// No proposal of this daemon is pending any more: the policies that requests wait for are in
    /// the log, if their applications live. (See [`Daemon::sweep_lost_births`].)
    ///
    /// [`Daemon::sweep_lost_births`]: super::Daemon::sweep_lost_births
    pub fn sweep_lost_policies(&mut self, cx: &mut Context) {
        for (app, policy) in self.connections.awaited_policies() {
            let is_alive = cx.agreement.state().tasks_of(app).next().is_some();
            let answer = match is_alive {
                true => Answer::Done,
                false => Answer::Failed(cx.no_such_task(app)),
            };
            self.on_policy(cx, (app, policy), &answer);
        }
    }

    /// This daemon ends in order: replies to the requests that wait for that.
    pub fn on_end(&mut self, cx: &mut Context) {
        let end = |it: &Awaited| *it == Awaited::End;
        self.connections.reply_all(cx, &Answer::Done, end);
    }
}

/// Listings and measurements.
impl Consoles {
    /// Begins a listing of the application of a task, or of all tasks.
    ///
    /// # Errors
    /// There is no such task.
    pub fn list(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        request: (ConnId, u64),
        app: Option<Tid>,
    ) -> Result<(), Failed> {
        let measurements = &mut self.measurements;
        let listed = self.listings.begin(cx, measurements, tasks, request, app)?;
        self.show_listings(cx, listed);
        Ok(())
    }

    /// The daemon of another host requests a measurement for its listing.
    pub fn on_usage_ask(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        host: HostId,
        ask: UsageAsk,
    ) {
        let question = cx.question(Question::Usage(host, ask.question));
        self.measurements.begin(cx, tasks, question);
    }

    /// The process of a task was started, or will not be.
    pub fn on_process_started(&mut self, cx: &mut Context, tid: Tid) {
        self.measurements.on_started(cx, tid);
    }

    /// The time limit for processes that are being started is over.
    pub fn on_measure_due(&mut self, cx: &mut Context, question: u64) {
        self.measurements.on_due(cx, question);
    }

    /// The shell has measured the usage of the tasks here.
    pub fn on_measured(&mut self, cx: &mut Context, question: u64, rows: Vec<UsageRow>) {
        match cx.questions.remove(&question) {
            Some(Question::Listing) => self.on_usage(cx, cx.me, Usage { question, rows }),
            Some(Question::Usage(host, question)) => {
                cx.send_order(host, &Order::Usage(Usage { question, rows }));
            }
            Some(other) => {
                cx.questions.insert(question, other);
            }
            None => {}
        }
    }

    /// A host replies with the usage of its tasks.
    pub fn on_usage(&mut self, cx: &mut Context, host: HostId, usage: Usage) {
        let Usage { question, rows } = usage;
        let listed = self.listings.on_rows(cx, question, host, rows);
        self.show_listings(cx, listed);
    }

    /// A host is lost and will not reply to listings.
    pub fn lose_listings_of(&mut self, cx: &mut Context, host: HostId) {
        let listed = self.listings.on_host_lost(cx, host);
        self.show_listings(cx, listed);
    }

    /// The time limit for the replies of hosts is over.
    pub fn on_listing_due(&mut self, cx: &mut Context, question: u64) {
        let listed = self.listings.on_due(cx, question);
        self.show_listings(cx, listed);
    }

    fn show_listings(&mut self, cx: &mut Context, listed: impl IntoIterator<Item = Listed>) {
        for Listed {
            conn,
            request,
            answer,
        } in listed
        {
            self.connections.reply(cx, conn, request, &answer);
        }
    }
}

/// Runs.
impl Consoles {
    /// Fails if the console runs a program already, because a console runs at most one.
    ///
    /// # Errors
    /// The console runs a program already.
    pub fn runs_nothing(&self, conn: ConnId) -> Result<(), Failed> {
        match self.connections.run_of(conn) {
            Some(_) => {
                let text = "this console runs a program already";
                Err(Failed::new(FailKind::Refused, text))
            }
            None => Ok(()),
        }
    }

    /// Begins the run of a launched master.
    pub fn begin_run(&mut self, cx: &mut Context, conn: ConnId, tid: Tid, asked: RunAsked) {
        if self.attach(cx, conn, tid, BTreeSet::new()) {
            let has_terminal = asked.terminal.is_some();
            self.runs.set_fed_by_console(tid, has_terminal);
        }
        cx.emit(ProcessOutput::Attach(conn, tid));
    }

    /// Makes a restarted master, whose application has tasks on `hosts`, the run of a console.
    /// `false` if the console is gone.
    pub fn attach(
        &mut self,
        cx: &mut Context,
        conn: ConnId,
        tid: Tid,
        hosts: BTreeSet<HostId>,
    ) -> bool {
        let waits = self.connections.set_run(conn, tid);
        match waits {
            true => self.runs.attach(cx, conn, tid, hosts),
            // The console is gone, and did not wait for the restart.
            false => cx.emit(ProcessOutput::Signal(tid, SIGHUP)),
        }
        waits
    }

    /// A console is gone. Returns the master of its run, if that has not ended.
    pub fn on_conn_gone(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        conn: ConnId,
    ) -> Option<Tid> {
        let tid = self.connections.remove(conn)?;
        let run = self.runs.remove_of(conn, tid)?;
        pause_outputs(cx, tasks, tid, false);
        matches!(run.state, RunState::Running).then_some(tid)
    }

    /// Handles a frame of a console for the master of its run. A signal is returned to the caller.
    ///
    /// # Errors
    /// The console breaks the protocol.
    pub fn on_run_frame(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        conn: ConnId,
        frame: &Frame,
    ) -> Result<Option<(Tid, i32)>, String> {
        let Some(tid) = self.connections.run_of(conn) else {
            return Err("this console runs no program".to_owned());
        };
        // The run may have ended before the frame arrived.
        let alive = tasks.get(&tid).is_some_and(|task| task.process.exists());
        match run_output(tid, frame) {
            Ok(ProcessOutput::Signal(tid, signal)) => {
                return Ok(Some((tid, signal)));
            }
            Ok(ProcessOutput::StandardInput(tid, bytes)) if alive => {
                self.runs.on_input(cx, tid, bytes)
            }
            Ok(output) if alive => cx.emit(output),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(None)
    }

    /// The process of a task was stopped by a signal, or continues.
    pub fn on_stopped(&mut self, cx: &mut Context, tid: Tid, stopped: bool) {
        self.runs.on_stopped(cx, tid, stopped);
    }

    /// A local task wrote output. Its console is on the host `console`, or there is none.
    pub fn on_output(&mut self, cx: &mut Context, app: Tid, console: HostId, lines: OutputLines) {
        let tid = lines.tid;
        if console == HostId::NONE {
            return cx.emit(ProcessOutput::LogOutput(
                tid,
                lines.stream,
                lines.bytes.into_vec(),
            ));
        }
        if console != cx.me {
            return self.streams.on_output(cx, app, console, lines);
        }
        self.runs.show(cx, app, lines);
        // The task may have started after the other tasks were paused.
        if self.is_full(app) {
            cx.emit(ProcessOutput::PauseOutput(tid));
        }
    }

    /// A task of another host, whose console is here, wrote output.
    pub fn on_output_lines(&mut self, cx: &mut Context, lines: OutputLines) {
        let task = cx.agreement.state().task(lines.tid);
        let app = task.map_or(Tid::NONE, |task| task.app);
        let (is_master, full) = (lines.tid == app, self.is_full(app));
        // A master is paused while its console does not read, so little more output of it arrives.
        if full && is_master {
            // The master may have arrived on its host after that host got the order to pause it.
            hold_far(cx, app, true);
        }
        match full && !is_master {
            true => self.runs.drop_lines(cx, app, &lines),
            false => self.runs.show(cx, app, lines),
        }
    }

    /// The send queue of a console is full, or has room again.
    pub fn on_full(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        conn: ConnId,
        full: bool,
    ) {
        if let Some(app) = self.connections.set_full(conn, full) {
            pause_outputs(cx, tasks, app, full);
        }
    }

    /// Whether the console of an application is here and does not read.
    fn is_full(&self, app: Tid) -> bool {
        let conn = self.runs.conn_of(app);
        conn.is_some_and(|conn| self.connections.is_full(conn))
    }

    /// Shows a line of the daemon on the console of an application, if that console is here.
    pub fn tell_run(&mut self, cx: &mut Context, app: Tid, text: &str) {
        self.runs.tell(cx, app, text);
    }

    /// Adds hosts to the hosts that have, or had, tasks of an application.
    pub fn add_hosts(&mut self, app: Tid, hosts: impl IntoIterator<Item = HostId>) {
        self.runs.add_hosts(app, hosts);
    }

    /// The log has applied that a task is on host `to` from now on.
    pub fn on_moved(&mut self, cx: &mut Context, tid: Tid, to: HostId) {
        if let Some(task) = cx.agreement.state().living_task(tid) {
            self.runs.add_hosts(task.app, [to]);
        }
        if self.is_full(tid) {
            hold_far(cx, tid, true);
        }
    }

    /// The process of a task has ended. If it is the master of a run, the run ends.
    pub fn end_run(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        tid: Tid,
        status: ExitStatus,
    ) {
        self.runs.end(cx, tasks, tid, status);
    }

    /// Another daemon waits for the last lines of an application's tasks here.
    pub fn on_flush_ask(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        host: HostId,
        ask: FlushAsk,
    ) {
        self.flushes.on_ask(cx, tasks, host, ask);
    }

    /// A process of an application has ended on this host.
    pub fn on_process_ended(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        app: Tid,
    ) {
        let is_run_here = self.runs.contains(app);
        if self.flushes.on_process_ended(cx, tasks, app, is_run_here) {
            self.runs.on_last_lines(cx, cx.me, app);
        }
    }

    /// A host has sent all lines of an application's tasks that have left.
    pub fn on_last_lines(&mut self, cx: &mut Context, host: HostId, app: Tid) {
        self.runs.on_last_lines(cx, host, app);
    }

    /// A host is lost: no lines come from there, and no lines are sent there.
    pub fn lose_flushes_of(&mut self, cx: &mut Context, host: HostId) {
        self.runs.on_host_lost(cx, host);
        self.flushes.on_host_lost(host);
    }

    /// The time limit for the last lines of an ended run is over.
    pub fn on_flush_due(&mut self, cx: &mut Context, app: Tid) {
        self.runs.on_flush_due(cx, app);
    }

    /// This daemon ends: notifies the consoles of the results of their runs.
    pub fn end_all_runs(&mut self, cx: &mut Context, fails: bool) {
        self.runs.end_all(cx, fails);
    }

    /// The applications whose consoles are here.
    pub fn applications(&self) -> impl Iterator<Item = Tid> {
        self.runs.masters()
    }

    /// The reason why a master cannot leave the host of its console, if there is one.
    pub fn ties_master(&self, tid: Tid) -> Option<&'static str> {
        self.runs.ties_master(tid)
    }
}

/// Output of masters here whose consoles are on other hosts.
impl Consoles {
    /// The masters that wait for room in the channels to the hosts of their consoles.
    pub fn waiting_masters(&self) -> Vec<Tid> {
        self.streams.waiting()
    }

    /// There may be room in the channel for the output of a master: sends it.
    pub fn on_room(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.on_room(cx, tid);
    }

    /// A process ends: puts all its output into the channel.
    pub fn send_last(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.send_last(cx, tid);
    }

    /// A task is removed from this host: drops its output that was not sent.
    pub fn forget_output(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.forget(cx, tid);
    }

    /// A task has a new process: has its output read again.
    pub fn renew_output(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.renew(cx, tid);
    }

    /// A move of a task begins.
    pub fn begin_delivery(&mut self, tid: Tid) {
        self.streams.begin_delivery(tid);
    }

    /// Whether all output of a frozen task arrives at the host of its console before any output
    /// from the host `to`, in the move of that number. If not, the release of the task waits.
    pub fn is_delivered(
        &mut self,
        cx: &mut Context,
        tid: Tid,
        task: &LocalTask,
        (to, number): (HostId, u64),
    ) -> bool {
        let console = task.console;
        let far_master = task.app == tid && console != HostId::NONE && console != cx.me;
        if !far_master || to == cx.me || !cx.agreement.state().is_present(console) {
            return true;
        }
        self.streams.is_delivered(cx, tid, console, (to, number))
    }

    /// The daemon of a console reports that it has all output of a master from before a move.
    /// `false` if this host did not request that report.
    pub fn on_delivered(&mut self, host: HostId, flushed: &Flushed) -> bool {
        self.streams.on_delivered(host, flushed)
    }

    /// The host of the console of a task is lost.
    pub fn on_console_lost(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.on_console_lost(cx, tid);
    }

    /// The console of a master, on another host, does not read, or reads again.
    pub fn on_run_hold(
        &mut self,
        cx: &mut Context,
        tasks: &BTreeMap<Tid, LocalTask>,
        host: HostId,
        hold: RunHold,
    ) {
        let RunHold { tid, hold } = hold;
        if tasks.get(&tid).is_some_and(|task| task.console == host) {
            self.streams.on_hold(cx, tid, host, hold);
        }
    }
}

/// Pauses or resumes the output of an application's tasks on this host, and of its master on
/// another host, because its console does not read or reads again.
fn pause_outputs(cx: &mut Context, tasks: &BTreeMap<Tid, LocalTask>, app: Tid, pause: bool) {
    for (tid, task) in tasks {
        if task.app == app && task.console == cx.me && task.process.exists() {
            cx.emit(match pause {
                true => ProcessOutput::PauseOutput(*tid),
                false => ProcessOutput::ResumeOutput(*tid),
            });
        }
    }
    hold_far(cx, app, pause);
}

/// Orders the host of a master, if it is another one, to pause or resume the master's output.
fn hold_far(cx: &mut Context, tid: Tid, hold: bool) {
    let state = cx.agreement.state();
    let host = state.living_task(tid).map(|task| task.host);
    if let Some(host) = host.filter(|host| *host != cx.me) {
        cx.send_order(host, &Order::RunHold(RunHold { tid, hold }));
    }
}
