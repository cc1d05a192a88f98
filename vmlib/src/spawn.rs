//! Starting tasks, and asking the machine about tasks and hosts.

use crate::{
    Task,
    context::ContextId,
    error::{RequestError, SpawnError},
};
use vm_wire::{
    HostId, Tid,
    agreed::HostFacts,
    limits,
    task::{
        self, Done, ENV_CONTEXT, FailKind, Failed, Hosts, HostsAsk, Place, Siblings, Signal,
        Spawned, Tids,
    },
};

/// The tasks that [`Task::spawn`] is to start.
///
/// ```
/// # use vmlib::Spawn;
/// let four_workers = Spawn::new("./worker").args(["--fast"]).env("LEVEL", "3").count(4);
/// let one_each = Spawn::new("worker").on_each(["node1", "node2"]).count(2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawn {
    request: task::Spawn,
}

impl Spawn {
    /// One task of that program, on a host that the machine chooses. A name without `/` is looked
    /// up in the program path of the host's daemon; a relative path is taken from this process's
    /// working directory, which the host must have too.
    pub fn new(program: impl Into<String>) -> Self {
        Spawn {
            request: task::Spawn {
                program: program.into(),
                args: Vec::new(),
                env: Vec::new(),
                dir: None,
                count: 1,
                place: Place::Any,
            },
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.request.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.request.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment, which is otherwise that of the host's daemon.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.env.push((key.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<String>) -> Self {
        self.request.dir = Some(dir.into());
        self
    }

    /// Sets how many tasks are started, at most [`limits::SPAWN_COUNT_MAX`] (4096) at once.
    #[must_use]
    pub fn count(mut self, count: u32) -> Self {
        self.request.count = count;
        self
    }

    /// Starts all on the host of that name, or of that number: `h3`.
    #[must_use]
    pub fn on(mut self, host: impl Into<String>) -> Self {
        self.request.place = Place::Host(host.into());
        self
    }

    /// Starts them in turn on the hosts of these names or numbers.
    #[must_use]
    pub fn on_each<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.request.place = Place::Hosts(hosts.into_iter().map(Into::into).collect());
        self
    }

    /// The tasks begin in that context: the handle that [`crate::init()`] returns there is in it. Without
    /// this they begin in [`ContextId::PROGRAM`].
    #[must_use]
    pub fn in_context(self, context: ContextId) -> Self {
        self.env(ENV_CONTEXT, context.to_string())
    }

    /// Refuses what no daemon would take, before it is sent.
    fn check(&self) -> Result<(), Failed> {
        let refuse = |kind, text: String| Err(Failed::new(kind, text));
        let spawn = &self.request;
        if spawn.program.is_empty() {
            return refuse(FailKind::BadRequest, "the program has no name".to_owned());
        }
        if spawn.count == 0 || spawn.count > limits::SPAWN_COUNT_MAX {
            let max = limits::SPAWN_COUNT_MAX;
            let text = format!("a count of {}; from 1 to {max} are possible", spawn.count);
            return refuse(FailKind::BadRequest, text);
        }
        let env = spawn.env.iter().flat_map(|(key, value)| [key, value]);
        let text: usize = spawn.args.iter().chain(env).map(String::len).sum();
        if text > limits::SPAWN_TEXT_MAX {
            let max = limits::SPAWN_TEXT_MAX;
            let text = format!("{text} bytes of arguments and environment; {max} are possible");
            return refuse(FailKind::Limit, text);
        }
        Ok(())
    }

    /// As it is asked for: a relative path from here means nothing to a daemon.
    fn resolved(&self) -> task::Spawn {
        let mut spawn = self.request.clone();
        if spawn.program.contains('/')
            && !spawn.program.starts_with('/')
            && let Ok(dir) = std::env::current_dir()
            && let Some(path) = dir.join(&spawn.program).to_str()
        {
            spawn.program = path.to_owned();
        }
        spawn
    }
}

/// A living host of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Number of the host.
    pub id: HostId,
    /// Its name, address, cores.
    pub facts: HostFacts,
    /// Number of living tasks on the host.
    pub tasks: u32,
}

impl Task {
    /// Starts tasks; returns when they are tasks of the machine, found on their hosts, with processes
    /// that are being started. What is sent to them waits for them. One whose process cannot be started
    /// after all ends, which [`Task::watch_task`] tells. Their tids come in the order of their
    /// [`Task::index`].
    ///
    /// # Errors
    /// [`SpawnError`], see there; nothing runs unless it says so.
    pub fn spawn(&self, spawn: &Spawn) -> Result<Vec<Tid>, SpawnError> {
        let program = || spawn.request.program.clone();
        let refused = |cause| SpawnError::Refused {
            program: program(),
            cause,
        };
        spawn.check().map_err(refused)?;
        match self.shared.request::<Spawned>(&spawn.resolved()) {
            Ok(Spawned { tids, failures }) if failures.is_empty() => Ok(tids),
            Ok(Spawned { tids, failures }) => Err(SpawnError::Partly {
                program: program(),
                started: tids,
                failures,
            }),
            Err(RequestError::Refused(cause)) => Err(refused(cause)),
            Err(RequestError::Task(error)) => Err(error.into()),
        }
    }

    /// The tasks that were started together with this one, itself among them, those that have
    /// ended too, in the order of their [`Task::index`].
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn siblings(&self) -> Result<Vec<Tid>, RequestError> {
        let Tids { tids } = self.shared.request(&Siblings {})?;
        Ok(tids)
    }

    /// The living hosts.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn hosts(&self) -> Result<Vec<Host>, RequestError> {
        let Hosts { hosts } = self.shared.request(&HostsAsk {})?;
        let host = |(id, facts, tasks)| Host { id, facts, tasks };
        Ok(hosts.into_iter().map(host).collect())
    }

    /// Ends a task at once, with SIGKILL.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn kill(&self, tid: Tid) -> Result<(), RequestError> {
        self.signal(tid, libc::SIGKILL)
    }

    /// Sends a signal to a task's process.
    ///
    /// # Errors
    /// [`RequestError`], see there.
    pub fn signal(&self, tid: Tid, signal: i32) -> Result<(), RequestError> {
        self.shared.request::<Done>(&Signal { tid, signal })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_daemon_would_take_is_refused() {
        assert!(Spawn::new("").check().is_err());
        assert!(Spawn::new("x").count(0).check().is_err());
        assert!(Spawn::new("x").count(4097).check().is_err());
        let long = Spawn::new("x").arg("y".repeat(limits::SPAWN_TEXT_MAX + 1));
        assert_eq!(long.check().unwrap_err().kind, FailKind::Limit);
        assert!(Spawn::new("x").count(4096).check().is_ok());
    }

    #[test]
    fn a_relative_path_is_taken_from_here_and_a_name_is_left_alone() {
        let program = |text: &str| Spawn::new(text).resolved().program;
        assert_eq!(program("worker"), "worker");
        assert_eq!(program("/bin/worker"), "/bin/worker");
        assert!(program("bin/worker").starts_with('/'));
        assert!(program("./worker").ends_with("worker"));
    }
}
