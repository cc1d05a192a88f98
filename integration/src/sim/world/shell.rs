//! The shell of a simulated daemon: carries out the outputs of its state machine.

use super::state::{Connection, Event, World, process::Order};
use crate::sim::{
    network::Slot,
    node::State,
    program::{MISSING_PROGRAM, Sabotage},
    queue::{MS, Moment},
};
use vm_machine::{AT_ONCE, Input, Output, Time};
use vm_wire::{
    HostId, Message, Op,
    agreed::ExitStatus,
    console::Answer,
    task::{FailKind, Failed},
};

impl World {
    /// Carries out one output of a daemon.
    pub(super) fn carry_out(&mut self, slot: Slot, output: Output) -> Result<(), String> {
        if !self.nodes[slot].is_alive() {
            return Ok(());
        }
        match output {
            Output::Connect(host, address) => self.want_link(slot, host, &address),
            Output::Disconnect(host) => self.close_link(slot, host),
            Output::Peer(host, frame) => self.send_peer(slot, host, frame),
            Output::Joiner(conn, frame) => self.answer_joiner(conn, frame),
            Output::Welcome {
                conn,
                tid,
                frame,
                coordinator,
            } => {
                if let Some(number) = coordinator {
                    self.fork_coordinator(slot, number);
                }
                return self.welcome(slot, conn, tid, frame);
            }
            Output::StartCoordinator { number, .. } => self.start_coordinator(slot, number),
            Output::Coordinator(number, frame) => self.tell_coordinator(slot, number, frame),
            Output::EndCoordinator(number) => self.end_coordinator(slot, number),
            Output::Reject(conn, _) => self.reject(conn),
            Output::Task(tid, frame) => self.send_task(slot, tid, frame),
            Output::CloseTask(tid) => return Err(format!("{tid} is said to break the protocol")),
            Output::Console(conn, frame) => return self.console_answer(conn, &frame),
            Output::FindProgram {
                question, program, ..
            } => {
                let found = if program == MISSING_PROGRAM {
                    Err(Failed::new(FailKind::NoSuchProgram, "no such program"))
                } else {
                    Ok(format!("/bin/{program}"))
                };
                let delay = self.random.between(20, 2 * MS);
                let input = Input::ProgramFound(question, found);
                self.queue.after(delay, Event::Input(slot, input));
            }
            Output::Launch(spec) => return self.launch(slot, &spec),
            Output::Adopt(..) => {}
            Output::Signal(tid, signal) => self.signal(slot, tid, signal),
            Output::MeasureUsage(question) => {
                let input = Input::Usage(question, Vec::new());
                self.queue.after(MS, Event::Input(slot, input));
            }
            Output::Lease(until) => self.set_lease(slot, until),
            Output::Note(text) => self.trace(|| format!("slot {slot}: {text}")),
            Output::End(why) => self.end_daemon(slot, why),
            Output::Copy {
                tid,
                addr,
                ticket,
                way,
                ..
            } => return self.copy(slot, tid, &addr, ticket, way),
            // No simulated task is portable.
            Output::Hold(_) => {}
            Output::Freeze(tid, way) => self.freeze(slot, tid, way),
            Output::Store {
                tid,
                app,
                epoch,
                by,
                ..
            } => {
                let way = ((app, epoch), by.is_copy());
                self.store.opened.insert((slot, tid), way);
            }
            Output::Commit(checkpoint) => return self.commit(slot, &checkpoint),
            Output::Drop { app, epoch, .. } => self.drop_checkpoint(slot, (app, epoch)),
            Output::Suspend {
                tid, name, number, ..
            } => self.open_shelf(slot, tid, name, number),
            Output::SendSuspended {
                ticket,
                addr,
                image,
                ..
            } => return self.send_suspended(slot, ticket, &addr, &image),
            Output::DropSuspended { name, .. } => self.drop_suspended(&name),
            Output::StoreCopy(_) => {}
            Output::CancelCopy(tid) => self.order(slot, tid, Order::Cancel),
            Output::Resume {
                tid, generation, ..
            } => self.order(slot, tid, Order::Go(generation)),
            Output::Expect { tid, ticket, .. } => self.expect(slot, tid, ticket),
            output @ (Output::ExpectCopy { .. }
            | Output::CancelPart(_)
            | Output::SendPart { .. }
            | Output::Stock { .. }
            | Output::ForgetStored(_)) => self.use_stores(slot, output),
            Output::Begin {
                tid,
                incarnation,
                generation,
                ..
            } => return self.begin(slot, tid, incarnation, generation),
            Output::Discard(tid) => self.discard(slot, tid),
            Output::Linked
            | Output::NotLinked(_)
            | Output::Address(_)
            | Output::StandardInput(..)
            | Output::Resize(..)
            | Output::LogOutput(..)
            | Output::Attach(..)
            | Output::PauseOutput(_)
            | Output::ResumeOutput(_) => {}
            Output::Load {
                question,
                app,
                from,
                ..
            } => self.load(slot, question, app, from),
            Output::Restore { tid, app, from, .. } => self.restore(slot, tid, app, from),
        }
        Ok(())
    }

    /// Sets the timer that kills a daemon, or disarms it.
    fn set_lease(&mut self, slot: Slot, until: Option<Time>) {
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
    fn end_daemon(&mut self, slot: Slot, why: Result<String, String>) {
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
    fn console_answer(
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
                self.wish_answered(conn, &answer)
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
            self.queue
                .after(10, Event::Input(slot, Input::Console(conn, frame)));
        }
        conn
    }
}
