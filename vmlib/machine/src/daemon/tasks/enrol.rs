//! How a process of this host becomes a task.
//!
//! A launched process proves with a token that it is a certain task. Only this process was given
//! the token, and the token is valid once: a child process inherits the token, but is refused. A
//! process that was started from a shell has no token and becomes a master. The birth of the master
//! goes through the log like any other birth.

use super::spawning::Enrolling;
use crate::{
    ConnId, Output, ProcessOutput,
    daemon::{Daemon, local_task::LocalTask, task_life::Process},
    placement,
};
use std::collections::{BTreeSet, VecDeque};
use vm_wire::{
    Frame, Header, HostId, Message, Op, Tid,
    agreed::{Change, SpawnRecord},
    limits,
    task::{Enrol, FailKind, Failed, Welcome},
    version::Offer,
};

impl Daemon {
    /// The number of tasks that may still be born on this host.
    pub(in crate::daemon) fn room(&self) -> u64 {
        let ordered = self.births.ordered.values().map(|ordered| ordered.left());
        let underway = ordered.sum::<u64>() + self.births.enrolling.len() as u64;
        let alive = self.cx.agreement.state().task_count(self.cx.me) as u64;
        u64::from(self.cx.config.facts.tasks_max).saturating_sub(alive + underway)
    }

    pub(in crate::daemon) fn on_enrol(&mut self, conn: ConnId, pid: u32, enrol: Enrol) {
        if let Err(failed) = self.enrol(conn, pid, enrol) {
            self.cx.emit(Output::Reject(conn, failed.frame()));
        }
    }

    fn enrol(&mut self, conn: ConnId, pid: u32, enrol: Enrol) -> Result<(), Failed> {
        if let Err(error) = Offer::OURS.choose(enrol.offer) {
            return Err(Failed::new(FailKind::Version, error.to_string()));
        }
        if let Some(token) = enrol.token {
            let Some(tid) = self.births.tokens.remove(&token) else {
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
        self.births.enrolling.insert(request, enrolling);
        self.cx.agreement.propose(Change::Spawn(SpawnRecord {
            requester: self.cx.tid,
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

    /// The log has applied the birth of a master that a process from a shell requested.
    pub(in crate::daemon) fn on_enrolled(&mut self, record: &SpawnRecord) {
        let tid = Tid::new(self.cx.machine, self.cx.me, record.first);
        let Some(enrolling) = self.births.enrolling.remove(&record.request) else {
            return;
        };
        self.tasks
            .insert(tid, LocalTask::new(tid, HostId::NONE, None));
        match enrolling.conn {
            Some(conn) => {
                self.cx.emit(ProcessOutput::Adopt(tid, enrolling.pid));
                self.welcome(tid, conn, enrolling.offer, enrolling.pid);
            }
            // The process has closed its connection. If it still runs, it is no task.
            None => self.on_process_ended(tid, vm_wire::agreed::ExitStatus::NotStarted),
        }
    }

    /// The log has voided the birth of a master that a process from a shell requested.
    pub(in crate::daemon) fn on_not_enrolled(&mut self, request: u64, why: &str) {
        let enrolling = self.births.enrolling.remove(&request);
        if let Some(conn) = enrolling.and_then(|enrolling| enrolling.conn) {
            let text = format!("this process cannot become a task: {why}");
            let failed = Failed::new(FailKind::Refused, text);
            self.cx.emit(Output::Reject(conn, failed.frame()));
        }
    }

    fn welcome(&mut self, tid: Tid, conn: ConnId, offer: Offer, pid: u32) {
        let state = self.cx.agreement.state();
        let local = self.tasks.get_mut(&tid);
        let local = local.filter(|local| local.process.exists());
        let (Some(task), Some(local)) = (state.living_task(tid), local) else {
            let text = "this task has ended";
            let failed = Failed::new(FailKind::Refused, text);
            self.cx.emit(Output::Reject(conn, failed.frame()));
            return;
        };
        let epochs = state.epochs(task.app);
        local.token = None;
        local.process = Process::Connected;
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
        let (waited, missed) = local.absent.leave(&mut self.routing.absent_bytes);
        self.cx.routes.set_open(tid, true);
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

    /// Routes the frames that waited for a task, and asks the senders whose frames found no room to
    /// send them again.
    pub(in crate::daemon) fn send_on(
        &mut self,
        tid: Tid,
        waited: VecDeque<Frame>,
        missed: BTreeSet<Tid>,
    ) {
        for frame in waited {
            self.forward(frame, false);
        }
        for sender in missed {
            let resend = Frame::new(Header::new(Op::Resend), bytes::Bytes::new());
            self.forward(resend.between(tid, sender), false);
        }
    }

    pub(in crate::daemon) fn on_task_gone(&mut self, tid: Tid) {
        // A suspended task has no process. The closed connection was that of its earlier process.
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|task| !task.is_suspended()) {
            task.process.disconnect();
            self.close_routes_of(tid);
            self.cx.routes.set_open(tid, false);
        }
    }

    /// Closes the connection of a task that broke the protocol. The closed connection ends the
    /// task.
    pub(in crate::daemon) fn close_task(&mut self, tid: Tid, why: &str) {
        self.cx.counters.refused_local += 1;
        self.on_task_gone(tid);
        self.cx.emit(Output::Note(format!(
            "closed the connection of {tid}: {why}"
        )));
        self.cx.emit(Output::CloseTask(tid));
    }
}

/// The last component of a program's path, truncated to `limits::NAME_MAX` bytes.
pub(in crate::daemon) fn program_name(path: &str) -> String {
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
