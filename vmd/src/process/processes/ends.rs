//! The ends of tasks' processes and of their descendants: children are waited for, orphans are
//! killed.

use super::{Leaving, Process, Processes, UNKNOWN_CODE};
use crate::{
    context::{Context, Source},
    net::sockets::is_readable,
    process::{coordinators::Coordinators, spawn, starter, streams::Role, tokens::Why, usage},
};
use rustix::{
    fd::AsFd,
    process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus},
};
use std::{thread, time::Duration};
use vm_machine::{Input, ProcessInput, Time};
use vm_wire::{Tid, agreed::ExitStatus};

/// How long the output of an ended process's terminal is awaited. The last bytes of a terminal
/// arrive a little later; other processes may hold it open for ever.
const TERMINAL_TIME: Duration = Duration::from_millis(500);
/// How long the end of the daemon waits for killed processes to be gone.
const KILL_TIME: Duration = Duration::from_secs(2);
/// How long orphans of a task are looked for after the end of its process. Orphans appear one
/// generation after the other, as each generation is killed.
const LEAVING_TIME: Duration = Duration::from_secs(1);
/// Bound on the children that are waited for in one turn.
const REAPED: usize = 64;

impl Processes {
    /// Handles SIGCHLD: waits for children that have ended, orphans of tasks among them, and
    /// reports tasks that were stopped or continued. Returns whether more children may have ended:
    /// many may end at once, and turns stay short.
    pub fn reap_some(&mut self, coordinators: &mut Coordinators, context: &mut Context) -> bool {
        let more = self.wait_some(coordinators, context);
        self.sweep(coordinators, context.now);
        more
    }

    pub(super) fn wait_some(
        &mut self,
        coordinators: &mut Coordinators,
        context: &mut Context,
    ) -> bool {
        while let Some((pid, stopped)) = spawn::take_stopped() {
            if let Some(tid) = self.tids.get(&pid) {
                context
                    .inbox
                    .push_back(Input::Process(ProcessInput::Stopped(*tid, stopped)));
            }
        }
        for _ in 0..REAPED {
            let Some(pid) = spawn::peek_ended() else {
                return false;
            };
            let known = self.tids.get(&pid).copied();
            let reaped = match known {
                Some(tid) => self.reap(tid, context),
                // A child that a starter thread is just starting is reported by that thread first.
                None if self.launches.may_be_starting(pid) => false,
                None if context.helpers.may_be_starting(pid) => false,
                None if coordinators.may_be_starting(pid) => false,
                None if self.guardians.may_be_starting(pid) => false,
                None => {
                    self.waited(pid);
                    context.helpers.waited(pid);
                    coordinators.waited(pid);
                    // The processes that this child has started are children of the daemon now.
                    self.sweep_due = true;
                    // The guardian is compared before the wait, after which the number may be
                    // another process's.
                    if self.guardian.ended(pid) {
                        log::warn!(
                            "the guardian (process {pid}) has ended: another one is started"
                        );
                    }
                    let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                    let waited = rustix::process::waitid(WaitId::Pid(pid), flags);
                    if let Ok(Some(status)) = &waited {
                        context.strangers.push((pid, exit_status(status)));
                    }
                    waited.is_ok()
                }
            };
            if !reaped {
                return false;
            }
        }
        true
    }

    /// Takes the status of a task's process, if the process has ended. Returns whether it has.
    pub(super) fn reap(&mut self, tid: Tid, context: &mut Context) -> bool {
        let Some(process) = self.tasks.get_mut(&tid) else {
            return false;
        };
        if process.ended.is_some() {
            return false;
        }
        let pidfd = self.streams[process.pidfd].fd.as_fd();
        let status = if process.child {
            // As long as the process was not waited for, its number still refers to it.
            let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let peek = rustix::process::waitid(WaitId::PidFd(pidfd), flags | WaitIdOptions::NOWAIT);
            if !matches!(peek, Ok(Some(_))) {
                return false;
            }
            spawn::kill_group(process.pid, Signal::KILL);
            match rustix::process::waitid(WaitId::PidFd(pidfd), flags) {
                Ok(Some(status)) => exit_status(&status),
                _ => return false,
            }
        } else if is_readable(pidfd) {
            ExitStatus::Code(UNKNOWN_CODE)
        } else {
            // The readiness was that of a former descriptor in this place.
            return false;
        };
        process.ended = Some(status);
        self.tids.remove(&process.pid);
        self.streams.remove(process.pidfd);
        let (pid, child, outputs) = (process.pid, process.child, process.outputs.clone());
        let token = process.token;
        self.waited(pid);
        if child {
            self.leave(tid, pid, token, context.now);
        }
        for place in outputs {
            let stream = &mut self.streams[place];
            // The rest of the output is little, and the end of the task must not wait for its
            // console.
            if let Some(output) = stream.role.output() {
                output.paused = false;
            }
            match &mut stream.role {
                Role::Output(output) => {
                    let left = rustix::io::ioctl_fionread(&stream.fd).unwrap_or(0);
                    output.left = Some(left);
                    context.ready.push(Source::Process(place));
                }
                // A terminal ends once its last process is gone.
                _ => {
                    self.lingering.insert((context.now + TERMINAL_TIME, tid));
                    context.ready.push(Source::Process(place));
                }
            }
        }
        self.report_end(tid, context);
        true
    }

    /// Forgets a child that was waited for: its number may be another process's from now on.
    pub(super) fn waited(&mut self, child: Pid) {
        self.launches.waited(child);
        self.guardians.waited(child);
        self.tokens.waited(child);
    }

    /// Marks the descendants of a task's process that has ended, or was killed, as to be killed.
    pub(super) fn leave(&mut self, tid: Tid, leader: Pid, token: Option<u64>, now: Time) {
        self.leaving.push_back(Leaving {
            until: now + LEAVING_TIME,
            tid,
            leader,
            token,
        });
        self.sweep_due = true;
    }

    /// Kills the orphans of ended tasks. Coordinators are spared: they serve their application even
    /// after its master, which forked them, has moved or ended. For orphans that may have a token,
    /// the token is read first, see [`Processes::hear_tokens`].
    pub(super) fn sweep(&mut self, coordinators: &Coordinators, now: Time) {
        if !std::mem::take(&mut self.sweep_due) || self.leaving.is_empty() {
            return;
        }
        let mut unknown = Vec::new();
        let left = [starter::adopted_children(), self.launches.children()].concat();
        for orphan in self.orphans(left) {
            let leaders = usage::leaders(orphan);
            let led_by = |is_one: &dyn Fn(Pid) -> bool| leaders.is_some_and(|it| it.any(is_one));
            // The number of the ended leader may have been given to a later process.
            let is_living = led_by(&|leader| self.tids.contains_key(&leader));
            if coordinators.has(orphan) || is_living {
                continue;
            }
            if led_by(&|leader| self.leaving.iter().any(|it| it.leader == leader)) {
                // The process may have ended meanwhile.
                let _ = rustix::process::kill_process(orphan, Signal::KILL);
            } else {
                unknown.push(orphan);
            }
        }
        let tokens: Vec<u64> = self.leaving.iter().filter_map(|it| it.token).collect();
        if !tokens.is_empty() {
            self.tokens.ask_of_left(unknown, tokens);
        }
        while let Some(first) = self.leaving.pop_front_if(|first| first.until <= now) {
            self.guardian.remove(first.leader);
        }
    }

    /// Those children of the daemon that are no task's process.
    fn orphans(&self, children: Vec<Pid>) -> Vec<Pid> {
        let guardian = self.guardian.process();
        children
            .into_iter()
            .filter(|pid| !self.tids.contains_key(pid) && guardian != Some(*pid))
            .collect()
    }

    /// Takes the tokens of children that were read.
    pub fn hear_tokens(&mut self, coordinators: &Coordinators) {
        while let Some((pid, why, token)) = self.tokens.answer() {
            let Some(token) = token else {
                continue;
            };
            match why {
                Why::BroughtBack(tid) => {
                    if let Some(process) = self.tasks.get_mut(&tid)
                        && process.pid == pid
                        && process.ended.is_none()
                    {
                        process.token = Some(token);
                        self.guardian.add(pid, Some(token));
                    }
                }
                Why::Left(tokens) => {
                    let is_task = self.tids.contains_key(&pid);
                    if tokens.contains(&token) && !is_task && !coordinators.has(pid) {
                        // The process may have ended meanwhile.
                        let _ = rustix::process::kill_process(pid, Signal::KILL);
                    }
                }
            }
        }
    }

    pub(super) fn close_output(&mut self, tid: Tid, place: usize, context: &mut Context) {
        self.streams.remove(place);
        if let Some(process) = self.tasks.get_mut(&tid) {
            process.outputs.retain(|output| *output != place);
            process.input = process.input.filter(|input| *input != place);
        }
        self.report_end(tid, context);
    }

    /// Reports the end of a process once it has ended and all its output was read.
    pub(super) fn report_end(&mut self, tid: Tid, context: &mut Context) {
        let finished = |process: &Process| process.ended.filter(|_| process.outputs.is_empty());
        if let Some(status) = self.tasks.get(&tid).and_then(finished) {
            let process = self.tasks.remove(&tid);
            if let Some(place) = process.and_then(|process| process.input) {
                self.streams.remove(place);
            }
            context.ended.push((tid, status));
        }
    }

    /// Kills all tasks and the processes that they left. Returns when all are gone, or after a
    /// limited time.
    pub fn kill_all(&mut self) {
        self.launches.clear();
        let tids: Vec<Tid> = self.tasks.keys().copied().collect();
        for tid in tids {
            self.signal(tid, Signal::KILL.as_raw());
        }
        // From here on no child is spared.
        self.tids.clear();
        let pause = Duration::from_millis(1);
        for _ in 0..KILL_TIME.as_millis() {
            let orphans = self.orphans(starter::all_children());
            if orphans.is_empty() {
                self.guardian.dismiss();
            }
            for pid in orphans {
                spawn::kill_group(pid, Signal::KILL);
                // The process may not lead a group, or may be gone.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
            while let Some(pid) = spawn::peek_ended() {
                // The guardian is compared before the wait, after which the number may be another
                // process's.
                self.guardian.ended(pid);
                let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                let _ = rustix::process::waitid(WaitId::Pid(pid), flags);
            }
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let left = rustix::process::waitid(WaitId::All, look);
            if matches!(left, Err(rustix::io::Errno::CHILD)) {
                return;
            }
            thread::sleep(pause);
        }
        log::error!("some processes of tasks do not end");
    }
}

/// The exit status of a child.
pub(super) fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal(signal),
        (None, None) => ExitStatus::Code(UNKNOWN_CODE),
    }
}
