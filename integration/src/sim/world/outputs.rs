//! The shell of a simulated daemon: carries out the outputs of its state machine.

use super::state::{Event, World, process::Order};
use crate::sim::{network::Slot, program::MISSING_PROGRAM, queue::MS};
use vm_machine::{Input, Output};
use vm_wire::task::{FailKind, Failed};

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
            } => self.find_program(slot, question, &program),
            Output::Launch(spec) => return self.launch(slot, &spec),
            Output::Signal(tid, signal) => self.signal(slot, tid, signal),
            Output::MeasureUsage(question) => {
                let input = Input::Usage(question, Vec::new());
                self.queue.after(MS, Event::Input(slot, input));
            }
            Output::Lease(until) => self.set_lease(slot, until),
            Output::Note(text) => self.trace(|| format!("slot {slot}: {text}")),
            Output::End(why) => self.end_daemon(slot, why),
            Output::Discard(tid) => self.discard(slot, tid),
            output @ (Output::Copy { .. }
            | Output::Freeze(..)
            | Output::CancelCopy(_)
            | Output::Resume { .. }
            | Output::Expect { .. }
            | Output::Begin { .. }) => return self.move_task(slot, output),
            output @ (Output::Store { .. }
            | Output::Commit(_)
            | Output::Drop { .. }
            | Output::Suspend { .. }
            | Output::SendSuspended { .. }
            | Output::DropSuspended { .. }
            | Output::Load { .. }
            | Output::Restore { .. }) => return self.use_shared_store(slot, output),
            output @ (Output::ExpectCopy { .. }
            | Output::CancelPart(_)
            | Output::SendPart { .. }
            | Output::Stock { .. }
            | Output::ForgetStored(_)) => self.use_stores(slot, output),
            // No simulated task is portable.
            Output::Hold(_)
            // Simulated tasks have no standard streams, and the network has no addresses.
            | Output::Adopt(..)
            | Output::StoreCopy(_)
            | Output::Linked
            | Output::NotLinked(_)
            | Output::Address(_)
            | Output::StandardInput(..)
            | Output::Resize(..)
            | Output::LogOutput(..)
            | Output::Attach(..)
            | Output::PauseOutput(_)
            | Output::ResumeOutput(_) => {}
        }
        Ok(())
    }

    /// Looks a program up; every program but one exists.
    fn find_program(&mut self, slot: Slot, question: u64, program: &str) {
        let found = match program == MISSING_PROGRAM {
            true => Err(Failed::new(FailKind::NoSuchProgram, "no such program")),
            false => Ok(format!("/bin/{program}")),
        };
        let delay = self.random.between(20, 2 * MS);
        let input = Input::ProgramFound(question, found);
        self.queue.after(delay, Event::Input(slot, input));
    }

    /// Carries out an output that concerns the process of a task that moves, or that is frozen.
    fn move_task(&mut self, slot: Slot, output: Output) -> Result<(), String> {
        match output {
            Output::Copy {
                tid,
                addr,
                ticket,
                way,
                ..
            } => return self.copy(slot, tid, &addr, ticket, way),
            Output::Freeze(tid, way) => self.freeze(slot, tid, way),
            Output::CancelCopy(tid) => self.order(slot, tid, Order::Cancel),
            Output::Resume {
                tid, generation, ..
            } => self.order(slot, tid, Order::Go(generation)),
            Output::Expect { tid, ticket, .. } => self.expect(slot, tid, ticket),
            Output::Begin {
                tid,
                incarnation,
                generation,
                ..
            } => return self.begin(slot, tid, incarnation, generation),
            other => unreachable!("{other:?} moves no task"),
        }
        Ok(())
    }

    /// Carries out an output that concerns images in the store that all hosts share.
    fn use_shared_store(&mut self, slot: Slot, output: Output) -> Result<(), String> {
        match output {
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
            Output::Load {
                question,
                app,
                from,
                ..
            } => self.load(slot, question, app, from),
            Output::Restore { tid, app, from, .. } => self.restore(slot, tid, app, from),
            other => unreachable!("{other:?} concerns no image in the store"),
        }
        Ok(())
    }
}
