//! How a process becomes a task: the way to its daemon, and the handshake.
//!
//! A process that a daemon started finds the daemon's socket and a token in its environment; the
//! token proves which task it is. A process started from a shell has no token: it enrols, as the
//! master of a new application, with the daemon whose folder is the user's
//! ([`vm_wire::place::default_dir`]).

use crate::{
    Task, context::ContextId, error::InitError, interrupt::watch, leave, link::Sockets, portable,
    primitive::Shared,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{
    env,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use vm_local::ConnectError;
use vm_wire::{
    Frame, FrameReader, HEADER_LEN, Message, Op,
    place::{self, ENV_DIR, ENV_RUNTIME_DIR},
    task::{ENV_CONTEXT, ENV_SOCKET, ENV_TOKEN, Enrol, Failed, Welcome},
    version::Offer,
};

/// Makes this process a task of the machine, before anything else is done with it.
///
/// A process that was spawned is known to its daemon. A process started from a shell becomes the
/// master of a new application, if a daemon runs on this host. A master forks, if it has no other
/// threads yet, the process that coordinates its application; that is no child of it. A process that
/// goes on from the saved state of a portable task waits here until all of its application may.
///
/// # Errors
/// [`InitError`], see there. It may be called again after an error, but only once after success.
pub fn init() -> Result<Task, InitError> {
    let context = first_context()?;
    leave::once(|| {
        if let Some(state) = portable::handed_state()? {
            return portable::go_on_from(state);
        }
        let environment = Environment::read()?;
        let (welcome, sockets, coordinator) = enrol(&environment)?;
        coordinator.into_iter().for_each(crate::coordinator::fork);
        let at_end = environment.token.is_none();
        watch(sockets.data.as_fd(), sockets.interrupt.as_fd(), at_end)?;
        Ok(Arc::new(Shared::new(welcome, sockets)))
    })
    .map(|shared| Task::new(shared, context))
}

/// The context in which the program begins.
fn first_context() -> Result<ContextId, InitError> {
    let Some(value) = env::var_os(ENV_CONTEXT).filter(|value| !value.is_empty()) else {
        return Ok(ContextId::PROGRAM);
    };
    let number = value.to_str().and_then(|text| text.parse().ok());
    let context = number.and_then(ContextId::from_number);
    context.ok_or_else(|| InitError::Context {
        text: value.to_string_lossy().into_owned(),
    })
}

/// How long a daemon may take to answer: it may have to agree with others that this task exists,
/// while they elect a leader.
const ENROL_TIME: Duration = Duration::from_secs(30);

/// The settings that `vmd` put into the environment of the process.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) socket: PathBuf,
    pub(crate) token: Option<u64>,
}

impl Environment {
    pub(crate) fn read() -> Result<Self, InitError> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let socket = match set(ENV_SOCKET) {
            Some(path) => path.into(),
            None => {
                let uid = rustix::process::geteuid().as_raw();
                place::socket(&place::default_dir(set(ENV_DIR), set(ENV_RUNTIME_DIR), uid))
            }
        };
        let token = match set(ENV_TOKEN) {
            Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(token) => Some(token),
                None => {
                    let text = text.to_string_lossy().into_owned();
                    return Err(InitError::Token { text });
                }
            },
            None => None,
        };
        Ok(Environment { socket, token })
    }
}

/// Connects to the daemon and becomes a task.
/// A master is also given the socket of its application's coordinator, if that is to be forked.
pub(crate) fn enrol(
    environment: &Environment,
) -> Result<(Welcome, Sockets, Option<OwnedFd>), InitError> {
    let path = &environment.socket;
    let data = connect_to(path)?;
    let enrol = Enrol {
        offer: Offer::OURS,
        token: environment.token,
        program: program_name(),
    };
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    enrol.frame().write_to(&mut bytes);
    send_all(&data, &bytes).map_err(|cause| silent_or(path, "greeting the daemon", cause))?;

    let (frame, descriptors) = receive_answer(&data, path)?;
    let mut descriptors = descriptors.into_iter();
    let protocol = |what: String| InitError::Protocol {
        path: path.clone(),
        what,
    };
    match frame.header.op {
        Op::Failed => {
            let failed = Failed::read(&frame).map_err(|error| protocol(error.to_string()))?;
            Err(InitError::Refused(failed))
        }
        Op::Welcome => {
            let welcome = Welcome::read(&frame).map_err(|error| protocol(error.to_string()))?;
            let interrupt = descriptors.next();
            let interrupt = interrupt.ok_or_else(|| protocol("no interrupt socket".to_owned()))?;
            let ours = Offer::OURS;
            if !(ours.oldest..=ours.newest).contains(&welcome.version) {
                return Err(protocol(format!("version {}", welcome.version)));
            }
            for socket in [&data, &interrupt] {
                rustix::io::ioctl_fionbio(socket, true)
                    .map_err(|cause| system("making a socket non-blocking", cause))?;
            }
            let coordinator = descriptors.next();
            Ok((welcome, Sockets::new(data, interrupt), coordinator))
        }
        op => Err(protocol(format!("{op:?}"))),
    }
}

/// Blocking until the Welcome is there, so that a full backlog is waited for.
fn connect_to(path: &Path) -> Result<OwnedFd, InitError> {
    let path = path.to_owned();
    match vm_local::connect(&path) {
        Ok(stream) => Ok(stream.into()),
        Err(ConnectError::Connect(cause)) => Err(InitError::NoDaemon { path, cause }),
        Err(why) => Err(InitError::NotOurs { path, why }),
    }
}

fn send_all(socket: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::net::send(&socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// The first frame, and the descriptors that came with it. Nothing follows it until the task asks
/// for something or is sent something; what does is left in the socket.
fn receive_answer(data: &OwnedFd, path: &Path) -> Result<(Frame, Vec<OwnedFd>), InitError> {
    let begun = Instant::now();
    let mut reader = FrameReader::new();
    let mut descriptors = Vec::new();
    loop {
        let Some(rest) = ENROL_TIME.checked_sub(begun.elapsed()) else {
            return Err(InitError::Silent {
                path: path.to_owned(),
                time: ENROL_TIME,
            });
        };
        rustix::net::sockopt::set_socket_timeout(
            data,
            rustix::net::sockopt::Timeout::Recv,
            Some(rest.max(Duration::from_millis(1))),
        )
        .map_err(|cause| system("setting a time limit", cause))?;
        // No more than this frame is read: the rest belongs to the link.
        let mut bytes = vec![0; reader.missing()];
        match receive(data, &mut bytes, &mut descriptors) {
            Ok(0) => {
                let closed = io::ErrorKind::ConnectionAborted;
                return Err(InitError::NoDaemon {
                    path: path.to_owned(),
                    cause: io::Error::new(closed, "it closed the connection"),
                });
            }
            Ok(len) => reader.push(&bytes[..len]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(cause) => return Err(silent_or(path, "reading the daemon's answer", cause)),
        }
        match reader.next_frame() {
            Ok(Some(frame)) => return Ok((frame, descriptors)),
            Ok(None) => {}
            Err(error) => {
                return Err(InitError::Protocol {
                    path: path.to_owned(),
                    what: error.to_string(),
                });
            }
        }
    }
}

/// Reads once, and keeps the descriptors that come along.
fn receive(
    data: &OwnedFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        data,
        &mut [IoSliceMut::new(bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    Ok(received.bytes)
}

/// This program's name, for people.
fn program_name() -> String {
    let program = env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_name);
    let mut name = name.unwrap_or_default().to_string_lossy().into_owned();
    name.truncate(name.floor_char_boundary(vm_wire::limits::NAME_MAX));
    name
}

/// A daemon that ends while it is greeted is one that is not there.
fn silent_or(path: &Path, step: &'static str, cause: Errno) -> InitError {
    match cause {
        Errno::PIPE | Errno::CONNRESET => InitError::NoDaemon {
            path: path.to_owned(),
            cause: cause.into(),
        },
        cause => system(step, cause),
    }
}

fn system(step: &'static str, cause: Errno) -> InitError {
    InitError::System {
        step,
        cause: cause.into(),
    }
}
