//! The processes here that are tasks, and how a process becomes one.
//!
//! A launched process proves which task it is by a token that only it was given, once: what it
//! starts itself inherits the token, but is refused. A process from a shell has none and becomes a
//! master: its birth goes through the log like any other.

use super::{Daemon, absent::Absent, requests::Waiting, spawn::Enrolling};
use crate::{ConnId, Output, Time, placement};
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{
    Frame, Header, HostId, Message, Op, Tid,
    agreed::{Change, ExitStatus, SpawnRecord},
    checkpoint::Part,
    limits,
    peer::Belongings,
    task::{Enrol, FailKind, Failed, Watched, Welcome},
    version::Offer,
};

/// A task whose process is, or was, on this host.
#[derive(Debug)]
pub(super) struct LocalTask {
    /// Its application.
    pub app: Tid,
    /// How many tasks its spawn request asked for: those that it can expect as siblings.
    pub siblings: usize,
    /// The host whose daemon serves the console of its application, or none.
    pub console: HostId,
    /// What it enrols with; `None` once it has.
    pub token: Option<u64>,
    /// Its process, as far as known; 0 before.
    pub pid: u32,
    /// Since when its process is being started, until that is known to be there.
    pub starting: Option<Time>,
    /// When its process was known to be there, if it was started here.
    pub launched: Option<Time>,
    /// Whether it has a data socket.
    pub connected: bool,
    /// Whether its process is alive, or being started.
    pub process: bool,
    /// Whether its `Exit` is on its way into the log.
    pub exiting: bool,
    /// With which status.
    pub status: Option<ExitStatus>,
    /// The last signal that was sent to it through the machine.
    pub signalled: Option<i32>,
    /// It ended with its application, in this way: that may live again while its process ends.
    pub together: Option<ExitStatus>,
    /// Whether it is leaving in order: what it sends from now on is left to the keeper.
    pub leaving: bool,
    /// Whether its `Exit` was applied.
    pub ended: bool,
    /// Whether it stands still, because it is being moved, or is suspended.
    pub frozen: bool,
    /// If it is suspended alone, its image in the store: it has no process.
    pub image: Option<Part>,
    /// Whether its process is stopped by a signal.
    pub stopped: bool,
    /// Where it can be stopped to be saved: until it has come there, it goes on.
    pub stops: Stops,
    /// Whether an increment of it could not be copied: here its images are stored in full from then on.
    pub stored_in_full: bool,
    /// Whether the keeper had no room for one of its last chunks.
    pub not_kept: bool,
    /// What came for it before it enrolled, or while it stood still.
    pub absent: Absent,
    /// What it watches.
    pub watches: BTreeSet<Watched>,
    /// Number of the last notify that it was told.
    pub told: u64,
    /// Those that it has not acknowledged: they may be lost when it moves.
    pub untaken: VecDeque<Frame>,
    /// Number of its last request.
    pub asked: u64,
    /// The answer to that; `None` while it is under way.
    pub answer: Option<Frame>,
    /// What that waits for.
    pub waiting: Option<Waiting>,
}

/// Where a task can be stopped to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    /// Wherever it is. It is saved as an image.
    Anywhere,
    /// In its calls of the library alone, because its program has callbacks around saves. It is saved as
    /// an image.
    InCalls,
    /// At safe points of its program, which gives its state there.
    AtSafePoints,
}

impl Stops {
    /// Of a task that has arrived; if it stops in its calls alone, it says so again.
    pub fn arrived(portable: bool) -> Self {
        match portable {
            true => Stops::AtSafePoints,
            false => Stops::Anywhere,
        }
    }

    /// Whether what is saved is what its program gives: it goes on on a host of any architecture.
    pub fn is_portable(self) -> bool {
        self == Stops::AtSafePoints
    }

    /// Whether it stops as soon as it is told to.
    pub fn at_once(self) -> bool {
        self == Stops::Anywhere
    }

    /// Why it is not saved, or not moved: it was told to stop, and did not come to where it can.
    pub fn why_late(self) -> String {
        let time = limits::SAFE_POINT;
        match self {
            Stops::AtSafePoints => format!(
                "its program is portable and came to no safe point within {time:?}: it has to call \
                 Task::safe_point more often, and wait with Task::recv_at"
            ),
            Stops::InCalls | Stops::Anywhere => format!(
                "its program has callbacks around saves (Task::around_saves) and came to no call of \
                 the library within {time:?}: it has to make one more often, Task::try_recv for example"
            ),
        }
    }
}

impl LocalTask {
    /// Takes up what the daemon of its former host, or a checkpoint, knows of it.
    pub fn take_up(&mut self, belongings: Belongings) {
        self.siblings = belongings.siblings as usize;
        self.asked = belongings.asked;
        let answer = belongings.answer.as_ref();
        self.answer = answer.and_then(|bytes| Frame::of_body(bytes));
        if belongings.awaits != HostId::NONE {
            self.waiting = Some(Waiting::Elsewhere(belongings.awaits));
        }
        self.told = belongings.told;
        self.stops = Stops::arrived(belongings.portable);
        let untaken = belongings.untaken.iter();
        self.untaken = untaken.filter_map(|bytes| Frame::of_body(bytes)).collect();
        self.image = belongings.suspended;
        self.watches = belongings.watches.into_iter().collect();
    }

    /// Whether it runs: neither starts nor ends.
    pub fn is_settled(&self) -> bool {
        self.connected && !self.leaving && !self.exiting
    }

    /// Whether it ended by a signal that nobody sent through the machine.
    pub fn was_killed(&self, status: ExitStatus) -> bool {
        matches!(status, ExitStatus::Signal(signal) if self.signalled != Some(signal))
    }

    /// A task that was just born here.
    pub fn new(app: Tid, console: HostId, token: Option<u64>) -> Self {
        LocalTask {
            app,
            siblings: 1,
            console,
            token,
            pid: 0,
            starting: None,
            launched: None,
            connected: false,
            process: true,
            exiting: false,
            status: None,
            signalled: None,
            together: None,
            leaving: false,
            ended: false,
            frozen: false,
            image: None,
            stopped: false,
            stops: Stops::Anywhere,
            stored_in_full: false,
            not_kept: false,
            absent: Absent::default(),
            watches: BTreeSet::new(),
            told: 0,
            untaken: VecDeque::new(),
            asked: 0,
            answer: None,
            waiting: None,
        }
    }
}

impl Daemon {
    /// How many more tasks may be born here.
    pub(super) fn room(&self) -> u64 {
        let ordered = self.ordered.values().map(|ordered| ordered.left());
        let underway = ordered.sum::<u64>() + self.enrolling.len() as u64;
        let alive = self.cx.agreement.state().task_count(self.cx.me) as u64;
        u64::from(self.cx.config.facts.tasks_max).saturating_sub(alive + underway)
    }

    pub(super) fn on_enrol(&mut self, conn: ConnId, pid: u32, enrol: Enrol) {
        if let Err(failed) = self.enrol(conn, pid, enrol) {
            self.cx.emit(Output::Reject(conn, failed.frame()));
        }
    }

    fn enrol(&mut self, conn: ConnId, pid: u32, enrol: Enrol) -> Result<(), Failed> {
        if let Err(error) = Offer::OURS.choose(enrol.offer) {
            return Err(Failed::new(FailKind::Version, error.to_string()));
        }
        if let Some(token) = enrol.token {
            let Some(tid) = self.tokens.remove(&token) else {
                let text = "this process is not the task that it claims to be: the token in \
                            VM_TOKEN was used before, or its task has ended";
                return Err(Failed::new(FailKind::Refused, text));
            };
            self.welcome(tid, conn, enrol.offer, pid);
            return Ok(());
        }
        if self.is_departing() {
            let text = placement::takes_no_tasks(self.cx.agreement.state(), self.cx.me);
            return Err(Failed::new(FailKind::Refused, text));
        }
        if self.room() == 0 {
            let max = self.cx.config.facts.tasks_max;
            let text = format!("this host runs {max} tasks, its limit (see vmd --max-tasks)");
            return Err(Failed::new(FailKind::Limit, text));
        }
        let Some(first) = self.cx.number_tasks(1) else {
            let text = "this host has no task numbers left";
            return Err(Failed::new(FailKind::Limit, text));
        };
        let request = self.cx.next_request;
        self.cx.next_request += 1;
        let enrolling = Enrolling {
            conn: Some(conn),
            pid,
            offer: enrol.offer,
        };
        self.enrolling.insert(request, enrolling);
        self.cx.agreement.propose(Change::Spawn(SpawnRecord {
            asker: self.cx.tid,
            request,
            host: self.cx.me,
            index: 0,
            first,
            count: 1,
            app: Tid::NONE,
            program: program_name(&enrol.program),
            enrolled: true,
            generation: 0,
            console: HostId::NONE,
        }));
        Ok(())
    }

    /// The log bore the master that a process from a shell wants to be.
    pub(super) fn on_enrolled(&mut self, record: &SpawnRecord) {
        let tid = Tid::new(self.cx.machine, self.cx.me, record.first);
        let Some(enrolling) = self.enrolling.remove(&record.request) else {
            return;
        };
        self.tasks
            .insert(tid, LocalTask::new(tid, HostId::NONE, None));
        match enrolling.conn {
            Some(conn) => {
                self.cx.emit(Output::Adopt(tid, enrolling.pid));
                self.welcome(tid, conn, enrolling.offer, enrolling.pid);
            }
            // It gave up meanwhile. Its process, if it lives, is no task.
            None => self.on_process_ended(tid, vm_wire::agreed::ExitStatus::NotStarted),
        }
    }

    /// The log did not.
    pub(super) fn on_not_enrolled(&mut self, request: u64, why: &str) {
        let enrolling = self.enrolling.remove(&request);
        if let Some(conn) = enrolling.and_then(|enrolling| enrolling.conn) {
            let text = format!("this process cannot become a task: {why}");
            let failed = Failed::new(FailKind::Refused, text);
            self.cx.emit(Output::Reject(conn, failed.frame()));
        }
    }

    fn welcome(&mut self, tid: Tid, conn: ConnId, offer: Offer, pid: u32) {
        let state = self.cx.agreement.state();
        let (Some(task), Some(local)) = (state.living_task(tid), self.tasks.get_mut(&tid)) else {
            let text = "this task has ended";
            let failed = Failed::new(FailKind::Refused, text);
            self.cx.emit(Output::Reject(conn, failed.frame()));
            return;
        };
        let epochs = state.epochs(task.app);
        local.token = None;
        local.connected = true;
        local.pid = pid;
        let welcome = Welcome {
            version: Offer::OURS.choose(offer).unwrap_or_default(),
            machine: self.cx.machine,
            host: self.cx.me,
            tid,
            parent: task.parent().unwrap_or(Tid::NONE),
            app: task.app,
            index: task.index,
            epoch: epochs.epoch,
            generation: epochs.generation,
            incarnation: task.incarnation,
            window_bytes: self.cx.config.window_bytes,
            inbox_bytes: self.cx.config.inbox_bytes,
        };
        let (waited, missed) = local.absent.leave(&mut self.absent_bytes);
        self.cx.routes.set_connected(tid, true);
        let frame = welcome.frame().between(self.cx.tid, tid);
        let coordinator = match welcome.app == tid {
            true => self.await_coordinator(tid),
            false => None,
        };
        self.cx.emit(Output::Welcome {
            conn,
            tid,
            frame,
            coordinator,
        });
        if welcome.app == tid {
            self.review_coordinator(tid);
        }
        self.send_on(tid, waited, missed);
        self.save_part(tid);
    }

    /// What waited for a task goes its way; those whose frames found no room send them again.
    pub(super) fn send_on(&mut self, tid: Tid, waited: VecDeque<Frame>, missed: BTreeSet<Tid>) {
        for frame in waited {
            self.forward(frame, false);
        }
        for sender in missed {
            let resend = Frame::new(Header::new(Op::Resend), bytes::Bytes::new());
            self.forward(resend.between(tid, sender), false);
        }
    }

    pub(super) fn on_task_gone(&mut self, tid: Tid) {
        // One that is suspended has none: that was of the process of before.
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|task| task.image.is_none()) {
            task.connected = false;
            self.cx.routes.set_connected(tid, false);
        }
    }

    /// A task broke the protocol: its connection is closed; that ends it.
    pub(super) fn close_task(&mut self, tid: Tid, why: &str) {
        self.cx.counters.refused_local += 1;
        self.on_task_gone(tid);
        self.cx.emit(Output::Note(format!(
            "closed the connection of {tid}: {why}"
        )));
        self.cx.emit(Output::CloseTask(tid));
    }
}

/// The last part of a program's path, as long as a name may be.
pub(super) fn program_name(path: &str) -> String {
    let name = path
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path);
    let mut end = name.len().min(limits::NAME_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
