//! What has to do with checkpoints in the store and in its bucket, beside what the daemon is asked.

use super::Console;
use crate::{
    bucket,
    checkpoints::{self, Folder},
    command::{self, AppArg, Between, StoreAction},
    event::Event,
    exit,
    failure::{ClientError, UsageError},
};
use anyhow::{Context as _, bail};
use std::iter;
use vm_bucket::{Address, Fetched, Mirror, Tie};
use vm_store::{CheckpointId, Depth};
use vm_wire::{
    Tid,
    checkpoint::Policy,
    console::{Answer, Request},
    task::FailKind,
};

impl Console {
    /// Removes the checkpoints of an application: from that folder, and, if it is the own one of the host
    /// here, from those of all others.
    pub(super) fn remove_checkpoints(&mut self, folder: &Folder, app: Tid) -> anyhow::Result<()> {
        if folder.host.is_some() {
            let Answer::Done = self.client()?.ask(&Request::ForgetStored(app))? else {
                return Err(ClientError::Unexpected.into());
            };
        }
        let tie = bucket::has(folder).then(|| Tie::new(&folder.root));
        if let Some(tie) = &tie {
            tie.remove(app)?;
        }
        checkpoints::remove(folder, app)?;
        if tie.is_some() {
            // Whoever copies the next checkpoint does it if it cannot be done now.
            let mirror = bucket::mirror(&folder.root, None);
            let gone = mirror.and_then(|mirror| Ok(mirror.map(|it| it.forget(app)).transpose()?));
            if let Err(error) = gone {
                let text = format!("not yet removed from the bucket: {error:#}");
                self.renderer.announce("Bucket", &text)?;
            }
        }
        Ok(())
    }

    /// Whether nothing in the machine needs the checkpoints of an application; with them go the images
    /// of its tasks that are suspended alone.
    pub(super) fn may_be_removed(&mut self, app: Tid) -> anyhow::Result<()> {
        let shown = app.show(self.machine()?).to_string();
        if self.suspended()?.iter().any(|row| row.app == app) {
            bail!("{shown} is suspended with one of them: resume it first (vm resume {shown})");
        }
        let rows = match self.tasks(Some(app), None) {
            Err(ClientError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => Vec::new(),
            rows => rows?,
        };
        if let Some(row) = rows.iter().find(|row| row.suspended) {
            let name = row.tid.show(self.machine()?).to_string();
            bail!(
                "its task {name} is suspended into that store: resume it first (vm resume {name})"
            );
        }
        // All of it: its master has ended before its last tasks.
        if rows.iter().any(|row| row.tid == app) {
            let text =
                format!("{shown} runs, and has nothing to go back to until its next checkpoint");
            self.renderer.notice(&text)?;
        }
        Ok(())
    }

    /// The only application of which there are checkpoints, in the store or, if there are none, in its
    /// bucket.
    pub(super) fn only_stored(&mut self) -> anyhow::Result<Tid> {
        let folder = Folder::of(&self.conf(None)?);
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

    /// Brings an application back from the store; if that has a bucket, what the folder lacks is fetched
    /// from it first, and what proves to be damaged is fetched then. `way`: attached, with its files kept.
    /// From then on, if attached, checkpoints of it are made by `policy`, if that is given.
    pub(super) fn restart_stored(
        &mut self,
        app: Tid,
        from: Option<CheckpointId>,
        (attach, keep_files): (bool, bool),
        policy: Option<Policy>,
    ) -> anyhow::Result<u8> {
        let request = |from: Option<CheckpointId>| Request::Restart {
            app,
            from: from.map(|id| (id.generation, id.epoch)),
            attach,
            keep_files,
        };
        let folder = Folder::of(&self.conf(None)?);
        if !bucket::has(&folder) {
            return self.restart(&request(from), policy);
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
                let text = format!("only the folder is looked at: {error:#}");
                self.renderer.announce("Bucket", &text)?;
                return self.restart(&request(from), policy);
            }
        };
        let refused = match self.restart(&request(from.or(fetched.good)), policy) {
            Err(error) if is_of_system(&error) => error,
            restarted => return restarted,
        };
        // What is inside of the images is seen only when they are read.
        let mended = self.fetch(&mirror, app, from, Depth::Hashes)?;
        match mended.fetched || !mended.passed_over.is_empty() {
            true => self.restart(&request(from), policy),
            false => Err(refused),
        }
    }

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

    pub(super) fn store(&mut self, action: &StoreAction) -> anyhow::Result<u8> {
        match action {
            StoreAction::Help { action } => {
                let command: Vec<&str> = iter::once("store").chain(action.as_deref()).collect();
                self.renderer
                    .show(&Event::Help(&command::help(&command)?))?;
                Ok(exit::DONE)
            }
            StoreAction::Push { between } => {
                let mirror = self.mirror(between)?;
                let pushed = mirror.push()?;
                self.renderer
                    .show(&Event::Pushed(&pushed, mirror.address()))?;
                Ok(match pushed.failed.is_empty() {
                    true => exit::DONE,
                    false => exit::FAILED,
                })
            }
            StoreAction::Pull { app, from, between } => {
                let mirror = self.mirror(between)?;
                let app = match app {
                    AppArg::Named(app) => *app,
                    AppArg::Master(tid) => self.resolve(tid)?,
                };
                let fetched = mirror.fetch(app, *from, Depth::Hashes)?;
                self.renderer
                    .show(&Event::Pulled(app, &fetched, mirror.address()))?;
                Ok(match fetched.good {
                    Some(_) => exit::DONE,
                    None => exit::FAILED,
                })
            }
            StoreAction::List { between } => {
                let mirror = self.mirror(between)?;
                let rows = bucket::list(&mirror)?;
                self.renderer
                    .show(&Event::InBucket(&rows, mirror.address()))?;
                let damaged = rows.iter().any(|it| it.row.damaged.is_some());
                Ok(match damaged {
                    true => exit::FAILED,
                    false => exit::DONE,
                })
            }
        }
    }

    fn mirror(&mut self, between: &Between) -> anyhow::Result<Mirror> {
        let root = match &between.store {
            Some(root) => root.clone(),
            None => Folder::of(&self.conf(None)?).root,
        };
        let endpoint = between.endpoint.as_deref();
        let bucket = between.bucket.as_deref();
        let address = bucket.map(|url| Address::parse(url, endpoint)).transpose();
        let address = address.map_err(|error| UsageError(error.to_string()))?;
        bucket::mirror(&root, address)?.with_context(|| {
            format!(
                "the store {} has no bucket: name one with --bucket, or for its daemon with vmd \
                 --store-bucket",
                root.display()
            )
        })
    }
}

/// Whether a restart failed because of what is in the store, perhaps.
fn is_of_system(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<ClientError>();
    matches!(refused, Some(ClientError::Refused(failed)) if failed.kind == FailKind::System)
}
