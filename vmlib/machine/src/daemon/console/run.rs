//! One run: a master whose input and output belong to a console of this host.

use crate::{ConnId, Output, daemon::context::Context};
use std::collections::BTreeSet;
use vm_wire::{HostId, Message as _, agreed::ExitStatus, console::RunEnd};

/// A master that a console of this host runs.
#[derive(Debug)]
pub(super) struct Run {
    pub conn: ConnId,
    /// Whether the master has a terminal, which is that of the console.
    pub(super) has_terminal: bool,
    pub(super) input: RunInput,
    /// Bytes of output that were dropped and are not reported yet.
    pub(super) dropped: u64,
    /// The hosts on which tasks of the application have been.
    pub hosts: BTreeSet<HostId>,
    pub state: RunState,
}

/// The state of a run.
#[derive(Debug)]
pub(super) enum RunState {
    /// The master lives, or the application recovers or is suspended.
    Running,
    /// The master has ended; lines of other tasks may follow.
    Ending(Ending),
    /// The console was notified of the end.
    Reported,
}

/// The standard input that a run has received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunInput {
    /// Nothing yet.
    Open,
    /// Bytes, which the master may not have read completely.
    Fed,
    /// Its end, without any byte.
    Empty,
}

impl Run {
    /// The reason why the master cannot leave the host of its console, if there is one.
    pub(super) fn ties_master(&self) -> Option<&'static str> {
        match (self.has_terminal, self.input) {
            (true, _) => Some(
                "its terminal is a console of this host; end the run and start the program with 'vm \
                 spawn' or with 'vm run' and '</dev/null >FILE', or 'vm stop --checkpoint' it and 'vm \
                 restart --detach'",
            ),
            (false, RunInput::Open | RunInput::Fed) => Some(
                "its standard input comes from a console of this host; start it with '</dev/null', or \
                 'vm stop --checkpoint' it and 'vm restart' it",
            ),
            (false, RunInput::Empty) => None,
        }
    }

    /// Notifies the console of the end of its run. Without a status, the run continues on another
    /// host.
    pub fn report_end(&mut self, cx: &mut Context, status: Option<ExitStatus>) {
        self.state = RunState::Reported;
        cx.emit(Output::Console(self.conn, RunEnd { status }.frame()));
    }
}

/// The end of a master whose console is not notified yet.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) status: ExitStatus,
    /// The hosts from which lines may still come.
    pub(super) awaited: BTreeSet<HostId>,
}
