//! The life of a simulated daemon: its lease, its end, and its consoles.

use super::state::{Connection, Event, World};
use crate::sim::{
    network::Slot,
    node::State,
    program::Sabotage,
    queue::{MS, Moment},
};
use vm_machine::{AT_ONCE, ConsoleInput, Input, Time};
use vm_wire::{HostId, Message, Op, agreed::ExitStatus, console::Answer, task::FailKind};

impl World {
    /// Sets the timer that kills a daemon, or disarms it.
    pub(super) fn set_lease(&mut self, slot: Slot, until: Option<Time>) {
        let node = &mut self.nodes[slot];
        let Some(until) = until else {
            node.lease_at = None;
            return;
        };
        let at = node.clock.when(until);
        // There is one event for each daemon; when it happens, it checks whether the lease was
        // renewed.
        if node.lease_at.replace(at).is_none() {
            self.queue.at(at, Event::Lease(slot, at));
        }
    }

    /// Handles the moment at which a lease was to end when its timer was set.
    pub(super) fn lease_ends(&mut self, slot: Slot, at: Moment) -> Result<(), String> {
        let node = &self.nodes[slot];
        let Some(until) = node.lease_at.filter(|_| node.is_alive()) else {
            return Ok(());
        };
        if until > at {
            self.queue.at(until, Event::Lease(slot, until));
        } else if self.options.sabotage != Some(Sabotage::NoLeaseTimer) {
            self.trace(|| format!("slot {slot}: its lease has ended"));
            self.kill_daemon(slot);
        }
        Ok(())
    }

    /// Ends a daemon by itself.
    pub(super) fn end_daemon(&mut self, slot: Slot, why: Result<String, String>) {
        self.trace(|| format!("slot {slot} ends: {why:?}"));
        let in_order = why.is_ok_and(|why| why != AT_ONCE);
        self.daemon_gone(slot, in_order);
    }

    /// Kills the process of a daemon by SIGKILL.
    pub(super) fn kill_daemon(&mut self, slot: Slot) {
        self.daemon_gone(slot, false);
    }

    fn daemon_gone(&mut self, slot: Slot, in_order: bool) {
        self.count_moves(slot);
        let node = &mut self.nodes[slot];
        node.state = State::Down;
        node.daemon = None;
        node.deferred.clear();
        node.lease_at = None;
        let host = node.host;
        if !in_order && host != HostId::NONE {
            self.crashed.insert(host);
        }
        self.close_links(slot);
        self.lose_coordinators_of(slot);
        // The parent-death signal ends the tasks, which may take a moment.
        for process in self.processes_of(slot) {
            let delay = self.random.below(5 * MS);
            self.queue.after(delay, Event::Kill(process, 9));
        }
    }

    /// The exit status of a process, as its daemon gets it.
    pub(super) fn process_status(signal: Option<i32>, status: i32) -> ExitStatus {
        signal.map_or(ExitStatus::Code(status), ExitStatus::Signal)
    }

    /// Handles a reply to a console. No request of a console is malformed here.
    pub(super) fn console_answer(
        &mut self,
        conn: vm_machine::ConnId,
        frame: &vm_wire::Frame,
    ) -> Result<(), String> {
        if frame.header.op != Op::ConsoleAnswer {
            return Ok(());
        }
        match Answer::read(frame) {
            Ok(Answer::Failed(failed)) if failed.kind == FailKind::BadRequest => {
                Err(format!("a console's request failed: {failed}"))
            }
            // The first reply is that of the exchange of versions.
            Ok(answer) if frame.header.request == 2 => {
                self.drain_answered(conn, &answer)?;
                self.checkpoint_answered(conn, &answer)?;
                self.on_reply(conn, &answer)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a request to a daemon from a console that ignores the reply.
    pub(super) fn ask_console(&mut self, slot: Slot, request: &vm_wire::console::Request) {
        let conn = self.ask_for(slot, request);
        let patience = 20_000 * MS;
        self.queue
            .after(patience, Event::Input(slot, Input::ConnGone(conn)));
    }

    /// Sends a request to a daemon from a console that waits for the reply.
    pub(super) fn ask_for(
        &mut self,
        slot: Slot,
        request: &vm_wire::console::Request,
    ) -> vm_machine::ConnId {
        use vm_wire::{console::Request, version::Offer};
        let conn = self.new_connection(Connection::Console);
        let first = Request::Version(Offer::OURS).frame().asked(1);
        let second = request.frame().asked(2);
        for frame in [first, second] {
            self.queue.after(
                10,
                Event::Input(slot, Input::Console(ConsoleInput::Frame(conn, frame))),
            );
        }
        conn
    }
}
