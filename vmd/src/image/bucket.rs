//! Copies committed checkpoints to a bucket of an object store, if the store has a bucket.
//!
//! A helper process, the pusher, does the work at a lower priority than any task: it compares the
//! store's folder with the bucket and uploads the difference ([`vm_bucket::Mirror::push`]). One
//! pusher runs at a time. The daemon starts a pusher at its own start and after each commit. A
//! checkpoint that is committed while a pusher runs is copied by that pusher or by the next one. So
//! the next pusher also makes up for one that has failed. Nothing waits for a pusher.
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

/// Prefix of the last output of a pusher that succeeded.
const DONE: &str = "done ";
/// Added to the nice value of a pusher.
const LATER: i32 = 10;
/// Bound on the bytes that are read of a pusher's output.
const WORDS_MAX: u64 = 64 << 10;

/// The work of a pusher: copies the checkpoints that the store in folder `root` has and its bucket
/// lacks.
///
/// # Errors
/// The reason why some checkpoint was not copied.
pub fn push(root: &Path) -> anyhow::Result<()> {
    // If raising the nice value is not allowed, the pusher runs at normal priority.
    let _ = nice(LATER);
    fault::at_carrier("pusher");
    let mirror = Mirror::open(root, None)?.context("the store has no bucket any more")?;
    eprintln!("{DONE}{}", report(&mirror.push()?));
    Ok(())
}

/// The checkpoints that the pusher has copied, one line for each; empty if none had to be copied.
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

/// Handle of the thread that starts pushers.
#[derive(Debug, Clone)]
pub struct Pusher {
    wanted: SyncSender<()>,
}

impl Pusher {
    /// Records in the store's folder `root` that the store has this bucket, and starts a first
    /// pusher.
    ///
    /// # Errors
    /// When `url` is not an address, the environment has no credentials, or the folder is not safe.
    pub fn start(root: &Path, url: &str, endpoint: Option<&str>) -> anyhow::Result<Pusher> {
        let address = Address::parse(url, endpoint).map_err(BucketError::from)?;
        Remote::new(address.clone())?;
        let root = Store::open(root)?.root().to_owned();
        Tie::new(&root).set_address(&address)?;
        let (wanted, requests) = mpsc::sync_channel(1);
        let pusher = Pusher { wanted };
        pusher.push();
        let place = address.to_string();
        // The pusher's parent-death signal belongs to this thread, which lives as long as the
        // daemon.
        thread::Builder::new()
            .name("bucket".to_owned())
            .spawn(move || work(&root, &place, &requests))
            .context("cannot start a thread")?;
        Ok(pusher)
    }

    /// Requests a pusher after a commit. If a pusher is requested already, that one will see the
    /// commit.
    pub fn push(&self) {
        let _ = self.wanted.try_send(());
    }
}

fn work(root: &Path, place: &str, requests: &Receiver<()>) {
    for () in requests {
        // `Command::spawn` may panic if the daemon has already reaped the child that could not
        // begin.
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

/// Runs one pusher to its end. The daemon reaps its process, like all children that it did not
/// expect.
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
