//! The tasks of the machine with what they use, as `vm ps` shows them.
//!
//! Who the tasks are, the agreed state says; what they use, the daemons of their hosts measure. A
//! host that does not answer within [`limits::USAGE_WAIT`] leaves its rows without figures. A host on
//! which processes are just being started measures when they are there, or [`limits::START_WAIT`] after
//! their starts: who lists a task that was spawned a moment ago is to see its process.

use crate::daemon::{
    Daemon,
    context::{Question, Timer},
};
use crate::{ConnId, Output};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    console::{Answer, TaskRow},
    limits,
    peer::{Order, Usage, UsageAsk, UsageRow},
    task::Failed,
};

/// A listing that waits for hosts.
#[derive(Debug)]
pub(in crate::daemon) struct Listing {
    conn: ConnId,
    request: u64,
    app: Option<Tid>,
    awaited: BTreeSet<HostId>,
    usage: BTreeMap<Tid, UsageRow>,
}

impl Daemon {
    /// Begins a listing of the application of a task, or of all.
    pub(in crate::daemon) fn list(
        &mut self,
        conn: ConnId,
        request: u64,
        app: Option<Tid>,
    ) -> Result<(), Failed> {
        let state = self.cx.agreement.state();
        let app = match app.map(|tid| (tid, state.task(tid))) {
            Some((_, Some(task))) => Some(task.app),
            Some((tid, None)) if state.suspended(tid).is_none() => {
                return Err(self.cx.no_such_task(tid));
            }
            Some((tid, None)) => Some(tid),
            None => None,
        };
        let awaited: BTreeSet<HostId> = self.rows_of(app).map(|(_, task)| task.host).collect();
        let question = self.cx.question(Question::Listing);
        let mut listing = Listing {
            conn,
            request,
            app,
            awaited: awaited.clone(),
            usage: BTreeMap::new(),
        };
        for host in awaited {
            if host == self.cx.me {
                self.measure(question);
            } else if !self
                .cx
                .send_order(host, &Order::UsageAsk(UsageAsk { question }))
            {
                listing.awaited.remove(&host);
            }
        }
        if !listing.awaited.contains(&self.cx.me) {
            self.cx.questions.remove(&question);
        }
        self.listings.insert(question, listing);
        let due = self.cx.now + limits::USAGE_WAIT;
        self.cx.set_timer(due, Timer::Listing(question));
        self.finish_listing_if_complete(question);
        Ok(())
    }

    /// The living tasks of one application, or all.
    fn rows_of(&self, app: Option<Tid>) -> impl Iterator<Item = (Tid, &crate::Task)> {
        let wanted = move |(_, task): &(Tid, &crate::Task)| app.is_none_or(|app| task.app == app);
        self.cx.agreement.state().living_tasks().filter(wanted)
    }

    /// Measures what the tasks here use, those too whose processes are just being started.
    pub(in crate::daemon) fn measure(&mut self, question: u64) {
        let (mut starting, mut due) = (BTreeSet::new(), self.cx.now);
        for (tid, task) in &self.tasks {
            let until = task.starting.map(|since| since + limits::START_WAIT);
            if let Some(until) = until.filter(|until| *until > self.cx.now) {
                starting.insert(*tid);
                due = due.max(until);
            }
        }
        if starting.is_empty() {
            return self.cx.emit(Output::MeasureUsage(question));
        }
        self.measurements.insert(question, starting);
        self.cx.set_timer(due, Timer::Measure(question));
    }

    /// The process of a task was started, or will not be.
    pub(in crate::daemon) fn review_measurements(&mut self, tid: Tid) {
        self.measurements.retain(|question, starting| {
            starting.remove(&tid);
            if starting.is_empty() {
                self.cx.emit(Output::MeasureUsage(*question));
            }
            !starting.is_empty()
        });
    }

    pub(in crate::daemon) fn on_measure_due(&mut self, question: u64) {
        if self.measurements.remove(&question).is_some() {
            self.cx.emit(Output::MeasureUsage(question));
        }
    }

    /// The shell measured what the tasks here use.
    pub(in crate::daemon) fn on_usage(&mut self, question: u64, rows: Vec<UsageRow>) {
        match self.cx.questions.remove(&question) {
            Some(Question::Listing) => self.on_listing_rows(question, self.cx.me, rows),
            Some(Question::Usage(host, question)) => {
                self.cx
                    .send_order(host, &Order::Usage(Usage { question, rows }));
            }
            Some(other) => {
                self.cx.questions.insert(question, other);
            }
            None => {}
        }
    }

    /// A host answered.
    pub(in crate::daemon) fn on_listing_rows(
        &mut self,
        question: u64,
        host: HostId,
        rows: Vec<UsageRow>,
    ) {
        let Some(listing) = self.listings.get_mut(&question) else {
            return;
        };
        if listing.awaited.remove(&host) {
            listing
                .usage
                .extend(rows.into_iter().map(|row| (row.tid, row)));
            self.finish_listing_if_complete(question);
        }
    }

    /// A host will not answer.
    pub(in crate::daemon) fn lose_listings_of(&mut self, host: HostId) {
        for question in self.listings.keys().copied().collect::<Vec<_>>() {
            self.on_listing_rows(question, host, Vec::new());
        }
    }

    pub(in crate::daemon) fn on_listing_over(&mut self, question: u64) {
        if let Some(listing) = self.listings.get_mut(&question) {
            listing.awaited.clear();
            self.finish_listing_if_complete(question);
        }
    }

    fn finish_listing_if_complete(&mut self, question: u64) {
        let complete = |listing: &&Listing| listing.awaited.is_empty();
        if self.listings.get(&question).filter(complete).is_none() {
            return;
        }
        let Some(mut listing) = self.listings.remove(&question) else {
            return;
        };
        let rows: Vec<TaskRow> = self
            .rows_of(listing.app)
            .map(|(tid, task)| TaskRow {
                tid,
                parent: task.parent().unwrap_or(Tid::NONE),
                app: task.app,
                host: self.cx.host_name(task.host),
                incarnation: task.incarnation,
                program: task.program.to_string(),
                usage: listing.usage.remove(&tid),
                suspended: task.suspended,
            })
            .collect();
        self.answer_console(listing.conn, listing.request, &Answer::Ps(rows));
    }
}
