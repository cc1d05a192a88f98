//! The processes of tasks that are to be started, in order, and what comes for them meanwhile.

use crate::{
    image::transfer::Back,
    process::{
        spawn::{Spawner, Started},
        starter::{Answer, Starter},
        streams::Typed,
    },
};
use mio::Waker;
use rustix::{fd::OwnedFd, process::Pid};
use std::{collections::VecDeque, io, sync::Arc};
use vm_machine::LaunchSpec;
use vm_wire::{
    Tid,
    console::WindowSize,
    task::{FailKind, Failed},
};

/// What is to be started.
#[derive(Debug)]
enum Order {
    /// The process of a task.
    Task(Box<LaunchSpec>),
    /// The process that becomes a task that was saved, see [`Spawner::bring_back`].
    Image {
        /// How it is made.
        how: Back,
        /// Where its image comes from, its data socket, its interrupt socket.
        handed: [OwnedFd; 3],
    },
}

/// A process that is to be started, or is being started, and what came for it meanwhile.
#[derive(Debug)]
pub struct Launch {
    /// The task.
    pub tid: Tid,
    /// None once it is being started.
    order: Option<Order>,
    /// Whether it becomes a task that was saved.
    pub image: bool,
    /// Whether its streams are a console's, and whether that is a terminal.
    pub console: Option<bool>,
    /// The size that its terminal got meanwhile.
    pub size: Option<WindowSize>,
    /// Signals for it.
    pub signals: Vec<i32>,
    /// What is to be its standard input.
    pub typed: Typed,
    /// The task is another host's, or nobody's: it must not live.
    pub unwanted: bool,
}

/// Those that wait for each other.
#[derive(Debug)]
struct Lane {
    starter: Starter<Order, Started, Failed>,
    /// The first one is being started.
    queue: VecDeque<Launch>,
}

/// All of them: programs of tasks, of which one may not begin for long because its file is far away; and
/// tasks that are brought back, of which each begins as this daemon's own program.
#[derive(Debug)]
pub struct Launches {
    tasks: Lane,
    images: Lane,
}

impl Launches {
    /// None yet. The event loop is woken when [`Launches::next`] has something.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Launches> {
        Ok(Launches {
            tasks: Lane::new("start", spawner.clone(), Arc::clone(&waker))?,
            images: Lane::new("bring back", spawner, waker)?,
        })
    }

    /// The process of a task is to be started.
    pub fn launch(&mut self, spec: Box<LaunchSpec>) {
        let console = spec.console.map(|terminal| terminal.is_some());
        self.tasks.add(spec.tid, console, Order::Task(spec));
    }

    /// The process that becomes a task that was saved is to be started, see [`Spawner::bring_back`].
    pub fn bring_back(&mut self, tid: Tid, how: Back, handed: [OwnedFd; 3]) {
        self.images.add(tid, None, Order::Image { how, handed });
    }

    /// The process of a task that has none yet.
    pub fn of(&mut self, tid: Tid) -> Option<&mut Launch> {
        let mut launches = self.tasks.queue.iter_mut().chain(&mut self.images.queue);
        launches.find(|launch| !launch.unwanted && launch.tid == tid)
    }

    /// A task is to have no process here.
    pub fn discard(&mut self, tid: Tid) {
        for lane in [&mut self.tasks, &mut self.images] {
            lane.discard(tid);
        }
    }

    /// Kills the process of a task if it is just being started.
    pub fn kill(&self, tid: Tid) {
        for lane in [&self.tasks, &self.images] {
            lane.kill(tid);
        }
    }

    /// The next one that was started, or cannot be.
    pub fn next(&mut self) -> Option<(Launch, Result<Started, Failed>)> {
        self.tasks.next().or_else(|| self.images.next())
    }

    /// None is to be started any more.
    pub fn clear(&mut self) {
        self.tasks.queue.clear();
        self.images.queue.clear();
    }

    /// See [`Starter::may_be_starting`].
    pub fn may_be_starting(&self, child: Pid) -> bool {
        let mut lanes = [&self.tasks, &self.images].into_iter();
        lanes.any(|lane| lane.starter.may_be_starting(child))
    }

    /// See [`Starter::waited`].
    pub fn waited(&mut self, child: Pid) {
        self.tasks.starter.waited(child);
        self.images.starter.waited(child);
    }
}

impl Lane {
    fn new(name: &str, spawner: Spawner, waker: Arc<Waker>) -> io::Result<Lane> {
        Ok(Lane {
            starter: Starter::new(name, move |order| start(&spawner, order), waker)?,
            queue: VecDeque::new(),
        })
    }

    fn add(&mut self, tid: Tid, console: Option<bool>, order: Order) {
        self.queue.push_back(Launch {
            tid,
            image: matches!(order, Order::Image { .. }),
            order: Some(order),
            console,
            size: None,
            signals: Vec::new(),
            typed: Typed::default(),
            unwanted: false,
        });
        self.start_first();
    }

    /// Has the first one started, unless that is under way.
    fn start_first(&mut self) {
        if let Some(order) = self.queue.front_mut().and_then(|first| first.order.take()) {
            self.starter.start(order);
        }
    }

    fn discard(&mut self, tid: Tid) {
        for launch in self.queue.iter_mut().filter(|launch| launch.tid == tid) {
            launch.unwanted = true;
        }
        let is_queued = |launch: &Launch| launch.order.is_some();
        self.queue
            .retain(|launch| !(launch.unwanted && is_queued(launch)));
    }

    fn kill(&self, tid: Tid) {
        let first = self.queue.front();
        if first.is_some_and(|first| first.tid == tid && !first.unwanted) {
            self.starter.kill_starting();
        }
    }

    fn next(&mut self) -> Option<(Launch, Result<Started, Failed>)> {
        let answer = self.starter.answer()?;
        let launch = self.queue.pop_front()?;
        self.start_first();
        Some((launch, answer.map(|(_, started)| started)))
    }
}

fn start(spawner: &Spawner, order: Order) -> Answer<Started, Failed> {
    let started = match order {
        Order::Task(spec) => spawner.spawn(&spec),
        Order::Image { how, handed } => spawner.bring_back(&how, &handed).map_err(|error| {
            let text = format!("the task cannot be restored: {error}");
            Failed::new(FailKind::System, text)
        }),
    };
    started.map(|started| (started.pid, started))
}
