//! A stand-in for the daemon: it welcomes tasks, passes frames between them, answers requests.
//!
//! Every connection has a thread that reads and one that writes, with a queue without a bound
//! between, so that the relay itself never holds anybody up.

use crate::{
    Task,
    context::ContextId,
    error::InitError,
    init::{Environment, enrol},
    primitive::Shared,
};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair,
};
use std::{
    collections::BTreeMap,
    fs::Permissions,
    io::{IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;
use vm_wire::{
    Frame, FrameReader, Header, HostId, MachineId, Message, Op, Tid, agreed::ExitStatus, limits,
    task::*,
};

/// How long a test waits for what must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that a library connects to sockets in.
pub(super) fn private_folder() -> TempDir {
    let private = Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    builder.permissions(private).tempdir().unwrap()
}

pub(super) struct Relay {
    folder: TempDir,
    state: Arc<State>,
}

struct State {
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    /// Where each task's frames go; one that has ended has none.
    tasks: BTreeMap<Tid, Sender<Frame>>,
    /// The relay's end of each interrupt socket.
    interrupts: BTreeMap<Tid, OwnedFd>,
    groups: BTreeMap<String, GroupView>,
    /// The last context that was given.
    context: u32,
    watched: Vec<(Tid, Tid)>,
    /// Each task that awaits messages, and the awaited sender.
    pub(super) awaited: Vec<(Tid, Tid)>,
    ended: BTreeMap<Tid, Exit>,
    /// The number of the last notify.
    told: u64,
    /// All that was asked, repetitions too.
    pub(super) asked: Vec<(Tid, Op, u64)>,
    /// Chunks that were left at an exit.
    pub(super) kept: Vec<Frame>,
    /// So many of the next requests are not answered.
    pub(super) deaf: usize,
    /// So many of the next chunks are lost.
    pub(super) lose: usize,
    pub(super) inbox_bytes: u64,
    last_tid: u32,
}

pub(super) fn tid(sequence: u32) -> Tid {
    Tid::new(MachineId::from_bits(7), HostId::FOUNDER, sequence)
}

impl Relay {
    pub(super) fn new() -> Self {
        let folder = private_folder();
        let state = Arc::new(State {
            inner: Mutex::new(Inner {
                tasks: BTreeMap::new(),
                interrupts: BTreeMap::new(),
                groups: BTreeMap::new(),
                context: 0,
                watched: Vec::new(),
                awaited: Vec::new(),
                ended: BTreeMap::new(),
                told: 0,
                asked: Vec::new(),
                kept: Vec::new(),
                deaf: 0,
                lose: 0,
                inbox_bytes: limits::INBOX_BYTES_DEFAULT,
                last_tid: 0,
            }),
        });
        let relay = Relay { folder, state };
        let listener = UnixListener::bind(relay.socket()).unwrap();
        let state = Arc::clone(&relay.state);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let state = Arc::clone(&state);
                thread::spawn(move || state.serve(connection.unwrap()));
            }
        });
        relay
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("vmd.sock")
    }

    /// A new task, in this process.
    pub(super) fn task(&self) -> Task {
        let (welcome, sockets) = self.enrol(None).unwrap();
        Task::new(Arc::new(Shared::new(welcome, sockets)), ContextId::PROGRAM)
    }

    pub(super) fn enrol(
        &self,
        token: Option<u64>,
    ) -> Result<(Welcome, crate::link::Sockets), InitError> {
        let socket = self.socket();
        enrol(&Environment { socket, token }).map(|(welcome, sockets, _)| (welcome, sockets))
    }

    /// Looks at the relay's state, or changes it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.state.inner.lock().unwrap())
    }

    /// Sends a frame to a task as its daemon.
    pub(super) fn tell(&self, to: Tid, frame: Frame) {
        self.with(|inner| inner.send(to, frame));
    }

    /// Sends an order on the interrupt socket.
    pub(super) fn interrupt(&self, to: Tid, number: u64) {
        self.with(|inner| {
            let socket = &inner.interrupts[&to];
            send(socket, &number.to_le_bytes(), SendFlags::empty()).unwrap();
        });
    }

    /// Ends a task's connections, as when the daemon dies.
    pub(super) fn cut(&self, task: Tid) {
        self.with(|inner| inner.interrupts.remove(&task));
    }
}

impl State {
    /// Serves one connection until it is closed.
    fn serve(&self, mut stream: UnixStream) {
        let mut reader = FrameReader::new();
        let Some(frame) = next_frame(&mut stream, &mut reader) else {
            return;
        };
        let enrol = Enrol::read(&frame).unwrap();
        if enrol.token == Some(0) {
            let failed = Failed::new(FailKind::Refused, "this token is not known");
            let _ = stream.write_all(&bytes(&failed.frame()));
            return;
        }
        let (me, writer) = self.welcome(&stream);
        let out = stream.try_clone().unwrap();
        thread::spawn(move || write_frames(out, writer));
        while let Some(frame) = next_frame(&mut stream, &mut reader) {
            self.inner.lock().unwrap().handle(me, frame);
        }
    }

    fn welcome(&self, stream: &UnixStream) -> (Tid, Receiver<Frame>) {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let (sender, receiver) = channel();
        let mut inner = self.inner.lock().unwrap();
        inner.last_tid += 1;
        let me = tid(inner.last_tid);
        inner.tasks.insert(me, sender);
        inner.interrupts.insert(me, ours);
        let welcome = Welcome {
            version: vm_wire::version::CURRENT,
            machine: me.machine(),
            host: HostId::FOUNDER,
            tid: me,
            parent: Tid::NONE,
            app: me,
            index: 0,
            epoch: 0,
            generation: 0,
            incarnation: 1,
            window_bytes: limits::WINDOW_BYTES_DEFAULT,
            inbox_bytes: inner.inbox_bytes,
        };
        let bytes = bytes(&welcome.frame());
        let descriptors = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let slices = [IoSlice::new(&bytes)];
        let sent = sendmsg(stream, &slices, &mut control, SendFlags::empty()).unwrap();
        assert_eq!(sent, bytes.len());
        (me, receiver)
    }
}

impl Inner {
    fn send(&mut self, to: Tid, mut frame: Frame) {
        if frame.header.op.is_told() {
            self.told += 1;
            frame.header.seq = self.told;
        }
        if let Some(task) = self.tasks.get(&to) {
            // A task that is gone takes nothing more.
            let _ = task.send(frame);
        }
    }

    fn handle(&mut self, from: Tid, mut frame: Frame) {
        let to = frame.header.to;
        match frame.header.op {
            Op::Data if frame.header.flags & Header::KEEP != 0 => {
                self.kept.push(frame.clone());
                frame.header.flags = 0;
                self.send(to, frame);
            }
            Op::Data if self.lose > 0 => self.lose -= 1,
            Op::Data | Op::Resend if self.ended.contains_key(&to) => {
                let ended = Located {
                    host: HostId::NONE,
                    peer: Some(to),
                    incarnation: 0,
                };
                self.send(from, ended.frame());
            }
            Op::Data | Op::Ack | Op::Resend => self.send(to, frame),
            Op::Await => {
                let Await { tid } = Await::read(&frame).unwrap();
                self.awaited.push((from, tid));
                if self.ended.contains_key(&tid) {
                    self.notify(from, tid, false);
                }
            }
            op => {
                let request = frame.header.request;
                self.asked.push((from, op, request));
                if self.deaf > 0 {
                    self.deaf -= 1;
                } else {
                    let answer = self.answer(from, &frame).asked(request);
                    self.send(from, answer);
                }
            }
        }
    }

    fn answer(&mut self, from: Tid, frame: &Frame) -> Frame {
        match frame.header.op {
            Op::Exit => {
                let exit = Exit::read(frame).unwrap();
                let watchers: Vec<Tid> = self
                    .watched
                    .iter()
                    .filter(|(_, watched)| *watched == from)
                    .map(|(watcher, _)| *watcher)
                    .collect();
                self.ended.insert(from, exit);
                for watcher in watchers {
                    self.notify(watcher, from, true);
                }
                let awaited = self.awaited.clone().into_iter();
                for (awaits, _) in awaited.filter(|(_, of)| *of == from) {
                    self.notify(awaits, from, false);
                }
                for view in self.groups.values_mut() {
                    leave(view, from);
                }
                Done {}.frame()
            }
            Op::Watch => {
                if let Watched::Task(watched) = Watch::read(frame).unwrap().what {
                    self.watched.push((from, watched));
                    if self.ended.contains_key(&watched) {
                        self.notify(from, watched, true);
                    }
                }
                Done {}.frame()
            }
            Op::GroupChange => {
                let GroupChange { group, join } = GroupChange::read(frame).unwrap();
                let view = self.groups.entry(group.clone()).or_insert(GroupView {
                    group,
                    version: 0,
                    members: Vec::new(),
                });
                match join {
                    true if view.members.iter().any(|(_, tid)| *tid == from) => {}
                    true => {
                        let taken = |n: &u32| view.members.iter().any(|(number, _)| number == n);
                        let free = (0..).find(|n| !taken(n)).unwrap();
                        view.members.push((free, from));
                        view.members.sort();
                        view.version += 1;
                    }
                    false => leave(view, from),
                }
                view.frame()
            }
            Op::GroupAsk => match self.groups.get(&GroupAsk::read(frame).unwrap().group) {
                Some(view) => view.frame(),
                None => Failed::new(FailKind::NoSuchGroup, "no such group").frame(),
            },
            Op::ContextAsk => {
                self.context += 1;
                let context = self.context;
                ContextGiven { context }.frame()
            }
            Op::HostsAsk => Hosts { hosts: Vec::new() }.frame(),
            Op::Spawn => {
                let Spawn { count, .. } = Spawn::read(frame).unwrap();
                let tids = (1..=count).map(tid).collect();
                let missing = Failed::new(FailKind::NoSuchProgram, "no such program");
                let failures = match count {
                    1 => Vec::new(),
                    _ => vec![("node2".to_owned(), missing)],
                };
                Spawned { tids, failures }.frame()
            }
            op => Failed::new(FailKind::BadRequest, format!("{op:?}")).frame(),
        }
    }

    /// Tells of an end in order.
    fn notify(&mut self, watcher: Tid, ended: Tid, watched: bool) {
        let Exit { status, last } = &self.ended[&ended];
        let last = last.iter().find(|(peer, _)| *peer == watcher);
        let notify = Ended {
            tid: ended,
            status: ExitStatus::Left(*status),
            last: Some(last.map_or(0, |(_, last)| *last)),
            keeper: HostId(1),
            watched,
        };
        self.send(watcher, notify.frame());
    }

    /// The status with which a task left.
    pub(super) fn left(&self, task: Tid) -> Option<i32> {
        self.ended.get(&task).map(|exit| exit.status)
    }
}

fn leave(view: &mut GroupView, tid: Tid) {
    let before = view.members.len();
    view.members.retain(|(_, member)| *member != tid);
    view.version += u64::from(view.members.len() < before);
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.len());
    frame.write_to(&mut bytes);
    bytes
}

/// The next frame; `None` when the task is gone.
fn next_frame(stream: &mut UnixStream, reader: &mut FrameReader) -> Option<Frame> {
    let mut buffer = [0; 65_536];
    loop {
        if let Some(frame) = reader.next_frame().unwrap() {
            return Some(frame);
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(len) => reader.push(&buffer[..len]),
        }
    }
}

fn write_frames(mut stream: UnixStream, frames: Receiver<Frame>) {
    for frame in frames {
        if stream.write_all(&bytes(&frame)).is_err() {
            return;
        }
    }
}
