//! The processes of tasks.

use super::{Process, SIGKILL, SIGTERM, Told, World};
use std::collections::{BTreeMap, VecDeque};
use vm_endpoint::{Endpoint, EndpointConfig, Notice};
use vm_machine::{ConnId, Input, ProcessInput};
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    agreed::ExitStatus,
    task::{ENV_TOKEN, Ended, Enrol, FailKind, Failed, HostEvent, KeptBy, Located, Welcome},
    version::Offer,
};

impl World {
    pub(super) fn add_process(
        &mut self,
        tid: Tid,
        host: HostId,
        program: &str,
        token: Option<u64>,
    ) {
        let process = Process {
            host,
            program: program.to_owned(),
            token,
            endpoint: None,
            frozen: false,
            socket: Vec::new(),
            alive: true,
            next_request: 0,
            answers: BTreeMap::new(),
            told: Vec::new(),
            signals: Vec::new(),
            input: Vec::new(),
        };
        let before = self.processes.insert(tid, process);
        assert!(before.is_none(), "{tid} was started twice");
    }

    /// Starts the first waiting process of the program "slow", or makes its start fail.
    pub fn start_slow(&mut self, it_can: bool) {
        let (host, spec) = self.slow.remove(0);
        let tid = spec.tid;
        if it_can {
            self.add_process(tid, host, &spec.program, Some(spec.token));
            self.input(host, ProcessInput::Launched(tid, 100 + tid.sequence()));
        } else {
            let failed = Failed::new(FailKind::System, "exec format error");
            self.input(host, ProcessInput::LaunchFailed(tid, failed));
        }
    }

    /// A launched process enrols.
    pub fn enrol(&mut self, tid: Tid) -> ConnId {
        let conn = self.conn();
        let process = &self.processes[&tid];
        let enrol = Enrol {
            offer: Offer::OURS,
            token: process.token,
            program: process.program.clone(),
        };
        assert!(!ENV_TOKEN.is_empty());
        let (host, pid) = (process.host, 100 + tid.sequence());
        self.input(host, Input::Enrol { conn, pid, enrol });
        conn
    }

    /// A process from a shell enrols.
    pub fn enrol_from_shell(&mut self, host: u16) -> ConnId {
        let conn = self.conn();
        self.shells.insert(conn, HostId(host));
        let enrol = Enrol {
            offer: Offer::OURS,
            token: None,
            program: "/home/me/prog".to_owned(),
        };
        let pid = 4711;
        self.input(HostId(host), Input::Enrol { conn, pid, enrol });
        conn
    }

    pub(super) fn welcome(&mut self, host: HostId, _conn: ConnId, tid: Tid, frame: &Frame) {
        let welcome = Welcome::read(frame).expect("a Welcome");
        assert_eq!((welcome.tid, welcome.host), (tid, host));
        let process = self.processes.get_mut(&tid).expect("a process");
        process.endpoint = Some(Endpoint::new(EndpointConfig {
            me: tid,
            window_bytes: welcome.window_bytes,
            inbox_bytes: welcome.inbox_bytes,
            epoch: welcome.epoch,
            generation: welcome.generation,
            ring_after: None,
        }));
    }

    /// The next notice of a task besides messages.
    pub fn notice(&mut self, tid: Tid) -> Option<Notice> {
        self.with_endpoint(tid, |endpoint, _| endpoint.take_notice())?
    }

    pub(super) fn with_endpoint<T>(
        &mut self,
        tid: Tid,
        act: impl FnOnce(&mut Endpoint, &mut VecDeque<Frame>) -> T,
    ) -> Option<T> {
        let process = self
            .processes
            .get_mut(&tid)
            .filter(|process| process.alive && !process.frozen)?;
        let mut frames = VecDeque::new();
        let result = act(process.endpoint.as_mut()?, &mut frames);
        let host = process.host;
        for frame in frames {
            self.input(host, Input::Task(tid, frame));
        }
        Some(result)
    }

    pub(super) fn tell_task(&mut self, tid: Tid, frame: Frame) {
        let now = self.now;
        let process = self.processes.get_mut(&tid).expect("a process");
        if process.frozen {
            return process.socket.push(frame);
        }
        if frame.header.op.is_told() {
            let header = frame.header;
            let news = self.with_endpoint(tid, |endpoint, out| endpoint.is_news(&header, out));
            if news == Some(false) {
                return;
            }
        }
        match frame.header.op {
            Op::Data | Op::Ack | Op::Resend if self.deaf.contains(&tid) => {}
            Op::Data | Op::Ack | Op::Resend => {
                self.with_endpoint(tid, |endpoint, out| endpoint.handle(now, frame, out));
            }
            Op::Located => {
                let located = Located::read(&frame).expect("a Located");
                let generation = frame.header.generation;
                self.with_endpoint(tid, |endpoint, out| {
                    endpoint.located(now, &located, generation, out);
                });
            }
            Op::Ended => {
                let ended = Ended::read(&frame).expect("an Ended");
                let Ended {
                    tid: who,
                    status,
                    last,
                    ..
                } = ended;
                let process = self.processes.get_mut(&tid).expect("a process");
                process.told.push(Told::Ended(who, status, last));
                self.with_endpoint(tid, |endpoint, out| endpoint.ended(now, ended, out));
            }
            Op::KeptBy => {
                let kept = KeptBy::read(&frame).expect("a KeptBy");
                self.with_endpoint(tid, |endpoint, out| endpoint.kept_by(now, &kept, out));
            }
            Op::HostEvent => {
                let event = HostEvent::read(&frame).expect("a HostEvent");
                let process = self.processes.get_mut(&tid).expect("a process");
                process.told.push(Told::Host(event.name, event.added));
            }
            _ => {
                let process = self.processes.get_mut(&tid).expect("a process");
                let answers = process.answers.entry(frame.header.request).or_default();
                answers.push(frame);
            }
        }
    }

    pub(super) fn signalled(&mut self, host: HostId, tid: Tid, signal: i32) {
        let process = self.processes.get_mut(&tid).expect("a process");
        if process.host != host {
            // The task continues elsewhere, and this is its former process.
            return;
        }
        process.signals.push(signal);
        let ends = signal == SIGKILL || signal == SIGTERM && !self.stubborn;
        if ends && process.alive && self.linger {
            (process.alive, process.endpoint) = (false, None);
            self.lingering
                .insert(tid, (host, ExitStatus::Signal(signal)));
        } else if ends && process.alive {
            self.die(tid, ExitStatus::Signal(signal));
        }
    }

    /// Reports the end of the killed processes.
    pub fn end_lingering(&mut self) {
        for (tid, (host, status)) in std::mem::take(&mut self.lingering) {
            self.input(host, Input::TaskGone(tid));
            self.input(host, ProcessInput::Ended(tid, status));
        }
    }

    /// A process ends.
    pub fn die(&mut self, tid: Tid, status: ExitStatus) {
        let process = self.processes.get_mut(&tid).expect("a process");
        process.alive = false;
        process.endpoint = None;
        let host = process.host;
        self.input(host, Input::TaskGone(tid));
        self.input(host, ProcessInput::Ended(tid, status));
    }

    pub fn is_alive(&self, tid: Tid) -> bool {
        self.processes[&tid].alive
    }

    pub fn is_enrolled(&self, tid: Tid) -> bool {
        self.processes
            .get(&tid)
            .is_some_and(|process| process.endpoint.is_some())
    }
}
