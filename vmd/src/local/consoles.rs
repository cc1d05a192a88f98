//! The way from a console's keyboard to a task's standard input.
//!
//! A console sends what is typed, or what its own input is redirected from, as fast as it can; the
//! task reads when it likes. So that nothing piles up here, the console is not read while much
//! waits for the task.

use crate::{context::Context, local::locals::Locals, process::processes::Processes};
use std::collections::BTreeMap;
use vm_machine::ConnId;
use vm_wire::Tid;

/// Above so many bytes that wait for a task its console is not read.
const TYPED_FULL: usize = 256 * 1024;

/// Which console feeds which task.
#[derive(Debug, Default)]
pub struct Consoles {
    feeds: BTreeMap<Tid, ConnId>,
    /// Those that are not read now.
    held: BTreeMap<Tid, ConnId>,
}

impl Consoles {
    /// From now on `conn` feeds `tid`.
    pub fn attach(&mut self, conn: ConnId, tid: Tid) {
        self.feeds.insert(tid, conn);
    }

    /// Bytes for a task's standard input; none: its end.
    pub fn type_in(
        &mut self,
        tid: Tid,
        bytes: &[u8],
        processes: &mut Processes,
        locals: &mut Locals,
        context: &mut Context,
    ) {
        processes.type_in(tid, bytes);
        if processes.typed(tid) > TYPED_FULL
            && let Some(&conn) = self.feeds.get(&tid)
        {
            locals.pause(conn, true, context);
            self.held.insert(tid, conn);
        }
    }

    /// Reads those consoles again whose tasks have read, or are gone.
    pub fn release(
        &mut self,
        processes: &mut Processes,
        locals: &mut Locals,
        context: &mut Context,
    ) {
        self.held.retain(|tid, conn| {
            let hold = processes.typed(*tid) > TYPED_FULL / 2;
            if !hold {
                locals.pause(*conn, false, context);
            }
            hold
        });
    }

    /// The task has ended.
    pub fn detach(&mut self, tid: Tid) {
        self.feeds.remove(&tid);
    }
}
