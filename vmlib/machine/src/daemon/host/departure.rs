//! How this host leaves the machine, or ends with it.
//!
//! **Leaving** (SIGTERM, or `vm delete`): the log says so, then no more tasks are placed here. The
//! tasks here are asked to end, then killed; what they left for others is handed to the daemons of
//! the receivers' hosts; lead and vote go to others ([`Agreement::may_go`](crate::Agreement)). Then
//! the log says that the host is gone, and the daemon ends. The last host of a machine just ends.
//! Each step is reviewed after every input, so the order in which the conditions come true does not
//! matter. After [`limits::LEAVE_TIME`] the daemon ends in any case: the others then see it die.
//!
//! **Halt**: every daemon ends its tasks and itself. The leader stays until all others have said
//! that they know; the others stay for a moment so that the leader is not left without a majority.

use crate::{
    Output, Time,
    daemon::{
        context::{Context, Timer},
        local_task::LocalTask,
        signal_numbers::SIGKILL,
    },
};
use std::collections::BTreeMap;
use vm_wire::{Tid, agreed::Change, limits};

/// The reason for the end of a daemon when the machine was halted.
pub(in crate::daemon) const HALTED: &str = "the machine was halted";

/// The end of this daemon: not begun, or under way.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Departure {
    underway: Option<Underway>,
}

#[derive(Debug)]
struct Underway {
    begun: Time,
    /// The tasks that would not end have been killed.
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
    /// The machine ends, as the entry of that index says.
    Halt { index: u64 },
}

/// What remains to be done after a review.
pub(in crate::daemon) enum Next {
    /// Nothing, until something changes.
    Wait,
    /// This host leaves: what tasks left here for others is to be handed over.
    HandOver,
    /// The daemon ends: well, or with an error.
    End(Result<String, String>),
}

impl Departure {
    /// Whether this daemon is about to end.
    pub fn is_underway(&self) -> bool {
        self.underway.is_some()
    }

    /// Whether the log was asked to say that this host is gone.
    pub fn is_proposed(&self) -> bool {
        let aim = self.underway.as_ref().map(|underway| underway.aim);
        matches!(aim, Some(Aim::Leave { proposed: true }))
    }

    /// This host leaves the machine.
    pub fn leave(&mut self, cx: &mut Context) {
        self.begin(cx, Aim::Leave { proposed: false });
    }

    /// The machine ends, as the entry of that index says.
    pub fn halt(&mut self, cx: &mut Context, index: u64) {
        self.begin(cx, Aim::Halt { index });
    }

    /// The machine ends: this host does not leave it any more.
    pub fn call_off(&mut self) {
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

    /// Does the next step of the end of this daemon, if its time has come.
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
                let ended = !tasks.values().any(|task| task.process);
                let alone = cx.is_alone();
                let told = cx.now >= begun + limits::HALT_LINGER && cx.agreement.all_have(index);
                match ended && (alone || told) {
                    true => Next::End(Ok(HALTED.to_owned())),
                    false => Next::Wait,
                }
            }
        }
    }

    /// Nothing is left here for others: has the log say that this host is gone, once.
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

/// Sends a signal to all processes here.
pub(in crate::daemon) fn signal_all(
    cx: &mut Context,
    tasks: &BTreeMap<Tid, LocalTask>,
    signal: i32,
) {
    for (tid, task) in tasks {
        if task.process {
            cx.emit(Output::Signal(*tid, signal));
        }
    }
}
