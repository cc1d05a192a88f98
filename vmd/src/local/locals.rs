//! The UNIX socket for tasks and consoles of this host.
//!
//! A new connection is a stranger: the user at its other end is checked at once, and its first
//! frame must come soon. That frame says what it is: `Enrol` comes from a process that wants to
//! become a task, `ConsoleRequest` from a console. The process waits until the daemon has decided;
//! then the connection becomes the task's data socket, and the descriptor of its interrupt socket
//! goes to it together with the Welcome.
//!
//! A connection that sends bytes that are no frame, or a frame that its kind may not send, is
//! closed, logged and counted; nothing else happens.

use crate::{
    context::{Context, Source},
    local::{interrupts::Interrupts, rings::Wakes},
    net::{
        lossy::Lossy,
        queue::{Flushed, FrameQueue, Lanes, Pushed},
        sockets::{READ_MIN, Read, SERVE_BYTES, Spare, read_into},
    },
};
use anyhow::{Context as _, bail};
use mio::net::{UnixListener, UnixStream};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};
use vm_machine::{ConnId, ConsoleInput, Input, RingOutput, Time};
use vm_wire::{
    Frame, FrameReader, HEADER_LEN, Message, Op, Tid,
    console::Answer,
    limits::{CONSOLES_MAX, LOCAL_HELLO_TIME, STRANGERS_MAX},
    task::{Enrol, FailKind, Failed},
};

/// Bound on the connections that are accepted in one turn.
const ACCEPT_BATCH: usize = 64;
/// Bound on the shares that are read from a socket whose task has ended.
const DRAIN_SHARES: usize = 64;
/// The daemon sends no more output to a console for which more than this number of bytes wait.
const CONSOLE_FULL: usize = 512 * 1024;

/// The peer at the other end of a connection.
#[derive(Debug)]
enum Kind {
    /// The peer has sent no frame yet.
    Stranger,
    /// A process that wants to become a task.
    Enrolling,
    /// A task.
    Task { tid: Tid },
    /// A console. While `paused`, the daemon reads nothing from it. `full` means that the state
    /// machine was asked to send it no output.
    Console { paused: bool, full: bool },
}

#[derive(Debug)]
struct Local {
    id: ConnId,
    socket: UnixStream,
    reader: FrameReader,
    queue: FrameQueue,
    kind: Kind,
    /// The other end has closed. The bytes that it sent before are still read, up to the end of
    /// file.
    closed: bool,
    dirty: bool,
    /// The socket was full, and the system was asked to report when it has room again.
    awaits_room: bool,
}

/// All connections of tasks and consoles.
#[derive(Debug)]
pub struct Locals {
    listener: UnixListener,
    spare: Spare,
    table: Slab<Local>,
    tasks: HashMap<Tid, usize>,
    others: HashMap<ConnId, usize>,
    /// Strangers, in the order of their deadlines.
    waiting: VecDeque<(Time, ConnId)>,
    strangers: usize,
    consoles: usize,
    /// The listener is ready, but the number of strangers is at its bound.
    full: bool,
    /// Connections whose queues have dropped chunks.
    lossy: Lossy,
    /// Number of connections that were closed because they broke the protocol.
    offences: u64,
    /// The interrupt sockets of the tasks.
    pub interrupts: Interrupts,
    wakes: Wakes,
}

impl Locals {
    /// A table without connections, with `listener` registered.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(listener: std::os::unix::net::UnixListener, context: &Context) -> io::Result<Self> {
        let mut listener = UnixListener::from_std(listener);
        context.register_readable(&mut listener, Source::LocalListener)?;
        Ok(Locals {
            listener,
            spare: Spare::new()?,
            table: Slab::new(),
            tasks: HashMap::new(),
            others: HashMap::new(),
            waiting: VecDeque::new(),
            strangers: 0,
            consoles: 0,
            full: false,
            lossy: Lossy::default(),
            offences: 0,
            interrupts: Interrupts::default(),
            wakes: Wakes::default(),
        })
    }

    /// Replaces the listener, after the file of the old socket was removed.
    pub fn listen(&mut self, listener: std::os::unix::net::UnixListener, context: &mut Context) {
        let mut listener = UnixListener::from_std(listener);
        match context.register_readable(&mut listener, Source::LocalListener) {
            Ok(()) => self.listener = listener,
            Err(error) => log::error!("no console and no new task is heard: {error}"),
        }
        context.ready.push(Source::LocalListener);
    }

    /// Accepts waiting connections. Returns whether there may be more.
    pub fn accept(&mut self, context: &mut Context) -> bool {
        for _ in 0..ACCEPT_BATCH {
            if self.strangers >= STRANGERS_MAX {
                self.full = true;
                return false;
            }
            match self.listener.accept() {
                Ok((socket, _)) => {
                    if let Err(error) = self.welcome_stranger(socket, context) {
                        log::warn!("a local connection was refused: {error:#}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // The system returns this error before it looks whether a connection waits.
                Err(error) if Spare::is_exhausted(&error) => {
                    if self.refuse_one().is_err() {
                        return false;
                    }
                    log::error!(
                        "the limit of open files is reached: a local connection was refused"
                    );
                }
                Err(error) => log::debug!("a local connection was lost: {error}"),
            }
        }
        true
    }

    /// Refuses a waiting connection, because no descriptor is left: sends the reason and closes.
    fn refuse_one(&mut self) -> io::Result<()> {
        let listener = &self.listener;
        self.spare.lend(|| {
            let (mut socket, _) = listener.accept()?;
            let text = "the daemon has reached its limit of open files; end some tasks, or raise \
                        it (ulimit -n) and start the daemon again";
            // The peer gets the reply or the end of file; the daemon can do no more.
            let _ = socket.write(&bytes_of(&refusal(text)));
            Ok(())
        })
    }

    fn welcome_stranger(
        &mut self,
        mut socket: UnixStream,
        context: &mut Context,
    ) -> anyhow::Result<()> {
        let peer = vm_local::peer(&socket)?;
        if peer.user != rustix::process::geteuid().as_raw() {
            bail!("it came from user {}", peer.user);
        }
        let entry = self.table.vacant_entry();
        let place = entry.key();
        context.register_readable(&mut socket, Source::Local(place))?;
        let id = context.conn();
        entry.insert(Local {
            id,
            socket,
            reader: FrameReader::new(),
            queue: FrameQueue::new(Lanes::One),
            kind: Kind::Stranger,
            closed: false,
            dirty: false,
            awaits_room: false,
        });
        self.others.insert(id, place);
        self.strangers += 1;
        self.waiting.push_back((context.now + LOCAL_HELLO_TIME, id));
        Ok(())
    }

    /// Handles an event: the connection at `place` can be read, or written.
    pub fn wake(&mut self, place: usize, closed: bool, context: &mut Context) {
        if let Some(local) = self.table.get_mut(place) {
            local.closed |= closed;
            if !local.queue.is_empty() && !local.dirty {
                local.dirty = true;
                context.dirty.push(Source::Local(place));
            }
        }
    }

    /// Reads from the connection at `place`. Returns whether there may be more.
    pub fn serve(&mut self, place: usize, context: &mut Context) -> bool {
        let mut share = SERVE_BYTES;
        loop {
            let Some(local) = self.table.get_mut(place) else {
                return false;
            };
            // The last frames of a console that has closed are read even while it is paused: its
            // end comes after them.
            if matches!(local.kind, Kind::Console { paused: true, .. }) && !local.closed {
                return false;
            }
            let room = (local.reader.missing() + HEADER_LEN).max(READ_MIN);
            let buffer = local.reader.buffer(room);
            let (count, more) = match read_into(&local.socket, buffer, room) {
                Ok(Read::Full(count)) => (count, true),
                Ok(Read::Some(count)) => (count, local.closed),
                Ok(Read::Nothing) => return false,
                Ok(Read::End) | Err(_) => {
                    self.close(place, context);
                    return false;
                }
            };
            if let Err(error) = self.take_frames(place, context) {
                self.offend(place, &error, context);
                return false;
            }
            share = share.saturating_sub(count);
            if !more || share == 0 {
                return more;
            }
        }
    }

    /// Reads what a task sent before its process ended.
    pub fn drain(&mut self, tid: Tid, context: &mut Context) {
        // The loop ends: the system holds only a few shares of a socket.
        for _ in 0..DRAIN_SHARES {
            match self.tasks.get(&tid).copied() {
                Some(place) if self.serve(place, context) => {}
                _ => return,
            }
        }
    }

    fn take_frames(&mut self, place: usize, context: &mut Context) -> anyhow::Result<()> {
        while let Some(local) = self.table.get_mut(place) {
            let Some(frame) = local.reader.next_frame()? else {
                return Ok(());
            };
            let op = frame.header.op;
            match &local.kind {
                Kind::Task { tid } if is_from_task(op) => {
                    context.inbox.push_back(Input::Task(*tid, frame));
                }
                Kind::Console { .. } if is_from_console(op) => {
                    context
                        .inbox
                        .push_back(Input::Console(ConsoleInput::Frame(local.id, frame)));
                }
                Kind::Stranger => self.introduce(place, frame, context)?,
                _ => bail!("{op:?} may not come from here"),
            }
        }
        Ok(())
    }

    /// Handles the first frame of a connection.
    fn introduce(
        &mut self,
        place: usize,
        frame: Frame,
        context: &mut Context,
    ) -> anyhow::Result<()> {
        let local = &mut self.table[place];
        match frame.header.op {
            Op::Enrol => {
                let enrol = Enrol::read(&frame)?;
                let Some(process) = vm_local::peer(&local.socket)?.process else {
                    bail!("a process outside of this daemon's pid namespace cannot be its task");
                };
                local.kind = Kind::Enrolling;
                context.inbox.push_back(Input::Enrol {
                    conn: local.id,
                    pid: process.as_raw_nonzero().get() as u32,
                    enrol,
                });
            }
            Op::ConsoleRequest if self.consoles >= CONSOLES_MAX => {
                let text = format!("{CONSOLES_MAX} consoles are open on this daemon, its limit");
                // The console gets the reply or the end of file; the daemon can do no more.
                let _ = local.socket.write(&bytes_of(&refusal(&text)));
                bail!("{text}");
            }
            Op::ConsoleRequest => {
                local.kind = Kind::Console {
                    paused: false,
                    full: false,
                };
                self.consoles += 1;
                context
                    .inbox
                    .push_back(Input::Console(ConsoleInput::Frame(local.id, frame)));
            }
            op => bail!("{op:?} is no first frame"),
        }
        self.strangers -= 1;
        Ok(())
    }

    fn offend(&mut self, place: usize, error: &anyhow::Error, context: &mut Context) {
        self.offences += 1;
        let who = match &self.table[place].kind {
            Kind::Task { tid } => format!("task {tid}"),
            Kind::Console { .. } => "a console".to_owned(),
            Kind::Stranger | Kind::Enrolling => "a local connection".to_owned(),
        };
        log::warn!(
            "{who} was cut off (the {}. so far): {error:#}",
            self.offences
        );
        self.close(place, context);
    }

    fn close(&mut self, place: usize, context: &mut Context) {
        let mut local = self.table.remove(place);
        local.queue.clear(&mut context.room);
        self.others.remove(&local.id);
        match local.kind {
            Kind::Stranger => self.strangers -= 1,
            Kind::Enrolling => context.inbox.push_back(Input::ConnGone(local.id)),
            Kind::Console { .. } => {
                self.consoles -= 1;
                context.inbox.push_back(Input::ConnGone(local.id));
            }
            Kind::Task { tid } => {
                // A new data socket of the task may be in the table already.
                if self.tasks.get(&tid) == Some(&place) {
                    self.tasks.remove(&tid);
                    self.interrupts.remove(tid);
                    context.inbox.push_back(Input::TaskGone(tid));
                }
            }
        }
    }

    /// Makes the connection the data socket of `tid`. `frame` is its Welcome; the socket of its
    /// application's coordinator may go with it.
    pub fn welcome(
        &mut self,
        conn: ConnId,
        tid: Tid,
        frame: &Frame,
        coordinator: Option<OwnedFd>,
        context: &mut Context,
    ) {
        let Some(&place) = self.others.get(&conn) else {
            context.inbox.push_back(Input::TaskGone(tid));
            return;
        };
        let local = &mut self.table[place];
        match hand_over(&local.socket, frame, coordinator) {
            Ok(interrupt) => {
                local.kind = Kind::Task { tid };
                self.others.remove(&conn);
                if let Some(before) = self.tasks.insert(tid, place) {
                    self.close(before, context);
                }
                if let Err(error) = self.interrupts.add(tid, interrupt, context) {
                    // The task runs, but cannot be moved.
                    log::warn!("the interrupt socket of {tid} cannot be watched: {error}");
                }
            }
            Err(error) => {
                log::error!("task {tid} cannot be welcomed: {error:#}");
                context.inbox.push_back(Input::TaskGone(tid));
                self.close(place, context);
            }
        }
    }

    /// Adds the data socket of a task that was restored on this host.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn add_task(&mut self, tid: Tid, socket: OwnedFd, context: &mut Context) -> io::Result<()> {
        let mut socket = UnixStream::from_std(socket.into());
        let entry = self.table.vacant_entry();
        let place = entry.key();
        context.register_readable(&mut socket, Source::Local(place))?;
        entry.insert(Local {
            id: context.conn(),
            socket,
            reader: FrameReader::new(),
            queue: FrameQueue::new(Lanes::One),
            kind: Kind::Task { tid },
            closed: false,
            dirty: false,
            awaits_room: false,
        });
        if let Some(before) = self.tasks.insert(tid, place) {
            self.close(before, context);
        }
        Ok(())
    }

    /// Closes the sockets of a task that belongs to another host or has ended, without a report.
    pub fn discard(&mut self, tid: Tid, context: &mut Context) {
        self.interrupts.remove(tid);
        if let Some(place) = self.tasks.remove(&tid) {
            self.close(place, context);
        }
    }

    /// Refuses an enrolment, or ends a console that broke the protocol: sends the reason and
    /// closes.
    pub fn reject(&mut self, conn: ConnId, frame: &Frame, context: &mut Context) {
        let step: [fn(&mut Self, usize, &Frame, &mut Context); 3] = [
            |all, place, frame, context| all.push(place, frame.clone(), context),
            |all, place, _, context| all.flush(place, context),
            |all, place, _, context| all.close(place, context),
        ];
        for step in step {
            // Each step may have closed the connection.
            if let Some(&place) = self.others.get(&conn) {
                step(self, place, frame, context);
            }
        }
    }

    /// Closes the data socket of a task that broke the protocol.
    pub fn close_task(&mut self, tid: Tid, context: &mut Context) {
        if let Some(&place) = self.tasks.get(&tid) {
            self.offend(place, &anyhow::anyhow!("it broke the protocol"), context);
        }
    }

    /// Sends a frame to a task. Nothing happens if the task has no data socket.
    pub fn send_to_task(&mut self, tid: Tid, frame: Frame, context: &mut Context) {
        if let Some(&place) = self.tasks.get(&tid) {
            self.push(place, frame, context);
        }
    }

    /// Carries out an order about rings.
    pub fn change_ring(&mut self, order: RingOutput, context: &mut Context) {
        match order {
            RingOutput::Open { id, ends } => {
                let tids = [ends[0].0, ends[1].0];
                let Some(descriptors) = self.wakes.make_ring(tids) else {
                    let failed = Input::RingFailed { id, ends: tids };
                    return context.inbox.push_back(failed);
                };
                for ((tid, frame), descriptors) in (*ends).into_iter().zip(descriptors) {
                    self.send_with(tid, frame, descriptors.into(), context);
                }
            }
            RingOutput::Forget(tid) => self.wakes.forget(tid),
        }
    }

    /// Sends a frame to a task with descriptors. Nothing happens if the task has no data socket.
    pub fn send_with(
        &mut self,
        tid: Tid,
        frame: Frame,
        descriptors: Vec<OwnedFd>,
        context: &mut Context,
    ) {
        if let Some(&place) = self.tasks.get(&tid) {
            self.table[place].queue.attach(descriptors);
            self.push(place, frame, context);
        }
    }

    /// Sends a frame to a console. Nothing happens if the console has gone.
    pub fn send_to_console(&mut self, conn: ConnId, frame: Frame, context: &mut Context) {
        if let Some(&place) = self.others.get(&conn) {
            self.push(place, frame, context);
        }
        if let Some(&place) = self.others.get(&conn)
            && let local = &mut self.table[place]
            && local.queue.bytes() > CONSOLE_FULL
            && let Kind::Console { full, .. } = &mut local.kind
            && !*full
        {
            *full = true;
            context
                .inbox
                .push_back(Input::Console(ConsoleInput::Full(conn)));
        }
    }

    fn push(&mut self, place: usize, frame: Frame, context: &mut Context) {
        let local = &mut self.table[place];
        match local.queue.push(frame, &mut context.room) {
            Pushed::Kept => {
                if !local.dirty {
                    local.dirty = true;
                    context.dirty.push(Source::Local(place));
                }
            }
            Pushed::Dropped => self.lossy.note(place),
            Pushed::Stuck => {
                let error = anyhow::anyhow!("peer is not reading: its send queue is full");
                self.offend(place, &error, context);
            }
        }
    }

    /// Writes the queue of the connection at `place`.
    pub fn flush(&mut self, place: usize, context: &mut Context) {
        let Some(local) = self.table.get_mut(place) else {
            return;
        };
        local.dirty = false;
        let flushed = local.queue.flush(&local.socket, &mut context.room);
        if let Kind::Console { full, .. } = &mut local.kind
            && *full
            && local.queue.bytes() <= CONSOLE_FULL / 2
        {
            *full = false;
            context
                .inbox
                .push_back(Input::Console(ConsoleInput::Room(local.id)));
        }
        // The system reports room only while the daemon waits for it. Otherwise each read at the
        // other end would wake this daemon in the middle of a round trip.
        let blocked = matches!(flushed, Ok(Flushed::Blocked));
        if blocked != local.awaits_room && !matches!(flushed, Ok(Flushed::More)) {
            local.awaits_room = blocked;
            let source = Source::Local(place);
            if let Err(error) = context.await_room(&mut local.socket, source, blocked) {
                log::warn!("a local connection cannot be waited for: {error}");
                local.closed = true;
                context.ready.push(source);
            }
        }
        match flushed {
            Ok(Flushed::Empty | Flushed::Blocked) => {}
            Ok(Flushed::More) => {
                local.dirty = true;
                context.dirty.push(Source::Local(place));
            }
            // Frames that the peer sent before it closed are still read.
            Err(_) => {
                local.queue.clear(&mut context.room);
                local.closed = true;
                context.ready.push(Source::Local(place));
            }
        }
    }

    /// Stops or resumes reading from a console.
    pub fn pause(&mut self, conn: ConnId, pause: bool, context: &mut Context) {
        let Some(&place) = self.others.get(&conn) else {
            return;
        };
        if let Kind::Console { paused, .. } = &mut self.table[place].kind
            && *paused != pause
        {
            *paused = pause;
            if !pause {
                context.ready.push(Source::Local(place));
            }
        }
    }

    /// Reports to the state machine which channels lost chunks on the way to tasks, once their
    /// queues have room again.
    pub fn report_losers(&mut self, context: &mut Context) {
        self.lossy
            .report(&mut self.table, |local| &mut local.queue, context);
    }

    /// Whether all queues are empty.
    pub fn is_idle(&self) -> bool {
        self.table.iter().all(|(_, local)| local.queue.is_empty())
    }

    /// The time of the next deadline.
    pub fn deadline(&self) -> Option<Time> {
        self.waiting.front().map(|(time, _)| *time)
    }

    /// Closes strangers whose time is up. Accepts again if their number was at its bound.
    pub fn tick(&mut self, context: &mut Context) {
        while let Some(&(time, conn)) = self.waiting.front()
            && time <= context.now
        {
            self.waiting.pop_front();
            if let Some(&place) = self.others.get(&conn)
                && matches!(self.table[place].kind, Kind::Stranger)
            {
                let error = anyhow::anyhow!("it did not say what it is");
                self.offend(place, &error, context);
            }
        }
        if self.full && self.strangers < STRANGERS_MAX {
            self.full = false;
            context.ready.push(Source::LocalListener);
        }
    }
}

/// The operations that a task's library may send on its data socket after the task has enrolled.
fn is_from_task(op: Op) -> bool {
    (Op::Data..=Op::Resend).contains(&op)
        || (Op::Done..=Op::Saved).contains(&op)
        || matches!(op, Op::RingAsk | Op::RingClosed | Op::ContextAsk)
}

/// The operations that a console may send.
fn is_from_console(op: Op) -> bool {
    op >= Op::ConsoleRequest
}

fn refusal(text: &str) -> Frame {
    Answer::Failed(Failed::new(FailKind::Limit, text)).frame()
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.write_to(&mut bytes);
    bytes
}

/// Makes the interrupt socket, and sends the task's end of it together with the Welcome, then the
/// coordinator's socket if there is one. Returns the daemon's end. Nothing was sent on the
/// connection before, so there is room for all of it.
fn hand_over(
    socket: impl AsFd,
    frame: &Frame,
    coordinator: Option<OwnedFd>,
) -> anyhow::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .context("no interrupt socket")?;
    let fds: Vec<_> = [Some(&theirs), coordinator.as_ref()]
        .into_iter()
        .flatten()
        .map(AsFd::as_fd)
        .collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        bail!("no room for a descriptor");
    }
    let bytes = bytes_of(frame);
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
    .context("the Welcome cannot be sent")?;
    if sent != bytes.len() {
        bail!("only a part of the Welcome could be sent");
    }
    Ok(ours)
}
