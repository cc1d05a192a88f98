//! Checkpoints that were committed are copied to a bucket of an object store, if the store has one.
//!
//! A process of its own does it, less urgent than any task: it looks what is in the folder and in the
//! bucket, and makes them alike ([`vm_bucket::Mirror::push`]). One runs at a time. It is started when
//! the daemon starts and after each commit; what is committed meanwhile is seen by the one that runs, or
//! by the next. So one that fails is made good by the next one. Nobody waits for it.
//!
//! ```text
//! commit -> this thread -> pusher: STORE == HTTPS ==> bucket
//! ```

use crate::{
    fault,
    process::{helper, helper_job::HelperJob},
};
use anyhow::Context as _;
use rustix::process::nice;
use std::{
    fs::File,
    io::Read,
    panic,
    path::Path,
    process::Stdio,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};
use vm_bucket::{Address, BucketError, Mirror, Pushed, Remote, Tie};
use vm_store::{Store, name};

/// How its last word begins if all went well.
const DONE: &str = "done ";
/// Added to its nice value.
const LATER: i32 = 10;
/// What it says is read up to so many bytes.
const WORDS_MAX: u64 = 64 << 10;

/// The work of a pusher: copies what the store in folder `root` has and its bucket has not.
///
/// # Errors
/// Why not all of it is there.
pub fn push(root: &Path) -> anyhow::Result<()> {
    // Where that is not allowed, it is as urgent as others.
    let _ = nice(LATER);
    fault::at_carrier("pusher");
    let mirror = Mirror::open(root, None)?.context("the store has no bucket any more")?;
    eprintln!("{DONE}{}", report(&mirror.push()?));
    Ok(())
}

/// What it did, a line for each; nothing if there was nothing to do.
fn report(pushed: &Pushed) -> String {
    let named = |app, id| format!("{} {id}", name::app(app));
    let copied = pushed.copied.iter();
    let copied = copied.map(|(app, id)| format!("copied {}", named(*app, *id)));
    let removed = pushed.removed.iter();
    let removed = removed.map(|(app, id)| format!("removed {}", named(*app, *id)));
    let failed = pushed.failed.iter();
    let failed = failed.map(|(app, id, why)| format!("did not copy {}: {why}", named(*app, *id)));
    let lines: Vec<String> = copied.chain(removed).chain(failed).collect();
    lines.join("; ")
}

/// The way to the thread that starts it.
#[derive(Debug, Clone)]
pub struct Pusher {
    wanted: SyncSender<()>,
}

impl Pusher {
    /// Says that the store in folder `root` has that bucket, and copies what is there.
    ///
    /// # Errors
    /// When that is no address, or the environment has no credentials, or the folder is not safe.
    pub fn start(root: &Path, url: &str, endpoint: Option<&str>) -> anyhow::Result<Pusher> {
        let address = Address::parse(url, endpoint).map_err(BucketError::from)?;
        Remote::new(address.clone())?;
        let root = Store::open(root)?.root().to_owned();
        Tie::new(&root).set_address(&address)?;
        let (wanted, wishes) = mpsc::sync_channel(1);
        let pusher = Pusher { wanted };
        pusher.push();
        let place = address.to_string();
        // It starts processes that end with it: it lives as long as the daemon.
        thread::Builder::new()
            .name("bucket".to_owned())
            .spawn(move || work(&root, &place, &wishes))
            .context("cannot start a thread")?;
        Ok(pusher)
    }

    /// Something was committed. If one is wanted already, that one will see it.
    pub fn push(&self) {
        let _ = self.wanted.try_send(());
    }
}

fn work(root: &Path, place: &str, wishes: &Receiver<()>) {
    for () in wishes {
        // Whoever starts a process that cannot begin may find that it was waited for, and panic.
        let ran = panic::catch_unwind(|| run(root));
        match ran.unwrap_or_else(|_| Err(anyhow::anyhow!("cannot start a process"))) {
            Ok(said) if said.is_empty() => {}
            Ok(said) => log::info!("{place}: {said}"),
            Err(error) => log::warn!(
                "not all checkpoints are in {place}; tried again after the next one: {error:#}"
            ),
        }
    }
}

/// Runs one to its end. Its process is reaped by the daemon, like all that it did not expect.
fn run(root: &Path) -> anyhow::Result<String> {
    let job = HelperJob::BucketPusher {
        root: root.to_owned(),
    };
    let mut command = helper::tied_command(&job);
    fault::pass_on(&mut command, "pusher");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (_, words) = helper::spawn(command).context("cannot start a process")?;
    let mut said = String::new();
    if let Some(words) = words {
        File::from(words)
            .take(WORDS_MAX)
            .read_to_string(&mut said)
            .context("reading what it says")?;
    }
    let said = said.trim();
    match said.strip_prefix(DONE.trim_end()) {
        Some(done) => Ok(done.trim().to_owned()),
        None if said.is_empty() => anyhow::bail!("the process that copies them was killed"),
        None => anyhow::bail!("{said}"),
    }
}
