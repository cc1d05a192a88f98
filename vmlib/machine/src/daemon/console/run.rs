//! One run: a master whose input and output belong to a console of this host.

use crate::{ConnId, Output, daemon::context::Context};
use std::collections::BTreeSet;
use vm_wire::{HostId, Message as _, agreed::ExitStatus, console::RunEnd};

/// A master that a console here runs.
#[derive(Debug)]
pub(super) struct Run {
    pub conn: ConnId,
    /// Whether its master has a terminal, which is the console's.
    pub(super) has_terminal: bool,
    pub(super) input: RunInput,
    /// Bytes that were dropped and not reported yet.
    pub(super) dropped: u64,
    /// The hosts that bore tasks of the application.
    pub hosts: BTreeSet<HostId>,
    pub state: RunState,
}

/// How far a run is.
#[derive(Debug)]
pub(super) enum RunState {
    /// Its master lives, or will live again.
    Running,
    /// Its master has ended; lines of other tasks may follow.
    Ending(Ending),
    /// The console was told of the end.
    Reported,
}

/// What has come for the standard input of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunInput {
    /// Nothing yet.
    Open,
    /// Bytes; its master may not have read all of them.
    Fed,
    /// Nothing but its end.
    Empty,
}

impl Run {
    /// The reason why its master cannot leave the host of its console.
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

    /// Tells the console of the end of its run; no status: the run goes on elsewhere.
    pub fn report_end(&mut self, cx: &mut Context, status: Option<ExitStatus>) {
        self.state = RunState::Reported;
        cx.emit(Output::Console(self.conn, RunEnd { status }.frame()));
    }
}

/// The end of a master, until its console is told.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) status: ExitStatus,
    /// The hosts from which lines may still come.
    pub(super) awaited: BTreeSet<HostId>,
}
