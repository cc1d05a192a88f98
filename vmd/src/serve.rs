//! The life of a daemon: it takes its folder, starts its log and its guardian, then runs the event
//! loop until the end.

use crate::{
    enter::{Entered, Entry},
    event_loop::{EventLoop, Parts},
    image::{
        bucket::Pusher,
        store::{self, StoreLocation},
    },
    net::{address, arrival::Arrival, hello::Identity, reach::Reach, secure::Mode, sockets},
    process::{guardian::Guardian, lease::Probe, program::ProgramPath, spawn::Spawner},
    start::{
        args::{self, Args},
        detach,
        dir::Dir,
        inherited::Inherited,
        last,
        logging::{Log, LogFile, Sink},
        secret::{self, ENV_SECRET, Secret},
    },
};
use anyhow::{Context as _, bail};
use std::{
    env,
    ffi::OsString,
    fs::{DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::Arc,
};
use vm_bucket::CREDENTIALS;
use vm_wire::place;

/// Takes the folder, starts the daemon and runs it to its end. The secret and the log stay in the
/// folder.
///
/// # Errors
/// The reason why the daemon could not start, or the reason of an end that was not orderly.
pub fn serve(args: &Args, inherited: Inherited) -> anyhow::Result<()> {
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

/// Reports how the last daemon in the folder ended: to the command that starts this daemon, and in
/// the log.
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

/// Leaves a note for the next daemon in the folder. After an orderly end the note is written only
/// if the log stays.
fn note_end(args: &Args, dir: &Dir, ended: &anyhow::Result<String>) {
    match ended {
        Err(error) => dir.note_end(&format!("ended by itself: {error:#}")),
        Ok(why) if args.detached => dir.note_end(&format!("ended in order: {why}")),
        Ok(_) => {}
    }
}

/// The folder of checkpoints: the folder that the user gave; or, if the user chose the daemon's
/// folder, a folder inside it; else a folder that outlives logins, which hosts with a shared home
/// directory share.
///
/// # Errors
/// When the folder cannot be made.
fn store_root(args: &Args, dir: &Dir, host: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = &args.store {
        return std::path::absolute(given).context("--store");
    }
    // The console names the folder even if the folder is the default one.
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
    // The store makes only the last folder of its path.
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

/// The daemon's folder if the command line names none; `given` is the value of [`place::ENV_DIR`].
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

/// The machine's secret: handed over, read from the file, or, for a founder, random.
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

/// Founds or joins a machine, and makes the event loop, which accepts connections from then on.
fn start(args: &Args, dir: &Dir, guardian: &Arc<Guardian>) -> anyhow::Result<EventLoop> {
    let probe = Probe::start()?;
    let name = args::host_name(args)?;
    if args.join.is_none() && !args.found {
        last::check(dir.path())?;
    }
    let secret = secret(args, dir)?;
    let mode = match args.unencrypted_links {
        true => Mode::Plain,
        false => Mode::Encrypted,
    };
    let work_dir = args::work_dir(args)?;
    let spawner = spawner(args, dir, work_dir.as_ref(), guardian);
    let link_listener = address::listen(&args.listen)?;
    let listening = link_listener.local_addr()?;
    let store = store_location(args, dir, &name)?;
    let pusher = pusher(args, &store)?;
    probe.finish()?;
    let entry = Entry {
        args,
        dir: dir.path(),
        name: &name,
        secret: &secret,
        mode,
        listening,
        work_dir: work_dir.as_ref(),
        store: &store,
        nonce: secret::random_u64(),
    };
    let Entered {
        daemon,
        outbox,
        machine,
        host,
        facts,
    } = entry.enter()?;
    let reach = Reach {
        learns: address::learns(args.advertise.as_deref(), listening),
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

/// The spawner of this daemon, with everything that the processes of tasks start with.
fn spawner(args: &Args, dir: &Dir, work_dir: Option<&String>, guardian: &Arc<Guardian>) -> Spawner {
    Spawner {
        socket: dir.socket(),
        work_dir: work_dir.cloned(),
        path: ProgramPath::new(&args.path),
        hidden: args.store_bucket.is_some().then_some(CREDENTIALS),
        file_limit: sockets::raise_file_limit(),
        // Only a process with a controlling terminal can open this file.
        has_terminal: File::open("/dev/tty").is_ok(),
        guardian: Arc::clone(guardian),
    }
}

fn store_location(args: &Args, dir: &Dir, host: &str) -> anyhow::Result<StoreLocation> {
    let root = store_root(args, dir, host)?;
    // The root is part of the command line of helper processes, which is UTF-8.
    if root.to_str().is_none() {
        let root = root.display();
        bail!(
            "the name of the folder for checkpoints, {root}, is not UTF-8: give another one by --store"
        );
    }
    log::info!("checkpoints are in {}", root.display());
    Ok(StoreLocation {
        root,
        host: host.to_owned(),
        quota: args.store_quota.unwrap_or(0),
        local: args.store_local,
        started_ms: store::now_ms(),
    })
}

/// Starts the thread that copies checkpoints to the store's bucket, if the store has one.
fn pusher(args: &Args, store: &StoreLocation) -> anyhow::Result<Option<Pusher>> {
    let Some(url) = &args.store_bucket else {
        return Ok(None);
    };
    let endpoint = args.store_endpoint.as_deref();
    let pusher = Pusher::start(&store.root, url, endpoint).context("--store-bucket")?;
    Ok(Some(pusher))
}
