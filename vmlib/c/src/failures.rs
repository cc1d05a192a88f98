//! The code of each error of `vmlib`. The words stay those of the error.

use crate::{code::Code, error::Error};
use vmlib::{
    ExitError, FailKind, Failed, GroupError, InitError, RecvError, RecvIntoError, RequestError,
    SendError, SpawnError, StartError, TaskError, ValueError, WaitError,
};

/// An error of `vmlib` that has a code here.
trait Coded {
    fn code(&self) -> Code;
}

macro_rules! coded {
    ($($error:ty)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error::of(error.code(), &error)
            }
        }
    )*};
}

coded! {
    Failed TaskError InitError ExitError SendError RecvError RecvIntoError StartError WaitError
    ValueError RequestError SpawnError GroupError
}

impl Coded for Failed {
    fn code(&self) -> Code {
        match self.kind {
            FailKind::NoSuchHost => Code::NoHost,
            FailKind::NoSuchTask => Code::NoTask,
            FailKind::NoSuchGroup => Code::NoGroup,
            FailKind::NotMember => Code::NotMember,
            FailKind::NoSuchProgram => Code::NoProgram,
            FailKind::Limit => Code::Limit,
            FailKind::BadRequest => Code::Invalid,
            FailKind::Version => Code::Protocol,
            FailKind::Refused => Code::Refused,
            FailKind::Busy => Code::TryAgain,
            FailKind::HostLost => Code::HostLost,
            FailKind::System => Code::System,
            FailKind::NotExecutable => Code::NotExecutable,
        }
    }
}

impl Coded for TaskError {
    fn code(&self) -> Code {
        match self {
            TaskError::Left => Code::Left,
            TaskError::InCallback => Code::InCallback,
            TaskError::Interrupted => Code::Interrupted,
            TaskError::Link(_) => Code::Link,
        }
    }
}

impl Coded for InitError {
    fn code(&self) -> Code {
        match self {
            InitError::NoDaemon { .. } => Code::NoDaemon,
            InitError::NotOurs { .. } => Code::Refused,
            InitError::Silent { .. } => Code::Silent,
            InitError::Twice => Code::Twice,
            InitError::Token { .. } | InitError::Context { .. } | InitError::NudgeBlocked => {
                Code::Invalid
            }
            InitError::Refused(failed) => failed.code(),
            InitError::Protocol { .. } | InitError::State { .. } => Code::Protocol,
            InitError::System { .. } => Code::System,
        }
    }
}

impl Coded for ExitError {
    fn code(&self) -> Code {
        match self {
            ExitError::Silent(_) => Code::Silent,
            ExitError::Unsent { .. } => Code::Unsent,
            ExitError::Refused(failed) => failed.code(),
            ExitError::Task(error) => error.code(),
        }
    }
}

impl Coded for SendError {
    fn code(&self) -> Code {
        match self {
            SendError::TooLong { .. } => Code::TooLong,
            SendError::Value(_) => Code::Internal,
            SendError::NoTask { .. } => Code::NoTask,
            SendError::InboxFull { .. } => Code::InboxFull,
            SendError::Task(error) => error.code(),
        }
    }
}

impl Coded for RecvError {
    fn code(&self) -> Code {
        match self {
            RecvError::InboxFull { .. } => Code::InboxFull,
            RecvError::Ended { .. } => Code::Ended,
            RecvError::Task(error) => error.code(),
        }
    }
}

impl Coded for RecvIntoError {
    fn code(&self) -> Code {
        match self {
            RecvIntoError::TooLong { .. } => Code::Space,
            RecvIntoError::NoNumbers { .. } => Code::Type,
            RecvIntoError::Recv(error) => error.code(),
        }
    }
}

impl Coded for StartError {
    fn code(&self) -> Code {
        match self {
            StartError::TooMany | StartError::TooManyHandlers => Code::Limit,
            StartError::Send(error) => error.code(),
            StartError::Task(error) => error.code(),
        }
    }
}

impl Coded for WaitError {
    fn code(&self) -> Code {
        match self {
            WaitError::NotOpen => Code::NotOpen,
            WaitError::Send(error) => error.code(),
            WaitError::Recv(error) => error.code(),
            WaitError::Task(error) => error.code(),
        }
    }
}

impl Coded for ValueError {
    fn code(&self) -> Code {
        match self {
            ValueError::Value { .. } | ValueError::Slice { .. } => Code::Type,
        }
    }
}

impl Coded for RequestError {
    fn code(&self) -> Code {
        match self {
            RequestError::Refused(failed) => failed.code(),
            RequestError::Task(error) => error.code(),
        }
    }
}

impl Coded for SpawnError {
    fn code(&self) -> Code {
        match self {
            SpawnError::Refused { cause, .. } => cause.code(),
            SpawnError::Partly { .. } => Code::Partly,
            SpawnError::Task(error) => error.code(),
        }
    }
}

impl Coded for GroupError {
    fn code(&self) -> Code {
        match self {
            GroupError::NotMember { .. } => Code::NotMember,
            GroupError::NoInstance { .. } => Code::NoInstance,
            GroupError::Value { .. } => Code::Type,
            GroupError::Version { .. } => Code::Version,
            GroupError::Left { .. } => Code::MemberLeft,
            GroupError::OutOfStep { .. } => Code::OutOfStep,
            GroupError::Failed { .. } => Code::MemberFailed,
            GroupError::Shape { .. } => Code::Shape,
            GroupError::Refused(failed) => failed.code(),
            GroupError::Send(error) => error.code(),
            GroupError::Recv(error) => error.code(),
            GroupError::Task(error) => error.code(),
        }
    }
}
