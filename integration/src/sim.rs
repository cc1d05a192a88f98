//! The simulator: the production state machines of many hosts and tasks in one process.
//!
//! A *world* has 3 to 14 hosts and some 24 tasks at a time. Each host is a [`vm_machine::Daemon`],
//! each task a [`vm_endpoint::Endpoint`] with a small random program around it: the code that real
//! daemons and real tasks run. Clock, network, processes and terminals are simulated. All events,
//! all faults and all delays follow from one seed, so a failure is repeated by its seed.
//!
//! Each application has its [`vm_coordinator::Coordinator`], in a simulated process that may die or
//! hang.
//!
//! Tasks die, leave and move: consoles request moves all the time, several at once, back at once,
//! and also of tasks that are moving or have ended. The image of a task is a copy of the task at
//! its freeze. Of all copies of a task only one may ever resume (`world::moves`).
//!
//! First faults strike, for at least 10,000 events, while the checkers watch for states that must
//! never occur (*safety*): [`ledger`] checks the delivery of messages, `world::checks` the agreed
//! state and the running processes. Then no fault strikes any more, and all pending work must end
//! (*liveness*): `world::settle`.
//!
//! Reading order: [`random`], [`queue`], [`clock`], [`network`], [`node`]; [`ledger`] and
//! [`program`] for the tasks; `world` for the events; [`coverage`] for the counts.
//!
//! Not simulated: the secure handshake of links, the bytes of frames (they are passed as values),
//! the bytes of images, signals that wait while a task is moved, consoles that read slowly. Those
//! are tested with real processes.

pub mod clock;
pub mod coverage;
pub mod ledger;
pub mod network;
pub mod node;
pub mod pipe;
pub mod program;
pub mod queue;
pub mod random;
pub mod ring_memory;
mod world;

pub use coverage::{Coverage, Turns};
pub use program::Sabotage;
pub use world::{Failure, Options, Outcome};

use random::Random;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};
use world::World;

/// Runs the world of a seed. If the world ends early, because a majority was lost, further worlds
/// follow until there were enough events. A panic of the code under test is a failure of the seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut random = Random::new(seed);
    let mut all = Outcome::default();
    while all.failure.is_none()
        && (all.events < world::EVENTS_LEAST || all.coverage.total() < world::FAULTS_LEAST)
    {
        let world = World::new(random.split(), options);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        all.add(outcome.unwrap_or_else(|panic| panicked(panic.as_ref())));
    }
    all
}

fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Outcome {
        failure: Some(Failure {
            at: 0,
            what: format!("panic: {}", text.unwrap_or("without a text")),
        }),
        ..Outcome::default()
    }
}
