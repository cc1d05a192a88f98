//! The processes of tasks: how they start, get their Welcome, run, and end.

use super::{
    TASKS_WANTED,
    links::describe,
    state::{
        Connection, Event, World,
        fault::Ambush,
        process::{Gait, Process},
    },
};
use crate::sim::{
    network::Slot,
    program::{PROGRAM, Pause, Program, Scene},
    queue::{MS, Moment, SECOND},
    ring_memory::Memory,
};
use std::collections::{BTreeSet, VecDeque};
use vm_machine::{ConnId, Input, LaunchSpec, ProcessInput, Time};
use vm_wire::{
    Frame, Message, Op, Tid,
    console::Request,
    task::{Enrol, Place, Spawn, Welcome},
    version::Offer,
};

/// Bound on the roster. Tasks that ended stay in it for a while, so that some messages go to ended
/// tasks.
const ROSTER_MAX: usize = TASKS_WANTED * 2;
/// Number of applications in a world in which tasks send only to tasks of their own application.
const APPS_WANTED: usize = 4;
/// First process id. The id of a process is this plus its number, so that each id is used once.
const PID_FIRST: u32 = 1_000;

impl World {
    pub(super) fn new_process(&mut self, slot: Slot, tid: Tid, token: Option<u64>) -> usize {
        let random = self.random.split();
        self.processes.push(Process {
            slot,
            tid,
            alive: true,
            conn: None,
            program: None,
            full: false,
            dropped: BTreeSet::new(),
            token,
            socket: VecDeque::new(),
            memory: VecDeque::new(),
            pipes: VecDeque::new(),
            arrival_in: 0,
            arrival_out: 0,
            wake_at: None,
            gait: Gait::Runs,
            copying: None,
            orders: Vec::new(),
            images: (0, 0),
            arrival_order: 0,
            arrival_report: 0,
            freeze: None,
            came_from: None,
            offset: 0,
            pending_signal: None,
            discarded: false,
            random,
        });
        self.processes.len() - 1
    }

    /// A daemon starts the process of a task.
    pub(super) fn launch(&mut self, slot: Slot, spec: &LaunchSpec) -> Result<(), String> {
        let tid = spec.tid;
        if !self.launched.insert(tid) {
            return Err(format!("{tid} is started a second time"));
        }
        let process = self.new_process(slot, tid, Some(spec.token));
        let pid = PID_FIRST + process as u32;
        let delay = self.random.between(200, 5 * MS);
        self.queue.after(
            delay,
            Event::Input(slot, Input::Process(ProcessInput::Launched(tid, pid))),
        );
        let delay = delay + self.random.between(100, 30 * MS);
        self.queue.after(delay, Event::Enrol(process));
        Ok(())
    }

    /// Handles the first frame of a process.
    pub(super) fn enrol(&mut self, index: usize) -> Result<(), String> {
        if !self.processes[index].alive {
            return Ok(());
        }
        let conn = self.new_connection(Connection::Process(index));
        let process = &mut self.processes[index];
        process.conn = Some(conn);
        let enrol = Enrol {
            offer: Offer::OURS,
            token: process.token,
            program: PROGRAM.to_owned(),
        };
        let pid = PID_FIRST + index as u32;
        let slot = process.slot;
        self.feed(slot, Input::Enrol { conn, pid, enrol })
    }

    /// A daemon makes a connection the data socket of a task.
    pub(super) fn welcome(
        &mut self,
        slot: Slot,
        conn: ConnId,
        tid: Tid,
        frame: Frame,
    ) -> Result<(), String> {
        let Some(&Connection::Process(index)) = self.connections.get(&conn) else {
            return Err(format!(
                "{tid} is welcomed on a connection that is no process"
            ));
        };
        let process = &mut self.processes[index];
        if !process.tid.is_none() && process.tid != tid {
            return Err(format!("{} is welcomed as {tid}", process.tid));
        }
        process.tid = tid;
        self.launched.insert(tid);
        let twice = |(other, process): (usize, &Process)| {
            other != index && process.alive && process.tid == tid
        };
        if self.processes.iter().enumerate().any(twice) {
            return Err(format!("{tid} runs twice"));
        }
        self.send_task(slot, tid, frame);
        Ok(())
    }

    /// A daemon refuses the enrolment of a process.
    pub(super) fn reject(&mut self, conn: ConnId) {
        if let Some(&Connection::Process(index)) = self.connections.get(&conn) {
            self.queue.after(MS, Event::Kill(index, 15));
        }
    }

    /// A daemon writes a frame into a task's socket.
    pub(super) fn send_task(&mut self, slot: Slot, tid: Tid, frame: Frame) {
        let now = self.queue.now();
        let latency = self.random.between(5, 60);
        let Some(index) = self.process_of(slot, tid) else {
            return;
        };
        let process = &mut self.processes[index];
        if process.full && matches!(frame.header.op, Op::Data | Op::Ack) {
            process.dropped.insert((frame.header.from, frame.header.to));
            return;
        }
        process.arrival_in = process.arrival_in.max(now + latency);
        self.queue
            .at(process.arrival_in, Event::ToTask(index, frame));
    }

    /// Handles a frame that has arrived in a task's socket.
    pub(super) fn in_socket(&mut self, index: usize, frame: Frame) -> Result<(), String> {
        let now = self.queue.now();
        let process = &mut self.processes[index];
        if !process.alive {
            return Ok(());
        }
        if self.options.trace {
            let tid = process.tid;
            self.trace(|| format!("{tid} <- {}", describe(&frame)));
        }
        let process = &mut self.processes[index];
        if process.program.is_none() {
            if frame.header.op != Op::Welcome {
                return Err(format!(
                    "{} is greeted with {:?}",
                    process.tid, frame.header.op
                ));
            }
            let welcome = Welcome::read(&frame).map_err(|error| error.to_string())?;
            let time = process.time(&self.nodes[process.slot], now);
            let random = process.random.split();
            process.program = Some(Program::new(&welcome, random, time));
            let key = if self.secluded {
                welcome.app
            } else {
                Tid::NONE
            };
            self.rosters.entry(key).or_default().push(welcome.tid);
            self.trim_roster(key);
            return self.run_program(index);
        }
        process.socket.push_back(frame);
        let reads = process.program.as_ref().is_some_and(Program::reads);
        if reads && process.gait == Gait::Runs {
            self.run_program(index)
        } else {
            Ok(())
        }
    }

    /// Forgets the task that ended longest ago, if the roster is too long.
    fn trim_roster(&mut self, key: Tid) {
        let Some(roster) = self.rosters.get_mut(&key) else {
            return;
        };
        let lives = |tid: &Tid| {
            let mut processes = self.processes.iter();
            processes.any(|process| process.alive && process.tid == *tid)
        };
        if roster.len() > ROSTER_MAX
            && let Some(ended) = roster.iter().position(|tid| !lives(tid))
        {
            roster.remove(ended);
        }
    }

    /// Handles the end of a program's pause.
    pub(super) fn wake(&mut self, index: usize, at: Moment) -> Result<(), String> {
        let process = &mut self.processes[index];
        if process.wake_at != Some(at) || !process.alive || process.gait != Gait::Runs {
            return Ok(());
        }
        process.wake_at = None;
        self.run_program(index)
    }

    /// Something is in a ring of a process, which looks there if it waits.
    pub(super) fn ring_wake(&mut self, index: usize) -> Result<(), String> {
        let process = &self.processes[index];
        let reads = process.program.as_ref().is_some_and(Program::reads);
        match process.alive && reads && process.gait == Gait::Runs {
            true => self.run_program(index),
            false => Ok(()),
        }
    }

    /// Makes the memory of a ring, and sends the frames with it.
    pub(super) fn open_ring(&mut self, slot: Slot, id: u64, ends: Box<[(Tid, Frame); 2]>) {
        if self.random.percent(3) {
            let ends = [ends[0].0, ends[1].0];
            let failed = Input::RingFailed { id, ends };
            return self.queue.after(1, Event::Input(slot, failed));
        }
        self.rings.opened += 1;
        let memory = Memory::default();
        for (tid, frame) in *ends {
            if let Some(index) = self.process_of(slot, tid) {
                let memory = memory.clone();
                self.processes[index].memory.push_back(memory);
                self.send_task(slot, tid, frame);
            }
        }
    }

    /// Runs a program until it waits.
    fn run_program(&mut self, index: usize) -> Result<(), String> {
        self.events += 1;
        let now = self.queue.now();
        let quiet = self.is_quiet();
        let grow = !quiet && self.living_tasks() < TASKS_WANTED;
        let secluded = self.secluded;
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        let process = &mut self.processes[index];
        let slot = process.slot;
        let time = process.time(&self.nodes[slot], now);
        let Some(program) = process.program.as_mut() else {
            return Ok(());
        };
        let key = if secluded { program.app() } else { Tid::NONE };
        let roster = self.rosters.get(&key).map_or(&[][..], Vec::as_slice);
        let (mut out, mut woken) = (VecDeque::new(), Vec::new());
        let (mut dialled, mut woken_far) = (Vec::new(), Vec::new());
        let mut scene = Scene {
            now: time,
            roster,
            secluded,
            hosts: &hosts,
            crashed: &self.crashed,
            left_at: &self.left_at,
            ledger: &mut self.ledger,
            quiet,
            grow,
            sabotage: self.options.sabotage,
            memory: &mut process.memory,
            pipes: &mut process.pipes,
            dialled: &mut dialled,
            woken_far: &mut woken_far,
            directs: &mut self.directs,
            woken: &mut woken,
            rings: &mut self.rings,
            out: &mut out,
        };
        let pause = program.step(&mut process.socket, &mut scene)?;
        for (id, pipe) in dialled {
            self.dialled(id, pipe);
        }
        for peer in woken_far {
            let delay = self.random.between(50, 3 * MS);
            self.queue.after(delay, Event::FarWake(peer));
        }
        for peer in woken {
            if let Some(other) = self.process_of(slot, peer) {
                self.queue.after(1, Event::RingWake(other));
            }
        }
        self.task_writes(index, out);
        match pause {
            Pause::Exit(status) => {
                let tid = self.processes[index].tid;
                self.note_left(tid, slot);
                self.process_gone(index, None, status);
            }
            Pause::Compute(until) => self.wake_later(index, Some(until)),
            Pause::Wait(until) => self.wake_later(index, until),
        }
        Ok(())
    }

    /// A task writes frames to its daemon.
    pub(super) fn task_writes(&mut self, index: usize, frames: impl IntoIterator<Item = Frame>) {
        let now = self.queue.now();
        let (tid, slot) = (self.processes[index].tid, self.processes[index].slot);
        for frame in frames {
            self.begins(Ambush::Asked(frame.header.op));
            if frame.header.op == Op::Exit {
                // The task may end before the reply to its exit comes.
                self.note_left(tid, slot);
            }
            let process = &mut self.processes[index];
            let latency = self.random.between(5, 60);
            process.arrival_out = process.arrival_out.max(now + latency);
            let at = process.arrival_out;
            if self.options.trace {
                self.trace(|| format!("{tid} -> {}", describe(&frame)));
            }
            let input = Input::Task(tid, frame);
            self.queue.at(at, Event::FromProcess(index, input));
        }
    }

    fn wake_later(&mut self, index: usize, until: Option<Time>) {
        let now = self.queue.now();
        let process = &mut self.processes[index];
        process.wake_at = until.map(|until| {
            let clock = &self.nodes[process.slot].clock;
            let until = Time(until.0.saturating_add_signed(-process.offset));
            clock.when(until).max(now + 1)
        });
        if let Some(at) = process.wake_at {
            self.queue.at(at, Event::Wake(index, at));
        }
    }

    /// A daemon sends a signal to the process of a task. Programs have no handlers.
    pub(super) fn signal(&mut self, slot: Slot, tid: Tid, signal: i32) {
        if let Some(index) = self.process_of(slot, tid) {
            self.queue.after(20, Event::Kill(index, signal));
        }
    }

    /// Ends a process by a signal.
    pub(super) fn kill(&mut self, index: usize, signal: i32) -> Result<(), String> {
        let process = &mut self.processes[index];
        // A frozen process is in a signal handler, in which only SIGKILL has an effect.
        if process.gait != Gait::Runs && signal != 9 {
            process.pending_signal = Some(signal);
        } else if process.alive {
            self.process_gone(index, Some(signal), 0);
        }
        Ok(())
    }

    /// Handles the end of a process: its output is still read, then its daemon notices the end.
    fn process_gone(&mut self, index: usize, signal: Option<i32>, status: i32) {
        let now = self.queue.now();
        let process = &mut self.processes[index];
        process.alive = false;
        process.socket.clear();
        process.wake_at = None;
        if let Some(program) = &mut process.program {
            program.close_directs(&mut process.random);
        }
        let (slot, tid, conn) = (process.slot, process.tid, process.conn);
        self.trace(|| format!("the process of {tid} has ended"));
        let read = self.processes[index].arrival_out.max(now) + 1;
        if tid.is_none() {
            if let Some(conn) = conn {
                self.queue
                    .at(read, Event::Input(slot, Input::ConnGone(conn)));
            }
            return;
        }
        if self.processes[index].program.is_some() {
            let at = read + self.random.below(2 * MS);
            self.queue
                .at(at, Event::FromProcess(index, Input::TaskGone(tid)));
        }
        let at = read + self.random.below(2 * MS);
        let status = World::process_status(signal, status);
        self.queue.at(
            at,
            Event::FromProcess(index, Input::Process(ProcessInput::Ended(tid, status))),
        );
    }

    /// Starts masters while there are too few tasks.
    pub(super) fn populate(&mut self) -> Result<(), String> {
        if self.is_quiet() {
            return Ok(());
        }
        self.queue.after(SECOND / 2, Event::Populate);
        let running: Vec<Slot> = (0..self.nodes.len())
            .filter(|slot| self.nodes[*slot].is_running())
            .collect();
        let mut missing = TASKS_WANTED.saturating_sub(self.living_tasks());
        if self.secluded {
            // Applications with several tasks, so that each task has peers.
            missing = missing.min(2 * APPS_WANTED.saturating_sub(self.living_apps()));
        }
        for _ in 0..missing.div_ceil(2) {
            let Some(&slot) = self.random.pick(&running) else {
                return Ok(());
            };
            if self.random.percent(30) {
                // A program that is started from a shell enrols by itself.
                let process = self.new_process(slot, Tid::NONE, None);
                self.queue.after(MS, Event::Enrol(process));
                continue;
            }
            let spawn = Spawn {
                program: PROGRAM.to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                dir: None,
                count: self.random.between(1, 3) as u32,
                place: Place::Any,
            };
            self.ask_console(slot, &Request::Spawn(spawn));
        }
        Ok(())
    }

    pub(super) fn process_of(&self, slot: Slot, tid: Tid) -> Option<usize> {
        // The search begins with the youngest process: most of the older ones have ended.
        self.processes.iter().rposition(|process| {
            process.alive && !process.discarded && process.slot == slot && process.tid == tid
        })
    }

    /// The living processes of a daemon.
    pub(super) fn processes_of(&self, slot: Slot) -> Vec<usize> {
        (0..self.processes.len())
            .filter(|index| self.processes[*index].alive && self.processes[*index].slot == slot)
            .collect()
    }

    fn living_apps(&self) -> usize {
        let living = self.processes.iter().filter(|process| process.alive);
        let programs = living.filter_map(|process| process.program.as_ref());
        programs.map(Program::app).collect::<BTreeSet<_>>().len()
    }

    /// Number of living tasks.
    pub(super) fn living_tasks(&self) -> usize {
        self.processes
            .iter()
            .filter(|process| process.alive)
            .count()
    }
}
