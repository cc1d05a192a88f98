//! Notifications that a task ended, or that a host joined or left.
//!
//! The library of a watcher delivers the notification of an end after the last message of the ended
//! task, so it needs the number of that message. A task that left in order left its last numbers to
//! the keeper on its host, and the watcher's daemon requests the number there ([`LastAsk`]). If a
//! task ended otherwise, or if its host is lost, no number is known, and the library does not wait
//! for one.
//!
//! A library whose program waits for messages of one task requests a notification in the same way
//! ([`Await`](vm_wire::task::Await)). The receives of the program from that task fail once all
//! messages of the task were received. The program itself gets no notification.

use super::watching::LastAsked;
use crate::{
    HostPhase, Output,
    daemon::{Daemon, context::Timer, task_request::Reply},
};
use std::collections::BTreeSet;
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    limits,
    peer::{Last, LastAsk, Order},
    task::{Ended, FailKind, HostEvent, KeptBy, Watch, Watched},
};

/// Limit of the unacknowledged notifications that are kept for one task. The oldest are dropped
/// first.
const UNTAKEN_MAX: usize = 2 * limits::WATCHES_MAX;

impl Daemon {
    /// Begins or ends a watch. If the watched task has ended, the notification follows the reply.
    pub(in crate::daemon) fn watch(&mut self, tid: Tid, watch: &Watch, request: u64) -> Reply {
        if !watch.on {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.watches.remove(&watch.what);
            }
            self.unwatch(tid, watch.what);
            return Reply::done();
        }
        let ended = match watch.what {
            Watched::Task(about) => match self.cx.agreement.state().task(about) {
                Some(task) => task.status.map(|status| (about, task.host, status)),
                None => return Reply::Now(self.cx.no_such_task(about).frame()),
            },
            Watched::HostAdded | Watched::HostDeleted => None,
            Watched::Source(_) => {
                return Reply::failed(FailKind::BadRequest, "no watch of a program");
            }
        };
        let Some(task) = self.tasks.get_mut(&tid) else {
            return Reply::failed(FailKind::Refused, "this task has ended");
        };
        if let Some((about, host, status)) = ended {
            let done = vm_wire::task::Done {}.frame();
            self.answer_task(tid, request, done.clone());
            self.tell_ended_to(tid, about, host, status, true);
            return Reply::Now(done);
        }
        let watches = task.watches.len() - sources(&task.watches).count();
        if !task.watches.contains(&watch.what) && watches >= limits::WATCHES_MAX {
            let max = limits::WATCHES_MAX;
            let text = format!("a task can watch {max} others, not more");
            return Reply::failed(FailKind::Limit, text);
        }
        task.watches.insert(watch.what);
        self.watching
            .watchers
            .entry(watch.what)
            .or_default()
            .insert(tid);
        Reply::done()
    }

    /// A task waits for messages of the task `about`.
    pub(in crate::daemon) fn on_await(&mut self, tid: Tid, about: Tid) {
        // The library repeats this to the owner when the task resumes.
        let task = self.tasks.get(&tid);
        if self.is_released(tid) || !task.is_some_and(|task| task.process.takes_notices()) {
            return;
        }
        let state = self.cx.agreement.state();
        if state.living_task(tid).is_none() {
            return;
        }
        let ended = state.task(about).map(|task| (task.host, task.status));
        match ended {
            Some((host, Some(status))) => self.tell_ended_to(tid, about, host, status, false),
            None if !self.may_be_born(about) => self.tell_unknown(tid, about),
            ended => {
                self.await_source(tid, about);
                if ended.is_none() {
                    let due = self.cx.now + limits::HELD_TIME;
                    self.cx.set_timer(due, Timer::Awaited(tid, about));
                }
            }
        }
    }

    fn await_source(&mut self, tid: Tid, about: Tid) {
        let what = Watched::Source(about);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.watches.insert(what);
        let mut others = sources(&task.watches).filter(|other| *other != what);
        let other = others.next();
        let excess = other.filter(|_| 2 + others.count() > limits::AWAITED_MAX);
        if let Some(other) = excess {
            task.watches.remove(&other);
            self.unwatch(tid, other);
        }
        self.watching.watchers.entry(what).or_default().insert(tid);
    }

    /// The log had enough time to apply the birth of the awaited task.
    pub(in crate::daemon) fn on_awaited_due(&mut self, tid: Tid, about: Tid) {
        let what = Watched::Source(about);
        let task = self.tasks.get_mut(&tid);
        if self.cx.agreement.state().task(about).is_none()
            && task.is_some_and(|task| task.watches.remove(&what))
        {
            self.unwatch(tid, what);
            self.tell_unknown(tid, about);
        }
    }

    /// Notifies a watcher that a task does not exist, or is forgotten: no message will come from
    /// it.
    fn tell_unknown(&mut self, watcher: Tid, tid: Tid) {
        let how = (ExitStatus::Unknown, false);
        self.send_ended(watcher, tid, how, (None, self.cx.me));
    }

    fn unwatch(&mut self, tid: Tid, what: Watched) {
        if let Some(watchers) = self.watching.watchers.get_mut(&what) {
            watchers.remove(&tid);
            if watchers.is_empty() {
                self.watching.watchers.remove(&what);
            }
        }
    }

    /// A local task has ended: ends its watches.
    pub(in crate::daemon) fn forget_watches(&mut self, tid: Tid) {
        let watches = self
            .tasks
            .get_mut(&tid)
            .map(|task| std::mem::take(&mut task.watches));
        for what in watches.unwrap_or_default() {
            self.unwatch(tid, what);
        }
        self.watching
            .asked_last
            .retain(|(_, watcher), _| *watcher != tid);
    }

    pub(in crate::daemon) fn notify_ended(&mut self, tid: Tid, host: HostId, status: ExitStatus) {
        let what = [Watched::Task(tid), Watched::Source(tid)];
        let [watching, awaiting] =
            what.map(|what| self.watching.watchers.remove(&what).unwrap_or_default());
        let state = self.cx.agreement.state();
        let app = |tid| state.task(tid).map(|task| task.app);
        // Tasks that are rolled back or suspended with the ended task are not notified, so that
        // their receives do not fail before they end.
        let together = matches!(status, ExitStatus::RolledBack | ExitStatus::Suspended);
        let ends_too =
            |watcher: &Tid| together && !watching.contains(watcher) && app(*watcher) == app(tid);
        let watchers: BTreeSet<Tid> = watching.union(&awaiting).copied().collect();
        let told: Vec<Tid> = watchers
            .iter()
            .copied()
            .filter(|it| !ends_too(it))
            .collect();
        for watcher in watchers {
            if let Some(task) = self.tasks.get_mut(&watcher) {
                task.watches.retain(|it| !what.contains(it));
            }
        }
        for watcher in told {
            let watched = watching.contains(&watcher);
            self.tell_ended_to(watcher, tid, host, status, watched);
        }
    }

    fn tell_ended_to(
        &mut self,
        watcher: Tid,
        tid: Tid,
        host: HostId,
        status: ExitStatus,
        watched: bool,
    ) {
        let last = self.cx.keeper.last(tid, watcher);
        let ask = status.in_order()
            && last.is_none()
            && host != self.cx.me
            && self.cx.agreement.state().is_present(host);
        let question = Order::LastAsk(LastAsk {
            ended: tid,
            watcher,
        });
        if ask && self.cx.send_order(host, &question) {
            let asked = LastAsked {
                host,
                status,
                watched,
            };
            let of_it = self
                .watching
                .asked_last
                .entry((tid, watcher))
                .or_insert(asked);
            of_it.watched |= watched;
        } else {
            let last = last.filter(|_| status.in_order());
            self.send_ended(watcher, tid, (status, watched), (last, self.cx.me));
        }
    }

    /// Notifies a watcher of an end, with the number of the last chunk and the host of its keeper.
    fn send_ended(
        &mut self,
        watcher: Tid,
        tid: Tid,
        (status, watched): (ExitStatus, bool),
        (last, keeper): (Option<u64>, HostId),
    ) {
        let ended = Ended {
            tid,
            status,
            last,
            keeper,
            watched,
        };
        self.tell_task(watcher, ended.frame());
    }

    /// Sends a numbered notification to a task, at once or when the task resumes. The notification
    /// is kept until the task has acknowledged it, because unread frames in the task's socket do
    /// not move with the task.
    fn tell_task(&mut self, tid: Tid, frame: Frame) {
        let Some(task) = self
            .tasks
            .get_mut(&tid)
            .filter(|task| task.process.takes_notices())
        else {
            return;
        };
        task.told += 1;
        let mut frame = frame.between(self.cx.tid, tid);
        frame.header.seq = task.told;
        task.untaken.push_back(frame.clone());
        if task.untaken.len() > UNTAKEN_MAX {
            task.untaken.pop_front();
        }
        if !task.frozen {
            self.cx.emit(Output::Task(tid, frame));
        }
    }

    /// A task acknowledges its notifications up to the number `taken`.
    pub(in crate::daemon) fn on_told(&mut self, tid: Tid, taken: u64) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            while task
                .untaken
                .pop_front_if(|frame| frame.header.seq <= taken)
                .is_some()
            {}
        }
    }

    /// A task resumes, or has arrived: repeats the notifications that the task may not have
    /// received, and notifies it of watched ends that the log has applied meanwhile.
    pub(in crate::daemon) fn tell_again(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(&tid) else {
            return;
        };
        let untaken = task.untaken.iter();
        let untaken = untaken.map(|frame| Output::Task(tid, self.still_true(frame)));
        let untaken: Vec<_> = untaken.collect();
        self.cx.out.extend(untaken);
        let answer = task.answer.iter().cloned();
        self.cx
            .out
            .extend(answer.map(|answer| Output::Task(tid, answer)));
        let state = self.cx.agreement.state();
        let ended = task.watches.iter().filter_map(|what| match *what {
            Watched::Task(about) | Watched::Source(about) => match state.task(about) {
                Some(task) => Some((*what, about, task.host, task.status?)),
                // The watched task belonged to another machine.
                None if !self.may_be_born(about) => {
                    Some((*what, about, HostId::NONE, ExitStatus::HostLost))
                }
                None => None,
            },
            Watched::HostAdded | Watched::HostDeleted => None,
        });
        for (what, about, host, status) in ended.collect::<Vec<_>>() {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.watches.remove(&what);
            }
            self.unwatch(tid, what);
            let watched = matches!(what, Watched::Task(_));
            self.tell_ended_to(tid, about, host, status, watched);
        }
    }

    /// Whether a host is dead, so that the messages that its keeper retained are lost.
    pub(in crate::daemon) fn died(&self, host: HostId) -> bool {
        let host = self.cx.agreement.state().host(host);
        host.is_none_or(|host| host.phase == HostPhase::Dead)
    }

    /// A notification that is sent again. If the keeper of the ended task was lost meanwhile, the
    /// notification names no last chunk to wait for.
    fn still_true(&self, frame: &Frame) -> Frame {
        let mut frame = frame.clone();
        if frame.header.op == Op::Ended
            && let Ok(mut ended) = Ended::read(&frame)
            && self.died(ended.keeper)
        {
            ended.last = None;
            frame.body = ended.frame().body;
        }
        frame
    }

    /// The watches of a task, and the ends whose notifications still wait for a last number.
    pub(in crate::daemon) fn watches_of(&self, tid: Tid) -> Vec<Watched> {
        let awaited = self.watching.asked_last.iter();
        let awaited = awaited.filter(|((_, watcher), _)| *watcher == tid);
        let awaited = awaited.map(|((ended, _), asked)| match asked.watched {
            true => Watched::Task(*ended),
            false => Watched::Source(*ended),
        });
        let task = self.tasks.get(&tid);
        let watches = task
            .into_iter()
            .flat_map(|task| task.watches.iter().copied());
        watches.chain(awaited).collect()
    }

    /// Notifies a task that has arrived of the hosts that joined or left since `hosts` was
    /// recorded.
    pub(in crate::daemon) fn tell_hosts_since(&mut self, tid: Tid, hosts: &[HostId]) {
        let before: BTreeSet<HostId> = hosts.iter().copied().collect();
        let changed: Vec<HostId> = before
            .symmetric_difference(&self.watching.known)
            .copied()
            .collect();
        for host in changed {
            let added = self.watching.known.contains(&host);
            if !added {
                self.tell_kept_by(tid, host);
            }
            let what = match added {
                true => Watched::HostAdded,
                false => Watched::HostDeleted,
            };
            let watches = |task: &crate::daemon::LocalTask| task.watches.contains(&what);
            if self.tasks.get(&tid).is_some_and(watches) {
                let name = self.cx.host_name(host);
                self.tell_task(tid, HostEvent { host, name, added }.frame());
            }
        }
    }

    /// Another daemon requests the last number of a task that ended on this host. The keeper got
    /// the number before the log got the end.
    pub(in crate::daemon) fn on_last_ask(&mut self, host: HostId, ask: &LastAsk) {
        let last = Last {
            ended: ask.ended,
            watcher: ask.watcher,
            last: self.cx.keeper.last(ask.ended, ask.watcher),
        };
        self.cx.send_order(host, &Order::Last(last));
    }

    pub(in crate::daemon) fn on_last(&mut self, last: &Last) {
        if let Some(asked) = self.watching.asked_last.remove(&(last.ended, last.watcher)) {
            let kept = (last.last, asked.host);
            let how = (asked.status, asked.watched);
            self.send_ended(last.watcher, last.ended, how, kept);
        }
    }

    /// A host that was asked for last numbers is gone and will not reply. If the host left in
    /// order, this host is now the keeper of its messages for the local tasks.
    pub(in crate::daemon) fn lose_numbers_of(&mut self, host: HostId) {
        let lost = |_: &(Tid, Tid), asked: &mut LastAsked| asked.host == host;
        let lost: Vec<_> = self.watching.asked_last.extract_if(.., lost).collect();
        for ((tid, watcher), asked) in lost {
            let last = self.cx.keeper.last(tid, watcher);
            let how = (asked.status, asked.watched);
            self.send_ended(watcher, tid, how, (last, self.cx.me));
        }
    }

    /// A host is gone: notifies the local tasks which host keeps the messages that it kept for
    /// them.
    pub(in crate::daemon) fn notify_kept(&mut self, host: HostId) {
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            self.tell_kept_by(tid, host);
        }
    }

    /// Notifies a task which host keeps the messages that `host` kept. A host that leaves in order
    /// hands these messages to the hosts of the receivers.
    fn tell_kept_by(&mut self, tid: Tid, host: HostId) {
        let by = (!self.died(host)).then_some(self.cx.me);
        self.tell_task(tid, KeptBy { host, by }.frame());
    }

    /// A host has joined, or is gone.
    pub(in crate::daemon) fn notify_host(&mut self, host: HostId, added: bool) {
        match added {
            true => self.watching.known.insert(host),
            false => self.watching.known.remove(&host),
        };
        let what = match added {
            true => Watched::HostAdded,
            false => Watched::HostDeleted,
        };
        let event = HostEvent {
            host,
            name: self.cx.host_name(host),
            added,
        };
        let watchers = self
            .watching
            .watchers
            .get(&what)
            .cloned()
            .unwrap_or_default();
        for watcher in watchers {
            self.tell_task(watcher, event.frame());
        }
    }
}

/// The watches of a task that its library made for [`Await`](vm_wire::task::Await).
fn sources(watches: &BTreeSet<Watched>) -> impl Iterator<Item = Watched> {
    watches.range(Watched::Source(Tid(0))..).copied()
}
