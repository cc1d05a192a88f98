//! The shell of the daemons: it carries out their outputs.

use super::{World, order_of, pair};
use vm_machine::{
    DirectOutput, Input, LinkOutput, MoveInput, MoveOutput, Outbox, Output, ProcessInput,
    ProcessOutput, RingOutput, StoreOutput,
};
use vm_wire::{
    HostId, Op,
    peer::{Order, UsageRow},
    task::{FailKind, Failed},
};

impl World {
    pub(super) fn carry_out(&mut self, host: HostId, out: Outbox) {
        for output in out {
            self.carry_out_one(host, output);
        }
    }

    fn carry_out_one(&mut self, host: HostId, output: Output) {
        let left = self.use_disk(host, output);
        let left = left.and_then(|output| self.use_network(host, output));
        let left = left.and_then(|output| self.use_connections(host, output));
        let left = left.and_then(|output| self.start_processes(host, output));
        let left = left.and_then(|output| self.use_processes(host, output));
        let left = left.and_then(|output| self.save_images(host, output));
        let left = left.and_then(|output| self.restore_images(host, output));
        if let Some(output) = left {
            self.note(host, output);
        }
    }

    /// Links, and frames to other hosts. Returns the output if it is another.
    fn use_network(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Link(LinkOutput::Connect(to, _)) => self.connect(host, to),
            Output::Link(LinkOutput::Disconnect(to)) => {
                self.noted.push(format!("{host} disconnects {to}"));
                self.disconnect(host, to);
            }
            Output::Peer(to, frame) => {
                let link = pair(host, to);
                assert!(!self.nodes[&host].dead);
                let lost = |order: Order| self.lost.is_some_and(|lost| lost(&order));
                let late =
                    self.behind == Some(to) && matches!(frame.header.op, Op::Raft | Op::Feed);
                if self.links.contains(&link) && !late && !order_of(&frame).is_some_and(lost) {
                    self.input(to, Input::Peer(host, frame));
                }
            }
            Output::Joiner(conn, frame) => {
                if let Some((_, answer)) = self.joiners.get_mut(&conn) {
                    *answer = Some(frame);
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Connections of processes, consoles and coordinators. Returns the output if it is another.
    fn use_connections(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Welcome {
                conn,
                tid,
                frame,
                coordinator,
            } => {
                self.welcome(host, conn, tid, &frame);
                coordinator
                    .into_iter()
                    .for_each(|number| self.start_coordinator(host, number));
            }
            Output::Process(ProcessOutput::StartCoordinator { number, .. }) => {
                self.start_coordinator(host, number)
            }
            Output::Coordinator(number, frame) => self.tell_coordinator(host, number, frame),
            Output::Process(ProcessOutput::EndCoordinator(number)) => {
                self.coordinators.remove(&(host, number));
            }
            Output::Reject(conn, frame) => {
                self.rejected.insert(conn, frame);
            }
            Output::Task(tid, frame) => {
                if self.processes[&tid].host == host {
                    self.tell_task(tid, frame);
                }
            }
            Output::CloseTask(tid) => {
                self.closed.push(tid);
                self.input(host, Input::TaskGone(tid));
            }
            Output::Console(conn, frame) => {
                self.consoles.entry(conn).or_default().push(frame);
            }
            other => return Some(other),
        }
        None
    }

    /// Programs and their processes. Returns the output if it is another.
    fn start_processes(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Process(ProcessOutput::FindProgram {
                question, program, ..
            }) => {
                let found = match program.as_str() {
                    "missing" => Err(Failed::new(FailKind::NoSuchProgram, "no 'missing'")),
                    "far" => {
                        self.far.push((host, question));
                        return None;
                    }
                    program => Ok(format!("/bin/{program}")),
                };
                self.input(host, ProcessInput::ProgramFound(question, found));
            }
            Output::Process(ProcessOutput::Launch(spec)) if spec.program == "/bin/slow" => {
                self.slow.push((host, spec))
            }
            Output::Process(ProcessOutput::Launch(spec)) => {
                let broken = spec.program == "/bin/broken";
                let tid = spec.tid;
                self.add_process(tid, host, &spec.program, Some(spec.token));
                if broken {
                    self.processes.get_mut(&tid).expect("added").alive = false;
                    let failed = Failed::new(FailKind::System, "exec format error");
                    self.input(host, ProcessInput::LaunchFailed(tid, failed));
                } else {
                    self.input(host, ProcessInput::Launched(tid, 100 + tid.sequence()));
                    if !spec.program.contains("silent") {
                        self.enrol(tid);
                    }
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Signals, input and output, usage. Returns the output if it is another.
    fn use_processes(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Process(ProcessOutput::Adopt(tid, _)) => {
                self.add_process(tid, host, "shell", None)
            }
            Output::Process(ProcessOutput::Signal(tid, signal)) => {
                self.signalled(host, tid, signal)
            }
            Output::Process(ProcessOutput::StandardInput(tid, bytes)) => {
                let process = self.processes.get_mut(&tid).expect("a process");
                process.input.extend(bytes);
            }
            Output::Process(ProcessOutput::LogOutput(tid, _, bytes)) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.log.push((tid, text));
            }
            Output::Process(ProcessOutput::MeasureUsage(question)) => {
                let here = self
                    .processes
                    .iter()
                    .filter(|(_, p)| p.host == host && p.alive);
                let rows = here.map(|(tid, _)| UsageRow {
                    tid: *tid,
                    pid: 100 + tid.sequence(),
                    cpu_ms: 5,
                    memory: 4096,
                    state: 'R',
                });
                let rows = rows.collect();
                self.input(host, ProcessInput::Usage(question, rows));
            }
            other => return Some(other),
        }
        None
    }

    /// Images that are written. Returns the output if it is another.
    fn save_images(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Move(MoveOutput::Copy {
                tid,
                ticket,
                way,
                folders,
                ..
            }) => {
                self.folders = folders;
                self.copy(host, tid, ticket, way);
            }
            Output::Move(MoveOutput::Hold(tid)) => match self.store.late.contains(&tid) {
                true => drop(self.store.told_to_hold.insert(tid, host)),
                false => self.input(host, MoveInput::Held(tid)),
            },
            Output::Move(MoveOutput::Freeze(tid, _)) => match self.storing.remove(&tid) {
                Some(epoch) => self.freeze_to_store(host, tid, epoch),
                None if self.suspending.contains_key(&tid) => self.freeze_to_shelf(host, tid),
                None => self.freeze(host, tid),
            },
            Output::Store(StoreOutput::Part { tid, epoch, by, .. }) => {
                self.storing.insert(tid, epoch);
                if by.is_copy() {
                    self.store.ways.insert(tid, host);
                }
            }
            Output::Store(StoreOutput::Commit(checkpoint)) => self.commit(host, *checkpoint),
            Output::Store(StoreOutput::Drop { epoch, .. }) => {
                self.noted.push(format!("drop {epoch}"))
            }
            Output::Store(StoreOutput::PartOfCopy(tid)) => drop(self.store.ways.remove(&tid)),
            Output::Move(MoveOutput::CancelCopy(tid)) => {
                self.copies.remove(&tid);
                self.store.told_to_hold.remove(&tid);
                self.store.cancel(tid);
            }
            Output::Move(MoveOutput::Resume { tid, writes, .. }) => {
                if !writes {
                    self.store.cancel(tid);
                }
                self.resume(host, tid);
            }
            Output::Move(MoveOutput::Expect { tid, ticket, .. }) => {
                self.expected.insert(ticket, (host, tid));
            }
            Output::Move(MoveOutput::Begin {
                tid, generation, ..
            }) => self.begin_arrived(host, tid, generation),
            other => return Some(other),
        }
        None
    }

    /// Images that are read, and those in the store. Returns the output if it is another.
    fn restore_images(&mut self, host: HostId, output: Output) -> Option<Output> {
        match output {
            Output::Store(StoreOutput::Load {
                question,
                app,
                from,
                verify,
            }) => self.load(host, question, (app, from), verify),
            Output::Move(MoveOutput::Restore {
                tid,
                from,
                keep_files,
                ..
            }) => {
                self.store.keep_files.insert(tid, keep_files);
                self.restore(host, tid, from);
            }
            Output::Move(MoveOutput::Discard(tid)) => {
                self.expected.retain(|_, awaited| *awaited != (host, tid));
                self.standing.remove(&(host, tid));
            }
            Output::Store(StoreOutput::ExpectCopy { .. })
            | Output::Store(StoreOutput::CancelPart(_))
            | Output::Store(StoreOutput::SendPart { .. })
            | Output::Store(StoreOutput::Inventory { .. }) => panic!("all hosts share a store"),
            Output::Store(StoreOutput::Forget(app)) => self.forgotten.push((host, app)),
            Output::Store(StoreOutput::Suspend {
                tid, name, number, ..
            }) => drop(self.suspending.insert(tid, (name, number))),
            Output::Store(StoreOutput::SendSuspended { ticket, image, .. }) => {
                self.send_suspended(ticket, &image.name)
            }
            Output::Store(StoreOutput::DropSuspended { name, .. }) => {
                drop(self.shelf.remove(&name))
            }
            other => return Some(other),
        }
        None
    }

    fn use_direct(&mut self, host: HostId, order: DirectOutput) {
        match order {
            DirectOutput::Expect(connection) => self.directs.expected.push((host, *connection)),
            DirectOutput::Open { tid, frame, .. } => self.tell_task(tid, frame),
            DirectOutput::Forget(id) => self.directs.expected.retain(|(_, it)| it.id != id),
            DirectOutput::Nudge { tid, id } => self.directs.nudged.push((tid, id)),
        }
    }

    /// Outputs that a test looks at, and the end of a daemon.
    fn note(&mut self, host: HostId, output: Output) {
        match output {
            Output::Process(ProcessOutput::Resize(tid, size)) => {
                self.noted.push(format!("resize {tid} {}", size.rows))
            }
            Output::Process(ProcessOutput::Attach(_, tid)) => {
                self.noted.push(format!("attach {tid}"))
            }
            Output::Process(ProcessOutput::PauseOutput(tid)) => {
                self.noted.push(format!("pause {tid}"))
            }
            Output::Process(ProcessOutput::ResumeOutput(tid)) => {
                self.noted.push(format!("resume {tid}"))
            }
            Output::Direct(order) => self.use_direct(host, order),
            Output::Lease(_) | Output::Ring(RingOutput::Forget(_)) => {}
            Output::Ring(RingOutput::Open { ends, .. }) => {
                for (tid, frame) in *ends {
                    self.tell_task(tid, frame);
                }
            }
            Output::Link(LinkOutput::AllUp) => self.noted.push(format!("{host} has arrived")),
            Output::Link(LinkOutput::Missing(others)) => {
                self.noted
                    .push(format!("{host} is not linked to {others:?}"));
            }
            Output::Link(LinkOutput::Address(addr)) => {
                self.noted.push(format!("{host} is at {addr}"))
            }
            Output::Note(text) => self.noted.push(text),
            Output::End(how) => {
                self.nodes.get_mut(&host).expect("a node").end = Some(how);
                self.stop_host(host);
            }
            other => panic!("no test world carries out {other:?}"),
        }
    }
}
