//! The shell of a simulated daemon: carries out the outputs of its state machine.

use super::state::{Event, World, process::Order};
use crate::sim::{network::Slot, program::MISSING_PROGRAM, queue::MS};
use vm_machine::{
    Input, LinkOutput, MoveOutput, Output, ProcessInput, ProcessOutput, RingOutput, StoreOutput,
};
use vm_wire::task::{FailKind, Failed};

impl World {
    /// Carries out one output of a daemon.
    pub(super) fn carry_out(&mut self, slot: Slot, output: Output) -> Result<(), String> {
        if !self.nodes[slot].is_alive() {
            return Ok(());
        }
        match output {
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
            Output::Coordinator(number, frame) => self.tell_coordinator(slot, number, frame),
            Output::Reject(conn, _) => self.reject(conn),
            Output::Task(tid, frame) => self.send_task(slot, tid, frame),
            Output::CloseTask(tid) => return Err(format!("{tid} is said to break the protocol")),
            Output::Console(conn, frame) => return self.console_answer(conn, &frame),
            Output::Lease(until) => self.set_lease(slot, until),
            Output::Note(text) => self.trace(|| format!("slot {slot}: {text}")),
            Output::End(why) => self.end_daemon(slot, why),
            Output::Link(order) => self.change_link(slot, order),
            Output::Process(order) => return self.use_process(slot, order),
            Output::Move(order) => return self.move_task(slot, order),
            Output::Store(order) => return self.use_shared_store(slot, order),
            Output::Ring(RingOutput::Open { id, ends }) => self.open_ring(slot, id, ends),
            Output::Ring(RingOutput::Forget(_)) => {}
            Output::Direct(order) => self.use_direct(slot, order),
        }
        Ok(())
    }

    fn change_link(&mut self, slot: Slot, order: LinkOutput) {
        match order {
            LinkOutput::Connect(host, address) => self.want_link(slot, host, &address),
            LinkOutput::Disconnect(host) => self.close_link(slot, host),
            // The simulated network has no addresses.
            LinkOutput::AllUp | LinkOutput::Missing(_) | LinkOutput::Address(_) => {}
        }
    }

    fn use_process(&mut self, slot: Slot, order: ProcessOutput) -> Result<(), String> {
        match order {
            ProcessOutput::FindProgram {
                question, program, ..
            } => self.find_program(slot, question, &program),
            ProcessOutput::Launch(spec) => return self.launch(slot, &spec),
            ProcessOutput::Signal(tid, signal) => self.signal(slot, tid, signal),
            ProcessOutput::MeasureUsage(question) => {
                let input = Input::Process(ProcessInput::Usage(question, Vec::new()));
                self.queue.after(MS, Event::Input(slot, input));
            }
            ProcessOutput::StartCoordinator { number, .. } => self.start_coordinator(slot, number),
            ProcessOutput::EndCoordinator(number) => self.end_coordinator(slot, number),
            // Simulated tasks have no standard streams.
            ProcessOutput::Adopt(..)
            | ProcessOutput::StandardInput(..)
            | ProcessOutput::Resize(..)
            | ProcessOutput::LogOutput(..)
            | ProcessOutput::Attach(..)
            | ProcessOutput::PauseOutput(_)
            | ProcessOutput::ResumeOutput(_) => {}
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
        let input = Input::Process(ProcessInput::ProgramFound(question, found));
        self.queue.after(delay, Event::Input(slot, input));
    }

    /// Carries out an output that concerns the process of a task that moves, or that is frozen.
    fn move_task(&mut self, slot: Slot, order: MoveOutput) -> Result<(), String> {
        match order {
            MoveOutput::Copy {
                tid,
                addr,
                ticket,
                way,
                ..
            } => return self.copy(slot, tid, &addr, ticket, way),
            MoveOutput::Freeze(tid, way) => self.freeze(slot, tid, way),
            MoveOutput::CancelCopy(tid) => self.order(slot, tid, Order::Cancel),
            MoveOutput::Resume {
                tid, generation, ..
            } => self.order(slot, tid, Order::Go(generation)),
            MoveOutput::Expect { tid, ticket, .. } => self.expect(slot, tid, ticket),
            MoveOutput::Begin {
                tid,
                incarnation,
                generation,
                ..
            } => return self.begin(slot, tid, incarnation, generation),
            MoveOutput::Restore { tid, app, from, .. } => self.restore(slot, tid, app, from),
            MoveOutput::Discard(tid) => self.discard(slot, tid),
            // No simulated task is portable.
            MoveOutput::Hold(_) => {}
        }
        Ok(())
    }

    /// Carries out an order to the store. The hosts share it, or have stores of their own.
    fn use_shared_store(&mut self, slot: Slot, order: StoreOutput) -> Result<(), String> {
        match order {
            StoreOutput::Part {
                tid,
                app,
                epoch,
                by,
                ..
            } => {
                let way = ((app, epoch), by.is_copy());
                self.store.opened.insert((slot, tid), way);
            }
            StoreOutput::Commit(checkpoint) => {
                return self.commit(slot, &checkpoint);
            }
            StoreOutput::Drop { app, epoch, .. } => self.drop_checkpoint(slot, (app, epoch)),
            StoreOutput::Suspend {
                tid, name, number, ..
            } => self.open_shelf(slot, tid, name, number),
            StoreOutput::SendSuspended {
                ticket,
                addr,
                image,
                ..
            } => return self.send_suspended(slot, ticket, &addr, &image),
            StoreOutput::DropSuspended { name, .. } => self.drop_suspended(&name),
            StoreOutput::Load {
                question,
                app,
                from,
                ..
            } => self.load(slot, question, app, from),
            // The simulated store takes the image that a copy writes without this order.
            StoreOutput::PartOfCopy(_) => {}
            order => self.use_stores(slot, order),
        }
        Ok(())
    }
}
