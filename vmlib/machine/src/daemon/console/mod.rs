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
mod runs;
mod streams;

pub(super) use connections::{Awaited, Begun};
pub(super) use runs::{Run, RunAsked};
pub(super) use streams::{Delivery, Unsent};

use super::{
    context::{Context, Question},
    tasks::LocalTask,
};
use crate::{ConnId, placement};
use connections::Connections;
use listing::{Listed, Listings, Measurements};
use std::collections::BTreeMap;
use vm_wire::{
    HostId, Tid,
    checkpoint::Policy,
    console::Answer,
    peer::{Order, Usage, UsageAsk, UsageRow},
    task::{FailKind, Failed},
};

/// The consoles of this host. See the module.
#[derive(Debug, Default)]
pub(super) struct Consoles {
    connections: Connections,
    listings: Listings,
    measurements: Measurements,
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

    /// A console is gone: the master of its run.
    pub fn remove(&mut self, conn: ConnId) -> Option<Tid> {
        self.connections.remove(conn)
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

    /// The master of the run of a console.
    pub fn run_of(&self, conn: ConnId) -> Option<Tid> {
        self.connections.run_of(conn)
    }

    /// A console runs this master; `false` if the console is gone.
    pub fn set_run(&mut self, conn: ConnId, master: Tid) -> bool {
        self.connections.set_run(conn, master)
    }

    /// Whether the send queue of a console is full.
    pub fn is_full(&self, conn: ConnId) -> bool {
        self.connections.is_full(conn)
    }

    /// The send queue of a console is full, or has room again: the master of its run.
    pub fn set_full(&mut self, conn: ConnId, full: bool) -> Option<Tid> {
        self.connections.set_full(conn, full)
    }
}
