//! `vm run`: a program in the machine that behaves like a local one.
//!
//! The console is a relay: input that is typed goes to the master, output of the application comes
//! to the console, and signals to the console are passed on. At the end the console exits with the
//! master's result. If the console itself is lost, the daemon sees the connection close and sends
//! the master SIGHUP, as the end of a terminal would.

mod relay;

use crate::{
    ask::{self, Restart},
    client::Client,
    event::Event,
    exit,
    failure::{Begun, ClientError},
    interrupt::Interrupt,
    render::Renderer,
    terminal,
};
use anyhow::Context;
use relay::{Relay, SignalPast};
use std::{os::fd::BorrowedFd, path::Path, rc::Rc, time::Duration};
use vm_wire::{
    Tid,
    checkpoint::Policy,
    console::Conf,
    task::{FailKind, Spawn},
};

/// How long the daemon may take to reply on the connection of a signal.
const SIGNAL_TIME: Duration = Duration::from_secs(5);

/// A program that is run at this console.
#[derive(Debug)]
pub struct Program<'a> {
    /// The program and its arguments.
    pub spawn: Spawn,
    /// The checkpoint policy of its application.
    pub policy: Option<Policy>,
    /// Whether the master gets a terminal, because this console has one.
    pub with_terminal: bool,
    /// Its standard input; an empty one if absent.
    pub input: Option<BorrowedFd<'a>>,
}

/// Starts a master and relays until it ends. Returns the console's exit code.
///
/// # Errors
/// If the console itself fails: the daemon is lost, or the reader of its output has gone.
pub fn run(
    dir: &Path,
    interrupt: &Rc<Interrupt>,
    program: Program,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let client = Client::connect(dir, interrupt.clone())?;
    run_over(client, interrupt, program, &signal_past(dir), renderer)
}

/// Restarts an application and relays its output until its master ends. Returns the console's exit
/// code.
///
/// # Errors
/// If the application cannot be restarted, or as [`run`].
pub fn restart(
    dir: &Path,
    interrupt: &Rc<Interrupt>,
    (restart, policy): (Restart, Option<Policy>),
    conf: &Conf,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let mut client = Client::connect(dir, interrupt.clone())?;
    let report = client.ask(ask::restart(restart))?;
    let follow = |renderer: &mut Renderer| {
        renderer.restarted(&report, conf)?;
        set_policy(&mut client, report.app, policy)?;
        let signal_past = signal_past(dir);
        let _relaying = interrupt.relaying();
        let mut relay = Relay::new(client, report.app, None, &signal_past)?;
        let status = relay.relay(renderer)?;
        renderer.show(&Event::RunEnded(report.app, status))?;
        Ok(exit::of_run(status))
    };
    let followed: anyhow::Result<u8> = follow(renderer);
    followed.context(Begun)
}

/// [`run`], over a connection that exists.
fn run_over(
    mut client: Client,
    interrupt: &Interrupt,
    program: Program,
    signal_past: &SignalPast,
    renderer: &mut Renderer,
) -> anyhow::Result<u8> {
    let size = program.with_terminal.then(terminal::size).flatten();
    let master = client.ask(ask::run(program.spawn, size))?;
    let master = master.ok_or(ClientError::Unexpected)?;
    let follow = |renderer: &mut Renderer| {
        set_policy(&mut client, master, program.policy)?;
        let _relaying = interrupt.relaying();
        let mut relay = Relay::new(client, master, program.input, signal_past)?;
        if size.is_some() {
            relay.enter_terminal()?;
            renderer.set_raw_terminal(true);
        }
        let end = relay.relay(renderer);
        relay.leave_terminal();
        renderer.set_raw_terminal(false);
        let status = end?;
        renderer.show(&Event::RunEnded(master, status))?;
        Ok(exit::of_run(status))
    };
    let followed: anyhow::Result<u8> = follow(renderer);
    followed.context(Begun)
}

/// Sets the checkpoint policy of an application, unless it has ended already.
fn set_policy(client: &mut Client, master: Tid, policy: Option<Policy>) -> Result<(), ClientError> {
    let Some(policy) = policy else {
        return Ok(());
    };
    match client.ask(ask::policy(master, policy)) {
        Err(ClientError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => Ok(()),
        set => set,
    }
}

/// Sends signals to a master, each over a connection of its own.
fn signal_past(dir: &Path) -> impl Fn(Tid, i32) -> Result<(), ClientError> {
    move |master, signal| {
        // The next signal waits until this one was sent.
        let deaf = Rc::new(Interrupt::deaf().map_err(ClientError::Wait)?);
        let mut client = Client::connect_within(dir, deaf, Some(SIGNAL_TIME))?;
        client.ask_within(ask::signal(master, signal), SIGNAL_TIME)
    }
}

#[cfg(test)]
mod tests;
