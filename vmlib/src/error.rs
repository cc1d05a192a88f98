//! What can go wrong, one type per operation; every text says what to do.

use std::{io, path::PathBuf, time::Duration};
use vm_wire::{CodecError, FrameError, Tid, agreed::ExitStatus, limits, task::Failed};

/// Why a program did not become a task.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Nobody listens on the daemon's socket.
    #[error(
        "no daemon answers at {path} ({cause}): start this program with `vm run ./program`, which \
         starts a daemon if there is none, or start `vmd` first", path = path.display()
    )]
    NoDaemon {
        /// Where it was looked for.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        cause: io::Error,
    },
    /// The process that listens on the socket may belong to another user. Nothing was sent to it.
    #[error(
        "the socket {path} is not one of your own daemon: {why}; nothing was sent to it: give the folder \
         of your daemon in {}, or start one with `vmd --dir`", vm_wire::place::ENV_DIR, path = path.display()
    )]
    NotOurs {
        /// Path of the socket.
        path: PathBuf,
        /// The fault, for people.
        #[source]
        why: vm_local::ConnectError,
    },
    /// The daemon took the connection and said nothing.
    #[error("the daemon at {path} did not answer within {time:?}: see its log", path = path.display())]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// How long was waited.
        time: Duration,
    },
    /// The environment has no context of the machine.
    #[error(
        "{} holds '{text}', which is no context: leave this variable as the spawning task set it",
        vm_wire::task::ENV_CONTEXT
    )]
    Context {
        /// Value of the variable.
        text: String,
    },
    /// This process is a task already.
    #[error("this process is a task already: use `Task::clone_handle` in other threads")]
    Twice,
    /// The environment was changed on the way.
    #[error(
        "{} holds '{text}', which is no number: leave this variable as the daemon set it",
        vm_wire::task::ENV_TOKEN
    )]
    Token {
        /// Value of the variable.
        text: String,
    },
    /// The signal by which the library learns of its daemon's end is blocked.
    #[error("SIGURG is blocked: unblock it before `init`, the library needs it")]
    NudgeBlocked,
    /// The daemon refuses the program.
    #[error("the daemon refuses this program: {0}")]
    Refused(#[source] Failed),
    /// The two ends do not understand each other.
    #[error("the daemon at {path} answered with what is no welcome ({what}): is it a vmd of this release?", path = path.display())]
    Protocol {
        /// Path of the socket.
        path: PathBuf,
        /// The unexpected frame.
        what: String,
    },
    /// This process was to go on from a saved state of a portable task.
    #[error(
        "the state that this task is to go on from cannot be read: {what}; is this program of the same \
         release as the one that was saved?"
    )]
    State {
        /// The fault, for people.
        what: String,
    },
    /// A call of the operating system failed.
    #[error("cannot become a task: {step}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// Error of the system.
        #[source]
        cause: io::Error,
    },
}

/// Why a task is not portable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortableError {
    /// It is so already.
    #[error("this task is portable already: call `Task::portable` once")]
    Twice,
    /// The saved value is not of the type that the program wants.
    #[error(
        "the saved state is no {wanted}: {cause}; start the release of the program that has saved it, or \
         give new fields a default (#[serde(default)])"
    )]
    Value {
        /// The type that was asked for.
        wanted: &'static str,
        /// The error of the decoder.
        cause: String,
    },
    /// The task can make no calls any more.
    #[error(transparent)]
    Task(TaskError),
}

/// Why a task can make no calls any more, or has left one. Part of the error of every operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TaskError {
    /// [`crate::Task::exit`] was called, or the process is ending.
    #[error("this task has left the machine: make no calls after `exit`")]
    Left,
    /// A callback made a call that it may not ([`crate::Callbacks`], [`crate::Task::recv_if`]).
    #[error(
        "a callback may not make this call: before_save and the condition of a receive make no call of the \
         library, and no callback around a save comes to a safe point"
    )]
    InCallback,
    /// The program has left the call while it waited ([`crate::interruptible`]). Later calls are possible.
    #[error("the call was interrupted while it waited: make it again")]
    Interrupted,
    /// The connection to the daemon is of no use any more.
    #[error("the connection to the daemon failed: {0}")]
    Link(#[from] LinkError),
}

/// A fault of the connection to the daemon.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// A system call failed.
    #[error("{step}: {cause}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// Error of the system.
        cause: rustix::io::Errno,
    },
    /// The daemon sent what is no frame.
    #[error("{0}; are program and daemon of the same release?")]
    Frame(#[from] FrameError),
    /// The daemon sent a frame with a bad body.
    #[error("{0}; are program and daemon of the same release?")]
    Body(#[from] CodecError),
    /// The daemon sent a frame that a task does not expect.
    #[error("an unexpected {0:?} came; are program and daemon of the same release?")]
    Unexpected(vm_wire::Op),
}

/// Why a message was not sent. Nothing of it will be received, unless some of the receivers of a
/// multicast had it before.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    /// More bytes than a message may have.
    #[error(
        "a message of {len} bytes: send at most {} at once",
        limits::MESSAGE_MAX
    )]
    TooLong {
        /// Length of the message. Bytes.
        len: u64,
    },
    /// The value cannot be written as MessagePack.
    #[error("the value cannot be sent: {0}")]
    Value(String),
    /// No task has that id: it is that of a daemon, or none.
    #[error("{to} is the id of no task: send to a tid that `spawn`, `parent` or a message told")]
    NoTask {
        /// The id without a task.
        to: Tid,
    },
    /// The receiver is not reading, and this task's own inbox became full while it waited.
    #[error(
        "{to} does not take the message, and meanwhile the inbox is full ({unread} bytes unread, \
         {bytes} of them from {from}): receive from {from} before you send more"
    )]
    InboxFull {
        /// The receiver of the message that was not sent.
        to: Tid,
        /// The sender with most unread bytes.
        from: Tid,
        /// Unread bytes from that sender.
        bytes: u64,
        /// Bytes of all unread messages.
        unread: u64,
    },
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why there is no message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecvError {
    /// The inbox holds none that was asked for, and is so full that none can come.
    #[error(
        "the inbox is full ({unread} bytes unread, {bytes} of them from {from}) and holds no \
         message that is waited for: receive from {from} first"
    )]
    InboxFull {
        /// The sender with most unread bytes.
        from: Tid,
        /// Unread bytes from that sender.
        bytes: u64,
        /// Bytes of all unread messages.
        unread: u64,
    },
    /// The task of which a message is waited for has ended. All that it sent was received, or is in the
    /// inbox and is not what was asked for.
    #[error("no message can come from {from}: {}", ended(*status))]
    Ended {
        /// The ended task.
        from: Tid,
        /// Its exit status; [`ExitStatus::Unknown`] if there is no such task.
        status: ExitStatus,
    },
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why there is no message in a buffer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecvIntoError {
    /// The first message that was asked for is longer than the buffer. It stays in the inbox.
    #[error(
        "the message (tag {tag}, {len} bytes, from {from}) is longer than the buffer of {room} bytes, and \
         stays in the inbox: receive it with `recv`, or into a longer buffer"
    )]
    TooLong {
        /// The sender of the message.
        from: Tid,
        /// Tag of the message.
        tag: i32,
        /// Length of the message. Bytes.
        len: usize,
        /// Length of the buffer. Bytes.
        room: usize,
    },
    /// The length of the first message that was asked for is no multiple of that of a number. The message
    /// stays in the inbox.
    #[error(
        "the message (tag {tag}, {len} bytes, from {from}) is no slice of {wanted}, {size} bytes each, and \
         stays in the inbox: receive it with `recv`"
    )]
    NoNumbers {
        /// The sender of the message.
        from: Tid,
        /// Tag of the message.
        tag: i32,
        /// Length of the message. Bytes.
        len: usize,
        /// The type that was asked for.
        wanted: &'static str,
        /// Bytes of one number.
        size: usize,
    },
    /// There is no message.
    #[error(transparent)]
    Recv(#[from] RecvError),
}

impl From<TaskError> for RecvIntoError {
    fn from(error: TaskError) -> Self {
        RecvIntoError::Recv(error.into())
    }
}

/// Why a send or receive was not started, or a handler not added.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// Too many requests are open.
    #[error(
        "{} requests are open: wait for some of them, or drop them, before you start more",
        limits::OPEN_REQUESTS_MAX
    )]
    TooMany,
    /// Too many handlers were added.
    #[error(
        "the task has {} handlers: remove one before you add another one",
        limits::HANDLERS_MAX
    )]
    TooManyHandlers,
    /// The message cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why a started send or receive is not complete.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WaitError {
    /// The result was returned before.
    #[error("this request is complete, and its result was returned: wait for each request once")]
    NotOpen,
    /// The message was not sent yet: receive first.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The message cannot come, or not before others were received.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// The end of a task, as the reason why nothing comes from it.
fn ended(status: ExitStatus) -> String {
    match status {
        ExitStatus::Left(0) => "it has ended".to_owned(),
        ExitStatus::Unknown => "there is no such task; check the tid".to_owned(),
        ExitStatus::NotStarted => "its program could not be started".to_owned(),
        status => format!("it has ended ({status})"),
    }
}

/// Why the body of a message is not what the program takes it for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It is no MessagePack of such a value.
    #[error("the message (tag {tag}, {len} bytes, from {from}) is not a {wanted}: {cause}")]
    Value {
        /// The sender of the message.
        from: Tid,
        /// Tag of the message.
        tag: i32,
        /// How long it is.
        len: usize,
        /// The type that was asked for.
        wanted: &'static str,
        /// The error of the decoder.
        cause: String,
    },
    /// Its length is no multiple of that of a number, or not that of the slice to fill.
    #[error(
        "the message (tag {tag}, {len} bytes, from {from}) is no slice of {wanted}, {size} bytes each{}",
        .count.map(|count| format!(", {count} of them")).unwrap_or_default()
    )]
    Slice {
        /// The sender of the message.
        from: Tid,
        /// Tag of the message.
        tag: i32,
        /// How long it is.
        len: usize,
        /// The type that was asked for.
        wanted: &'static str,
        /// Bytes of one number.
        size: usize,
        /// How many numbers were asked for, if that was said.
        count: Option<usize>,
    },
}

/// Why a request to the machine failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The machine said no; the text says why.
    #[error(transparent)]
    Refused(#[from] Failed),
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why tasks were not started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SpawnError {
    /// No task was started.
    #[error("cannot start {program}: {cause}")]
    Refused {
        /// The program that was to be started.
        program: String,
        /// The reason.
        #[source]
        cause: Failed,
    },
    /// Some hosts could not start theirs; the others' tasks run.
    #[error(
        "{} of {program} started, the others not: {}", started.len(),
        failures.iter().map(|(host, cause)| format!("{host}: {cause}")).collect::<Vec<_>>().join("; ")
    )]
    Partly {
        /// The program that was to be started.
        program: String,
        /// The tasks that run.
        started: Vec<Tid>,
        /// Host and cause of each failure.
        failures: Vec<(String, Failed)>,
    },
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why a group operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// This task is not a member any more.
    #[error("this task is no member of group '{group}': join it first")]
    NotMember {
        /// The group's name.
        group: String,
    },
    /// The group has no member of that instance number.
    #[error(
        "group '{group}' has no instance {instance}: its members may have changed, `refresh` it"
    )]
    NoInstance {
        /// The group's name.
        group: String,
        /// The instance number.
        instance: u32,
    },
    /// The message of a member is not of the type that this call expects.
    #[error("{from} broadcast something else in group '{group}': {cause}")]
    Value {
        /// The group's name.
        group: String,
        /// The sender of the message.
        from: Tid,
        /// The error of the decoder.
        cause: String,
    },
    /// A member is in a call under a newer version of the group. Refresh the handle, and repeat the call.
    #[error(
        "group '{group}' has changed: this task's handle has version {known}, another member calls under \
         version {newer}; `refresh` the handle and repeat the call"
    )]
    Version {
        /// The group's name.
        group: String,
        /// Version of this task's handle.
        known: u64,
        /// Version of the other member.
        newer: u64,
    },
    /// A member left the group without its part of the call.
    #[error("{member} has left group '{group}': `refresh` the handle")]
    Left {
        /// The group's name.
        group: String,
        /// The member that left.
        member: Tid,
    },
    /// A member makes another collective call.
    #[error(
        "{member} makes another collective call in group '{group}': let all members make the same calls in \
         the same order"
    )]
    OutOfStep {
        /// The group's name.
        group: String,
        /// The other member.
        member: Tid,
    },
    /// The call failed at a member, whose own error tells why.
    #[error("the collective call in group '{group}' failed at {member}: see the error there")]
    Failed {
        /// The group's name.
        group: String,
        /// The member.
        member: Tid,
    },
    /// The values do not fit the call, or those of another member.
    #[error("the values of the collective call in group '{group}' do not fit: {what}")]
    Shape {
        /// The group's name.
        group: String,
        /// The lengths or counts that do not fit, in words.
        what: String,
    },
    /// The machine said no; the text says why.
    #[error(transparent)]
    Refused(#[from] Failed),
    /// A message among the members could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A message among the members could not be received.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// No calls any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl From<RequestError> for GroupError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(failed) => GroupError::Refused(failed),
            RequestError::Task(error) => GroupError::Task(error),
        }
    }
}

/// Why a task could not leave in order.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExitError {
    /// The daemon did not confirm.
    #[error("the daemon did not confirm the exit within {0:?}: last messages may be lost")]
    Silent(Duration),
    /// The task has left, without the messages of started sends that their receivers did not take.
    #[error(
        "{count} started messages were not sent within {time:?}, the first one to {to}: wait for the \
         requests before the exit"
    )]
    Unsent {
        /// Number of these messages.
        count: usize,
        /// Receiver of the first one.
        to: Tid,
        /// Time for which the exit has waited.
        time: Duration,
    },
    /// The machine said no; the text says why.
    #[error(transparent)]
    Refused(#[from] Failed),
    /// It has left before, or cannot any more.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl From<RequestError> for ExitError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(failed) => ExitError::Refused(failed),
            RequestError::Task(error) => ExitError::Task(error),
        }
    }
}
