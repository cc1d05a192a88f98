//! The processes of tasks that are to be started, in order, and what comes for them meanwhile.

use crate::{
    spawn::{Spawner, Started},
    starter::{Answer, Starter},
    streams::Typed,
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
        /// Whether the files that the task writes are to be rolled back.
        roll_back: bool,
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

/// All of them.
#[derive(Debug)]
pub struct Launches {
    starter: Starter<Order, Started, Failed>,
    /// The first one is being started.
    queue: VecDeque<Launch>,
}

impl Launches {
    /// None yet. The event loop is woken when [`Launches::next`] has something.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(spawner: Spawner, waker: Arc<Waker>) -> io::Result<Launches> {
        Ok(Launches {
            starter: Starter::new("start", move |order| start(&spawner, order), waker)?,
            queue: VecDeque::new(),
        })
    }

    /// The process of a task is to be started.
    pub fn launch(&mut self, spec: Box<LaunchSpec>) {
        let console = spec.console.map(|terminal| terminal.is_some());
        self.add(spec.tid, console, Order::Task(spec));
    }

    /// The process that becomes a task that was saved is to be started, see [`Spawner::bring_back`].
    pub fn bring_back(&mut self, tid: Tid, roll_back: bool, handed: [OwnedFd; 3]) {
        self.add(tid, None, Order::Image { roll_back, handed });
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

    /// The process of a task that has none yet.
    pub fn of(&mut self, tid: Tid) -> Option<&mut Launch> {
        let mut wanted = self.queue.iter_mut().filter(|launch| !launch.unwanted);
        wanted.find(|launch| launch.tid == tid)
    }

    /// A task is to have no process here.
    pub fn discard(&mut self, tid: Tid) {
        if let Some(launch) = self.of(tid) {
            launch.unwanted = true;
            let is_queued = |launch: &Launch| launch.order.is_some();
            self.queue
                .retain(|launch| !(launch.unwanted && is_queued(launch)));
        }
    }

    /// The next one that was started, or cannot be.
    pub fn next(&mut self) -> Option<(Launch, Result<Started, Failed>)> {
        let answer = self.starter.answer()?;
        let launch = self.queue.pop_front()?;
        self.start_first();
        Some((launch, answer.map(|(_, started)| started)))
    }

    /// None is to be started any more.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// See [`Starter::may_be_starting`].
    pub fn may_be_starting(&self, child: Pid) -> bool {
        self.starter.may_be_starting(child)
    }

    /// See [`Starter::waited`].
    pub fn waited(&mut self, child: Pid) {
        self.starter.waited(child);
    }
}

fn start(spawner: &Spawner, order: Order) -> Answer<Started, Failed> {
    let started = match order {
        Order::Task(spec) => spawner.spawn(&spec),
        Order::Image { roll_back, handed } => {
            spawner.bring_back(roll_back, &handed).map_err(|error| {
                let text = format!("the task cannot be brought back: {error}");
                Failed::new(FailKind::System, text)
            })
        }
    };
    started.map(|started| (started.pid, started))
}
