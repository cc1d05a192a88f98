//! `restart`: an application from a checkpoint, which may have to be fetched from the store's bucket
//! first.

use super::console::Console;
use crate::{
    ask::{self, Restart},
    bucket,
    checkpoints::{self, Folder},
    command::RestartArgs,
    event::Event,
    failure::ClientError,
    run,
};
use anyhow::Context as _;
use vm_bucket::{Fetched, Mirror};
use vm_store::{CheckpointId, Depth};
use vm_wire::{Tid, checkpoint::Policy, task::FailKind};

/// An application that is to be restarted from its checkpoints in a store, and the options of the
/// restart.
pub(super) struct Stored {
    /// The application, its master's tid.
    pub app: Tid,
    /// The checkpoint; the last undamaged one if absent.
    pub from: Option<CheckpointId>,
    /// Whether this console shows the output of the application until its master ends.
    pub attach: bool,
    /// Whether files that its tasks had open for writing are not rolled back.
    pub keep_files: bool,
    /// The checkpoint policy from then on, if attached; absent: as before.
    pub policy: Option<Policy>,
}

impl Stored {
    fn restart_from(&self, from: Option<CheckpointId>) -> Restart {
        Restart {
            app: self.app,
            from,
            attach: self.attach,
            keep_files: self.keep_files,
        }
    }
}

impl Console {
    pub(super) fn restart(&mut self, args: &RestartArgs) -> anyhow::Result<u8> {
        let app = match &args.app {
            Some(app) => self.app(app)?,
            None => self.only_stored()?,
        };
        self.restart_stored(&Stored {
            app,
            from: args.from,
            attach: !args.detach,
            keep_files: args.keep_files,
            policy: None,
        })
    }

    /// The only application with checkpoints in the store or, if the store is empty, in its bucket.
    fn only_stored(&mut self) -> anyhow::Result<Tid> {
        let folder = Folder::of(&self.conf()?);
        let mut rows = checkpoints::list(&folder, false)?;
        if rows.is_empty()
            && let Some(mirror) = bucket::mirror(&folder.root, None)?
        {
            rows = bucket::list(&mirror)?
                .into_iter()
                .map(|it| it.row)
                .collect();
        }
        checkpoints::only(&folder, &rows)
    }

    /// Restarts an application. If the store has a bucket, parts that the folder lacks are fetched
    /// from the bucket first. If the restart finds damaged parts, these are fetched, and the restart
    /// is repeated once.
    pub(super) fn restart_stored(&mut self, stored: &Stored) -> anyhow::Result<u8> {
        let (app, from) = (stored.app, stored.from);
        let folder = Folder::of(&self.conf()?);
        if !bucket::has(&folder) {
            return self.restart_from(stored, from);
        }
        let found = bucket::mirror(&folder.root, None).and_then(|mirror| {
            let mirror = mirror.context("the store has no bucket any more")?;
            let fetched = self.fetch(&mirror, app, from, Depth::Lengths)?;
            Ok((mirror, fetched))
        });
        let (mirror, fetched) = match found {
            Ok(found) => found,
            Err(error) => {
                let rows = checkpoints::list(&folder, false)?;
                let is_it = |row: &checkpoints::Row| row.app == app && row.damaged.is_none();
                if !rows.iter().any(is_it) {
                    return Err(error);
                }
                let text = format!("the bucket is not used, only the folder: {error:#}");
                self.renderer.announce("Bucket", &text)?;
                return self.restart_from(stored, from);
            }
        };
        let refused = match self.restart_from(stored, from.or(fetched.good)) {
            Err(error) if is_of_system(&error) => error,
            restarted => return restarted,
        };
        // Damage inside an image shows only when the image is read.
        let mended = self.fetch(&mirror, app, from, Depth::Hashes)?;
        match mended.fetched || !mended.passed_over.is_empty() {
            true => self.restart_from(stored, from),
            false => Err(refused),
        }
    }

    /// Restarts an application from the checkpoints in the folder. An attached restart takes a
    /// connection of its own, as a run does.
    fn restart_from(&mut self, stored: &Stored, from: Option<CheckpointId>) -> anyhow::Result<u8> {
        let conf = self.conf()?;
        let restart = stored.restart_from(from);
        if stored.attach {
            let (dir, interrupt) = (self.dir().to_owned(), self.interrupt());
            let what = (restart, stored.policy);
            return run::restart(&dir, &interrupt, what, &conf, &mut self.renderer);
        }
        let report = self.ask(ask::restart(restart))?;
        self.done(&Event::Restarted(&report, &conf))
    }

    /// Fetches the parts of a checkpoint that the folder lacks, and reports them to the user.
    fn fetch(
        &mut self,
        mirror: &Mirror,
        app: Tid,
        from: Option<CheckpointId>,
        depth: Depth,
    ) -> anyhow::Result<Fetched> {
        let (fetched, said) = bucket::fetch(mirror, app, from, depth)?;
        for text in said {
            self.renderer.announce("Bucket", &text)?;
        }
        Ok(fetched)
    }
}

/// Whether a restart failed for a reason that may lie in the store.
fn is_of_system(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<ClientError>();
    matches!(refused, Some(ClientError::Refused(failed)) if failed.kind == FailKind::System)
}
