//! The UNIX socket: tasks and consoles of this host.
//!
//! Who connects is a stranger: its user is checked at once, and its first frame has to come soon.
//! That frame says what it is: `Enrol` a task to be, `ConsoleRequest` a console. A task to be waits
//! until the daemon has decided; then the connection is the task's data socket, and the descriptor
//! of its interrupt socket goes to it together with the Welcome.
//!
//! A connection that brings what is no frame, or a frame that its kind may not send, is closed,
//! logged and counted; nothing else happens.

use crate::{
    context::{Context, Source},
    local::interrupts::Interrupts,
    net::{
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
use vm_machine::{ConnId, Input, Time};
use vm_wire::{
    Frame, FrameReader, HEADER_LEN, Message, Op, Tid,
    console::Answer,
    limits::{CONSOLES_MAX, LOCAL_HELLO_TIME, STRANGERS_MAX},
    task::{Enrol, FailKind, Failed},
};

/// Connections that are accepted in one turn.
const ACCEPT_BATCH: usize = 64;
/// Shares of a socket that are read at most when its task has ended.
const DRAIN_SHARES: usize = 64;
/// Above so many bytes that wait for a console the daemon sends no more output there.
const CONSOLE_FULL: usize = 512 * 1024;

/// What is at the other end.
#[derive(Debug)]
enum Kind {
    /// It has said nothing yet.
    Stranger,
    /// It wants to be a task.
    Enrolling,
    /// A task.
    Task { tid: Tid },
    /// A console. While `paused` nothing is read from it; while `full` the daemon was asked to
    /// send no output.
    Console { paused: bool, full: bool },
}

#[derive(Debug)]
struct Local {
    id: ConnId,
    socket: UnixStream,
    reader: FrameReader,
    queue: FrameQueue,
    kind: Kind,
    /// The other end has closed: what is left to read ends with an end of file.
    closed: bool,
    dirty: bool,
    /// The socket was full: the system tells when it has room again.
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
    /// Strangers, in the order in which their time is up.
    waiting: VecDeque<(Time, ConnId)>,
    strangers: usize,
    consoles: usize,
    /// The listener is ready, but there are enough strangers.
    full: bool,
    /// Connections whose queues had to drop chunks.
    lossy: Vec<usize>,
    /// Connections that were closed for what they sent.
    offences: u64,
    /// The interrupt sockets of the tasks.
    pub interrupts: Interrupts,
}

impl Locals {
    /// Takes connections from `listener`.
    ///
    /// # Errors
    /// What the system says.
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
            lossy: Vec::new(),
            offences: 0,
            interrupts: Interrupts::default(),
        })
    }

    /// From now on connections are taken from this socket, in the place of one whose name is gone.
    pub fn listen(&mut self, listener: std::os::unix::net::UnixListener, context: &mut Context) {
        let mut listener = UnixListener::from_std(listener);
        match context.register_readable(&mut listener, Source::LocalListener) {
            Ok(()) => self.listener = listener,
            Err(error) => log::error!("no console and no new task is heard: {error}"),
        }
        context.ready.push(Source::LocalListener);
    }

    /// Accepts who waits. Returns whether there may be more.
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
                // The system says so before it looks whether anybody waits.
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

    /// There is no descriptor left for who waits: says so and closes.
    fn refuse_one(&mut self) -> io::Result<()> {
        let listener = &self.listener;
        self.spare.lend(|| {
            let (mut socket, _) = listener.accept()?;
            let text = "the daemon has reached its limit of open files; end some tasks, or raise \
                        it (ulimit -n) and start the daemon again";
            // It gets the answer or the end of file; there is no more to do.
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

    /// An event: the connection at `place` can be read, or written.
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
            // What a console that is gone has left is read in any case: its end comes after it.
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

    /// A task's process has ended: reads what it sent before.
    pub fn drain(&mut self, tid: Tid, context: &mut Context) {
        // There is an end to it: the system holds but a few shares of a socket.
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
                    context.inbox.push_back(Input::Console(local.id, frame));
                }
                Kind::Stranger => self.introduce(place, frame, context)?,
                _ => bail!("{op:?} may not come from here"),
            }
        }
        Ok(())
    }

    /// The first frame of a connection.
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
                // It gets the answer or the end of file; there is no more to do.
                let _ = local.socket.write(&bytes_of(&refusal(&text)));
                bail!("{text}");
            }
            Op::ConsoleRequest => {
                local.kind = Kind::Console {
                    paused: false,
                    full: false,
                };
                self.consoles += 1;
                context.inbox.push_back(Input::Console(local.id, frame));
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
                // A task's new data socket may be there already.
                if self.tasks.get(&tid) == Some(&place) {
                    self.tasks.remove(&tid);
                    self.interrupts.remove(tid);
                    context.inbox.push_back(Input::TaskGone(tid));
                }
            }
        }
    }

    /// The connection becomes the data socket of `tid`; `frame` is its Welcome, with which the socket
    /// of its application's coordinator may go.
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
                    // It runs, but cannot be moved.
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

    /// The data socket of a task that was brought back here.
    ///
    /// # Errors
    /// What the system says.
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

    /// The task is another host's, or none of this one's: closes its sockets and says nothing.
    pub fn discard(&mut self, tid: Tid, context: &mut Context) {
        self.interrupts.remove(tid);
        if let Some(place) = self.tasks.remove(&tid) {
            self.close(place, context);
        }
    }

    /// The enrolment failed, or a console broke the protocol: says so and closes.
    pub fn reject(&mut self, conn: ConnId, frame: &Frame, context: &mut Context) {
        let step: [fn(&mut Self, usize, &Frame, &mut Context); 3] = [
            |all, place, frame, context| all.push(place, frame.clone(), context),
            |all, place, _, context| all.flush(place, context),
            |all, place, _, context| all.close(place, context),
        ];
        for step in step {
            // Each may have closed it.
            if let Some(&place) = self.others.get(&conn) {
                step(self, place, frame, context);
            }
        }
    }

    /// A task broke the protocol: closes its data socket.
    pub fn close_task(&mut self, tid: Tid, context: &mut Context) {
        if let Some(&place) = self.tasks.get(&tid) {
            self.offend(place, &anyhow::anyhow!("it broke the protocol"), context);
        }
    }

    /// Sends to a task; nothing happens if it has no data socket.
    pub fn send_to_task(&mut self, tid: Tid, frame: Frame, context: &mut Context) {
        if let Some(&place) = self.tasks.get(&tid) {
            self.push(place, frame, context);
        }
    }

    /// Sends to a console; nothing happens if it is gone.
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
            context.inbox.push_back(Input::ConsoleFull(conn));
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
            Pushed::Dropped => {
                if !self.lossy.contains(&place) {
                    self.lossy.push(place);
                }
            }
            Pushed::Stuck => {
                let error = anyhow::anyhow!("peer is not reading: its send queue is full");
                self.offend(place, &error, context);
            }
        }
    }

    /// Writes what waits for the connection at `place`.
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
            context.inbox.push_back(Input::ConsoleRoom(local.id));
        }
        // Room is told of only while it is wanted: else each read at the other end would wake this
        // daemon, in the middle of a round trip.
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
            // What it sent before it closed is still read.
            Err(_) => {
                local.queue.clear(&mut context.room);
                local.closed = true;
                context.ready.push(Source::Local(place));
            }
        }
    }

    /// Stops or goes on reading from a console.
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

    /// Tells the daemon which pairs lost chunks on the way to tasks, where there is room again.
    pub fn report_losers(&mut self, context: &mut Context) {
        self.lossy.retain(|place| {
            let Some(local) = self.table.get_mut(*place) else {
                return false;
            };
            let losers = local.queue.take_losers(&context.room);
            if !losers.is_empty() {
                context.inbox.push_back(Input::Dropped(losers));
            }
            local.queue.has_losers()
        });
    }

    /// Whether everything is written.
    pub fn is_idle(&self) -> bool {
        self.table.iter().all(|(_, local)| local.queue.is_empty())
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Time> {
        self.waiting.front().map(|(time, _)| *time)
    }

    /// Closes strangers whose time is up, and takes new ones if it had to stop.
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

/// What a task's library may send on its data socket after it enrolled.
fn is_from_task(op: Op) -> bool {
    (Op::Data..=Op::Resend).contains(&op) || (Op::Done..=Op::Saved).contains(&op)
}

/// What a console may send.
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

/// Makes the interrupt socket and sends the task's end of it together with the Welcome, and then the
/// coordinator's if there is one. Returns our end. Nothing else was sent on that socket before, so there is room for all of it.
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
