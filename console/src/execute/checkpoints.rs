//! `checkpoint`, `stop`, `checkpoints`.

use super::console::{Console, code_of};
use crate::{
    ask, bucket,
    checkpoints::{self, Folder},
    command::{CheckpointArgs, CheckpointsArgs, TidArg},
    event::Event,
    failure::ClientError,
};
use anyhow::bail;
use vm_bucket::Tie;
use vm_wire::{Tid, task::FailKind};

impl Console {
    /// Makes a checkpoint now, or sets the checkpoint policy.
    pub(super) fn checkpoint(&mut self, args: &CheckpointArgs) -> anyhow::Result<u8> {
        let tid = self.resolve(&args.tid)?;
        if let Some(policy) = args.policy() {
            self.ask(ask::policy(tid, policy))?;
            return self.done(&Event::Policy(tid, policy));
        }
        let report = self.ask(ask::checkpoint(tid, false))?;
        self.done(&Event::Checkpointed(&report))
    }

    pub(super) fn stop(&mut self, tid: &TidArg) -> anyhow::Result<u8> {
        let tid = self.resolve(tid)?;
        let report = self.ask(ask::checkpoint(tid, true))?;
        self.done(&Event::Stopped(&report))
    }

    /// Lists the checkpoints in a store, after removing those of one application if told to.
    pub(super) fn checkpoints(&mut self, args: &CheckpointsArgs) -> anyhow::Result<u8> {
        let folder = match &args.store {
            Some(root) => Folder::at(root),
            None => Folder::of(&self.conf()?),
        };
        if args.store.is_some() && !folder.root.exists() {
            bail!("there is no store {}", folder.root.display());
        }
        if let Some(app) = args.remove {
            if args.store.is_none() {
                self.may_be_removed(app)?;
            }
            self.remove_named(&folder, app)?;
        }
        let mut rows = checkpoints::list(&folder, args.verify)?;
        if folder.host.is_some() {
            self.ask_stores(&mut rows, args.verify)?;
        }
        let known = bucket::mark(&mut rows, &folder)?;
        self.renderer
            .show(&Event::Checkpoints(&rows, known.as_ref(), &folder.root))?;
        let is_damaged = rows.iter().any(|row| row.damaged.is_some());
        if args.verify && !is_damaged {
            self.renderer
                .notice("all checkpoints were read, and are undamaged")?;
        }
        Ok(code_of(!is_damaged))
    }

    /// Requests from each host, which has a store of its own, which of these checkpoints it has.
    fn ask_stores(&mut self, rows: &mut [checkpoints::Row], verify: bool) -> anyhow::Result<()> {
        let mut apps: Vec<Tid> = rows.iter().map(|row| row.app).collect();
        apps.dedup();
        for app in apps {
            let stock = self.ask(ask::stock(app, verify))?;
            checkpoints::merge(rows, app, &stock);
        }
        Ok(())
    }

    /// Removes the checkpoints of an application that the user has named.
    fn remove_named(&mut self, folder: &Folder, app: Tid) -> anyhow::Result<()> {
        let known = checkpoints::knows(folder, app);
        self.remove_checkpoints(folder, app)?;
        // This host does not know whether other hosts or a bucket had checkpoints of the
        // application.
        if !known? && folder.host.is_none() && !bucket::has(folder) {
            bail!(checkpoints::none_of(folder, app));
        }
        Ok(())
    }

    /// Removes the checkpoints of an application from a store and from its bucket. If each host has a
    /// store of its own, also from those of the other hosts.
    pub(super) fn remove_checkpoints(&mut self, folder: &Folder, app: Tid) -> anyhow::Result<()> {
        if folder.host.is_some() {
            self.ask(ask::forget_stored(app))?;
        }
        let tie = bucket::has(folder).then(|| Tie::new(&folder.root));
        if let Some(tie) = &tie {
            tie.remove(app)?;
        }
        checkpoints::remove(folder, app)?;
        if tie.is_some() {
            // Checkpoints that cannot be removed now are removed when the next checkpoint is
            // copied.
            let mirror = bucket::mirror(&folder.root, None);
            let gone = mirror.and_then(|mirror| Ok(mirror.map(|it| it.forget(app)).transpose()?));
            if let Err(error) = gone {
                let text = format!("not yet removed from the bucket: {error:#}");
                self.renderer.announce("Bucket", &text)?;
            }
        }
        Ok(())
    }

    /// Fails if the machine needs the checkpoints of an application, or the images beside them of its
    /// tasks that are suspended alone.
    fn may_be_removed(&mut self, app: Tid) -> anyhow::Result<()> {
        let shown = app.show(self.machine()?).to_string();
        if self.suspended_rows()?.iter().any(|row| row.app == app) {
            bail!("{shown} is suspended with one of them: resume it first (vm resume {shown})");
        }
        let rows = match self.task_rows(Some(app)) {
            Err(ClientError::Refused(failed)) if failed.kind == FailKind::NoSuchTask => Vec::new(),
            rows => rows?,
        };
        if let Some(row) = rows.iter().find(|row| row.suspended) {
            let name = row.tid.show(self.machine()?).to_string();
            bail!(
                "its task {name} is suspended into that store: resume it first (vm resume {name})"
            );
        }
        // An application whose master has ended is about to end, and needs no checkpoint.
        if rows.iter().any(|row| row.tid == app) {
            let text = format!("{shown} runs, and cannot be restarted until its next checkpoint");
            self.renderer.notice(&text)?;
        }
        Ok(())
    }
}
