//! How one process asks another one for its image, and hears what becomes of it.
//!
//! Whoever asks listens at a socket without a file, whose name is a number that nobody can foresee, and
//! sends [`TRIGGER`] with that number. The process that gets it connects, is handed the descriptor of
//! the image's file and the modes, and says over the socket how the save ended. So it needs to know no
//! path, and no rights to the folder. Both look who is at the other end: the process takes a
//! descriptor from root and from its own user alone, and whoever asks gives one to that process alone.
//!
//! While the rounds of a save last, the process has no descriptor for it: it connects once more for the
//! rest.
//!
//! The signal ends a process that has no handler for it. So whoever asks looks before ([`Request::send`]).
//!
//! **[`Asked`] runs in signal handlers**: it allocates nothing and locks nothing.

use crate::{
    frozen::{
        fault::{Outcome, Step as _, Text, refuse},
        signal,
    },
    raw::sys::{self, nr},
    save::{precopy, sequence::Saved},
    trigger::{handler::TRIGGER, image_path},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, send, sendmsg,
        socket_with, sockopt::socket_peercred,
    },
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    fs, io,
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

/// What the shared library's file is called.
pub(crate) const LIBRARY: &str = "libvm_image";
/// The upper 16 bits of a number that comes with the signal.
const MARK: u64 = 0x564d << 48;
/// What the names of the sockets begin with.
const NAME: &[u8] = b"vm-image-";
/// Bytes of a packet.
const PACKET: usize = 512;
/// How long a process may take to answer the signal, and to say why not; and the wait for a word of
/// whoever asked.
const ANSWER: Duration = Duration::from_secs(5);

/// How a process is saved that was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes(u32);

impl Modes {
    /// A copy of the process writes, while it goes on.
    pub const FORKED: Modes = Modes(1);
    /// It ends when the image is whole.
    pub const EXIT: Modes = Modes(2);
    /// Most is written while it runs.
    pub const ROUNDS: Modes = Modes(4);
    /// The image has the content of open files.
    pub const CARRY: Modes = Modes(8);

    const WORDS: [(&str, Modes); 4] = [
        ("forked", Modes::FORKED),
        ("exit", Modes::EXIT),
        ("rounds", Modes::ROUNDS),
        ("carry", Modes::CARRY),
    ];

    /// Both.
    #[must_use]
    pub fn with(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    pub(crate) fn of_word(word: &[u8]) -> Option<Modes> {
        let known = Self::WORDS.iter().find(|(name, _)| name.as_bytes() == word);
        known.map(|(_, mode)| *mode)
    }

    pub(crate) fn has(self, mode: Modes) -> bool {
        self.0 & mode.0 != 0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Modes(bits)
    }
}

/// Why a process did not give its image.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// What the kernel tells of it may not be read, or it may not be sent signals.
    #[error("process {pid} cannot be asked: {cause}")]
    NotAllowed {
        /// Which.
        pid: i32,
        /// What the system says.
        cause: io::Error,
    },
    /// The signal would end it.
    #[error(
        "process {pid} ({name}) cannot be saved: {LIBRARY} is not in it, so that signal {TRIGGER} \
         would end it; it was not sent. {hint}"
    )]
    NoHandler {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
        /// What to do.
        hint: &'static str,
    },
    /// It uses the signal itself.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: it has a handler of its own for \
         signal {TRIGGER}"
    )]
    OwnHandler {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// The signal would wait for ever.
    #[error(
        "process {pid} ({name}) cannot be saved from outside: all its threads block signal {TRIGGER}"
    )]
    Blocked {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It does not run.
    #[error("process {pid} ({name}) {what}")]
    DoesNotRun {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
        /// What it does in place of that.
        what: &'static str,
    },
    /// It got the signal and did nothing.
    #[error(
        "process {pid} ({name}) has not answered signal {TRIGGER} within {} seconds: it has put a \
         handler of its own in the place of {LIBRARY}'s, or is in another network namespace",
        ANSWER.as_secs()
    )]
    Silent {
        /// Which.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It ended before its image was whole.
    #[error("process {0} ended before its image was whole")]
    Ended(i32),
    /// It says why not, and runs on.
    #[error("process {pid} was not saved, and runs on: {why}")]
    Refused {
        /// Which.
        pid: i32,
        /// Its reason.
        why: String,
    },
    /// Whoever asked does not want it any more.
    #[error("interrupted")]
    Interrupted,
    /// Something that should work did not.
    #[error("{step}: {cause}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system says.
        cause: io::Error,
    },
}

/// A process has given its image.
#[derive(Debug)]
#[must_use = "the process may wait for a word"]
pub struct News {
    /// Bytes of the image; 0 if a copy of the process has written it.
    pub bytes: u64,
    /// How long it stood still.
    pub freeze: Duration,
    connection: OwnedFd,
}

impl News {
    /// The image has its name now: a process that was to end does.
    pub fn image_is_kept(self) {
        // It may be gone already.
        let _ = send(&self.connection, &[1], SendFlags::NOSIGNAL);
    }
}

/// A process was asked for its image.
#[derive(Debug)]
pub struct Request<'a> {
    pid: i32,
    image: BorrowedFd<'a>,
    modes: Modes,
    process: OwnedFd,
    listener: OwnedFd,
    /// Until when it has to answer; none once it has.
    until: Option<Instant>,
}

impl<'a> Request<'a> {
    /// Asks a process to write its image there, after a look whether it can be asked.
    ///
    /// # Errors
    /// Why it was not asked.
    pub fn send(pid: i32, image: BorrowedFd<'a>, modes: Modes) -> Result<Self, AskError> {
        let gone = |error| match error {
            Errno::SRCH | Errno::INVAL => AskError::NoProcess(pid),
            error => {
                let error = io::Error::from(error);
                let text = format!("pidfd_open is refused: {error}");
                not_allowed(pid, io::Error::new(error.kind(), text))
            }
        };
        let id = Pid::from_raw(pid).ok_or(AskError::NoProcess(pid))?;
        // From here on its number means nobody else.
        let process = pidfd_open(id, PidfdFlags::empty()).map_err(gone)?;
        Look::at(pid)?.check()?;
        let (listener, token) = listener()?;
        signal_process(pid, &process, token)?;
        Ok(Request {
            pid,
            image,
            modes,
            process,
            listener,
            until: Some(Instant::now() + ANSWER),
        })
    }

    /// Waits until the image is whole, or until something can be read from `interrupt`.
    ///
    /// # Errors
    /// Why there is no image.
    pub fn finish(mut self, interrupt: BorrowedFd<'_>) -> Result<News, AskError> {
        let mut connection = None;
        loop {
            let fd = match &connection {
                Some(connection) => OwnedFd::as_fd(connection),
                None => self.listener.as_fd(),
            };
            let mut fds = [
                PollFd::from_borrowed_fd(fd, PollFlags::IN),
                PollFd::from_borrowed_fd(interrupt, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            let left = self
                .until
                .map(|until| until.saturating_duration_since(Instant::now()));
            let time = left.map(|left| Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut fds, time.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(error) => return Err(system("waiting for the process", error)),
                Ok(0) => return Err(self.silent()),
                Ok(_) => {}
            }
            let [is_told, is_interrupted, has_ended] = fds.map(|fd| !fd.revents().is_empty());
            if is_interrupted {
                return Err(AskError::Interrupted);
            }
            match (is_told, connection.take()) {
                (true, None) => connection = self.accept()?,
                (true, Some(told)) => match self.hear(told)? {
                    Some(news) => return Ok(news),
                    // It connects again when the rounds are over.
                    None => connection = None,
                },
                // What it said before is heard first.
                (false, _) if has_ended => return Err(AskError::Ended(self.pid)),
                (false, waiting) => connection = waiting,
            }
        }
    }

    /// Hands the process what it needs. None if it is another one.
    fn accept(&mut self) -> Result<Option<OwnedFd>, AskError> {
        let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(Errno::INTR | Errno::CONNABORTED | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(system("hearing of the process", error)),
        };
        let peer =
            socket_peercred(&connection).map_err(|error| system("looking who answers", error))?;
        if peer.pid.as_raw_pid() != self.pid {
            return Ok(None);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [self.image];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let modes = self.modes.bits().to_le_bytes();
        let sent = sendmsg(
            &connection,
            &[IoSlice::new(&modes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
        self.until = None;
        match sent {
            Ok(_) => Ok(Some(connection)),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(None),
            Err(error) => Err(system("handing over the image's file", error)),
        }
    }

    /// What the process says; none: its rounds have begun.
    fn hear(&self, connection: OwnedFd) -> Result<Option<News>, AskError> {
        let mut packet = [0; PACKET];
        let len = match recv(&connection, &mut packet, RecvFlags::empty()) {
            Ok((len, _)) => len,
            Err(Errno::CONNRESET) => 0,
            Err(error) => return Err(system("hearing of the process", error)),
        };
        match Word::read(&packet[..len]) {
            Some(Word::Begun) => Ok(None),
            Some(Word::Saved { bytes, ns }) => Ok(Some(News {
                bytes,
                freeze: Duration::from_nanos(ns),
                connection,
            })),
            Some(Word::Refused(why)) => Err(AskError::Refused {
                pid: self.pid,
                why: String::from_utf8_lossy(why).into_owned(),
            }),
            None => Err(AskError::Ended(self.pid)),
        }
    }

    /// Why there is no answer.
    fn silent(&self) -> AskError {
        let Ok(look) = Look::at(self.pid) else {
            return AskError::NoProcess(self.pid);
        };
        let name = look.name.clone();
        match look.check() {
            Err(why) => why,
            Ok(()) if look.waits() => AskError::DoesNotRun {
                pid: self.pid,
                name,
                what: "has not taken the signal yet: it waits for something in the kernel; it was not saved",
            },
            Ok(()) => AskError::Silent {
                pid: self.pid,
                name,
            },
        }
    }
}

fn system(step: &'static str, error: Errno) -> AskError {
    AskError::System {
        step,
        cause: error.into(),
    }
}

fn not_allowed(pid: i32, cause: io::Error) -> AskError {
    match cause.kind() {
        io::ErrorKind::NotFound => AskError::NoProcess(pid),
        _ => AskError::NotAllowed { pid, cause },
    }
}

/// A socket of a name that nobody can foresee, and the number that tells it.
fn listener() -> Result<(OwnedFd, u64), AskError> {
    let token = MARK | image_path::random() >> 16;
    let made = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(
            &socket,
            &SocketAddrUnix::new_abstract_name(&name_of(token))?,
        )?;
        listen(&socket, 4)?;
        Ok(socket)
    };
    let made = made().map_err(|error| system("making a socket for the process", error));
    made.map(|socket| (socket, token))
}

/// The name of the socket of a request.
fn name_of(token: u64) -> [u8; NAME.len() + 16] {
    let mut name = [0; NAME.len() + 16];
    name[..NAME.len()].copy_from_slice(NAME);
    for (index, place) in name[NAME.len()..].iter_mut().enumerate() {
        *place = b"0123456789abcdef"[(token >> (60 - 4 * index) & 15) as usize];
    }
    name
}

/// Sends the signal with that number.
fn signal_process(pid: i32, process: &OwnedFd, token: u64) -> Result<(), AskError> {
    let told = precopy::queued(TRIGGER, token as usize);
    let (fd, info) = (process.as_raw_fd() as usize, &raw const told as usize);
    // SAFETY: the kernel reads the information.
    let sent = unsafe { sys::call4(nr::PIDFD_SEND_SIGNAL, fd, TRIGGER as usize, info, 0) };
    match sys::check(sent) {
        Ok(_) => Ok(()),
        Err(sys::Errno(libc::ESRCH)) => Err(AskError::NoProcess(pid)),
        Err(error) => Err(not_allowed(pid, io::Error::from_raw_os_error(error.0))),
    }
}

/// What the kernel tells of a process that is to be asked.
struct Look {
    pid: i32,
    name: String,
    state: char,
    caught: u64,
    ignored: u64,
    waiting: u64,
    /// Of each thread, what it blocks.
    blocked: Vec<u64>,
    /// The library is mapped, or it was started so that it would be.
    has_library: bool,
    /// Something has loaded its libraries.
    has_loader: bool,
}

impl Look {
    fn at(pid: i32) -> Result<Self, AskError> {
        let failed = |cause| not_allowed(pid, cause);
        let read = |path: &str| fs::read(format!("/proc/{pid}/{path}"));
        let status = read("status").map_err(failed)?;
        let status = String::from_utf8_lossy(&status).into_owned();
        let mut blocked = Vec::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
            // One that has just ended has no file.
            if let Ok(status) = thread.and_then(|thread| fs::read(thread.path().join("status"))) {
                blocked.push(set(&String::from_utf8_lossy(&status), "SigBlk"));
            }
        }
        let has = |bytes: &[u8], text: &str| {
            let text = text.as_bytes();
            bytes.windows(text.len()).any(|part| part == text)
        };
        let maps = read("maps").map_err(failed)?;
        // Where it was brought back, its memory has no names of files.
        let started = read("environ").map_err(failed)?;
        Ok(Look {
            pid,
            name: field(&status, "Name").to_owned(),
            state: field(&status, "State").chars().next().unwrap_or('?'),
            caught: set(&status, "SigCgt"),
            ignored: set(&status, "SigIgn"),
            waiting: set(&status, "ShdPnd") | set(&status, "SigPnd"),
            blocked,
            has_library: has(&maps, LIBRARY)
                || has(&started, LIBRARY)
                || has(&started, "VM_IMAGE_FILE="),
            has_loader: has(&maps, "/ld-linux") || has(&maps, "/ld-"),
        })
    }

    /// Whether the signal would be answered, as far as can be seen from outside.
    fn check(&self) -> Result<(), AskError> {
        let bit = signal::bit(TRIGGER);
        let (pid, name) = (self.pid, self.name.clone());
        let does_not_run = |what| {
            let name = self.name.clone();
            Err(AskError::DoesNotRun { pid, name, what })
        };
        match self.state {
            'Z' | 'X' => return does_not_run("has ended"),
            'T' => return does_not_run("is stopped: continue it first (kill -CONT)"),
            't' => return does_not_run("is stopped by a debugger"),
            _ => {}
        }
        let has_handler = self.caught & bit != 0;
        if !self.has_library && has_handler {
            return Err(AskError::OwnHandler { pid, name });
        }
        if !has_handler && self.has_library && self.has_loader {
            return does_not_run(match self.ignored & bit != 0 {
                true => "cannot be saved from outside: it ignores signal 61",
                false => {
                    "has no handler for signal 61: it has not begun to run yet, or has taken the \
                     handler away; it was not sent"
                }
            });
        }
        if !has_handler {
            let hint = match self.has_loader {
                true => "Start it with LD_PRELOAD=PATH/libvm_image.so",
                false => {
                    "It is linked statically: link the library into it, and have it save itself"
                }
            };
            return Err(AskError::NoHandler { pid, name, hint });
        }
        match self.blocked.iter().all(|blocked| blocked & bit != 0) {
            true => Err(AskError::Blocked { pid, name }),
            false => Ok(()),
        }
    }

    /// Whether the signal was sent and not taken.
    fn waits(&self) -> bool {
        self.waiting & signal::bit(TRIGGER) != 0
    }
}

/// The value of a line of a status file.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim()
}

/// A set of signals of a status file.
fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(field(status, name), 16).unwrap_or(0)
}

/// What a process that was asked says.
enum Word<'a> {
    Begun,
    Saved { bytes: u64, ns: u64 },
    Refused(&'a [u8]),
}

impl<'a> Word<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        let (kind, rest) = packet.split_first()?;
        let number = |at: usize| {
            let bytes = rest.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        match kind {
            1 => Some(Word::Begun),
            2 => Some(Word::Saved {
                bytes: number(0)?,
                ns: number(8)?,
            }),
            3 => Some(Word::Refused(rest)),
            _ => None,
        }
    }

    fn write(&self, packet: &mut [u8; PACKET]) -> usize {
        match self {
            Word::Begun => {
                packet[0] = 1;
                1
            }
            Word::Saved { bytes, ns } => {
                packet[0] = 2;
                packet[1..9].copy_from_slice(&bytes.to_le_bytes());
                packet[9..17].copy_from_slice(&ns.to_le_bytes());
                17
            }
            Word::Refused(why) => {
                let len = why.len().min(PACKET - 1);
                packet[0] = 3;
                packet[1..=len].copy_from_slice(&why[..len]);
                len + 1
            }
        }
    }
}

/// The number that a signal of a request came with; 0: it is of none.
pub(crate) fn token_of(info: *const libc::siginfo_t) -> u64 {
    match precopy::value_of(info) as u64 {
        token if token >> 48 == MARK >> 48 => token,
        _ => 0,
    }
}

/// In the process that was asked: the other end. Not closed when it is dropped, for in a process that was
/// brought back its descriptors are gone.
pub(crate) struct Asked {
    socket: i32,
    token: u64,
    modes: Modes,
    image: i32,
}

impl Asked {
    /// Connects to whoever asks, and takes what there is; none if nobody is there, or somebody who may
    /// not ask.
    pub fn answer(token: u64) -> Option<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: it opens a descriptor.
        let made = unsafe { sys::call3(nr::SOCKET, libc::AF_UNIX as usize, kind as usize, 0) };
        let socket = sys::check(made).ok()? as i32;
        let asked = connect(socket, token).and_then(|()| receive(socket));
        if asked.is_none() {
            sys::close(socket);
        }
        asked.map(|(modes, image)| Asked {
            socket,
            token,
            modes,
            image,
        })
    }

    pub fn modes(&self) -> Modes {
        self.modes
    }

    pub fn token(&self) -> u64 {
        self.token
    }

    pub fn socket(&self) -> i32 {
        self.socket
    }

    /// The descriptor for the image, which the caller closes.
    pub fn take_image(&mut self) -> Outcome<i32> {
        match std::mem::replace(&mut self.image, -1) {
            -1 => refuse!("the image's file was used already"),
            image => Ok(image),
        }
    }

    pub fn say_begun(&mut self) {
        self.say(&Word::Begun);
        sys::close(self.socket);
    }

    pub fn say_refused(&mut self, why: &Text) {
        self.say(&Word::Refused(why.as_str().as_bytes()));
        if self.image >= 0 {
            sys::close(self.image);
        }
        sys::close(self.socket);
    }

    /// Whether the image is kept, if that is waited for.
    pub fn say_saved(&mut self, saved: Saved, waits: bool) -> bool {
        self.say(&Word::Saved {
            bytes: saved.bytes,
            ns: saved.freeze_ns,
        });
        let mut word = [0];
        let is_kept = waits
            && loop {
                match sys::read(self.socket, &mut word) {
                    Ok(len) => break len == 1,
                    Err(sys::EINTR) => {}
                    // A disk may be slow.
                    Err(sys::EAGAIN) => continue,
                    Err(_) => break false,
                }
            };
        sys::close(self.socket);
        is_kept
    }

    fn say(&self, word: &Word<'_>) {
        let mut packet = [0; PACKET];
        let len = word.write(&mut packet);
        let (fd, at) = (self.socket as usize, packet.as_ptr() as usize);
        // SAFETY: the kernel reads the packet. Nobody may be there to hear it.
        unsafe { sys::call6(nr::SENDTO, fd, at, len, libc::MSG_NOSIGNAL as usize, 0, 0) };
    }
}

/// Connects to the socket of a request, if it is root's or this user's.
fn connect(socket: i32, token: u64) -> Option<()> {
    let name = name_of(token);
    // SAFETY: zeros are a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = byte as libc::c_char;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    let limit = [ANSWER.as_secs(), 0u64];
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: 0,
    };
    let mut peer_len = size_of::<libc::ucred>() as u32;
    let (fd, level) = (socket as usize, libc::SOL_SOCKET as usize);
    // SAFETY: the kernel reads the address and the limit, and writes the peer.
    let user = unsafe {
        let (at, time) = (&raw const address as usize, limit.as_ptr() as usize);
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            sys::call5(nr::SETSOCKOPT, fd, level, option as usize, time, 16);
        }
        sys::check(sys::call3(nr::CONNECT, fd, at, len)).ok()?;
        let (to, len) = (&raw mut peer as usize, &raw mut peer_len as usize);
        let option = libc::SO_PEERCRED as usize;
        sys::check(sys::call5(nr::GETSOCKOPT, fd, level, option, to, len)).ok()?;
        sys::call0(nr::GETEUID) as u32
    };
    (peer.uid == 0 || peer.uid == user).then_some(())
}

/// Takes the modes, and the descriptor of the image's file.
fn receive(socket: i32) -> Option<(Modes, i32)> {
    /// Bytes of a head of control data, and of one with a descriptor.
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let mut modes = [0u8; 4];
    let mut control = [0u64; 4];
    let mut part = libc::iovec {
        iov_base: modes.as_mut_ptr().cast(),
        iov_len: modes.len(),
    };
    // SAFETY: zeros are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let at = &raw mut message as usize;
    let flags = libc::MSG_CMSG_CLOEXEC as usize;
    // SAFETY: the kernel writes into both rooms.
    let len = sys::check(unsafe { sys::call3(nr::RECVMSG, socket as usize, at, flags) });
    // SAFETY: room for a head and a descriptor, and zeros where the kernel wrote none.
    let (head, image) = unsafe {
        let start = control.as_ptr();
        let head = &*start.cast::<libc::cmsghdr>();
        (head, start.cast::<u8>().add(HEAD).cast::<i32>().read())
    };
    let is_handed = (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        && head.cmsg_len >= HEAD + size_of::<i32>();
    match len.step("hearing what to do") {
        Ok(4) if is_handed => Some((Modes(u32::from_le_bytes(modes)), image)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        let read = |word: Word<'_>| {
            let mut packet = [0; PACKET];
            let len = word.write(&mut packet);
            match Word::read(&packet[..len]) {
                Some(Word::Begun) => "begun".to_owned(),
                Some(Word::Saved { bytes, ns }) => format!("{bytes} {ns}"),
                Some(Word::Refused(why)) => String::from_utf8_lossy(why).into_owned(),
                None => "nothing".to_owned(),
            }
        };
        assert_eq!(read(Word::Begun), "begun");
        assert_eq!(
            read(Word::Saved {
                bytes: 7,
                ns: 1 << 40
            }),
            "7 1099511627776"
        );
        assert_eq!(read(Word::Refused(&[b'x'; 600])), "x".repeat(PACKET - 1));
        assert!(Word::read(&[2, 0, 0]).is_none() && Word::read(&[]).is_none());
    }

    #[test]
    fn who_would_not_answer_is_not_sent_a_signal() {
        let mut look = Look {
            pid: 1,
            name: "x".to_owned(),
            state: 'S',
            caught: signal::bit(TRIGGER),
            ignored: 0,
            waiting: 0,
            blocked: vec![!0, 0],
            has_library: true,
            has_loader: true,
        };
        let why = |look: &Look| look.check().err().map(|error| error.to_string());
        assert_eq!(why(&look), None);
        look.blocked = vec![!0, !0];
        assert!(why(&look).is_some_and(|why| why.contains("block signal 61")));
        look.has_library = false;
        assert!(why(&look).is_some_and(|why| why.contains("handler of its own")));
        look.caught = 0;
        assert!(why(&look).is_some_and(|why| why.contains("LD_PRELOAD")));
        look.has_loader = false;
        assert!(why(&look).is_some_and(|why| why.contains("statically")));
        look.state = 'T';
        assert!(why(&look).is_some_and(|why| why.contains("is stopped")));
    }
}
