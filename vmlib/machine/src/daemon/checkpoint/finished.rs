//! Applications that have ended well, and whose checkpoints this daemon removes.
//!
//! They are removed after [`limits::FINISHED_PAUSE`]: a user who ends tasks by a signal may be about to
//! end their daemons too, and then the end was not a good one.

use crate::{
    Output, StoreOutput,
    daemon::context::{Context, Timer},
};
use std::collections::BTreeSet;
use vm_wire::{HostId, Tid, limits};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Finished {
    apps: BTreeSet<Tid>,
}

impl Finished {
    /// All tasks of an application have ended, and well; its last task was on `host`.
    pub fn on_finished(&mut self, cx: &mut Context, app: Tid, host: HostId) {
        if host == cx.me || cx.has_own_stores() {
            self.apps.insert(app);
            cx.set_timer(cx.now + limits::FINISHED_PAUSE, Timer::Finished(app));
        }
    }

    /// Removes the checkpoints of a finished application, unless it was restarted meanwhile.
    pub fn clear(&mut self, cx: &mut Context, app: Tid) {
        let lives = cx.agreement.state().tasks_of(app).next().is_some();
        if self.apps.remove(&app) && !lives {
            cx.emit(StoreOutput::Forget(app));
            let shown = app.show(cx.machine);
            let text = format!("{shown} has ended well: its checkpoints are removed");
            cx.emit(Output::Note(text));
        }
    }

    /// Removes the checkpoints of all finished applications: the machine ends in order.
    pub fn clear_all(&mut self, cx: &mut Context) {
        for app in self.apps.clone() {
            self.clear(cx, app);
        }
    }

    /// Keeps all checkpoints: this daemon is told to stop.
    pub fn keep_all(&mut self) {
        self.apps.clear();
    }
}
