//! The tasks of the machine with their use of processor and memory, as `vm ps` shows them.
//!
//! The agreed state names the tasks, and the daemon of each host measures its own tasks. The rows
//! of a host that does not reply within [`limits::USAGE_WAIT`] have no figures. A host on which
//! processes are being started measures when these processes run, or [`limits::START_WAIT`] after
//! their starts. A listing just after a spawn therefore shows the new process.

use crate::{
    ConnId, ProcessOutput,
    daemon::{
        context::{Context, Question, Timer},
        local_task::LocalTask,
        task_life::Launch,
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm_wire::{
    HostId, Tid,
    console::{Answer, TaskRow},
    limits,
    peer::{Order, UsageAsk, UsageRow},
    task::Failed,
};

/// A listing that waits for hosts.
#[derive(Debug)]
struct Listing {
    conn: ConnId,
    request: u64,
    app: Option<Tid>,
    awaited: BTreeSet<HostId>,
    usage: BTreeMap<Tid, UsageRow>,
}

/// A listing that is complete: the reply to a request of a console.
#[derive(Debug)]
pub(super) struct Listed {
    pub conn: ConnId,
    pub request: u64,
    pub answer: Answer,
}

/// The listings that are not complete, by the number of their question.
#[derive(Debug, Default)]
pub(super) struct Listings {
    listings: BTreeMap<u64, Listing>,
}

impl Listings {
    /// Begins a listing of the application of a task, or of all tasks. Returns the reply at once if
    /// it waits for no host.
    ///
    /// # Errors
    /// There is no such task.
    pub fn begin(
        &mut self,
        cx: &mut Context,
        measurements: &mut Measurements,
        tasks: &BTreeMap<Tid, LocalTask>,
        (conn, request): (ConnId, u64),
        app: Option<Tid>,
    ) -> Result<Option<Listed>, Failed> {
        let state = cx.agreement.state();
        let app = match app.map(|tid| (tid, state.task(tid))) {
            Some((_, Some(task))) => Some(task.app),
            Some((tid, None)) if state.suspended(tid).is_none() => {
                return Err(cx.no_such_task(tid));
            }
            Some((tid, None)) => Some(tid),
            None => None,
        };
        let awaited: BTreeSet<HostId> = tasks_of(cx, app).map(|(_, task)| task.host).collect();
        let question = cx.question(Question::Listing);
        let mut listing = Listing {
            conn,
            request,
            app,
            awaited: awaited.clone(),
            usage: BTreeMap::new(),
        };
        for host in awaited {
            if host == cx.me {
                measurements.begin(cx, tasks, question);
            } else if !cx.send_order(host, &Order::UsageAsk(UsageAsk { question })) {
                listing.awaited.remove(&host);
            }
        }
        if !listing.awaited.contains(&cx.me) {
            cx.questions.remove(&question);
        }
        self.listings.insert(question, listing);
        let due = cx.now + limits::USAGE_WAIT;
        cx.set_timer(due, Timer::Listing(question));
        Ok(self.finish_if_complete(cx, question))
    }

    /// A host replies with the usage of its tasks.
    pub fn on_rows(
        &mut self,
        cx: &Context,
        question: u64,
        host: HostId,
        rows: Vec<UsageRow>,
    ) -> Option<Listed> {
        let listing = self.listings.get_mut(&question)?;
        if !listing.awaited.remove(&host) {
            return None;
        }
        let rows = rows.into_iter().map(|row| (row.tid, row));
        listing.usage.extend(rows);
        self.finish_if_complete(cx, question)
    }

    /// A host is lost. Returns the listings that waited for this host alone.
    pub fn on_host_lost(&mut self, cx: &Context, host: HostId) -> Vec<Listed> {
        let questions: Vec<u64> = self.listings.keys().copied().collect();
        let listed = questions
            .into_iter()
            .filter_map(|question| self.on_rows(cx, question, host, Vec::new()));
        listed.collect()
    }

    /// The time limit for the replies of the hosts is over.
    pub fn on_due(&mut self, cx: &Context, question: u64) -> Option<Listed> {
        self.listings.get_mut(&question)?.awaited.clear();
        self.finish_if_complete(cx, question)
    }

    fn finish_if_complete(&mut self, cx: &Context, question: u64) -> Option<Listed> {
        let complete = |listing: &&Listing| listing.awaited.is_empty();
        self.listings.get(&question).filter(complete)?;
        let mut listing = self.listings.remove(&question)?;
        let rows = tasks_of(cx, listing.app).map(|(tid, task)| TaskRow {
            tid,
            parent: task.parent().unwrap_or(Tid::NONE),
            app: task.app,
            host: cx.host_name(task.host),
            incarnation: task.incarnation,
            program: task.program.to_string(),
            usage: listing.usage.remove(&tid),
            suspended: task.suspended,
        });
        Some(Listed {
            conn: listing.conn,
            request: listing.request,
            answer: Answer::Ps(rows.collect()),
        })
    }
}

/// The living tasks of one application, or of all.
fn tasks_of(cx: &Context, app: Option<Tid>) -> impl Iterator<Item = (Tid, &crate::Task)> {
    let wanted = move |(_, task): &(Tid, &crate::Task)| app.is_none_or(|app| task.app == app);
    cx.agreement.state().living_tasks().filter(wanted)
}

/// The measurements that wait for starting processes of this host, by question.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    starting: BTreeMap<u64, BTreeSet<Tid>>,
}

impl Measurements {
    /// Has the shell measure the local tasks, including those whose processes are being started.
    pub fn begin(&mut self, cx: &mut Context, tasks: &BTreeMap<Tid, LocalTask>, question: u64) {
        let (mut starting, mut due) = (BTreeSet::new(), cx.now);
        for (tid, task) in tasks {
            if let Launch::Begun(since) = task.launch
                && since + limits::START_WAIT > cx.now
            {
                starting.insert(*tid);
                due = due.max(since + limits::START_WAIT);
            }
        }
        if starting.is_empty() {
            return cx.emit(ProcessOutput::MeasureUsage(question));
        }
        self.starting.insert(question, starting);
        cx.set_timer(due, Timer::Measure(question));
    }

    /// The process of a task was started, or will not be started.
    pub fn on_started(&mut self, cx: &mut Context, tid: Tid) {
        self.starting.retain(|question, starting| {
            starting.remove(&tid);
            if starting.is_empty() {
                cx.emit(ProcessOutput::MeasureUsage(*question));
            }
            !starting.is_empty()
        });
    }

    /// The time limit for the starts of the processes is over.
    pub fn on_due(&mut self, cx: &mut Context, question: u64) {
        if self.starting.remove(&question).is_some() {
            cx.emit(ProcessOutput::MeasureUsage(question));
        }
    }
}
