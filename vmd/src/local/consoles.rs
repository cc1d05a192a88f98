//! The flow from a console's keyboard to a task's standard input.
//!
//! A console sends typed or redirected input as fast as it can; the task reads at its own pace. To
//! bound the bytes in the daemon, the daemon does not read from the console while many bytes wait
//! for the task.

use crate::{context::Context, local::locals::Locals, process::processes::Processes};
use std::collections::BTreeMap;
use vm_machine::ConnId;
use vm_wire::Tid;

/// The daemon does not read from a console while more than this number of bytes wait for its task.
const TYPED_FULL: usize = 256 * 1024;

/// Which console feeds which task.
#[derive(Debug, Default)]
pub struct Consoles {
    feeds: BTreeMap<Tid, ConnId>,
    /// Consoles that the daemon does not read from at present.
    held: BTreeMap<Tid, ConnId>,
}

impl Consoles {
    /// From now on the console `conn` feeds the task `tid`.
    pub fn attach(&mut self, conn: ConnId, tid: Tid) {
        self.feeds.insert(tid, conn);
    }

    /// Passes bytes to a task's standard input. No bytes mean the end of the input.
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

    /// Reads again from the consoles whose tasks have read enough, or have ended.
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

    /// Forgets the console of a task that has ended.
    pub fn detach(&mut self, tid: Tid) {
        self.feeds.remove(&tid);
    }
}
