//! How this host leaves the machine, or ends with it.
//!
//! **Leaving** (SIGTERM, or `vm delete`):
//!
//! - The log applies that the host leaves; no task is placed on it from then on.
//! - The daemon sends SIGTERM to its tasks, and kills them after [`limits::END_GRACE`].
//! - The messages that ended tasks left for others are handed to the daemons of the receivers'
//!   hosts.
//! - The leader role and the vote go to other hosts ([`Agreement::may_go`](crate::Agreement)).
//! - The log applies that the host is gone, and the daemon ends.
//!
//! The last host of a machine ends as soon as its tasks have ended. The daemon reviews each step
//! after every input, so the order of the events does not matter. After [`limits::LEAVE_TIME`] the
//! daemon ends in any case, and the other hosts declare this host dead.
//!
//! **Halt**: every daemon ends its tasks and itself. The leader stays until all other hosts have
//! the entry. The other daemons stay for [`limits::HALT_LINGER`], so that the leader does not lose
//! its majority.

use crate::{
    ProcessOutput, Time,
    daemon::{
        context::{Context, Timer},
        local_task::LocalTask,
        signal_numbers::SIGKILL,
    },
};
use std::collections::BTreeMap;
use vm_wire::{Tid, agreed::Change, limits};

/// The reason that a daemon gives for its end when the machine was halted.
pub(in crate::daemon) const HALTED: &str = "the machine was halted";

/// The end of this daemon: not begun, or under way.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Departure {
    underway: Option<Underway>,
}

#[derive(Debug)]
struct Underway {
    begun: Time,
    /// Tasks that did not end in time have been killed.
    killed: bool,
    aim: Aim,
}

#[derive(Debug, Clone, Copy)]
enum Aim {
    /// This host leaves the machine.
    Leave {
        /// `HostGone` was proposed.
        proposed: bool,
    },
    /// The machine halts, by the log entry of that index.
    Halt { index: u64 },
}

/// The next action after a review.
pub(in crate::daemon) enum Next {
    /// No action until the next input.
    Wait,
    /// This host leaves: hands over the messages that ended tasks left here.
    HandOver,
    /// The daemon ends, in order or with an error.
    End(Result<String, String>),
}

impl Departure {
    /// Whether this daemon is about to end.
    pub fn is_underway(&self) -> bool {
        self.underway.is_some()
    }

    /// Whether this daemon has proposed that this host is gone.
    pub fn is_proposed(&self) -> bool {
        let aim = self.underway.as_ref().map(|underway| underway.aim);
        matches!(aim, Some(Aim::Leave { proposed: true }))
    }

    /// This host leaves the machine.
    pub fn leave(&mut self, cx: &mut Context) {
        self.begin(cx, Aim::Leave { proposed: false });
    }

    /// The machine halts, by the log entry of that index.
    pub fn halt(&mut self, cx: &mut Context, index: u64) {
        self.begin(cx, Aim::Halt { index });
    }

    /// The machine halts: cancels the departure of this host alone.
    pub fn cancel(&mut self) {
        self.underway = None;
    }

    fn begin(&mut self, cx: &mut Context, aim: Aim) {
        self.underway = Some(Underway {
            begun: cx.now,
            killed: false,
            aim,
        });
        let waits = [
            limits::HALT_LINGER,
            limits::END_GRACE,
            limits::HALT_TIME,
            limits::LEAVE_TIME,
        ];
        for wait in waits {
            cx.set_timer(cx.now + wait, Timer::Departure);
        }
    }

    /// Returns the next action for the end of this daemon, if its time has come.
    pub fn review(&mut self, cx: &mut Context, tasks: &BTreeMap<Tid, LocalTask>) -> Next {
        let Some(underway) = &mut self.underway else {
            return Next::Wait;
        };
        let begun = underway.begun;
        let most = match underway.aim {
            Aim::Leave { .. } => limits::LEAVE_TIME,
            Aim::Halt { .. } => limits::HALT_TIME,
        };
        if cx.now >= begun + most {
            return Next::End(Ok("leaving took too long".to_owned()));
        }
        if cx.now >= begun + limits::END_GRACE && !std::mem::replace(&mut underway.killed, true) {
            signal_all(cx, tasks, SIGKILL);
        }
        match underway.aim {
            Aim::Leave { .. } => Next::HandOver,
            Aim::Halt { index } => {
                let ended = !tasks.values().any(|task| task.process.exists());
                let alone = cx.is_alone();
                let told = cx.now >= begun + limits::HALT_LINGER && cx.agreement.all_have(index);
                match ended && (alone || told) {
                    true => Next::End(Ok(HALTED.to_owned())),
                    false => Next::Wait,
                }
            }
        }
    }

    /// No message is kept here for other hosts any more: proposes, once, that this host is gone.
    pub fn propose(&mut self, cx: &mut Context) {
        if let Some(Underway {
            aim: Aim::Leave { proposed },
            ..
        }) = &mut self.underway
            && !std::mem::replace(proposed, true)
        {
            cx.agreement.propose(Change::HostGone(cx.me));
        }
    }
}

/// Sends a signal to all processes of this host.
pub(in crate::daemon) fn signal_all(
    cx: &mut Context,
    tasks: &BTreeMap<Tid, LocalTask>,
    signal: i32,
) {
    for (tid, task) in tasks {
        if task.process.exists() {
            cx.emit(ProcessOutput::Signal(*tid, signal));
        }
    }
}
