//! The processes of tasks that are to be started, in order, and what arrives for each of them
//! before its start.

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

/// A process to start.
#[derive(Debug)]
enum Order {
    /// The process of a task.
    Task(Box<LaunchSpec>),
    /// The process that becomes a saved task, see [`Spawner::start_restorer`].
    Image {
        /// How the process is made from the image.
        how: Back,
        /// The image, the data socket, the interrupt socket.
        handed: [OwnedFd; 3],
    },
}

/// A process that is to be started, or is being started, and what has arrived for it meanwhile.
#[derive(Debug)]
pub struct Launch {
    /// The task.
    pub tid: Tid,
    /// None once the process is being started.
    order: Option<Order>,
    /// Whether the process becomes a saved task.
    pub image: bool,
    /// Whether a console has its streams (`Some`), and whether they are a terminal.
    pub console: Option<bool>,
    /// The last size of its terminal.
    pub size: Option<WindowSize>,
    /// Signals that are to be sent to the process.
    pub signals: Vec<i32>,
    /// Bytes for its standard input.
    pub typed: Typed,
    /// The task belongs to another host or has ended: the process must not live.
    pub unwanted: bool,
}

/// Processes that are started one after the other.
#[derive(Debug)]
struct Lane {
    starter: Starter<Order, Started, Failed>,
    /// The first entry is being started.
    queue: VecDeque<Launch>,
}

/// All processes that are to be started, in two lanes: programs of tasks, whose start may take long
/// because a file is far away; and restored tasks, each of which starts as this daemon's own
/// program.
#[derive(Debug)]
pub struct Launches {
    tasks: Lane,
    images: Lane,
}

impl Launches {
    /// Empty lanes. The event loop is woken when [`Launches::next`] has a result.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Launches> {
        Ok(Launches {
            tasks: Lane::new("start", spawner.clone(), Arc::clone(&waker))?,
            images: Lane::new("restore", spawner, waker)?,
        })
    }

    /// Has the process of a task started.
    pub fn launch(&mut self, spec: Box<LaunchSpec>) {
        let console = spec.console.map(|terminal| terminal.is_some());
        self.tasks.add(spec.tid, console, Order::Task(spec));
    }

    /// Orders the start of the process that becomes a saved task, see [`Spawner::start_restorer`].
    pub fn start_restorer(&mut self, tid: Tid, how: Back, handed: [OwnedFd; 3]) {
        self.images.add(tid, None, Order::Image { how, handed });
    }

    /// The entry of a task whose process is not started yet.
    pub fn of(&mut self, tid: Tid) -> Option<&mut Launch> {
        let mut launches = self.tasks.queue.iter_mut().chain(&mut self.images.queue);
        launches.find(|launch| !launch.unwanted && launch.tid == tid)
    }

    /// Marks the process of a task as unwanted.
    pub fn discard(&mut self, tid: Tid) {
        for lane in [&mut self.tasks, &mut self.images] {
            lane.discard(tid);
        }
    }

    /// Kills the process of a task if it is being started.
    pub fn kill(&self, tid: Tid) {
        for lane in [&self.tasks, &self.images] {
            lane.kill(tid);
        }
    }

    /// The next process that was started, or failed to start.
    pub fn next(&mut self) -> Option<(Launch, Result<Started, Failed>)> {
        self.tasks.next().or_else(|| self.images.next())
    }

    /// Forgets all processes that are not started yet.
    pub fn clear(&mut self) {
        self.tasks.queue.clear();
        self.images.queue.clear();
    }

    /// See [`Starter::may_be_starting`].
    pub fn may_be_starting(&self, child: Pid) -> bool {
        let mut lanes = [&self.tasks, &self.images].into_iter();
        lanes.any(|lane| lane.starter.may_be_starting(child))
    }

    /// See [`Starter::children`].
    pub fn children(&self) -> Vec<Pid> {
        let lanes = [&self.tasks, &self.images];
        lanes.map(|lane| lane.starter.children()).concat()
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

    /// Has the first entry started, unless it is being started already.
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
        Order::Image { how, handed } => spawner.start_restorer(&how, &handed).map_err(|error| {
            let text = format!("the task cannot be restored: {error}");
            Failed::new(FailKind::System, text)
        }),
    };
    started.map(|started| (started.pid, started))
}
