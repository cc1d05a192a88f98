//! A simulated task: the library's production channels ([`Endpoint`]) with a small random program
//! around them, which makes its requests the way `vmlib` does.
//!
//! As in a real task, the data socket is read only inside a primitive; while the program computes,
//! frames wait in the socket. A request without a reply is repeated with the same number. Messages
//! and notifications that the program receives are checked by the [`Ledger`].

mod asking;
mod directs;
mod receives;
mod requests;
mod rings;

use super::{
    ledger::{Ledger, MESSAGE_LEN_MAX},
    pipe::{DirectCounts, Pipe, PipeEnd},
    random::Random,
    ring_memory::{End, Memory, RingCounts},
};
use asking::Asking;
pub use requests::{MISSING_PROGRAM, PROGRAM};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vm_endpoint::{Endpoint, EndpointConfig, Filter, Notice, SendProgress, Sending};
use vm_machine::Time;
use vm_wire::{
    Frame, HostId, Message, Op, Tid,
    task::{
        DirectDial, DirectOpen, Ended, HostEvent, KeptBy, Located, RingClosed, RingOpen, Welcome,
    },
};

/// The context of messages of the program itself.
const USER: u32 = 0;
/// Messages to one peer after which a task asks for a ring: fewer than in the library, because the
/// conversations here are short.
const RING_AFTER: u64 = 2;
/// Programs use the tags from 0 to this one.
const TAG_MAX: u64 = 3;

/// A rule that is broken on purpose, to check that the checkers notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Every 50th message is handed to its program a second time.
    DeliverTwice,
    /// Every 50th message is dropped before its program sees it.
    Lose,
    /// No timer kills a stopped daemon at the end of its lease.
    NoLeaseTimer,
    /// A frozen task resumes without the order of its daemon.
    GoOnAlone,
}

/// The surroundings of a program in one step: the state that the program reads, and its output.
pub struct Scene<'a> {
    /// The reading of its host's clock.
    pub now: Time,
    /// Tasks to send messages to: living ones, and some that have ended.
    pub roster: &'a [Tid],
    /// Whether tasks send only to tasks of their own application.
    pub secluded: bool,
    /// Names of hosts, some of which have left.
    pub hosts: &'a [String],
    /// Hosts that did not end in order: the messages that they kept are lost.
    pub crashed: &'a BTreeSet<HostId>,
    /// The host on which each task left in order.
    pub left_at: &'a BTreeMap<Tid, HostId>,
    /// The checker of the delivery contract.
    pub ledger: &'a mut Ledger,
    /// Whether programs begin no new work and only receive.
    pub quiet: bool,
    /// Whether more tasks are wanted.
    pub grow: bool,
    /// The rule that is broken on purpose, if any.
    pub sabotage: Option<Sabotage>,
    /// Memory of rings that came with frames in the socket.
    pub memory: &'a mut VecDeque<Memory>,
    /// Direct connections that came with frames in the socket.
    pub pipes: &'a mut VecDeque<Pipe>,
    /// Direct connections that the task dials, by number.
    pub dialled: &'a mut Vec<(u64, Pipe)>,
    /// Tasks of any host for which something is in a direct connection.
    pub woken_far: &'a mut Vec<Tid>,
    /// Counts of direct connections.
    pub directs: &'a mut DirectCounts,
    /// Tasks for which something is in a ring now.
    pub woken: &'a mut Vec<Tid>,
    /// Counts of rings.
    pub rings: &'a mut RingCounts,
    /// Frames for the daemon.
    pub out: &'a mut VecDeque<Frame>,
}

/// When a program continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The program computes until that time and reads nothing meanwhile.
    Compute(Time),
    /// The program waits for frames, at most until that time.
    Wait(Option<Time>),
    /// The program has left the machine and ends with this status.
    Exit(i32),
}

#[derive(Clone)]
enum Doing {
    Thinking(Time),
    Sending {
        sending: Sending,
        to: Tid,
        more: u64,
        /// The rest goes by the daemon if the ring is full.
        overflows: bool,
    },
    Receiving {
        filter: Filter,
        until: Time,
    },
    Asking(Asking),
}

/// A task that is part of the machine. Its clone serves as its image.
#[derive(Clone)]
pub struct Program {
    endpoint: Endpoint,
    me: Tid,
    app: Tid,
    random: Random,
    doing: Doing,
    /// Number of the last request.
    asked: u64,
    /// The watched tasks, and whether the end of each was reported.
    watches: BTreeMap<Tid, bool>,
    /// Its spawns: the number of the request, the number of requested tasks, the tids of the
    /// spawned tasks.
    births: Vec<(u64, u32, Vec<Tid>)>,
    received: u64,
    /// The messages that the receive with the posted buffer selects.
    posted: Option<Filter>,
    /// The rings, by peer.
    rings: BTreeMap<Tid, End>,
    /// Chunks that a freeze has taken from rings.
    kept: Vec<Frame>,
    /// The direct connections, by peer.
    directs: BTreeMap<Tid, PipeEnd>,
    /// Peers of direct connections that were closed without a call.
    lost: Vec<Tid>,
    /// Whether the task was frozen, and its next call must renew its channels in `generation`.
    renewed: bool,
    generation: u32,
}

impl Program {
    /// A task that got its Welcome.
    pub fn new(welcome: &Welcome, random: Random, now: Time) -> Self {
        let endpoint = Endpoint::new(EndpointConfig {
            me: welcome.tid,
            window_bytes: welcome.window_bytes,
            inbox_bytes: welcome.inbox_bytes,
            epoch: welcome.epoch,
            generation: welcome.generation,
            ring_after: Some(RING_AFTER),
        });
        Program {
            endpoint,
            me: welcome.tid,
            app: welcome.app,
            random,
            doing: Doing::Thinking(now),
            asked: 0,
            watches: BTreeMap::new(),
            births: Vec::new(),
            received: 0,
            posted: None,
            rings: BTreeMap::new(),
            kept: Vec::new(),
            directs: BTreeMap::new(),
            lost: Vec::new(),
            renewed: false,
            generation: welcome.generation,
        }
    }

    /// Resumes a task that was frozen.
    pub fn thawed(&mut self, generation: u32) {
        self.generation = generation;
        self.renewed = true;
    }

    /// The application to which the task belongs.
    pub fn app(&self) -> Tid {
        self.app
    }

    /// Whether the program reads its socket.
    pub fn reads(&self) -> bool {
        !matches!(self.doing, Doing::Thinking(_))
    }

    /// The operation of the request whose reply the program waits for.
    pub fn request(&self) -> Option<Op> {
        match &self.doing {
            Doing::Asking(asking) => Some(asking.op()),
            _ => None,
        }
    }

    /// Whether a send waits for credit.
    pub fn is_blocked(&self) -> bool {
        matches!(self.doing, Doing::Sending { .. })
    }

    /// The message or reply that the program still waits for, in words.
    pub fn pending(&self) -> Option<String> {
        match &self.doing {
            Doing::Sending { to, .. } => Some(format!("{} waits to send to {to}", self.me)),
            Doing::Asking(asking) => Some(format!(
                "{} waits for the answer to {:?}",
                self.me,
                asking.op()
            )),
            Doing::Thinking(_) | Doing::Receiving { .. } => None,
        }
    }

    /// The watched tasks whose end was not reported.
    pub fn untold(&self) -> impl Iterator<Item = Tid> + '_ {
        self.watches
            .iter()
            .filter(|(_, told)| !**told)
            .map(|(tid, _)| *tid)
    }

    /// The spawns: the number of the request, the number of requested tasks, the tids of the
    /// spawned tasks.
    pub fn births(&self) -> &[(u64, u32, Vec<Tid>)] {
        &self.births
    }

    /// The task's end of its channels.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Reads the frames in the socket, and runs as far as possible without waiting.
    ///
    /// # Errors
    /// A violation of a promise of the machine.
    pub fn step(
        &mut self,
        socket: &mut VecDeque<Frame>,
        scene: &mut Scene,
    ) -> Result<Pause, String> {
        loop {
            if let Doing::Thinking(until) = self.doing {
                if scene.now < until {
                    return Ok(Pause::Compute(until));
                }
                self.read_kept();
                self.heed_lost(scene);
                self.renew(scene);
                self.choose(scene);
                continue;
            }
            self.read_kept();
            self.heed_lost(scene);
            self.renew(scene);
            self.read_rings(scene);
            while let Some(frame) = socket.pop_front() {
                self.read(frame, scene)?;
            }
            self.read_rings(scene);
            self.read_directs(scene);
            self.give_up_ring(scene);
            self.give_up_direct(scene);
            if self.endpoint.deadline().is_some_and(|due| due <= scene.now) {
                self.look_at_rings(scene);
                self.acknowledge_directs(scene);
                self.endpoint.tick(scene.now, scene.out);
            }
            self.notices(scene)?;
            match self.go_on(scene)? {
                Some(Pause::Compute(until)) => self.doing = Doing::Thinking(until),
                Some(pause) => return Ok(pause),
                None => {}
            }
        }
    }

    /// Renews the channels, as the library does in the first call after a freeze.
    fn renew(&mut self, scene: &mut Scene) {
        if std::mem::take(&mut self.renewed) {
            if let Doing::Asking(asking) = &mut self.doing {
                asking.ask_again();
            }
            self.endpoint.set_generation(self.generation);
            self.endpoint.renew(scene.now, scene.out);
        }
    }

    /// Makes one step. `None`: another step may follow at once.
    fn go_on(&mut self, scene: &mut Scene) -> Result<Option<Pause>, String> {
        match &mut self.doing {
            Doing::Thinking(until) => Ok(Some(Pause::Compute(*until))),
            Doing::Sending { .. } => self.go_on_sending(scene),
            Doing::Receiving { filter, until } => {
                let (filter, until) = (*filter, *until);
                if self.receive(&filter, scene)? && !scene.quiet {
                    self.withdraw();
                    return Ok(Some(self.think(scene)));
                }
                if self.endpoint.peek(&filter).is_some() {
                    return Ok(None);
                }
                if scene.now >= until && !scene.quiet {
                    self.withdraw();
                    return Ok(Some(self.think(scene)));
                }
                let until = (!scene.quiet).then_some(until);
                if scene.quiet && filter != ANY {
                    self.withdraw();
                    self.doing = Doing::Receiving {
                        filter: ANY,
                        until: scene.now,
                    };
                    return Ok(None);
                }
                self.post(filter);
                Ok(Some(self.wait(until)))
            }
            Doing::Asking(asking) => {
                if let Some(status) = asking.left() {
                    return Ok(Some(Pause::Exit(status)));
                }
                if asking.is_answered() {
                    return Ok(Some(self.think(scene)));
                }
                let retry = asking.ask(scene.now, scene.out);
                Ok(Some(self.wait(Some(retry))))
            }
        }
    }

    /// Sends the rest of a message, or waits.
    fn go_on_sending(&mut self, scene: &mut Scene) -> Result<Option<Pause>, String> {
        let thinking = Doing::Thinking(scene.now);
        let Doing::Sending {
            mut sending,
            to,
            more,
            overflows,
        } = std::mem::replace(&mut self.doing, thinking)
        else {
            return Ok(None);
        };
        let mut progress = self.send_some(&mut sending, overflows, scene);
        if !matches!(progress, Ok(SendProgress::Done)) {
            self.look_at_rings(scene);
            progress = self.send_some(&mut sending, overflows, scene);
        }
        let progress = progress.map_err(|error| format!("{} sends to {to}: {error}", self.me))?;
        if progress == SendProgress::Done {
            scene.ledger.complete(self.me, to);
            if more > 0 {
                self.send(to, more - 1, scene);
                return Ok(None);
            }
            return Ok(Some(self.think(scene)));
        }
        let full = progress == SendProgress::NeedsRoom;
        self.doing = Doing::Sending {
            sending,
            to,
            more,
            overflows: full,
        };
        let soon = scene.now + std::time::Duration::from_micros(200);
        Ok(Some(self.wait(full.then_some(soon))))
    }

    /// Waits for frames, for deadlines of the channels, and for `until`.
    fn wait(&self, until: Option<Time>) -> Pause {
        Pause::Wait(until.into_iter().chain(self.endpoint.deadline()).min())
    }

    /// Computes for a while: mostly a short time, sometimes a long one.
    fn think(&mut self, scene: &Scene) -> Pause {
        let us = match self.random.below(100) {
            _ if scene.quiet => 1,
            0..50 => self.random.between(1, 1_000),
            50..95 => self.random.between(1_000, 200_000),
            _ => self.random.between(200_000, 1_500_000),
        };
        Pause::Compute(scene.now + std::time::Duration::from_micros(us))
    }

    /// Chooses the next activity.
    fn choose(&mut self, scene: &mut Scene) {
        let receive = Doing::Receiving {
            filter: ANY,
            until: scene.now,
        };
        if scene.quiet {
            self.doing = receive;
            return;
        }
        let peer = self.random.pick(scene.roster).copied().unwrap_or(self.me);
        self.doing = match self.random.below(100) {
            0..45 => {
                let more = if self.random.percent(15) {
                    self.random.below(30)
                } else {
                    0
                };
                self.send(peer, more, scene);
                return;
            }
            45..85 => {
                let patience = self.random.below(300_000) * self.random.below(2);
                let until = scene.now + std::time::Duration::from_micros(patience);
                Doing::Receiving {
                    filter: self.filter(peer),
                    until,
                }
            }
            _ => Doing::Asking(self.request_of_choice(peer, scene)),
        };
    }

    /// Starts to send a message to `to`, and `more` messages after it.
    fn send(&mut self, to: Tid, more: u64, scene: &mut Scene) {
        let len = match self.random.below(100) {
            0..5 => 0,
            5..80 => self.random.below(2_000),
            80..97 => self.random.below(70_000),
            _ => self.random.below(MESSAGE_LEN_MAX as u64),
        };
        let tag = self.random.below(TAG_MAX + 1) as i32;
        let body = scene.ledger.begin(self.me, to, tag, len as usize);
        let sending = self.endpoint.start_send(to, USER, tag, body);
        self.doing = Doing::Sending {
            sending,
            to,
            more,
            overflows: false,
        };
    }

    /// A filter for the next receive: by sender, by tag, by both, or none.
    fn filter(&mut self, peer: Tid) -> Filter {
        let tag = self.random.below(TAG_MAX + 1) as i32;
        match self.random.below(100) {
            0..70 => ANY,
            70..80 => Filter {
                tag: Some(tag),
                ..ANY
            },
            80..90 => Filter {
                from: Some(peer),
                ..ANY
            },
            _ => Filter {
                from: Some(peer),
                tag: Some(tag),
                ..ANY
            },
        }
    }

    /// Handles a frame from the daemon.
    fn read(&mut self, frame: Frame, scene: &mut Scene) -> Result<(), String> {
        let bad = |error: vm_wire::CodecError| error.to_string();
        match frame.header.op {
            Op::Data | Op::Ack | Op::Resend => {
                self.endpoint.handle(scene.now, frame, scene.out);
            }
            Op::Located => {
                let located = Located::read(&frame).map_err(bad)?;
                let generation = frame.header.generation;
                self.endpoint
                    .located(scene.now, &located, generation, scene.out);
            }
            op if op.is_told() && !self.endpoint.is_news(&frame.header, scene.out) => {}
            Op::KeptBy => {
                let kept = KeptBy::read(&frame).map_err(bad)?;
                self.endpoint.kept_by(scene.now, &kept, scene.out);
            }
            Op::Ended => {
                let ended = Ended::read(&frame).map_err(bad)?;
                self.read_ring(ended.tid, scene);
                self.read_direct(ended.tid, usize::MAX, scene);
                self.endpoint.ended(scene.now, ended, scene.out);
            }
            Op::RingOpen => self.open_ring(&RingOpen::read(&frame).map_err(bad)?, scene)?,
            Op::RingClosed => {
                let closed = RingClosed::read(&frame).map_err(bad)?;
                self.close_ring(&closed, scene);
                self.close_direct(&closed, scene);
            }
            Op::DirectDial => self.dial(&DirectDial::read(&frame).map_err(bad)?, scene),
            Op::DirectOpen => self.accept(&DirectOpen::read(&frame).map_err(bad)?, scene)?,
            Op::HostEvent => self
                .endpoint
                .host_event(HostEvent::read(&frame).map_err(bad)?),
            _ => self.answered(&frame)?,
        }
        Ok(())
    }

    /// Handles notifications. After the report of a task's end no message of the task may follow,
    /// and if the task left in order no message may be missing.
    fn notices(&mut self, scene: &mut Scene) -> Result<(), String> {
        while let Some(notice) = self.endpoint.take_notice() {
            let Notice::Ended { tid, status } = notice else {
                continue;
            };
            match self.watches.get_mut(&tid) {
                Some(told @ false) => *told = true,
                Some(true) => {
                    return Err(format!("{} was told twice of the end of {tid}", self.me));
                }
                None => return Err(format!("{} was told of {tid} without asking", self.me)),
            }
            let its = Filter {
                from: Some(tid),
                ..ANY
            };
            while self.receive(&its, scene)? {}
            let host = scene.left_at.get(&tid).copied().unwrap_or(tid.host());
            let whole = status.in_order() && !scene.crashed.contains(&host);
            scene.ledger.close(tid, self.me, whole)?;
        }
        Ok(())
    }
}

/// Selects every message of the user's context.
const ANY: Filter = Filter {
    context: USER,
    from: None,
    tag: None,
    handled: false,
};
