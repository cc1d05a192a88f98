//! Starts daemons: one on this host if there is none, and one on each host that `add` names.
//!
//! On other hosts a *launcher* starts the daemon: a command made from a template, ssh by default. The
//! launcher gets the machine's secret on its standard input, never on its command line, where every
//! user of the host could read it. Its output is shown only if it fails.

mod child_output;
mod local;
mod template;

use crate::{
    ask,
    client::{Client, Pending},
    command::AddArgs,
    event::Event,
    failure::ClientError,
    hosts,
    progress::Progress,
    render::Renderer,
};
use anyhow::{Context, anyhow, bail};
use child_output::ChildOutput;
use indicatif::ProgressBar;
pub use local::start_local;
use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use template::command_line;
use vm_wire::{
    console::{Conf, HostRow},
    limits, place,
};

/// How often the launchers are checked while hosts are awaited.
const LOOK: Duration = Duration::from_millis(100);
/// How long the end of a launcher is awaited after its host has joined.
const LAUNCHER_END: Duration = Duration::from_secs(5);
/// How many hosts are added at the same time.
const AT_ONCE: usize = limits::CONSOLE_REQUESTS_MAX / 2;

/// Adds hosts, several at the same time; returns whether all have joined.
///
/// # Errors
/// If no host can be added: no secret, no address, the daemon is lost.
pub fn add(
    client: &mut Client,
    args: &AddArgs,
    dir: &Path,
    renderer: &mut Renderer,
) -> anyhow::Result<bool> {
    let conf = client.ask(ask::conf())?;
    let join = match &args.join {
        Some(join) => join.clone(),
        None => own_address(&conf)?,
    };
    let secret_file = match &args.secret_file {
        Some(file) => file.clone(),
        None => dir.join(place::SECRET_FILE),
    };
    let secret = fs::read(&secret_file).with_context(|| {
        format!(
            "cannot read the machine's secret from {}: it is in the folder of the machine's first \
             daemon; add hosts there, or give its file with --secret-file",
            secret_file.display()
        )
    })?;
    let launcher = Launcher {
        template: &args.launcher,
        join: &join,
        secret: &secret,
        conf: &conf,
        progress: Progress::new(renderer.audience()),
        time: Duration::from_secs(args.timeout),
    };
    let mut waiting = args.hosts.iter();
    let mut pending: Vec<Launch> = Vec::new();
    let mut ok = true;
    loop {
        while pending.len() < AT_ONCE
            && let Some(host) = waiting.next()
        {
            match launcher.start(client, host) {
                Ok(launch) => pending.push(launch),
                Err(error) => ok &= launcher.tell(renderer, host, Err(error))?,
            }
        }
        if pending.is_empty() {
            return Ok(ok);
        }
        let reply = client.next_reply(LOOK)?;
        let mut still = Vec::with_capacity(pending.len());
        for mut launch in pending {
            let joined = reply.as_ref().and_then(|reply| launch.joining.take(reply));
            match launcher.look(&mut launch, joined) {
                None => still.push(launch),
                Some(outcome) => {
                    launch.bar.finish_and_clear();
                    ok &= launcher.tell(renderer, &launch.name, outcome)?;
                }
            }
        }
        pending = still;
    }
}

/// The parameters of all launches of one `add`.
struct Launcher<'a> {
    template: &'a str,
    join: &'a str,
    secret: &'a [u8],
    /// The machine before the first host was added.
    conf: &'a Conf,
    progress: Progress,
    /// How long each host has.
    time: Duration,
}

/// A host whose daemon was started, until it has joined.
struct Launch {
    name: String,
    child: Child,
    output: ChildOutput,
    /// The exit status of the launcher, once it has ended.
    ended: Option<ExitStatus>,
    /// Whether the host has joined.
    joined: bool,
    /// The request whose reply comes when the host has joined.
    joining: Pending<()>,
    deadline: Instant,
    bar: ProgressBar,
}

impl Launcher<'_> {
    fn start(&self, client: &mut Client, host: &str) -> anyhow::Result<Launch> {
        let name = host.rsplit('@').next().unwrap_or(host);
        let there = |row: &HostRow| row.facts.name == name && hosts::is_present(row);
        if self.conf.hosts.iter().any(there) {
            bail!("a host of that name is already in the machine");
        }
        let words = command_line(self.template, host, name, self.join)?;
        let (program, rest) = words
            .split_first()
            .ok_or_else(|| anyhow!("the launcher is empty"))?;
        let output = ChildOutput::new()?;
        let mut child = Command::new(program)
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(output.writer()?)
            .stderr(output.writer()?)
            .spawn()
            .with_context(|| format!("cannot run the launcher {program}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A launcher that does not read the secret fails and reports that itself.
            let _ = stdin.write_all(self.secret);
        }
        Ok(Launch {
            name: name.to_owned(),
            child,
            output,
            ended: None,
            joined: false,
            joining: client.begin(ask::await_host(name.to_owned()))?,
            deadline: Instant::now() + self.time,
            bar: self.progress.bar(name, "starting its daemon"),
        })
    }

    /// The outcome of a launch; `None` as long as there is none.
    fn look(
        &self,
        launch: &mut Launch,
        joined: Option<Result<(), ClientError>>,
    ) -> Option<anyhow::Result<()>> {
        match joined {
            Some(Ok(())) => {
                launch.joined = true;
                launch.deadline = Instant::now() + LAUNCHER_END;
            }
            Some(Err(error)) => return Some(Err(error.into())),
            None => {}
        }
        if launch.ended.is_none() {
            match launch.child.try_wait() {
                Ok(ended) => launch.ended = ended,
                Err(error) => return Some(Err(error.into())),
            }
            if launch.ended.is_some() {
                launch.bar.set_message("started, waiting until it joins");
            }
        }
        let late = Instant::now() >= launch.deadline;
        match launch.ended {
            // The launcher of a host that has joined may fail, too: its daemon has no links to
            // other hosts, and leaves again.
            Some(status) if !status.success() => {
                let why = launch.output.of_failure(status);
                Some(Err(anyhow!("the launcher failed: {why}")))
            }
            _ if launch.joined => (late || launch.ended.is_some()).then_some(Ok(())),
            _ => late.then(|| Err(late_error(self.time, self.join))),
        }
    }

    /// Shows an outcome; returns whether it is a good one.
    fn tell(
        &self,
        renderer: &mut Renderer,
        host: &str,
        outcome: anyhow::Result<()>,
    ) -> io::Result<bool> {
        self.progress.suspend(|| match &outcome {
            Ok(()) => renderer.show(&Event::HostAdded(host)),
            Err(error) => renderer.failure("NotAdded", &format!("{host}: {error:#}")),
        })?;
        Ok(outcome.is_ok())
    }
}

impl Drop for Launch {
    /// Ends the launcher, but not if the host has joined: the daemon may be that very process.
    fn drop(&mut self) {
        if self.ended.is_none() && !self.joined {
            // Both calls fail only for a process that has ended.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The address at which other daemons reach this host's daemon.
fn own_address(conf: &Conf) -> anyhow::Result<String> {
    conf.hosts
        .iter()
        .find(|row| row.host == conf.here)
        .map(|row| row.facts.addr.clone())
        .ok_or_else(|| anyhow!("the daemon does not know its own address: give --join"))
}

/// Why a host whose launcher did not fail has not joined in time.
fn late_error(time: Duration, join: &str) -> anyhow::Error {
    let hint = if is_loopback(join) {
        format!(
            "the daemon here listens on {join}, which only this host can reach: start it with \
             another --listen"
        )
    } else {
        format!("can it reach {join}? See the daemon's log on that host")
    };
    anyhow!("not joined within {} s: {hint}", time.as_secs())
}

fn is_loopback(address: &str) -> bool {
    address
        .parse::<std::net::SocketAddr>()
        .is_ok_and(|address| address.ip().is_loopback())
}
