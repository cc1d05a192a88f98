//! How every call of the library runs: try, write, wait, try again.
//!
//! All state of a task is one [`Core`] behind one lock. A call is an *attempt*: a closure over the
//! core that either is done or says until when it makes sense to wait. [`Shared::run`] repeats the
//! attempt, with the lock released while it waits. Between two attempts the call holds nothing but
//! the closure's own state, so the wait can be left at any time - an interrupt, a signal, another
//! thread - and the call goes on as if it had just begun.
//!
//! **Several threads.** Whoever waits first polls the sockets; the others sleep until it has read
//! something, and one of them takes over when it is done. The one that polls may look for a moment
//! before it sleeps ([`crate::two_phase`]). A thread that has bytes to write polls
//! for that itself.
//!
//! **Acknowledgements** are served by whoever is in a call: when they are due while it waits, and
//! overdue ones when it returns. A task that computes serves none.
//!
//! **Started sends** go on in every call, before each attempt ([`crate::started`]).
//!
//! **A call returns when what it has to say is with the kernel**: nothing is left behind that only
//! a later call would write.

mod routes;
mod state;

use crate::{
    awaited::Awaited,
    callbacks,
    clock::{now, recent},
    error::{LinkError, TaskError},
    freeze,
    functions::Functions,
    image::Section,
    interrupt, interruption,
    link::{Incoming, Outgoing, ReadResult, Ready, Sockets},
    orders::{are_awaited, are_called, is_ordered, is_portable},
    portable_state::Own,
    requests::Requests,
    resend,
    ring::{self, NARROW, Rings, Until, Watch},
    started::StartedSends,
    two_phase::TwoPhase,
};
use rustix::fd::AsFd;
use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZero,
    ops::{Deref, DerefMut},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::available_parallelism,
    time::Duration,
};
use vm_endpoint::{Endpoint, EndpointConfig, Received, Time};
use vm_wire::{
    Frame, Message, Op, Tid,
    agreed::ExitStatus,
    task::{Ended, HostEvent, KeptBy, Located, Welcome},
};

/// Reads in a row before the attempt is made again, so that a flood cannot starve a call.
const READS_MAX: usize = 16;

/// A task that has rings reads its data socket at least so often while it makes calls.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The state that all handles of one task share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The identity of this task, as the daemon gave it.
    pub(crate) welcome: Welcome,
    sockets: Sockets,
    core: Mutex<Core>,
    changed: Condvar,
    /// The saved value and the callbacks of the program.
    pub(crate) own: Mutex<Own>,
    /// The program's functions for messages.
    pub(crate) functions: Functions,
    /// Whether several threads may make calls.
    is_shared: AtomicBool,
}

/// How far a task is on its way out of the machine.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// Calls are possible.
    Running,
    /// The exit is under way; what comes is not for the user any more.
    Leaving,
    /// The machine knows that it has left.
    Left,
    /// The connection is of no use.
    Broken(LinkError),
}

/// All that changes in a task.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) phase: Phase,
    pub(crate) requests: Requests,
    pub(crate) awaited: Awaited,
    /// A thread is in a handler.
    pub(crate) calls_handler: bool,
    /// Receivers to which a message is half sent: a second one waits for its end.
    pub(crate) busy: BTreeSet<Tid>,
    /// Sends that the program has started.
    pub(crate) started: StartedSends,
    /// Group messages that were taken and belong to another group, see [`crate::group`].
    pub(crate) strays: VecDeque<Received>,
    /// Frames that the endpoint wants sent; emptied into `outgoing` at the end of each attempt.
    pub(crate) out: VecDeque<Frame>,
    outgoing: Outgoing,
    incoming: Incoming,
    pub(crate) rings: Rings,
    /// The lanes that the polling thread watches.
    watch: Watch,
    /// The last read filled its room: try to read before the next wait.
    more: bool,
    /// When a call that waits for nothing has read the data socket.
    looked: Time,
    /// How often the task was frozen, as far as this knows.
    renewals: u32,
    poller: Poller,
    /// The number of the inbox ([`Endpoint::news`]) when that thread began to poll.
    polled_news: u64,
    /// The task for whose messages alone the attempt that was just made waits. Short messages of other
    /// tasks may be left in their rings for [`NARROW`].
    pub(crate) only: Option<Tid>,
    two_phase: TwoPhase,
    /// Threads that sleep until something has changed.
    sleepers: usize,
}

/// The thread that polls the data socket for reading, and watches the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poller {
    /// The next thread that waits polls.
    Nobody,
    /// A thread polls.
    Wide,
    /// A thread polls, and leaves short messages in their rings: see [`Core::only`].
    Narrow,
    /// A thread polls, and leaves all messages in rings and connections: the inbox was full.
    Full,
}

/// The result of an attempt.
pub(crate) enum Attempt<T> {
    /// The call's result.
    Done(T),
    /// Try again when something has changed, or at the given time.
    Wait(Option<Time>),
}

/// The processors that this process may use.
fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

impl Shared {
    pub(crate) fn new(welcome: Welcome, sockets: Sockets) -> Self {
        let endpoint = Endpoint::new(EndpointConfig {
            me: welcome.tid,
            window_bytes: welcome.window_bytes,
            inbox_bytes: welcome.inbox_bytes,
            epoch: welcome.epoch,
            generation: welcome.generation,
            ring_after: Some(ring::ASK_AFTER),
        });
        let core = Core {
            endpoint,
            phase: Phase::Running,
            requests: Requests::default(),
            awaited: Awaited::default(),
            calls_handler: false,
            busy: BTreeSet::new(),
            started: StartedSends::default(),
            strays: VecDeque::new(),
            out: VecDeque::new(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            rings: Rings::default(),
            watch: Watch::default(),
            more: false,
            looked: Time::default(),
            renewals: freeze::renewals(),
            poller: Poller::Nobody,
            polled_news: 0,
            only: None,
            two_phase: TwoPhase::default(),
            sleepers: 0,
        };
        Shared {
            welcome,
            sockets,
            core: Mutex::new(core),
            changed: Condvar::new(),
            own: Mutex::default(),
            functions: Functions::default(),
            is_shared: AtomicBool::new(false),
        }
    }

    /// Another thread may make calls from now on: the handle of a task, or a request, can go there.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Relaxed);
    }

    /// Makes a call of the running task that orders for it do not leave waiting: its attempt looks for
    /// them ([`is_ordered`]).
    pub(crate) fn run_to_order<T, E: From<TaskError>>(
        &self,
        mut attempt: impl FnMut(&mut Core, Time) -> Result<Attempt<T>, E>,
    ) -> Result<T, E> {
        self.run_watching(true, |core, now| {
            core.phase.running()?;
            callbacks::may_call()?;
            attempt(core, now)
        })
    }

    /// Makes a call of the running task.
    pub(crate) fn run<T, E: From<TaskError>>(
        &self,
        mut attempt: impl FnMut(&mut Core, Time) -> Result<Attempt<T>, E>,
    ) -> Result<T, E> {
        self.run_in_any_phase(|core, now| {
            core.phase.running()?;
            callbacks::may_call()?;
            attempt(core, now)
        })
    }

    /// Makes a call; the attempt looks at the phase itself.
    pub(crate) fn run_in_any_phase<T, E: From<TaskError>>(
        &self,
        attempt: impl FnMut(&mut Core, Time) -> Result<Attempt<T>, E>,
    ) -> Result<T, E> {
        self.run_watching(false, attempt)
    }

    /// Makes a call. Orders that a portable task leaves for its next safe point do not end its waits,
    /// unless it `watches` for them; those of a task with callbacks are carried out before the first attempt
    /// and between two.
    fn run_watching<T, E: From<TaskError>>(
        &self,
        watches: bool,
        mut attempt: impl FnMut(&mut Core, Time) -> Result<Attempt<T>, E>,
    ) -> Result<T, E> {
        callbacks::may_wait()?;
        self.save_in_call();
        let mut core = self.lock();
        let mut result = None;
        let mut first = true;
        let mut wide_from = None;
        loop {
            // Most calls wait for nothing, and need no exact time.
            let now = match std::mem::take(&mut first) {
                true => recent(),
                false => now(),
            };
            let mut until = None;
            self.look_at_daemon(&mut core, now)?;
            core.push_started(now);
            if result.is_none() {
                core = self.call_handlers(core);
            }
            core.only = None;
            if result.is_none() {
                match attempt(&mut core, now) {
                    Ok(Attempt::Done(value)) => result = Some(Ok(value)),
                    Ok(Attempt::Wait(time)) => until = time,
                    Err(error) => result = Some(Err(error)),
                }
            }
            if result.is_some() {
                core.serve(now);
            }
            core.settle_directs(now);
            let written = core.write(&self.sockets);
            let core_result = self.broken_if(&mut core, written);
            match result.take() {
                Some(Ok(value)) => match core_result {
                    Ok(()) if core.outgoing.is_empty() => {
                        self.wake(&core);
                        return Ok(value);
                    }
                    Ok(()) => result = Some(Ok(value)),
                    Err(error) => return Err(error.into()),
                },
                // The call has failed already; what is left to write goes with the next one.
                Some(Err(error)) => {
                    self.wake(&core);
                    return Err(error);
                }
                None => core_result?,
            }
            // Other threads wait for other messages.
            let is_narrow = now < *wide_from.get_or_insert(now + NARROW) && core.sleepers == 0;
            core.only = core.only.filter(|_| is_narrow);
            let leaves = result.is_none();
            if leaves {
                until = interruption::until(until);
            }
            core = self.wait(core, until, watches)?;
            if are_awaited() {
                drop(core);
                self.save_in_call();
                core = self.lock();
            }
            if leaves && interruption::is_due() {
                drop(core);
                if interruption::is_to_leave() {
                    return Err(TaskError::Interrupted.into());
                }
                core = self.lock();
            }
        }
    }

    /// Reads what the daemon has sent, if that was long ago: a task whose calls find all that they need
    /// in rings waits for nothing else, and one with handlers may wait for nothing at all.
    fn look_at_daemon(&self, core: &mut Locked<'_>, now: Time) -> Result<(), TaskError> {
        if core.rings.is_empty() && core.endpoint.handlers() == 0
            || core.poller != Poller::Nobody
            || now.since(core.looked) < LOOK_EVERY
        {
            return Ok(());
        }
        core.looked = now;
        let read = core.read(&self.sockets, now);
        self.broken_if(core, read)
    }

    /// Waits until something may have changed, or until the given time.
    fn wait<'a>(
        &'a self,
        mut core: Locked<'a>,
        until: Option<Time>,
        watches: bool,
    ) -> Result<Locked<'a>, TaskError> {
        // Known while the core is locked, so that whoever sees no order then is woken by one.
        let heeds = !is_portable() && !are_called();
        let watches = watches || heeds || !is_ordered();
        let read = core.poller == Poller::Nobody;
        let write = !core.outgoing.is_empty();
        if read && core.more {
            let read = core.read(&self.sockets, now());
            self.broken_if(&mut core, read)?;
            return Ok(core);
        }
        let due = until.into_iter().chain(core.due()).min();
        let time = due.map(|due| due.since(now()));
        if !read && !write {
            core.sleepers += 1;
            if core.poller == Poller::Narrow || core.is_polled_too_little() {
                ring::wake_own();
            }
            let time = time.unwrap_or(Duration::MAX);
            core = core.sleep(&self.changed, time);
            core.sleepers -= 1;
        } else {
            let looks = read && !write && core.two_phase.looks(processors);
            let rings = core.watch_rings(read);
            if rings.is_ready() || read && core.rings.have_more(&core.endpoint) {
                // An attempt that looks at no ring must not keep this thread from the sockets.
                core.read_rings(Until::Empty);
                core.watch = rings;
                self.wake(&core);
                return Ok(core);
            }
            if read {
                core.poller = core.poller_of(&rings);
                core.polled_news = core.endpoint.news();
                if self.is_shared.load(Relaxed) {
                    ring::make_wake();
                }
            }
            drop(core);
            let begin = now();
            let mut between = Duration::ZERO;
            let looked = match looks {
                true => self.sockets.look(time, &mut between, watches, &rings),
                false => Ok(Ready::default()),
            };
            let ready = looked.and_then(|ready| match ready == Ready::default() {
                true => {
                    let time = due.map(|due| due.since(now()));
                    self.sockets.sleep(read, write, time, watches, &rings)
                }
                false => Ok(ready),
            });
            if ready.as_ref().is_ok_and(|ready| ready.interrupt) {
                interrupt::heed(self.sockets.interrupt.as_fd());
            }
            core = self.lock();
            if read {
                core.poller = Poller::Nobody;
                let waited = now().since(begin);
                core.two_phase.ended(waited, between, rings.patience());
                core.watch = rings;
            }
            let handled = ready.and_then(|ready| core.ready(&self.sockets, ready));
            self.broken_if(&mut core, handled)?;
            self.wake(&core);
        }
        core.serve(now());
        Ok(core)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        // A panic in a call leaves the core whole: every step of it is complete in itself.
        Locked::new(self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// If the link has broken, the other threads are to know it, too.
    fn broken_if(&self, core: &mut Core, result: Result<(), LinkError>) -> Result<(), TaskError> {
        let result = core.broken_if(result);
        if result.is_err() {
            self.wake(core);
        }
        result
    }

    /// Lets the other threads look again. The thread that polls learns of nothing that has not come by
    /// its sockets and rings, such as a message of this task to itself.
    pub(crate) fn wake(&self, core: &Core) {
        if core.is_polled_too_little() || core.has_news_for_poller() {
            ring::wake_own();
        }
        if core.sleepers > 0 {
            self.changed.notify_all();
        }
    }
}

/// The core, locked. Meanwhile this thread is not stopped for an image: what is under way on the
/// sockets is never in one. Orders that came are heeded afterwards.
pub(crate) struct Locked<'a> {
    core: MutexGuard<'a, Core>,
    section: Section,
    /// Last: after the section.
    late: Late,
}

/// See [`Locked`].
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        resend::heed();
        interrupt::heed_late();
    }
}

impl<'a> Locked<'a> {
    fn new(core: MutexGuard<'a, Core>) -> Self {
        let mut locked = Locked {
            core,
            section: Section::enter(),
            late: Late,
        };
        if !locked.rings.is_empty() {
            locked.rings_after_freeze();
        }
        let renewals = freeze::renewals();
        if renewals != locked.renewals {
            locked.renewals = renewals;
            locked.renew();
        }
        locked
    }

    /// Releases the core until something has changed, but for so long at most.
    fn sleep(self, changed: &Condvar, time: Duration) -> Self {
        let Locked {
            core,
            section,
            late,
        } = self;
        drop(section);
        drop(late);
        Locked::new(match changed.wait_timeout(core, time) {
            Ok((core, _)) => core,
            Err(poison) => poison.into_inner().0,
        })
    }
}

impl Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Phase {
    /// An error unless calls are possible.
    pub(crate) fn running(&self) -> Result<(), TaskError> {
        match self {
            Phase::Running => Ok(()),
            Phase::Leaving | Phase::Left => Err(TaskError::Left),
            Phase::Broken(error) => Err(TaskError::Link(error.clone())),
        }
    }
}

impl Core {
    /// Puts a frame of this task's own on its way to the daemon.
    pub(crate) fn say(&mut self, frame: Frame) {
        self.out
            .push_back(frame.between(self.endpoint.me(), Tid::NONE));
    }

    /// The task was frozen, and goes on here or on another host: every channel begins anew, and what
    /// was asked is asked again. On another host nothing of what was under way has come through.
    fn renew(&mut self) {
        if freeze::is_moved() {
            self.outgoing = Outgoing::default();
            self.incoming = Incoming::default();
            self.out.clear();
            self.more = false;
        }
        self.requests.ask_again();
        self.started.renew();
        self.awaited.renew(now());
        self.endpoint.set_generation(freeze::generation());
        self.endpoint.renew(now(), &mut self.out);
    }

    /// Remembers that the connection is of no use.
    fn broken_if(&mut self, result: Result<(), LinkError>) -> Result<(), TaskError> {
        result.map_err(|error| {
            self.phase = Phase::Broken(error.clone());
            TaskError::Link(error)
        })
    }

    /// When acknowledgements, repetitions or questions are due.
    fn due(&self) -> Option<Time> {
        match self.phase {
            Phase::Running => self
                .endpoint
                .deadline()
                .into_iter()
                .chain(self.awaited.due())
                .chain(self.rings.due())
                .chain(self.started.due())
                .min(),
            _ => None,
        }
    }

    /// Sends those that are.
    fn serve(&mut self, now: Time) {
        if self.due().is_some_and(|due| due <= now) {
            self.rings.look(&mut self.endpoint, now);
            self.rings.acknowledge(&mut self.endpoint, now);
            self.endpoint.tick(now, &mut self.out);
            self.close_idle_rings(now);
            for question in self.awaited.ask(now) {
                self.say(question);
            }
        }
    }

    fn write(&mut self, sockets: &Sockets) -> Result<(), LinkError> {
        for frame in self.out.drain(..) {
            self.outgoing.push(frame);
        }
        freeze::note_unacknowledged(self.endpoint.unacknowledged());
        self.outgoing.write(&sockets.data)
    }

    fn ready(&mut self, sockets: &Sockets, ready: Ready) -> Result<(), LinkError> {
        if ready.direct {
            self.rings.look(&mut self.endpoint, now());
            self.read_rings(Until::Empty);
        }
        if ready.read {
            self.read(sockets, now())?;
        }
        Ok(())
    }

    fn read(&mut self, sockets: &Sockets, now: Time) -> Result<(), LinkError> {
        for _ in 0..READS_MAX {
            self.more = self.incoming.read(&sockets.data)? == ReadResult::More;
            // Chunks that peers wrote into rings before these frames go before them.
            self.rings.read(&mut self.endpoint, Until::Empty);
            while let Some(frame) = self.incoming.next_frame()? {
                self.handle(frame, sockets, now)?;
            }
            self.rings.state_progress(&mut self.endpoint);
            if !self.more {
                break;
            }
        }
        Ok(())
    }

    /// A frame came from the daemon.
    fn handle(&mut self, frame: Frame, sockets: &Sockets, now: Time) -> Result<(), LinkError> {
        match frame.header.op {
            // What is retained is with the daemon, which answers for this task from now on.
            op if !matches!(self.phase, Phase::Running)
                && (op.is_told()
                    || matches!(op, Op::Data | Op::Ack | Op::Resend | Op::Located)) => {}
            Op::Data | Op::Ack | Op::Resend => self.endpoint.handle(now, frame, &mut self.out),
            Op::Located => {
                let located = Located::read(&frame)?;
                let generation = frame.header.generation;
                self.endpoint
                    .located(now, &located, generation, &mut self.out);
            }
            op if op.is_told() && !self.endpoint.is_news(&frame.header, &mut self.out) => {}
            Op::KeptBy => self
                .endpoint
                .kept_by(now, &KeptBy::read(&frame)?, &mut self.out),
            Op::Ended => {
                let ended = Ended::read(&frame)?;
                // Nothing more comes from a lost host.
                let known = ended.last.is_some() || ended.status == ExitStatus::HostLost;
                self.rings
                    .read_last(&mut self.endpoint, now, ended.tid, known);
                self.endpoint.ended(now, ended, &mut self.out);
            }
            Op::RingOpen | Op::RingClosed | Op::DirectDial | Op::DirectOpen => {
                self.heed_route(frame, sockets, now)?;
            }
            Op::HostEvent => self.endpoint.host_event(HostEvent::read(&frame)?),
            Op::Failed
            | Op::Done
            | Op::Spawned
            | Op::GroupView
            | Op::ContextGiven
            | Op::Hosts
            | Op::Tids
            | Op::Moved
            | Op::Checked
            | Op::Drained
            | Op::Saved
            | Op::Resumed => {
                self.requests.answer(frame);
            }
            op => return Err(LinkError::Unexpected(op)),
        }
        Ok(())
    }
}

/// After an attempt that found nothing: waits until the time is over. The socket is looked at once
/// even if it is over from the start, else a program that only ever tries would never receive.
pub(crate) fn none_or_wait<T>(
    until: Option<Time>,
    now: Time,
    looked: &mut bool,
) -> Attempt<Option<T>> {
    match until {
        Some(until) if now >= until && *looked => Attempt::Done(None),
        _ => {
            *looked = true;
            Attempt::Wait(until)
        }
    }
}
