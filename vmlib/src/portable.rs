//! Portable tasks: the program supplies its state as a value at safe points, and a new process of the
//! program continues from that value, on a host of any architecture (`docs/portable.md`).
//!
//! [`Task::portable`] declares it. From then on the task is not saved as an image: an order of the
//! daemon waits in the interrupt socket until the program comes to a *safe point*, by
//! [`Task::safe_point`] or in a call that waits at one ([`Task::recv_at`]). There the value that the
//! program gives becomes MessagePack; the library adds its own state, in which is what was sent and not
//! acknowledged and what was received and not read; and both go where an image would go
//! ([`vm_wire::portable`]), through the same hands.
//!
//! The daemon starts a new process of the program, which finds the stream, and the sockets, under the
//! numbers that its environment names. [`crate::init()`] rebuilds the library's state and waits, as a
//! process that was made of an image does, for the daemon's word to go on; [`Task::portable`] then
//! gives the program its value.
//!
//! While the task stands at a safe point, the library is locked, so that no other thread of it sends
//! or receives anything: it would be of after the cut.
//!
//! No `unsafe` here.

use crate::{
    Checkpointed, Incoming, InitError, Message, RecvError, RequestError, Source, Tag, Task,
    callbacks,
    checkpointer::Checkpointer as _,
    clock::now,
    error::{PortableError, TaskError},
    freeze,
    interrupt::watch,
    interrupt_socket::{handed_over, interrupt_socket, last_order, next_order},
    link::Sockets,
    message::decode_value,
    orders::{declare_portable, forget_order, is_ordered, order_in},
    portable_checkpointer::{Portable, RUNNING},
    portable_state::LibraryState,
    primitive::{Attempt, Core, Shared, none_or_wait},
    request::read_answer,
};
use rustix::fd::{AsFd, RawFd};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use vm_wire::{
    Body, Message as _,
    interrupt::{Folders, ORDER_MAX, Order, Report},
    portable::{ENV_NAMES, ENV_STATE, PortableState, ProcessState},
    task::{SaveApp, Saved},
};

/// With what a portable task begins; from [`Task::portable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun<S> {
    /// The saved value, or a fresh one.
    pub state: S,
    /// Whether it was saved: the task goes on from there.
    pub restored: bool,
}

impl Task {
    /// Makes this task portable: from now on it is saved by what its program gives at its safe points,
    /// and can go on in a new process of the program on any host that has it, of whatever
    /// architecture. Called once, after [`crate::init()`], before anything else.
    ///
    /// Returns the saved state in a restored process, otherwise the result of `fresh`. So a program
    /// begins with this call, and need not know which of the two it is.
    ///
    /// The state has to hold all that the program needs to go on from a safe point. Not carried are
    /// open files, threads, and variables of the environment but those that whoever started the task
    /// has set. Fields may be added to the value's type from release to release, if they have defaults
    /// (`#[serde(default)]`).
    ///
    /// # Errors
    /// [`PortableError`], see there.
    pub fn portable<S: DeserializeOwned>(
        &self,
        fresh: impl FnOnce() -> S,
    ) -> Result<Begun<S>, PortableError> {
        let mut own = self
            .shared
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(saved) = own.saved.take() else {
            if declare_portable() {
                return Err(PortableError::Twice);
            }
            let declare = |core: &mut Core, now| {
                core.phase.running()?;
                core.give_up_directs(now);
                freeze::report_over(interrupt_socket(), 0, Report::Portable);
                Ok(Attempt::Done(()))
            };
            let declared = self.shared.run_in_any_phase(declare);
            declared.map_err(PortableError::Task)?;
            return Ok(Begun {
                state: fresh(),
                restored: false,
            });
        };
        let state = decode_value(&saved).map_err(|cause| PortableError::Value {
            wanted: std::any::type_name::<S>(),
            cause,
        })?;
        own.callbacks.iter_mut().for_each(|it| it.after_resume());
        Ok(Begun {
            state,
            restored: true,
        })
    }

    /// A safe point of a portable task: here `state` is all that its program needs to go on. Returns at
    /// once, after the look at one variable, unless the task is to be saved; then it is, and stands
    /// until it may go on.
    ///
    /// A task that is to be saved has 20 seconds to come to a safe point; else there is no checkpoint,
    /// or no move, and it runs on. No other thread may be within a send or a request then.
    ///
    /// # Errors
    /// [`TaskError`]. That the state could not be saved is told to whoever wanted it.
    pub fn safe_point<S: Serialize + ?Sized>(&self, state: &S) -> Result<(), TaskError> {
        match is_ordered() {
            true => self.shared.save_at(&|| encode_state(state), false),
            false => Ok(()),
        }
    }

    /// Receives like [`Task::recv`], at a safe point: `state` is what the task goes on from if it is
    /// saved before the message is received. After it has gone on it makes this call again.
    ///
    /// # Errors
    /// As [`Task::recv`].
    pub fn recv_at<S: Serialize + ?Sized>(
        &self,
        state: &S,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Message, RecvError> {
        let filter = self.filter(from, tag);
        self.at(state, false, |core, now| match core.take(&filter, now)? {
            Some(received) => Ok(Attempt::Done(received.into())),
            None => Ok(Attempt::Wait(None)),
        })
    }

    /// Waits like [`Task::next`], at a safe point, as [`Task::recv_at`] does.
    ///
    /// # Errors
    /// As [`Task::next`].
    pub fn next_at<S: Serialize + ?Sized>(
        &self,
        state: &S,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        time: Option<Duration>,
    ) -> Result<Option<Incoming>, RecvError> {
        let filter = self.filter(from, tag);
        let until = time.map(|time| now() + time);
        let mut looked = false;
        self.at(state, false, |core, now| match core.next(&filter, now)? {
            Some(incoming) => Ok(Attempt::Done(Some(incoming))),
            None => Ok(none_or_wait(until, now, &mut looked)),
        })
    }

    /// Saves all tasks of this application like [`Task::checkpoint`], at a safe point of this one. In
    /// the process that is made of it, [`Task::portable`] returns `state`; so this call returns
    /// [`Checkpointed::Saved`] alone.
    ///
    /// # Errors
    /// As [`Task::checkpoint`].
    pub fn checkpoint_at<S: Serialize + ?Sized>(
        &self,
        state: &S,
    ) -> Result<Checkpointed, RequestError> {
        let question = SaveApp {}.frame();
        let mut asked = None;
        let answer = self.at(state, true, |core, now| {
            Ok::<_, TaskError>(core.ask(&question, &mut asked, now))
        });
        if let Err(TaskError::Interrupted) = answer {
            self.shared.give_up(&asked);
        }
        let Saved { report } = read_answer(&answer?)?;
        Ok(Checkpointed::Saved(report))
    }

    /// A call that waits at a safe point; `asks`: it is a request. Orders go first, else a task whose
    /// inbox is never empty would never be saved.
    fn at<T, E: From<TaskError>, S: Serialize + ?Sized>(
        &self,
        state: &S,
        asks: bool,
        mut attempt: impl FnMut(&mut Core, vm_endpoint::Time) -> Result<Attempt<T>, E>,
    ) -> Result<T, E> {
        loop {
            let done = self.shared.run_to_order(|core, now| {
                Ok::<_, E>(match is_ordered() {
                    true => Attempt::Done(None),
                    false => match attempt(core, now)? {
                        Attempt::Done(value) => Attempt::Done(Some(value)),
                        Attempt::Wait(until) => Attempt::Wait(until),
                    },
                })
            })?;
            match done {
                Some(value) => return Ok(value),
                None => self.shared.save_at(&|| encode_state(state), asks)?,
            }
        }
    }
}

/// The program's value, with the names of its fields, so that these may be added.
fn encode_state<S: Serialize + ?Sized>(state: &S) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec_named(state).map_err(|error| format!("its value cannot be encoded: {error}"))
}

impl Shared {
    /// Carries out the order that waits, at a safe point: `value` is the program's.
    fn save_at(
        &self,
        value: &dyn Fn() -> Result<Vec<u8>, String>,
        asks: bool,
    ) -> Result<(), TaskError> {
        callbacks::may_be_saved()?;
        // One thread at a time.
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        forget_order();
        let mut packet = [0; ORDER_MAX];
        let Some((len, image)) = last_order(&mut packet) else {
            return Ok(());
        };
        let began = Instant::now();
        let mut last = (len, image);
        if order_in(&packet[..len]) == Some(Order::Hold) {
            // What is sent or asked by other threads would be of after this safe point.
            let core = self.lock();
            core.phase.running()?;
            freeze::heed(&RUNNING, &packet[..len], None);
            freeze::report(Report::Held);
            last = next_order(&mut packet);
        }
        let (len, image) = last;
        let packet = &packet[..len];
        if !matches!(order_in(packet), Some(Order::Freeze { .. })) {
            freeze::heed(&RUNNING, packet, image);
            return Ok(());
        }
        let before = callbacks::before(&mut own.callbacks);
        let is_before = before.is_ok();
        let value = before.and_then(|()| value());
        let core = self.lock();
        core.phase.running()?;
        let given = value.and_then(|value| self.stream(&core, packet, &value, asks));
        let by = Portable {
            given: Some((given, began)),
            image: Mutex::new(None),
        };
        freeze::heed(&by, packet, image);
        drop(core);
        if is_before {
            callbacks::after(&mut own.callbacks, false);
        }
        Ok(())
    }

    /// All that another process needs.
    fn stream(
        &self,
        core: &Core,
        packet: &[u8],
        value: &[u8],
        asks: bool,
    ) -> Result<Vec<u8>, String> {
        let Some(library) = self.state(core, asks) else {
            return Err("another thread of it is within a call that sends or asks".to_owned());
        };
        let library = rmp_serde::to_vec_named(&library);
        let library = library.map_err(|error| format!("the library's state: {error}"))?;
        let state = PortableState {
            process: process_state(Folders::of(packet))?,
            library: &library,
            value,
        };
        state.to_bytes().map_err(|error| error.to_string())
    }
}

/// How this process is to be started where the task resumes. Folders there may have other names.
fn process_state(folders: Option<(&[u8], &[u8])>) -> Result<ProcessState, String> {
    let there = |path: Vec<u8>| -> Body {
        let below = |(here, there): (&[u8], &[u8])| {
            let rest = path.strip_prefix(here)?;
            let is_below = rest.is_empty() || rest.starts_with(b"/");
            is_below.then(|| [there, rest].concat())
        };
        Body::from(folders.and_then(below).unwrap_or(path))
    };
    let program = env::current_exe().map_err(|error| format!("its program: {error}"))?;
    let dir = env::current_dir().map_err(|error| format!("its working directory: {error}"))?;
    let names = env::var_os(ENV_NAMES).unwrap_or_default();
    let names = names.as_bytes().split(|byte| *byte == b'=');
    let set = names.filter_map(|name| {
        let value = env::var_os(OsStr::from_bytes(name))?;
        Some((Body::from(name.to_vec()), Body::from(value.into_vec())))
    });
    Ok(ProcessState {
        program: there(program.into_os_string().into_vec()),
        args: env::args_os().map(|it| Body::from(it.into_vec())).collect(),
        env: set.collect(),
        dir: there(dir.into_os_string().into_vec()),
    })
}

/// The number of the descriptor of the state from which this process is to go on, if it is.
pub(crate) fn handed_state() -> Result<Option<RawFd>, InitError> {
    let Some(text) = env::var_os(ENV_STATE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(number @ 3..) => Ok(Some(number)),
        _ => Err(broken(format!("{ENV_STATE} holds {}", text.display()))),
    }
}

/// Becomes the task of that state: stands until the daemon lets it go on.
pub(crate) fn go_on_from(number: RawFd) -> Result<Arc<Shared>, InitError> {
    let handed = |number| {
        handed_over(number).map_err(|error| broken(format!("descriptor {number}: {error}")))
    };
    let mut stream = Vec::new();
    let read = File::from(handed(number)?).read_to_end(&mut stream);
    read.map_err(|error| broken(error.to_string()))?;
    let state = PortableState::read(&stream).map_err(|error| broken(error.to_string()))?;
    let library: LibraryState = rmp_serde::from_slice(state.library)
        .map_err(|error| broken(format!("the library's part: {error}")))?;
    let sockets = Sockets::new(handed(number + 1)?, handed(number + 2)?);
    watch(sockets.data.as_fd(), sockets.interrupt.as_fd(), false)?;
    let shared = Shared::of(library, sockets);
    let saved = Some(state.value.to_vec());
    drop(stream);
    let own = &shared.own;
    own.lock().unwrap_or_else(PoisonError::into_inner).saved = saved;
    declare_portable();
    RUNNING.rebuild();
    Ok(Arc::new(shared))
}

fn broken(what: String) -> InitError {
    InitError::State { what }
}
