//! Carries out the outputs of the state machine: each output becomes a call of the module that
//! makes the system calls.

use crate::{
    event_loop::shell::EventLoop,
    fault::{self, Strike},
    image::{
        moves::{Copied, Stored},
        store::CheckpointQuery,
        transfer::Back,
    },
    process::helper_job::Form,
};
use std::io;
use vm_machine::{DirectOutput, LinkOutput, MoveOutput, Output, ProcessOutput, StoreOutput, Time};
use vm_store::{CheckpointId, Depth};
use vm_wire::{
    Frame, HostId, Tid,
    interrupt::{Folders, Order},
    limits,
    peer::MoveWay,
};

impl EventLoop {
    /// Carries out one output.
    pub(super) fn perform(&mut self, output: Output) {
        let context = &mut self.context;
        match output {
            Output::Peer(host, frame) => self.send_to_peer(host, frame),
            Output::Task(tid, frame) => self.locals.send_to_task(tid, frame, context),
            Output::Console(conn, frame) => self.locals.send_to_console(conn, frame, context),
            Output::Joiner(conn, frame) => self.links.send_to_joiner(conn, frame, context),
            Output::Coordinator(number, frame) => {
                self.coordinators.send(number, &frame, context);
            }
            Output::Welcome {
                conn,
                tid,
                frame,
                coordinator,
            } => {
                let socket = coordinator.and_then(|number| self.coordinators.open(number, context));
                self.locals.welcome(conn, tid, &frame, socket, context);
            }
            Output::Reject(conn, frame) => self.locals.reject(conn, &frame, context),
            Output::CloseTask(tid) => self.locals.close_task(tid, context),
            Output::Link(order) => self.perform_link(order),
            Output::Process(order) => self.perform_process(order),
            Output::Move(order) => self.perform_move(order),
            Output::Store(order) => self.perform_store(order),
            Output::Ring(order) => self.locals.change_ring(order, context),
            Output::Direct(order) => self.perform_direct(order),
            Output::Lease(end) => self.set_lease(end),
            Output::Note(text) => log::info!("{text}"),
            Output::End(result) => self.ended = Some(self.arrival.end(result, &self.links)),
        }
    }

    /// Carries out an order about the links to other daemons.
    fn perform_link(&mut self, order: LinkOutput) {
        let (arrival, links, context) = (&mut self.arrival, &mut self.links, &mut self.context);
        match order {
            LinkOutput::Connect(host, addr) => links.connect(host, &addr, context),
            LinkOutput::Disconnect(host) => links.disconnect(host, context),
            LinkOutput::AllUp => arrival.linked(),
            LinkOutput::Missing(hosts) => arrival.not_linked(&hosts, links, context),
            LinkOutput::Address(addr) => arrival.told(&addr, &self.daemon, links, context),
        }
    }

    /// Carries out an order about direct connections of tasks.
    fn perform_direct(&mut self, order: DirectOutput) {
        match order {
            DirectOutput::Expect(connection) => self.links.directs.expect(connection),
            DirectOutput::Open { id, tid, frame } => {
                if let Some(socket) = self.links.directs.take(id) {
                    let context = &mut self.context;
                    self.locals.send_with(tid, frame, vec![socket], context);
                }
            }
            DirectOutput::Forget(id) => self.links.directs.forget(id),
            DirectOutput::Nudge { tid, id } => self.nudge(tid, id),
        }
    }

    /// Tells a task to send again what went by a direct connection. If its interrupt socket is full, it is
    /// told at a later turn.
    pub(super) fn nudge(&mut self, tid: Tid, id: u64) {
        let order = Order::Resend { id };
        match self.locals.interrupts.order(tid, order, None, None) {
            Ok(()) => self.processes.nudge(tid, libc::SIGURG),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A task that reads no order has used no more connections than it may have.
                let of_task = self.nudges.range((tid, 0)..=(tid, u64::MAX)).count();
                if of_task < limits::RINGS_PER_TASK {
                    self.nudges.insert((tid, id));
                }
            }
            // A task that cannot get the order has ended.
            Err(_) => {}
        }
    }

    /// Carries out an order about a process of this host.
    fn perform_process(&mut self, order: ProcessOutput) {
        let (processes, context) = (&mut self.processes, &mut self.context);
        match order {
            ProcessOutput::FindProgram {
                question,
                program,
                dir,
            } => context.inbox.extend(self.jobs.find(question, program, dir)),
            ProcessOutput::Launch(spec) => processes.launch(spec),
            ProcessOutput::Adopt(tid, pid) => processes.adopt(tid, pid, context),
            ProcessOutput::Signal(tid, signal) => processes.signal(tid, signal),
            ProcessOutput::StandardInput(tid, bytes) => self.type_in(tid, &bytes),
            ProcessOutput::Resize(tid, size) => processes.resize(tid, size),
            ProcessOutput::Attach(conn, tid) => self.consoles.attach(conn, tid),
            ProcessOutput::PauseOutput(tid) => processes.pause(tid, true, context),
            ProcessOutput::ResumeOutput(tid) => processes.pause(tid, false, context),
            ProcessOutput::LogOutput(tid, stream, bytes) => log_output(tid, stream, &bytes),
            ProcessOutput::MeasureUsage(question) => self.measure(question),
            ProcessOutput::StartCoordinator { number, app } => {
                self.coordinators.start(number, app, context);
            }
            ProcessOutput::EndCoordinator(number) => self.coordinators.end(number),
        }
    }

    /// Carries out a step of the move of a task that leaves this host, arrives at it, or is frozen
    /// on it.
    fn perform_move(&mut self, order: MoveOutput) {
        match order {
            MoveOutput::Copy {
                tid,
                addr,
                ticket,
                way,
                folders,
            } => self.open_move(tid, (&addr, ticket), way, folders),
            MoveOutput::Hold(tid) => self.moves.hold(tid, &mut self.locals, &mut self.processes),
            MoveOutput::Freeze(tid, way) => self.freeze(tid, way),
            MoveOutput::CancelCopy(tid) => {
                self.moves
                    .cancel(tid, &mut self.locals, &mut self.processes);
            }
            MoveOutput::Expect {
                tid,
                ticket,
                roll_back,
                folders,
            } => self.moves.expect(tid, ticket, Back { roll_back, folders }),
            MoveOutput::Begin {
                tid,
                generation,
                raw,
                ..
            } => self.begin(tid, generation, raw),
            MoveOutput::Resume {
                tid,
                generation,
                writes,
            } => self.moves.go(tid, generation, writes, &mut self.locals),
            MoveOutput::Discard(tid) => self.discard(tid),
            MoveOutput::Restore {
                tid,
                app,
                from,
                image,
                keep_files,
                folders,
            } => {
                let stored = Stored {
                    app,
                    from,
                    image: &image,
                    how: Back {
                        roll_back: !keep_files,
                        folders,
                    },
                };
                self.restore(tid, stored);
            }
        }
    }

    /// Carries out an order to the store: images that are written to it or read from it, and work
    /// on its folder, which threads do.
    fn perform_store(&mut self, order: StoreOutput) {
        let context = &mut self.context;
        match order {
            StoreOutput::Part {
                tid,
                app,
                generation,
                epoch,
                by,
                second,
                full,
                compress,
            } => {
                let form = Form {
                    second,
                    full,
                    compress,
                    cached: false,
                };
                let process = self.processes.pid(tid);
                let at = (app, CheckpointId::new(generation, epoch));
                self.moves.store(tid, at, form, by, process, context);
            }
            StoreOutput::PartOfCopy(tid) => {
                let process = self.processes.pid(tid);
                self.moves.store_copy(tid, process, context);
            }
            StoreOutput::ExpectCopy {
                ticket,
                app,
                from,
                part,
                ..
            } => {
                let id = from;
                self.moves.expect_copy(ticket, Copied { app, id, part });
            }
            StoreOutput::CancelPart(ticket) => self.moves.cancel_part(ticket),
            StoreOutput::SendPart {
                ticket,
                addr,
                app,
                from,
                part,
                file,
            } => {
                let id = from;
                let part = Copied { app, id, part };
                self.moves.send_part((&addr, ticket), &part, file, context);
            }
            StoreOutput::Suspend {
                tid,
                app,
                name,
                number,
            } => self.moves.suspend(tid, app, (&name, number), context),
            StoreOutput::SendSuspended {
                ticket,
                addr,
                app,
                image,
            } => self
                .moves
                .send_suspended((&addr, ticket), app, &image, context),
            StoreOutput::Commit(checkpoint) => context.inbox.extend(self.jobs.commit(checkpoint)),
            StoreOutput::Drop {
                app,
                generation,
                epoch,
            } => {
                let id = CheckpointId::new(generation, epoch);
                self.jobs.drop_checkpoint(app, id);
            }
            StoreOutput::DropSuspended { app, name } => self.jobs.drop_suspended(app, name),
            StoreOutput::Forget(app) => self.jobs.forget(app),
            StoreOutput::Load {
                question,
                app,
                from,
                verify,
            } => context
                .inbox
                .extend(self.jobs.load(question, query(app, from, verify))),
            StoreOutput::Inventory {
                question,
                app,
                from,
                verify,
            } => context
                .inbox
                .extend(self.jobs.stock(question, query(app, from, verify))),
        }
    }

    fn send_to_peer(&mut self, host: HostId, frame: Frame) {
        if let Strike::Delay(time) = fault::at_frame("send", &frame) {
            self.links.hold(host, self.context.now + time);
        }
        self.links.send(host, frame, &mut self.context);
    }

    fn type_in(&mut self, tid: Tid, bytes: &[u8]) {
        let (processes, locals) = (&mut self.processes, &mut self.locals);
        self.consoles
            .type_in(tid, bytes, processes, locals, &mut self.context);
    }

    fn measure(&mut self, question: u64) {
        let reply = self.jobs.measure(question, self.processes.living());
        self.context.inbox.extend(reply);
    }

    /// Tells the kernel's timer and the guardian when the lease ends. If the timer cannot be set,
    /// the daemon ends: nothing else would end its tasks in time.
    fn set_lease(&mut self, end: Option<Time>) {
        self.guardian.note_lease(end);
        if let Err(error) = self.lease.set(end) {
            let why = format!("the lease's timer cannot be set: {error}");
            self.ended = Some(Err(why));
        }
    }

    /// Opens the connection for a task's image to another host. With pre-copy, the task begins to
    /// write.
    fn open_move(&mut self, tid: Tid, to: (&str, u64), way: MoveWay, folders: Option<Folders>) {
        let context = &mut self.context;
        self.moves.open(tid, to, folders, context);
        if way.precopy {
            let (locals, processes) = (&mut self.locals, &mut self.processes);
            self.moves.copy(tid, way, locals, processes, context);
        }
    }

    fn freeze(&mut self, tid: Tid, way: MoveWay) {
        let (locals, processes) = (&mut self.locals, &mut self.processes);
        self.moves
            .freeze(tid, way, locals, processes, &mut self.context);
    }

    /// Resumes a task that has arrived: the task belongs to this host now.
    fn begin(&mut self, tid: Tid, generation: u32, raw: bool) {
        fault::at("begin");
        self.processes.begin(tid, raw);
        self.moves.go(tid, generation, false, &mut self.locals);
    }

    fn restore(&mut self, tid: Tid, stored: Stored<'_>) {
        let (locals, processes) = (&mut self.locals, &mut self.processes);
        self.moves
            .restore(tid, stored, locals, processes, &mut self.context);
    }

    /// Ends the process of a task that belongs to another host, or to none.
    fn discard(&mut self, tid: Tid) {
        fault::at("discard");
        self.moves.forget(tid);
        self.locals.discard(tid, &mut self.context);
        self.processes.discard(tid, self.context.now);
    }
}

/// Logs, line by line, what a task without a console has written.
fn log_output(tid: Tid, stream: u8, bytes: &[u8]) {
    for line in String::from_utf8_lossy(bytes).lines() {
        log::info!(target: "task", "{tid} {stream}> {line}");
    }
}

/// The query for a checkpoint. With `verify` the store reads all bytes; without it, the store
/// compares lengths.
fn query(app: Tid, from: Option<CheckpointId>, verify: bool) -> CheckpointQuery {
    let depth = match verify {
        true => Depth::Hashes,
        false => Depth::Lengths,
    };
    CheckpointQuery { app, from, depth }
}
