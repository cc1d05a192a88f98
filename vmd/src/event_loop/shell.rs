//! The event loop: readiness in, system calls out.
//!
//! A turn has five steps: wait for readiness; read a share from each ready source, and give each
//! input to the state machine; carry out its outputs; write the send queues; tell the state machine
//! which chunks were lost. All sockets are edge-triggered and their interests hardly ever change,
//! so a turn that forwards one frame costs one wait, one read and one write. Reading ends after
//! half a millisecond; the rest is read after the queues are written. No step but the wait blocks,
//! and no step touches a disk.

use crate::{
    clock,
    context::{Context, Source},
    event_loop::{jobs::Jobs, turns::Turns},
    fault,
    image::{bucket::Pusher, moves::Moves, store, transfer::Helpers},
    local::{consoles::Consoles, locals::Locals},
    net::{arrival::Arrival, hello::Identity, links::Links},
    process::{
        coordinators::Coordinators, guardian::Guardian, helper, lease::LeaseTimer,
        processes::Processes, program::ProgramPath, signals::Signals, spawn::Spawner,
    },
};
use anyhow::Context as _;
use mio::{Events, Poll, Waker};
use std::{
    collections::BTreeSet,
    net::TcpListener,
    os::unix::net::UnixListener,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};
use vm_machine::{Daemon, Input, Outbox, ProcessInput, Time};
use vm_wire::Tid;

/// Bound on the events that one wait returns.
const EVENTS: usize = 256;
/// Bound on one wait, whatever the deadlines are.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Bound on the time in which a daemon that ends writes its last frames.
const FAREWELL_TIME: Duration = Duration::from_millis(300);

/// The parts that the event loop starts with.
pub struct Parts {
    /// The state machine.
    pub daemon: Daemon,
    /// The first outputs of the state machine.
    pub outbox: Outbox,
    /// The identity of this daemon in its machine.
    pub identity: Identity,
    /// The state of this daemon's entry into its machine.
    pub arrival: Arrival,
    /// The listener for other daemons.
    pub link_listener: TcpListener,
    /// The listener for tasks and consoles.
    pub local_listener: UnixListener,
    /// Starts the processes of tasks.
    pub spawner: Spawner,
    /// The folders in which programs are looked up.
    pub path: ProgramPath,
    /// The location of the checkpoint store.
    pub store: store::StoreLocation,
    /// The thread that copies checkpoints to the store's bucket, if the store has one.
    pub pusher: Option<Pusher>,
}

/// The running daemon.
pub struct EventLoop {
    pub(super) poll: Poll,
    pub(super) context: Context,
    pub(super) signals: Signals,
    pub(super) jobs: Jobs,
    pub(super) pusher: Option<Pusher>,
    pub(super) locals: Locals,
    pub(super) links: Links,
    pub(super) processes: Processes,
    pub(super) consoles: Consoles,
    pub(super) moves: Moves,
    pub(super) coordinators: Coordinators,
    pub(super) arrival: Arrival,
    pub(super) daemon: Daemon,
    pub(super) outbox: Outbox,
    pub(super) lease: LeaseTimer,
    pub(super) guardian: Arc<Guardian>,
    pub(super) waker: Arc<Waker>,
    /// Channel for listeners of tasks and consoles that replace one whose file was removed.
    pub(super) doors: (Sender<UnixListener>, Receiver<UnixListener>),
    pub(super) turns: Turns,
    pub(super) stops: u32,
    /// When the last stop signal came that counted as a signal of its own.
    pub(super) stop_at: Option<Time>,
    /// Signals without a meaning for the daemon that were logged already.
    pub(super) noted: BTreeSet<i32>,
    /// Orders that found the interrupt socket of their task full: the task, and the number of a direct
    /// connection whose messages it is to send again. At most [`RINGS_PER_TASK`] for each task.
    ///
    /// [`RINGS_PER_TASK`]: vm_wire::limits::RINGS_PER_TASK
    pub(super) nudges: BTreeSet<(Tid, u64)>,
    /// Whether children may have ended that were not waited for yet.
    pub(super) reaps_on: bool,
    pub(super) ended: Option<Result<String, String>>,
}

impl EventLoop {
    /// Puts the parts together, and starts the threads and timers.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(parts: Parts) -> anyhow::Result<EventLoop> {
        let poll = Poll::new().context("no epoll")?;
        let registry = poll.registry().try_clone().context("no epoll")?;
        let waker = Waker::new(poll.registry(), Source::Jobs.token()).context("no eventfd")?;
        let waker = Arc::new(waker);
        let helpers = Helpers::new("carry", helper::spawn, Arc::clone(&waker))
            .context("cannot start a thread")?;
        let context = Context::new(registry, helpers, clock::now());
        let cuts_links = fault::is_on("link-cut");
        Ok(EventLoop {
            signals: Signals::catch(&context, cuts_links).context("cannot catch signals")?,
            jobs: Jobs::start(parts.path, parts.store.clone(), &waker)?,
            pusher: parts.pusher,
            locals: Locals::new(parts.local_listener, &context)?,
            moves: Moves::new(
                parts.identity.secret.clone(),
                parts.identity.mode,
                (parts.identity.host, parts.identity.machine),
                parts.store,
            ),
            links: Links::new(parts.identity, parts.link_listener, &context)?,
            coordinators: Coordinators::new(Arc::clone(&waker))
                .context("cannot look after coordinators")?,
            guardian: Arc::clone(&parts.spawner.guardian),
            processes: Processes::new(parts.spawner, Arc::clone(&waker))
                .context("cannot look after processes")?,
            waker,
            doors: mpsc::channel(),
            consoles: Consoles::default(),
            arrival: parts.arrival,
            daemon: parts.daemon,
            outbox: parts.outbox,
            lease: LeaseTimer::new().context("no timer for the lease")?,
            turns: Turns::default(),
            stops: 0,
            stop_at: None,
            noted: BTreeSet::new(),
            nudges: BTreeSet::new(),
            reaps_on: false,
            ended: None,
            poll,
            context,
        })
    }

    /// Returns the function that gives the event loop a new listener for tasks and consoles, after
    /// the old socket's file was removed.
    pub fn doors(&self) -> impl Fn(UnixListener) + Send + 'static {
        let (doors, waker) = (self.doors.0.clone(), Arc::clone(&self.waker));
        move |listener| {
            // A daemon that ends takes no listener any more. If the wake fails, the loop takes the
            // listener at its next turn.
            let _ = doors.send(listener).is_ok_and(|()| waker.wake().is_ok());
        }
    }

    /// Runs until the daemon ends; returns the reason of an orderly end.
    ///
    /// # Errors
    /// The reason of an end that was not orderly.
    pub fn run(mut self) -> anyhow::Result<String> {
        let result = self.work();
        self.processes.kill_all();
        log::info!("{}", self.turns);
        match result? {
            Ok(why) => {
                log::info!("the daemon ends: {why}");
                if self.daemon.agreement().state().halted() {
                    self.arrival.forget();
                }
                Ok(why)
            }
            Err(why) => Err(anyhow::anyhow!(why)),
        }
    }

    fn work(&mut self) -> anyhow::Result<Result<String, String>> {
        let mut events = Events::with_capacity(EVENTS);
        self.carry_out();
        self.settle();
        loop {
            if let Some(ended) = self.ended.take() {
                self.say_farewell(&mut events)?;
                return Ok(ended);
            }
            self.wait(&mut events)?;
            let start = clock::now();
            self.context.now = start;
            self.note_events(&events);
            self.read(start);
            self.tick();
            self.settle();
            self.turns.add(start, clock::now());
        }
    }

    /// Waits for events, or until the next deadline.
    fn wait(&mut self, events: &mut Events) -> anyhow::Result<()> {
        let busy = !self.context.ready.is_empty()
            || !self.context.dirty.is_empty()
            || !self.context.ended.is_empty();
        let time = if busy {
            Duration::ZERO
        } else {
            let deadlines = [
                Some(self.daemon.deadline()),
                self.locals.deadline(),
                self.links.deadline(),
                self.processes.deadline(),
                self.moves.deadline(),
            ];
            let next = deadlines.into_iter().flatten().min();
            let now = clock::now();
            next.map_or(WAIT_MAX, |next| next.since(now).min(WAIT_MAX))
        };
        poll(&mut self.poll, events, time)
    }

    fn note_events(&mut self, events: &Events) {
        for event in events {
            let source = Source::from_token(event.token());
            let closed = event.is_read_closed() || event.is_error();
            match source {
                Source::Local(place) => self.locals.wake(place, closed, &mut self.context),
                Source::Link(place) => {
                    let writable = event.is_writable();
                    self.links.wake(place, writable, closed, &mut self.context);
                }
                _ => {}
            }
            // Input for a process is written when its source is served.
            let writes = matches!(source, Source::Process(_) | Source::Coordinator(_));
            if event.is_readable() || closed || writes {
                self.context.ready.push(source);
            }
        }
    }

    /// Does the work that is due by the clock.
    fn tick(&mut self) {
        self.context.now = clock::now();
        let now = self.context.now;
        if self.daemon.deadline() <= now {
            self.context.inbox.push_back(Input::Tick);
        }
        for (tid, id) in std::mem::take(&mut self.nudges) {
            self.nudge(tid, id);
        }
        self.locals.tick(&mut self.context);
        self.links.tick(&mut self.context);
        self.arrival.look(&self.daemon, &mut self.context);
        self.processes.tick(&self.coordinators, &mut self.context);
        self.moves.tick(&self.processes, &mut self.context);
        self.step_all();
        // Ends come last, so that everything that a process sent before its end is handled before
        // it.
        for (tid, status) in std::mem::take(&mut self.context.ended) {
            self.locals.drain(tid, &mut self.context);
            self.consoles.detach(tid);
            self.context
                .inbox
                .push_back(Input::Process(ProcessInput::Ended(tid, status)));
        }
        self.step_all();
    }

    /// Writes the send queues, and tells the state machine which chunks were lost.
    fn settle(&mut self) {
        self.consoles
            .release(&mut self.processes, &mut self.locals, &mut self.context);
        self.flush_all();
        self.locals.report_losers(&mut self.context);
        self.links.report_losers(&mut self.context);
        self.step_all();
    }

    fn flush_all(&mut self) {
        // A source that has more to write marks itself again. The emptied list is put back to keep
        // its allocation.
        let mut dirty = std::mem::take(&mut self.context.dirty);
        for source in dirty.drain(..) {
            match source {
                Source::Local(place) => self.locals.flush(place, &mut self.context),
                Source::Link(place) => self.links.flush(place, &mut self.context),
                _ => {}
            }
        }
        dirty.append(&mut self.context.dirty);
        self.context.dirty = dirty;
    }

    /// Gives each input to the state machine and carries out its outputs.
    pub(super) fn step_all(&mut self) {
        while let Some(input) = self.context.inbox.pop_front() {
            self.daemon.step(self.context.now, input, &mut self.outbox);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.outbox.pop_front() {
            self.perform(output);
        }
    }

    /// Ends the tasks, and gives other daemons, tasks and consoles a moment to take their last
    /// frames.
    fn say_farewell(&mut self, events: &mut Events) -> anyhow::Result<()> {
        self.settle();
        self.processes.kill_all();
        self.links.leave_all(&mut self.context);
        let end = Instant::now() + FAREWELL_TIME;
        while !(self.links.is_empty() && self.locals.is_idle()) && Instant::now() < end {
            self.flush_all();
            poll(&mut self.poll, events, Duration::from_millis(10))?;
            self.context.now = clock::now();
            self.note_events(events);
            while let Some(source) = self.context.ready.pop() {
                // Links are still read until the other daemon has closed them; nothing else is read
                // any more.
                if let Source::Link(place) = source {
                    while self.links.serve(place, &mut self.context) {}
                }
            }
            self.context.inbox.clear();
        }
        Ok(())
    }
}

/// Waits for events for at most `time`. A signal ends the wait, too.
fn poll(poll: &mut Poll, events: &mut Events, time: Duration) -> anyhow::Result<()> {
    match poll.poll(events, Some(time)) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
            Err(error).context("cannot wait for events")
        }
        _ => Ok(()),
    }
}
