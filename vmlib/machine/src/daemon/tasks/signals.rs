//! Signals to tasks, wherever they run.

use crate::{
    ProcessOutput,
    daemon::{
        Daemon,
        signal_numbers::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM},
    },
};
use vm_wire::{
    Tid,
    agreed::ExitStatus,
    peer::{Order, SignalOrder},
    task::{FailKind, Failed},
};

/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;

impl Daemon {
    /// Sends a signal to a living task. Signal 0 only checks that the task lives.
    pub(in crate::daemon) fn signal(&mut self, tid: Tid, signal: i32) -> Result<(), Failed> {
        if !(0..=SIGNAL_MAX).contains(&signal) {
            let text = format!("{signal} is no signal; they are numbered from 1 to {SIGNAL_MAX}");
            return Err(Failed::new(FailKind::BadRequest, text));
        }
        let ends = [SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM].contains(&signal);
        if ends && self.cx.agreement.state().recovering(tid).is_some() {
            // The master has no process, or a frozen one.
            self.restarts.end_recovery(
                &mut self.cx,
                tid,
                &format!("it was ended by signal {signal}"),
            );
            return Ok(());
        }
        if ends && self.cx.agreement.state().suspended(tid).is_some() {
            // The loss of a terminal does not end a suspended application: it has no process there.
            if signal != SIGHUP {
                self.suspensions.end_suspension(
                    &mut self.cx,
                    tid,
                    &format!("it was ended by signal {signal}"),
                );
            }
            return Ok(());
        }
        let Some(task) = self.cx.agreement.state().living_task(tid) else {
            return Err(self.cx.no_such_task(tid));
        };
        let host = task.host;
        if task.suspended && signal != 0 && !ends {
            let name = tid.show(self.cx.machine);
            let text = format!("task {name} is suspended: resume it first ('vm resume {name}')");
            return Err(Failed::new(FailKind::Refused, text));
        }
        if signal == 0 {
        } else if host == self.cx.me {
            self.signal_process(tid, signal);
        } else if !self
            .cx
            .send_order(host, &Order::SignalOrder(SignalOrder { tid, signal }))
        {
            let text = "too many orders wait to be sent to the task's host; try again";
            return Err(Failed::new(FailKind::Limit, text));
        }
        Ok(())
    }

    /// Sends a signal to the master of a run. The process of the master may still be on this host
    /// after the task has left.
    pub(in crate::daemon) fn signal_run(&mut self, tid: Tid, signal: i32) {
        let state = self.cx.agreement.state();
        let goes_back = state.recovering(tid).is_some() || state.suspended(tid).is_some();
        match self.tasks.get(&tid).filter(|task| task.process.exists()) {
            Some(_) if !goes_back => self.signal_process(tid, signal),
            // The task may be on another host, or may have ended before the signal arrived.
            _ => drop(self.signal(tid, signal)),
        }
    }

    pub(in crate::daemon) fn signal_process(&mut self, tid: Tid, signal: i32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.signalled = Some(signal);
            if task.is_suspended() {
                return self.propose_exit(tid, ExitStatus::Signal(signal));
            }
        }
        self.cx.emit(ProcessOutput::Signal(tid, signal));
    }

    /// Another daemon orders a signal to a task of this host. The task may have ended or moved
    /// meanwhile.
    pub(in crate::daemon) fn on_signal_order(&mut self, order: &SignalOrder) {
        // The requester was notified that the task lived at that time, so there is no reply here.
        let _ = self.signal(order.tid, order.signal);
    }
}
