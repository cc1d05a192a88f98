//! `vmd`, the daemon of the virtual parallel machine: one per host.
//!
//! This crate is the I/O shell around [`vm_machine::Daemon`], which makes every decision. Reading
//! order: [`mod@start`] (what a daemon needs before it serves), [`event_loop`] (one turn: readiness in,
//! system calls out), [`net`] (other daemons), [`local`] (tasks and consoles of this host),
//! [`process`] (the processes of tasks), [`image`] (images of tasks, on their way and in the store).
//! [`context`], [`clock`] and [`fault`] lie below all of them.
//!
//! Exit codes: 0 after an orderly end; 1 after an error, which goes to standard error and to the log;
//! 2 for a wrong command line.

mod start;

mod event_loop;

mod net;

mod local;

mod process;

mod image;

mod clock;
mod context;
mod fault;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use event_loop::{EventLoop, Parts};
use image::{
    bucket::{self, Pusher},
    images, store, suspended, transfer,
};
use net::{
    address,
    arrival::Arrival,
    hello::Identity,
    join::{JOIN_TIME, Joiner},
    reach::Reach,
    secure::Mode,
    sockets,
};
use process::{
    coordinators,
    guardian::{self, Guardian},
    lease::{self, Probe},
    program::ProgramPath,
    spawn::Spawner,
};
use start::{
    args::{self, Args, OnTerm},
    detach,
    dir::Dir,
    inherited::Inherited,
    init, last,
    logging::{Log, LogFile, Sink},
    secret::{self, ENV_SECRET, Secret},
};
use std::{
    env, ffi::OsString, fs::DirBuilder, io, net::IpAddr, os::unix::fs::DirBuilderExt as _,
    path::PathBuf, process::ExitCode, sync::Arc, thread, time::Duration,
};
use vm_bucket::CREDENTIALS;
use vm_machine::Outbox;
use vm_machine::{Daemon, DaemonConfig};
use vm_wire::{HostId, MachineId, agreed::HostFacts, limits::LINK_TIME, place};

fn main() -> ExitCode {
    if let Some(result) = transfer::run_if_asked()
        .or_else(images::run_if_asked)
        .or_else(suspended::run_if_asked)
        .or_else(bucket::run_if_asked)
        .or_else(coordinators::run_if_asked)
        .or_else(lease::run_if_asked)
        .or_else(guardian::run_if_asked)
    {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("vmd: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let args = Args::parse();
    if let Some(result) = init::run_if_process_1(args.detach) {
        return result.unwrap_or_else(|error| {
            eprintln!("vmd: {error:#}");
            ExitCode::FAILURE
        });
    }
    let result = if args.detach && !args.detached {
        detach::start()
    } else {
        serve(&args, Inherited::take())
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if args.detached {
        // Before the daemon was ready somebody reads it; afterwards the log has it.
        let _ = detach::tell(Err(&error));
    } else {
        eprintln!("vmd: {error:#}");
    }
    ExitCode::FAILURE
}

/// From the first look at the folder until nothing is left but the secret and the log.
fn serve(args: &Args, inherited: Inherited) -> anyhow::Result<()> {
    if args.detached {
        detach::leave_terminal()?;
    }
    let dir = Dir::take(&folder(args))?;
    let log = start_log(args, &dir)?;
    tell_last_end(args, &dir);
    let guardian = Guardian::start(dir.path(), dir.lock()?).context("cannot start a guardian")?;
    let result = start(args, &dir, &guardian).and_then(|event_loop| {
        if args.detached {
            inherited.close();
        }
        let ended = event_loop.run();
        note_end(args, &dir, &ended);
        ended.map(drop)
    });
    guardian.dismiss();
    if let Err(error) = &result
        && (args.detached || args.log_file.is_some())
    {
        log::error!("{error:#}");
    }
    log.flush();
    result
}

/// Says how the last daemon in the folder ended, where this one is started and in its log.
fn tell_last_end(args: &Args, dir: &Dir) {
    if let Some(last) = dir.last_end() {
        log::warn!("{last}");
        if args.detached {
            detach::note(&last.to_string());
        } else if args.log_file.is_some() {
            eprintln!("vmd: {last}");
        }
    }
}

/// Leaves word for the next daemon in the folder: of an end in order where a log stays, too.
fn note_end(args: &Args, dir: &Dir, ended: &anyhow::Result<String>) {
    match ended {
        Err(error) => dir.note_end(&format!("ended by itself: {error:#}")),
        Ok(why) if args.detached => dir.note_end(&format!("ended in order: {why}")),
        Ok(_) => {}
    }
}

/// The folder of checkpoints: the one given; or, where the user has chosen the daemon's folder, one in
/// that; else one that outlives logins, which hosts with a home in common share.
///
/// # Errors
/// When it cannot be made.
fn store_root(args: &Args, dir: &Dir, host: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = &args.store {
        return std::path::absolute(given).context("--store");
    }
    // The console names the folder also where that is the default.
    let chosen = folder(args) != folder_of(None);
    let state = || {
        let state_home = env::var_os(place::ENV_STATE_HOME);
        place::state_dir(state_home, env::var_os(place::ENV_HOME))
    };
    let state = if chosen { None } else { state() };
    let Some(state) = state else {
        return Ok(dir.path().join(place::STORE));
    };
    let root = match args.store_local {
        true => state.join(place::STORES_LOCAL).join(host),
        false => state.join(place::STORE),
    };
    // The store itself makes only its last folder.
    let above = root.parent().unwrap_or(&state);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(above)
        .with_context(|| {
            let above = above.display();
            format!("cannot make {above} for the store of checkpoints: give another one by --store")
        })?;
    Ok(root)
}

fn folder(args: &Args) -> PathBuf {
    let given = || env::var_os(place::ENV_DIR);
    args.dir.clone().unwrap_or_else(|| folder_of(given()))
}

/// The folder of a daemon that is not told one, where [`place::ENV_DIR`] is `given`.
fn folder_of(given: Option<OsString>) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    place::default_dir(given, env::var_os(place::ENV_RUNTIME_DIR), uid)
}

fn start_log(args: &Args, dir: &Dir) -> anyhow::Result<Log> {
    let in_folder = || args.detached.then(|| dir.path().join(place::LOG_FILE));
    Log::start(match args.log_file.clone().or_else(in_folder) {
        Some(path) => Sink::File(LogFile::open(&path, args.log_bytes)?),
        None => Sink::Stderr,
    })
}

/// The machine's secret: handed over, in the file, or, for a founder, drawn.
fn secret(args: &Args, dir: &Dir) -> anyhow::Result<Secret> {
    if args.secret_stdin {
        return Secret::from_line(io::stdin());
    }
    if let (None, Ok(text)) = (&args.secret_file, env::var(ENV_SECRET)) {
        return Secret::from_text(&text).with_context(|| format!("no secret in ${ENV_SECRET}"));
    }
    let in_folder = || dir.path().join(place::SECRET_FILE);
    let file = args.secret_file.clone().unwrap_or_else(in_folder);
    if file.exists() {
        return Secret::from_file(&file);
    }
    if args.join.is_some() {
        bail!(
            "there is no secret in {}: copy the one of the machine there (DIR/{} of its first \
             daemon, mode 0600), or name it with --secret-file",
            file.display(),
            place::SECRET_FILE
        );
    }
    Secret::create(&file)
}

/// Founds or joins a machine, and opens the doors.
fn start(args: &Args, dir: &Dir, guardian: &Arc<Guardian>) -> anyhow::Result<EventLoop> {
    let probe = Probe::start()?;
    let name = args::host_name(args)?;
    if args.join.is_none() && !args.found {
        last::check(dir.path())?;
    }
    let secret = secret(args, dir)?;
    let mode = if args.unencrypted_links {
        Mode::Plain
    } else {
        Mode::Encrypted
    };
    let work_dir = args::work_dir(args)?;
    let spawner = Spawner {
        socket: dir.socket(),
        work_dir: work_dir.clone(),
        path: ProgramPath::new(&args.path),
        hidden: args.store_bucket.is_some().then_some(CREDENTIALS),
        file_limit: sockets::raise_file_limit(),
        guardian: Arc::clone(guardian),
    };
    let link_listener = address::listen(&args.listen)?;
    let listening = link_listener.local_addr()?;
    let reach = Reach {
        learns: address::learns(args.advertise.as_deref(), listening),
    };
    let facts = |seen: Option<IpAddr>| -> anyhow::Result<HostFacts> {
        // Loopback leads everybody to himself.
        let seen = seen.filter(|seen| !seen.is_loopback());
        let seen = || seen.unwrap_or_else(|| address::best(listening));
        let addr = address::advertised(args.advertise.as_deref(), listening, seen)?;
        Ok(HostFacts {
            name: name.clone(),
            addr: addr.to_string(),
            cpus: thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            tasks_max: args.max_tasks,
            arch: env::consts::ARCH.to_owned(),
            store_local: args.store_local,
        })
    };
    let store = store::StoreLocation {
        root: store_root(args, dir, &name)?,
        host: name.clone(),
        quota: args.store_quota.unwrap_or(0),
        local: args.store_local,
        started_ms: store::now_ms(),
    };
    log::info!("checkpoints are in {}", store.root.display());
    let pusher = match &args.store_bucket {
        Some(url) => {
            let endpoint = args.store_endpoint.as_deref();
            Some(Pusher::start(&store.root, url, endpoint).context("--store-bucket")?)
        }
        None => None,
    };
    probe.finish()?;
    let nonce = secret::random_u64();
    let config = |facts: &HostFacts| DaemonConfig {
        seed: secret::random_u64(),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        drain_at_stop: match args.on_term {
            OnTerm::Leave => None,
            OnTerm::Drain | OnTerm::Suspend => Some(Duration::from_secs(args.grace.into())),
        },
        suspend_at_stop: args.on_term == OnTerm::Suspend,
        suspended_for_ms: args.suspended_for.unwrap_or(0) * 1_000,
        clock_ms: clock::origin_ms(),
        work_dir: work_dir.clone(),
        store: store.root.to_string_lossy().into_owned(),
        link_time: Some(LINK_TIME),
        ..DaemonConfig::new(facts.clone(), nonce)
    };
    let mut outbox = Outbox::new();
    let (daemon, machine, host, facts) = match &args.join {
        None => {
            let machine = MachineId::from_bits(secret::random_u64() as u32);
            let facts = facts(None)?;
            last::forget(dir.path());
            let daemon = Daemon::found(clock::now(), machine, config(&facts), &mut outbox);
            log::info!(
                "{name} founds machine {machine}; join it with --join {}",
                facts.addr
            );
            (daemon, machine, HostId::FOUNDER, facts)
        }
        Some(target) => {
            let joiner = Joiner {
                target,
                listening,
                secret: &secret,
                mode,
                nonce,
            };
            let trying = format!("joining the machine of {target}, for up to {JOIN_TIME:?}");
            log::info!("{trying}");
            if args.detached {
                detach::note(&trying);
            }
            let (joined, facts) = joiner.join(|seen| facts(Some(seen)))?;
            let (machine, host) = (joined.snapshot.machine, joined.host);
            last::note(dir.path(), machine, target)?;
            let daemon = Daemon::joined(clock::now(), config(&facts), &joined, &mut outbox)
                .context("the machine's state cannot be read")?;
            log::info!("{name} ({}) is {host} of machine {machine}", facts.addr);
            (daemon, machine, host, facts)
        }
    };
    let event_loop = EventLoop::new(Parts {
        daemon,
        outbox,
        identity: Identity {
            machine,
            host,
            name,
            secret,
            mode,
        },
        arrival: Arrival::new(reach, listening, dir.handle(), args.detached),
        link_listener,
        local_listener: dir.listen()?,
        spawner,
        path: ProgramPath::new(&args.path),
        store,
        pusher,
    })?;
    dir.publish_address(&facts.addr)?;
    let relocks = Arc::clone(guardian);
    dir.look_after(event_loop.doors(), move |lock| relocks.relock(lock))?;
    Ok(event_loop)
}
