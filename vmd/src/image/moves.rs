//! Tasks that leave this host and tasks that arrive: the system's side of [`vm_machine`]'s moves.

mod reports;

use crate::{
    context::Context,
    fault::{self, Strike},
    image::{
        carriers::{Carriers, Hand, Role},
        memory::Memories,
        news::{refuse, tell},
        store::StoreLocation,
        suspended,
        transfer::{self, Back},
    },
    local::locals::Locals,
    net::secure::Mode,
    process::{helper_job::Form, processes::Processes, spare, usage},
    start::secret::Secret,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    process::Pid,
};
use std::{collections::HashMap, fs::File, io, process::Command};
use vm_machine::{Copies, Input, MoveInput, SavedBy, StoreInput, Time};
use vm_store::CheckpointId;
use vm_wire::{
    HostId, MachineId, Tid,
    checkpoint::Part,
    interrupt::{Folders, Freeze, Order},
    peer::MoveWay,
    task::{FailKind, Failed},
};

/// The signal that interrupts a task: see `vmlib`.
const NUDGE: i32 = libc::SIGURG;

/// The moves that are in progress on this host.
#[derive(Debug)]
pub struct Moves {
    secret: Secret,
    mode: Mode,
    here: (HostId, MachineId),
    store: StoreLocation,
    /// Tasks and parts of checkpoints that are expected from other hosts, by ticket.
    expected: HashMap<u64, Expected>,
    /// The images that tasks are to write.
    images: HashMap<Tid, Image>,
    /// Images that copies of tasks write and that no writer reads yet: a writer would take
    /// processor time from an application that is frozen.
    unread: HashMap<Tid, Unread>,
    /// The memory into which frozen tasks write their images.
    memories: Memories,
    /// The measured costs of copies of tasks.
    copies: Copies,
    /// The transfer processes.
    carriers: Carriers,
    /// For each restorer that is being started: the input that it reads, and the time of the
    /// request.
    starting: HashMap<Tid, (OwnedFd, Time)>,
}

/// An image in the store, of which a task is to be made.
#[derive(Debug)]
pub struct Stored<'a> {
    /// The task's application.
    pub app: Tid,
    /// The checkpoint that has the image.
    pub from: CheckpointId,
    /// The image.
    pub image: &'a Part,
    /// How the process is made from the image.
    pub how: Back,
}

/// The content that a connection with this ticket is to bring.
#[derive(Debug)]
enum Expected {
    /// The image of a task, which is to be restored.
    Task { tid: Tid, how: Back },
    /// The file of a part, which is to be stored as a copy.
    Copy(Copied),
}

/// A part of a checkpoint in the store.
#[derive(Debug)]
pub struct Copied {
    /// The application.
    pub app: Tid,
    /// The checkpoint of the application.
    pub id: CheckpointId,
    /// The part.
    pub part: Part,
}

/// An image that no writer reads yet.
#[derive(Debug)]
struct Unread {
    /// The end of the pipe from which the image is read; none for an image in memory.
    out: Option<OwnedFd>,
    app: Tid,
    id: CheckpointId,
    form: Form,
    by: SavedBy,
}

/// An image that a task is to write.
#[derive(Debug)]
struct Image {
    /// The descriptor that the task writes the image to.
    way: OwnedFd,
    /// The purpose of the image.
    order: Freeze,
    /// The names of folders at the target, if they differ from the names here.
    folders: Option<Folders>,
}

impl Moves {
    /// Without moves. `secret` and `mode` are those of the links: images are protected like the
    /// traffic of links.
    pub fn new(
        secret: Secret,
        mode: Mode,
        here: (HostId, MachineId),
        store: StoreLocation,
    ) -> Moves {
        Moves {
            secret,
            mode,
            here,
            store,
            expected: HashMap::new(),
            images: HashMap::new(),
            unread: HashMap::new(),
            memories: Memories::default(),
            copies: Copies::default(),
            carriers: Carriers::default(),
            starting: HashMap::new(),
        }
    }

    /// Starts a sender that connects to the address with the ticket, for the image of a task.
    /// `folders` names folders that have other names at the target.
    pub fn open(
        &mut self,
        tid: Tid,
        (addr, ticket): (&str, u64),
        folders: Option<Folders>,
        context: &mut Context,
    ) {
        let begun = pipe().and_then(|(out, way)| Ok((out.try_clone()?, out, way)));
        match begun {
            Ok((input, out, way)) => {
                let sender = transfer::sender(addr, ticket, &self.secret, self.mode, out);
                self.start((tid, Role::Sender), sender, Some(input), context);
                self.expect_image(tid, way, Freeze::Move, folders);
            }
            Err(error) => refuse(tid, &error, context),
        }
    }

    /// Opens a pipe or memory through which the image of a task goes into the store. An image that
    /// a copy of the task writes, or that is in memory, is read when the task has resumed. An image
    /// that the task writes into a pipe while it is frozen is read at once.
    pub fn store(
        &mut self,
        tid: Tid,
        (app, id): (Tid, CheckpointId),
        mut form: Form,
        by: SavedBy,
        process: Option<Pid>,
        context: &mut Context,
    ) {
        let used = process.and_then(usage::memory);
        let bytes = used.map(|(resident, _)| resident);
        let bytes = bytes.filter(|bytes| self.copies.wants_memory(tid, by, *bytes));
        let memory = bytes.and_then(|bytes| self.memories.open(tid, bytes, context.now));
        let room = used.zip(spare::room());
        let may_copy = |((_, own), room)| self.copies.may_copy(tid, own, room);
        let is_copied = by.is_copy() && memory.is_none() && room.is_none_or(may_copy);
        let order = match is_copied {
            true => Freeze::Copied,
            false => Freeze::Checkpoint,
        };
        let at_once = !is_copied && memory.is_none();
        // Bytes in the kernel's cache must be written back before they make room for other
        // processes, so a large image does not go through the cache.
        form.cached = at_once && room.is_none_or(|((all, _), room)| all <= room.least() / 2);
        let (out, way) = match memory {
            Some(memory) => (None, memory),
            None => match pipe() {
                Ok((out, way)) => (Some(out), way),
                Err(error) => return refuse(tid, &error, context),
            },
        };
        let unread = Unread {
            out,
            app,
            id,
            form,
            by,
        };
        self.unread.insert(tid, unread);
        self.expect_image(tid, way, order, None);
        if at_once {
            self.store_copy(tid, None, context);
        }
    }

    /// Starts the writer that stores the image of a task. `process` is the copy of the task that
    /// writes the image, or the task itself.
    pub fn store_copy(&mut self, tid: Tid, process: Option<Pid>, context: &mut Context) {
        let Some(unread) = self.unread.remove(&tid) else {
            return;
        };
        let Unread {
            out,
            app,
            id,
            form,
            by,
        } = unread;
        let image = match out {
            Some(out) => {
                self.copies.begun(tid, by, process.and_then(usage::faults));
                Ok((out, None))
            }
            None => self.memories.written(tid),
        };
        let image = image.and_then(|(image, length)| {
            let watched = match length {
                None => image.try_clone()?,
                // Memory can always be read, so there is nothing to watch. Closing a second
                // descriptor of it in the daemon could free the memory, which takes long.
                Some(_) => File::open("/dev/null")?.into(),
            };
            Ok((watched, image, length))
        });
        match image {
            Ok((input, image, length)) => {
                let writer = self.store.writer((app, id), tid, &form, (image, length));
                let role = Role::Writer(app, id.epoch);
                self.start((tid, role), writer, Some(input), context);
            }
            Err(error) => {
                let failed = not_started("stores its image", &error);
                let input = Input::Store(StoreInput::Part(tid, id.epoch, Err(failed)));
                context.inbox.push_back(input);
            }
        }
    }

    /// Opens a pipe through which the image of a task that is suspended alone goes into the store.
    pub fn suspend(&mut self, tid: Tid, app: Tid, image: (&str, u64), context: &mut Context) {
        let (name, number) = image;
        let begun = pipe().and_then(|(out, way)| Ok((out.try_clone()?, out, way)));
        match begun {
            Ok((input, out, way)) => {
                let writer = suspended::writer(&self.store, app, name, out);
                self.start((tid, Role::Suspender(number)), writer, Some(input), context);
                // The task's files stay in place, and the image includes those that its next host
                // may lack.
                self.expect_image(tid, way, Freeze::Move, None);
            }
            Err(error) => refuse(tid, &error, context),
        }
    }

    /// Sends the image of a suspended task to the address, under the ticket.
    pub fn send_suspended(
        &mut self,
        at: (&str, u64),
        app: Tid,
        image: &Part,
        context: &mut Context,
    ) {
        let store = self.store.clone();
        let read = |way| suspended::reader(&store, app, image, way);
        self.send_what(at, read, context);
    }

    /// Has a transfer process started. It reads `input`, if its progress is to be watched.
    fn start(
        &mut self,
        of: (Tid, Role),
        command: Command,
        input: Option<OwnedFd>,
        context: &mut Context,
    ) {
        let now = context.now;
        self.carriers
            .start(of, command, input, &mut context.helpers, now);
    }

    /// Takes the results of transfer processes that were to be started. Returns whether there was
    /// one.
    pub fn take_started(&mut self, processes: &Processes, context: &mut Context) -> bool {
        let news = self.carriers.take_started(&mut context.helpers);
        let some = news.is_some();
        for news in news.into_iter().flatten() {
            self.hear(news, processes, context);
        }
        some
    }

    /// Records where a task is to write its image.
    fn expect_image(&mut self, tid: Tid, way: OwnedFd, order: Freeze, folders: Option<Folders>) {
        let image = Image {
            way,
            order,
            folders,
        };
        self.images.insert(tid, image);
    }

    /// Has a task write most of its image while it runs.
    pub fn copy(
        &mut self,
        tid: Tid,
        way: MoveWay,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        let compress = way.compress;
        self.order(tid, Order::Copy { compress }, locals, processes, context);
    }

    /// Has a task freeze and write the rest of its image.
    pub fn freeze(
        &mut self,
        tid: Tid,
        way: MoveWay,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        let order = Order::Freeze {
            compress: way.compress,
            way: self
                .images
                .get(&tid)
                .map_or(Freeze::Move, |image| image.order),
        };
        self.order(tid, order, locals, processes, context);
        self.images.remove(&tid);
    }

    /// Has a portable task go to its next safe point, and freeze there.
    pub fn hold(&self, tid: Tid, locals: &mut Locals, processes: &mut Processes) {
        // A task that cannot get the order has ended, or comes to no safe point; other code handles
        // both.
        if locals
            .interrupts
            .order(tid, Order::Hold, None, None)
            .is_ok()
        {
            processes.nudge(tid, NUDGE);
        }
    }

    fn order(
        &self,
        tid: Tid,
        order: Order,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        let Some(image) = self.images.get(&tid) else {
            // There is no descriptor for the image, and the failure was reported.
            return;
        };
        let point = match order {
            Order::Copy { .. } => "order.copy",
            _ => "order.freeze",
        };
        if fault::at(point) == Strike::Task {
            processes.signal(tid, libc::SIGKILL);
        }
        let (folders, way) = (image.folders.as_ref(), image.way.as_fd());
        match locals.interrupts.order(tid, order, folders, Some(way)) {
            Ok(()) => processes.nudge(tid, NUDGE),
            Err(error) => refuse(tid, &error, context),
        }
    }

    /// Abandons the image of a task that the task, or a copy of it, was to write.
    pub fn cancel(&mut self, tid: Tid, locals: &mut Locals, processes: &mut Processes) {
        self.give_up(tid);
        // The task may have ended.
        if self.images.remove(&tid).is_some()
            && locals
                .interrupts
                .order(tid, Order::Cancel, None, None)
                .is_ok()
        {
            processes.nudge(tid, NUDGE);
        }
    }

    /// Abandons the image that is being written or stored for a task.
    fn give_up(&mut self, tid: Tid) {
        self.carriers.cancel(tid);
        self.unread.remove(&tid);
        self.memories.drop_busy(tid);
        self.copies.over(tid);
    }

    /// Resumes a frozen or restored task on this host, in the given generation. An image of the
    /// task is abandoned, unless `writes` says that a copy of the task still writes it.
    pub fn go(&mut self, tid: Tid, generation: u32, writes: bool, locals: &mut Locals) {
        if !writes {
            self.give_up(tid);
        }
        let (host, machine) = self.here;
        let order = Order::Go {
            host,
            machine,
            generation,
        };
        if let Err(error) = locals.interrupts.order(tid, order, None, None) {
            log::warn!("task {tid} cannot be ordered to resume: {error}");
        }
    }

    /// Expects a connection with this ticket that brings the image of the task.
    pub fn expect(&mut self, tid: Tid, ticket: u64, how: Back) {
        self.forget(tid);
        let task = Expected::Task { tid, how };
        self.expected.insert(ticket, task);
    }

    /// Expects a connection with this ticket that brings a part, to store a copy of it.
    pub fn expect_copy(&mut self, ticket: u64, copied: Copied) {
        self.expected.insert(ticket, Expected::Copy(copied));
    }

    /// Abandons the part that was to come or to be sent under this ticket.
    pub fn cancel_part(&mut self, ticket: u64) {
        self.expected.remove(&ticket);
        self.carriers.cancel_part(ticket);
    }

    /// Sends a part of the store to the address, under the ticket: the bytes of its file with
    /// `file`, else the image in the part.
    pub fn send_part(&mut self, to: (&str, u64), part: &Copied, file: bool, context: &mut Context) {
        let (store, at) = (self.store.clone(), (part.app, part.id));
        let read = |way| match file {
            true => store.file_reader(at, &part.part, way),
            false => store.reader(at, &part.part, way),
        };
        self.send_what(to, read, context);
    }

    /// Sends the output of the process that `read` makes.
    fn send_what(
        &mut self,
        (addr, ticket): (&str, u64),
        read: impl FnOnce(OwnedFd) -> Command,
        context: &mut Context,
    ) {
        match pipe() {
            Ok((out, way)) => {
                let sender = transfer::sender(addr, ticket, &self.secret, self.mode, out);
                self.start(part(ticket, Hand::Reads), read(way), None, context);
                self.start(part(ticket, Hand::Sends), sender, None, context);
            }
            Err(error) => {
                let failed = not_started("sends it", &error);
                let event = StoreInput::PartSent(ticket, Err(failed));
                context.inbox.push_back(event.into());
            }
        }
    }

    /// Has a part that comes over the connection written into the store.
    fn take_copy(&mut self, ticket: u64, copied: &Copied, socket: OwnedFd, context: &mut Context) {
        let begun = pipe().and_then(|(out, way)| Ok((out.try_clone()?, out, way)));
        match begun {
            Ok((input, out, way)) => {
                let at = (copied.app, copied.id);
                let taker = self.store.taker(at, &copied.part, out);
                let receiver = transfer::receiver(socket, ticket, &self.secret, self.mode, way);
                self.start(part(ticket, Hand::Takes), taker, Some(input), context);
                self.start(part(ticket, Hand::Receives), receiver, None, context);
            }
            Err(error) => {
                let failed = not_started("stores it", &error);
                let event = StoreInput::CopyTaken(ticket, Err(failed));
                context.inbox.push_back(event.into());
            }
        }
    }

    /// Stops expecting the image of a task.
    pub fn forget(&mut self, tid: Tid) {
        let it =
            |awaited: &Expected| matches!(awaited, Expected::Task { tid: of, .. } if *of == tid);
        self.expected.retain(|_, awaited| !it(awaited));
        self.starting.remove(&tid);
        self.carriers.forget(tid);
    }

    /// Handles a connection that brings an image. Returns whether its ticket was expected; else the
    /// connection is closed.
    pub fn arrive(
        &mut self,
        ticket: u64,
        socket: OwnedFd,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) -> bool {
        let (tid, how) = match self.expected.remove(&ticket) {
            Some(Expected::Task { tid, how }) => (tid, how),
            Some(Expected::Copy(part)) => {
                self.take_copy(ticket, &part, socket, context);
                return true;
            }
            None => return false,
        };
        let (secret, mode) = (self.secret.clone(), self.mode);
        let receive = |image| -> io::Result<(Command, Option<OwnedFd>)> {
            let read = socket.try_clone()?;
            let receiver = transfer::receiver(socket, ticket, &secret, mode, image);
            Ok((receiver, Some(read)))
        };
        self.start_restorer(tid, how, receive, locals, processes, context);
        true
    }

    /// Restores a task from its image in the store.
    pub fn restore(
        &mut self,
        tid: Tid,
        stored: Stored<'_>,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        self.forget(tid);
        let store = self.store.clone();
        // The input of the reader is not watched: a slow disk cannot be told from a process that
        // hangs.
        let at = (stored.app, stored.from);
        let read = |out| Ok((store.reader(at, stored.image, out), None));
        let how = stored.how;
        self.start_restorer(tid, how, read, locals, processes, context);
    }

    /// Restores a task from the output of the process that `receiver` makes. `receiver` also
    /// returns the input of that process, if it is to be watched.
    fn start_restorer(
        &mut self,
        tid: Tid,
        how: Back,
        receiver: impl FnOnce(OwnedFd) -> io::Result<(Command, Option<OwnedFd>)>,
        locals: &mut Locals,
        processes: &mut Processes,
        context: &mut Context,
    ) {
        let start_restorer = || -> io::Result<()> {
            let (out, image) = pipe()?;
            let pair = |kind| {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                socketpair(AddressFamily::UNIX, kind, flags, None)
            };
            let (data, their_data) = pair(SocketType::STREAM)?;
            let (interrupt, their_interrupt) = pair(SocketType::SEQPACKET)?;
            let into = out.try_clone()?;
            let (receiver, read) = receiver(image)?;
            self.start((tid, Role::Receiver), receiver, read, context);
            locals.add_task(tid, data, context)?;
            locals.interrupts.add(tid, interrupt, context)?;
            let handed = [out, their_data, their_interrupt];
            processes.start_restorer(tid, how, handed);
            self.starting.insert(tid, (into, context.now));
            Ok(())
        };
        if let Err(error) = start_restorer() {
            let text = format!("the task cannot be restored: {error}");
            let failed = Failed::new(FailKind::System, text);
            context
                .inbox
                .push_back(Input::Move(MoveInput::Arrived(tid, Err(failed))));
        }
    }

    /// Handles the results of restorers that were to be started.
    pub fn brought_back(&mut self, context: &mut Context) {
        for (tid, started) in std::mem::take(&mut context.brought_back) {
            // A restorer without an entry is no longer expected, or its task has been restored
            // already.
            let Some((into, since)) = self.starting.remove(&tid) else {
                continue;
            };
            match started {
                Ok(pid) => {
                    // The restorer is checked together with its receiver, which waits for it.
                    let role = Role::Restorer;
                    self.carriers.watch(tid, role, pid, into, since);
                }
                Err(failed) => context
                    .inbox
                    .push_back(Input::Move(MoveInput::Arrived(tid, Err(failed)))),
            }
        }
    }

    /// When [`Moves::tick`] has work.
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = [self.carriers.deadline(), self.memories.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Checks the progress of the transfer processes, and frees memory that was kept for too long.
    pub fn tick(&mut self, processes: &Processes, context: &mut Context) {
        let is_here = |tid| processes.pid(tid).is_some();
        self.memories.tick(context.now, is_here);
        for news in self.carriers.tick(context.now) {
            tell(news, processes, context);
        }
    }
}

/// The role of a process that takes part in bringing a part. The ticket identifies the part, so
/// there is no task id.
fn part(ticket: u64, hand: Hand) -> (Tid, Role) {
    (Tid::NONE, Role::Part(ticket, hand))
}

/// A pipe for an image: large, so that both ends work at the same time.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (out, image) = pipe_with(PipeFlags::CLOEXEC)?;
    // A user with many pipes gets no large ones; the move takes longer then.
    let _ = fcntl_setpipe_size(&image, transfer::READ_BYTES);
    Ok((out, image))
}

/// The failure of a step whose process cannot be started. `what` says what the process does.
fn not_started(what: &str, error: &io::Error) -> Failed {
    let text = format!("the process that {what} cannot be started: {error}");
    Failed::new(FailKind::System, text)
}
