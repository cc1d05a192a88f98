//! The event loop: readiness in, system calls out.
//!
//! A turn: wait; read a share from each that is ready, and let the state machine make one step for
//! each thing that came in; carry out what it wants; write everything that waits; tell it what was
//! lost. All sockets are edge-triggered and their interests hardly ever change, so a turn that
//! forwards one frame costs one wait, one read and one write. Reading ends after half a
//! millisecond: the rest has its turn after what is to be written. Nothing here waits but the one
//! wait, and nothing touches a disk.

use crate::{
    clock,
    context::{Context, Source},
    event_loop::{jobs::Jobs, turns::Turns},
    fault::{self, Strike},
    image::{
        bucket::Pusher,
        images,
        moves::{Copied, Moves, Stored},
        store::{self, CheckpointQuery},
        transfer::{self, Back, Helpers},
    },
    local::{consoles::Consoles, locals::Locals},
    net::{arrival::Arrival, hello::Identity, links::Links},
    process::{
        coordinators::Coordinators,
        guardian::Guardian,
        lease::LeaseTimer,
        processes::Processes,
        program::ProgramPath,
        signals::{self, Signals},
        spawn::Spawner,
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
use vm_machine::{Daemon, Input, Outbox, Output, Time};
use vm_store::{CheckpointId, Depth};
use vm_wire::limits;

/// Events that one wait returns at most.
const EVENTS: usize = 256;
/// How long a turn reads before it writes.
const READ_TIME: Duration = Duration::from_micros(500);
/// Reports of one task that are read in a row.
const REPORTS: u32 = 16;
/// The wait ends at the latest then, whatever the deadlines say.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the end of the daemon waits until what it has to say is written.
const FAREWELL_TIME: Duration = Duration::from_millis(300);
/// So many times the user has to ask before the daemon ends without its farewells.
const STOPS: u32 = 3;

/// What the event loop starts with.
pub struct Parts {
    /// The state machine, and what it wanted at its birth.
    pub daemon: Daemon,
    /// See [`Parts::daemon`].
    pub outbox: Outbox,
    /// Who this daemon is to others.
    pub identity: Identity,
    /// How it gets into its machine.
    pub arrival: Arrival,
    /// The port of other daemons.
    pub link_listener: TcpListener,
    /// The socket of tasks and consoles.
    pub local_listener: UnixListener,
    /// What tasks are started with.
    pub spawner: Spawner,
    /// Where programs are.
    pub path: ProgramPath,
    /// Where checkpoints are.
    pub store: store::StoreLocation,
    /// What copies checkpoints to the store's bucket, if it has one.
    pub pusher: Option<Pusher>,
}

/// The daemon at work.
pub struct EventLoop {
    poll: Poll,
    context: Context,
    signals: Signals,
    jobs: Jobs,
    pusher: Option<Pusher>,
    locals: Locals,
    links: Links,
    processes: Processes,
    consoles: Consoles,
    moves: Moves,
    coordinators: Coordinators,
    arrival: Arrival,
    daemon: Daemon,
    outbox: Outbox,
    lease: LeaseTimer,
    guardian: Arc<Guardian>,
    waker: Arc<Waker>,
    /// Sockets of tasks and consoles that were made again.
    doors: (Sender<UnixListener>, Receiver<UnixListener>),
    turns: Turns,
    stops: u32,
    /// When the last of these signals came that counted.
    stop_at: Option<Time>,
    /// Signals that mean nothing and were logged.
    noted: BTreeSet<i32>,
    /// Whether more children may have ended than were waited for.
    reaps_on: bool,
    ended: Option<Result<String, String>>,
}

impl EventLoop {
    /// Puts the parts together.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(parts: Parts) -> anyhow::Result<EventLoop> {
        let poll = Poll::new().context("no epoll")?;
        let registry = poll.registry().try_clone().context("no epoll")?;
        let waker = Waker::new(poll.registry(), Source::Jobs.token()).context("no eventfd")?;
        let waker = Arc::new(waker);
        let helpers = Helpers::new("carry", transfer::spawn, Arc::clone(&waker))
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
            reaps_on: false,
            ended: None,
            poll,
            context,
        })
    }

    /// Where a socket of tasks and consoles goes that was made in the place of one that is gone.
    pub fn doors(&self) -> impl Fn(UnixListener) + Send + 'static {
        let (doors, waker) = (self.doors.0.clone(), Arc::clone(&self.waker));
        move |listener| {
            // Nobody hears it any more when the daemon ends; who is not woken looks a little later.
            let _ = doors.send(listener).is_ok_and(|()| waker.wake().is_ok());
        }
    }

    /// Works until the daemon ends; returns why it did.
    ///
    /// # Errors
    /// Why the daemon had to end, if not in order.
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

    /// Waits for events, or until something is due.
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
            // A process's input is written when it is served.
            let writes = matches!(source, Source::Process(_) | Source::Coordinator(_));
            if event.is_readable() || closed || writes {
                self.context.ready.push(source);
            }
        }
    }

    /// Reads from those that are ready, a share from each in turn.
    fn read(&mut self, start: Time) {
        // First, since what was started may have sent something already.
        self.hear_starters();
        while let Some(source) = self.context.ready.pop() {
            let context = &mut self.context;
            let more = match source {
                Source::Local(place) => self.locals.serve(place, context),
                Source::Link(place) => {
                    let more = self.links.serve(place, context);
                    self.take_images();
                    self.take_joins();
                    more
                }
                Source::Interrupt(place) => self.hear_reports(place),
                Source::Process(place) => self.processes.serve(place, context),
                Source::Coordinator(place) => self.coordinators.serve(place, context),
                Source::LocalListener => self.locals.accept(context),
                Source::LinkListener => self.links.accept(context),
                Source::Signals => {
                    self.heed_signals();
                    false
                }
                Source::Jobs => {
                    while let Ok(listener) = self.doors.1.try_recv() {
                        self.locals.listen(listener, context);
                    }
                    while let Some(answer) = self.jobs.answer() {
                        if let (Input::Committed(it), Some(pusher)) = (&answer, &self.pusher)
                            && it.result.is_ok()
                        {
                            pusher.push();
                        }
                        self.context.inbox.push_back(answer);
                    }
                    self.processes.hear_tokens(&self.coordinators);
                    false
                }
            };
            self.step_all();
            if more {
                self.context.ready.push(source);
            }
            if clock::now().since(start) > READ_TIME {
                return;
            }
        }
    }

    /// Connections that bring images have come.
    fn take_images(&mut self) {
        for (ticket, socket) in self.links.take_images() {
            let (locals, processes) = (&mut self.locals, &mut self.processes);
            let context = &mut self.context;
            if !self
                .moves
                .arrive(ticket, socket, locals, processes, context)
            {
                self.links.tell_unawaited(context);
            }
        }
    }

    /// Daemons want to join.
    fn take_joins(&mut self) {
        for asked in self.links.take_joins() {
            let (daemon, links) = (&self.daemon, &mut self.links);
            self.arrival.asked(asked, daemon, links, &mut self.context);
        }
    }

    /// A task reports what became of its orders. Returns whether there may be more.
    fn hear_reports(&mut self, place: usize) -> bool {
        for _ in 0..REPORTS {
            match self.locals.interrupts.read(place) {
                None => return false,
                Some(None) => {}
                Some(Some((tid, reported))) => {
                    let processes = &mut self.processes;
                    self.moves
                        .reported(tid, reported, processes, &mut self.context);
                }
            }
        }
        true
    }

    fn heed_signals(&mut self) {
        let asked = self.signals.take();
        if asked.reap || self.reaps_on {
            self.reap();
        }
        if asked.fault {
            log::warn!("all links are cut, as a test wants");
            self.links.cut_all(&mut self.context);
        }
        if let Some(signal) = asked.stop {
            self.heed_stop(signal);
        }
        for signal in asked.noted {
            // Once each: they may come from a timer.
            if self.noted.insert(signal) {
                log::warn!("{} came, which means nothing here", signals::name(signal));
            }
        }
    }

    /// A signal asks the daemon to end. Batch systems send several at one time, to a process and to
    /// its group, or with one by a terminal: those count as one.
    fn heed_stop(&mut self, signal: i32) {
        let now = self.context.now;
        if let Some(last) = self.stop_at
            && now.since(last) < limits::STOP_AGAIN
        {
            return;
        }
        log::info!("{} came: it asks this host to leave", signals::name(signal));
        self.stop_at = Some(now);
        self.stops += 1;
        if self.stops >= STOPS {
            self.ended = Some(Ok("the user insists".to_owned()));
        }
        self.context.inbox.push_back(Input::Stop);
    }

    /// Takes in which processes were started.
    fn hear_starters(&mut self) {
        let carriers = self.moves.take_started(&self.processes, &mut self.context);
        let tasks = self.processes.take_started(&mut self.context);
        let coordinators = self.coordinators.take_started();
        if carriers || tasks || coordinators {
            self.moves.brought_back(&mut self.context);
            self.reap();
        }
    }

    /// Waits for children that have ended, for the next ones in the next turn.
    fn reap(&mut self) {
        let (coordinators, context) = (&mut self.coordinators, &mut self.context);
        self.reaps_on = self.processes.reap_some(coordinators, context);
        if self.reaps_on {
            self.context.ready.push(Source::Signals);
        }
        self.moves.reaped(&self.processes, &mut self.context);
    }

    /// What is due by the clock.
    fn tick(&mut self) {
        self.context.now = clock::now();
        let now = self.context.now;
        if self.daemon.deadline() <= now {
            self.context.inbox.push_back(Input::Tick);
        }
        self.locals.tick(&mut self.context);
        self.links.tick(&mut self.context);
        self.arrival.look(&self.daemon, &mut self.context);
        self.processes.tick(&self.coordinators, &mut self.context);
        self.moves.tick(&self.processes, &mut self.context);
        self.step_all();
        // Last, so that all that a process sent before its end comes before it.
        for (tid, status) in std::mem::take(&mut self.context.ended) {
            self.locals.drain(tid, &mut self.context);
            self.consoles.detach(tid);
            self.context
                .inbox
                .push_back(Input::ProcessEnded(tid, status));
        }
        self.step_all();
    }

    /// Writes what waits, and tells the state machine what became of it.
    fn settle(&mut self) {
        self.consoles
            .release(&mut self.processes, &mut self.locals, &mut self.context);
        self.flush_all();
        self.locals.report_losers(&mut self.context);
        self.links.report_losers(&mut self.context);
        self.step_all();
    }

    fn flush_all(&mut self) {
        // Those that have more mark themselves again. The list is put back for its room.
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

    /// Lets the state machine see what came in, and does what it wants.
    fn step_all(&mut self) {
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

    fn perform(&mut self, output: Output) {
        let context = &mut self.context;
        match output {
            Output::Task(tid, frame) => self.locals.send_to_task(tid, frame, context),
            Output::Peer(host, frame) => {
                if let Strike::Delay(time) = fault::at_frame("send", &frame) {
                    self.links.hold(host, context.now + time);
                }
                self.links.send(host, frame, context);
            }
            Output::Connect(host, addr) => self.links.connect(host, &addr, context),
            Output::Disconnect(host) => self.links.disconnect(host, context),
            Output::Joiner(conn, frame) => self.links.send_to_joiner(conn, frame, context),
            Output::Linked => self.arrival.linked(),
            Output::NotLinked(hosts) => self.arrival.not_linked(&hosts, &self.links, context),
            Output::Address(addr) => {
                let (daemon, links) = (&self.daemon, &mut self.links);
                self.arrival.told(&addr, daemon, links, context);
            }
            Output::Welcome {
                conn,
                tid,
                frame,
                coordinator,
            } => {
                let coordinator =
                    coordinator.and_then(|number| self.coordinators.open(number, context));
                self.locals.welcome(conn, tid, &frame, coordinator, context);
            }
            Output::StartCoordinator { number, app } => {
                self.coordinators.start(number, app, context);
            }
            Output::Coordinator(number, frame) => {
                self.coordinators.send(number, &frame, context);
            }
            Output::EndCoordinator(number) => self.coordinators.end(number),
            Output::Reject(conn, frame) => self.locals.reject(conn, &frame, context),
            Output::CloseTask(tid) => self.locals.close_task(tid, context),
            Output::Console(conn, frame) => self.locals.send_to_console(conn, frame, context),
            Output::FindProgram {
                question,
                program,
                dir,
            } => context.inbox.extend(self.jobs.find(question, program, dir)),
            Output::Launch(spec) => self.processes.launch(spec),
            Output::Adopt(tid, pid) => self.processes.adopt(tid, pid, context),
            Output::Signal(tid, signal) => self.processes.signal(tid, signal),
            Output::StandardInput(tid, bytes) => {
                self.consoles
                    .type_in(tid, &bytes, &mut self.processes, &mut self.locals, context)
            }
            Output::Resize(tid, size) => self.processes.resize(tid, size),
            Output::Attach(conn, tid) => self.consoles.attach(conn, tid),
            Output::Copy {
                tid,
                addr,
                ticket,
                way,
                folders,
            } => {
                self.moves.open(tid, (&addr, ticket), folders, context);
                if way.precopy {
                    let (locals, processes) = (&mut self.locals, &mut self.processes);
                    self.moves.copy(tid, way, locals, processes, context);
                }
            }
            Output::Hold(tid) => {
                self.moves.hold(tid, &mut self.locals, &mut self.processes);
            }
            Output::Freeze(tid, way) => {
                let (locals, processes) = (&mut self.locals, &mut self.processes);
                self.moves.freeze(tid, way, locals, processes, context);
            }
            Output::Store {
                tid,
                app,
                generation,
                epoch,
                by,
                second,
                full,
                compress,
            } => {
                let id = CheckpointId::new(generation, epoch);
                let form = images::Form {
                    second,
                    full,
                    compress,
                    cached: false,
                };
                let process = self.processes.pid(tid);
                self.moves.store(tid, (app, id), form, by, process, context);
            }
            Output::ExpectCopy {
                ticket,
                app,
                from,
                part,
                ..
            } => {
                let id = CheckpointId::new(from.0, from.1);
                self.moves.expect_copy(ticket, Copied { app, id, part });
            }
            Output::CancelPart(ticket) => self.moves.cancel_part(ticket),
            Output::SendPart {
                ticket,
                addr,
                app,
                from,
                part,
                file,
            } => {
                let id = CheckpointId::new(from.0, from.1);
                let part = Copied { app, id, part };
                self.moves.send_part((&addr, ticket), &part, file, context);
            }
            Output::Stock {
                question,
                app,
                from,
                verify,
            } => {
                let answer = self.jobs.stock(question, look(app, from, verify));
                context.inbox.extend(answer);
            }
            Output::ForgetStored(app) => self.jobs.forget(app),
            Output::Suspend {
                tid,
                app,
                name,
                number,
            } => self.moves.suspend(tid, app, (&name, number), context),
            Output::SendSuspended {
                ticket,
                addr,
                app,
                image,
            } => self
                .moves
                .send_suspended((&addr, ticket), app, &image, context),
            Output::DropSuspended { app, name } => self.jobs.drop_suspended(app, name),
            Output::StoreCopy(tid) => {
                let process = self.processes.pid(tid);
                self.moves.store_copy(tid, process, context);
            }
            Output::Drop {
                app,
                generation,
                epoch,
            } => {
                let id = CheckpointId::new(generation, epoch);
                self.jobs.drop_checkpoint(app, id);
            }
            Output::Commit(checkpoint) => context.inbox.extend(self.jobs.commit(checkpoint)),
            Output::CancelCopy(tid) => {
                self.moves
                    .cancel(tid, &mut self.locals, &mut self.processes);
            }
            Output::Begin {
                tid,
                generation,
                raw,
                ..
            } => {
                fault::at("begin");
                self.processes.begin(tid, raw);
                self.moves.go(tid, generation, false, &mut self.locals);
            }
            Output::Resume {
                tid,
                generation,
                writes,
            } => {
                self.moves.go(tid, generation, writes, &mut self.locals);
            }
            Output::Load {
                question,
                app,
                from,
                verify,
            } => {
                let answer = self.jobs.load(question, look(app, from, verify));
                context.inbox.extend(answer);
            }
            Output::Restore {
                tid,
                app,
                from,
                image,
                keep_files,
                folders,
            } => {
                let (locals, processes) = (&mut self.locals, &mut self.processes);
                let from = CheckpointId::new(from.0, from.1);
                let stored = Stored {
                    app,
                    from,
                    image: &image,
                    how: Back {
                        roll_back: !keep_files,
                        folders,
                    },
                };
                self.moves.restore(tid, stored, locals, processes, context);
            }
            Output::Expect {
                tid,
                ticket,
                roll_back,
                folders,
            } => {
                let how = Back { roll_back, folders };
                self.moves.expect(tid, ticket, how);
            }
            Output::Discard(tid) => {
                fault::at("discard");
                self.moves.forget(tid);
                self.locals.discard(tid, context);
                self.processes.discard(tid, context.now);
            }
            Output::PauseOutput(tid) => self.processes.pause(tid, true, context),
            Output::ResumeOutput(tid) => self.processes.pause(tid, false, context),
            Output::LogOutput(tid, stream, bytes) => {
                for line in String::from_utf8_lossy(&bytes).lines() {
                    log::info!(target: "task", "{tid} {stream}> {line}");
                }
            }
            Output::MeasureUsage(question) => context
                .inbox
                .extend(self.jobs.measure(question, self.processes.living())),
            Output::Lease(end) => {
                self.guardian.note_lease(end);
                if let Err(error) = self.lease.set(end) {
                    let why = format!("the lease's timer cannot be set: {error}");
                    self.ended = Some(Err(why));
                }
            }
            Output::Note(text) => log::info!("{text}"),
            Output::End(result) => self.ended = Some(self.arrival.end(result, &self.links)),
        }
    }

    /// Ends the tasks, and gives others a moment to take what is written for them.
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
                // The other ends of links close theirs; nobody else is heard any more.
                if let Source::Link(place) = source {
                    while self.links.serve(place, &mut self.context) {}
                }
            }
            self.context.inbox.clear();
        }
        Ok(())
    }
}

/// Waits for events so long at most; a signal ends the wait, too.
fn poll(poll: &mut Poll, events: &mut Events, time: Duration) -> anyhow::Result<()> {
    match poll.poll(events, Some(time)) {
        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
            Err(error).context("cannot wait for events")
        }
        _ => Ok(()),
    }
}

/// Which checkpoints are looked at, and how closely.
fn look(app: vm_wire::Tid, from: Option<(u32, u32)>, verify: bool) -> CheckpointQuery {
    let depth = match verify {
        true => Depth::Hashes,
        false => Depth::Lengths,
    };
    CheckpointQuery { app, from, depth }
}
