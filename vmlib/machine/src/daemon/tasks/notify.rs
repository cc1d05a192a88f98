//! Who is told that a task ended, or that a host came or went.
//!
//! A watcher's library delivers the notify after the last message of the task that ended, so it
//! needs that message's number. Who left in order left its last numbers to the keeper where it
//! was; the watcher's daemon asks there ([`LastAsk`]). Of a task that ended otherwise, or whose
//! host is lost, no number is known and none is waited for.
//!
//! A library whose program waits for messages of one task asks likewise ([`Await`](vm_wire::task::Await)): its receives from
//! that task fail, once all of its messages were received. The program is not told.

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

/// Notifies that are kept for a task that does not acknowledge them: beyond it the eldest are
/// forgotten.
const UNTAKEN_MAX: usize = 2 * limits::WATCHES_MAX;

impl Daemon {
    /// Begins or ends a watch. Of a task that has ended the watcher is told after the answer.
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

    /// A task waits for messages of `about`.
    pub(in crate::daemon) fn on_await(&mut self, tid: Tid, about: Tid) {
        // Its library says it again when it goes on, to whoever owns it then.
        if self.is_released(tid) || !self.tasks.get(&tid).is_some_and(|task| task.connected) {
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

    /// The log had time to come to know the task.
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

    /// There is no such task, or none is remembered: nothing comes from it.
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

    /// A local task ended: it watches no more.
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
        // Those that go back with it, or stop, are not to fail for it before they end.
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

    /// Tells it of the end, with the number of the last chunk and the host that keeps it.
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

    /// Tells a task something, now or when it goes on. It is numbered, and kept until the task has
    /// acknowledged it: what is unread in its socket does not move with it.
    fn tell_task(&mut self, tid: Tid, frame: Frame) {
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| task.connected) else {
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

    /// A task has taken what it was told, up to that number.
    pub(in crate::daemon) fn on_told(&mut self, tid: Tid, taken: u64) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            while task
                .untaken
                .pop_front_if(|frame| frame.header.seq <= taken)
                .is_some()
            {}
        }
    }

    /// A task goes on, here or as one that arrived: what it may not have been told is told again,
    /// and what it watches and the log says has come about meanwhile.
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
                // It was in another machine.
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

    /// Whether what that host kept of tasks that ended died with it.
    pub(in crate::daemon) fn died(&self, host: HostId) -> bool {
        let host = self.cx.agreement.state().host(host);
        host.is_none_or(|host| host.phase == HostPhase::Dead)
    }

    /// A notify that is told again. The last chunk of a task that ended is not waited for any more
    /// if what was kept of it has died meanwhile.
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

    /// What a task watches, and what it was not told yet because the last number is awaited.
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

    /// A task arrived that knows of these hosts.
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

    /// Another daemon wants to know the last number of a task that ended here. It was in the
    /// keeper before the end was in the log.
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

    /// A host that was asked for last numbers will not answer. If it left in order, what it kept
    /// for tasks here is kept here.
    pub(in crate::daemon) fn lose_numbers_of(&mut self, host: HostId) {
        let lost = |_: &(Tid, Tid), asked: &mut LastAsked| asked.host == host;
        let lost: Vec<_> = self.watching.asked_last.extract_if(.., lost).collect();
        for ((tid, watcher), asked) in lost {
            let last = self.cx.keeper.last(tid, watcher);
            let how = (asked.status, asked.watched);
            self.send_ended(watcher, tid, how, (last, self.cx.me));
        }
    }

    /// A host is gone: who waits for a last chunk that was kept there learns where it is kept now.
    pub(in crate::daemon) fn notify_kept(&mut self, host: HostId) {
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            self.tell_kept_by(tid, host);
        }
    }

    /// Who left in order gave what it kept to the hosts of the receivers.
    fn tell_kept_by(&mut self, tid: Tid, host: HostId) {
        let by = (!self.died(host)).then_some(self.cx.me);
        self.tell_task(tid, KeptBy { host, by }.frame());
    }

    /// A host came, or went.
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

/// Those of a task's watches that are for its library alone.
fn sources(watches: &BTreeSet<Watched>) -> impl Iterator<Item = Watched> {
    watches.range(Watched::Source(Tid(0))..).copied()
}
