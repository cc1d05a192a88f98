//! Requests to the daemon, each with the type of its reply.
//!
//! A function below makes a [`Request`] together with the reading of the one reply that belongs to
//! it, so a command gets the value that it requested and never sees another kind of reply.

use vm_wire::{
    CheckpointId, HostId, MachineId, Tid,
    checkpoint::{CheckpointReport, Policy, RestartReport},
    console::{Answer, Conf, MoveRow, Request, SuspendedRow, TaskRow, WindowSize},
    peer::{DrainReport, DrainWay, MoveReport, MoveWay},
    stores::HostStock,
    task::Spawn,
    version::Offer,
};

/// A request whose reply is an `R`.
#[derive(Debug)]
pub struct Ask<R> {
    /// The request as it is sent.
    pub request: Request,
    /// The reply's value; `None` if that kind of reply does not belong to the request.
    pub read: fn(Answer) -> Option<R>,
}

/// The daemon of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFacts {
    /// The version of the protocol that console and daemon both speak.
    pub protocol: u16,
    /// The release of the daemon.
    pub release: String,
    /// The machine of the daemon.
    pub machine: MachineId,
    /// The host of the daemon.
    pub host: HostId,
}

/// The suspended application or task.
#[derive(Debug)]
pub enum Suspended {
    /// An application, with a checkpoint.
    Application(CheckpointReport),
    /// A single task.
    Task(MoveReport),
}

/// The resumed application or task.
#[derive(Debug)]
pub enum Resumed {
    /// An application.
    Application(RestartReport),
    /// A single task.
    Task(MoveReport),
}

/// How an application is restarted from a checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct Restart {
    /// The application, its master's tid.
    pub app: Tid,
    /// Generation and epoch; the last undamaged checkpoint if absent.
    pub from: Option<CheckpointId>,
    /// Whether the connection carries what the application writes.
    pub attach: bool,
    /// Whether files that its tasks had open for writing are not rolled back.
    pub keep_files: bool,
}

/// A request with the one kind of reply that belongs to it.
macro_rules! ask {
    ($request:expr, $reply:pat => $value:expr) => {
        Ask {
            request: $request,
            read: |answer| match answer {
                $reply => Some($value),
                _ => None,
            },
        }
    };
}

/// The daemon's version, machine and host: the first request on a connection.
pub fn version() -> Ask<DaemonFacts> {
    ask!(Request::Version(Offer::OURS), Answer::Version { version, release, machine, host } => {
        DaemonFacts { protocol: version, release, machine, host }
    })
}

/// The hosts of the machine.
pub fn conf() -> Ask<Conf> {
    ask!(Request::Conf, Answer::Conf(conf) => conf)
}

/// The tasks of one application, or of all.
pub fn tasks(app: Option<Tid>) -> Ask<Vec<TaskRow>> {
    ask!(Request::Ps(app), Answer::Ps(rows) => rows)
}

/// The suspended applications.
pub fn suspended() -> Ask<Vec<SuspendedRow>> {
    ask!(Request::Suspended, Answer::Suspended(rows) => rows)
}

/// Starts a master whose input and output belong to this connection; with `terminal`, it gets a
/// terminal of that size. The reply has no tid only if the daemon is wrong.
pub fn run(spawn: Spawn, terminal: Option<WindowSize>) -> Ask<Option<Tid>> {
    ask!(Request::Run { spawn, terminal }, Answer::Started(tids) => tids.first().copied())
}

/// Starts masters whose output goes to the logs of the daemons.
pub fn spawn(spawn: Spawn) -> Ask<Vec<Tid>> {
    ask!(Request::Spawn(spawn), Answer::Started(tids) => tids)
}

/// Sends a signal to a task.
pub fn signal(tid: Tid, signal: i32) -> Ask<()> {
    done(Request::Signal(tid, signal))
}

/// The reasons why a task cannot be moved; none if it can.
pub fn check(tid: Tid) -> Ask<Vec<String>> {
    ask!(Request::Check(tid), Answer::Check(reasons) => reasons)
}

/// Moves a task to `host`, or to the host that the machine chooses.
pub fn move_task(tid: Tid, host: Option<String>, way: MoveWay) -> Ask<MoveReport> {
    ask!(Request::Move(tid, host, way), Answer::Moved(report) => report)
}

/// The moves that were requested at this daemon and are not over.
pub fn moves() -> Ask<Vec<MoveRow>> {
    ask!(Request::Moves, Answer::Moves(rows) => rows)
}

/// Makes a checkpoint of the application of `tid`; with `stop`, the application ends with it.
pub fn checkpoint(tid: Tid, stop: bool) -> Ask<CheckpointReport> {
    ask!(Request::Checkpoint(tid, stop), Answer::Checkpointed(report) => report)
}

/// Sets the checkpoint policy of the application of `tid`.
pub fn policy(tid: Tid, policy: Policy) -> Ask<()> {
    done(Request::Policy(tid, policy))
}

/// Suspends the application of the master `tid` for `for_ms` milliseconds, or until it is resumed
/// if 0. Suspends any other task alone.
pub fn suspend(tid: Tid, for_ms: u64) -> Ask<Suspended> {
    Ask {
        request: Request::Suspend(tid, for_ms),
        read: |answer| match answer {
            Answer::Checkpointed(report) => Some(Suspended::Application(report)),
            Answer::Moved(report) => Some(Suspended::Task(report)),
            _ => None,
        },
    }
}

/// Resumes an application or task that [`suspend`] suspended; a single task on `host`, if given.
pub fn resume(tid: Tid, host: Option<String>) -> Ask<Resumed> {
    Ask {
        request: Request::Resume(tid, host),
        read: |answer| match answer {
            Answer::Restarted(report) => Some(Resumed::Application(report)),
            Answer::Moved(report) => Some(Resumed::Task(report)),
            _ => None,
        },
    }
}

/// Restarts an application from a checkpoint in the daemon's store.
pub fn restart(restart: Restart) -> Ask<RestartReport> {
    let Restart {
        app,
        from,
        attach,
        keep_files,
    } = restart;
    let request = Request::Restart {
        app,
        from,
        attach,
        keep_files,
    };
    ask!(request, Answer::Restarted(report) => report)
}

/// The checkpoints of an application in the stores of all hosts, if each has its own; with `verify`,
/// each host reads all of them.
pub fn stock(app: Tid, verify: bool) -> Ask<Vec<HostStock>> {
    ask!(Request::Stock(app, verify), Answer::Stock(stock) => stock)
}

/// Has the other hosts remove the checkpoints of an application from stores of their own.
pub fn forget_stored(app: Tid) -> Ask<()> {
    done(Request::ForgetStored(app))
}

/// Moves all tasks off a host, and places no new task there.
pub fn drain(host: String, way: DrainWay) -> Ask<DrainReport> {
    ask!(Request::Drain(host, way), Answer::Drained(report) => report)
}

/// Ends the drain of a host: tasks may be placed there again.
pub fn undrain(host: String) -> Ask<()> {
    done(Request::Undrain(host))
}

/// Waits until a host of that name is in the machine.
pub fn await_host(name: String) -> Ask<()> {
    done(Request::AwaitHost(name))
}

/// Removes a host from the machine.
pub fn delete(host: String) -> Ask<()> {
    done(Request::Delete(host))
}

/// Ends the machine.
pub fn halt() -> Ask<()> {
    done(Request::Halt)
}

/// A request without a result.
fn done(request: Request) -> Ask<()> {
    ask!(request, Answer::Done => ())
}
