//! Consoles: their requests, the listings that they are shown, and the programs that they run, to
//! the last line of output.
//!
//! | file | what it decides |
//! |---|---|
//! | `connections` | the consoles, and which of their requests wait for which event |
//! | `listing` | the tasks of the machine with what they use |
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
    ConnId, Output,
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
    /// A request has come.
    pub fn begin(&mut self, cx: &mut Context, conn: ConnId, number: u64) -> Begun {
        self.connections.begin(cx, conn, number)
    }

    /// A request that has no reply yet waits for this.
    pub fn wait_for(&mut self, conn: ConnId, number: u64, awaited: Awaited) {
        self.connections.wait_for(conn, number, awaited);
    }

    /// Replies to a request, if its console is still connected.
    pub fn reply(&mut self, cx: &mut Context, conn: ConnId, number: u64, answer: &Answer) {
        self.connections.reply(cx, conn, number, answer);
    }

    /// A host has joined.
    pub fn on_host_joined(&mut self, cx: &mut Context, host: HostId) {
        let name = cx.host_name(host);
        let came = |awaited: &Awaited| matches!(awaited, Awaited::Host(asked) if *asked == name);
        self.connections.reply_all(cx, &Answer::Done, came);
    }

    /// A host takes tasks again.
    pub fn on_host_resumed(&mut self, cx: &mut Context, host: HostId) {
        let resumed = |it: &Awaited| *it == Awaited::Resumed(host);
        self.connections.reply_all(cx, &Answer::Done, resumed);
    }

    /// A host leaves the machine: it will not take tasks again.
    pub fn on_host_leaving(&mut self, cx: &mut Context, host: HostId) {
        let text = placement::takes_no_tasks(cx.agreement.state(), host);
        let failed = Answer::Failed(Failed::new(FailKind::Refused, text));
        let resumed = |it: &Awaited| *it == Awaited::Resumed(host);
        self.connections.reply_all(cx, &failed, resumed);
    }

    /// A host is no longer in the machine, and all other subsystems know.
    pub fn on_host_gone(&mut self, cx: &mut Context, host: HostId) {
        self.on_host_leaving(cx, host);
        let deleted = |it: &Awaited| *it == Awaited::Deleted(host);
        self.connections.reply_all(cx, &Answer::Done, deleted);
    }

    /// The log has a checkpoint policy of an application, or refuses it.
    pub fn on_policy(&mut self, cx: &mut Context, (app, policy): (Tid, Policy), answer: &Answer) {
        let awaited = Awaited::Policy(app, policy);
        self.connections.reply_all(cx, answer, |it| *it == awaited);
    }

    /// Nothing of this daemon is on its way into the log: the policies that requests wait for are
    /// in the log, if their applications live. (See [`Daemon::sweep_lost_births`].)
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

    /// This daemon ends, as it was told to.
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

    /// Another host's daemon lists tasks.
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

    /// A measurement has waited long enough for processes that are being started.
    pub fn on_measure_due(&mut self, cx: &mut Context, question: u64) {
        self.measurements.on_due(cx, question);
    }

    /// The shell has measured what the tasks here use.
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

    /// A host replies to a listing.
    pub fn on_usage(&mut self, cx: &mut Context, host: HostId, usage: Usage) {
        let Usage { question, rows } = usage;
        let listed = self.listings.on_rows(cx, question, host, rows);
        self.show_listings(cx, listed);
    }

    /// A host is lost: it will not reply to listings.
    pub fn lose_listings_of(&mut self, cx: &mut Context, host: HostId) {
        let listed = self.listings.on_host_lost(cx, host);
        self.show_listings(cx, listed);
    }

    /// A listing has waited long enough for the hosts.
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
    /// A console runs one program at most.
    ///
    /// # Errors
    /// It runs one already.
    pub fn runs_nothing(&self, conn: ConnId) -> Result<(), Failed> {
        match self.connections.run_of(conn) {
            Some(_) => {
                let text = "this console runs a program already";
                Err(Failed::new(FailKind::Refused, text))
            }
            None => Ok(()),
        }
    }

    /// The master of a run was launched.
    pub fn begin_run(&mut self, cx: &mut Context, conn: ConnId, tid: Tid, asked: RunAsked) {
        if self.attach(cx, conn, tid, BTreeSet::new()) {
            let has_terminal = asked.terminal.is_some();
            self.runs.set_fed_by_console(tid, has_terminal);
        }
        cx.emit(Output::Attach(conn, tid));
    }

    /// A console runs a restarted master, whose application has tasks on these hosts; `false` if the
    /// console is gone.
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
            // The console did not wait for it.
            false => cx.emit(Output::Signal(tid, SIGHUP)),
        }
        waits
    }

    /// A console is gone: the master of its run, if that has not ended.
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

    /// A console sends something to the master of its run: a signal is given back.
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
        // The run may have ended while this was on its way.
        let alive = tasks.get(&tid).is_some_and(|task| task.process);
        match run_output(tid, frame) {
            Ok(Output::Signal(tid, signal)) => return Ok(Some((tid, signal))),
            Ok(Output::StandardInput(tid, bytes)) if alive => self.runs.on_input(cx, tid, bytes),
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

    /// A task here, whose console is on the host `console`, wrote something.
    pub fn on_output(&mut self, cx: &mut Context, app: Tid, console: HostId, lines: OutputLines) {
        let tid = lines.tid;
        if console == HostId::NONE {
            return cx.emit(Output::LogOutput(tid, lines.stream, lines.bytes.into_vec()));
        }
        if console != cx.me {
            return self.streams.on_output(cx, app, console, lines);
        }
        self.runs.show(cx, app, lines);
        // It may have been started since the others were told.
        if self.is_full(app) {
            cx.emit(Output::PauseOutput(tid));
        }
    }

    /// A task elsewhere, whose console is here, wrote something.
    pub fn on_output_lines(&mut self, cx: &mut Context, lines: OutputLines) {
        let task = cx.agreement.state().task(lines.tid);
        let app = task.map_or(Tid::NONE, |task| task.app);
        let (is_master, full) = (lines.tid == app, self.is_full(app));
        // A master waits as long as its console does not read: what still comes of it is little.
        if full && is_master {
            // It may have come to its host after that was told.
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

    /// The console of an application, if it is here, shows a line of the daemon.
    pub fn tell_run(&mut self, cx: &mut Context, app: Tid, text: &str) {
        self.runs.tell(cx, app, text);
    }

    /// There are tasks of an application on these hosts.
    pub fn add_hosts(&mut self, app: Tid, hosts: impl IntoIterator<Item = HostId>) {
        self.runs.add_hosts(app, hosts);
    }

    /// The log says that a task is on this host from now on.
    pub fn on_moved(&mut self, cx: &mut Context, tid: Tid, to: HostId) {
        if let Some(task) = cx.agreement.state().living_task(tid) {
            self.runs.add_hosts(task.app, [to]);
        }
        if self.is_full(tid) {
            hold_far(cx, tid, true);
        }
    }

    /// The process of a task ended: if it is the master of a run, so does the run.
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

    /// A process of the application has ended here.
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

    /// A host has sent all lines of the tasks of an application that have left.
    pub fn on_last_lines(&mut self, cx: &mut Context, host: HostId, app: Tid) {
        self.runs.on_last_lines(cx, host, app);
    }

    /// A host is lost: no lines come from there, and none are wanted there.
    pub fn lose_flushes_of(&mut self, cx: &mut Context, host: HostId) {
        self.runs.on_host_lost(cx, host);
        self.flushes.on_host_lost(host);
    }

    /// The last lines of an ended run have been waited for long enough.
    pub fn on_flush_due(&mut self, cx: &mut Context, app: Tid) {
        self.runs.on_flush_due(cx, app);
    }

    /// This daemon ends: the consoles of runs are told what has become of their runs.
    pub fn end_all_runs(&mut self, cx: &mut Context, fails: bool) {
        self.runs.end_all(cx, fails);
    }

    /// The applications whose consoles are here.
    pub fn applications(&self) -> impl Iterator<Item = Tid> {
        self.runs.masters()
    }

    /// The reason why a master cannot leave the host of its console.
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

    /// There may be room in the channel for the output of a master.
    pub fn on_room(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.on_room(cx, tid);
    }

    /// A process ends: all its output goes into the channel.
    pub fn send_last(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.send_last(cx, tid);
    }

    /// A task is forgotten here: output that was not sent is lost.
    pub fn forget_output(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.forget(cx, tid);
    }

    /// The process of a task is another one than before: its output is read.
    pub fn renew_output(&mut self, cx: &mut Context, tid: Tid) {
        self.streams.renew(cx, tid);
    }

    /// A move of a task begins.
    pub fn begin_delivery(&mut self, tid: Tid) {
        self.streams.begin_delivery(tid);
    }

    /// Whether all output of a frozen task is at its console's host before any output from the host
    /// `to`, in the move of that number. If not, the task is to be released when it may be.
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

    /// The daemon of a console has all output of a master from before a move; `false` if it was not
    /// asked.
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

/// The console of an application does not read, or reads again: its tasks here wait, and so does
/// its master.
fn pause_outputs(cx: &mut Context, tasks: &BTreeMap<Tid, LocalTask>, app: Tid, pause: bool) {
    for (tid, task) in tasks {
        if task.app == app && task.console == cx.me && task.process {
            cx.emit(match pause {
                true => Output::PauseOutput(*tid),
                false => Output::ResumeOutput(*tid),
            });
        }
    }
    hold_far(cx, app, pause);
}

/// Tells the host of a master, if that is another one, whether the console here reads.
fn hold_far(cx: &mut Context, tid: Tid, hold: bool) {
    let state = cx.agreement.state();
    let host = state.living_task(tid).map(|task| task.host);
    if let Some(host) = host.filter(|host| *host != cx.me) {
        cx.send_order(host, &Order::RunHold(RunHold { tid, hold }));
    }
}
